"""Whether the tokenizer handed in counts as the trace's provider did, and one measure for both where it does not.

With another model's tokenizer, tokens counted here and tokens reported are different units. A ratio of the two would mean nothing (and may
pass 1), so what was counted is converted to the reported measure, call by call.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmgate.prefix.ledger import Entry

TOLERANCE = 0.02
"""Share by which counts may differ before they are converted: other wording around tools, a few tokens of markup."""

TELLING = 0.1
"""Share by which a trace's counts must differ before the tokenizer is doubted."""


@dataclass(slots=True)
class Agreement:
    """Sums over the calls of one trace. Counts are tokens."""

    calls: int = 0
    counted: int = 0
    reported: int = 0

    def settle(self, entry: Entry, counted: int, reported: int, block_size: int) -> None:
        """Compare the two counts of one prompt, and put an entry's predicted tokens into the reported measure where they disagree.

        Args:
            entry: Holds what was counted here; whole blocks stay whole blocks.
            counted: Tokens of the prompt by the tokenizer, at least 1.
            reported: Tokens of the prompt by the provider.
            block_size: Hit granularity.
        """
        self.calls += 1
        self.counted += counted
        self.reported += reported
        if abs(reported - counted) <= TOLERANCE * counted:
            return
        most = max(reported - 1, 0) // block_size * block_size
        if entry.shared is not None:
            entry.shared = entry.shared * reported // counted
        if entry.reusable is not None:
            entry.reusable = min(entry.reusable * reported // counted // block_size * block_size, most)
        if entry.survived is not None and entry.survived_basis == "predicted":
            entry.survived = min(entry.survived * reported // counted // block_size * block_size, most)
        entry.divergence = entry.divergence * reported // counted
        entry.namespace_change = entry.namespace_change * reported // counted

    def note(self) -> str | None:
        """What to say where the two disagree over a whole trace."""
        if not self.reported or not self.counted or abs(self.counted - self.reported) <= TELLING * self.reported:
            return None
        return (
            f"the tokenizer counts {self.counted / self.reported:.2f} times the prompt tokens that the trace reports: is it this model's "
            "tokenizer (and chat template)? reusable tokens are converted to the reported measure; scenarios rest on the tokenizer's"
        )
