"""Every kind of tool the SDK has, and what becomes of its calls. If these fail, a command, a patch or a server's tool runs ungated."""

from __future__ import annotations

import asyncio
import json

import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    CodeInterpreterTool,
    CustomTool,
    HostedMCPTool,
    LocalShellTool,
    RunConfig,
    Runner,
    RunState,
    ShellTool,
    WebSearchTool,
    function_tool,
)
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool import ComputerTool
from openai.types.responses import ResponseApplyPatchToolCall, ResponseCustomToolCall, ResponseFunctionShellToolCall
from openai.types.responses.response_output_item import LocalShellCall, McpApprovalRequest

from warmgate.errors import OptionError
from warmgate.gate import Gate
from warmgate.settings import Settings
from warmgate.standin import StandIn
from warmgate_adapters.conformance import Driver
from warmgate_adapters.conformance.rig import Sets, Words, calls, rig, says
from warmgate_adapters.openai_agents import GatedModel, GateHooks, gate_session, gated_mcp_tools, gated_tools, run_config, sticky_model

DONE = assistant_message("done")


class NoDriver(Driver):
    async def open(self, agent):
        raise NotImplementedError


def world(tmp_path, chat=(), **more):
    return rig(NoDriver(), tmp_path, chat, **more)


def shell_call(*commands, call_id="s1"):
    return ResponseFunctionShellToolCall.model_validate({
        "id": f"i{call_id}", "call_id": call_id, "type": "shell_call", "status": "completed",
        "action": {"commands": list(commands), "timeout_ms": None, "max_output_length": None}, "environment": None,
    })  # fmt: skip


def patch(path, diff, call_id="p1", kind="update_file"):
    operation = {"type": kind, "path": path} | ({} if kind == "delete_file" else {"diff": diff})
    return ResponseApplyPatchToolCall.model_validate(
        {"id": f"i{call_id}", "call_id": call_id, "type": "apply_patch_call", "status": "completed", "operation": operation}
    )


def shell(ran, **more):
    def execute(request):
        ran.append(request.data.action.commands)
        return "ran"

    return ShellTool(executor=execute, **more)


class Editor:
    def __init__(self):
        self.done = []

    def update_file(self, operation):
        self.done.append((operation.path, operation.diff))
        return "patched"

    create_file = delete_file = update_file


def outputs(result):
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


async def go(gate, agent, given, **more):
    return await Runner.run(agent, given, hooks=GateHooks(gate), run_config=run_config(gate, "s"), **more)


async def test_shell_commands_run_ask_or_are_denied(tmp_path):
    async with world(tmp_path) as made:
        ran = []
        model = ScriptedModel([[shell_call("ls"), shell_call("ls", "rm -r x", call_id="s2"), shell_call("make", call_id="s3")], [DONE]])
        agent = Agent(name="a", model=model, tools=gated_tools([shell(ran)], made.gate))
        result = await go(made.gate, agent, "build", context={})
        assert ran == [["ls"]]
        assert made.gate.judgings() == 1
        assert [one.tool_name for one in result.interruptions] == ["shell"]
        state = await RunState.from_json(agent, json.loads(json.dumps(result.to_state().to_json())))
        state.approve(state.get_interruptions()[0])
        result = await go(made.gate, agent, state)
        assert ran == [["ls"], ["make"]]
        assert any("it removes files" in one for one in outputs(result))
        assert result.final_output == "done"


async def test_a_shell_that_is_not_mounted_does_not_run(tmp_path):
    async with world(tmp_path, mounts=Sets({1: ("read",)})) as made:
        ran = []
        tools = gated_tools([*map(function_tool, made.tools[:1]), shell(ran)], made.gate)
        model = ScriptedModel([[shell_call("ls")], [DONE]])
        result = await go(made.gate, Agent(name="a", model=GatedModel(model, made.gate), tools=tools), "look")
        assert ran == []
        assert "shell is not mounted" in outputs(result)[0]
        assert [[tool.name for tool in call.tools] for call in model.calls] == [["read"], ["read"]]


async def test_local_shell_calls_that_need_a_person_are_rejected_as_the_sdk_asks_nobody(tmp_path):
    async with world(tmp_path) as made:
        ran = []

        def local(*command, call_id):
            action = {"type": "exec", "command": list(command), "env": {}}
            return LocalShellCall.model_validate(
                {"id": f"i{call_id}", "call_id": call_id, "type": "local_shell_call", "status": "completed", "action": action}
            )

        tool = LocalShellTool(executor=lambda request: ran.append(request.data.action.command) or "ran")
        model = ScriptedModel([[local("ls", call_id="1"), local("make", "x", call_id="2")], [DONE]])
        result = await go(made.gate, Agent(name="a", model=model, tools=gated_tools([tool], made.gate)), "build")
        assert ran == [["ls"]]
        assert "nobody is there" in outputs(result)[1]


async def test_a_patch_is_judged_file_by_file_and_bound_to_its_diff(tmp_path):
    async with world(tmp_path) as made:
        editor = Editor()
        model = ScriptedModel([[patch("a", "fine"), patch("b", "rm", "p2"), patch("c", "make", "p3")], [DONE]])
        agent = Agent(name="a", model=model, tools=gated_tools([ApplyPatchTool(editor=editor)], made.gate))
        result = await go(made.gate, agent, "mend", context={})
        assert editor.done == [("a", "fine")]
        state = result.to_state()
        state.approve(state.get_interruptions()[0])
        result = await go(made.gate, agent, state)
        assert editor.done == [("a", "fine"), ("c", "make")]
        assert any("it removes files" in one for one in outputs(result))


async def test_custom_tools_are_gated(tmp_path):
    async with world(tmp_path) as made:
        ran = []

        def call(given, call_id):
            return ResponseCustomToolCall.model_validate(
                {"id": call_id, "call_id": call_id, "type": "custom_tool_call", "name": "sql", "input": given}
            )

        tool = CustomTool(name="sql", description="SQL", on_invoke_tool=lambda _, given: ran.append(given) or "rows")
        model = ScriptedModel([[call("select", "1"), call("rm", "2")], [DONE]])
        result = await go(made.gate, Agent(name="a", model=model, tools=gated_tools([tool], made.gate)), "query")
        assert ran == ["select"]
        assert "it removes files" in outputs(result)[1]


async def test_hosted_mcp_calls_are_put_to_the_gate_before_the_provider_makes_them(tmp_path):
    async with world(tmp_path) as made:
        asked = []

        def request(given, call_id):
            return McpApprovalRequest.model_validate(
                {
                    "id": call_id,
                    "type": "mcp_approval_request",
                    "name": "run",
                    "server_label": "box",
                    "arguments": json.dumps({"do": given}),
                }
            )

        async def theirs(request):
            asked.append(request.data.arguments)
            return {"approve": False, "reason": "not today"}

        config = {"type": "mcp", "server_label": "box", "server_url": "http://box.invalid", "require_approval": "never"}
        (tool,) = gated_tools([HostedMCPTool(config, on_approval_request=theirs)], made.gate)
        assert tool.tool_config["require_approval"] == "always"
        model = ScriptedModel([[request("ls", "1"), request("rm", "2"), request("make", "3")], [DONE]])
        result = await go(made.gate, Agent(name="a", model=model, tools=[tool]), "go")
        said = [item.raw_item for item in result.new_items if item.type == "mcp_approval_response_item"]
        assert [one["approve"] for one in said] == [True, False, False]
        assert "it removes files" in said[1]["reason"]
        assert asked == ['{"do": "make"}']


async def test_tools_that_no_local_gate_can_reach_are_refused_unless_told(tmp_path):
    async with world(tmp_path) as made:
        computer = ComputerTool(computer=lambda **_: None)
        hosted = ShellTool(environment={"type": "container_auto"})
        interpreter = CodeInterpreterTool({"type": "code_interpreter", "container": "auto"})
        for tool in (WebSearchTool(), interpreter, hosted, computer):
            with pytest.raises(OptionError, match="no local gate can reach"):
                gated_tools([tool], made.gate)
            assert gated_tools([tool], made.gate, unreachable="keep") == [tool]


async def test_mcp_tools_of_this_process_are_gated(tmp_path):
    pytest.importorskip("mcp")
    import sys

    from agents.mcp import MCPServerStdio

    server_file = tmp_path / "server.py"
    server_file.write_text(SERVER)
    params = {"command": sys.executable, "args": [str(server_file), str(tmp_path / "ran.txt")]}
    async with MCPServerStdio(params, client_session_timeout_seconds=60) as server, world(tmp_path) as made:
        tools = await gated_mcp_tools([server], made.gate)
        model = ScriptedModel([
            [function_call("run", {"command": "ls"}, call_id="1"), function_call("run", {"command": "rm x"}, call_id="2")], [DONE]
        ])  # fmt: skip
        result = await go(made.gate, Agent(name="a", model=model, tools=tools), "go")
        assert (tmp_path / "ran.txt").read_text() == "ls\n"
        assert "it removes files" in outputs(result)[1]


SERVER = """
import asyncio, sys
import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

tool = types.Tool(name="run", description="Run.", inputSchema={"type": "object", "properties": {"command": {"type": "string"}}})
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}

async def listing(context, params):
    return types.ListToolsResult(tools=[tool])

async def call(context, params):
    with open(sys.argv[1], "a") as file:
        file.write(params.arguments["command"] + "\\n")
    return types.CallToolResult(content=[types.TextContent(type="text", text="ok")])

server = Server("box", on_list_tools=listing, on_call_tool=call)

async def main():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

asyncio.run(main())
"""


async def test_an_always_for_a_tool_lifts_no_ask_of_another_call(tmp_path):
    """Who says "always" to a harmless call has not seen the next one."""
    async with world(tmp_path) as made:
        first, second = ({"command": "make"}, {"command": "make install"})
        model = ScriptedModel([[function_call("shell", first, call_id="1")], [function_call("shell", second, call_id="2")], [DONE]])
        agent = Agent(name="a", model=model, tools=gated_tools(list(map(function_tool, made.tools)), made.gate))
        result = await go(made.gate, agent, "build", context={})
        state = result.to_state()
        state.approve(state.get_interruptions()[0], always_approve=True)
        result = await go(made.gate, agent, state)
        assert "make install" not in [given for _, given in made.ran]


async def test_a_tools_own_approval_and_guardrails_still_hold(tmp_path):
    async with world(tmp_path) as made:
        tools = [function_tool(made.tools[0], needs_approval=True)]
        model = ScriptedModel([[function_call("read", {"path": "a"}, call_id="1")], [DONE]])
        result = await go(made.gate, Agent(name="a", model=model, tools=gated_tools(tools, made.gate)), "go")
        assert [one.tool_name for one in result.interruptions] == ["read"]
        assert made.ran == []


async def test_without_hooks_and_without_our_model_calls_are_still_gated(tmp_path):
    """Forgetting half of the wiring must not let a command through."""
    async with world(tmp_path) as made:
        chat = [[function_call("shell", {"command": c}, call_id=c) for c in ("ls", "rm x", "make")], [DONE]]
        agent = Agent(name="a", model=ScriptedModel(chat), tools=gated_tools(list(map(function_tool, made.tools)), made.gate))
        result = await Runner.run(agent, "go")
        assert made.ran == [("shell", "ls")]
        assert any("it removes files" in one for one in outputs(result))
        assert [one.arguments for one in result.interruptions] == ['{"command":"make"}']
        state = await RunState.from_json(agent, json.loads(json.dumps(result.to_state().to_json())))
        state.approve(state.get_interruptions()[0])
        await Runner.run(agent, state)
        assert made.ran == [("shell", "ls"), ("shell", "make")]


async def test_an_approval_without_a_kept_state_never_lifts_a_deny(tmp_path):
    """Where the context cannot carry the verdict, the policy of now is asked again, and its no stands."""
    async with world(tmp_path) as made:
        tools = list(map(function_tool, made.tools))
        agent = Agent(name="a", tools=gated_tools(tools, made.gate))
        agent.model = ScriptedModel([[function_call("shell", {"command": "make"}, call_id="1")]])
        text = json.dumps((await go(made.gate, agent, "go")).to_state().to_json())

        class Strict(Words):
            def judge(self, call, turn):
                return super().judge(call, turn) if "make" not in str(call.arguments) else super().judge(type(call)("", "x", "rm"), turn)

        await made.restart(Strict("2"))
        agent = Agent(name="a", tools=gated_tools(tools, made.gate), model=ScriptedModel([[DONE]]))
        state = await RunState.from_json(agent, json.loads(text))
        state.approve(state.get_interruptions()[0])
        result = await go(made.gate, agent, state)
        assert made.ran == []
        assert "it removes files" in outputs(result)[0]


async def test_an_agent_that_takes_over_has_mounts_and_a_session_of_its_own(tmp_path):
    async with world(tmp_path, sessions={"s": [calls(("transfer_to_helper", {}))], "s/helper": [says("x"), says("helped")]},
                     mounts=Sets({1: ("read", "web", "transfer_to_helper")})) as made:  # fmt: skip
        read, shell, web = map(function_tool, made.tools)
        model = sticky_model(made.gate)
        helper = Agent(name="helper", model=model, tools=gated_tools([web, shell], made.gate))
        agent = Agent(name="main", model=model, tools=gated_tools([read, shell], made.gate), handoffs=[helper])
        result = await go(made.gate, agent, "go", context={})
        assert result.final_output == "helped"
        names = lambda body: [tool["function"]["name"] for tool in body["tools"]]  # noqa: E731
        assert [names(body) for body in made.chats("s")] == [["read", "transfer_to_helper"]]
        assert [names(body) for body in made.chats("s/helper")] == [["web"]]
        observed = [one for _, one in made.gate.observations]
        assert [one.predicted_tokens for one in observed] == [one.reported_tokens for one in observed]
        await model.close()


async def test_a_run_without_tracing_is_named_by_its_scope(tmp_path):
    """With tracing off the SDK shows nobody its group_id."""
    async with world(tmp_path, [calls(("shell", {"command": "ls"})), says("done")]) as made:
        model = sticky_model(made.gate)
        agent = Agent(name="a", model=model, tools=gated_tools(list(map(function_tool, made.tools)), made.gate))
        with gate_session("quiet"):
            await Runner.run(agent, "go", hooks=GateHooks(made.gate), run_config=RunConfig(tracing_disabled=True))
        assert len(made.chats("quiet")) == 2
        assert made.ran == [("shell", "ls")]
        await model.close()


async def test_the_whole_context_of_a_run_stays_json_and_holds_nothing_of_another_session(tmp_path):
    async with world(tmp_path, [says("hello")]) as made:
        model = sticky_model(made.gate)
        agent = Agent(name="a", model=model, tools=gated_tools(list(map(function_tool, made.tools)), made.gate))
        left, right = {"mine": 1}, {}
        await Runner.run(agent, "go", context=left, hooks=GateHooks(made.gate), run_config=run_config(made.gate, "left"))
        await Runner.run(agent, "go", context=right, hooks=GateHooks(made.gate), run_config=run_config(made.gate, "right"))
        assert left["mine"] == 1
        assert "right" not in json.dumps(left)
        assert json.loads(json.dumps(right))["warmgate"]["gate"]["session"] == "right"
        await model.close()


@pytest.mark.parametrize("hooked", [True, False])
async def test_an_agent_as_a_tool_is_gated_and_leaves_its_callers_session_alone(tmp_path, hooked):
    async with world(tmp_path, mounts=Sets({1: ("shell", "ask_helper")})) as made:
        read, shell, _ = map(function_tool, made.tools)
        inner = ScriptedModel(
            [[function_call("shell", {"command": c}, call_id=f"i{c}") for c in ("ls", "rm x")], [assistant_message("helped")]]
        )
        helper = Agent(name="helper", model=GatedModel(inner, made.gate), tools=gated_tools([shell], made.gate))
        hooks = GateHooks(made.gate) if hooked else None
        tool = helper.as_tool("ask_helper", "Ask the helper.", hooks=hooks)
        outer = ScriptedModel([
            [function_call("ask_helper", {"input": "look"}, call_id="1"), function_call("shell", {"command": "pwd"}, call_id="2")],
            [function_call("read", {"path": "a"}, call_id="3")],
            [DONE],
        ])  # fmt: skip
        agent = Agent(name="main", model=GatedModel(outer, made.gate), tools=gated_tools([read, shell, tool], made.gate))
        result = await go(made.gate, agent, "go", context={})
        assert sorted(made.ran) == [("shell", "ls"), ("shell", "pwd")]
        assert "helped" in outputs(result)
        assert "read is not mounted" in outputs(result)[-1]


async def test_many_sessions_at_once_never_mix(tmp_path):
    sessions = {
        f"s{n}": [calls(("shell", {"command": f"ls {n}"})), calls(("read", {"path": str(n)})), says(f"done {n}")] for n in range(16)
    }
    async with world(tmp_path, sessions=sessions, workers=2, mounts=Sets({1: ("shell",), 2: ("read",)})) as made:
        model = sticky_model(made.gate)
        agent = Agent(name="a", model=model, tools=gated_tools(list(map(function_tool, made.tools)), made.gate))

        async def one(session):
            config = run_config(made.gate, session)
            return await Runner.run(agent, f"go {session}", context={}, hooks=GateHooks(made.gate), run_config=config)

        results = await asyncio.gather(*map(one, sessions))
        assert [result.final_output for result in results] == [f"done {n}" for n in range(16)]
        assert [outputs(result)[0] for result in results] == [f"output of ls {n}" for n in range(16)]
        assert all("read is not mounted" in outputs(result)[1] for result in results)
        for session in sessions:
            assert len({worker for worker, _ in made.seen(session)}) == 1
        await model.close()


@pytest.mark.parametrize(
    ("more", "salt"), [({}, "house"), ({"cache_salt": "tenant", "template_kwargs": {"enable_thinking": False}}, "tenant")]
)
async def test_salt_and_template_arguments_of_a_decision_are_its_calls(tmp_path, more, salt):
    """A call in another namespace, or rendered otherwise, finds nothing of what the decision computed."""
    async with world(tmp_path, [says("hi")], mounts=Sets({1: ("read", "shell", "web")}), cache_salt="house") as made:
        model = sticky_model(made.gate, **more)
        tools = gated_tools(list(map(function_tool, made.tools)), made.gate)
        await go(made.gate, Agent(name="a", model=model, tools=tools), "hello")
        await model.close()
        (call,) = made.chats()
        (read,) = [request.json() for _, request in made.seen("s") if request.path == "/v1/systemone"]
        assert call["cache_salt"] == read["cache_salt"] == salt
        assert call.get("chat_template_kwargs", {}) == more.get("template_kwargs", {})
        assert all(one.drift is None for _, one in made.gate.observations)


def test_the_model_that_is_decided_for_is_the_one_that_is_called(tmp_path):
    """A LoRA named to the gate alone would be decided for and never called."""
    gate = Gate(Settings(workers=["http://127.0.0.1:1"], model="base"))
    assert sticky_model(gate).inner.model == "base"
    assert sticky_model(gate, model="a-lora").inner.model == "a-lora"


def test_one_agent_serves_every_event_loop_of_a_program():
    """A module's agent, run by asyncio.run for each request, would fail from the second on: its connections were the first loop's."""
    with StandIn(script={"chat": [says("one"), says("two"), says("three")]}) as worker:
        gate = Gate(Settings(workers=[worker.url], model="standin"), calls=Words())
        agent = Agent(name="a", model=sticky_model(gate))
        given, told = [], []
        for _ in range(3):
            given.append({"role": "user", "content": "go on"})
            result = asyncio.run(go(gate, agent, given))
            given = result.to_input_list()
            told.append(result.final_output)
        assert told == ["one", "two", "three"]
        gate.close()
