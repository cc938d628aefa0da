"""Every fault that ``jevcompat mock`` can inject, over real sockets: a typed error or a correct answer, never a wrong one, in time.

jevcompat is a conformance suite for the TypeSafe dialect by other people; its mock breaks one requirement a fault.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.integration.engines.leaks import nothing_left
from warmgate.answers import Answers
from warmgate.engines import AskRequest, Deadline, SystemOne
from warmgate.errors import BadRequest, EngineError, MalformedAnswer, RouteAbsent, Unauthorized, UnknownModel
from warmgate.questions import Choice, Noul, Question, Score

jevcompat = pytest.importorskip("jevcompat.mock", reason="jevcompat is not installed")

QUESTIONS: dict[str, Question] = {
    "route Größe": Choice(instructions="Which tools?", criteria={"Dateien für Größe": "files", "Web": None, "none": "nothing"}),
    "shell": Noul(instructions="Is a shell needed?", criteria={"true": "yes it is"}),  # type: ignore[arg-type]
    "bare": Noul(),
    "risk": Score(instructions="How risky?", criteria=("none", "little", "some", "much", "high", "extreme")),
}
STATE = {"messages": [{"role": "user", "content": "list files"}]}
DEADLINE_S = 2.0


class Mock(NamedTuple):
    url: str


@contextmanager
def running(config: Any = None) -> Iterator[Mock]:
    """The mock on a free port; jevcompat's own context manager takes half a second to stop."""
    server = jevcompat.make_server(config or jevcompat.MockConfig())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="process_request_server", daemon=True)
    thread.start()
    yield Mock("http://%s:%d" % server.server_address[:2])  # noqa: UP031
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def clean() -> Iterator[Any]:
    with running() as mock:
        yield mock


async def ask(url: str, **changes: Any) -> Answers:
    options = {name: changes.pop(name) for name in ("api_key",) if name in changes}
    async with SystemOne(url, model="jev-latest", dialect="typesafe", **options) as engine:
        return await engine.ask(AskRequest(**{"questions": QUESTIONS, "state": STATE, **changes}), deadline=Deadline(DEADLINE_S))


async def timed(url: str, **changes: Any) -> tuple[Answers | EngineError, float]:
    """The outcome and the best wall time of three: the machine may stall, the client may not."""
    outcome: Answers | EngineError | None = None
    best = math.inf
    for _ in range(8):
        start = time.monotonic()
        try:
            outcome = await ask(url, **changes)
        except EngineError as error:
            outcome = error
        best = min(best, time.monotonic() - start)
        if best < DEADLINE_S:
            break
    assert outcome is not None
    return outcome, best


EXPECTED: dict[str, type[EngineError]] = {
    "wrong-route": RouteAbsent,
    "xssi-200": MalformedAnswer,
    "reject-jev-latest": UnknownModel,
    "first-question-only": MalformedAnswer,
    "strict-ids": BadRequest,
    "nfd-keys": MalformedAnswer,
    "noul-two-sided": BadRequest,
    "no-null-description": BadRequest,
    "cap-5-levels": BadRequest,
    "nan": MalformedAnswer,
    "noul-range": MalformedAnswer,
    "choice-key-case": MalformedAnswer,
    "choice-sum": MalformedAnswer,
    "choice-second": MalformedAnswer,
    "score-keys-1-based": MalformedAnswer,
    "score-sum": MalformedAnswer,
    "score-argmax": MalformedAnswer,
}
"""Faults that must end in an error here. All the others leave the answers right, and they must then be right."""

CHANGES_THE_MODEL = {"id-leaks", "batch-leaks", "order-leaks"}
"""Faults of the model behind the wire: its answers are other answers, and no client can see it."""


@pytest.mark.parametrize("fault", sorted(jevcompat.FAULTS))
async def test_no_fault_gives_a_wrong_answer(fault: str, clean: Any):
    """A gate acts on what it gets: a wrong answer mounts the wrong tools, an error falls back."""
    truth = await ask(clean.url)
    async with nothing_left():
        with running(jevcompat.MockConfig(faults=frozenset({fault}))) as mock:
            outcome, seconds = await timed(mock.url)
    assert seconds <= DEADLINE_S + 0.05
    if fault in EXPECTED:
        assert isinstance(outcome, EXPECTED[fault]), outcome
        return
    assert isinstance(outcome, Answers), outcome
    assert list(outcome.answers) == list(QUESTIONS)
    for id_, answer in outcome.answers.items():
        right = truth.answers[id_]
        assert answer.probabilities is not None
        assert tuple(answer.probabilities) == QUESTIONS[id_].labels
        if fault not in CHANGES_THE_MODEL:
            assert answer.value == pytest.approx(right.value) if isinstance(right.value, float) else answer.value == right.value
            assert answer.probabilities == pytest.approx(right.probabilities)
            assert answer.confidence == pytest.approx(right.confidence)


@pytest.mark.parametrize("fault", ["text-errors", "error-flat", "validation-400", "500-on-unknown-type", "models-404"])
async def test_every_way_of_refusing_a_model_is_typed_and_keeps_the_words(fault: str):
    with running(jevcompat.MockConfig(faults=frozenset({fault}))) as mock:
        async with SystemOne(mock.url, model="other", dialect="typesafe") as engine:
            with pytest.raises(BadRequest, match="Unknown model: other"):
                await engine.ask(AskRequest(questions=QUESTIONS, state=STATE), deadline=Deadline(DEADLINE_S))


@pytest.mark.parametrize(
    ("fault", "key", "fits"),
    [
        (None, None, False),
        (None, "wrong", False),
        (None, "right", True),
        ("auth-plain", None, False),
        ("auth-invalid-403-text", "wrong", False),
        ("auth-x-api-key", "right", False),
        ("text-errors", "wrong", False),
    ],
)
async def test_keys_are_right_or_the_error_says_so(fault: str | None, key: str | None, fits: bool):
    config = jevcompat.MockConfig(key="right", faults=frozenset({fault} if fault else ()))
    with running(config) as mock:
        if fits:
            assert (await ask(mock.url, api_key=key)).answers
        else:
            with pytest.raises(Unauthorized) as caught:
                await ask(mock.url, api_key=key)
            assert caught.value.status in (401, 403)
            assert "right" not in str(caught.value)


async def test_a_server_that_wants_no_key_is_told_none():
    config = jevcompat.MockConfig(faults=frozenset({"auth-rejects-header"}))
    with running(config) as mock:
        assert (await ask(mock.url)).answers
        with pytest.raises(Unauthorized):
            await ask(mock.url, api_key="k")


async def test_a_busy_server_is_asked_again():
    with running(jevcompat.MockConfig(busy_every=2)) as mock:
        for _ in range(4):
            assert (await ask(mock.url)).answers


async def test_a_hundred_calls_at_once_leave_nothing_behind(clean: Any):
    async with nothing_left(), SystemOne(clean.url, model="jev-latest", dialect="typesafe") as engine:
        request = AskRequest(questions=QUESTIONS, state=STATE)
        found = await asyncio.gather(*(engine.ask(request, deadline=Deadline(20)) for _ in range(100)))
        assert len({str(answers.answers["shell"].value) for answers in found}) == 1


def test_the_sync_face_over_a_socket_leaves_no_thread_but_the_portals(clean: Any):
    before = set(threading.enumerate())
    engine = SystemOne(clean.url, model="jev-latest", dialect="typesafe")
    answers = engine.ask_sync(AskRequest(questions=QUESTIONS, state=STATE), deadline=Deadline(DEADLINE_S))
    assert list(answers.answers) == list(QUESTIONS)
    from warmgate.engines import get_portal

    get_portal().run(engine.aclose())
    get_portal().close()
    left = {thread.name for thread in set(threading.enumerate()) - before if "process_request" not in thread.name}
    assert left <= {"AnyIO worker thread"}
