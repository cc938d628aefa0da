"""How a stand-in is set up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from warmgate.errors import OptionError
from warmgate.standin.hashing import ALGORITHMS, Algorithm
from warmgate.standin.script import Script
from warmgate.standin.styles import STYLES, StyleName

NAME = "standin"
"""The ``model`` of every response, whatever name was asked for."""

Version: TypeAlias = Literal["0.31", "0.32", "0.33"]
VERSIONS: dict[str, str] = {"0.31": "0.31.0", "0.32": "0.32.0", "0.33": "0.33.0"}
ScriptSource: TypeAlias = "Script | Mapping[str, Any] | str | Path | None"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of :class:`~warmgate.standin.StandIn` and of ``warmgate standin``.

    Attributes:
        host: Address to bind. Loopback by default; the stand-in has no business on a network.
        port: 0 lets the system choose.
        model: The name it answers to, or several. The first labels its metrics.
        loras: Names of adapters it claims to serve, each with a prefix cache of its own.
        kv_tokens: Tokens the prefix cache holds.
        block_size: Tokens per cache block.
        max_model_len: Tokens a prompt may have; never more than the cache holds.
        style: Model family whose ways it imitates.
        version: vLLM release whose wire it speaks.
        api_key: The key it demands on ``/v1``, or several; none by default.
        allowed_origins: Browser origins it lets in; ``None`` for the release's default (none from 0.32 on, any in 0.31).
        kv_events_port: Port of the KV event socket, the replay socket on the next; 0 lets the system choose, ``None`` is no events.
        chat_template: A ``.jinja`` file or ``tokenizer_config.json``; ``None`` for ChatML.
        tokenizer: A ``tokenizer.json``; ``None`` for the stand-in's own.
        script: What to answer; ``None`` for answers from words that state and options share.
        fault: Faults of the whole server.
        hash_algorithm: How cache blocks are named.
        hash_seed: What the first block's parent is named after; ``None`` for vLLM's default.
        read_timeout: Seconds a client may take to send one request.
        keep_alive: Seconds an idle connection stays open.
        max_body: Bytes a request body may have.

    Raises:
        OptionError: A value is none of those allowed.
    """

    host: str = "127.0.0.1"
    port: int = 0
    model: str | Sequence[str] = NAME
    loras: Sequence[str] = ()
    kv_tokens: int = 1 << 20
    block_size: int = 16
    max_model_len: int = 1 << 17
    style: StyleName = "qwen3"
    version: Version = "0.32"
    api_key: str | Sequence[str] = ()
    allowed_origins: Sequence[str] | None = None
    kv_events_port: int | None = None
    chat_template: str | Path | None = None
    tokenizer: str | Path | None = None
    script: ScriptSource = None
    fault: str | Sequence[str] = ()
    hash_algorithm: Algorithm = "sha256"
    hash_seed: str | None = None
    read_timeout: float = 30.0
    keep_alive: float = 5.0
    max_body: int = 64 << 20

    def __post_init__(self) -> None:
        for name, allowed in (("style", STYLES), ("version", VERSIONS), ("hash_algorithm", ALGORITHMS)):
            if getattr(self, name) not in allowed:
                raise OptionError(f"{getattr(self, name)!r} is not one of {', '.join(allowed)}", where=name)
        for name, least in (("block_size", 1), ("kv_tokens", self.block_size), ("max_model_len", 1), ("port", 0), ("max_body", 1)):
            if getattr(self, name) < least:
                raise OptionError(f"must be at least {least}, not {getattr(self, name)}", where=name)
        for name in ("port", "kv_events_port"):
            if not 0 <= (getattr(self, name) or 0) <= 65535:
                raise OptionError(f"ports go from 0 to 65535, not {getattr(self, name)}", where=name)
        if not self.models or not all(self.models):
            raise OptionError("a model needs a name", where="model")

    @property
    def models(self) -> tuple[str, ...]:
        """Every name it answers to."""
        return _several(self.model)

    @property
    def api_keys(self) -> tuple[str, ...]:
        """Every key it takes. An empty one is none, as with vLLM: an unset variable would lock everybody out."""
        return tuple(key for key in _several(self.api_key) if key)

    @property
    def faults(self) -> tuple[str, ...]:
        """Every standing fault."""
        return _several(self.fault)


class OptionArguments(TypedDict, total=False):
    """The same as keyword arguments."""

    host: str
    port: int
    model: str | Sequence[str]
    loras: Sequence[str]
    kv_tokens: int
    block_size: int
    max_model_len: int
    style: StyleName
    version: Version
    api_key: str | Sequence[str]
    allowed_origins: Sequence[str] | None
    kv_events_port: int | None
    chat_template: str | Path | None
    tokenizer: str | Path | None
    script: ScriptSource
    fault: str | Sequence[str]
    hash_algorithm: Algorithm
    hash_seed: str | None
    read_timeout: float
    keep_alive: float
    max_body: int


def _several(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
