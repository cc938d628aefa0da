"""If these fail, a gate goes on claiming a saving that a changed template or a rewriting middleware has taken away."""

from __future__ import annotations

import pytest

from warmgate.alignment.drift import IN_A_ROW, Drift, cause_of

FLOATS = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 0.1}'}}]}
NULL = {"role": "assistant", "content": None}
PLAIN = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("messages", "changed", "cause"),
    [
        ([PLAIN], True, "template_changed"),
        ([FLOATS, NULL], False, "float_arguments"),
        ([NULL, PLAIN], False, "null_contents"),
        ([PLAIN], False, "unknown"),
    ],
)
def test_a_miss_has_its_likeliest_cause(messages, changed, cause):
    """The operator would look in the wrong place."""
    assert cause_of(messages, template_changed=changed) == cause


def test_misses_in_a_row_end_alignment_and_say_why():
    """Every decision would cost a second prefill, silently."""
    drift = Drift()
    ended = [drift.miss("unknown", 100, 110) for _ in range(IN_A_ROW + 1)]
    assert ended == [False] * (IN_A_ROW - 1) + [True, False]
    assert "110" in drift.refusal
    assert "100" in drift.refusal
    assert drift.counts == {"unknown": IN_A_ROW + 1}


def test_a_call_that_agrees_starts_the_count_anew():
    """Rare single misses of a long run would end alignment for good."""
    drift = Drift()
    for _ in range(20):
        for _ in range(IN_A_ROW - 1):
            drift.miss("null_contents", 1, 2)
        drift.hit()
    assert drift.refusal is None
    assert drift.agreed == 20
