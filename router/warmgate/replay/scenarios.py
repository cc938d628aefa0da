"""Four ways to gate the recorded calls, priced on the same trace.

``none`` asks nothing. ``separate`` sends the conversation as JSON to a router of its own, which keeps a sticky cache. ``json`` asks the
questions on the agent's worker with a JSON state. ``aligned`` asks them on the agent's own prompt.

A JSON state is priced at as many tokens as the prompt it restates, and shares with the session's earlier JSON up to its closing
brackets. The questions of one request share their state with each other, since engines admit them together.

A request whose prompt is larger than a worker's whole cache is refused by engines. So that scenarios stay comparable it is priced here as
computed in full: it finds nothing, leaves nothing behind, and neither do the other questions of its decision.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmgate.replay.prepare import Prepared
from warmgate.replay.result import Scenario, TaxMs
from warmgate.replay.simulate import AGENT, JSON, Pool, Route, Sticky, router

JSON_CLOSING_TOKENS = 2
"""Tokens of the brackets that close a JSON state (``"}]}`` and the like): the part a longer state does not repeat."""

NAMES = ("none", "separate", "json", "aligned")


@dataclass(slots=True)
class Costs:
    """What turns tokens into milliseconds and money. ``None`` leaves the figure out."""

    prefill_rate: float | None = None
    hop_ms: float | None = None
    price_per_mtok: float | None = None


@dataclass(slots=True)
class Outcome:
    """How one agent call fared in a simulation. Blocks of the prompt found, and why not more."""

    survived: int
    reusable: int
    cause: str | None


class Simulation:
    """One scenario on one route, fed call by call.

    Args:
        name: One of :data:`NAMES`.
        route: How requests find a worker.
        sidecar: Whether the gate's reads go to a small model's own workers instead of the agent's.
        workers: Workers of the agent's pool; a separate router or sidecar has as many.
        block_size: Hit granularity in tokens.
        kv_tokens: Cache of each worker in tokens, or ``None`` for no bound.
        sticky: Where sessions live, shared by the simulations of a trace.

    Attributes:
        computed: Prompt tokens computed, reads and calls together.
        gate_tokens: The part of it that reads computed.
        floor: What a perfect gate would have computed.
        reusable: ΣR of the calls.
        survived: ΣS of the calls.
        hops: Calls before which the gate was asked.
        refused_calls: Calls larger than a worker's cache.
        refused_asks: Calls whose gate's read is larger than that.
    """

    def __init__(
        self,
        name: str,
        route: Route,
        *,
        sidecar: bool,
        workers: int,
        block_size: int,
        kv_tokens: int | None,
        sticky: Sticky | None = None,
    ) -> None:
        self.name = name
        self.route: Route = route
        self.gate = "none" if name == "none" else "sidecar" if sidecar else "shared"
        self.block_size = block_size
        self.computed = 0
        self.gate_tokens = 0
        self.floor = 0
        self.survived = 0
        self.reusable = 0
        self.hops = 0
        self.refused_calls = 0
        self.refused_asks = 0
        self.agents = Pool(workers, block_size, kv_tokens)
        own_pool = name == "separate" or (sidecar and name != "none")
        self.gates = Pool(workers, block_size, kv_tokens) if own_pool else self.agents
        self._to_agent = router(route, workers, sticky=sticky)
        # one balancer spreads all requests of a pool, decisions and calls in the order they come
        self._to_gate = router("sticky", workers, sticky=sticky) if own_pool else self._to_agent

    def feed(self, call: Prepared, questions: int, question_tokens: int) -> Outcome:
        """Ask the questions, then make the call. ``question_tokens`` is per question."""
        size = self.block_size
        reach = min(call.shared if call.alone is None else call.alone, call.tokens - 1) // size
        self.floor += call.tokens - reach * size
        aligned_to = 0
        if self.name != "none" and questions > 0:
            self.hops += 1
            self.floor += questions * question_tokens
            aligned_to = self._ask(call, questions, question_tokens)
        limit = (call.tokens - 1) // size
        index = self._to_agent(call.call.session)
        worker = self.agents[index]
        if worker.fits(call.tokens):
            hit = worker.hit(AGENT, call.nodes, limit)
        else:
            hit = 0
            self.refused_calls += 1
        reach = max(reach, min(aligned_to, limit))
        cause = None if hit >= reach else self._cause(call, index, hit)
        worker.serve(AGENT, call.stored, len(call.stored), max(call.stored_tokens, call.tokens), call.tokens)
        self.computed += call.tokens - hit * size
        self.survived += hit * size
        self.reusable += reach * size
        return Outcome(hit * size, reach * size, cause)

    def _ask(self, call: Prepared, questions: int, question_tokens: int) -> int:
        """Run the gate's reads. Returns the blocks of the agent's own prompt that they left in the agent's pool."""
        size = self.block_size
        worker = self.gates[self._to_gate(call.call.session)]
        tail = question_tokens
        if self.name == "aligned" and self.gate == "shared":
            space, state, own = AGENT, max(call.tokens - call.generation_tokens, 0), 0
        else:
            # an append-only transcript on a sidecar has no brackets to close; every other JSON state has
            closing = 0 if self.name == "aligned" else JSON_CLOSING_TOKENS
            space, state, own = JSON, call.tokens, closing
            if self.name == "separate":  # one request with all questions in it
                questions, tail = 1, questions * question_tokens
        keep = min(max(state - own, 0) // size, len(call.nodes))
        tokens = state + tail
        if fits := worker.fits(tokens):
            first, others = worker.hit(space, call.nodes, keep), min(state // size, len(call.nodes))
        else:
            first = others = 0
            self.refused_asks += 1
        worker.serve(space, call.nodes, keep, tokens, tokens, questions)
        computed = questions * tokens - (first + (questions - 1) * others) * size
        self.computed += computed
        self.gate_tokens += computed
        return keep if fits and space == AGENT else 0

    def _cause(self, call: Prepared, index: int, hit: int) -> str:
        """The one cause of a loss, first that fits: the next block went to another worker, or was here and was evicted."""
        if not self.agents[index].ever(AGENT, call.nodes, hit):
            return "worker_change"
        return "eviction"

    def result(self, base: Simulation, costs: Costs) -> Scenario:
        """The figures, with the tax over ``base`` (``none`` on the same route and cache)."""
        tax = self.computed - base.computed
        tax_ms = None
        if costs.prefill_rate is not None or costs.hop_ms is not None:
            tax_ms = TaxMs(
                hop=None if costs.hop_ms is None else self.hops * costs.hop_ms,
                prefill=None if costs.prefill_rate is None else tax / costs.prefill_rate * 1000,
            )
        return Scenario(
            name=self.name,
            route=self.route,
            gate=self.gate,
            computed_tokens=self.computed,
            floor_tokens=self.floor,
            compute_ratio=self.computed / self.floor if self.floor else None,
            survival=self.survived / self.reusable if self.reusable else None,
            tax_tokens=tax,
            tax_ms=tax_ms,
            tax_money=None if costs.price_per_mtok is None else tax * costs.price_per_mtok / 1e6,
            gate_tokens=self.gate_tokens,
            reusable_tokens=self.reusable,
            survived_tokens=self.survived,
        )
