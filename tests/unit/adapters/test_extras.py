"""Without a framework its adapter says which extra brings it, on the last line that people read."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("adapter", "missing", "extra"),
    [
        ("langgraph", "langgraph", "langgraph"),
        ("langchain", "langchain", "langchain"),
        ("langchain", "langgraph", "langchain"),
        ("openai_agents", "agents", "openai-agents"),
    ],
)
def test_an_adapter_without_its_framework_names_the_extra(adapter, missing, extra):
    """Else the reader of "No module named 'agents'" installs a package of that name, which is another one."""
    program = f"import sys; sys.modules[{missing!r}] = None; import warmgate_adapters.{adapter}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f"pip install 'warmgate[{extra}]'" in last
