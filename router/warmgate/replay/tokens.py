"""Turning prompt text into the bytes that prefix caches are simulated on: token ids, or the text itself at a known scale."""

from __future__ import annotations

import re
from array import array
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from string import ascii_letters, digits
from typing import TYPE_CHECKING, TypeVar

from warmgate.alignment.template import CHATML_MARKERS, ChatTemplate
from warmgate.errors import TokenizerError
from warmgate.prefix.blocks import Ruler
from warmgate.replay.cuts import Cuts
from warmgate.replay.panics import contained

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENIZER_BYTES = 256 << 20
"""The largest published tokenizer.json files have about 35 MB."""

_T = TypeVar("_T")
_PRINTABLE = ascii_letters + digits

CACHE_CHARACTERS = 8 << 20
"""Characters of text segments whose ids are remembered (about 60 MB with ids and overhead)."""

BYTES_PER_TOKEN = 4.0
"""Where neither a tokenizer nor reported counts exist. A rule of thumb for English and code; the output says that it is one."""


class ExactTokens:
    """Token ids of a ``tokenizer.json``, each message tokenised once where that provably gives the ids of the whole.

    Text is cut at control markup and each piece is tokenised and remembered on its own (:mod:`warmgate.replay.cuts` says where that is
    safe). As a second guard the first prompts are also tokenised whole; should a tokenizer behave otherwise than its file lets expect,
    every prompt is tokenised whole from then on.

    Args:
        path: The ``tokenizer.json``.
        template: The chat template in use. The default one's markers are added to a tokenizer that lacks them, since an
            engine with that template has them as single tokens.

    Attributes:
        seamless: Whether the default template's turns can be tokenised apart and put together.

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
        if lost := _one_line(self._lost, self._where):
            raise TokenizerError(f"drops text: it has no token for {lost[:8]!r}", where=self._where, mend="is the file whole?")
        cuts = Cuts(self._tokenizer)
        self._split = cuts.pattern()
        self._checks = 3
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached = 0
        start, end = CHATML_MARKERS
        self.seamless = cuts.between(f"{end}\n", start)

    def _lost(self) -> str:
        """Letters and digits that get no token: a vocabulary that lacks some would count too few without a word."""
        found = {sign: self._tokenizer.encode(f"a{sign}a", add_special_tokens=False) for sign in _PRINTABLE}
        return "".join(sign for sign, encoding in found.items() if not any(a <= 1 < b for a, b in encoding.offsets))

    def ruler(self, block_size: int) -> Ruler:
        """Blocks of ``block_size`` ids, 4 bytes each."""
        return Ruler(block_size)

    def encode(self, text: str, *, whole: bool = True) -> bytes:
        """Ids of ``text``, 4 bytes each in the machine's order.

        Args:
            text: Rendered prompt text, or a part of it that begins and ends at control markup.
            whole: Whether this is a whole prompt, which the self-check may compare.
        """
        return _one_line(lambda: self._encode(text, whole), self._where)

    def encode_whole(self, text: str) -> bytes:
        """Ids of ``text`` tokenised in one go: the slow truth that :meth:`encode` equals."""
        return _one_line(lambda: self._ids(text), self._where)

    def _encode(self, text: str, whole: bool) -> bytes:
        if self._split is None:
            return self._ids(text)
        data = b"".join(self._pieces(self._split.split(text)))
        if whole and self._checks:
            self._checks -= 1
            if (truth := self._ids(text)) != data:
                self.distrust()
                return truth
        return data

    def distrust(self) -> None:
        """Tokenise every prompt whole from now on."""
        self._split, self.seamless = None, False

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
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return array("I", ids).tobytes()


class ScaledBytes:
    """UTF-8 bytes, with the average number of tokens a byte carries.

    Args:
        tokens_per_byte: From the trace's own reported counts, or ``None`` for the rule of thumb.
    """

    seamless = True

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
    _refuse_vast_tables(file)
    from tokenizers import Tokenizer

    try:
        tokenizer = contained(lambda: Tokenizer.from_file(str(file)))
    except Exception as fault:
        raise TokenizerError(
            f"not a tokenizer.json ({fault})", where=str(file), mend="take the file of that name from the model's folder"
        ) from fault
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _one_line(work: Callable[[], _T], where: str) -> _T:
    """Tokenise, and turn whatever the library makes of a broken tokenizer into one line.

    Raises:
        TokenizerError: The library refused the text, or panicked on it.
    """
    try:
        return contained(work)
    except Exception as fault:
        raise TokenizerError(f"cannot tokenise the trace's text: {fault}", where=where, mend="is the tokenizer.json whole?") from fault


def _refuse_vast_tables(file: Path) -> None:
    """A broken table of normalised characters names its own size, and the library takes that much memory before it looks.

    Raises:
        TokenizerError: Such a table says that it is larger than it is.
    """
    try:
        text = file.read_bytes()
    except OSError as fault:
        raise TokenizerError(f"cannot be read ({fault})", where=str(file)) from fault
    for match in re.finditer(rb'"precompiled_charsmap"\s*:\s*"([^"]*)"', text):
        try:
            table = b64decode(match[1])
        except ValueError:
            table = b""
        if len(table) < 4 or int.from_bytes(table[:4], "little") > len(table) - 4:
            raise TokenizerError("not a tokenizer.json (its precompiled_charsmap is broken)", where=str(file))
