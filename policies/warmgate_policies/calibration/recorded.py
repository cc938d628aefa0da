"""Labels out of a gate's record of its decisions (``warmgate.decisions/1``).

Each grey call that a model was asked about and a person approved or rejected is one, the two tied together by the binding of the verdict
that the person saw. Approved is ``allow`` of a choice that has it and ``yes`` of a noul, whose wording is positive by convention; rejected
is ``ask`` (else ``deny``) and ``no``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmgate.foreign import mapping, mappings, text

DECISIONS = "warmgate.decisions/1"

KEPT = ("model", "dialect", "policy", "probabilities", "state")
"""What a label takes over from the verdict, where it is there."""


class Recorded:
    """Joins what people said to what the model had been asked.

    Attributes:
        decisions: Decisions met.
    """

    def __init__(self) -> None:
        self.decisions = 0
        self._asked: dict[tuple[str, str, str], Mapping[str, Any]] = {}

    def take(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row of a label that this line completes. A word without its question, or on another binding, is none."""
        decision = text(row.get("decision")) or ""
        if not isinstance(row.get("approved"), bool):
            self.decisions += 1
            for verdict in mappings(row.get("verdicts")):
                if isinstance(verdict.get("question"), Mapping):
                    self._asked[decision, text(verdict.get("call")) or "", text(verdict.get("binding")) or ""] = verdict
            return None
        asked = self._asked.pop((decision, text(row.get("call")) or "", text(row.get("binding")) or ""), None)
        question = mapping(None if asked is None else asked.get("question"))
        word = label_of(question, approved=row["approved"] is True)
        if asked is None or word is None:
            return None
        return {"id": "call", "question": question, "label": word, **{name: asked[name] for name in KEPT if asked.get(name) is not None}}


def label_of(question: Mapping[str, Any], *, approved: bool) -> str | None:
    """The label that a person's word stands for; ``None`` where the question has no such option."""
    if question.get("type") == "noul":
        return "yes" if approved else "no"
    options = mapping(question.get("criteria"))
    return next((word for word in (("allow",) if approved else ("ask", "deny")) if word in options), None)
