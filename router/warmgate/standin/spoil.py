"""How a good answer is spoilt: one function a fault of content, each changing a response's JSON in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from warmgate.standin.shapes import as_list, as_object, is_list, is_object

Payload: TypeAlias = dict[str, Any]


def _answers(payload: Payload) -> list[Payload]:
    """The answers of a decision response, whichever of the two shapes it has."""
    found = payload.get("answers")
    return [as_object(answer) for answer in (as_object(found).values() if is_object(found) else as_list(found))]


def _choices(payload: Payload) -> list[Payload]:
    """The choices of a chat or completion response."""
    return [as_object(choice) for choice in as_list(payload.get("choices"))]


def _numbers(payload: Payload, change: Callable[[float, int], Any], logprob: Callable[[float], Any]) -> None:
    """Change every probability and log-probability; the second argument of ``change`` is its place among its siblings."""
    for answer in _answers(payload):
        for key in ("noul", "probability"):
            if key in answer:
                answer[key] = change(answer[key], 0)
        shares = answer.get("probabilities")
        if is_object(shares):
            answer["probabilities"] = {name: change(p, at) for at, (name, p) in enumerate(as_object(shares).items())}
        for at, entry in enumerate(map(as_object, as_list(shares))):
            entry["probability"] = change(entry["probability"], at)
    for told in (as_object(choice.get("logprobs")) for choice in _choices(payload)):
        if "token_logprobs" in told:
            told["token_logprobs"] = [logprob(value) for value in told["token_logprobs"]]
            told["top_logprobs"] = [{token: logprob(value) for token, value in as_object(top).items()} for top in told["top_logprobs"]]
        for entry in _positions(told):
            entry["logprob"] = logprob(entry["logprob"])


def _positions(told: Payload) -> Iterator[Payload]:
    for entry in map(as_object, as_list(told.get("content"))):
        yield entry
        yield from map(as_object, as_list(entry.get("top_logprobs")))


def _wrong_types(payload: Payload) -> None:
    _numbers(payload, lambda p, _: str(p), str)
    for answer in _answers(payload):
        answer["type"] = 7
        answer["confidence"] = [answer.get("confidence")]
        if "choice" in answer:
            answer["choice"] = {"name": answer["choice"]}
    if "usage" in payload:
        payload["usage"] = [payload["usage"]]
    if "diagnostics" in payload:
        payload["diagnostics"] = "none"
    for choice in _choices(payload):
        if "message" in choice:
            choice["message"]["content"] = {"text": choice["message"].get("content")}
        if "text" in choice:
            choice["text"] = 7


def _out_of_range(payload: Payload) -> None:
    _numbers(payload, lambda p, at: 1.7 if at == 0 else p - 1.7, lambda _: 3.5)
    for answer in _answers(payload):
        answer["confidence"] = 42.0
        if "score" in answer:
            answer["score"] = -3.0


def _nan(payload: Payload) -> None:
    _numbers(payload, lambda _p, _at: math.nan, lambda _: math.nan)


def _bad_sum(payload: Payload) -> None:
    _numbers(payload, lambda p, _: p / 2, lambda value: value)


def _missing_answer(payload: Payload) -> None:
    found = payload.get("answers") or payload.get("choices")
    if found and is_object(found):
        as_object(found).popitem()
    elif found:
        as_list(found).pop()


def _extra_fields(payload: Payload) -> None:
    for place in (payload, payload.get("usage"), payload.get("diagnostics"), *_answers(payload), *_choices(payload)):
        if is_object(place):
            as_object(place)["x_unheard_of"] = {"nested": [1, None, "two"]}


def _wrong_ids(payload: Payload) -> None:
    for key in ("answers", "diagnostics"):
        if is_object(payload.get(key)):
            payload[key] = {f"{qid}_other": value for qid, value in as_object(payload[key]).items()}
    for answer in _answers(payload):
        if "name" in answer:
            answer["name"] = "nobody asked this"


def _wrong_argmax(payload: Payload) -> None:
    """Name another option, and leave no doubt that it is the lesser one."""
    for answer in _answers(payload):
        shares = answer.get("probabilities")
        if "choice" not in answer:
            continue
        if is_object(shares) and len(shares) > 1:
            best = answer["choice"]
            other = min((name for name in shares if name != best), key=shares.__getitem__)
            shares[best], shares[other] = shares[best] + shares[other] / 2, shares[other] / 2
            answer["choice"] = other
        elif is_list(shares) and len(shares) > 1:
            entries = sorted(map(as_object, shares), key=lambda entry: entry["probability"])
            least, most = entries[0], entries[-1]
            most["probability"] += least["probability"] / 2
            least["probability"] /= 2
            answer["choice"] = least["value"]


SPOILERS: dict[str, Callable[[Payload], None]] = {
    "wrong_types": _wrong_types,
    "out_of_range": _out_of_range,
    "nan": _nan,
    "bad_sum": _bad_sum,
    "missing_answer": _missing_answer,
    "extra_fields": _extra_fields,
    "wrong_ids": _wrong_ids,
    "wrong_argmax": _wrong_argmax,
}
