"""What the stand-in is told to answer: a JSON file, or the same as a Python mapping.

::

    {
      "decisions": [
        {"id": "shell*", "probabilities": {"yes": 0.97, "no": 0.03}},
        {"instructions": "which tools", "state": "weather", "probabilities": {"web": 0.9}, "label_mass": 0.8}
      ],
      "chat": [
        {"tool_calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]},
        {"content": "Done."}
      ],
      "sessions": {"alice": [{"content": "Hello Alice."}]}
    }

A decision rule fits a question when every condition it names does: ``id`` (a glob), ``type``, and ``instructions`` and ``state`` (texts
to find, case aside). The first that fits answers. ``probabilities`` name options (``yes``/``no``, option names, level names or numbers);
what is left goes in equal parts to options not named. Chat replies are given in order: the n-th reply answers the request that holds n-1
assistant messages, so a repeated request gets the same reply. A session with replies of its own (``X-Session-ID``) uses those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from warmgate.errors import OptionError, one_line
from warmgate.reading import read_bytes

MAX_SCRIPT_BYTES = 16 << 20
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Part):
    """Conditions on a question, and the answer where they hold."""

    id: str | None = None
    type: Literal["choice", "noul", "score"] | None = None
    instructions: str | None = None
    state: str | None = None
    probabilities: dict[str, Share] = Field(min_length=1)
    label_mass: Share | None = None
    argmax_is_label: bool | None = None

    @model_validator(mode="after")
    def _at_most_one(self) -> Rule:
        if sum(self.probabilities.values()) > 1 + 1e-9:
            raise ValueError("probabilities add up to more than 1")
        return self

    def fits(self, qid: str | None, kind: str | None, instructions: str, state: str) -> bool:
        """Whether every condition holds; a question read from a bare prompt has no id and no type, and fits no condition on them."""
        return (
            (self.id is None or (qid is not None and fnmatchcase(qid, self.id)))
            and (self.type is None or self.type == kind)
            and (self.instructions is None or self.instructions.lower() in instructions.lower())
            and (self.state is None or self.state.lower() in state.lower())
        )

    def shares(self, names: Sequence[Sequence[str]]) -> list[float] | None:
        """Probabilities of options that each go by several names; ``None`` when the rule names none of them."""
        given = [next((self.probabilities[name] for name in several if name in self.probabilities), None) for several in names]
        if all(share is None for share in given):
            return None
        silent = sum(share is None for share in given)
        rest = max(0.0, 1.0 - sum(share for share in given if share is not None))
        shares = [rest / silent if share is None else share for share in given]
        total = sum(shares)
        return [share / total for share in shares] if total else [1 / len(shares)] * len(shares)


class ScriptedCall(_Part):
    """A tool call to reply with."""

    name: str = Field(min_length=1)
    arguments: dict[str, Any] = Field(default_factory=dict)


class ScriptedReply(_Part):
    """A chat reply."""

    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ScriptedCall, ...] = ()


class Script(_Part):
    """Everything the stand-in is told to answer."""

    decisions: tuple[Rule, ...] = ()
    chat: tuple[ScriptedReply, ...] = ()
    sessions: dict[str, tuple[ScriptedReply, ...]] = Field(default_factory=dict)

    @classmethod
    def of(cls, source: Script | Mapping[str, Any] | str | Path | None) -> Script:
        """A script from a file's path, a mapping, a script, or nothing.

        Raises:
            InputError: It cannot be read, or is too long for a script.
            OptionError: It holds something else.
        """
        if source is None:
            return cls()
        if isinstance(source, Script):
            return source
        if isinstance(source, Mapping):
            return cls._checked(source, "the script")
        path = str(source)
        raw = read_bytes(path, MAX_SCRIPT_BYTES, where=path)
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError) as fault:
            raise OptionError(f"not valid JSON ({fault})", where=path) from fault
        return cls._checked(value, path)

    @classmethod
    def _checked(cls, value: Any, where: str) -> Script:
        try:
            return cls.model_validate(value)
        except ValidationError as fault:
            first = fault.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "top level"
            what = one_line(f"{place}: {first['msg'].removeprefix('Value error, ')}")
            raise OptionError(what, where=where, mend="docs/standin.md shows a script") from None

    def reply(self, session: str | None, turn: int) -> ScriptedReply | None:
        """The reply of a session's turn (from 0), or ``None`` past the last."""
        replies = self.sessions.get(session, self.chat) if session is not None else self.chat
        return replies[turn] if turn < len(replies) else None
