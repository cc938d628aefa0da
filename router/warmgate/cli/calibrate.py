"""``warmgate calibrate``: thresholds with error bars from labelled questions, and whether they still hold."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import msgspec

from warmgate.cli.app import say
from warmgate.cli.keys import api_key
from warmgate.errors import OptionError
from warmgate.output import write_bytes
from warmgate.reading import read_bytes

if TYPE_CHECKING:
    from warmgate.questions import Question
    from warmgate_policies.calibration import Entry, Label

MAX_LABELS_BYTES = 256 << 20
MAX_POLICY_BYTES = 64 << 20
AT_ONCE = 8
"""Requests in flight to the worker."""


@click.command("calibrate")
@click.argument("labels", required=False, metavar="[LABELS]")
@click.option("--check", metavar="POLICY", help="Ask the pinned states of a policy file again; exit code 1 where the answers moved.")
@click.option("--worker", metavar="URL", help="Server to ask: for labels without probabilities, and for --check.")
@click.option("--model", metavar="M", help="Model of labels that name none.")
@click.option("--dialect", metavar="D", help="Dialect of labels that name none. [vllm]")
@click.option("--max-error", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True, metavar="RATE")
@click.option("--confidence", type=click.FloatRange(0.5, 1, max_open=True), default=0.95, show_default=True, metavar="P")
@click.option(
    "--fit", type=click.Choice(["temperature", "isotonic", "none"]), help="How probabilities are mended. [by question and labels]"
)
@click.option(
    "--tolerance", type=click.FloatRange(0, 1), default=0.02, show_default=True, metavar="P", help="Mean change that is no drift."
)
@click.option("--deadline-ms", type=click.IntRange(min=1), default=30_000, show_default=True, metavar="MS", help="For each question.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key.")
@click.option("--plot", metavar="FILE.svg", help="Draw reliability and risk–coverage of each question.")
@click.option(
    "--json", default="-", show_default=True, metavar="PATH|-", help="Where the policy file, or the check's findings, are written."
)
def command(labels: str | None, check: str | None, json: str, **given: Any) -> int:
    """Thresholds with error bars from labelled questions, as a policy file. Exit code 1: --check found drift."""
    if (labels is None) == (check is None):
        raise OptionError("give a file of labels, or --check with a policy file", where="calibrate", mend="see `warmgate calibrate --help`")
    if check is not None:
        return _check(check, json, given)
    assert labels is not None
    if given["plot"] and not given["plot"].lower().endswith(".svg"):
        raise OptionError("the plot is an SVG picture", where=f"--plot {given['plot']}", mend="name a file that ends in .svg")
    from warmgate_policies.calibration import calibrate, parse_labels

    data = read_bytes(labels, MAX_LABELS_BYTES, where=labels)
    found = parse_labels(data, where=labels, model=given["model"], dialect=given["dialect"])
    if any(label.probabilities is None for label in found):
        found = asyncio.run(_asked(found, given))
    try:
        policy = calibrate(found, max_error=given["max_error"], confidence=given["confidence"], fit=given["fit"])
    except ModuleNotFoundError as fault:
        raise OptionError(f"calibrating needs {fault.name}", where="calibrate", mend="pip install 'warmgate[calibrate]'") from None
    write_bytes(json, msgspec.json.format(msgspec.json.encode(policy), indent=1) + b"\n")
    if given["plot"]:
        from warmgate_policies.calibration.plot import svg

        write_bytes(given["plot"], svg(policy.entries).encode())
    for entry in policy.entries:
        say(_told(entry))
    return 0


def _told(entry: Entry) -> str:
    sides = [
        f"{name} from {s.at:g} on ({s.accepted} labels, {s.errors} wrong, error ≤ {s.bound:.3f})" for name, s in entry.thresholds.items()
    ]
    if "*" not in entry.thresholds:
        from warmgate.questions import parse_questions

        names = parse_questions({"question": entry.question})["question"].labels
        sides += [f"{name} never (no threshold could be promised)" for name in names if name not in entry.thresholds]
    ece = f"ECE {entry.ece['raw'].value:.3f} raw, {entry.ece['calibrated'].value:.3f} calibrated"
    odd = f"; {entry.repeated} labels are of a state met before" if entry.repeated else ""
    odd += f", {entry.contradicted} states are labelled in more than one way" if entry.contradicted else ""
    pins = "" if entry.pinned else "; --check cannot be used, since the labels carry no states"
    return f"{entry.id} ({entry.model}, {entry.dialect}, {entry.labels:,} labels): take {'; '.join(sides)}; {ece}{odd}{pins}"


def _check(path: str, json: str, given: dict[str, Any]) -> int:
    from warmgate.questions import parse_questions
    from warmgate_policies.calibration import PolicyFile
    from warmgate_policies.calibration.drift import compare

    policy = PolicyFile.parse(read_bytes(path, MAX_POLICY_BYTES, where=path), where=path)
    if not any(entry.pinned for entry in policy.entries):
        raise OptionError("holds no pinned states", where=path, mend="calibrate from labels that carry their state")
    findings: list[dict[str, Any]] = []
    for entry in policy.entries:
        if not entry.pinned:
            say(f"{entry.id} ({entry.model}): not checked: it holds no pinned states")
            continue
        question = parse_questions({"question": entry.question})["question"]
        states = [pin.state for pin in entry.pinned]
        now = asyncio.run(_answers(question, states, entry.model, entry.dialect, given))
        drift = compare(entry, now, tolerance=given["tolerance"])
        findings.append({"id": entry.id, "model": entry.model, "dialect": entry.dialect, **msgspec.to_builtins(drift)})
        moved = f"{drift.asked} answers moved by {drift.moved:.3f}, {drift.flipped} changed side, {drift.unanswered} unanswered"
        say(f"{entry.id} ({entry.model}): {'drifted' if drift.drifted else 'holds'}: {moved}")
    write_bytes(json, msgspec.json.encode({"schema": "warmgate.drift/1", "policy": policy.version, "entries": findings}) + b"\n")
    return 1 if any(f["drifted"] for f in findings) else 0


async def _asked(labels: list[Label], given: dict[str, Any]) -> list[Label]:
    """Labels with the probabilities that a worker gives now."""
    waiting = [label for label in labels if label.probabilities is None]
    known = [label for label in labels if label.probabilities is not None]
    by_key: dict[Any, list[Label]] = {}
    for label in waiting:
        by_key.setdefault(label.key, []).append(label)
    for key, part in by_key.items():
        answers = await _answers(part[0].question, [label.state for label in part], key.model, key.dialect, given)
        known += [replace(label, probabilities=p) for label, p in zip(part, answers, strict=True) if p is not None]
        if lost := sum(p is None for p in answers):
            say(f"{part[0].id}: {lost} of {len(part)} labels were not answered and are left out")
    return known


async def _answers(question: Question, states: list[Any], model: str, dialect: str, given: dict[str, Any]) -> list[dict[str, float] | None]:
    from warmgate.engines import AskRequest, Chain, Deadline, SystemOne

    if given["worker"] is None:
        raise OptionError("names no server to ask", where="--worker", mend="labels without probabilities, and --check, need one")
    limit = asyncio.Semaphore(AT_ONCE)
    reasons: set[str] = set()

    async def one(chain: Chain, state: Any) -> dict[str, float] | None:
        async with limit:
            request = AskRequest(questions={"question": question}, state=state, model=model)
            result = await chain.ask(request, deadline=Deadline(given["deadline_ms"] / 1000))
        answer = result.answers.get("question")
        if answer is None:
            reasons.add(result.reason)
        return answer.probabilities if answer is not None else None

    engine = SystemOne(given["worker"], dialect=dialect, api_key=api_key(given["api_key_env"]))
    async with Chain([engine]) as chain:
        found = await asyncio.gather(*(one(chain, state) for state in states))
    for reason in sorted(reasons)[:3]:
        say(f"not answered: {reason}")
    return found
