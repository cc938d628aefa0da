"""Which chat templates align, as a Markdown table: docs/alignment.md holds its output.

    python scripts/template_table.py ../shared/templates/*.jinja

One conversation is rendered with each template: a system prompt, two tools, a user turn, a tool call and its result. Printed is how many
characters of the agent's prompt (without its generation prompt) a decision's prompt restates from the front, with the aligned state and
with the messages as JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warmgate.alignment.plan import Planner, json_state
from warmgate.alignment.recipe import THINKING_OFF
from warmgate.alignment.served import Served
from warmgate.alignment.template import ChatTemplate
from warmgate.errors import TemplateError

Message = Mapping[str, Any]

QUESTION = "Question: Which?\nA: one\nB: two"
TOOLS: list[Message] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"to {name} a file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for name in ("read", "write")
]
CALL = {"id": "call00001", "type": "function", "function": {"name": "read", "arguments": {"path": "a.py"}}}
TALK: list[Message] = [
    {"role": "system", "content": "You mend code, and say what you did. " * 8},
    {"role": "user", "content": "Fix the parser."},
]
LOOP: list[Message] = [
    *TALK,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call00001", "name": "read", "content": "text of the file\n" * 8},
]
THROUGH: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "SmolLM3": ({"enable_thinking": False}, {}),
    "Llama-3.1": ({"tools_in_user_message": False}, {"tools_in_user_message": False, "custom_tools": TOOLS}),
}
"""Part of a file's name → template arguments of the agent's call, and of the decision, with which it aligns although it does not else."""


def row(path: Path) -> str:
    """One line of the table."""
    try:
        template = ChatTemplate(path.read_text(), path.stem, {"bos_token": "<s>", "eos_token": "</s>"})
    except TemplateError as fault:
        return f"| {path.stem} | – | – | – | {fault.what} |"
    cells, why = [], ""
    for messages, tools in ((TALK, ()), (LOOP, TOOLS)):
        cell, reason = _aligned(template, messages, tools, {}, {})
        cells.append(cell)
        why = reason or why
    cells.append(_json(template))
    for name, (agent, gate) in THROUGH.items():
        if name in path.stem:
            cell, reason = _aligned(template, LOOP, TOOLS, agent, gate)
            given = ", ".join(f"`{key}`" for key in dict.fromkeys([*agent, *gate]))
            why += f"; with {given} in `chat_template_kwargs`: {cell}" + (f" ({reason})" if reason else "")
    return f"| {path.stem} | {' | '.join(cells)} | {why.replace('|', chr(92) + '|')} |"


def _aligned(
    template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Message], agent: Mapping[str, Any], gate: Mapping[str, Any]
) -> tuple[str, str]:
    """``shared of all``, and why they are not all."""
    planner = Planner(template, {**THINKING_OFF, **gate})
    state = planner.plan("s", messages, tools, agent)
    if not state.text:
        return "–", state.reason or ""
    if state.kind == "json":
        prompt = _render(planner, state.state)
        return f"{_common(prompt, state.text):,} of {len(state.text):,}", state.reason or ""
    prompt = planner.prompt(state.instructions, state.state, QUESTION)
    shared = _common(prompt, state.text)
    return ("all " if shared == len(state.text) else f"{shared:,} of ") + f"{len(state.text):,}", ""


def _json(template: ChatTemplate) -> str:
    """The same for the messages as JSON."""
    served = Served()
    try:
        text = template.render(served.messages(LOOP), served.tools(TOOLS), add_generation_prompt=False)
    except TemplateError:
        return "–"
    return f"{_common(_render(Planner(template), json_state(LOOP, '').state), text):,} of {len(text):,}"


def _render(planner: Planner, state: str) -> str:
    try:
        return planner.prompt(None, state, QUESTION)
    except TemplateError:
        return ""


def _common(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def main(paths: Sequence[str]) -> None:
    """Print the table."""
    print("| template | no tools | tools and a tool turn | as JSON | why not, and what helps |")  # noqa: T201
    print("|---|---|---|---|---|")  # noqa: T201
    for path in paths:
        print(row(Path(path)))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
