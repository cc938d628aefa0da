"""What the scenarios of a replay mean, in sentences derived from their figures. All of them are predicted."""

from __future__ import annotations

from dataclasses import dataclass

from warmgate.replay.figures import count, percent, plural
from warmgate.replay.result import Replay, Scenario

GATES: dict[str, str] = {
    "none": "the agent alone, nothing is asked",
    "separate": "a router of its own prefills the conversation as JSON, then the agent does",
    "json": "the questions go to the decision endpoint with the conversation as JSON",
    "aligned": "the questions extend the agent's own prompt",
}
ROUTES: dict[str, str] = {
    "sticky": "each session stays on one worker",
    "random": "each request goes to any worker",
    "round_robin": "requests go to the workers in turn",
}
_PEOPLE = {"separate": "a separate router", "json": "a gate with JSON state", "aligned": "an aligned gate"}


@dataclass(frozen=True, slots=True)
class RouteGroup:
    """Scenarios to be shown together, in the engine's order. ``route`` is None where the route makes no difference."""

    route: str | None
    title: str
    scenarios: list[Scenario]

    @property
    def alone(self) -> Scenario | None:
        """The scenario without a gate, which the others are compared with."""
        return next((s for s in self.scenarios if s.name == "none"), None)


def groups(replay: Replay) -> list[RouteGroup]:
    """The scenarios by route, the chosen route first. Routes that give the same figures throughout (one worker) become one group."""
    by_route: dict[str, list[Scenario]] = {}
    for scenario in replay.scenarios:
        by_route.setdefault(scenario.route, []).append(scenario)
    chosen = replay.options.get("route")
    order = sorted(by_route, key=lambda route: route != chosen)
    if len(order) > 1 and len({tuple(_figures(s) for s in rows) for rows in by_route.values()}) == 1:
        one = replay.options.get("workers") == 1
        return [RouteGroup(None, "any route" + (" (one worker)" if one else ""), by_route[order[0]])]
    return [RouteGroup(route, f"{_spoken(route)}: {ROUTES.get(route, 'a route of its own')}", by_route[route]) for route in order]


def _figures(scenario: Scenario) -> tuple[str, int, int, int, int]:
    return (scenario.name, scenario.computed_tokens, scenario.floor_tokens, scenario.tax_tokens, scenario.reusable_tokens)


def priced_calls(replay: Replay) -> int:
    """Calls that the scenarios price: those whose prompt is known."""
    return sum(row.reusable is not None for row in replay.calls) or replay.totals.calls


def per_call(replay: Replay, tokens: float) -> float | None:
    """``tokens`` of a scenario per priced call."""
    calls = priced_calls(replay)
    return tokens / calls if calls else None


def meaning(replay: Replay) -> list[str]:
    """Sentences that say what the scenarios come to, from the chosen route's figures. Never empty."""
    shown = groups(replay)
    calls = priced_calls(replay)
    if not shown or not calls:
        return ["No scenario could be priced: that needs prompts as text or block hashes, and no call records one."]
    first = shown[0]
    gates = [s for name in ("aligned", "json", "separate") for s in first.scenarios if s.name == name]
    if not gates or first.alone is None:
        return ["Only the agent without a gate was priced."]
    if not any(s.tax_tokens for s in gates):
        asked = replay.options.get("questions") != 0
        return ["On this trace no gate adds a token." if asked else "No questions are asked, so no gate adds a token."]
    per = [f"{_PEOPLE[s.name]} {_adds(s.tax_tokens / calls, unit=not index)}" for index, s in enumerate(gates)]
    alone = first.alone.computed_tokens
    sentences = [f"Per agent call, {', '.join(per)}; without a gate the agent computes {count(alone / calls)}."]
    sentences += _compared(gates, alone, calls)
    sentences += _routes(shown, calls)
    return sentences


def _adds(tokens: float, *, unit: bool) -> str:
    if tokens == 0:
        return "adds nothing"
    shown = count(abs(tokens))
    return f"{'adds' if tokens > 0 else 'saves'} {shown}" + (f" token{'s' * (shown != '1')}" if unit else "")


def _compared(gates: list[Scenario], alone: int, calls: int) -> list[str]:
    """Whether asking on the agent's own prompt pays, and how much it weighs."""
    aligned = next((s for s in gates if s.name == "aligned"), None)
    others = [s for s in gates if s.name != "aligned"]
    sentences: list[str] = []
    if aligned is not None and others:
        best = min(others, key=lambda s: s.tax_tokens)
        if aligned.tax_tokens < best.tax_tokens and best.tax_tokens > 0:
            less = f"{percent(1 - max(aligned.tax_tokens, 0) / best.tax_tokens)} less than the cheapest other gate's"
            if aligned.tax_tokens > 0 < alone and aligned.gate != "sidecar":
                sentences.append(f"The aligned gate's tax is {percent(aligned.tax_tokens / alone)} of what the agent computes, {less}.")
            else:
                sentences.append(f"The aligned gate's tax is {less}.")
        elif aligned.tax_tokens > best.tax_tokens:
            less = count((aligned.tax_tokens - best.tax_tokens) / calls)
            sentences.append(f"On this trace alignment does not pay: {_PEOPLE[best.name]} costs {less} a call less.")
    if any(s.gate == "sidecar" for s in gates):
        sentences.append("These are tokens of a small model on its own workers: compare the gates with each other, not with the agent.")
    if any(s.tax_tokens < 0 for s in gates):
        sentences.append("A gate can save tokens where its reads keep blocks in a cache that would have evicted them.")
    return sentences


def _routes(shown: list[RouteGroup], calls: int) -> list[str]:
    """What the other routes cost before any gate."""
    here = shown[0].alone
    others = [g.alone for g in shown[1:] if g.alone is not None]
    if here is None or not (differ := [s for s in others if s.computed_tokens != here.computed_tokens]):
        return []
    each = [f"{_spoken(s.route)} routing {count(s.computed_tokens / calls)}" for s in differ]
    return [f"Before any gate, {_spoken(here.route)} routing computes {count(here.computed_tokens / calls)} a call, {', '.join(each)}."]


def _spoken(route: str) -> str:
    return route.replace("_", " ")


def scope(replay: Replay) -> str:
    """Which calls the scenarios cover, for a caption."""
    calls = priced_calls(replay)
    if calls < replay.totals.calls:
        return f"{calls:,} of {plural(replay.totals.calls, 'call')} have a known prompt and are priced"
    return f"all {plural(calls, 'call')} priced"
