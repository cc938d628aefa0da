"""What each dialect takes, in one table: limits, required fields, and what happens to fields it does not know.

Sources: vLLM 0.32.0 as released and its main branch for 0.33 (``entrypoints/generate/structured_decisions`` and
``entrypoints/openai/decisions``), SGLang (``entrypoints/systemone`` and ``openai/serving_decisions.py``), llama.cpp
(``tools/server/server-decision.cpp``), TypeSafe's published API as ``jevcompat`` restates it, and the types of openai 3.57.

A field that a server would ignore is refused here: silence about ``instructions`` or ``cache_salt`` would change the answer, or share
a cache that was meant to be private.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warmgate.errors import OptionError, QuestionError
from warmgate.questions import Choice, Noul, Question

if TYPE_CHECKING:
    from warmgate.engines._base import AskRequest

ALL_FIELDS = frozenset({"instructions", "cache_salt", "priority", "chat_template_kwargs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One server's way of being asked.

    Attributes:
        name: As written in settings and ``--dialect``.
        path: The route.
        questions: Most questions in one request; None where the server does not say.
        options: Fewest and most options of a choice.
        levels: Fewest and most levels of a score.
        name_chars: Longest option or level name.
        model_required: A request without a model is refused by the server.
        question_text_required: Every question needs instructions.
        noul_text_required: A noul needs instructions or criteria.
        null_state: A state of null is taken.
        scalar_state: Numbers and booleans are taken as state.
        fields: Optional request fields it honours; the others would be ignored or refused.
    """

    name: str
    path: str = "/v1/systemone"
    questions: int | None = None
    options: tuple[int, int] = (1, 255)
    levels: tuple[int, int] = (2, 10)
    name_chars: int = 256
    model_required: bool = False
    question_text_required: bool = False
    noul_text_required: bool = False
    null_state: bool = True
    scalar_state: bool = True
    fields: frozenset[str] = ALL_FIELDS

    def check(self, request: AskRequest) -> None:
        """Refuse what the server would refuse, ignore or misread, before anything is sent.

        Raises:
            QuestionError: A question or the state passes a limit; question, field, limit and dialect are named.
        """
        if self.questions is not None and len(request.questions) > self.questions:
            raise self._refusal(
                f"{len(request.questions)} questions, at most {self.questions}",
                field="questions",
                limit=self.questions,
                mend="ask in several requests" if not request.check_order else "ask in several requests, or without check_order",
            )
        if self.model_required and not request.model:
            raise self._refusal("needs a model", field="model", mend="name the served model")
        for field in ("instructions", "cache_salt", "priority", "chat_template_kwargs"):
            if field not in self.fields and getattr(request, field):
                mend = "put them at the head of the state" if field == "instructions" else "leave it out"
                raise self._refusal("has no such field and would ignore it", field=field, mend=mend)
        self._check_state(request)
        for id_, question in request.questions.items():
            self._check_question(id_, question)

    def _check_state(self, request: AskRequest) -> None:
        state, prompt = request.state, request.prompt
        texts = {"state": state, "instructions": request.instructions, "cache_salt": request.cache_salt, "model": request.model}
        if prompt is not None:
            texts |= {"prompt": prompt.prefix, "prompt.before": prompt.before, "prompt.after": prompt.after}
        for field, text in texts.items():
            if isinstance(text, str) and not text.isascii():
                _check_unicode(text, field)
        if state is None and not self.null_state:
            raise self._refusal("must not be null", field="state", mend="give text or JSON")
        if not self.scalar_state and isinstance(state, bool | int | float):
            raise self._refusal("must be text, an object or an array", field="state")

    def _check_question(self, id_: str, question: Question) -> None:
        if self.question_text_required and not question.instructions.strip():
            raise self._refusal("needs a text", question=id_, field="instructions")
        if isinstance(question, Noul):
            if self.noul_text_required and not question.instructions.strip() and question.criteria is None:
                raise self._refusal("needs a text or criteria", question=id_, field="instructions")
            return
        what, (fewest, most) = ("options", self.options) if isinstance(question, Choice) else ("levels", self.levels)
        count = len(question.criteria)
        if not fewest <= count <= most:
            limit = most if count > most else fewest
            word = "at most" if count > most else "at least"
            mend = "ask in two steps: groups, then members" if count > most else None
            raise self._refusal(f"{count} {what}, {word} {limit}", question=id_, field="criteria", limit=limit, mend=mend)
        longest = max(map(len, question.criteria))
        if longest > self.name_chars:
            raise self._refusal(
                f"a name of {longest} characters, at most {self.name_chars}", question=id_, field="criteria", limit=self.name_chars
            )

    def _refusal(
        self, what: str, *, question: str | None = None, field: str, limit: int | None = None, mend: str | None = None
    ) -> QuestionError:
        return QuestionError(what, question=question, field=field, limit=limit, dialect=self.name, mend=mend)


def _check_unicode(text: str, field: str) -> None:
    """Half of a surrogate pair is no character: no server can be sent it. Models and JSON escapes produce them."""
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        raise QuestionError(
            f"has half of a surrogate pair, {text[fault.start]!r}, at character {fault.start}", field=field, mend="remove or replace it"
        ) from None


_SYSTEMONE = (
    # 0.32 ignores unknown top-level fields, 0.33 answers 400 to them; the fields sent here are known to both.
    Dialect(name="vllm", questions=64, options=(1, 26)),
    Dialect(name="vllm-0.33", questions=64, options=(1, 26)),
    Dialect(
        name="typesafe", options=(1, 255), levels=(2, 10), model_required=True, null_state=False, scalar_state=False, fields=frozenset()
    ),
    # Options beyond 26 get two-letter labels, as far as the tokenizer has them.
    Dialect(
        name="sglang",
        model_required=True,
        noul_text_required=True,
        null_state=False,
        scalar_state=False,
        fields=frozenset({"chat_template_kwargs"}),
    ),
    # The cap on options is the model's own (52 to 255): the server says.
    Dialect(name="llamacpp", question_text_required=True, null_state=False, fields=frozenset()),
)
_DECISIONS = (
    Dialect(
        name="openai",
        path="/v1/decisions",
        questions=400,
        options=(2, 255),
        model_required=True,
        null_state=False,
        fields=frozenset({"instructions"}),
    ),
    Dialect(
        name="vllm-0.33", path="/v1/decisions", questions=64, options=(2, 26), model_required=True, null_state=False, fields=frozenset()
    ),
    Dialect(
        name="sglang",
        path="/v1/decisions",
        options=(2, 26),
        question_text_required=True,
        null_state=False,
        fields=frozenset({"chat_template_kwargs"}),
    ),
)
PREFIX_READ = Dialect(name="vllm", path="/v1/completions", options=(1, 35))
"""Completions with ``logprob_token_ids``, which vLLM takes since 0.32. 35 labels: A–Z and 1–9."""
ROUND_TRIP: Mapping[str, Dialect] = {
    name: Dialect(name=name, path="/v1/chat/completions", questions=64, options=(1, 26), model_required=True) for name in ("openai", "vllm")
}
"""Ways of constraining a chat completion by name. 26 labels: A–Z."""

SYSTEMONE: Mapping[str, Dialect] = {dialect.name: dialect for dialect in _SYSTEMONE}
"""Dialects of ``POST /v1/systemone`` by name."""
DECISIONS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in _DECISIONS}
"""Dialects of ``POST /v1/decisions`` by name."""


def dialect(table: Mapping[str, Dialect], name: str) -> Dialect:
    """The dialect of that name.

    Raises:
        OptionError: There is none.
    """
    try:
        return table[name]
    except KeyError:
        raise OptionError(f"no dialect {name!r}", where="dialect", mend=f"one of {', '.join(table)}") from None
