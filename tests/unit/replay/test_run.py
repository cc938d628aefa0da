"""If these fail, what a trace itself reports (counts, workers, cached tokens) is mixed wrongly with what is simulated."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.replay.tokenizers_of_our_own import write
from warmgate.errors import TemplateError
from warmgate.replay.run import Options, replay


def chat_log(path, *calls):
    path.write_text("".join(json.dumps(call) + "\n" for call in calls))
    return str(path)


def request(text, prompt_tokens, cached=None, **more):
    usage = {"prompt_tokens": prompt_tokens} if prompt_tokens is not None else {}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"session": "s", "model": "m", "messages": [{"role": "user", "content": text}], "usage": usage, **more}


def test_no_more_is_reusable_than_the_provider_counted(tmp_path):
    """A call could save more tokens than it has."""
    one, two = request("x" * 4000, 2000), request("x" * 4000, 500)
    result = replay([chat_log(tmp_path / "log.jsonl", one, two)], Options())
    row = result.calls[1]
    assert row.prompt_tokens == 500
    assert row.reusable == row.survived == 496
    assert any("fewer prompt tokens" in note for note in result.traces[0].notes)


def test_measured_losses_have_no_guessed_cause(tmp_path):
    """An operator would hunt an eviction that nobody saw."""
    log = chat_log(tmp_path / "log.jsonl", request("x" * 4000, 1000, 0), request("x" * 4000, 1000, 0))
    totals = replay([log], Options()).totals
    assert list(totals.lost_tokens) == ["unknown"]
    assert totals.basis["survived_tokens"] == "measured"


def test_a_change_of_recorded_workers_is_named(tmp_path):
    """The trace says where each call went, and the report would not."""
    header = {"schema": "warmgate.trace/1", "block_size": 16, "hash": "x", "content": "hashes"}
    trace = tmp_path / "trace.jsonl"

    def call(index, worker):
        return {
            "kind": "call",
            "session": "s",
            "index": index,
            "model": "m",
            "blocks": "".join(f"{i:016x}" for i in range(4)),
            "prompt_tokens": 70,
            "cached_tokens": 0,
            "worker": worker,
        }

    def losses(*workers):
        trace.write_text("".join(json.dumps(r) + "\n" for r in [header, *(call(i, w) for i, w in enumerate(workers))]))
        return replay([str(trace)], Options()).totals.lost_tokens

    assert losses("w1", "w2") == {"worker_change": 64}
    assert losses("w1", "w1") == {"unknown": 64}


def test_a_template_that_prints_no_message_is_refused(tmp_path):
    """Every prompt would look alike and everything would seem reusable."""
    template = tmp_path / "note.jinja"
    template.write_text("hello world")
    with pytest.raises(TemplateError, match="prints nothing"):
        replay([chat_log(tmp_path / "log.jsonl", request("x", 10))], Options(chat_template=str(template)))


def exact(tmp_path):
    """A tokenizer of our own."""
    return str(write(tmp_path))


@pytest.mark.parametrize("reported", [5000, 1 << 34])
@pytest.mark.parametrize("counted", ["scaled", "none", "exact"])
def test_more_prompt_tokens_than_bytes_are_not_used(tmp_path, reported, counted):
    """One broken count would decide the prompt tokens and the hit rate of the whole trace."""
    good = [request("x" * 400, 100, 0), request("x" * 800, 200, 96)] if counted == "scaled" else []
    # an exact tokenizer cannot tell bytes: a count is broken there only beyond 64 bytes a token
    broken = request("y" * 40, reported * (100 if counted == "exact" and reported == 5000 else 1), reported // 2)
    log = chat_log(tmp_path / "log.jsonl", *good, {**broken, "session": "t"})
    result = replay([log], Options(tokenizer=exact(tmp_path) if counted == "exact" else None))
    row = result.calls[-1]
    assert row.prompt_tokens is not None
    assert row.prompt_tokens < 500
    assert (row.survived, row.basis) == (0, "predicted")
    assert result.totals.basis["prompt_tokens"] == "predicted"
    assert any("1 call with more prompt tokens reported than the text has bytes" in note for note in result.traces[0].notes)
    assert result.tokenizer == counted
    assert result.totals.reported_cached_tokens == (96 if good else None)


def test_a_picture_may_be_many_tokens(tmp_path):
    """The counts of every call with an image in it would be thrown away."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    log = chat_log(tmp_path / "log.jsonl", request("x" * 400, 100), request([picture], 3000, 16), request([picture], 1 << 33, 16))
    result = replay([log], Options())
    assert [row.prompt_tokens for row in result.calls][1] == 3000
    assert [row.basis for row in result.calls] == ["predicted", "measured", "predicted"]
    assert any("1 call with more prompt tokens" in note for note in result.traces[0].notes)


@pytest.mark.parametrize("bad", [-1, -(1 << 70), (1 << 40) + 1, 1 << 63, 1 << 90, 1.5, "7", True, [3], 1e300])
@pytest.mark.parametrize("field", ["prompt_tokens", "cached", "completion_tokens"])
def test_counts_that_are_none_skip_their_record(tmp_path, bad, field):
    """A negative or absurd count would be added to the totals."""
    row = request("x" * 400, 100, 0)
    if field == "cached":
        row["usage"]["prompt_tokens_details"]["cached_tokens"] = bad
    else:
        row["usage"][field] = bad
    said = []
    result = replay([chat_log(tmp_path / "log.jsonl", row, request("y" * 400, 100, 0))], Options(), say=said.append)
    assert (result.totals.calls, result.totals.prompt_tokens, result.traces[0].skipped_lines) == (1, 100, 1)
    assert any("log.jsonl:1: skipped, " in line for line in said)


def test_broken_counts_do_not_tell_how_long_a_token_is(tmp_path):
    """Blocks of all prompts would be measured by one record's error."""
    good = [request("x" * (400 + i), 100 + i // 4) for i in range(0, 80, 4)]
    alone = replay([chat_log(tmp_path / "a.jsonl", *good)], Options())
    mixed = replay([chat_log(tmp_path / "b.jsonl", *good[:5], request("z" * 4000, 1 << 33), *good[5:])], Options())
    assert alone.tokenizer == mixed.tokenizer == "scaled"
    ratio = [note for note in alone.traces[0].notes if "bytes a token" in note]
    assert ratio
    assert ratio == [note for note in mixed.traces[0].notes if "bytes a token" in note]


@pytest.mark.parametrize("reported", [1, 400])
def test_a_ratio_that_no_text_has_scales_nothing(tmp_path, reported):
    """Blocks of a thousand bytes, or of less than a byte a token, would be cut from the text."""
    text = "x" * (100_000 if reported == 1 else 200)
    result = replay([chat_log(tmp_path / "log.jsonl", request(text, reported), request(text, reported))], Options())
    assert result.tokenizer == "none"
    assert any("no usable counts" in note for note in result.traces[0].notes)


@pytest.mark.parametrize("more", [{"questions": 1025}, {"questions": 3, "question_tokens": (1 << 20) + 1}, {"questions": 1 << 33}])
def test_calls_with_more_questions_than_anyone_asks_are_skipped(tmp_path, more):
    """One record would take hours, and its questions would be the whole price of the gate."""
    header = {"schema": "warmgate.trace/1", "block_size": 16}
    rows = [{"session": "s", "index": i, "blocks": f"{1:016x}", "prompt_tokens": 20} for i in range(2)]
    rows[0] |= more
    said = []
    result = replay([chat_log(tmp_path / "t.jsonl", header, *rows)], Options(), say=said.append)
    assert (result.totals.calls, result.traces[0].skipped_lines) == (1, 1)
    assert "more than 1,024 questions" in said[0]


def test_what_is_larger_than_the_cache_is_told(tmp_path):
    """Calls that an engine refuses would be priced without a word."""
    log = chat_log(tmp_path / "log.jsonl", request("x" * 400, 100), request("x" * 20_000, 5000), request("x" * 3800, 950))
    result = replay([log], Options(kv_tokens=1008, questions=2, question_tokens=60))
    note = next(note for note in result.traces[0].notes if note.startswith("larger than --kv-tokens"))
    assert "larger than --kv-tokens: 1 call, the gate's reads before 2 calls (separate)" in note
    assert "2 calls (json)" in note
    assert "2 calls (aligned)" in note
    assert result.calls[1].survived == 0
    quiet = replay([log], Options(kv_tokens=100_000))
    assert not any("larger than" in note for note in quiet.traces[0].notes)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 300), st.one_of(st.none(), st.integers(1, 400)), st.integers(0, 400)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([None, 64, 200, 1000]),
    st.sampled_from(["sticky", "random", "round_robin"]),
    st.integers(1, 3),
)
def test_sums_are_those_of_the_rows(tmp_path, script, kv_tokens, route, workers):
    """The totals on top of a report would contradict its lines."""
    calls = []
    for session, size, reported, cached in script:
        call = request("abcdefgh" * size, reported, None if reported is None else min(cached, reported))
        calls.append({**call, "session": f"s{session}"})
    log = chat_log(tmp_path / "log.jsonl", *calls)
    result = replay([log], Options(kv_tokens=kv_tokens, route=route, workers=workers, questions=2, question_tokens=9))
    rows, totals = result.calls, result.totals
    assert totals.calls == len(rows) == len(script)
    assert totals.prompt_tokens == sum(row.prompt_tokens for row in rows)
    assert totals.reusable_tokens == sum(row.reusable for row in rows)
    assert totals.survived_tokens == sum(row.survived for row in rows)
    assert sum(totals.lost_tokens.values()) == sum(row.lost for row in rows)
    for cause, tokens in totals.lost_tokens.items():
        assert tokens == sum(row.lost for row in rows if row.cause == cause)
    assert totals.outside.divergence == sum(row.diverged_tokens for row in rows)
    assert totals.surplus_tokens == sum(max(0, row.survived - row.reusable) for row in rows)
    for row in rows:
        assert 0 <= row.reusable <= max(0, row.prompt_tokens - 1)
        assert 0 <= row.survived <= row.prompt_tokens
        if row.basis == "predicted":
            assert row.survived <= row.reusable
        assert row.lost == max(0, row.reusable - row.survived)
    for scenario in result.scenarios:
        assert scenario.floor_tokens <= scenario.computed_tokens
        assert scenario.survived_tokens <= scenario.reusable_tokens
    none = next(s for s in result.scenarios if (s.name, s.route) == ("none", route))
    if all(reported is None for _, _, reported, _ in script):
        assert none.survived_tokens == totals.survived_tokens
        assert none.reusable_tokens == totals.reusable_tokens
        assert none.computed_tokens == totals.prompt_tokens - totals.survived_tokens
