"""If these fail, what a trace itself reports (counts, workers, cached tokens) is mixed wrongly with what is simulated."""

from __future__ import annotations

import json

import pytest

from warmgate.errors import TemplateError
from warmgate.replay.run import Options, replay


def chat_log(path, *calls):
    path.write_text("".join(json.dumps(call) + "\n" for call in calls))
    return str(path)


def request(text, prompt_tokens, cached=None, **more):
    usage = {"prompt_tokens": prompt_tokens}
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
