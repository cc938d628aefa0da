"""What an engine adds to an agent's prompt, what an answer added, which adapters a worker serves: all that a prompt's tokens depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warmgate.engines._base import AgentPrompt
from warmgate.engines.wire import wire_question
from warmgate.foreign import items, mapping, text

if TYPE_CHECKING:
    from warmgate.questions import Question


def spoken(engine: str, dialect: str, prompt: AgentPrompt, questions: Mapping[str, Question]) -> list[str] | None:
    """What each question adds to the agent's prompt; ``None`` for engines whose words are not known."""
    if engine == "systemone" and dialect.startswith("vllm"):
        from warmgate.standin.bodies import QuestionSpec
        from warmgate.standin.questions import parse_questions, question_text

        specs = {name: QuestionSpec(**wire_question(question)) for name, question in questions.items()}
        return [f"{prompt.before}\n\n{question_text(one)}{prompt.after}" for one in parse_questions(specs)]
    if engine == "prefix_read":
        from warmgate.engines import prefix_read as own

        found: list[str] = []
        for question in questions.values():
            sets = {"choice": own.CHOICE_LABELS, "noul": own.NOUL_LABELS, "score": own.SCORE_LABELS}[question.type]
            labels = sets[0][: len(question.labels)]
            found.append(f"{prompt.before}{own.question_text(question, labels)}{prompt.after or chr(10) + 'Answer:'}")
        return found
    return None


def adapters(page: str) -> dict[str, str]:
    """LoRA adapters of ``/v1/models``: name → path on the server."""
    import json

    found: dict[str, str] = {}
    for model in items(mapping(json.loads(page)).get("data")):
        one = mapping(model)
        name, root = text(one.get("id")), text(one.get("root"))
        if name is not None and root is not None and one.get("parent"):
            found[name] = root
    return found


def generated(answer: Any) -> list[int]:
    """Generated ids of a chat completion, where it holds them."""
    choices = items(mapping(answer).get("choices") if isinstance(answer, Mapping) else getattr(answer, "choices", None))
    if len(choices) != 1:
        return []
    first = choices[0]
    ids = mapping(first).get("token_ids") if isinstance(first, Mapping) else getattr(first, "token_ids", None)
    listed: list[Any] = list(items(ids))
    return listed if all(isinstance(one, int) for one in listed) else []
