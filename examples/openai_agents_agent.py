"""An agent of the OpenAI Agents SDK with two tools, gated: which tools it gets, whether a command may run, on the worker with its prefix.

    python examples/openai_agents_agent.py                                   # a stand-in worker with a scripted model
    python examples/openai_agents_agent.py http://127.0.0.1:8000 --model qwen3 --ask "What is in this folder?"

Needs ``pip install 'warmgate[openai-agents]'``. Commands that need a person are put to you; without a terminal they are rejected.
"""

# ruff: noqa: T201 -- an example prints
from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from agents import Agent, Runner, SQLiteSession, function_tool, set_trace_processors

from warmgate import Gate, Settings
from warmgate.decision import Observation
from warmgate.replay.record import TraceWriter
from warmgate.standin import StandIn
from warmgate_adapters.openai_agents import GateHooks, TraceRecorder, gated_tools, run_config, sticky_model

SCRIPT = {
    "chat": [
        {"tool_calls": [{"name": "shell", "arguments": {"command": "ls"}}]},
        {
            "tool_calls": [
                {"name": "shell", "arguments": {"command": "rm -rf /"}},
                {"name": "read_file", "arguments": {"path": "notes.txt"}},
            ]
        },
        {"content": "There is one file, notes.txt. I did not remove anything."},
    ]
}


def tools_in(folder: Path) -> list:
    """Tools that work in one folder."""

    @function_tool
    def shell(command: str) -> str:
        """Run a shell command in the project folder."""
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=20, check=False)  # noqa: S602
        return done.stdout + done.stderr

    @function_tool
    def read_file(path: str) -> str:
        """Read a file of the project."""
        found = (folder / path).resolve()
        return found.read_text() if found.is_relative_to(folder.resolve()) else "that is outside of the project"

    return [shell, read_file]


def person(tool: str | None, arguments: str | None) -> bool:
    """Ask the person at the terminal; without one the answer is no."""
    print(f"  ? {tool} {arguments}")
    return sys.stdin.isatty() and input("    run it? [y/N] ").strip().lower() == "y"


async def main() -> None:
    """Run one conversation and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workers", nargs="*", metavar="URL", help="workers; a stand-in without any")
    parser.add_argument("--model", default="standin")
    parser.add_argument("--ask", default="What is in this folder?", help="what to say to the agent")
    parser.add_argument("--trace", metavar="PATH", help="record the calls there, for `warmgate replay`")
    arguments = parser.parse_args()

    async with AsyncExitStack() as stack:
        urls = arguments.workers or [(await stack.enter_async_context(StandIn(script=SCRIPT))).url]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "notes.txt").write_text("milk, bread\n")
        gate = await stack.enter_async_context(Gate.from_settings(Settings(workers=urls, model=arguments.model, deadline_ms=10_000)))
        model = sticky_model(gate)
        stack.push_async_callback(model.close)
        # The SDK sends its traces to OpenAI unless told otherwise.
        writer = TraceWriter(arguments.trace, 16, text=True) if arguments.trace else None
        set_trace_processors([TraceRecorder(writer, gate)] if writer is not None else [])

        def survived(_session: str, seen: Observation) -> None:
            print(f"  survival {seen.cached_tokens} of {seen.reported_tokens} prompt tokens were cached")

        agent = Agent(
            name="reader",
            instructions="You answer questions about a folder. Be brief.",
            model=model,
            tools=gated_tools(tools_in(folder), gate),
        )
        session = SQLiteSession("example")
        stack.callback(session.close)
        more = {"hooks": GateHooks(gate, survived), "run_config": run_config(gate, session), "session": session}
        result = await Runner.run(agent, arguments.ask, context={}, **more)
        while result.interruptions:
            state = result.to_state()
            for call in result.interruptions:
                state.approve(call) if person(call.tool_name, call.arguments) else state.reject(call)
            result = await Runner.run(agent, state, **more)

        for item in await session.get_items():
            if item.get("type") == "function_call_output":
                print(f"tool  {' '.join(str(item['output']).split())[:110]}")
        print(f"agent {result.final_output}")
        if writer is not None:
            writer.close()


if __name__ == "__main__":
    asyncio.run(main())
