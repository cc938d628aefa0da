"""Prompts of known length, never seen before, cheap to compute: random words, or their token ids."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, cast

from warmgate.doctor.visit import Visit, object_of
from warmgate.errors import EngineError

_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand part place case week"
    " company system program question work number night point home water room mother area money story fact month lot right study book eye"
    " job word business issue side kind head house service friend father power hour game line end member law car city name team minute idea"
)
_WORDS = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True)
class Material:
    """Stuff to cut prompts from: token ids, or words where the server gives no ids."""

    pieces: tuple[int, ...] | tuple[str, ...]

    def cut(self, *spans: tuple[int, int]) -> list[int] | str:
        """The pieces of these spans, one after the other. A word has at least one token."""
        chosen = [piece for start, end in spans for piece in self.pieces[start:end]]
        if self.exact:
            return [piece for piece in chosen if isinstance(piece, int)]
        return " ".join(map(str, chosen))

    @property
    def exact(self) -> bool:
        """Whether a piece is a token."""
        return bool(self.pieces) and isinstance(self.pieces[0], int)


def words(count: int) -> tuple[str, ...]:
    """Random words; two calls share no beginning worth a cache block."""
    return tuple(secrets.choice(_WORDS) for _ in range(count))


async def material(visit: Visit, count: int, *, exact: bool = True) -> Material:
    """At least ``count`` pieces; ids by ``/tokenize`` where there is one and ``exact`` is wanted."""
    text = words(count)
    if exact:
        try:
            body: dict[str, Any] = {"model": visit.facts.model, "prompt": " ".join(text), "add_special_tokens": False}
            reply = await visit.call("POST", "/tokenize", body)
        except EngineError:
            return Material(text)
        ids = _ids(object_of(reply).get("tokens")) if reply.status == 200 else ()
        if len(ids) >= count:
            return Material(ids)
    return Material(text)


def _ids(found: object) -> tuple[int, ...]:
    """Token ids out of a reply; none where one of them is no id."""
    entries = cast("list[object]", found) if isinstance(found, list) else []
    ids = tuple(entry for entry in entries if isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0)
    return ids if len(ids) == len(entries) else ()
