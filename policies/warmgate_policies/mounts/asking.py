"""Which questions a mount needs: one yes-or-no a toolset where they are few, a choice and then yes-or-nos where they are many."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from warmgate.answers import Answer
from warmgate.errors import QuestionError
from warmgate.questions import MARKUP, Choice, Noul, NoulCriteria, Question, check_name
from warmgate_policies.mounts.catalogue import Toolset

NOTHING = "none of these"
"""Option of every choice: a model must be able to say that nothing fits."""

DESCRIPTION_CHARS = 160
"""Characters of a toolset's description in a question; every one of them is prefilled at each decision."""

_WORD = re.compile(r"[^\W_]{3,}")


def questions(toolsets: Sequence[Toolset], *, limit: int, options: int, context: str) -> dict[str, Question]:
    """The first step.

    Args:
        toolsets: Those that are in doubt.
        limit: Most questions of the turn. Where narrowing takes two steps, the first takes at most half.
        options: Most options of one choice, :data:`NOTHING` among them.
        context: What was said lately. Where even choices cannot name all toolsets, those that share most words with it are asked about.
    """
    if not toolsets:
        return {}
    if len(toolsets) <= limit:
        return {_id("mount", i): _noul(toolset) for i, toolset in enumerate(toolsets)}
    each = options - 1
    room = max(1, limit // 2) * each
    asked = toolsets if len(toolsets) <= room else nearest(toolsets, context, room)
    groups = [asked[start : start + each] for start in range(0, len(asked), each)]
    return {_id("family", i): _choice(group) for i, group in enumerate(groups)}


def narrowed(toolsets: Sequence[Toolset], answers: Mapping[str, Answer], *, limit: int) -> dict[str, Question]:
    """The second step: a yes-or-no for each toolset that a choice thought more likely than chance, the likeliest first.

    Args:
        toolsets: Those that are in doubt.
        answers: What the first step said.
        limit: Questions still allowed.
    """
    by_option = _by_option(toolsets)
    likely: list[tuple[float, Toolset]] = []
    for answer in answers.values():
        if not answer.id.startswith("family") or not believable(answer):
            continue
        if answer.probabilities is None:
            likely += [(1.0, toolset) for toolset in by_option.get(str(answer.value), ())]
            continue
        chance = 1 / len(answer.probabilities)
        likely += [(p, toolset) for o, p in answer.probabilities.items() if p >= chance for toolset in by_option.get(o, ())]
    likely.sort(key=lambda pair: -pair[0])
    return {_id("mount", i): _noul(toolset) for i, (_, toolset) in enumerate(likely[:limit])}


def wanted(toolsets: Sequence[Toolset], asked: Mapping[str, Question], answers: Mapping[str, Answer]) -> dict[str, float]:
    """Toolset name → probability that it is needed, for those that were answered about.

    A choice speaks for its toolsets only where no yes-or-no did.
    """
    by_option = _by_option(toolsets)
    by_text: dict[str, list[Toolset]] = {}
    for toolset in toolsets:
        by_text.setdefault(_noul(toolset).instructions, []).append(toolset)
    found: dict[str, float] = {}
    for id_, question in asked.items():
        answer = answers.get(id_)
        if answer is None or not isinstance(question, Choice) or not believable(answer):
            continue
        for option in question.labels:
            p = (answer.probabilities or {}).get(option, 1.0 if answer.value == option else 0.0)
            found |= {toolset.name: p for toolset in by_option.get(option, ())}
    for id_, question in asked.items():
        answer = answers.get(id_)
        if answer is None or not isinstance(question, Noul) or not believable(answer):
            continue
        found |= {toolset.name: float(answer.value) for toolset in by_text.get(question.instructions, ())}
    return found


def named(toolsets: Sequence[Toolset], asked: Mapping[str, Question]) -> list[str]:
    """Toolsets that some question was about."""
    labels = {label for question in asked.values() if isinstance(question, Choice) for label in question.labels}
    texts = {question.instructions for question in asked.values() if isinstance(question, Noul)}
    return [t.name for t in toolsets if option_of(t) in labels or _noul(t).instructions in texts]


def believable(answer: Answer) -> bool:
    """Whether the model wanted to answer: where the most likely token is no label, its labels say nothing. Nor does what is no number."""
    numbers = [p for p in (*(answer.probabilities or {}).values(), answer.value) if not isinstance(p, str)]
    if not all(0 <= p <= 1 for p in numbers):  # NaN fails this too
        return False
    return answer.argmax_is_label is not False or (answer.label_mass is not None and answer.label_mass >= 0.5)


def nearest(toolsets: Sequence[Toolset], context: str, limit: int) -> list[Toolset]:
    """The toolsets that share most words with what was said, in their own order."""
    words = set(_WORD.findall(context.casefold()))

    def shared(toolset: Toolset) -> int:
        return len(words.intersection(_WORD.findall(f"{toolset.name} {toolset.description} {' '.join(toolset.tools)}".casefold())))

    best = sorted(range(len(toolsets)), key=lambda i: (-shared(toolsets[i]), i))[:limit]
    return [toolsets[i] for i in sorted(best)]


def _by_option(toolsets: Sequence[Toolset]) -> dict[str, list[Toolset]]:
    """Option → the toolsets it stands for: names that look the same share one, and its answer."""
    found: dict[str, list[Toolset]] = {}
    for toolset in toolsets:
        found.setdefault(option_of(toolset), []).append(toolset)
    return found


def option_of(toolset: Toolset) -> str:
    """A toolset's name as a label: a hostile server's name must not carry markup or lines into a question."""
    name = plain(toolset.name, 64)
    try:
        return check_name(name if name.casefold() != NOTHING else "", field="toolset")
    except QuestionError:
        return f"toolset of {len(toolset.tools)} tools"


def plain(words: str, limit: int) -> str:
    """One line of printable text without control markup."""
    words = unicodedata.normalize("NFC", words[: 20 * limit])  # two spellings of one name are one; a description of megabytes is cut first
    line = " ".join("".join(c if unicodedata.category(c)[0] != "C" else " " for c in MARKUP.sub(" ", words)).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _noul(toolset: Toolset) -> Noul:
    described = plain(toolset.description, DESCRIPTION_CHARS)
    about = f"{option_of(toolset)} ({described})" if described else option_of(toolset)
    return Noul(
        instructions=f"Does the next step of this conversation need these tools: {about}?",
        criteria=NoulCriteria(true="a call to one of them is likely now", false="the work goes on without them"),
    )


def _choice(toolsets: Sequence[Toolset]) -> Choice:
    criteria: dict[str, str | None] = {}
    for toolset in toolsets:
        criteria.setdefault(option_of(toolset), plain(toolset.description, DESCRIPTION_CHARS) or None)
    criteria[NOTHING] = None
    return Choice(instructions="Which of these tools does the next step of this conversation need most?", criteria=criteria)


def _id(kind: str, index: int) -> str:
    return f"{kind}{index}"
