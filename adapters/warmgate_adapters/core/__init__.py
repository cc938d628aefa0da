"""What every adapter does, whatever its framework: mounts before the agent's call, a verdict on each call it proposes, a state to keep.

An adapter turns its framework's messages, tools and calls into those of :mod:`warmgate.turn`, hands them to a :class:`Keeper`, and does
what the outcome says: run the call, give the model a text instead, or ask a person in the framework's own way.
"""

from warmgate_adapters.core.keeper import Judged, Keeper, Mounted
from warmgate_adapters.core.outcomes import Ask, Execute, Outcome, Reject, outcome_from_json, outcome_to_json
from warmgate_adapters.core.schemas import one_of_each
from warmgate_adapters.core.state import SCHEMA, GateState, Record, Refusal, merge

__all__ = [
    "SCHEMA",
    "Ask",
    "Execute",
    "GateState",
    "Judged",
    "Keeper",
    "Mounted",
    "Outcome",
    "Record",
    "Refusal",
    "Reject",
    "merge",
    "one_of_each",
    "outcome_from_json",
    "outcome_to_json",
]
