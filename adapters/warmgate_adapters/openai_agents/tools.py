"""Tools that pass the gate: a call runs as it was judged, or not at all."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, cast

from agents import (
    ApplyPatchResult,
    ApplyPatchTool,
    CustomTool,
    FunctionTool,
    HostedMCPTool,
    LocalShellTool,
    MCPToolApprovalFunctionResult,
    MCPToolApprovalRequest,
    RunContextWrapper,
    ShellTool,
    Tool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
)
from agents.editor import ApplyPatchEditor, ApplyPatchOperation
from agents.tool import ShellActionRequest
from agents.tool_context import ToolContext

from warmgate.errors import OptionError
from warmgate.gate import Gate
from warmgate.turn import ProposedCall
from warmgate_adapters.core import Ask, Execute, Outcome, Reject
from warmgate_adapters.openai_agents.desk import Session, desk, keeper_arguments
from warmgate_adapters.openai_agents.shapes import catalogue, local_shell_arguments, patch_arguments, shell_arguments

OnAsk = Literal["ask", "deny"]
Context = RunContextWrapper[Any]


def gated_tools(
    tools: Sequence[Tool], gate: Gate, *, on_ask: OnAsk = "ask", unreachable: Literal["refuse", "keep"] = "refuse"
) -> list[Tool]:
    """Copies of tools whose calls pass the gate; the ones given stay as they are.

    A denied call, and one to a tool that is not mounted, is answered with the reason, and the run goes on. A call that needs a person
    interrupts the run as the SDK's own approvals do. Just before a call runs, its arguments are compared with those that were judged.

    Function, shell, local shell, apply-patch and custom tools are gated here, and hosted MCP servers in that each call has to be approved.
    What else runs at the provider (web and file search, code interpreter, image generation, shell in a hosted container, …) no local gate
    can reach; nor a computer, whose single actions the SDK puts to nobody.

    Args:
        tools: As ``Agent(tools=…)`` takes them.
        gate: The gate.
        on_ask: ``deny`` where nobody is there to approve.
        unreachable: ``keep`` hands tools that cannot be gated on as they are.

    Raises:
        OptionError: One of the tools cannot be gated.
    """
    known = catalogue(tools)
    made: list[Tool] = []
    for tool in tools:
        gated = _Gated(gate, known, on_ask).of(tool)
        if gated is None and unreachable == "refuse":
            raise OptionError(
                "runs where no local gate can reach it",
                where=f"the tool {getattr(tool, 'name', type(tool).__name__)}",
                mend='leave it out, or pass unreachable="keep"',
            )
        made.append(gated or tool)
    return made


class _Gated:
    """Makes gated copies of tools that belong together."""

    def __init__(self, gate: Gate, known: Sequence[Mapping[str, Any]], on_ask: OnAsk) -> None:
        self.desk = desk(gate)
        self.known = known
        self.attended = on_ask == "ask"

    def of(self, tool: Tool) -> Tool | None:
        """A gated copy; ``None`` where there cannot be one."""
        if isinstance(tool, FunctionTool):
            return self._function(tool)
        if isinstance(tool, ShellTool):
            return self._shell(tool) if tool.executor is not None else None
        if isinstance(tool, LocalShellTool):
            return self._local_shell(tool)
        if isinstance(tool, ApplyPatchTool):
            return self._patch(tool)
        if isinstance(tool, CustomTool):
            return self._custom(tool)
        return self._hosted_mcp(tool) if isinstance(tool, HostedMCPTool) else None

    # -- the two looks at a call ---------------------------------------------------------------------------------------------------

    def session(self, context: Context) -> Session:
        agent = getattr(context, "agent", None)
        return self.desk.session(context, getattr(agent, "name", None), self.known, keeper_arguments(agent))

    async def asks(self, context: Context, call: ProposedCall, also: Any, *theirs: Any) -> bool:
        """Whether a person has to be asked: the gate says so, or the tool's own setting does. Never about a call that will not run."""
        outcome = await self.desk.outcome(self.session(context), context, call)
        if isinstance(outcome, Reject) or (isinstance(outcome, Ask) and not self.attended):
            return False
        if isinstance(outcome, Ask):
            return True
        wants = also(*theirs) if callable(also) else also
        return bool(await wants if inspect.isawaitable(wants) else wants)

    async def last_word(self, context: Context, call: ProposedCall, *, as_proposed: bool = True) -> Execute | Reject:
        session = self.session(context)
        return await self.desk.last_word(session, context, call, attended=self.attended, as_proposed=as_proposed)

    # -- one kind of tool each -----------------------------------------------------------------------------------------------------

    def _function(self, tool: FunctionTool) -> FunctionTool:
        gated = copy.copy(tool)
        also, run = tool.needs_approval, tool.on_invoke_tool

        async def needs_approval(context: Context, arguments: dict[str, Any], call_id: str) -> bool:
            return await self.asks(context, ProposedCall(call_id, tool.name, arguments), also, context, arguments, call_id)

        async def guardrail(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
            context = data.context
            call = ProposedCall(context.tool_call_id, tool.name, context.tool_arguments)
            word: Outcome
            if self.attended and not context.is_tool_approved(tool.name, call.id):  # before a person was asked, or where nobody has to be
                word = await self.desk.outcome(self.session(context), context, call)
            else:
                word = await self.last_word(context, call)
            if isinstance(word, Reject):
                return ToolGuardrailFunctionOutput.reject_content(word.text, {"warmgate": word.why})
            return ToolGuardrailFunctionOutput.allow()

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            call = ProposedCall(context.tool_call_id, tool.name, arguments)
            judged = ProposedCall(call.id, tool.name, context.tool_arguments)
            keeper = self.session(context).keeper
            word = await self.last_word(context, call, as_proposed=keeper.binding(call) == keeper.binding(judged))
            return word.text if isinstance(word, Reject) else await run(context, arguments)

        gated.needs_approval = needs_approval
        gated.tool_input_guardrails = [*(tool.tool_input_guardrails or []), ToolInputGuardrail(guardrail, name="warmgate")]
        gated.on_invoke_tool = invoke
        return gated

    def _shell(self, tool: ShellTool) -> ShellTool:
        gated, run = copy.copy(tool), tool.executor
        assert run is not None
        also = tool.needs_approval

        async def needs_approval(context: Context, action: ShellActionRequest, call_id: str) -> bool:
            call = ProposedCall(call_id, tool.name, shell_arguments(action))
            return await self.asks(context, call, also, context, action, call_id)

        async def executor(request: Any) -> Any:
            call = ProposedCall(request.data.call_id, tool.name, shell_arguments(request.data.action))
            word = await self.last_word(request.ctx_wrapper, call)
            return word.text if isinstance(word, Reject) else await _awaited(run(request))

        gated.needs_approval, gated.executor = needs_approval, executor
        return gated

    def _local_shell(self, tool: LocalShellTool) -> LocalShellTool:
        """The SDK asks nobody about these: a call that needs a person is rejected."""
        gated, run = copy.copy(tool), tool.executor

        async def executor(request: Any) -> str:
            call = ProposedCall(request.data.call_id, tool.name, local_shell_arguments(request.data.action))
            session = self.session(request.ctx_wrapper)
            word = await self.desk.last_word(session, request.ctx_wrapper, call, attended=False, as_proposed=True)
            return word.text if isinstance(word, Reject) else cast("str", await _awaited(run(request)))

        gated.executor = executor
        return gated

    def _patch(self, tool: ApplyPatchTool) -> ApplyPatchTool:
        gated, also = copy.copy(tool), tool.needs_approval

        async def needs_approval(context: Context, operation: ApplyPatchOperation, call_id: str) -> bool:
            call = ProposedCall(call_id, tool.name, patch_arguments(operation))
            session = self.session(context)
            session.patches[session.keeper.binding(call)] = call_id
            return await self.asks(context, call, also, context, operation, call_id)

        gated.needs_approval = needs_approval
        gated.editor = _Editor(tool.editor, self, tool.name)
        return gated

    def _custom(self, tool: CustomTool) -> CustomTool:
        gated, also, run = copy.copy(tool), tool.needs_approval, tool.on_invoke_tool

        async def needs_approval(context: Context, given: str, call_id: str) -> bool:
            return await self.asks(context, ProposedCall(call_id, tool.name, {"input": given}), also, context, given, call_id)

        async def invoke(context: ToolContext[Any], given: str) -> Any:
            word = await self.last_word(
                context, ProposedCall(context.tool_call_id, tool.name, {"input": given}), as_proposed=given == context.tool_arguments
            )
            return word.text if isinstance(word, Reject) else await _awaited(run(context, given))

        gated.needs_approval, gated.on_invoke_tool = needs_approval, invoke
        return gated

    def _hosted_mcp(self, tool: HostedMCPTool) -> HostedMCPTool:
        """The server runs at the provider, which asks before each call; a call that needs a person goes to the tool's own callback."""
        gated, theirs = copy.copy(tool), tool.on_approval_request
        gated.tool_config = cast("Any", {**tool.tool_config, "require_approval": "always"})

        async def approve(request: MCPToolApprovalRequest) -> MCPToolApprovalFunctionResult:
            name = f"{request.data.server_label}.{request.data.name}"
            call = ProposedCall(request.data.id, name, request.data.arguments)
            outcome = await self.desk.hosted(self.session(request.ctx_wrapper), call)
            if isinstance(outcome, Execute):
                return {"approve": True}
            if isinstance(outcome, Ask) and self.attended and theirs is not None:
                said = cast("MCPToolApprovalFunctionResult", await _awaited(theirs(request)))
                self.session(request.ctx_wrapper).keeper.heard(outcome, approved=bool(said["approve"]))
                return said
            reason = outcome.text if isinstance(outcome, Reject) else f"Not run: it needs a person. {outcome.record.reason}"
            return {"approve": False, "reason": reason}

        gated.on_approval_request = approve
        return gated


class _Editor:
    """An editor whose every operation is looked at just before it is done."""

    def __init__(self, editor: ApplyPatchEditor, gated: _Gated, name: str) -> None:
        self._editor = editor
        self._gated = gated
        self._name = name

    async def create_file(self, operation: ApplyPatchOperation) -> Any:
        return await self._run(operation, self._editor.create_file)

    async def update_file(self, operation: ApplyPatchOperation) -> Any:
        return await self._run(operation, self._editor.update_file)

    async def delete_file(self, operation: ApplyPatchOperation) -> Any:
        return await self._run(operation, self._editor.delete_file)

    async def _run(self, operation: ApplyPatchOperation, run: Callable[[ApplyPatchOperation], Any]) -> Any:
        context = operation.ctx_wrapper
        if context is None:
            return ApplyPatchResult("failed", "Not run: the gate cannot tell whose patch this is.")
        session = self._gated.session(context)
        call = ProposedCall("", self._name, patch_arguments(operation))
        call_id = session.patches.get(session.keeper.binding(call), "")
        word = await self._gated.last_word(context, ProposedCall(call_id, self._name, call.arguments), as_proposed=bool(call_id))
        return ApplyPatchResult("failed", word.text) if isinstance(word, Reject) else await _awaited(run(operation))


async def _awaited(value: Any | Awaitable[Any]) -> Any:
    return await value if inspect.isawaitable(value) else value
