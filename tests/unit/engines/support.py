"""Replies as servers send them, and questions to go with them. Values of our own making."""

from __future__ import annotations

from typing import Any

from warmgate.engines import AskRequest
from warmgate.engines.retry import RetryPolicy
from warmgate.questions import Choice, Noul, Question, Score

WORKER = "http://worker.test:8000"
QUICK = RetryPolicy(attempts=3, first_s=0.001, longest_s=0.002)

QUESTIONS: dict[str, Question] = {
    "route": Choice(instructions="Which tools?", criteria={"fs": "files", "web": None}),
    "shell": Noul(instructions="Is a shell needed?"),
    "risk": Score(instructions="How risky?", criteria=("none", "some", "high")),
}


def request(**changes: Any) -> AskRequest:
    return AskRequest(**{"questions": QUESTIONS, "state": "The user asked to list files.", "model": "m", **changes})


def vllm_reply(**changes: Any) -> dict[str, Any]:
    """A 200 of vLLM 0.32 to :data:`QUESTIONS`."""
    return {
        "id": "decision-1",
        "object": "structured_decision",
        "created": 1,
        "model": "m",
        "answers": {
            "route": {"type": "choice", "choice": "web", "probabilities": {"fs": 0.25, "web": 0.75}, "confidence": 0.45},
            "shell": {"type": "noul", "noul": 0.9, "probabilities": {"yes": 0.9, "no": 0.1}, "confidence": 0.54},
            "risk": {
                "type": "score",
                "score": 0.7,
                "legend": {"0": "none", "1": "some", "2": "high"},
                "probabilities": {"0": 0.5, "1": 0.3, "2": 0.2},
                "confidence": 0.3,
            },
        },
        "usage": {"input_tokens": 178, "output_tokens": 3},
        "diagnostics": {
            "route": {"label_mass": 0.6, "argmax_is_label": True},
            "shell": {"label_mass": 0.6, "argmax_is_label": False},
            "risk": {"label_mass": 0.6, "argmax_is_label": True},
        },
        **changes,
    }
