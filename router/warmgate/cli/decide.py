"""``warmgate decide``: ask a worker questions about a state, print the answers as JSON."""

from __future__ import annotations

import asyncio
import json as json_text
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from warmgate.cli.app import say
from warmgate.cli.keys import api_key
from warmgate.errors import InputError, OptionError, Unreachable
from warmgate.output import check_writable, write_bytes
from warmgate.reading import read_bytes

if TYPE_CHECKING:
    from warmgate.engines import AskRequest, ChainResult
    from warmgate.engines._base import BaseEngine

MAX_QUESTIONS_BYTES = 1 << 20
"""Longest questions file. 64 questions of 26 options, each with 500 characters of description, are shorter."""

MAX_TEXT_BYTES = 32 << 20
"""Longest state, instructions or prompt: some ten million tokens."""

ENGINES = ("systemone", "decisions", "prefix_read", "round_trip")
DIALECTS = ("vllm", "vllm-0.33", "typesafe", "sglang", "llamacpp", "openai")


@click.command("decide")
@click.option("--worker", required=True, metavar="URL", help="The server to ask, http://host:port.")
@click.option("--model", metavar="M", help="Model or LoRA name as it is served there.")
@click.option("--state", required=True, metavar="FILE|-", help="What the questions are about.")
@click.option(
    "--state-as",
    type=click.Choice(["auto", "text", "json"]),
    default="auto",
    show_default=True,
    help="How to read it; auto: JSON if the whole of it is a JSON object or array.",
)
@click.option("--questions", required=True, metavar="FILE", help="JSON: id → {type, instructions, criteria}.")
@click.option("--instructions", metavar="FILE", help="Text placed ahead of the state.")
@click.option("--prompt", metavar="FILE", help="The agent's own rendered prompt, for prefix_read to extend instead of the state.")
@click.option(
    "--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="How to ask; several are tried in this order. [systemone]"
)
@click.option(
    "--dialect", type=click.Choice(DIALECTS), help="What the server speaks. Without it: vllm, and openai for decisions and round_trip."
)
@click.option(
    "--deadline-ms", type=click.IntRange(1, 86_400_000), default=10_000, show_default=True, metavar="MS", help="For everything together."
)
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key.")
@click.option("--cache-salt", metavar="SALT", help="Namespace of the prefix cache; the agent's own, to share its prefix.")
@click.option("--chat-template-kwargs", metavar="JSON", help="Arguments for the server's chat template.")
@click.option("--check-order", is_flag=True, help="Ask every choice in two orders and say whether they agree.")
@click.option("--request-id", metavar="ID", help="Sent as X-Request-Id.")
@click.option("--json", default="-", show_default=True, metavar="PATH|-", help="Where the decision is written.")
def command(worker: str, model: str | None, engines: tuple[str, ...], deadline_ms: int, json: str, **given: Any) -> int:
    """Ask a worker questions about a state. Exit code 0: every question has an answer; 3: one has none, the reasons are on stderr.

    The output is JSON either way: per question the value, the probabilities, confidence, label mass, and which engine answered.
    """
    from warmgate.engines._base import AskRequest
    from warmgate.questions import parse_questions

    _one_stdin(given)
    questions = parse_questions(read_bytes(given["questions"], MAX_QUESTIONS_BYTES, where=f"--questions {given['questions']}"))
    request = AskRequest(
        questions=questions,
        state=_state(given["state"], given["state_as"]),
        instructions=_text(given["instructions"], "instructions"),
        prompt=_prompt(given["prompt"]),
        model=model,
        cache_salt=given["cache_salt"],
        chat_template_kwargs=_kwargs(given["chat_template_kwargs"]),
        check_order=given["check_order"],
        request_id=given["request_id"],
    )
    asked = [_engine(name, worker, given["dialect"], api_key(given["api_key_env"])) for name in engines or ("systemone",)]
    _check_limits(asked, request)
    check_writable(json)
    result, tls = asyncio.run(_ask(asked, request, deadline_ms / 1000))
    write_bytes(json, decision_json(result))
    if result.unanswered:
        if tls:
            why, mends = f"{asked[0].worker}: {tls[0]}", {tls[1]: None}
        else:
            why, mends = result.reason, dict.fromkeys(step.mend for step in result.steps if step.mend)
        say("; ".join([f"no answer to {', '.join(result.unanswered)}: {why}", *mends]))
        return 3
    return 0


async def _ask(engines: list[BaseEngine], request: AskRequest, seconds: float) -> tuple[ChainResult, tuple[str, str] | None]:
    """What the engines say; and where they were hung up on, what to say if that is for want of TLS."""
    from warmgate.engines import Chain, Deadline
    from warmgate.engines.faults import has_tls, speaks_tls

    deadline = Deadline(seconds)
    async with Chain(engines) as chain:
        result = await chain.ask(request, deadline=deadline)
    hung_up = not result.answers and all(step.code == Unreachable.code for step in result.steps)
    if hung_up and not deadline.passed and await speaks_tls(engines[0].worker, deadline):
        return result, has_tls(engines[0].worker)
    return result, None


def _engine(name: str, worker: str, dialect: str | None, api_key: str | None) -> BaseEngine:
    """An engine, in the dialect asked for where it has that one."""
    from warmgate.engines import dialects

    table = {"systemone": dialects.SYSTEMONE, "decisions": dialects.DECISIONS, "round_trip": dialects.ROUND_TRIP}.get(name)
    options: dict[str, Any] = {"api_key": api_key}
    if table is not None and dialect is not None:
        if dialect not in table:
            raise OptionError(f"the engine {name} has no dialect {dialect}", where="--dialect", mend=f"one of {', '.join(table)}")
        options["dialect"] = dialect
    if name == "systemone":
        from warmgate.engines.systemone import SystemOne

        return SystemOne(worker, **options)
    if name == "decisions":
        from warmgate.engines.decisions import Decisions

        return Decisions(worker, **options)
    if name == "prefix_read":
        from warmgate.engines.prefix_read import PrefixRead

        return PrefixRead(worker, **options)
    from warmgate.engines.round_trip import RoundTrip

    return RoundTrip(worker, **options)


def _check_limits(engines: list[BaseEngine], request: AskRequest) -> None:
    """A state or a question that no engine's dialect can carry is bad input, not a missing answer."""
    from warmgate.engines.wire import json_state

    if request.prompt is not None and all(engine.name != "prefix_read" for engine in engines):
        raise OptionError("is extended by prefix_read alone", where="--prompt", mend="add --engine prefix_read")
    json_state(request.state)
    faults: list[InputError] = []
    for engine in engines:
        try:
            engine.check(request)
        except InputError as fault:
            faults.append(fault)
    if len(faults) == len(engines):
        raise faults[0]


def _one_stdin(given: Mapping[str, Any]) -> None:
    """Standard input can be read once."""
    piped = [f"--{what}" for what in ("state", "questions", "instructions", "prompt") if given[what] == "-"]
    if len(piped) > 1:
        raise OptionError("only one can come on standard input", where=" and ".join(piped), mend="name a file for the others")


def _decode(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig")  # some editors put a mark in front
    except UnicodeDecodeError as fault:
        raise InputError(f"is not UTF-8 (byte {fault.start})", where=where) from None


def _text(path: str | None, what: str) -> str | None:
    if path is None:
        return None
    where = f"--{what} {path}"
    return _decode(read_bytes(path, MAX_TEXT_BYTES, where=where), where)


def _prompt(path: str | None) -> Any:
    from warmgate.engines._base import AgentPrompt

    text = _text(path, "prompt")
    return None if text is None else AgentPrompt(text)


def _state(path: str, kind: str) -> Any:
    where = f"--state {path}"
    text = _decode(read_bytes(path, MAX_TEXT_BYTES, where=where), where)
    if kind == "text" or (kind == "auto" and not text.lstrip().startswith(("{", "["))):
        return text
    try:
        return _json(text)
    except (ValueError, RecursionError) as fault:
        if kind == "auto":
            return text
        raise InputError(f"is not JSON ({_plainly(fault)})", where=where, mend="pass --state-as text") from None


def _json(text: str) -> Any:
    """JSON from which nothing is lost on the way: no NaN, no key twice."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in pairs:
            if name in found:
                raise ValueError(f"the key {name!r} stands twice in one object")
            found[name] = value
        return found

    return json_text.loads(text, parse_constant=_no_number, object_pairs_hook=unique)


def _plainly(fault: Exception) -> str:
    """Why it is not JSON, in no words of Python's."""
    if isinstance(fault, RecursionError):
        return "nested too deeply"
    return "a number with thousands of digits" if "int_max_str_digits" in str(fault) else str(fault)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _kwargs(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value: object = _json(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise OptionError("is not a JSON object", where="--chat-template-kwargs")
    return cast("dict[str, Any]", value)


def decision_json(result: ChainResult) -> bytes:
    """The decision as indented JSON, ``"schema": "warmgate.decide/1"``."""
    import msgspec

    body = msgspec.to_builtins(result)
    for id_, answer in result.answers.items():
        body["answers"][id_]["uncalibrated"] = answer.uncalibrated
    return msgspec.json.format(msgspec.json.encode({"schema": "warmgate.decide/1", **body}), indent=2) + b"\n"
