"""Names of cache blocks; see :mod:`warmgate.prefix.hashes`. The stand-in offers the algorithms that need no secret seed."""

from __future__ import annotations

from warmgate.prefix.hashes import ALGORITHMS, DEFAULT_SEED, Algorithm, BlockNames, ExtraKeys, cbor, sha256, sha256_cbor, wire_name

__all__ = ["ALGORITHMS", "DEFAULT_SEED", "Algorithm", "BlockNames", "ExtraKeys", "cbor", "sha256", "sha256_cbor", "wire_name"]
