r"""The parts of a chat template that a decision prompt is cut from.

``/v1/systemone`` renders ``system = instructions`` and ``user = state + "\n\n" + question`` with the model's chat template (vLLM
0.32, ``entrypoints/generate/structured_decisions``). With placeholders for both, that rendering reads ``A @S@ B @U@ C``. An agent's
own prompt that starts with ``A`` is restated exactly by handing what lies between ``A`` and the first ``B`` in as ``instructions`` and
everything after it as ``state``: the markup of the later turns stands inside the state and becomes the same control tokens again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warmgate.alignment.template import ChatTemplate
from warmgate.errors import TemplateError

SYSTEM = "@warmgate-system@"
USER = "@warmgate-user@"
ANSWER = "@warmgate-answer@"
THINKING_OFF: Mapping[str, Any] = {"enable_thinking": False}
"""systemone answers 400 to ``enable_thinking: true`` and renders with it off."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a template prints around an instruction and a state.

    Attributes:
        before: ``A``: what precedes the system text.
        between: ``B``: what stands between system text and user text.
        after: ``C``: what follows the user text, generation prompt included.
        before_user: What precedes the user text where there is no system turn.
        after_user: What follows it there.
        opens_user: Markup that opens another user turn after a finished turn; a state ends with it, so that the question stands
            inside a turn of its own. Empty where the template has none that can be told.
    """

    before: str
    between: str
    after: str
    before_user: str
    after_user: str
    opens_user: str


def learn(template: ChatTemplate, kwargs: Mapping[str, Any] = THINKING_OFF) -> Recipe:
    """Take a template apart.

    Args:
        template: The served model's chat template.
        kwargs: Template arguments of the decision, thinking off.

    Raises:
        TemplateError: The template prints system or user text other than as it came (moved, repeated or left out), so no prompt can be
            restated through it.
    """
    user = {"role": "user", "content": USER}
    whole = template.render([{"role": "system", "content": SYSTEM}, user], **kwargs)
    before, between, after = _cut(whole, SYSTEM, USER, template)
    bare = template.render([user], **kwargs)
    before_user, after_user = _cut(bare, USER, None, template)[:2]
    if not between:
        raise TemplateError("prints nothing between system text and user text, so the two cannot be told apart", where=template.name)
    return Recipe(before, between, after, before_user, after_user, opens_user(template, kwargs))


def _cut(text: str, first: str, second: str | None, template: ChatTemplate) -> tuple[str, str, str]:
    for mark, what in ((first, "system" if second else "user"), (second, "user")):
        if mark is not None and text.count(mark) != 1:
            how = "leaves out" if mark not in text else "repeats"
            raise TemplateError(f"{how} the {what} text of a plain conversation", where=template.name)
    before, _, rest = text.partition(first)
    if second is None:
        return before, rest, ""
    if second not in rest:
        raise TemplateError("prints the user text before the system text", where=template.name)
    between, _, after = rest.partition(second)
    return before, between, after


def opens_user(template: ChatTemplate, kwargs: Mapping[str, Any] = THINKING_OFF) -> str:
    """Markup that opens a user turn after a finished turn; empty where the template has none that can be told."""
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": ANSWER}]
    try:
        closed = template.render(turns, add_generation_prompt=False, **kwargs)
        goes_on = template.render([*turns, {"role": "user", "content": USER}], add_generation_prompt=False, **kwargs)
    except TemplateError:
        return ""
    end = closed.rpartition(ANSWER)[2]
    gap = goes_on.partition(ANSWER)[2].partition(USER)[0]
    return gap[len(end) :] if ANSWER in closed and USER in goes_on and gap.startswith(end) else ""


def closes_user(template: ChatTemplate, kwargs: Mapping[str, Any] = THINKING_OFF) -> str:
    """What follows the text of the last user turn, generation prompt included; empty where it cannot be told."""
    try:
        bare = template.render([{"role": "user", "content": USER}], **kwargs)
    except TemplateError:
        return ""
    return bare.rpartition(USER)[2] if USER in bare else ""
