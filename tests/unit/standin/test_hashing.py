"""Block names: those of vLLM, chained, and told apart by what may not share blocks."""

from __future__ import annotations

import hashlib
import pickle

import pytest

from warmgate.standin.hashing import BlockNames, cbor, sha256_cbor, wire_name


@pytest.mark.parametrize(
    ("value", "encoded"),
    [  # examples of RFC 8949, appendix A
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"),
        (-1, "20"),
        (-1000, "3903e7"),
        (None, "f6"),
        (True, "f5"),
        (b"\x01\x02\x03\x04", "4401020304"),
        ("IETF", "6449455446"),
        ("ü", "62c3bc"),
        ((1, (2, 3), [4, 5]), "8301820203820405"),
        (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ],
)
def test_cbor(value: object, encoded: str):
    assert cbor(value).hex() == encoded


def test_cbor_refuses_what_names_never_hold():
    with pytest.raises(TypeError):
        cbor(1.5)


def test_names_are_vllms():
    """An index of blocks would never meet the engine's events."""
    parent = hashlib.sha256(pickle.dumps("vllm-none-hash", protocol=5)).digest()
    first = hashlib.sha256(pickle.dumps((parent, (1, 2), None), protocol=5)).digest()
    second = hashlib.sha256(pickle.dumps((first, (3, 4), None), protocol=5)).digest()
    assert BlockNames(2)([1, 2, 3, 4, 5]) == [first, second]
    assert wire_name(first) == int.from_bytes(first, "big") & (1 << 64) - 1


def test_names_in_cbor():
    names = BlockNames(2, "sha256_cbor", seed="7")([1, 2])
    assert names == [sha256_cbor((sha256_cbor("7"), (1, 2), None))]


def test_a_block_is_named_by_all_before_it():
    """Equal blocks behind different prompts must not be taken for each other."""
    names = BlockNames(2)
    assert names([1, 2, 9, 9])[1] != names([3, 4, 9, 9])[1]
    assert names([1, 2, 9, 9])[0] == names([1, 2, 8, 8])[0]
    assert names([1, 2, 9, 9], known=names([1, 2])) == names([1, 2, 9, 9])


def test_partial_blocks_have_no_name():
    assert BlockNames(4)([1, 2, 3]) == []


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(BlockNames, "REMEMBERED", 10)
    names = BlockNames(1)
    expected = [names([number])[0] for number in range(100)]
    assert len(names._known) <= 10
    assert [names([number])[0] for number in range(100)] == expected
