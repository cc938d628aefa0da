"""Batches of KV events in every order a network and a restarting worker can bring them in."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from warmgate.prefix.events import EventSource, sources_of
from warmgate.prefix.hashes import BlockNames, wire_name, wire_names
from warmgate.prefix.index import ShadowIndex
from warmgate.prefix.intake import Intake


def batch(ts: float, *events: dict[str, Any], rank: int | None = 0) -> bytes:
    return msgspec.msgpack.encode([ts, list(events), rank])


def stored(*names: Any, parent: int | None = 1, **more: Any) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": list(names),
        "parent_block_hash": parent,
        "token_ids": [],
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **more,
    }


def removed(*names: Any, **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(names), "medium": "GPU", **more}


CLEARED = {"type": "AllBlocksCleared"}


def intake(**more: Any) -> Intake:
    return Intake(ShadowIndex(16, source="events"), **more)


def test_in_order():
    seen: list[int] = []
    one = intake(stored=seen.extend)
    assert one.take(0, batch(1.0, stored(1, 2), stored(3))) == "applied"
    assert one.take(1, batch(2.0, removed(2))) == "applied"
    assert set(one.index._copies) == {1, 3}
    assert one.missing is None
    assert (one.expected, one.batches, one.blocks, seen) == (2, 2, 3, [1, 2, 3])


def test_heard_twice_counts_once():
    """A replay overlaps with what came live; counted twice, blocks would never leave the index."""
    one = intake()
    one.take(0, batch(1.0, stored(1)))
    one.take(1, batch(2.0, stored(2)))
    assert one.take(0, batch(1.0, stored(1))) == "duplicate"
    one.take(2, batch(3.0, removed(1)))
    assert 1 not in one.index


def test_a_gap_is_not_stepped_over():
    """A lost removal would make every later prediction too high, silently."""
    one = intake()
    one.take(0, batch(1.0, stored(1)))
    assert one.take(3, batch(4.0, stored(4))) == "gap"
    assert 4 not in one.index
    assert one.take(1, batch(2.0, stored(2))) == "applied"
    one.skip(3)
    assert "1 batches" in (one.missing or "")
    assert one.take(3, batch(4.0, stored(4))) == "applied"
    assert one.index.doubt is not None
    one.take(4, batch(5.0, CLEARED))
    assert one.index.doubt is None
    assert len(one.index) == 0


def test_a_late_start_is_said():
    one = intake()
    one.take(7, batch(1.0, stored(1)))
    assert "first 7" in (one.index.doubt or "")


def test_restart_by_a_smaller_number():
    """The blocks of a dead process would be thought resident."""
    one = intake()
    for number in range(5):
        one.take(number, batch(float(number), stored(number)))
    assert one.take(0, batch(100.0, stored(77))) == "applied"
    assert set(one.index._copies) == {77}
    assert one.restarts == 1
    assert one.index.restarted_at is not None
    assert one.take(1, batch(101.0, stored(78))) == "applied"
    for number in (2, 3):
        one.take(number, batch(102.0 + number, stored(number)))
    assert one.take(1, batch(200.0, stored(1))) == "restart"
    assert len(one.index) == 0


def test_another_process_is_known_by_its_batches():
    one = intake()
    one.take(0, batch(1.0, stored(1)))
    assert one.fits(0, batch(1.0, stored(1)))
    assert not one.fits(0, batch(9.0, stored(1)))
    assert one.fits(5, batch(9.0))


def test_a_stale_batch_is_no_restart():
    one = intake()
    one.take(4, batch(10.0, stored(1)))
    assert one.take(2, batch(8.0, stored(2))) == "duplicate"
    assert one.restarts == 0


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x93", b"\xc1", msgspec.msgpack.encode([1.0, [{"type": "Nonsense"}], 0]), b"\x91" * 5000, msgspec.msgpack.encode({"a": 1})],
)
def test_nonsense_is_counted_and_doubted(payload: bytes):
    one = intake()
    one.take(0, batch(1.0, stored(1)))
    assert one.take(1, payload) == "malformed"
    assert one.malformed == 1
    assert one.index.doubt is not None
    assert one.take(2, batch(2.0, stored(2))) == "applied"


def test_random_bytes_never_raise():
    dice = random.Random(0)
    one = intake()
    for number in range(3000):
        good = bytearray(batch(float(number), stored(number, number + 1)))
        for _ in range(dice.randrange(4)):
            good[dice.randrange(len(good))] = dice.randrange(256)
        one.take(number, bytes(good))


def test_offloaded_blocks_are_not_the_caches():
    """A block in host memory would count as a cache hit."""
    one = intake()
    one.take(0, batch(1.0, stored(1, medium="CPU"), stored(2)))
    one.take(1, batch(2.0, removed(2, medium="CPU")))
    assert set(one.index._copies) == {2}


def test_ranks_are_kept_apart():
    one = intake(rank=1)
    assert one.take(0, batch(1.0, stored(1), rank=0)) == "foreign"
    assert one.take(0, batch(1.0, stored(1), rank=1)) == "applied"


def test_layers_that_keep_only_some_prefixes_are_named():
    """Full attention alone would promise what a hybrid model cannot serve."""
    one = intake()
    one.take(0, batch(1.0, stored(1, group_idx=0, kv_cache_spec_kind="full_attention"), stored(9, group_idx=1, kv_cache_spec_kind="mamba")))
    assert "sliding window or recurrent" in (one.index.doubt or "")
    one.take(1, batch(2.0, removed(1, group_idx=1), CLEARED, stored(1)))
    assert 1 in one.index
    assert one.index.doubt is not None


def test_whole_hashes_are_cut():
    """`VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0` sends 32 bytes."""
    names = BlockNames(16)
    whole = names.of(list(range(32)))
    one = intake()
    one.take(0, batch(1.0, stored(*whole)))
    assert one.index.find(wire_names(whole), 33).blocks == 2


@pytest.mark.parametrize("salt", [None, "t"])
def test_other_names_than_ours_are_noticed(salt: str | None):
    """With another seed nothing would ever be found, and the index would say so as if it were sure."""
    ids = list(range(16))
    keys = (("cache_salt", salt),) if salt else None
    extra = [[salt]] if salt else None
    right, wrong = BlockNames(16), BlockNames(16, seed="0")
    name = wire_name(right(ids, lambda _: keys)[0])
    for names, doubted in ((right, False), (wrong, True)):
        one = intake(names=names)
        one.take(0, batch(1.0, stored(name, parent=None, token_ids=ids, extra_keys=extra)))
        assert (one.index.doubt is not None) is doubted
        one.take(1, batch(2.0, CLEARED))
        assert (one.index.doubt is not None) is doubted


def test_another_block_size_is_noticed():
    one = intake()
    one.take(0, batch(1.0, stored(1, block_size=128)))
    assert "128" in (one.index.doubt or "")


def test_ranks_add_to_the_port():
    """Rank 1 would listen to rank 0's events."""
    source = EventSource("tcp://10.0.0.1:5557", "tcp://10.0.0.1:5600", "kv")
    assert source.of_rank(2) == EventSource("tcp://10.0.0.1:5559", "tcp://10.0.0.1:5602", "kv", 2)


def test_sources_as_vllm_lists_them():
    listed = {
        "0": {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": "tcp://*:5557",
            "replay_endpoint": "tcp://*:5558",
            "topic": "",
        },
        "1": {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://10.1.1.1:5558", "replay_endpoint": None},
        "2": {"enable_kv_cache_events": False, "publisher": "null", "endpoint": "tcp://*:5557"},
        "x": 3,
    }
    assert sources_of(listed, "http://gpu7:8000") == {
        0: EventSource("tcp://gpu7:5557", "tcp://gpu7:5558", "", 0),
        1: EventSource("tcp://10.1.1.1:5558", None, "", 1),
    }
    assert sources_of({"0": listed["0"]}, "http://[::1]:8000")[0].endpoint == "tcp://[::1]:5557"
    assert sources_of(["nonsense"], "http://gpu7:8000") == {}
