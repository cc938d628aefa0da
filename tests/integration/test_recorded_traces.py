"""Real recorded traces, where they are at hand: the figures that a replay of each must show.

If these fail, a reader of real traces gets wrong totals. The traces are not part of this repository.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import pytest

from warmgate.replay.run import Options, replay

TRACES = Path(os.environ.get("WARMGATE_SHARED", Path(__file__).parents[3] / "shared")) / "traces"
FILES = sorted(p for p in TRACES.rglob("*") if p.is_file() and p.name != "SOURCES.md")

pytestmark = pytest.mark.skipif(not FILES, reason="the collection of recorded traces is absent here")

EXPECTED = [
    ("weka/trace_0047.json", 25, 3_070_904, "reusable_tokens", 2_830_784),
    ("weka/trace_0365.json", 34, 2_236_315, "reusable_tokens", 2_137_856),
    ("weka/trace_0460.json", 12, 164_269, "reusable_tokens", 146_368),
    ("weka/trace_0277.json", 53, 2_576_410, "reusable_tokens", 2_241_472),
    ("mooncake/conversation_trace.first3000.jsonl", 3000, 40_550_180, "reusable_tokens", 12_958_208),
    ("codex/rollout-2026-05-11T11*.jsonl", 66, 6_055_836, "reported_cached_tokens", 4_929_536),
    ("claude_code/session-196820da.jsonl", 47, 4_041_099, "reported_cached_tokens", 2_560_506),
]

REFUSED = {
    "otel_genai_tool_execution_span.json": "only a tool execution span",
    "run_state.v1_13_nested_history_ownership.json": "without a model response",
}


@lru_cache
def replayed(path: Path):
    return replay([str(path)], Options())


@pytest.mark.parametrize(("pattern", "calls", "prompt_tokens", "field", "value"), EXPECTED, ids=[e[0] for e in EXPECTED])
def test_the_figures_of_known_traces(pattern, calls, prompt_tokens, field, value):
    """These were counted independently of this project."""
    (path,) = TRACES.glob(pattern)
    totals = replayed(path).totals
    assert (totals.calls, totals.prompt_tokens, getattr(totals, field)) == (calls, prompt_tokens, value)


@pytest.mark.parametrize("path", FILES, ids=[p.name for p in FILES])
def test_every_trace_is_read_or_refused_with_its_true_reason(path):
    """A format would be half supported."""
    result = replayed(path)
    if path.name in REFUSED:
        assert REFUSED[path.name] in result.refused[0].reason
    else:
        assert not result.refused
        assert result.totals.calls > 0


@pytest.mark.parametrize("path", FILES, ids=[p.name for p in FILES])
def test_figures_hang_together(path):
    """A sum would contradict its parts."""
    result = replayed(path)
    for row in result.calls:
        if row.reusable is not None:
            assert 0 <= row.reusable < max(row.prompt_tokens, 1) or result.tokenizer == "scaled"
            if row.basis == "predicted":
                assert row.survived == row.reusable
    for scenario in result.scenarios:
        assert scenario.computed_tokens >= scenario.floor_tokens
        assert 0 <= scenario.survived_tokens <= scenario.reusable_tokens
        if scenario.name == "none":
            assert scenario.tax_tokens == 0
            assert scenario.compute_ratio in (1, None)
