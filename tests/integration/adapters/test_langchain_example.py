"""The LangChain example and page are what people copy: they must run as they stand."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from warmgate.standin import StandIn
from warmgate_adapters.conformance.rig import Rig
from warmgate_adapters.langchain import GateMiddleware, SystemOneDecisionModel

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/langchain.md").read_text("utf-8")


def test_the_example_runs_and_removes_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples/langchain_agent.py")],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "mounts   shell, read_file" in done.stdout
    assert "survival" in done.stdout
    assert "Not run" in done.stdout
    assert "I did not remove anything" in done.stdout


async def test_the_pages_first_lines_make_an_agent(tmp_path):
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    async with StandIn(script={"chat": [{"content": "Hello."}]}) as worker:
        names = {"tools": Rig(None, (), None, tmp_path, None, None).tools, "create_agent": create_agent, "InMemorySaver": InMemorySaver}
        exec(code.replace("http://127.0.0.1:8000", worker.url).replace('model="qwen3"', 'model="standin"'), names)
        state = await names["agent"].ainvoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": "1"}})
        assert state["messages"][-1].text == "Hello."
        await names["gate"].aclose()
        await names["model"].http_async_client.aclose()
        names["model"].http_client.close()


def test_every_argument_is_on_the_page():
    for name in list(inspect.signature(GateMiddleware.__init__).parameters)[2:]:
        assert f"`{name}" in PAGE, name
    for name in SystemOneDecisionModel.model_fields:
        assert name in ("name", "custom_get_token_ids") or f"`{name}" in PAGE, name
