"""Where text can be cut so that its pieces, tokenised apart, give the same ids as the whole.

The rules follow ``tokenizers`` (``tokenizer/added_vocabulary.rs``, 0.23). Added tokens that are not normalised are looked for first, in
the raw text, leftmost and longest; what lies between two of them is normalised, split and tokenised on its own. So a cut is safe at an
added token that is always found: one that takes no neighbouring text (``lstrip``, ``rstrip``, ``single_word``), that no other added token
can overlap, in a tokenizer whose steps do not ask how far into the text a piece lies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from warmgate.foreign import items, mapping

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

_SPLITTERS = {
    "BertPreTokenizer",
    "ByteLevel",
    "CharDelimiterSplit",
    "Digits",
    "FixedLength",
    "Metaspace",
    "Punctuation",
    "Sequence",
    "Split",
    "UnicodeScripts",
    "Whitespace",
    "WhitespaceSplit",
}
"""Pre-tokenizers that treat a piece alike wherever it lies (Metaspace, unless it marks the first piece alone)."""


class Cuts:
    """The safe cuts of one tokenizer.

    Args:
        tokenizer: As loaded, with all added tokens it will have.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = [t for t in tokenizer.get_added_tokens_decoder().values() if t.content]
        self._raw = [t for t in added if not t.normalized]
        self.anywhere = _alike_anywhere(tokenizer)
        """Whether a piece's ids are the same wherever it lies in the text."""
        self.marks = _marks(self._raw)
        """Added tokens on either side of which text can be cut."""

    def pattern(self) -> re.Pattern[str] | None:
        """What splits text into pieces that can each be tokenised apart, the marks being pieces too; ``None`` if nothing does."""
        if not (self.anywhere and self.marks):
            return None
        return re.compile("(" + "|".join(map(re.escape, sorted(self.marks, key=len, reverse=True))) + ")")

    def between(self, left: str, right: str) -> bool:
        """Whether text that ends with ``left`` can always be cut from text that goes on with the added token ``right``."""
        starts = [t for t in self._raw if t.content.startswith(right)]
        if not any(t.content == right for t in starts) or any(t.lstrip or t.rstrip or t.single_word for t in starts):
            return False
        return not any(_crosses(t.content, left, right) for t in self._raw)


def _marks(raw: Sequence[AddedToken]) -> frozenset[str]:
    """Tokens that are found wherever they stand. One that another, doubtful token can overlap is doubtful itself."""
    doubtful = {t.content for t in raw if t.lstrip or t.rstrip or t.single_word}
    greedy = any(t.lstrip or t.rstrip for t in raw)
    marks = {t.content for t in raw} - doubtful
    if greedy:  # its neighbours' white space may be taken
        doubtful |= {m for m in marks if m != m.strip()}
    fresh = set(doubtful)
    while fresh:
        marks -= doubtful
        fresh = {m for m in marks if any(_overlap(m, d) for d in fresh)}
        doubtful |= fresh
    return frozenset(marks)


def _overlap(a: str, b: str) -> bool:
    """Whether an occurrence of ``a`` and one of ``b`` can share a character."""
    if a in b or b in a:
        return True
    return any(a[-n:] == b[:n] or b[-n:] == a[:n] for n in range(1, min(len(a), len(b))))


def _crosses(token: str, left: str, right: str) -> bool:
    """Whether ``token`` can begin in text that ends with ``left`` and end in text that begins with ``right``."""
    for at in range(1, len(token)):
        before, after = token[:at], token[at:]
        if (before.endswith(left) or left.endswith(before)) and (after.startswith(right) or right.startswith(after)):
            return True
    return False


def _alike_anywhere(tokenizer: Tokenizer) -> bool:
    splitter: Any = tokenizer.pre_tokenizer
    step = json.loads(splitter.__getstate__()) if splitter is not None else None
    return all(s.get("type") in _SPLITTERS and s.get("prepend_scheme") != "first" for s in _steps(step))


def _steps(step: Any) -> Iterable[Mapping[str, Any]]:
    if step is None:
        return
    yield (found := mapping(step))
    for one in items(found.get("pretokenizers")):
        yield from _steps(one)
