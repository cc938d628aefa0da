"""The parts of the Agents SDK adapter that need no worker. If these fail, runs are mixed up, records lost, or prompts misread."""

from __future__ import annotations

import gc
import json

import pytest
from agents import Agent, RunConfig, RunContextWrapper, SQLiteSession, trace
from agents.testing import function_call
from agents.tracing import generation_span, set_trace_processors

from warmgate import Gate, Settings
from warmgate.errors import OptionError
from warmgate.replay.record import TraceWriter
from warmgate_adapters.openai_agents import TraceRecorder, gate_session, run_config
from warmgate_adapters.openai_agents.desk import KEPT, desk
from warmgate_adapters.openai_agents.shapes import messages_of, proposed, user_turns


@pytest.fixture
def gate():
    return Gate(Settings(workers=["http://127.0.0.1:9"], model="m"))


@pytest.fixture(autouse=True)
def _no_export():
    set_trace_processors([])


def test_a_run_is_named_by_its_scope_then_its_group_then_itself(gate):
    found = desk(gate)
    with trace("w", group_id="thread"):
        assert found.key(RunContextWrapper(None), "a") == "thread"
        with gate_session("scope"):
            assert found.key(RunContextWrapper(None), "a") == "scope"
    left, right = RunContextWrapper(None), RunContextWrapper(None)
    assert found.key(left, "a").startswith("run-")
    assert found.key(left, "a") == found.key(left) != found.key(right, "a")


def test_another_agent_of_a_thread_has_a_session_of_its_own_and_the_first_keeps_its_own(gate):
    run = RunContextWrapper({})
    with gate_session("t"):
        assert [desk(gate).key(run, name) for name in ("main", "helper", "main")] == ["t", "t/helper", "t"]


def test_who_was_first_is_known_after_a_restart(gate):
    run = RunContextWrapper({})
    with gate_session("t"):
        session = desk(gate).session(run, "main")
        desk(gate).keep(session, run, session.state.with_(mounts=("x",)))
        later = RunContextWrapper(json.loads(json.dumps(run.context)))
        other = desk(Gate(gate.settings))
        assert other.session(later, "helper").key == "t/helper"
        assert other.session(later, "main").state.mounts == ("x",)


def test_a_state_of_a_later_version_is_refused_not_guessed(gate):
    run = RunContextWrapper({KEPT: {"gate": {"schema": "warmgate.gate/9"}}})
    with gate_session("t"), pytest.raises(OptionError, match=r"warmgate\.gate/9"):
        desk(gate).session(run, "main")


def test_finished_runs_are_forgotten(gate):
    for _ in range(50):
        run = RunContextWrapper(None)
        session = desk(gate).session(run, "a")
        desk(gate).begin(session, run, [])
    del run
    gc.collect()
    assert len(desk(gate)._runs) == 0
    last = RunContextWrapper(None)
    desk(gate).begin(session, last, [])
    assert len(desk(gate)._calls) == 1


def test_gates_do_not_outlive_their_use():
    gate = Gate(Settings(workers=["http://127.0.0.1:9"], model="m"))
    found = desk(gate)
    assert desk(gate) is found
    assert desk(Gate(gate.settings)) is not found


def test_a_run_configuration_names_the_sdks_session_and_keeps_what_is_set(gate):
    session = SQLiteSession("thread-7")
    assert run_config(gate, session).group_id == "thread-7"
    assert run_config(gate, "x", RunConfig(group_id="mine", workflow_name="w")).group_id == "mine"
    assert run_config(gate, "x", RunConfig(workflow_name="w")).workflow_name == "w"
    with pytest.raises(OptionError, match="no id"):
        run_config(gate, "")
    session.close()


def test_items_of_the_responses_api_are_told_in_a_chats_shape_and_none_is_an_error():
    items = [
        {"role": "user", "content": "go"},
        {"type": "shell_call", "call_id": "1", "id": "i", "action": {"commands": ["ls", "pwd"]}, "status": "completed"},
        {"type": "shell_call_output", "call_id": "1", "output": "a"},
        {"type": "apply_patch_call", "call_id": "2", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "2", "output": "gone"},
        {"type": "mcp_approval_request", "id": "3", "name": "x", "server_label": "s", "arguments": "{}"},
        {"type": "something_new"},
        {"role": "user", "content": "on"},
    ]
    made = messages_of("Be brief.", items, "m")
    assert [one["role"] for one in made] == ["system", "user", "assistant", "tool", "assistant", "tool", "user"]
    assert json.loads(made[2]["tool_calls"][0]["function"]["arguments"]) == {"command": "ls\npwd"}
    assert user_turns(items) == 2


def test_a_local_shell_call_is_judged_with_its_environment_and_folder():
    action = {"command": ["ls", "a b"], "env": {"LD_PRELOAD": "x"}, "working_directory": "/tmp", "type": "exec"}
    call = proposed({"type": "local_shell_call", "call_id": "1", "action": action})
    assert call.arguments == {"command": "LD_PRELOAD=x ls 'a b'", "cwd": "/tmp"}
    assert proposed(function_call("x", {"a": 1}, call_id="1")).arguments == '{"a":1}'
    assert proposed({"type": "message"}) is None


def test_traces_are_recorded_by_group_and_a_full_disk_reaches_no_run(tmp_path, gate):
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path, 16, text=True, salt=b"s")
    set_trace_processors([TraceRecorder(writer)])
    for _ in range(2):
        with trace("w", group_id="g"):
            with generation_span(input=[{"role": "user", "content": "hi"}], output=[{"role": "assistant"}], model="m") as span:
                span.span_data.usage = {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}
    writer.close()
    with trace("w", group_id="g"), generation_span(model="m"):
        pass
    header, first, second = map(json.loads, path.read_text().splitlines())
    assert header["schema"] == "warmgate.trace/1"
    assert (first["index"], second["index"], first["session"]) == (0, 1, second["session"])
    assert (first["prompt_tokens"], first["cached_tokens"], first["output_tokens"]) == (9, 4, 2)
    assert first["messages"] == [{"role": "user", "content": "hi"}]
    set_trace_processors([])


def test_the_adapter_is_not_imported_by_the_gate():
    import subprocess
    import sys

    code = "import sys, warmgate; sys.exit(any(n == 'agents' or n.startswith('warmgate_adapters') for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_agent_needs_no_name_of_ours():
    """The names in the README are the ones that exist."""
    from warmgate_adapters import openai_agents

    assert {"GateHooks", "gated_tools", "run_config", "sticky_model"} <= set(openai_agents.__all__)
    assert all(hasattr(openai_agents, name) for name in openai_agents.__all__)
    assert Agent(name="x").tools == []
