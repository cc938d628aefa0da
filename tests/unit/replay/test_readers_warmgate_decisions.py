"""If these fail, a week of shadow mode tells nobody what enforcing would have done."""

from __future__ import annotations

from tests.unit.replay.reading import read
from warmgate.replay.readers.warmgate_decisions import READER


def test_what_enforcing_would_have_done_is_summed_up():
    found = read(READER, "warmgate_decisions/shadow.jsonl")
    assert [(c.session, c.usage.prompt_tokens, c.prompt) for c in found.calls] == [("9f", 2000, None), ("9f", 2200, None)]
    notes = "\n".join(found.notes)
    assert "would have mounted 3 of 6 tools, changed the set 1 times, and left out about 300 schema tokens" in notes
    assert "shadowed verdicts: allow 1, ask 1, deny 1" in notes
    assert "people approved 1 calls and rejected 0" in notes


def test_records_that_are_no_decisions_are_skipped_and_told():
    found = read(
        READER,
        [{"schema": "warmgate.decisions/1", "session": "s", "mounts": {}}, {"schema": "x", "session": "s"}, [], {"session": 4}],
        lines=True,
    )
    assert len(found.calls) == 1
    assert found.skipped == 3
