"""Traces stay here: the SDK would send them to OpenAI."""

from __future__ import annotations

import pytest
from agents import set_trace_processors


@pytest.fixture(autouse=True)
def _no_export():
    set_trace_processors([])
