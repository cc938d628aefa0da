"""How the stand-in comes to an answer: from its script, else from the words that state and options share.

Deterministic, and good for nothing but plumbing: the same words give the same probabilities on every machine, in any batch, in any order
of questions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from warmgate.standin.questions import Option, Question
from warmgate.standin.script import Rule, Script

LABEL_MASS = 0.95
"""The labels' share of the vocabulary when the script does not say."""

SHARPNESS = 4.0
"""How much sharing all words outweighs sharing none (log-odds)."""

READ_CHARACTERS = 40_000
"""Characters of a state whose words count, from the end: the latest turn is what a question is about."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a model would think of one question.

    Attributes:
        probabilities: Per option, in order, summing to 1.
        label_mass: The labels' share of the whole vocabulary.
        argmax_is_label: Whether the likeliest token of all is a label.
    """

    probabilities: tuple[float, ...]
    label_mass: float = LABEL_MASS
    argmax_is_label: bool = True

    @property
    def best(self) -> int:
        """Number of the most probable option."""
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)

    def logprob(self, option: int) -> float:
        """Log-probability of an option's label over the whole vocabulary."""
        share = self.probabilities[option] * self.label_mass
        return math.log(share) if share > 0 else -9999.0


class Answers:
    """Answers questions.

    Args:
        script: What to answer where a rule fits.
    """

    def __init__(self, script: Script) -> None:
        self.script = script

    def question(self, question: Question, state: str, instructions: str = "") -> Opinion:
        """The opinion on a typed question about ``state``; ``instructions`` are those of the whole request."""
        names = [_names(question.kind, level, option) for level, option in enumerate(question.options)]
        scripted = self._scripted(question.id, question.kind, question.instructions, state, names)
        if scripted is not None:
            return scripted
        about = _words(f"{instructions}\n{state}"[-READ_CHARACTERS:])
        if question.kind == "noul":
            yes, no = question.options
            texts = [f"{question.instructions} {yes.description or ''}", no.description or ""]
        else:
            texts = [f"{option.name} {option.description or ''}" for option in question.options]
        return Opinion(_softmax([SHARPNESS * _overlap(text, about) for text in texts]))

    def labels(self, labels: Sequence[str], prompt: str) -> Opinion:
        """The opinion on labels offered at the end of a bare prompt (a read over ``/v1/completions`` or chat)."""
        state, asked, options = _find_options(prompt, labels)
        names = [_option_names(label, text) for label, text in zip(labels, options, strict=True)]
        scripted = self._scripted(None, None, asked, state, names)
        if scripted is not None:
            return scripted
        about = _words(state[-READ_CHARACTERS:])
        texts = list(options)
        if [label.strip().lower() for label in labels] == ["yes", "no"]:
            yes, no = ("" if text == label.strip() else text for text, label in zip(texts, labels, strict=True))
            texts = [f"{asked} {yes}", no]
        return Opinion(_softmax([SHARPNESS * _overlap(text, about) for text in texts]))

    def pick(self, values: Sequence[str], prompt: str, name: str | None = None) -> int:
        """Which of several texts a constrained reply takes; a scripted rule may know it by the ``name`` of its field."""
        scripted = self._scripted(name, None, prompt, prompt, [(value,) for value in values])
        if scripted is not None:
            return scripted.best
        about = _words(prompt[-READ_CHARACTERS:])
        scores = [_overlap(value, about) for value in values]
        return max(range(len(values)), key=scores.__getitem__)

    def _scripted(self, qid: str | None, kind: str | None, asked: str, state: str, names: Sequence[Sequence[str]]) -> Opinion | None:
        for rule in self.script.decisions:
            if rule.fits(qid, kind, asked, state):
                shares = rule.shares(names)
                if shares is not None:
                    return _opinion(rule, shares)
        return None


def offered_labels(prompt: str) -> list[str]:
    """The labels a prompt's end asks to choose from, as systemone's own questions and their like word it; empty when it asks none."""
    lines = prompt[-8000:].split("\n")
    if any("yes or no" in line.lower() for line in lines[-12:]):
        return ["yes", "no"]
    for labels in ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"):
        found = [label for label in labels if any(re.match(rf"\W{{0,3}}{label}[:.)\]]\s", line) for line in lines[-60:])]
        if len(found) >= 2 and found == list(labels[: len(found)]):
            return found
    return []


def _opinion(rule: Rule, shares: Sequence[float]) -> Opinion:
    mass = LABEL_MASS if rule.label_mass is None else rule.label_mass
    likely = mass * max(shares) > 1 - mass if rule.argmax_is_label is None else rule.argmax_is_label
    return Opinion(tuple(shares), mass, likely)


def _names(kind: str, level: int, option: Option) -> tuple[str, ...]:
    return (option.name, str(level)) if kind == "score" else (option.name,)


def _option_names(label: str, text: str) -> tuple[str, ...]:
    """What an option read from a prompt may be called in a script: its text, what stands before its dash, its label."""
    return (text, text.partition(" - ")[0].strip(), label.strip())


def _find_options(prompt: str, labels: Sequence[str]) -> tuple[str, str, list[str]]:
    """Split a prompt into what precedes the question, the question, and one text per label.

    The question is looked for in the last part of the prompt: the lines that begin with a label, and the line or ``Question:`` before
    them. Where a label has no line, it stands for itself.
    """
    tail = prompt[-8000:]
    lines = tail.split("\n")
    texts: dict[int, str] = {}
    first = len(lines)
    for number, label in enumerate(labels):
        begins = re.compile(rf"^\W{{0,3}}{re.escape(label.strip())}(?:(?:[:.)\]]|\s+[-–]?)\s*(.*))?$")
        for at in range(len(lines) - 1, -1, -1):
            found = begins.match(lines[at])
            if found:
                texts[number] = found.group(1) or ""
                first = min(first, at)
                break
    asked_at = max((at for at in range(min(first, len(lines))) if lines[at].lstrip().startswith("Question:")), default=max(first - 1, 0))
    if first == len(lines):  # no label has a line of its own: the last lines are the question
        asked_at = max(len(lines) - 3, 0)
    asked = "\n".join(lines[asked_at:first]).strip().removeprefix("Question:").strip()
    state = prompt[: len(prompt) - len(tail)] + "\n".join(lines[:asked_at])
    return state, asked, [texts.get(number) or label.strip() for number, label in enumerate(labels)]


_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    """
    a an and are as at be by does for from has have in is it its of on or that the this to was what which will with
    """.split()  # noqa: SIM905 -- a list of words reads best as words
)


@lru_cache(maxsize=256)
def _words(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in _WORD.findall(text.lower()) if word not in _COMMON)


def _stem(word: str) -> str:
    """Fold the plainest endings, so that "files" meets "file"."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _overlap(text: str, about: frozenset[str]) -> float:
    words = _words(text)
    return len(words & about) / len(words) if words else 0.0


def _softmax(scores: Sequence[float]) -> tuple[float, ...]:
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = sum(weights)
    return tuple(weight / total for weight in weights)
