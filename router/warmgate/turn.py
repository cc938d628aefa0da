"""One agent LLM call about to happen, as the gate sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, cast

from warmgate.errors import OptionError
from warmgate.foreign import mapping

MAX_SESSION = 4096
"""Characters of a session key. Longer ones are a mistake (a whole prompt handed in as key), and keys are hashed before they are stored."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A tool call that the model proposed and nothing has run yet.

    Attributes:
        id: The call's id in the conversation.
        name: Name of the tool.
        arguments: Its arguments: parsed, or the text the model wrote.

    Raises:
        OptionError: The id or the name is no text: no verdict could be told apart from another's.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | str

    def __post_init__(self) -> None:
        for field_, value in (("id", cast("object", self.id)), ("name", cast("object", self.name))):
            if not isinstance(value, str):
                raise OptionError(f"is text, not {type(value).__name__}", where=f"ProposedCall.{field_}")


@dataclass(frozen=True, slots=True)
class Turn:
    """What a decision is about.

    Attributes:
        session: Key of the agent conversation. Hashed before it is stored anywhere.
        messages: The messages of the agent's next call, in OpenAI's shape. Objects of an SDK (``model_dump``, dataclasses) are taken for
            what they would be sent as.
        tools: Every tool schema the agent could be given, in its canonical order; objects as for messages.
        proposed_calls: Tool calls to judge before they run; dictionaries with the same three fields do as well.
        template_kwargs: What the agent's call hands to the chat template.
        cache_salt: Cache namespace of the agent's call (per tenant); the decision carries the same.
        model: Model or LoRA of the agent's call, where it is not the settings' one.
        user_turn: Counts the user's turns of this session; a mount decided in a user turn is reused inside its tool loop. ``None``: counted
            from the messages.

    Raises:
        OptionError: The session key is empty or absurdly long, or a message, tool or call is nothing of the kind.
    """

    session: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    proposed_calls: Sequence[ProposedCall] = ()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cache_salt: str | None = None
    model: str | None = None
    user_turn: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.session), str):
            raise OptionError(f"is text, not {type(self.session).__name__}", where="Turn.session")
        if not self.session or len(self.session) > MAX_SESSION:
            raise OptionError(f"a session key has 1 to {MAX_SESSION} characters, not {len(self.session)}", where="Turn.session")
        object.__setattr__(self, "messages", _objects("messages", self.messages))
        object.__setattr__(self, "tools", _objects("tools", self.tools))
        object.__setattr__(self, "proposed_calls", _calls(self.proposed_calls))
        if not isinstance(cast("object", self.template_kwargs), Mapping):
            if cast("object", self.template_kwargs) is not None:
                raise OptionError(f"is an object, not {type(self.template_kwargs).__name__}", where="Turn.template_kwargs")
            object.__setattr__(self, "template_kwargs", {})

    @property
    def user_turns(self) -> int:
        """Which user turn this is, from 1."""
        if self.user_turn is not None:
            return self.user_turn
        return [m.get("role") for m in self.messages].count("user")  # asked every turn: a third of the time of a generator


def _listed(name: str, given: Any) -> Sequence[Any]:
    """Lists and tuples as they are: that a message is the same object as a turn ago saves looking into it."""
    if isinstance(given, (list, tuple)):
        return cast("Sequence[Any]", given)
    if given is None:
        return ()
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise OptionError(f"is a list, not {type(cast('object', given)).__name__}", where=f"Turn.{name}")
    return list(cast("Any", given))


def _objects(name: str, given: Any) -> Sequence[Mapping[str, Any]]:
    """Messages or tools as mappings; the sequence itself where all of it are."""
    listed = _listed(name, given)
    if list(map(type, listed)).count(dict) == len(listed):  # asked every turn: a fifth of the time of a generator
        return listed
    return [_object(f"Turn.{name}[{index}]", one) for index, one in enumerate(listed)]


def _object(where: str, given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return mapping(given)
    dump = getattr(given, "model_dump", None)
    if callable(dump):
        try:
            return mapping(dump(mode="json", exclude_none=True))
        except Exception as fault:
            raise OptionError(f"cannot be read ({type(fault).__name__})", where=where, mend="hand in a dictionary") from fault
    if is_dataclass(given) and not isinstance(given, type):
        return {key: value for key, value in asdict(given).items() if value is not None}
    raise OptionError(f"is an object with named fields, not {type(given).__name__}", where=where, mend="hand in a dictionary")


def _calls(given: Any) -> Sequence[ProposedCall]:
    listed = _listed("proposed_calls", given)
    if all(isinstance(one, ProposedCall) for one in listed):
        return listed
    return [one if isinstance(one, ProposedCall) else _call(index, one) for index, one in enumerate(listed)]


def _call(index: int, given: Any) -> ProposedCall:
    call = mapping(given)
    missing = [name for name in ("id", "name", "arguments") if name not in call]
    if missing:
        raise OptionError(f"has no {', '.join(missing)}", where=f"Turn.proposed_calls[{index}]", mend="hand in a ProposedCall")
    return ProposedCall(call["id"], call["name"], call["arguments"])
