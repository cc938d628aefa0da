"""Text to token ids and back, fast enough for prompts that grow by a turn at a time.

Tokenizers cut text at their added tokens before anything else, and ours also at every line end that a visible character follows. Pieces
between such cuts are encoded once and remembered, so a transcript of ten thousand tokens costs its last turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmgate.errors import TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENIZER_BYTES = 64 << 20
"""No published ``tokenizer.json`` is larger than about 35 MB."""

REMEMBERED_CHARACTERS = 2 << 20
"""How much text the memory of encoded pieces holds before it starts anew (about 25 MB)."""

LONG_PIECE = 2000
"""Characters above which a piece is cut at its line ends too."""


class Text:
    """A tokenizer with a memory.

    Args:
        path: A ``tokenizer.json``; ``None`` for the one that comes with the stand-in.

    Raises:
        TokenizerError: The file cannot be read or is not a tokenizer.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._tokenizer = _load(path)
        self.own = path is None
        added = self._tokenizer.get_added_tokens_decoder()
        self.added: dict[str, int] = {token.content: index for index, token in added.items()}
        self.vocabulary_size: int = self._tokenizer.get_vocab_size()
        # Tokens that eat the space beside them, normalizers and leading spaces make pieces depend on their neighbours.
        plain = all(not (t.lstrip or t.rstrip or t.single_word or t.normalized) for t in added.values())
        self._cuts = _cutter(self.added) if plain and self.added and (self.own or _pieces_stand_alone(self._tokenizer)) else None
        self._pieces: dict[str, list[int]] = {}
        self._remembered = 0

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``; control markup in it becomes control tokens, and nothing is put around it."""
        if self._cuts is None:
            return self._encode(text)
        ids: list[int] = []
        added = self.added
        for piece in self._cuts.split(text):
            if not piece:
                continue
            control = added.get(piece)
            if control is not None:
                ids.append(control)
            elif len(piece) > LONG_PIECE and self.own:
                for line in _LINES.split(piece):
                    ids += self._encode(line)
            else:
                ids += self._encode(piece)
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of ``ids``."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)

    def names(self, ids: Sequence[int]) -> list[str]:
        """Each id as the vocabulary writes it (byte-level tokenizers write a space as ``Ġ``)."""
        return [self._tokenizer.id_to_token(i) or "" for i in ids]

    def single(self, text: str) -> int | None:
        """The one token that ``text`` is, or ``None`` when it is several."""
        ids = self._encode(text)
        return ids[0] if len(ids) == 1 else None

    @cached_property
    def end_of_turn(self) -> int | None:
        """The token a reply ends with: the control token of a turn's or a text's end."""
        for name in ("<|im_end|>", "<turn|>", "<|eot_id|>", "<end_of_turn>", "</s>", "<|endoftext|>"):
            if name in self.added:
                return self.added[name]
        return None

    def _encode(self, text: str) -> list[int]:
        ids = self._pieces.get(text)
        if ids is None:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            self._remembered += len(text) + 64
            if self._remembered > REMEMBERED_CHARACTERS:
                self._pieces.clear()
                self._remembered = len(text) + 64
            self._pieces[text] = ids
        return ids


_LINES = re.compile(r"(?<=\n)(?=\S)")


def _cutter(added: dict[str, int]) -> re.Pattern[str]:
    longest_first = sorted(added, key=len, reverse=True)
    return re.compile("(" + "|".join(re.escape(token) for token in longest_first) + ")")


def _pieces_stand_alone(tokenizer: Tokenizer) -> bool:
    spec = json.loads(tokenizer.to_str())
    cut = json.dumps(spec.get("pre_tokenizer"))
    return spec.get("normalizer") is None and "Metaspace" not in cut and '"add_prefix_space": true' not in cut


def _load(path: str | Path | None) -> Tokenizer:
    from tokenizers import Tokenizer

    if path is None:
        return Tokenizer.from_str(files("warmgate.standin").joinpath("tokenizer.json").read_text(encoding="utf-8"))
    path = Path(path)
    mend = "--tokenizer takes the tokenizer.json of a model"
    try:
        if path.is_dir():
            path /= "tokenizer.json"
        if not path.is_file():
            raise TokenizerError("no such file", where=str(path), mend=mend)
        if path.stat().st_size > MAX_TOKENIZER_BYTES:
            raise TokenizerError("too large for a tokenizer.json", where=str(path), mend=mend)
        text = path.read_text(encoding="utf-8")
        spec: dict[str, Any] = json.loads(text)
        # Cutting or padding settings saved with a tokenizer would change prompts behind the caller's back.
        spec["truncation"] = spec["padding"] = None
        return Tokenizer.from_str(json.dumps(spec))
    except TokenizerError:
        raise
    except Exception as fault:  # the library raises plain Exception
        raise TokenizerError(f"not a tokenizer ({fault})", where=str(path), mend=mend) from fault
