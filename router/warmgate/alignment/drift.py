"""Do predicted prompt lengths still agree with what the server counts? Counted per cause; repeated misses end alignment.

Every agent call reports ``usage.prompt_tokens``. A prediction that misses it means that the agent's call carried another prompt than the
one the decision extended, so the decision's prefix was of no use from the first difference on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from warmgate.alignment.served import has_floats

Cause = Literal["template_changed", "float_arguments", "null_contents", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)

IN_A_ROW = 3
"""Misses in a row that switch a (model, template) to JSON state. One may be a middleware's edit of a single call; three are a rule."""


def cause_of(messages: Sequence[Mapping[str, Any]], *, template_changed: bool) -> Cause:
    """The likeliest cause of a miss, first that fits.

    Args:
        messages: The turn's messages.
        template_changed: Whether the server now renders a fixed conversation otherwise than before.
    """
    if template_changed:
        return "template_changed"
    if has_floats(messages):
        return "float_arguments"
    if any(message.get("content") is None for message in messages):
        return "null_contents"
    return "unknown"


@dataclass(slots=True)
class Drift:
    """The misses of one (model, template).

    Attributes:
        counts: Cause → misses so far.
        agreed: Calls whose length was predicted exactly.
        in_a_row: Misses since the last that agreed.
        refusal: Why the (model, template) is no longer aligned; ``None`` while it is.
    """

    counts: Counter[Cause] = field(default_factory=Counter["Cause"])
    agreed: int = 0
    in_a_row: int = 0
    refusal: str | None = None

    def hit(self) -> None:
        """A call of the predicted length."""
        self.agreed += 1
        self.in_a_row = 0

    def miss(self, cause: Cause, predicted: int, reported: int) -> bool:
        """A call of another length. True when this one ends alignment."""
        self.counts[cause] += 1
        self.in_a_row += 1
        if self.refusal is not None or self.in_a_row < IN_A_ROW:
            return False
        self.refusal = (
            f"the agent's prompts came out otherwise than predicted {IN_A_ROW} times in a row (last {reported:,} tokens where {predicted:,}"
            f" were predicted; {cause.replace('_', ' ')})"
        )
        return True
