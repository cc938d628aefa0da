"""The shadow index: what it says is resident, what it says it does not know."""

from __future__ import annotations

import time

import pytest

from warmgate.errors import OptionError
from warmgate.prefix.hashes import BlockNames, Namespace, wire_names
from warmgate.prefix.index import ShadowIndex, servable


@pytest.mark.parametrize(
    ("blocks", "tokens", "granularity", "served"),
    [
        (4, 64, None, 48),
        (4, 65, None, 64),
        (2, 100, None, 32),
        (0, 5, None, 0),
        (4, 1, None, 0),
        (6, 97, 64, 64),
        (3, 97, 64, 0),
        (0, 0, None, 0),
    ],
)
def test_what_a_cache_serves(blocks: int, tokens: int, granularity: int | None, served: int):
    """The last token is always computed, and with it its block: predictions would be a block too high."""
    assert servable(blocks, 16, tokens, granularity) == served


def test_a_block_announced_twice_exists_twice():
    """A duplicate's removal would drop a block that is still there."""
    index = ShadowIndex(16, source="events")
    index.stored([1, 2, 2])
    index.removed([2])
    assert index.find([1, 2], 99).blocks == 2
    index.removed([2])
    assert index.find([1, 2], 99).blocks == 1
    assert index.evicted(2)
    assert not index.evicted(1)
    index.removed([2, 7])  # never announced, or long gone
    assert len(index) == 1
    index.stored([2])
    assert not index.evicted(2)


def test_a_hole_ends_the_prefix():
    """Later blocks behind a missing one serve nothing."""
    index = ShadowIndex(16, source="events")
    index.stored([1, 3])
    assert index.find([1, 2, 3], 99).tokens == 16


def test_doubt_is_part_of_the_answer():
    """A figure from an incomplete index would pass for a sure one."""
    index = ShadowIndex(16, source="events")
    assert index.find([1], 99).doubt == "no event heard yet"
    index.trust(None)
    assert index.find([1], 99).doubt is None
    assert ShadowIndex(16).find([1], 99).doubt is not None
    bounded = ShadowIndex(16, blocks=8)
    assert bounded.find([1], 99) == bounded.find([1], 99)
    assert bounded.doubt is None
    bounded.others()
    assert "others use" in (bounded.find([1], 99).doubt or "")
    bounded.restarted(5.0)
    assert bounded.doubt is None
    assert bounded.restarted_at == 5.0


def test_the_model_evicts_as_the_worker_does():
    """Without events a small cache would look endless."""
    index = ShadowIndex(16, blocks=4)
    index.served([1, 2, 3], 50, 50)
    index.served([11, 12], 33, 33)
    assert index.find([1, 2, 3], 99).blocks < 3
    assert index.evicted(3)
    assert index.source == "model"
    index.served(list(range(100, 120)), 320, 320)  # larger than the pool: refused there, ignored here


def test_an_answer_may_come_before_its_event():
    """The agent's call follows its decision within a millisecond; the event may take longer."""
    index = ShadowIndex(16, source="events")
    index.trust(None)
    index.announced_soon([1, 2], time.monotonic())
    assert index.find([1, 2], 99).blocks == 2
    assert len(index) == 0
    index.stored([1, 2])
    index.removed([2])
    assert index.find([1, 2], 99).blocks == 1
    index.announced_soon([2], 0.0)  # evicted since it was sent: the event knows better
    assert index.find([1, 2], 99).blocks == 1
    index.announced_soon([2], time.monotonic())  # sent after it was evicted
    assert index.find([1, 2], 99).blocks == 2


def test_restart_and_clear_leave_nothing():
    index = ShadowIndex(16, source="events")
    index.stored([1])
    index.cleared(3.0)
    assert (len(index), index.cleared_at) == (0, 3.0)
    index.stored([1])
    index.restarted()
    assert len(index) == 0
    assert not index.evicted(1)


def test_what_the_worker_reports_is_learnt():
    """Blocks from before we listened would stay unknown for ever."""
    index = ShadowIndex(16, source="events")
    index.confirm([1, 2])
    index.stored([2])
    index.removed([1])
    assert index.find([2], 99).blocks == 1
    assert 1 not in index


def test_sizes_are_checked():
    with pytest.raises(OptionError):
        ShadowIndex(0)


def test_salt_and_adapter_are_told_apart():
    """A tenant would be credited with another's prefix."""
    names = BlockNames(4)
    ids = list(range(12))
    plain, salted, other = (wire_names(names.of(ids, space)) for space in (Namespace(), Namespace("a"), Namespace("b")))
    lora, again = (wire_names(names.of(ids, Namespace(None, "l", path))) for path in ("/x", "/y"))
    assert len({tuple(v) for v in (plain, salted, other, lora, again)}) == 5
    assert not set(plain) & set(salted)
    assert wire_names(names.of(ids, Namespace(""))) == plain


def test_random_seeds_are_refused():
    """Names would be made that no worker has, and every prediction be 0."""
    with pytest.raises(OptionError, match="random"):
        BlockNames(16, "xxhash")
    with pytest.raises(OptionError, match="unknown"):
        BlockNames(16, "md5")  # type: ignore[arg-type]
    pytest.importorskip("xxhash")
    assert len(BlockNames(2, "xxhash", "7").of([1, 2])[0]) == 16
    assert BlockNames(2, "xxhash_cbor", "7").of([1, 2]) != BlockNames(2, "xxhash", "7").of([1, 2])
