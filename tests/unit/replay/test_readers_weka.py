"""If these fail, `replay` miscounts WEKA's kv-cache traces: sub-agents in the wrong session, prompts in the wrong order or size."""

from __future__ import annotations

import json
from array import array

import pytest

from tests.unit.replay.reading import SHARED, read
from warmgate.errors import TraceError
from warmgate.replay.readers.weka import READER
from warmgate.replay.trace import MAX_TOKENS


def document(**request):
    """A trace of one sound request and one with ``request`` changed in it."""
    good = {"t": 0, "type": "n", "model": "m", "in": 200, "out": 5, "hash_ids": [1, 2, 3]}
    return {"id": "t", "block_size": 64, "hash_id_scope": "local", "requests": [good, {**good, **request}]}


def test_sub_agents_are_sessions_of_their_own_in_the_order_of_time():
    """A sub-agent's prompt would look like the parent's history thrown away, and be cached before it was sent."""
    found = read(READER, "weka/subagents.json")
    assert [(c.session, c.started, c.ended) for c in found.calls] == [
        ("pine", 0.0, 2.5),
        ("pine/scout", 10.0, 11.0),
        ("pine", 12.0, None),
        ("pine/digger", 13.0, None),
        ("pine/scout", 40.0, None),
        ("pine", 50.0, None),
    ]
    assert [c.model for c in found.calls] == ["big", "small", "big", "small", "small", "big"]
    assert found.counts[2] == (330, None, 10)


def test_prompts_are_the_hashes_as_recorded():
    """Every figure of the replay rests on them."""
    prompt = read(READER, "weka/subagents.json").calls[2].prompt
    assert (prompt.block_size, prompt.tokens, prompt.hashes) == (64, 330, array("q", [1, 2, 3, 4, 5]))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"in": -5}, "in is negative"),
        ({"in": MAX_TOKENS + 1}, "in is absurdly large"),
        ({"in": "200"}, "in is '200', not a whole number"),
        ({"in": None}, "it has no in"),
        ({"out": -1}, "out is negative"),
        ({"hash_ids": "123"}, "its hash_ids are no list"),
        ({"hash_ids": [1, 2.5]}, "its hash_ids are not all whole numbers"),
        ({"hash_ids": [1, True]}, "its hash_ids are not all whole numbers"),
        ({"hash_ids": [1, 1 << 70, 3]}, "one of its hash_ids has more than 64 bits"),
        ({"hash_ids": [1, 2, 3, 4, 5]}, "it has 5 hash_ids, but 200 tokens fill no more than 4 blocks"),
        ({"hash_ids": [1, 2]}, "it has 2 hash_ids, but 200 tokens fill 3 blocks"),
        ({"in": 0}, "it has 3 hash_ids, but 0 tokens fill no more than 0 blocks"),
        ({"type": "x"}, "its type is 'x', not n, s or subagent"),
        ({"type": None}, "its type is 'None'"),
    ],
)
def test_a_broken_request_is_skipped_and_told(change, why):
    """It would crash the replay, or add an absurd number to every sum."""
    found = read(READER, document(**change))
    assert len(found.calls) == 1
    assert len(found.said) == 1
    assert f"request 2: {why}" in found.said[0]


@pytest.mark.parametrize("t", [-1, None, "soon", 1e300, True])
def test_a_broken_time_leaves_the_call_in_its_place(t):
    """The call would be lost, or sorted to the front."""
    trace = document(t=t)
    trace["requests"].insert(1, {**trace["requests"][0], "t": 5, "out": 7})
    found = read(READER, trace)
    assert [c.usage.output_tokens for c in found.calls] == [5, 7, 5]
    assert found.calls[2].started is None


def test_hashes_of_64_bits_are_kept():
    """Traces made from an engine's own hashes would be refused."""
    assert read(READER, document(hash_ids=[2**64 - 1, 5, 6])).calls[1].prompt.hashes == array("Q", [2**64 - 1, 5, 6])


def test_absurd_nesting_is_skipped_with_its_reason():
    """A hostile trace would exhaust the stack."""
    trace = document()
    inner = trace["requests"]
    for _ in range(40):
        inner.append({"type": "subagent", "t": 1, "agent_id": "t", "requests": [dict(trace["requests"][0])]})
        inner = inner[-1]["requests"]
    found = read(READER, trace)
    assert len(found.calls) == 2 + 16
    assert "nested more than 16 deep" in found.said[0]


@pytest.mark.parametrize("requests", [None, 5, {}, [None, 5, "x", [], {}, {"type": "subagent", "requests": 7}]])
def test_requests_of_any_shape(requests):
    """A traceback instead of a reason."""
    assert read(READER, {"id": 7, "block_size": 64, "hash_id_scope": "local", "requests": requests}).calls == []


@pytest.mark.parametrize("size", [0, -64, None, "64", True, 1 << 30, 2.5])
def test_a_broken_block_size_refuses_the_trace(size):
    """Hashes without a size mean nothing; a guess would look like a measurement."""
    with pytest.raises(TraceError, match="block_size"):
        read(READER, {**document(), "block_size": size})


@pytest.mark.skipif(not (SHARED / "weka").is_dir(), reason="the recorded traces beside the checkout (../shared) are absent")
@pytest.mark.parametrize(
    ("name", "calls", "tokens", "sessions"),
    [
        ("trace_0047.json", 25, 3_070_904, 1),
        ("trace_0365.json", 34, 2_236_315, 1),
        ("trace_0460.json", 12, 164_269, 1),
        ("trace_0277.json", 53, 2_576_410, 5),
    ],
)
def test_published_traces_give_their_own_totals(name, calls, tokens, sessions):
    """The traces state their sums; ours would differ from everyone else's."""
    found = read(READER, SHARED / "weka" / name)
    assert (len(found.calls), sum(c.usage.prompt_tokens or 0 for c in found.calls), len(set(found.sessions))) == (calls, tokens, sessions)
    assert found.skipped == 0
    assert json.loads((SHARED / "weka" / name).read_text())["totals"]["combined_tokens"]["input"] == tokens
