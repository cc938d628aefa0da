"""Does the decision route answer, how is this model read, and does it want to answer? One decision of three questions."""

from __future__ import annotations

import gzip
import time
from typing import Any

import msgspec

from warmgate.doctor.check import Check, failed, passed, skipped, warned
from warmgate.doctor.findings import Decision
from warmgate.doctor.identity import FIRST, TRIED, release_of
from warmgate.doctor.styles import CLEF, D1, DGEMMA, NEXT_TOKEN, QWEN3, QWEN35, ReadStyle, by_name
from warmgate.doctor.visit import Visit, object_of, request_id
from warmgate.engines import AskRequest, SystemOne
from warmgate.errors import (
    BadRequest,
    DeadlineExceeded,
    EngineError,
    MalformedAnswer,
    NotSupported,
    Overloaded,
    RouteAbsent,
    Unauthorized,
)
from warmgate.questions import Choice, Noul, Question, Score

PATH = "/v1/systemone"
LOW_MASS = 0.5
"""Label mass under which the model would rather have said something else."""

STATE = "The door of the server room is open. The lamp above the door is red."
QUESTIONS: dict[str, Question] = {
    "noul": Noul(instructions="Is the door open?"),
    "choice": Choice(instructions="Which colour is the lamp?", criteria={"red": None, "green": None, "blue": None}),
    "score": Score(instructions="How urgent is it to close the door?", criteria=("not at all", "somewhat", "very")),
}
_INSTRUCTIONS = "Answer from the text alone."
_RUNES = Choice(instructions="Pick one.", criteria={"ᚠ": None, "ᛟ": None})
"""One-letter names that no tokenizer in use has as one token: d1 takes them as labels and refuses, others give them letters."""


async def route(visit: Visit) -> Check:
    """``POST /v1/systemone`` with a choice, a noul and a score."""
    name, where = "route", visit.where("POST", PATH)
    begun = time.monotonic()
    try:
        try:
            visit.decision = await ask(visit, STATE, QUESTIONS, instructions=_INSTRUCTIONS if visit.facts.server == "vllm" else None)
        except BadRequest as error:
            if "takes no instructions" not in (error.server_words or ""):
                raise
            visit.style = CLEF
            begun = time.monotonic()
            visit.decision = await ask(visit, STATE, QUESTIONS)
    except Unauthorized as error:
        return skipped(name, f"{error.status}: closed without the right API key; see api_key", where=where)
    except EngineError as error:
        return await _no_answer(visit, error)
    visit.facts.decision_s = time.monotonic() - begun
    usage = visit.decision.answers.usage
    if object_of(visit.decision.reply).get("object") == "structured_decision":
        visit.facts.server = "vllm"  # whatever stands in front of it
    also = "; /v1/decisions answers too" if await _has_decisions(visit) else ""
    counted = "" if usage.input_tokens is None else f", {usage.input_tokens} tokens in"
    return passed(name, f"answers {len(QUESTIONS)} questions in {visit.facts.decision_s * 1000:.0f} ms{counted}{also}", where=where)


async def ask(visit: Visit, state: str, questions: dict[str, Question], *, instructions: str | None = None) -> Decision:
    """One decision, never sent twice.

    Raises:
        EngineError: No answer.
    """
    dialect = {"sglang": "sglang", "llamacpp": "llamacpp"}.get(visit.facts.server or "", "vllm")
    engine = SystemOne(visit.line, model=visit.facts.model, dialect=dialect)
    id_ = request_id()
    request = AskRequest(questions=questions, state=state, instructions=instructions, request_id=id_)
    answers = await engine.ask(request, deadline=visit.deadline)
    return Decision(id_, answers, visit.line.replies[id_])


async def _has_decisions(visit: Visit) -> bool:
    """Whether OpenAI's shape of the route is there too (vLLM 0.33): an empty body costs nothing.

    A gateway refuses an empty body by itself, whatever its workers can do.
    """
    if visit.facts.gateway:
        return False
    try:
        reply = await visit.call("POST", "/v1/decisions", {})
    except EngineError:
        return False
    return reply.status in (400, 422)


async def _no_answer(visit: Visit, error: EngineError) -> Check:
    name, where = "route", visit.where("POST", PATH)
    if isinstance(error, RouteAbsent):
        release = release_of(visit.facts.version or "")
        if release is not None and release < FIRST:
            seen = f"{error.status}: no such route; vLLM {visit.facts.version} is older than it"
            mend = "upgrade to vLLM 0.32 or newer; until then the round_trip engine can ask this server (prefix_read needs 0.32 too)"
        elif visit.facts.gateway:
            seen, mend = (
                f"{error.status}: the gateway does not pass it on",
                "give the worker's own address, or a gateway that knows /v1/systemone",
            )
        else:
            seen, mend = f"{error.status}: no such route", "vLLM has it since 0.32; other servers: use the round_trip engine"
        if await _has_decisions(visit):
            seen += "; /v1/decisions answers"
            mend = f"use the decisions engine; {mend}"
        return failed(name, seen, mend=mend, where=where)
    if isinstance(error, NotSupported):
        hint = by_name(visit.facts.model)
        known = " (its name suggests a family that is served: then the logprobs mode or the labels)" if hint else ""
        return failed(name, f"501: this server cannot read {visit.facts.model}{known}", mend=error.mend, where=where)
    said = f' (the server said: "{error.server_words}")' if error.server_words else ""
    if isinstance(error, Overloaded):
        return warned(name, f"{error.status}: no room now{said}", mend="try when it is less busy, or add workers", where=where)
    if isinstance(error, DeadlineExceeded):
        return failed(
            name,
            f"no answer within {visit.deadline.seconds:.0f} s",
            mend="allow more with --timeout; is the worker overloaded?",
            where=where,
        )
    if isinstance(error, MalformedAnswer):
        return failed(
            name,
            f"answers, but not what was asked: {error.what}",
            mend="not a systemone dialect known here; check the URL",
            where=where,
        )
    return failed(name, error.what, mend=error.mend or "see the server's log", where=where)


async def strategy(visit: Visit) -> Check:
    """How the model is read, told from how it behaves; its name is a hint where behaviour does not tell."""
    name, where = "strategy", visit.where("POST", PATH)
    if visit.decision is None:
        return skipped(name, "needs an answer of the route", where=where)
    if visit.facts.server != "vllm":
        return skipped(name, "read styles are vLLM's; another server answers here", where=where)
    style = visit.style = visit.style or await _style(visit, visit.decision)
    visit.facts.style = style.name
    seen = f"{style.name}: {style.means}"
    if style.caution:
        return warned(
            name,
            f"{seen}; {style.caution}",
            mend="put instructions into the state, keep it short, do not pay for alignment or affinity",
            where=where,
        )
    return passed(name, seen, where=where)


async def _style(visit: Visit, decision: Decision) -> ReadStyle:
    produced = decision.answers.usage.output_tokens
    if produced == 0:
        return CLEF
    if produced == 2 * len(QUESTIONS):
        return DGEMMA
    try:
        await ask(visit, STATE, {"rune": _RUNES})
    except BadRequest as error:
        if "distinct token for this model" in (error.server_words or ""):
            return D1
    except EngineError:
        pass  # what the other signs say is said without this one
    if visit.facts.recurrent:
        return QWEN35
    hint = by_name(visit.facts.model)
    release = release_of(visit.facts.version or "")
    if visit.facts.recurrent is False and release is not None and release <= TRIED:
        return QWEN3  # the one style left
    return hint if hint in (QWEN3, QWEN35) and visit.facts.recurrent is None else NEXT_TOKEN


async def label_mass(visit: Visit) -> Check:
    """How much of its probability the model put on the labels: little means that it wanted to say something else."""
    name, where = "label_mass", visit.where("POST", PATH)
    if visit.decision is None:
        return skipped(name, "needs an answer of the route", where=where)
    answers = visit.decision.answers.answers
    masses = {id_: answer.label_mass for id_, answer in answers.items() if answer.label_mass is not None}
    visit.facts.label_mass = {id_: round(mass, 4) for id_, mass in masses.items()} or None
    if not masses:
        return skipped(name, "this server does not tell", where=where)
    seen = ", ".join(f"{id_} {mass:.3g}" for id_, mass in masses.items())
    if visit.style is CLEF:
        return passed(name, f"{seen}; always 1 with this style, so it says nothing", where=where)
    astray = [id_ for id_, answer in answers.items() if answer.argmax_is_label is False]
    if min(masses.values()) < LOW_MASS:
        first = f"; for {', '.join(astray)} the likeliest token is no label" if astray else ""
        return warned(
            name,
            f"{seen}: low, the model would rather say something else{first}",
            mend="use a model tuned for chat or decisions, end the state with the markup of a new user turn, phrase questions positively;"
            " abstain below a threshold",
            where=where,
        )
    return passed(name, seen, where=where)


async def request_ids(visit: Visit) -> Check:
    """Whether X-Request-Id reaches the worker and comes back, so that a decision can be found in its log and traces."""
    name, where = "request_id", visit.where("POST", PATH)
    if visit.decision is None:
        return skipped(name, "needs an answer of the route", where=where)
    sent, reply = visit.decision.request_id, visit.decision.reply
    named = object_of(reply).get("id")
    in_body = isinstance(named, str) and sent in named
    if reply.headers.get("x-request-id") == sent:
        visit.facts.request_id = "header"
        return passed(name, "X-Request-Id comes back as a header" + (" and in the decision's id" if in_body else ""), where=where)
    if in_body:
        visit.facts.request_id = "body"
        return passed(
            name,
            "X-Request-Id becomes the decision's id, but comes back as no header",
            mend="for headers on every reply, errors too: --enable-request-id-headers",
            where=where,
        )
    visit.facts.request_id = "lost"
    mend = (
        "the gateway drops it: let it pass X-Request-Id on"
        if visit.facts.gateway
        else "a decision cannot be found in this server's log by its id"
    )
    return warned(name, "X-Request-Id is lost", mend=mend, where=where)


async def compression(visit: Visit) -> Check:
    """What becomes of a compressed request body."""
    name, where = "compression", visit.where("POST", PATH)
    body: dict[str, Any] = {
        "model": visit.facts.model,
        "state": STATE,
        "questions": {"q": {"type": "noul", "instructions": "Is the door open?"}},
    }
    line = visit.new_line(api_key=visit.options.api_key, headers={"Content-Encoding": "gzip"})
    reply = await visit.call("POST", PATH, gzip.compress(msgspec.json.encode(body)), line=line, patience=60.0)
    if reply.status == 200:
        return passed(name, "compressed bodies are unpacked", where=where)
    if reply.status in (404, 405, 501) and visit.decision is None:
        return skipped(name, f"{reply.status}: the route does not answer", where=where)
    if 400 <= reply.status < 500:
        return passed(
            name,
            f"compressed bodies are refused ({reply.status}); warmgate never compresses",
            mend="switch compression off in other clients",
            where=where,
        )
    return warned(name, f"a compressed body makes it answer {reply.status}", mend="switch compression off in every client", where=where)
