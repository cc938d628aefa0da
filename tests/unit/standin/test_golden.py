"""The stand-in against answers recorded from real servers: same status, same shape, same words where a client reads them.

The recordings are not in the repository; without them these tests are skipped. A few pairs of our own making, in the same form, are in
``tests/data/wire``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.standin.asking import Asker, read

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT.parent / "shared" / "engine" / "golden"
OWN = ROOT / "tests" / "data" / "wire"

NOT_OURS = {
    ("clef", "audio"): "the recording shows a broken installation (500 for a missing package), not the server's way",
}
ELSEWHERE = {
    ("dgemma", "prompt too long"): "the request was not recorded; test_styles.py has one",
    ("dgemma", "prompt just too long for the canvas"): "the request was not recorded; test_styles.py has one",
}


def pairs() -> list[Any]:
    found = []
    for folder in (OWN, RECORDED):
        for path in sorted(folder.glob("*.json")):
            style = path.stem.rpartition("_")[2]
            found += [pytest.param(style, pair, id=f"{path.stem}-{pair['name']}") for pair in json.loads(path.read_text())]
    return found


def test_recordings_present():
    """Says so when the comparison with real servers did not take place."""
    if not RECORDED.is_dir():
        pytest.skip("no recordings in ../shared/engine/golden beside this checkout")
    assert len(pairs()) > 80


@pytest.mark.parametrize(("style", "pair"), pairs())
async def test_answers_as_recorded(style: str, pair: dict[str, Any]):
    """A client tested on the stand-in would meet something else on the real server."""
    reason = NOT_OURS.get((style, pair["name"])) or ELSEWHERE.get((style, pair["name"]))
    if reason:
        pytest.skip(reason)
    asker = Asker(style=style, model="gate", max_model_len=16384)
    request = pair["request"]
    if pair["name"] == "long state is truncated":  # recorded shortened
        request = {**request, "state": "word " * 40_000}
    reply = await asker.request("POST", pair.get("path", "/v1/systemone"), request)
    got, expected = read(reply), pair["response"]
    assert reply.status == pair["status"], got
    if reply.status == 200:
        assert shape(got) == shape(expected)
        same_content(got, expected)
    else:
        assert words(got) == words(expected)


def words(body: dict[str, Any]) -> Any:
    """An error without what depends on the set-up: the names served, the length of a tokenizer's empty thought."""
    text = re.sub(r"Valid aliases: .*\.", "Valid aliases.", json.dumps(body))
    return json.loads(re.sub(r"canvas read adds \d+", "canvas read adds N", text))


def shape(value: Any) -> Any:
    """Keys and kinds of values; lists by their first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value[:1]]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def same_content(got: dict[str, Any], expected: dict[str, Any]) -> None:
    """What does not depend on weights or tokenizer is equal to the letter."""
    if "answers" not in expected:
        return
    assert re.fullmatch(r"decision-[0-9a-f]{16}", got["id"])
    assert got["model"] == "standin"
    assert list(got["answers"]) == list(expected["answers"])
    assert got["usage"]["output_tokens"] == expected["usage"]["output_tokens"]
    for qid, answer in got["answers"].items():
        told = expected["answers"][qid]
        assert answer["type"] == told["type"]
        assert list(answer["probabilities"]) == list(told["probabilities"])
        assert answer.get("legend") == told.get("legend")
        mass = got["diagnostics"][qid]["label_mass"]
        assert answer["confidence"] == pytest.approx(max(answer["probabilities"].values()) * mass)
        if expected["diagnostics"][qid]["label_mass"] == 1.0:
            assert mass == 1.0
    if expected["usage"]["input_tokens"] == 16384:  # cut to the context's length
        assert got["usage"]["input_tokens"] == 16384
