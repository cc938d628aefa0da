"""Survival, live: what a read or call should find before it is sent, what it found, and why the rest is gone.

The same L, R and S as in a replay, block by block (docs/definitions.md), so that replaying the recorded traffic gives the same sums. A
cause is named from evidence alone; without it the loss is ``unknown``.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal, TypeAlias, get_args

from warmgate.errors import OptionError
from warmgate.prefix.blocks import common_prefix
from warmgate.prefix.divergence import Kind, PromptView, kind_of
from warmgate.prefix.index import ShadowIndex, Source, servable
from warmgate.prefix.ledger import Entry, Ledger
from warmgate.prefix.seen import REMEMBERED, Seen, WorkerHistory

Cause: TypeAlias = Literal["worker_change", "worker_restart", "eviction", "not_read", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)

HELD_SESSIONS = 4096
"""Sessions whose latest prompt is remembered for comparison."""

# What is known of one block before its prompt is sent.
_ELSEWHERE, _BEFORE_RESTART, _RESIDENT, _EVICTED, _UNSURE = range(5)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One engine request about to be sent.

    Attributes:
        session: Key of the agent conversation.
        names: Wire names of its full blocks as the engine makes them, salt and adapter included.
        tokens: Tokens of the whole prompt.
        kind: ``call`` (the agent's own) or ``read`` (one of the gate's).
        namespace: Model, adapter and salt as one key; prompts of different ones share nothing.
        plain: Names made without salt and adapter, to compare across namespaces; ``names`` where they are the same.
        view: What a call was rendered from, to say why it parts from the previous one.
        question_tokens: A read's own tokens, which any gate must compute.
        generation_tokens: Tokens of a call's generation prompt, which the next prompt may render otherwise without having parted.
    """

    session: str
    names: Sequence[int]
    tokens: int
    kind: Literal["call", "read"] = "call"
    namespace: str = ""
    plain: Sequence[int] | None = None
    view: PromptView | None = None
    question_tokens: int | None = None
    generation_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a prompt should find. All counts are tokens and predicted.

    Attributes:
        prompt: What was asked about.
        worker: Where it goes.
        shared: L, in whole blocks.
        reusable: R.
        available: What the worker that holds most of it would serve.
        captured: What the chosen worker would serve.
        source: What ``captured`` rests on.
        doubt: Why it may be wrong, or ``None``.
        intra_call: Tokens shared with siblings sent together beyond R, which L excludes.
        sibling: All tokens shared with the sibling before it, whoever else had them.
        diverged: Tokens of the session's previous prompt given up for good.
        divergence: Why, where ``diverged`` is not 0.
        other_namespace: Tokens shared with the session's previous prompt in another namespace only.
        floor: Tokens that a perfect gate would still compute.
        evidence: One byte a reusable block, for :meth:`SurvivalTracker.settle`.
        sent: Seconds of ``time.monotonic()`` when this was expected.
    """

    prompt: Prompt
    worker: str
    shared: int
    reusable: int
    available: int
    captured: int
    source: Source
    doubt: str | None
    intra_call: int = 0
    sibling: int = 0
    diverged: int = 0
    divergence: Kind | None = None
    other_namespace: int = 0
    floor: int | None = None
    evidence: bytes = b""
    sent: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an expectation.

    Attributes:
        expected: See :class:`Expectation`.
        entry: The ledger's entry, cause included.
        cause: Why R − S is gone; ``None`` when nothing is.
        difference: Measured minus predicted cached tokens; ``None`` without a measurement.
        computed: Tokens the engine computed.
    """

    expected: Expectation
    entry: Entry
    cause: Cause | None
    difference: int | None
    computed: int


@dataclass(slots=True)
class _Latest:
    namespace: str
    tokens: int
    plain: Sequence[int]
    view: PromptView | None
    generation_tokens: int


@dataclass(slots=True)
class _Worker:
    index: ShadowIndex
    history: WorkerHistory
    reads_cache: bool = True
    restarts: int = 0


@dataclass(slots=True)
class Sums:
    """Ledgers of a tracker. ``divergence`` splits the calls' ledger's figure by kind; ``floor`` and ``computed`` are of both kinds."""

    calls: Ledger = field(default_factory=Ledger)
    reads: Ledger = field(default_factory=Ledger)
    divergence: dict[Kind, int] = field(default_factory=dict[Kind, int])
    computed: int = 0
    floor: int = 0


class SurvivalTracker:
    """Expectations and outcomes of one pool of workers that serve one base model. Safe across threads.

    Args:
        block_size: Tokens per block.
        granularity: Tokens hits come in multiples of, where it is not the block.
        remembered: Block names remembered per worker and generation; see :mod:`warmgate.prefix.seen`.
    """

    def __init__(self, block_size: int, *, granularity: int | None = None, remembered: int = REMEMBERED) -> None:
        if block_size < 1:
            raise OptionError(f"a block has at least one token, not {block_size}")
        self.block_size = block_size
        self.granularity = granularity or block_size
        self.sums = Sums()
        self._remembered = remembered
        self._workers: dict[str, _Worker] = {}
        self._agent = Seen(remembered)
        self._latest: OrderedDict[str, _Latest] = OrderedDict()
        self._lock = threading.RLock()

    def add_worker(self, worker: str, index: ShadowIndex, *, reads_cache: bool = True) -> None:
        """Follow a worker; ``reads_cache`` is false for models whose reads never look into the prefix cache.

        Raises:
            OptionError: Its blocks have another size.
        """
        if index.block_size != self.block_size:
            raise OptionError(f"its blocks are {index.block_size} tokens, the pool's {self.block_size}", where=worker)
        with self._lock:
            self._workers[worker] = _Worker(index, WorkerHistory(self._remembered), reads_cache)

    def index(self, worker: str) -> ShadowIndex | None:
        """The worker's shadow index."""
        known = self._workers.get(worker)
        return None if known is None else known.index

    def stored(self, worker: str, names: Sequence[int]) -> None:
        """A worker's events announced blocks (generated tokens, other clients' prompts): they count as stored there."""
        known = self._workers.get(worker)
        if known is not None:
            known.history.now.add(names)

    def restarted(self, worker: str) -> None:
        """A worker began anew (its process start time, or its events, say so). Telling it twice of one restart does no harm."""
        with self._lock:
            known = self._workers.get(worker)
            if known is None or not len(known.history.now):
                return
            known.history.restarted()
            known.restarts += 1
            if known.index.source != "events":
                known.index.restarted()

    def expect(self, worker: str, *prompts: Prompt) -> list[Expectation]:
        """What prompts sent together to one worker should find. Call it right before sending: they count as stored from here on.

        Raises:
            OptionError: An unknown worker.
        """
        with self._lock:
            found = self.look(worker, *prompts)
            self.sent(*found)
            return found

    def look(self, worker: str, *prompts: Prompt) -> list[Expectation]:
        """The same for prompts that may never be sent: nothing counts as stored until :meth:`sent` is told.

        Raises:
            OptionError: An unknown worker.
        """
        with self._lock:
            known = self._workers.get(worker)
            if known is None:
                raise OptionError("no such worker is followed", where=worker)
            found = [self._expect(worker, known, prompt) for prompt in prompts]
            for number, one in enumerate(found[1:], 1):
                siblings = (found[i].prompt.names for i in range(number))
                best = max(common_prefix(list(names), list(one.prompt.names)) for names in siblings)
                sibling = self._reach(best, one.prompt) if known.reads_cache else 0
                found[number] = replace(one, sibling=sibling, intra_call=max(0, sibling - one.reusable))
            return found

    def sent(self, *expected: Expectation) -> None:
        """These were sent."""
        with self._lock:
            for one in expected:
                self._workers[one.worker].history.now.add(one.prompt.names)
                if one.prompt.kind == "call":
                    self._agent.add(one.prompt.names)
                    self._remember(one.prompt)

    def settle(
        self,
        expected: Expectation,
        cached: int | None = None,
        *,
        looked_up: bool = True,
        stored: Sequence[int] = (),
        stored_tokens: int | None = None,
        beside: int = 0,
    ) -> Outcome:
        """Enter what became of an expectation.

        Args:
            expected: What :meth:`expect` gave.
            cached: Measured cached tokens; ``None`` where nothing measured them, and the prediction stands in.
            looked_up: False where the counters show that the engine did not look into its cache.
            stored: Names of all full blocks of prompt and answer, where the answer's tokens are known.
            stored_tokens: Tokens of that sequence without the last one.
            beside: Partial blocks that reads sent with it held at the same time.
        """
        with self._lock:
            prompt, known = expected.prompt, self._workers[expected.worker]
            survived = expected.captured if cached is None else cached
            # what a sibling sent before it computed, it finds: within R that is survived, beyond R it is the call's own reuse
            survived = max(survived, min(expected.sibling, expected.reusable))
            measured = cached is not None
            cause = None
            if expected.reusable > survived:
                cause = self._cause(expected, survived, known.reads_cache and looked_up, measured=measured)
            entry = Entry(
                prompt_tokens=prompt.tokens,
                prompt_basis="measured" if measured else "predicted",
                shared=expected.shared,
                reusable=expected.reusable,
                survived=survived,
                survived_basis="measured" if measured else "predicted",
                cause=cause,
                reported_cached=cached,
                divergence=expected.diverged,
                namespace_change=expected.other_namespace,
                intra_call=expected.intra_call,
            )
            self._learn(known, expected, cached, stored, stored_tokens, beside)
            computed = max(0, prompt.tokens - max(survived, expected.sibling))
            (self.sums.calls if prompt.kind == "call" else self.sums.reads).add(entry)
            self.sums.computed += computed
            self.sums.floor += expected.floor or 0
            if expected.divergence is not None:
                self.sums.divergence[expected.divergence] = self.sums.divergence.get(expected.divergence, 0) + expected.diverged
            return Outcome(expected, entry, cause, None if cached is None else cached - expected.captured, computed)

    def settle_reads(self, expected: Sequence[Expectation], hits: int | None, *, looked_up: bool = True) -> list[Outcome]:
        """Enter reads that were sent together, measured together by the worker's counters.

        Each read after the first finds what its siblings computed, so of all hits only those of the first tell what was there before: the
        others' share is known by construction and taken off. Where that leaves no possible figure, nothing was measured.

        Args:
            expected: What one :meth:`expect` gave.
            hits: Tokens found by all of them together; ``None`` where refused.
            looked_up: False where the counters show that the engine did not look.
        """
        # vLLM mostly runs the first at once and alone; the others have arrived when it ends, and hold their partial blocks together
        partial = [0, *accumulate((one.prompt.tokens % self.block_size > 0 for one in expected[1:]), initial=0)]
        if hits is not None and hits == self.predicted_hits(expected):
            # all were right together; a question asked before is found by itself, beyond what its sibling shares
            return [self.settle(one, one.captured, looked_up=looked_up, beside=n) for one, n in zip(expected, partial, strict=False)]
        there = None
        if hits is not None:
            there = hits - sum(one.sibling for one in expected[1:])
            if there < 0 or there % self.granularity:
                there = None
        outcomes: list[Outcome] = []
        for number, one in enumerate(expected):
            found = there
            if found is not None and number:
                found = min(found, one.captured if found >= expected[0].captured else found)
            outcomes.append(self.settle(one, found, looked_up=looked_up, beside=partial[number]))
        return outcomes

    def predicted_hits(self, expected: Sequence[Expectation]) -> int:
        """What the counters should move by for reads sent together: siblings included."""
        return sum(max(one.captured, one.sibling) for one in expected)

    def _expect(self, worker: str, known: _Worker, prompt: Prompt) -> Expectation:
        names, block = prompt.names, self.block_size
        blocks = self._ever(known, names)
        shared = min(blocks * block, prompt.tokens)
        reusable = self._reach(blocks, prompt)
        here = known.index.find(names, prompt.tokens)
        captured = here.tokens if known.reads_cache else 0
        elsewhere = (w.index.find(names, prompt.tokens).tokens for name, w in self._workers.items() if name != worker and w.reads_cache)
        diverged, other, kind = self._outside(prompt, shared) if prompt.kind == "call" else (0, 0, None)
        wanted = -(-reusable // block)
        # whatever stands in front of the first block that is not resident is resident: most prompts need no look at single blocks
        resident = min(here.blocks, wanted)
        evidence = bytes([_RESIDENT]) * resident + bytes(self._known_of(known, name) for name in names[resident:wanted])
        return Expectation(
            prompt,
            worker,
            shared,
            reusable,
            max([captured, *elsewhere]),
            captured,
            here.source,
            here.doubt,
            diverged=diverged,
            divergence=kind,
            other_namespace=other,
            floor=self._floor(prompt),
            evidence=evidence,
            sent=time.monotonic(),
        )

    def _ever(self, known: _Worker, names: Sequence[int]) -> int:
        """Leading blocks that any worker stored at any time."""
        own = known.history.now.leading(names)
        if own == len(names):
            return own
        histories = [w.history for w in self._workers.values()]
        count = own
        for name in names[own:]:
            if not any(name in history for history in histories):
                break
            count += 1
        return count

    def _reach(self, blocks: int, prompt: Prompt) -> int:
        return servable(blocks, self.block_size, prompt.tokens, self.granularity)

    def _floor(self, prompt: Prompt) -> int | None:
        if prompt.kind == "read":
            return prompt.question_tokens
        return prompt.tokens - self._reach(self._agent.leading(prompt.names), prompt)

    def _outside(self, prompt: Prompt, shared: int) -> tuple[int, int, Kind | None]:
        """The same rule as ``warmgate.replay.prepare``: whole blocks of the previous prompt that nothing gives back."""
        before = self._latest.get(prompt.session)
        if before is None:
            return 0, 0, None
        plain = prompt.names if prompt.plain is None else prompt.plain
        common = min(common_prefix(list(before.plain), list(plain)) * self.block_size, prompt.tokens)
        reach = min(before.tokens - before.generation_tokens, prompt.tokens) // self.block_size * self.block_size
        other = max(0, common - shared) if before.namespace != prompt.namespace else 0
        diverged = max(0, reach - max(common, shared))
        return diverged, other, kind_of(before.view, prompt.view) if diverged else None

    def _remember(self, prompt: Prompt) -> None:
        plain = prompt.names if prompt.plain is None else prompt.plain
        self._latest[prompt.session] = _Latest(prompt.namespace, prompt.tokens, plain, prompt.view, prompt.generation_tokens)
        self._latest.move_to_end(prompt.session)
        if len(self._latest) > HELD_SESSIONS:
            self._latest.popitem(last=False)

    @staticmethod
    def _known_of(known: _Worker, name: int) -> int:
        index, history = known.index, known.history
        if name in index:
            return _RESIDENT
        if name in history.now:
            return _EVICTED if index.evicted(name) else _UNSURE
        return _BEFORE_RESTART if name in history.past else _ELSEWHERE

    def _cause(self, expected: Expectation, survived: int, reads_cache: bool, *, measured: bool) -> Cause:
        """Decided at the first block that should have been found and was not."""
        at = survived // self.block_size
        evidence = expected.evidence
        state = evidence[at] if at < len(evidence) else _UNSURE
        if state == _ELSEWHERE:
            return "worker_change"
        if state == _BEFORE_RESTART:
            return "worker_restart"
        if state == _EVICTED and reads_cache:
            # a model that only watches our own calls is proof while it agrees with what was measured
            agreed = not measured or expected.captured == survived or expected.source == "events"
            return "eviction" if agreed else "unknown"
        return "unknown" if reads_cache else "not_read"

    def _learn(
        self,
        known: _Worker,
        expected: Expectation,
        cached: int | None,
        stored: Sequence[int],
        stored_tokens: int | None,
        beside: int,
    ) -> None:
        prompt, index = expected.prompt, known.index
        if stored:
            known.history.now.add(stored)
            if prompt.kind == "call":
                self._agent.add(stored)  # its answer is held too: a later call that brings it back adds nothing to the floor
        if cached is not None and cached != expected.captured and known.reads_cache:
            if index.source == "events":
                if cached > expected.captured and index.doubt is not None:
                    index.confirm(prompt.names[: cached // self.block_size])
            else:
                index.others()
        if index.source == "events":
            index.announced_soon(stored or prompt.names, expected.sent)
        else:
            index.served(stored or prompt.names, stored_tokens or prompt.tokens, prompt.tokens, beside)
