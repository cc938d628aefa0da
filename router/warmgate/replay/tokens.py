"""Turning prompt text into the bytes that prefix caches are simulated on: token ids, or the text itself at a known scale."""

from __future__ import annotations

import re
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from warmgate.alignment.template import CHATML_MARKERS, ChatTemplate
from warmgate.errors import TokenizerError
from warmgate.prefix.blocks import Ruler

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENIZER_BYTES = 256 << 20
"""The largest published tokenizer.json files have about 35 MB."""

CACHE_CHARACTERS = 8 << 20
"""Characters of text segments whose ids are remembered (about 60 MB with ids and overhead)."""

BYTES_PER_TOKEN = 4.0
"""Where neither a tokenizer nor reported counts exist. A rule of thumb for English and code; the output says that it is one."""


class ExactTokens:
    """Token ids of a ``tokenizer.json``, each message tokenised once.

    Added tokens (control markup) always split text before a tokenizer looks at it (``AddedVocabulary`` of ``tokenizers``), so text is
    cut there and each piece is tokenised and remembered on its own. The first prompts are also tokenised whole; should a tokenizer
    behave otherwise, every prompt is tokenised whole from then on.

    Args:
        path: The ``tokenizer.json``.
        template: The chat template in use. The default one's markers are added to a tokenizer that lacks them, since an
            engine with that template has them as single tokens.

    Raises:
        TokenizerError: The file is no tokenizer.
    """

    kind = "exact"

    def __init__(self, path: str | Path, template: ChatTemplate) -> None:
        self._tokenizer = load_tokenizer(path)
        self._where = str(path)
        if template.appendable:
            from tokenizers import AddedToken

            missing = [m for m in CHATML_MARKERS if self._tokenizer.token_to_id(m) is None]
            added: list[str | AddedToken] = [AddedToken(m, special=True, normalized=False) for m in missing]
            self._tokenizer.add_special_tokens(added)  # pyright: ignore[reportUnknownMemberType] -- its stub says list, of nothing
        self._split = _splitter(self._tokenizer)
        self._checks = 3
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached = 0
        self.piecewise = self._split is not None

    def ruler(self, block_size: int) -> Ruler:
        """Blocks of ``block_size`` ids, 4 bytes each."""
        return Ruler(block_size)

    def encode(self, text: str, *, whole: bool = True) -> bytes:
        """Ids of ``text``, 4 bytes each in the machine's order.

        Args:
            text: Rendered prompt text, or a part of it that begins and ends at control markup.
            whole: Whether this is a whole prompt, which the self-check may compare.
        """
        if not self.piecewise or self._split is None:
            return self._ids(text)
        data = b"".join(self._pieces(self._split.split(text)))
        if whole and self._checks:
            self._checks -= 1
            if (truth := self._ids(text)) != data:
                self.piecewise = False
                return truth
        return data

    def encode_whole(self, text: str) -> bytes:
        """Ids of ``text`` tokenised in one go: the slow truth that :meth:`encode` equals."""
        return self._ids(text)

    def _pieces(self, pieces: Iterable[str]) -> Iterable[bytes]:
        cache = self._cache
        for piece in pieces:
            if not piece:
                continue
            ids = cache.get(piece)
            if ids is None:
                ids = cache[piece] = self._ids(piece)
                self._cached += len(piece)
                while self._cached > CACHE_CHARACTERS and len(cache) > 1:
                    self._cached -= len(cache.popitem(last=False)[0])
            yield ids

    def _ids(self, text: str) -> bytes:
        try:
            text.encode()
        except UnicodeEncodeError:  # lone surrogates of a broken trace: engines see the replacement character
            text = text.encode("utf-8", "replace").decode()
        try:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        except Exception as fault:
            raise TokenizerError(f"cannot tokenise the trace's text: {fault}", where=self._where) from fault
        return array("I", ids).tobytes()


class ScaledBytes:
    """UTF-8 bytes, with the average number of tokens a byte carries.

    Args:
        tokens_per_byte: From the trace's own reported counts, or ``None`` for the rule of thumb.
    """

    piecewise = True

    def __init__(self, tokens_per_byte: float | None) -> None:
        self.kind = "none" if tokens_per_byte is None else "scaled"
        self.tokens_per_byte = tokens_per_byte or 1 / BYTES_PER_TOKEN

    def ruler(self, block_size: int) -> Ruler:
        """Blocks of as many bytes as carry ``block_size`` tokens on average."""
        return Ruler(block_size, self.tokens_per_byte, exact=False)

    def encode(self, text: str, *, whole: bool = True) -> bytes:
        """The text's bytes; lone surrogates (invalid input) are kept apart, never dropped."""
        del whole
        return text.encode("utf-8", "surrogatepass")


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a ``tokenizer.json`` without truncation or padding.

    Raises:
        TokenizerError: No such file, too large, or not a tokenizer.
    """
    file = Path(path)
    try:
        if file.is_dir():
            file /= "tokenizer.json"
        if not file.is_file():
            raise TokenizerError("no such file", where=str(file), mend="--tokenizer takes a tokenizer.json")
        if file.stat().st_size > MAX_TOKENIZER_BYTES:
            raise TokenizerError("too large for a tokenizer.json", where=str(file))
    except OSError as fault:
        raise TokenizerError(f"cannot be read ({fault})", where=str(path)) from fault
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as fault:
        raise TokenizerError(
            f"not a tokenizer.json ({fault})", where=str(file), mend="take the file of that name from the model's folder"
        ) from fault
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _splitter(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """A pattern that cuts text where the tokenizer always cuts it; ``None`` if nothing is safe."""
    marks: list[str] = []
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.lstrip or token.rstrip or token.single_word or token.normalized:
            continue  # these take neighbouring text or match on changed text
        if token.content:
            marks.append(token.content)
    if not marks:
        return None
    marks.sort(key=len, reverse=True)
    return re.compile("(" + "|".join(re.escape(m) for m in marks) + ")")
