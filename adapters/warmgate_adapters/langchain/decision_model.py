"""vLLM's decision endpoint as a decision model of LangChain's, so that its own middlewares decide on your workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self, cast

from langchain_core.decisions import BaseDecisionModel, ClassifierResponse
from langchain_core.decisions import Question as LcQuestion
from langchain_core.decisions.types import State
from langchain_core.messages import UsageMetadata
from langchain_core.runnables.config import ensure_config
from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, model_validator

from warmgate.answers import Answer, Usage
from warmgate.engines import AskRequest, Deadline, SystemOne
from warmgate.engines.portal import get_portal
from warmgate.errors import EngineError, OptionError
from warmgate.foreign import mapping
from warmgate.gate import Gate
from warmgate.questions import Question
from warmgate.turn import Turn
from warmgate_adapters.langchain.prompts import openings
from warmgate_adapters.langchain.questions import ours, theirs
from warmgate_adapters.langchain.states import Conversation, conversation, plain
from warmgate_adapters.langgraph.messages import openai_messages
from warmgate_adapters.langgraph.session import Naming, session_of


class SystemOneDecisionModel(BaseDecisionModel):
    """Answers LangChain's questions by ``POST /v1/systemone``, each as one read of label probabilities.

    With ``base_url`` it asks one server. With ``gate`` it asks the session's worker (the thread's, from the run's config) by the gate's
    engines; and where the agent's own model answers, a state that is the agent's conversation from its beginning is asked about *aligned*:
    the decision's prompt begins with the agent's own, token for token, and its prefill is the agent's. Any other state goes as JSON.

    What LangChain's types cannot say is an error, never a number: no answer, a label without probabilities, a model that did not want to
    answer. Its middlewares let errors end the run, so nothing runs that was not decided.

    Attributes:
        model: Name under which the server serves the model; the gate's, where a gate is given.
        base_url: The server, with or without ``/v1`` at the end.
        api_key: Its key.
        dialect: ``vllm`` (0.32), ``vllm-0.33``, ``typesafe``, ``sglang`` or ``llamacpp``.
        deadline_ms: Milliseconds one request may take, retries included; the gate's, where a gate is given.
        label_mass_floor: Label mass below which an answer is none.
        cache_salt: Cache namespace of the decisions.
        gate: The gate.
        agent: As GateMiddleware's.
        align: Whether conversations are aligned.

    Raises:
        OptionError: Neither a server nor a gate is named, or both.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: str
    base_url: str | None = None
    api_key: SecretStr | None = None
    dialect: str = "vllm"
    deadline_ms: float = Field(default=2000, gt=0, le=600_000)
    label_mass_floor: float = Field(default=0.1, ge=0, le=1)
    cache_salt: str | None = None
    gate: Gate | None = Field(default=None, exclude=True, repr=False)
    agent: Naming = Field(default=None, exclude=True, repr=False)
    align: bool = True

    _engine: SystemOne | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        given = dict(mapping(values))
        gate = given.get("gate")
        if isinstance(gate, Gate):
            settings = gate.settings
            given.setdefault("model", settings.gate_model if settings.gate_workers else settings.model)
            given.setdefault("deadline_ms", settings.deadline_ms)
            given.setdefault("label_mass_floor", settings.label_mass_floor)
        return given

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if (self.base_url is None) == (self.gate is None):
            raise OptionError("name a server or a gate, and not both", where="SystemOneDecisionModel", mend="base_url=… or gate=…")
        if self.base_url is not None:
            key = None if self.api_key is None else self.api_key.get_secret_value()
            url = self.base_url.rstrip("/").removesuffix("/v1")
            self._engine = SystemOne(url, model=self.model, dialect=self.dialect, api_key=key)
        return self

    @property
    def _provider(self) -> str:
        return "vllm"

    def _classify(self, state: State, questions: dict[str, LcQuestion]) -> ClassifierResponse:
        return get_portal().run(self._answered(state, questions, self._session()))

    async def _aclassify(self, state: State, questions: dict[str, LcQuestion]) -> ClassifierResponse:
        return await self._answered(state, questions, self._session())

    async def aclose(self) -> None:
        """Close the connections that this event loop opened to ``base_url``. Those of a gate are the gate's."""
        if self._engine is not None:
            await self._engine.aclose()

    def close(self) -> None:
        """Close the connections that synchronous calls opened to ``base_url``."""
        get_portal().run(self.aclose())

    def _session(self) -> str:
        """Read here, where the run's config is at hand: a portal's thread has none."""
        return session_of(ensure_config(), None, self.agent)

    async def _answered(self, state: State, questions: Mapping[str, LcQuestion], session: str) -> ClassifierResponse:
        asked = ours(questions)
        if self.gate is not None:
            answers, usage, why = await self._by_gate(self.gate, state, asked, session)
        else:
            assert self._engine is not None
            request = AskRequest(questions=asked, state=plain(state), cache_salt=self.cache_salt)
            given = await self._engine.ask(request, deadline=Deadline(self.deadline_ms / 1000))
            answers, usage, why = given.answers, given.usage, "; ".join(given.refused.values())
        missing = [name for name in asked if name not in answers]
        if missing:
            raise EngineError(f"no answer to {', '.join(missing)}{f': {why}' if why else ''}", where=self.base_url)
        read = {name: theirs(name, question, answers[name], floor=self.label_mass_floor) for name, question in questions.items()}
        source = next(iter(answers.values())).source
        return ClassifierResponse(model=source.model or self.model, answers=read, usage=_usage(usage), request_id=source.request_id)

    # -- by a gate ---------------------------------------------------------------------------------------------------------------------

    async def _by_gate(
        self, gate: Gate, state: State, asked: Mapping[str, Question], session: str
    ) -> tuple[Mapping[str, Answer], Usage, str]:
        known = openings(gate).of(session)
        told = conversation(state) if self.align and not gate.settings.gate_workers else None
        aligned = told is not None and (known is None or known.first == told.messages[0].id)
        written = plain(state)  # refuses media, wherever they stand
        turn = Turn(
            session,
            _turns(told, known.system if known is not None else None) if told is not None and aligned else [],
            known.tools if known is not None else (),
            template_kwargs=known.template_kwargs if known is not None else {},
            cache_salt=self.cache_salt or (known.cache_salt if known is not None else None),
            model=known.model if known is not None else None,
        )
        found = await gate.ask(turn, asked, state=None if turn.messages else written, deadline_ms=self.deadline_ms)
        why = "; ".join(dict.fromkeys([*found.unanswered.values(), *(read.reason for read in found.reads if read.reason)]))
        return found.answers, found.usage, why


def _turns(told: Conversation, system: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The agent's messages, and what the state holds beside them in one more."""
    messages: list[Mapping[str, Any]] = [system] if system is not None else []
    messages += openai_messages(told.messages)
    if told.rest:
        messages.append({"role": "user", "content": json.dumps(plain(told.rest), ensure_ascii=False)})
    return messages


def _usage(usage: Usage) -> UsageMetadata | None:
    if usage.input_tokens is None:
        return None
    counted: dict[str, Any] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens or 0,
        "total_tokens": usage.input_tokens + (usage.output_tokens or 0),
    }
    if usage.cached_tokens is not None:
        counted["input_token_details"] = {"cache_read": usage.cached_tokens}
    return cast("UsageMetadata", counted)
