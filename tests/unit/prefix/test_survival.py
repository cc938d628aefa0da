"""Expectation, measurement and cause: each staged loss is named by its evidence, and nothing is named when nothing was lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from warmgate.errors import OptionError
from warmgate.prefix.divergence import PromptView, kind_of
from warmgate.prefix.index import ShadowIndex
from warmgate.prefix.seen import Seen
from warmgate.prefix.survival import Prompt, SurvivalTracker
from warmgate.replay.record import TraceWriter
from warmgate.replay.run import Options, replay

A, B = "http://a", "http://b"
B16 = 16


def names(count: int, salt: int = 0) -> list[int]:
    return [salt * 1000 + n for n in range(1, count + 1)]


def prompt(count: int, salt: int = 0, *, session: str = "s", extra: int = 5, **more: Any) -> Prompt:
    return Prompt(session, names(count, salt), count * B16 + extra, **more)


def tracker(source: str = "model", blocks: int = 1000, **more: Any) -> SurvivalTracker:
    made = SurvivalTracker(B16, **more)
    for worker in (A, B):
        index = ShadowIndex(B16, blocks=blocks, source=source)  # type: ignore[arg-type]
        index.trust(None)
        made.add_worker(worker, index)
    return made


def test_nothing_lost_nothing_named():
    """A warm worker would be accused."""
    t = tracker()
    first = t.settle(t.expect(A, prompt(4))[0], 0)
    assert (first.cause, first.difference, first.entry.reusable) == (None, 0, 0)
    (expected,) = t.expect(A, prompt(6))
    assert (expected.shared, expected.reusable, expected.captured, expected.available) == (64, 64, 64, 64)
    second = t.settle(expected, 64)
    assert (second.cause, second.difference, second.computed) == (None, 0, 6 * 16 + 5 - 64)
    assert t.sums.calls.lost == {}
    assert t.sums.calls.survival == 1.0


def test_the_last_token_is_rounding_not_loss():
    t = tracker()
    t.settle(t.expect(A, prompt(4, extra=0))[0], 0)
    (expected,) = t.expect(A, prompt(4, extra=0))
    assert (expected.shared, expected.reusable) == (64, 48)
    assert t.settle(expected, 48).cause is None
    assert t.sums.calls.rounding == 16


def test_worker_change():
    t = tracker()
    t.settle(t.expect(A, prompt(4))[0], 0)
    (expected,) = t.expect(B, prompt(5))
    assert (expected.reusable, expected.available, expected.captured) == (64, 64, 0)
    assert t.settle(expected, 0).cause == "worker_change"
    assert t.sums.calls.lost == {"worker_change": 64}


def test_worker_restart():
    t = tracker()
    t.settle(t.expect(A, prompt(4))[0], 0)
    t.restarted(A)
    t.restarted(A)  # told twice
    (expected,) = t.expect(A, prompt(5))
    assert (expected.reusable, expected.captured) == (64, 0)
    assert t.settle(expected, 0).cause == "worker_restart"


def test_eviction_by_events():
    t = tracker("events")
    t.settle(t.expect(A, prompt(4))[0], 0)
    index = t.index(A)
    assert index is not None
    index.stored(names(4))
    index.removed([4, 3])
    (expected,) = t.expect(A, prompt(5))
    assert (expected.reusable, expected.captured) == (64, 32)
    assert t.settle(expected, 32).cause == "eviction"


def test_eviction_by_the_model():
    t = tracker(blocks=6)
    t.settle(t.expect(A, prompt(4))[0], 0)
    t.settle(t.expect(A, prompt(4, 2, session="other"))[0], 0)
    (expected,) = t.expect(A, prompt(5))
    assert expected.captured < expected.reusable == 64
    assert t.settle(expected, expected.captured).cause == "eviction"


def test_not_read():
    """A pooling model looks into no cache: nobody evicted anything."""
    t = tracker()
    t.add_worker(A, ShadowIndex(B16, blocks=100), reads_cache=False)
    t.settle(t.expect(A, prompt(4))[0], 0)
    (expected,) = t.expect(A, prompt(5))
    assert (expected.reusable, expected.captured) == (64, 0)
    assert t.settle(expected, 0).cause == "not_read"
    t = tracker()
    t.settle(t.expect(A, prompt(4))[0], 0)
    assert t.settle(t.expect(A, prompt(5))[0], 0, looked_up=False).cause == "not_read"


def test_unknown_stays_unknown():
    """The index says resident, the worker says not: nothing explains it, so nothing is named."""
    t = tracker()
    t.settle(t.expect(A, prompt(4))[0], 0)
    outcome = t.settle(t.expect(A, prompt(5))[0], 0)
    assert (outcome.cause, outcome.difference) == ("unknown", -64)
    index = t.index(A)
    assert index is not None
    assert "others use" in (index.doubt or "")


def test_events_missing_is_unknown():
    t = tracker("events")
    index = t.index(A)
    assert index is not None
    index.trust("3 batches of its events were lost")
    t.settle(t.expect(A, prompt(4))[0], 0)
    index._ahead.clear()  # a second later
    (expected,) = t.expect(A, prompt(5))
    assert expected.doubt == "3 batches of its events were lost"
    assert t.settle(expected, 0).cause == "unknown"


def test_surplus_is_not_capped():
    """A fault of our model must show."""
    t = tracker()
    outcome = t.settle(t.expect(A, prompt(4))[0], 32)
    assert (outcome.entry.surplus, outcome.cause) == (32, None)
    assert t.sums.calls.surplus == 32


def test_a_salt_changed():
    t = tracker()
    plain = names(4)
    t.settle(t.expect(A, Prompt("s", names(4, 1), 69, namespace="one", plain=plain))[0], 0)
    (expected,) = t.expect(A, Prompt("s", names(5, 2), 85, namespace="two", plain=names(5)))
    assert (expected.reusable, expected.other_namespace, expected.diverged, expected.divergence) == (0, 64, 0, None)
    assert t.settle(expected, 0).cause is None
    assert t.sums.calls.namespace_change == 64


def test_divergence_is_outside_r():
    t = tracker()
    old = PromptView([{"role": "system", "content": "It is 12:31 on Monday, 3 May 2026."}])
    new = PromptView([{"role": "system", "content": "It is 14:02 on Tuesday, 4 May 2026."}])
    t.settle(t.expect(A, Prompt("s", [1, 2, 3, 4], 69, view=old))[0], 0)
    (expected,) = t.expect(A, Prompt("s", [1, 22, 33, 44], 69, view=new))
    assert (expected.reusable, expected.diverged, expected.divergence) == (16, 48, "clock")
    t.settle(expected, 16)
    assert t.sums.calls.lost == {}
    assert t.sums.divergence == {"clock": 48}


def test_a_generation_prompt_rendered_anew_is_no_divergence():
    t = tracker()
    t.settle(t.expect(A, Prompt("s", [1, 2, 3], 50, generation_tokens=7))[0], 0)
    (expected,) = t.expect(A, Prompt("s", [1, 2, 33, 44], 70))
    assert expected.divergence is None


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"a": 1, "b": 2}}}
SWAPPED = {"type": "function", "function": {"parameters": {"b": 2, "a": 1}, "name": "f"}}
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi"}
THOUGHT = {"role": "assistant", "content": "<think>hm</think>yes"}


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (PromptView([SYSTEM], [TOOL]), PromptView([SYSTEM]), "tools_changed"),
        (PromptView([SYSTEM], [TOOL]), PromptView([SYSTEM], [SWAPPED]), "key_order"),
        (PromptView([SYSTEM]), PromptView([{"role": "system", "content": "Be long."}]), "system_changed"),
        (
            PromptView([{"role": "system", "content": "Run 17 at 9:00 AM"}]),
            PromptView([{"role": "system", "content": "Run 18 at 10:01 PM"}]),
            "clock",
        ),
        (PromptView([USER, THOUGHT]), PromptView([USER, {"role": "assistant", "content": "yes"}]), "thinking_stripped"),
        (PromptView([USER, USER, USER]), PromptView([USER]), "history_cut"),
        (PromptView([USER, USER]), PromptView([{"role": "user", "content": "Ho"}, USER]), "history_edited"),
        (PromptView([USER], (), {"enable_thinking": True}), PromptView([USER]), "template_arguments"),
        (PromptView([USER]), PromptView([USER, USER]), "rendered_anew"),
        (None, PromptView([USER]), "not_explained"),
    ],
)
def test_kinds_of_divergence(old: PromptView | None, new: PromptView, kind: str):
    """An operator would look for the wrong fault."""
    assert kind_of(old, new) == kind


def test_siblings_are_not_survival():
    """Three reads of a cold prompt find each other's blocks: counted as survival, a cold worker would look warm."""
    t = tracker()
    reads = [Prompt("s", [1, 2, 3, n], 70, kind="read", question_tokens=6) for n in (10, 11, 12)]
    expected = t.expect(A, *reads)
    assert [e.captured for e in expected] == [0, 0, 0]
    assert [e.intra_call for e in expected] == [0, 48, 48]
    assert t.predicted_hits(expected) == 96
    outcomes = t.settle_reads(expected, 96)
    assert [o.entry.survived for o in outcomes] == [0, 0, 0]
    assert t.sums.reads.intra_call == 96
    again = [Prompt("s", [1, 2, 3, n], 70, kind="read") for n in (20, 21)]
    expected = t.expect(A, *again)
    assert t.predicted_hits(expected) == 96
    assert [o.difference for o in t.settle_reads(expected, 96)] == [0, 0]


def test_counters_that_cannot_be_are_no_measurement():
    t = tracker()
    expected = t.expect(A, *[Prompt("s", [1, 2, 3, n], 70, kind="read") for n in (10, 11)])
    outcomes = t.settle_reads(expected, 17)
    assert {o.entry.survived_basis for o in outcomes} == {"predicted"}
    assert {o.difference for o in outcomes} == {None}


def test_floor_is_what_any_gate_must_compute():
    """Tokens that a decision prefilled for the agent's call are no tax; its questions once are no tax; all else is."""
    t = tracker()
    shared = names(4)
    (read,) = t.expect(A, Prompt("s", [*shared, 90], 85, kind="read", question_tokens=16))
    t.settle(read, 0)
    (call,) = t.expect(A, Prompt("s", shared, 66))
    t.settle(call, 64)
    assert (t.sums.computed, t.sums.floor) == (85 + 2, 16 + 66)


def test_available_names_the_better_worker():
    t = tracker()
    t.settle(t.expect(A, prompt(4))[0], 0)
    t.settle(t.expect(B, prompt(2))[0], 0)
    (expected,) = t.expect(B, prompt(5))
    assert (expected.available, expected.captured) == (64, 32)


def test_an_unknown_worker_is_refused():
    with pytest.raises(OptionError):
        tracker().expect("http://c", prompt(1))
    with pytest.raises(OptionError):
        SurvivalTracker(16).add_worker(A, ShadowIndex(32))


def test_seen_forgets_the_oldest():
    seen = Seen(10)
    for n in range(40):
        seen.add([n])
    assert len(seen) <= 21
    assert 39 in seen
    assert 0 not in seen
    assert seen.leading([38, 39, 0, 37]) == 2


def test_sessions_held_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("warmgate.prefix.survival.HELD_SESSIONS", 3)
    t = tracker()
    for n in range(9):
        t.settle(t.expect(A, prompt(2, n, session=f"s{n}"))[0], 0)
    assert len(t._latest) == 3


def test_a_replay_of_the_record_gives_the_same_sums(tmp_path: Path):
    """Live figures and replayed ones would tell two stories of one day."""
    import random

    dice = random.Random(3)
    t = tracker(blocks=1 << 20)
    sessions: dict[str, list[int]] = {f"s{n}": [n % 3 + 1] for n in range(5)}
    fresh = iter(range(1000, 9999))
    with TraceWriter(tmp_path / "t.jsonl", B16, hash_name="sha256") as writer:
        for _ in range(60):
            session = dice.choice(sorted(sessions))
            chain: Sequence[int] = sessions[session]
            if dice.random() < 0.2:
                chain = chain[: dice.randrange(1, len(chain) + 1)]
            sessions[session] = [*chain, *(next(fresh) for _ in range(dice.randrange(4)))]
            tokens = len(sessions[session]) * B16 + dice.randrange(16)
            one = Prompt(session, list(sessions[session]), tokens, namespace="n")
            (expected,) = t.expect(A, one)
            outcome = t.settle(expected, expected.captured)
            writer.append(session, one.names, namespace="n", prompt_tokens=tokens, cached_tokens=outcome.entry.survived, worker=A)
    totals = replay([str(tmp_path / "t.jsonl")], Options()).totals
    live = t.sums.calls
    assert (totals.calls, totals.prompt_tokens, totals.reusable_tokens, totals.survived_tokens, totals.survival) == (
        live.calls,
        live.prompt_tokens,
        live.reusable,
        live.survived,
        live.survival,
    )
    assert (totals.outside.divergence, totals.outside.rounding, totals.outside.namespace_change) == (
        live.divergence,
        live.rounding,
        live.namespace_change,
    )
    assert live.divergence > 0
    assert live.rounding > 0


def test_a_question_asked_before_is_no_surplus_of_the_first_read():
    """The counters' movement of questions found whole would all be put down to the first of them."""
    t = tracker()
    both = [Prompt("s", [1, 2, 3, 10 + n], 4 * B16 + 5, kind="read", question_tokens=20) for n in range(2)]
    for _ in range(2):
        expected = t.expect(A, *both)
        outcomes = t.settle_reads(expected, t.predicted_hits(expected))
    assert [one.expected.captured for one in outcomes] == [4 * B16, 4 * B16]
    assert [(one.entry.surplus, one.difference) for one in outcomes] == [(0, 0), (0, 0)]
