"""A LangChain agent with two tools, gated; LangChain's own auto mode decides on the same worker, on the agent's own prefix.

    python examples/langchain_agent.py                                       # a stand-in worker with a scripted model
    python examples/langchain_agent.py http://127.0.0.1:8000 --model qwen3 --ask "What is in this folder?"

Needs ``pip install 'warmgate[langchain]'``. Commands that need a person are put to you; without a terminal they are rejected.
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

from langchain.agents import create_agent
from langchain.agents.middleware import AutoModeMiddleware, ModelRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from warmgate import Gate, Settings
from warmgate.standin import StandIn
from warmgate_adapters.langchain import GateMiddleware, SystemOneDecisionModel, chat_model

SCRIPT = {
    "chat": [
        {"tool_calls": [{"name": "shell", "arguments": {"command": "ls"}}, {"name": "read_file", "arguments": {"path": "notes.txt"}}]},
        {"tool_calls": [{"name": "shell", "arguments": {"command": "rm -rf ./*"}}]},
        {"content": "There is one file, notes.txt. I did not remove anything."},
    ],
    "decisions": [{"id": "is_risky", "probabilities": {"yes": 0.04}}],
}


def tools_in(folder: Path) -> list:
    """Tools that work in one folder."""

    @tool
    def shell(command: str) -> str:
        """Run a shell command in the project folder."""
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=20, check=False)  # noqa: S602
        return done.stdout + done.stderr

    @tool
    def read_file(path: str) -> str:
        """Read a file of the project."""
        found = (folder / path).resolve()
        return found.read_text() if found.is_relative_to(folder.resolve()) else "that is outside of the project"

    return [shell, read_file]


def person(action: dict) -> dict:
    """Ask the person at the terminal; without one the answer is no."""
    print(f"  ? {action['name']} {action['args']}: {action['description']}")
    yes = sys.stdin.isatty() and input("    run it? [y/N] ").strip().lower() == "y"
    return {"type": "approve" if yes else "reject"}


async def main() -> None:
    """Run one conversation and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workers", nargs="*", metavar="URL", help="workers; a stand-in without any")
    parser.add_argument("--model", default="standin")
    parser.add_argument("--ask", default="What is in this folder?", help="what to say to the agent")
    arguments = parser.parse_args()

    async with AsyncExitStack() as stack:
        urls = arguments.workers or [(await stack.enter_async_context(StandIn(script=SCRIPT))).url]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "notes.txt").write_text("milk, bread\n")
        gate = await stack.enter_async_context(Gate.from_settings(Settings(workers=urls, model=arguments.model, deadline_ms=10_000)))
        model = chat_model(gate)
        stack.push_async_callback(model.http_async_client.aclose)
        stack.callback(model.http_client.close)

        agent = create_agent(
            model,
            tools_in(folder),
            system_prompt="You answer questions about a folder. Be brief.",
            middleware=[
                ModelRetryMiddleware(),
                AutoModeMiddleware(tools=["read_file"], classifier=SystemOneDecisionModel(gate=gate)),
                GateMiddleware(gate),  # last: it sees the request as it is sent, and each call as it runs
            ],
            checkpointer=InMemorySaver(),
        )
        config = {"configurable": {"thread_id": "example"}}
        given: object = {"messages": [HumanMessage(arguments.ask)]}
        while given is not None:
            async for event in agent.astream(given, config, stream_mode="custom"):
                if event["warmgate"] == "verdict":
                    print(f"  {event['outcome']:9}{event['tool']}: {event['reason'] or event['why']}")
                elif event["warmgate"] == "survival":
                    print(f"  survival {event['cached_tokens']} of {event['prompt_tokens']} prompt tokens were cached ({event['basis']})")
                elif event["warmgate"] == "mounts":
                    print(f"  mounts   {', '.join(event['mounts'])} on {event['worker']}")
            state = await agent.aget_state(config)
            asked = [action for one in state.interrupts for action in one.value["action_requests"]]
            given = Command(resume={"decisions": [person(action) for action in asked]}) if asked else None

        for message in state.values["messages"]:
            if isinstance(message, ToolMessage):
                print(f"tool  {' '.join(message.content.split())[:110]}")
            elif isinstance(message, AIMessage) and message.content:
                print(f"agent {message.content}")


if __name__ == "__main__":
    asyncio.run(main())
