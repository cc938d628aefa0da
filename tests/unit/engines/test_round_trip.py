"""Reading label probabilities out of a chat reply: exact, or not claimed."""

from __future__ import annotations

import json
import math
import re

import pytest

from warmgate.engines.round_trip import _Listed, _Token, labels_of, probabilities_at, regex_of, schema_of
from warmgate.questions import Choice, Noul, Score

TEXT = '{"q1":"B","q2":"yes"}'


def tokens(*pieces: str | tuple[str, dict[str, float]]) -> list[_Token]:
    """Pieces of the reply; one with a dict lists these tokens and probabilities at its place."""
    found: list[_Token] = []
    for piece in pieces:
        text, listed = (piece, {piece: 1.0}) if isinstance(piece, str) else piece
        found.append(_Token(text, [_Listed(token, math.log(p) if p else -9999.0) for token, p in listed.items()]))
    return found


def test_the_place_where_a_label_begins_is_found_in_any_tokenization():
    for pieces in (
        ('{"', "q1", '":', '"', ("B", {"B": 0.6, "A": 0.2, "The": 0.1}), '","q2":"yes"}'),
        ('{"q1":', ('"B', {'"B': 0.6, '"A': 0.2, '"The': 0.1}), '","q2":"yes"}'),
        ('{"q1":"', ('B","', {'B","': 0.5, "B": 0.1, 'A"': 0.2, "x": 0.1}), 'q2":"yes"}'),
    ):
        seen = probabilities_at(TEXT, tokens(*pieces), "q1", ("A", "B"))
        assert seen is not None
        assert seen.probabilities == (pytest.approx(0.25), pytest.approx(0.75))
        assert seen.label_mass == pytest.approx(0.8)
        assert seen.argmax_is_label is True


def test_a_longer_label_is_known_by_its_first_token():
    listed = {"y": 0.1, "yes": 0.5, 'yes"': 0.1, "n": 0.2, "no": 0.1}
    seen = probabilities_at(TEXT, tokens('{"q1":"B","q2":"', ("yes", listed), '"}'), "q2", ("yes", "no"))
    assert seen is not None
    assert seen.probabilities == (pytest.approx(0.7), pytest.approx(0.3))


def test_a_mask_leaves_the_label_mass_unknown():
    """vLLM 0.32 lists probabilities after the schema's mask: the labels then hold all of it by force."""
    seen = probabilities_at(TEXT, tokens('{"q1":"', ("B", {"B": 0.6, "A": 0.4, "$": 0.0}), '","q2":"yes"}'), "q1", ("A", "B"))
    assert seen is not None
    assert (seen.label_mass, seen.argmax_is_label) == (None, None)


@pytest.mark.parametrize(
    "pieces",
    [
        ((TEXT, {TEXT: 1.0}),),  # no label begins a token
        ('{"q1":"', ("B", {"B": 0.6, "The": 0.1}), '","q2":"yes"}'),  # A may hold up to 0.1
        ('{"q1":"', ("B", {}), '","q2":"yes"}'),
        ('{"q1":"', ("B", {"B": 0.0, "A": 0.0, "x": 1.0}), '","q2":"yes"}'),
        ('{"q1": "', ("B", {"B": 0.6, "A": 0.4}), '","q2":"yes"}'),  # the tokens spell another text
        ('{"q1":"', ("B", {"B": 7.0, "A": 0.4}), '","q2":"yes"}'),  # logits
        (),
    ],
)
def test_what_cannot_be_known_is_not_claimed(pieces: tuple[object, ...]):
    assert probabilities_at(TEXT, tokens(*pieces), "q1", ("A", "B")) is None  # type: ignore[arg-type]


def test_a_label_missing_from_a_long_list_counts_as_nothing_when_it_can_hold_next_to_nothing():
    listed = {"B": 0.6, "A": 0.39, "x": 0.001}
    seen = probabilities_at(TEXT, tokens('{"q1":"', ("B", listed), '","q2":"yes"}'), "q1", ("A", "B", "C"))
    assert seen is not None
    assert seen.probabilities[2] == 0.0


def test_the_end_token_that_vllm_lists_does_not_matter():
    seen = probabilities_at(TEXT, tokens('{"q1":"', ("B", {"B": 0.6, "A": 0.4}), '","q2":"yes"}', "<|im_end|>"), "q1", ("A", "B"))
    assert seen is not None


def test_schema_and_expression_allow_the_same_replies():
    allowed = [labels_of(Choice(criteria={"a": None, "b": None})), labels_of(Noul()), labels_of(Score(criteria=("lo", "mid", "hi")))]
    assert allowed == [("A", "B"), ("yes", "no"), ("0", "1", "2")]
    schema = schema_of(allowed)
    assert schema["required"] == ["q1", "q2", "q3"]
    assert schema["additionalProperties"] is False
    reply = json.dumps({"q1": "A", "q2": "no", "q3": "2"}, separators=(",", ":"))
    assert re.fullmatch(regex_of(allowed), reply)
    assert not re.fullmatch(regex_of(allowed), reply.replace("A", "C"))
