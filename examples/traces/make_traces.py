"""Writes the two example traces beside this script, or into a directory: ``python make_traces.py [DIRECTORY]``.

Everything in them is invented: two sessions of a coding agent at work on a parcel-tracking library that does not exist; ``story.txt``
holds what is said. The same input always gives the same bytes. Token counts are estimated from the text, since no model was asked.

``coding-agent.chat.jsonl``
    16 OpenAI chat requests of two interleaved sessions. In session ``fix-retries`` one call is sent with a shorter tool list; in session
    ``csv-export`` a clock in the system prompt moves on when the user comes back.
``coding-agent.weka.json``
    A run of the same shape as block hashes alone (64 tokens a block), with one sub-agent.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

MODEL = "qwen3-coder-30b"
STORY = Path(__file__).with_name("story.txt")
START = 1_772_442_000  # 2026-03-02 09:00 UTC


def _tool(name: str, description: str, required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    _tool(
        "read_file",
        "Read a text file of the checkout. Returns its lines with their numbers. At most 400 lines are returned at once; the last line "
        "says when there are more.",
        ["path"],
        path={"type": "string", "description": "Path relative to the working directory."},
        offset={"type": "integer", "minimum": 1, "description": "First line to return. Default 1."},
        limit={"type": "integer", "minimum": 1, "maximum": 400, "description": "Number of lines. Default 400."},
    ),
    _tool(
        "search",
        "Search file contents with a regular expression. Ignores files that git ignores. Returns path:line:text, at most 100 matches.",
        ["pattern"],
        pattern={"type": "string", "description": "Regular expression, Rust syntax."},
        path={"type": "string", "description": "Directory or file to search in. Default: the working directory."},
        glob={"type": "string", "description": "Only files whose path matches, for example *.py."},
        context={"type": "integer", "minimum": 0, "maximum": 5, "description": "Lines shown around each match. Default 0."},
    ),
    _tool(
        "edit_file",
        "Replace one exact stretch of text in a file. The old text must occur exactly once; include enough of its surroundings. To "
        "create a file, leave old_text empty.",
        ["path", "old_text", "new_text"],
        path={"type": "string", "description": "Path relative to the working directory."},
        old_text={"type": "string", "description": "Text to replace, with its indentation."},
        new_text={"type": "string", "description": "Text to put in its place."},
    ),
    _tool(
        "run_command",
        "Run a shell command in the working directory and wait for it. Returns exit code, stdout and stderr, each cut to 8,000 characters.",
        ["command", "purpose"],
        command={"type": "string", "description": "The command, as bash takes it."},
        purpose={"type": "string", "description": "What you want to learn from it, in a few words; shown to the user."},
        timeout_seconds={"type": "integer", "minimum": 1, "maximum": 120, "description": "Default 60."},
    ),
    _tool(
        "update_plan",
        "Replace the plan that the user sees. Send all steps every time.",
        ["steps"],
        steps={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "status": {"type": "string", "enum": ["open", "in_progress", "done", "dropped"]},
                },
                "required": ["title", "status"],
                "additionalProperties": False,
            },
        },
    ),
]


def tokens(text: str) -> int:
    """Roughly what a byte-pair tokenizer makes of text and code: short words, single digits, single signs, runs of space."""
    return len(re.findall(r"[A-Za-z]{1,7}|[0-9]|[^\sA-Za-z0-9]{1,2}|\n+ *| {2,}", text))


def message_tokens(message: dict[str, Any]) -> int:
    """The same for a message, with the markup around it."""
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return 4 + tokens(message["content"]) + sum(12 + tokens(function["name"] + function["arguments"]) for function in functions)


def story() -> dict[str, list[tuple[str, str, Any]]]:
    """Parts of ``story.txt`` by session (the system prompt under ``""``): what opens a part, and what it holds."""
    sessions: dict[str, list[tuple[str, str, Any]]] = {"": []}
    session = ""
    for part in ("\n" + STORY.read_text(encoding="utf-8")).split("\n@ ")[1:]:
        opening, _, body = part.partition("\n")
        kind, _, rest = opening.partition(" ")
        if kind == "session":
            session = rest
            sessions[session] = []
        elif kind == "call":
            sessions[session].append((kind, rest, arguments(body)))
        else:
            sessions[session].append((kind, rest, numbered(body) if rest == "numbered" else body.rstrip("\n")))
    return sessions


def arguments(body: str) -> dict[str, Any]:
    """A tool call's arguments: ``name = JSON``, or ``name <<``, lines of text, ``>>``."""
    found: dict[str, Any] = {}
    for name, value, text in re.findall(r"^(\w+) (?:= (.*)|<<\n([\s\S]*?\n)>>)$", body, re.MULTILINE):
        found[name] = json.loads(value) if value else text
    return found


def numbered(body: str) -> str:
    """Text as the reading tool returns it."""
    return "".join(f"{number}\t{line}\n" for number, line in enumerate(body.rstrip("\n").split("\n"), 1))


def conversation(session: str, clocks: list[str]) -> Iterator[dict[str, Any]]:
    """One request for each turn of the assistant. Each time the user speaks, the system prompt is made anew."""
    parts = story()
    system = parts[""][0][2]
    idents = count(1)
    visits = iter(clocks)
    messages: list[dict[str, Any]] = []
    for kind, rest, body in [*parts[session], ("end", "", "")]:
        answering = bool(messages) and messages[-1]["role"] == "assistant"
        if answering and kind != "call":  # the answer is complete
            yield {"session": session, "messages": messages[:-1], "answer": messages[-1]}
        if kind == "user":
            prompt = {"role": "system", "content": system.format(clock=next(visits))}
            messages = [prompt, *messages[1:], {"role": "user", "content": body}]
        elif kind == "assistant":
            messages.append({"role": "assistant", "content": body})
        elif kind == "call":
            function = {"name": rest, "arguments": json.dumps(body)}
            call = {"id": f"call_{session[:3]}{next(idents):02}", "type": "function", "function": function}
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "result":
            answered = sum(message["role"] == "tool" for message in messages)
            asked = [call["id"] for message in messages for call in message.get("tool_calls", ())]
            messages.append({"role": "tool", "tool_call_id": asked[answered], "content": body})


def chat_trace() -> Iterator[dict[str, Any]]:
    """The requests of both sessions as a logging proxy would have written them, interleaved."""
    one = conversation("fix-retries", ["2026-03-02 09:00"])
    other = conversation("csv-export", ["2026-03-02 09:01", "2026-03-02 09:14"])
    for number, request in enumerate(step for pair in zip(one, other, strict=True) for step in pair):
        tools = TOOLS
        if number == 12:  # a filter thinks that nothing is left to edit
            tools = [tool for tool in TOOLS if tool["function"]["name"] not in ("edit_file", "update_plan")]
        answer = request["answer"]
        sent = tokens(json.dumps(tools)) + sum(map(message_tokens, request["messages"]))
        made = message_tokens(answer)
        yield {
            "session": request["session"],
            "timestamp": START + number * 11 + (780 if number > 8 else 0),
            "model": MODEL,
            "messages": request["messages"],
            "tools": tools,
            "response": {
                "choices": [{"index": 0, "finish_reason": "tool_calls" if "tool_calls" in answer else "stop", "message": answer}],
            },
            "usage": {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made},
        }


class Chain:
    """A conversation as block ids: an id names its block and all before it, so a change renames everything behind it."""

    def __init__(self, ids: Iterator[int], block_size: int) -> None:
        self._ids = ids
        self._size = block_size
        self._chain: list[int] = []

    def prompt(self, length: int, changed_at: int | None = None) -> list[int]:
        """Ids of the full blocks of a prompt that has grown to ``length`` tokens, its text changed from token ``changed_at`` on."""
        if changed_at is not None:
            del self._chain[changed_at // self._size :]
        del self._chain[length // self._size :]
        while len(self._chain) < length // self._size:
            self._chain.append(next(self._ids))
        return list(self._chain)


def weka_trace() -> dict[str, Any]:
    """A coding session with one exploring sub-agent. At its ninth call the agent cuts an old tool result out of its history."""
    size = 64
    ids = count(1)
    parent, child = Chain(ids, size), Chain(ids, size)
    lengths = [11_840, 12_402, 14_977, 15_390, 19_228, 19_871, 20_445, 23_960, 18_312, 18_990, 20_104, 20_733]
    explored = [6_210, 7_085, 11_902, 12_377, 13_140]

    def request(t: float, model: str, sent: int, made: int, hashes: list[int], first: bool, last: bool) -> dict[str, Any]:
        return {
            "t": round(t, 3),
            "type": "s",
            "model": model,
            "in": sent,
            "out": made,
            "hash_ids": hashes,
            "input_types": ["text" if first else "tool_result"],
            "output_types": ["text"] if last else ["text", "tool_use"],
            "stop": "end_turn" if last else "tool_use",
            "api_time": round(1.2 + made / 60, 2),
            "think_time": 0.0 if first else 4.0,
        }

    requests: list[dict[str, Any]] = []
    clock = 0.0
    for number, length in enumerate(lengths):
        hashes = parent.prompt(length, 12_500 if number == 8 else None)
        requests.append(request(clock, MODEL, length, 140 + 37 * (number % 5), hashes, number == 0, number == len(lengths) - 1))
        clock += 9.5 + 1.5 * (number % 3)
        if number == 3:
            inner = [
                request(7.0 * i, "qwen3-coder-small", sent, 90 + 20 * i, child.prompt(sent), i == 0, i == len(explored) - 1)
                for i, sent in enumerate(explored)
            ]
            requests.append(
                {
                    "t": clock,
                    "type": "subagent",
                    "agent_id": "agent_001",
                    "subagent_type": "Explore",
                    "duration_ms": 33_000,
                    "status": "completed",
                    "requests": inner,
                    "models": ["qwen3-coder-small"],
                    "tool_tokens": 3_120,
                    "system_tokens": 1_480,
                }
            )
            clock += 35.0
    return {
        "id": "coding-agent",
        "models": [MODEL],
        "block_size": size,
        "hash_id_scope": "local",
        "tool_tokens": 7_900,
        "system_tokens": 2_300,
        "requests": requests,
    }


def main(directory: Path) -> None:
    """Write both traces into ``directory``."""
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in chat_trace()]
    (directory / "coding-agent.chat.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    trace = weka_trace()
    requests = ",\n".join(json.dumps(request, separators=(",", ":")) for request in trace.pop("requests"))
    head = json.dumps(trace, separators=(",", ":"))[:-1]
    (directory / "coding-agent.weka.json").write_text(f'{head},"requests":[\n{requests}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
