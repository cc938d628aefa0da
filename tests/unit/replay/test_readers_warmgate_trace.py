"""If these fail, our own traces cannot be read back, lose calls silently, or tell what must stay secret."""

from __future__ import annotations

import json
import resource
import stat
import threading
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.replay.reading import read
from warmgate.errors import OutputError, TraceError
from warmgate.replay import record
from warmgate.replay.readers._blocks import MAX_BLOCKS
from warmgate.replay.readers.warmgate_trace import READER
from warmgate.replay.record import TraceWriter, pack, unpack
from warmgate.replay.source import expand, open_trace
from warmgate.replay.trace import BlockPrompt, TextPrompt

HEADER = {"schema": "warmgate.trace/1", "block_size": 16}
SECRET = "SECRET-TEXT"
MESSAGES = [{"role": "user", "content": SECRET}]


def calls_of(path):
    said: list[str] = []
    with open_trace(str(path), said.append) as (reader, source):
        assert reader is not READER
        assert reader.name == "warmgate_trace"
        return list(reader.read(source)), said


def row(index=0, **more):
    return {"session": "s", "index": index, "prompt_tokens": 40, "blocks": pack(array("Q", [1, 2])), **more}


# --- reading -----------------------------------------------------------------------------------------------------------------------


def test_calls_carry_the_questions_asked_before_them():
    """A gate's reads would count as calls of the agent, or its recorded questions not at all."""
    found = read(READER, "warmgate_trace/gate.jsonl")
    assert found.sessions == ["a1", "b2", "a1"]
    assert [(c.questions, c.question_tokens) for c in found.calls] == [(3, 29), (None, None), (None, None)]
    assert found.counts == [(37, 32, 5), (500, None, 5), (60, 32, 5)]
    assert found.notes == ["sessions that end with gate reads no call followed: 1; their questions are left out"]
    first = found.calls[0]
    assert (first.worker, first.namespace, first.started, first.ended) == ("w0", "77", 1772442000.5, 1772442001.5)


def test_hashes_are_completed_from_the_record_before():
    """Prompts would lose their shared front."""
    found = read(READER, "warmgate_trace/gate.jsonl")
    first, last = found.calls[0].prompt, found.calls[2].prompt
    assert isinstance(first, BlockPrompt)
    assert isinstance(last, BlockPrompt)
    assert (first.block_size, list(first.hashes), first.tokens) == (16, [1, 2**64 - 1], 37)
    assert (last.block_size, list(last.hashes), last.tokens) == (16, [1, 2**64 - 1, 9], 60)
    assert found.calls[1].prompt is None  # 500 tokens without a hash: usage alone


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=20))
def test_prompts_that_share_their_front_stay_apart(script):
    """A prompt would change after it was read, because a later one went on from it."""
    rows, truth, ids = [HEADER], [], iter(range(1, 1000))
    for index, (most, new) in enumerate(script):
        before = truth[-1] if truth else []
        keep = min(most, len(before))
        own = [next(ids) for _ in range(new)]
        truth.append(before[:keep] + own)
        rows.append(row(index, keep=keep, blocks="".join(f"{i:016x}" for i in own), prompt_tokens=16 * len(truth[-1]) + 3))
    found = read(READER, rows, lines=True)
    assert [list(c.prompt.hashes) for c in found.calls] == truth
    for call, ids_ in zip(found.calls, truth, strict=True):
        hashes = call.prompt.hashes
        assert list(hashes[1:3]) == ids_[1:3]
        assert list(hashes[-2:]) == ids_[-2:]
        assert list(hashes[::-1]) == ids_[::-1]
        assert list(hashes[2:99]) == ids_[2:99]


def test_a_long_session_does_not_copy_what_it_keeps():
    """Reading would take the square of a session's length."""
    rows = [HEADER, row(0, blocks="".join(f"{i:016x}" for i in range(1000)), prompt_tokens=16_000)]
    rows += [row(i, keep=999 + i, blocks=f"{i:016x}", prompt_tokens=16_000 + 16 * i) for i in range(1, 50)]
    found = read(READER, rows, lines=True)
    assert len({id(c.prompt.hashes._ids) for c in found.calls}) == 1
    assert [len(c.prompt.hashes) for c in found.calls] == list(range(1000, 1050))


def test_more_blocks_than_any_prompt_has_are_skipped():
    """A small file of records that each keep millions of blocks would take hours."""
    many = MAX_BLOCKS * "00000000000000ff"
    rows = [HEADER, row(0, blocks=many, prompt_tokens=16 * MAX_BLOCKS), row(1, keep=MAX_BLOCKS, blocks="0" * 16, prompt_tokens=1 << 30)]
    found = read(READER, rows, lines=True)
    assert [len(c.prompt.hashes) for c in found.calls] == [MAX_BLOCKS]
    assert found.said == ["trace:3: skipped, it has more than 1,048,576 blocks"]


@pytest.mark.parametrize(
    "one", [{"questions": 1025}, {"question_tokens": (1 << 20) + 1}, {"questions": 1 << 33, "question_tokens": 1 << 33}]
)
def test_reads_with_more_questions_than_anyone_asks_are_skipped(one):
    """Billions of questions would be simulated one by one."""
    rows = [HEADER, row(0, kind="read", questions=2, question_tokens=40), row(1, kind="read", **one), row(2)]
    found = read(READER, rows, lines=True)
    assert [(c.questions, c.question_tokens) for c in found.calls] == [(2, 40)]
    assert found.skipped == 1
    assert "more than 1,024 questions or 1,048,576 tokens" in found.said[0]


def test_reads_are_bounded_together_too():
    """Many reads before one call would add up to what a single one may not ask."""
    rows = [HEADER, *(row(i, kind="read", questions=600, question_tokens=10) for i in range(3)), row(3)]
    found = read(READER, rows, lines=True)
    assert [(c.questions, c.question_tokens) for c in found.calls] == [(600, 10)]
    assert found.skipped == 2


def test_a_missing_predecessor_skips_what_counts_on_it_and_no_more():
    """Completed from the wrong record, a prompt would be another prompt."""
    rows = [HEADER, row(0), row(2, keep=2), row(3, keep=1), row(4), row(5, keep=2, blocks="")]
    found = read(READER, rows, lines=True)
    assert [c.line for c in found.calls] == [2, 5, 6]
    assert found.said == [f"trace:{n}: skipped, the record of its session that it goes on from is missing" for n in (3, 4)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt_tokens": -1}, "prompt_tokens is negative"),
        ({"prompt_tokens": 1 << 60}, "prompt_tokens is absurdly large"),
        ({"prompt_tokens": 1 << 90}, ""),
        ({"prompt_tokens": None}, "it has blocks but no prompt_tokens"),
        ({"prompt_tokens": 20}, "it has more blocks than its tokens fill"),
        ({"cached_tokens": 41}, "41 cached tokens of a prompt of 40"),
        ({"questions": -1}, "questions is negative"),
        ({"blocks": "xyz"}, "its blocks are not hashes of 16 hex digits"),
        ({"blocks": "00" * 7}, "its blocks are not hashes of 16 hex digits"),
        ({"blocks": ["1"]}, "it is no record (Expected `str`, got `array` - at `$.blocks`)"),
        ({"keep": -1}, "its keep or its index is negative"),
        ({"index": -1}, "its keep or its index is negative"),
        ({"prompt_tokens": 9000}, "it has 2 blocks, but its tokens fill 562"),
        ({"keep": 1 << 40}, "the record of its session that it goes on from is missing"),
        ({"kind": "guess"}, "it is no record"),
        ({"session": None}, "it is no record"),
        ({"index": "x"}, "it is no record"),
        ({"started": "noon"}, "it is no record"),
    ],
)
def test_a_broken_record_is_skipped_and_told(change, why):
    found = read(READER, [HEADER, row(0), {**row(1), **change}, row(2)], lines=True)
    assert len(found.calls) == 2
    assert len(found.said) == 1
    assert f"trace:3: skipped, {why}" in found.said[0]


def test_records_before_a_header_are_skipped():
    """Their block size is unknown; a guess would look like a measurement."""
    found = read(READER, [row(0), HEADER, row(0)], lines=True)
    assert len(found.calls) == 1
    assert found.said == ["trace:1: skipped, it stands before any header"]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"schema": "warmgate.trace/2", "block_size": 16}, "schema 'warmgate.trace/2' is unknown; this version reads warmgate.trace/1"),
        ({"schema": "warmgate.trace/1"}, "its header is broken"),
        ({"schema": "warmgate.trace/1", "block_size": 0}, "block_size 0 is out of range"),
        ({"schema": "warmgate.trace/1", "block_size": 16, "content": "secrets"}, "its header is broken"),
    ],
)
def test_an_unusable_header_refuses_the_trace(header, why):
    with pytest.raises(TraceError) as fault:
        read(READER, [header, row(0)], lines=True)
    assert why in str(fault.value)
    assert str(fault.value).startswith("trace:1: ")


# --- writing -----------------------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "gate.jsonl"
    with TraceWriter(path, 16, hash_name="sha256_cbor") as trace:
        trace.append("user-1", [5, 2**64 + 6], kind="read", model="m", prompt_tokens=40, questions=2, question_tokens=31)
        trace.append("user-1", [5, 6, 2**63], model="m", namespace="salt", prompt_tokens=50, cached_tokens=32, output_tokens=4, worker="w")
        trace.append("user-2", [5, 7], model="m", prompt_tokens=32, started=1.5, ended=2.5)
    calls, said = calls_of(path)
    assert said == []
    assert [list(c.prompt.hashes) for c in calls] == [[5, 6, 2**63], [5, 7]]
    assert [(c.questions, c.question_tokens) for c in calls] == [(2, 31), (None, None)]
    assert len({c.session for c in calls}) == 2
    assert calls[0].namespace
    assert (calls[1].started, calls[1].ended) == (1.5, 2.5)


def test_a_growing_session_costs_what_is_new(tmp_path):
    """A log quadratic in a session's length would fill the disk."""
    path = tmp_path / "gate.jsonl"
    with TraceWriter(path, 16) as trace:
        for turn in range(200):
            trace.append("s", range(1000 + turn), prompt_tokens=16 * (1000 + turn))
    assert path.stat().st_size < 200 * 200 + 5 * 1300 * 16
    calls, _ = calls_of(path)
    assert [list(c.prompt.hashes) for c in calls] == [list(range(1000 + turn)) for turn in range(200)]


def test_a_broken_line_costs_few_records(tmp_path):
    """One flipped byte would lose the rest of a long session."""
    path = tmp_path / "gate.jsonl"
    with TraceWriter(path, 16) as trace:
        for turn in range(200):
            trace.append("s", range(10 + turn), prompt_tokens=16 * (10 + turn))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[101] = b"{broken\n"
    path.write_bytes(b"".join(lines))
    calls, said = calls_of(path)
    assert 200 - record.WHOLE_EVERY <= len(calls) < 200
    assert said[-1].endswith("more skipped")


def test_nothing_said_or_secret_is_written_unless_asked(tmp_path):
    """Prompts, session keys and cache salts would lie in a log."""
    path = tmp_path / "gate.jsonl"
    with TraceWriter(path, 16) as trace:
        trace.append(
            SECRET,
            [1],
            namespace=SECRET,
            prompt_tokens=16,
            messages=MESSAGES,
            tools=MESSAGES,
            response=MESSAGES[0],
            template_kwargs={SECRET: 1},
        )
    assert SECRET not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_text_is_written_when_asked_and_shared_when_read(tmp_path):
    path = tmp_path / "gate.jsonl"
    answer = {"role": "assistant", "content": "yes"}
    with TraceWriter(path, 16, text=True) as trace:
        trace.append("s", [1], prompt_tokens=16, messages=MESSAGES, tools=[{"name": "ls"}], response=answer)
        trace.append("s", [1], prompt_tokens=20, messages=[*MESSAGES, answer], template_kwargs={"enable_thinking": False})
    calls, _ = calls_of(path)
    assert isinstance(calls[0].prompt, TextPrompt)
    assert calls[0].prompt.messages[0] is calls[1].prompt.messages[0]
    assert calls[0].prompt.messages[0] == MESSAGES[0]
    assert calls[0].prompt.tools == [{"name": "ls"}]
    assert calls[0].response == answer
    assert calls[1].prompt.template_kwargs == {"enable_thinking": False}


def test_ids_of_two_runs_cannot_be_linked_unless_the_salt_is_given(tmp_path):
    def ids(name, **options):
        with TraceWriter(tmp_path / name, 16, **options) as trace:
            trace.append("user", [1], prompt_tokens=16)
        return calls_of(tmp_path / name)[0][0].session

    assert ids("a.jsonl") != ids("b.jsonl")
    assert ids("c.jsonl", salt=b"pepper") == ids("d.jsonl", salt=b"pepper")


def test_a_torn_last_line_is_skipped_and_the_next_run_goes_on(tmp_path):
    """A crash would cost the file, or the first record after it."""
    path = tmp_path / "gate.jsonl"
    with TraceWriter(path, 16) as trace:
        trace.append("s", [1], prompt_tokens=16)
    with path.open("ab") as file:
        file.write(b'{"session":"s","ind')
    with TraceWriter(path, 32) as trace:
        trace.append("s", [1], prompt_tokens=32)
    calls, said = calls_of(path)
    assert [c.prompt.block_size for c in calls] == [16, 32]
    assert len(said) == 1
    assert ":3: skipped, its JSON ends in the middle" in said[0]


def test_rotated_files_can_be_read_by_themselves(tmp_path):
    """A log would grow without end, or its second half mean nothing without the first."""
    path = tmp_path / "gate.jsonl"
    with TraceWriter(path, 16, max_bytes=2000, keep=2) as trace:
        for turn in range(60):
            trace.append("s", range(turn), prompt_tokens=16 * turn)
            trace.flush()
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["gate.1.jsonl", "gate.2.jsonl", "gate.jsonl"]
    assert len(expand([str(tmp_path)])) == 3
    for name in names:
        calls, said = calls_of(tmp_path / name)
        assert said == []
        assert all(list(c.prompt.hashes) == list(range(len(c.prompt.hashes))) for c in calls)
        assert (tmp_path / name).stat().st_size < 4000
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_nothing_old_is_kept_when_none_is_asked_for(tmp_path):
    with TraceWriter(tmp_path / "gate.jsonl", 16, max_bytes=300, keep=0) as trace:
        for turn in range(20):
            trace.append("s", [turn], prompt_tokens=16)
            trace.flush()
    assert [p.name for p in tmp_path.iterdir()] == ["gate.jsonl"]


def test_threads_write_whole_lines(tmp_path):
    """Two turns at once would tear each other's lines."""
    path = tmp_path / "gate.jsonl"
    with TraceWriter(path, 16) as trace:

        def work(name):
            for turn in range(100):
                trace.append(name, range(turn + 1), prompt_tokens=16 * (turn + 1))
                trace.flush()

        threads = [threading.Thread(target=work, args=(f"s{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls, said = calls_of(path)
    assert len(calls) == 400
    assert said == []


def test_a_path_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(OutputError, match="No such file"):
        TraceWriter(tmp_path / "none/gate.jsonl", 16)
    with pytest.raises(OutputError, match="Is a directory"):
        TraceWriter(tmp_path, 16)
    mode = Path("/dev/null").stat().st_mode
    with pytest.raises(OutputError, match="no regular file"):
        TraceWriter("/dev/null", 16)
    assert Path("/dev/null").stat().st_mode == mode  # changed by root, it would break the machine


def test_two_writers_of_one_path_are_kept_apart(tmp_path):
    """Their records would count on each other's."""
    with TraceWriter(tmp_path / "gate.jsonl", 16), pytest.raises(OutputError, match="another process writes it"):
        TraceWriter(tmp_path / "gate.jsonl", 16)
    TraceWriter(tmp_path / "gate.jsonl", 16).close()


def test_a_full_disk_loses_records_but_not_the_file(tmp_path):
    """Later records would count on lost ones, and prompts come out wrong."""
    path = tmp_path / "gate.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    written = 0

    def write(trace):
        nonlocal written
        trace.append("s", range(written + 1), prompt_tokens=16 * (written + 1))
        trace.flush()
        written += 1

    def fill(trace):
        while written < 50:
            write(trace)

    with TraceWriter(path, 16) as trace:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # stands for a full disk: a write is cut, the next one fails
        try:
            with pytest.raises(OutputError, match="cannot be written"):
                fill(trace)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        for _ in range(5):
            write(trace)
    calls, said = calls_of(path)
    assert len(calls) == written
    assert all(list(c.prompt.hashes) == list(range(len(c.prompt.hashes))) for c in calls)
    assert len(said) == 1


def test_a_closed_writer_says_so(tmp_path):
    trace = TraceWriter(tmp_path / "gate.jsonl", 16)
    trace.close()
    trace.close()
    with pytest.raises(OutputError, match="closed"):
        trace.append("s", [1])


def test_what_json_cannot_hold_is_an_error_of_that_record_alone(tmp_path):
    path = tmp_path / "gate.jsonl"
    with TraceWriter(path, 16, text=True) as trace:
        trace.append("s", [1], prompt_tokens=16)
        with pytest.raises(OutputError, match="cannot be written as JSON"):
            trace.append("s", [1, 2], prompt_tokens=32, messages=[{"role": "user", "content": "\ud800"}])
        trace.append("s", [1, 2], prompt_tokens=32)
    calls, said = calls_of(path)
    assert [len(c.prompt.hashes) for c in calls] == [1, 2]
    assert said == []


@pytest.mark.parametrize("hashes", [[], [0], [2**64 - 1, 1]])
def test_hashes_read_as_the_numbers_they_are(hashes):
    """Another program would see other hashes."""
    words = array("Q", hashes)
    assert pack(words) == "".join(f"{value:016x}" for value in hashes)
    assert unpack(pack(words)) == words


def test_the_documented_example_is_sound():
    """Whoever writes the format by the document would write it wrong."""
    text = (Path(__file__).parents[3] / "docs/trace-format.md").read_text()
    rows = [json.loads(line.replace("…", "00" * 4)) for line in text.split("```")[1].strip().splitlines()]
    assert rows[0]["schema"] == record.SCHEMA
    assert {name for one in rows[1:] for name in one} <= set(record.Record.__struct_fields__)
    assert all(f"`{name}`" in text for name in record.Record.__struct_fields__)
