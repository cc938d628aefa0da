"""Names of cache blocks, as vLLM 0.32 computes them (``vllm/v1/core/kv_cache_utils.py``, ``vllm/utils/hashing.py``).

A block's name is ``H((parent's name, token ids, extra keys or None))``; the first block's parent is ``H(seed)``, where the seed is
``vllm-none-hash`` unless ``PYTHONHASHSEED`` is set where the engine runs. So two servers that hold the same text under the same adapter
and salt name it alike, and so can we, from outside.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from warmgate.errors import OptionError

Algorithm: TypeAlias = Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]
ExtraKeys: TypeAlias = tuple[tuple[Any, ...], ...] | None

DEFAULT_SEED = "vllm-none-hash"
MASK = (1 << 64) - 1


def sha256(value: object) -> bytes:
    """SHA-256 of the value's pickle: vLLM's default."""
    return hashlib.sha256(pickle.dumps(value, protocol=5)).digest()


def sha256_cbor(value: object) -> bytes:
    """SHA-256 of the value's canonical CBOR, for readers in other languages."""
    return hashlib.sha256(cbor(value)).digest()


ALGORITHMS: dict[str, Callable[[object], bytes]] = {"sha256": sha256, "sha256_cbor": sha256_cbor}
"""Those that need nothing installed and have a seed known to all. See :func:`digest_of` for the others."""


def digest_of(algorithm: str) -> Callable[[object], bytes]:
    """The function of ``--prefix-caching-hash-algo``, by its name.

    Raises:
        OptionError: An unknown name, or the ``xxhash`` package is missing.
    """
    if algorithm in ALGORITHMS:
        return ALGORITHMS[algorithm]
    if algorithm not in get_args(Algorithm):
        raise OptionError(f"block hash {algorithm!r} is unknown", mend=f"one of {', '.join(get_args(Algorithm))}")
    try:
        import xxhash
    except ImportError:
        raise OptionError(f"block hash {algorithm!r} needs the package xxhash", mend="pip install xxhash") from None
    digest: Callable[[bytes], bytes] = xxhash.xxh3_128_digest
    if algorithm == "xxhash":
        return lambda value: digest(pickle.dumps(value, protocol=5))
    return lambda value: digest(cbor(value))


@dataclass(frozen=True, slots=True)
class Namespace:
    """What else but tokens names blocks: prompts that differ here share nothing.

    Attributes:
        salt: ``cache_salt`` of the request; names block 0, and through the chain all others.
        lora_name: Name of the LoRA adapter, ``None`` for the base model.
        lora_path: The adapter's path *on the server* (``root`` in ``/v1/models``); it is part of the name.
    """

    salt: str | None = None
    lora_name: str | None = None
    lora_path: str | None = None

    def extra_keys(self, block: int) -> ExtraKeys:
        """Extra keys of a block by its number, in vLLM's order."""
        keys: list[tuple[Any, ...]] = []
        if self.lora_name is not None:
            keys.append(("lora", self.lora_name, self.lora_path))
        if block == 0 and self.salt:
            keys.append(("cache_salt", self.salt))
        return tuple(keys) or None


PLAIN = Namespace()


class BlockNames:
    """Names the full blocks of prompts, remembering chains it has walked.

    Args:
        block_size: Tokens per block.
        algorithm: ``sha256`` (vLLM's default), ``sha256_cbor``, ``xxhash`` or ``xxhash_cbor``.
        seed: What the first block's parent is made of: the engine's ``PYTHONHASHSEED`` where it is set. The xxhash variants draw theirs
            at random without it, and cannot be followed from outside then.

    Raises:
        OptionError: An unknown algorithm, xxhash without a seed, or without its package.
    """

    REMEMBERED = 1 << 15
    """Blocks whose names are remembered before the memory starts anew (about 20 MB with blocks of 16)."""

    def __init__(self, block_size: int, algorithm: Algorithm = "sha256", seed: str | None = None) -> None:
        if block_size < 1:
            raise OptionError(f"a block has at least one token, not {block_size}")
        if seed is None and algorithm.startswith("xxhash"):
            raise OptionError(
                f"the seed of {algorithm} is random: blocks cannot be named from outside",
                mend="set PYTHONHASHSEED where the engine runs and give the same seed here, or use sha256",
            )
        self.block_size = block_size
        self.algorithm = algorithm
        self._hash = digest_of(algorithm)
        self._root = self._hash(DEFAULT_SEED if seed is None else seed)
        self._known: dict[tuple[bytes, tuple[int, ...], ExtraKeys], bytes] = {}

    def __call__(self, ids: Sequence[int], extra: Callable[[int], ExtraKeys] | None = None, *, known: Sequence[bytes] = ()) -> list[bytes]:
        """Names of all full blocks of ``ids``, from the front.

        Args:
            ids: Token ids.
            extra: Extra keys of a block by its number; ``None`` for none.
            known: Names of leading blocks computed before.
        """
        size, memory, digest = self.block_size, self._known, self._hash
        names = list(known)
        parent = names[-1] if names else self._root
        for block in range(len(names), len(ids) // size):
            content = (parent, tuple(ids[block * size : (block + 1) * size]), extra(block) if extra is not None else None)
            name = memory.get(content)
            if name is None:
                name = digest(content)
                if len(memory) >= self.REMEMBERED:
                    memory.clear()
                memory[content] = name
            names.append(name)
            parent = name
        return names

    def of(self, ids: Sequence[int], namespace: Namespace = PLAIN, *, known: Sequence[bytes] = ()) -> list[bytes]:
        """Names of all full blocks of ``ids`` in a namespace."""
        return self(ids, None if namespace == PLAIN else namespace.extra_keys, known=known)

    def agrees(self, name: int, ids: Sequence[int], extra: ExtraKeys = None) -> bool:
        """Whether the engine's wire name of a *first* block is what this class makes of its tokens: the algorithm and seed are right."""
        return wire_name(self._hash((self._root, tuple(ids), extra))) == name


def wire_name(name: bytes) -> int:
    """A block's name as KV events write it by default: the low 64 bits."""
    return int.from_bytes(name[-8:], "big")


def wire_names(names: Sequence[bytes]) -> list[int]:
    """The same for many."""
    make = int.from_bytes
    return [make(name[-8:], "big") for name in names]


def cbor(value: object) -> bytes:
    """Canonical CBOR (RFC 8949, section 4.2.1) of what block names are made of: None, integers, text, bytes and sequences of them."""
    out = bytearray()
    _cbor(value, out)
    return bytes(out)


def _cbor(value: object, out: bytearray) -> None:
    if value is None:
        out.append(0xF6)
    elif isinstance(value, bool):
        out.append(0xF5 if value else 0xF4)
    elif isinstance(value, int):
        _head(0, value, out) if value >= 0 else _head(1, -1 - value, out)
    elif isinstance(value, bytes):
        _head(2, len(value), out)
        out += value
    elif isinstance(value, str):
        data = value.encode()
        _head(3, len(data), out)
        out += data
    elif isinstance(value, (tuple, list)):
        items = cast("tuple[object, ...]", value)
        _head(4, len(items), out)
        if items and all(type(item) is int for item in items):  # a block's tokens: the same numbers come again and again
            if len(_INTEGERS) > 1 << 18:
                _INTEGERS.clear()
            out += b"".join(map(_INTEGERS.__getitem__, cast("tuple[int, ...]", items)))
            return
        for item in items:
            _cbor(item, out)
    else:
        raise TypeError(f"block names hold no {type(value).__name__}")


class _Integers(dict[int, bytes]):
    """Encodings of integers met before."""

    def __missing__(self, number: int) -> bytes:
        out = bytearray()
        _cbor(number, out)
        made = self[number] = bytes(out)
        return made


_INTEGERS = _Integers()


def _head(major: int, number: int, out: bytearray) -> None:
    if number < 24:
        out.append(major << 5 | number)
        return
    for extra, (code, width) in enumerate(((24, 1), (25, 2), (26, 4), (27, 8))):
        if number < 1 << (8 * width) or extra == 3:
            out.append(major << 5 | code)
            out += number.to_bytes(width, "big")
            return
