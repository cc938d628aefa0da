"""Replaying recorded traces: read, prepare, simulate, sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from warmgate.alignment.template import ChatTemplate, TooCostly, arguments
from warmgate.errors import OptionError, TemplateError, TraceError
from warmgate.foreign import items, mapping
from warmgate.prefix.ledger import Entry, Ledger
from warmgate.replay.agreement import Agreement
from warmgate.replay.figures import plain, plural
from warmgate.replay.prepare import HashPreparer, Prepared, TextPreparer
from warmgate.replay.readers._base import Source
from warmgate.replay.result import (
    SCHEMA,
    CallRow,
    DivergedAt,
    Outside,
    Refusal,
    Replay,
    Scenario,
    TaxMs,
    Tokenizer,
    Totals,
    TraceResult,
)
from warmgate.replay.scenarios import NAMES, Costs, Simulation
from warmgate.replay.simulate import AGENT, Route, Sticky, UnboundedWorker
from warmgate.replay.source import expand, open_trace
from warmgate.replay.tokens import BYTES_PER_TOKEN, ExactTokens, ScaledBytes
from warmgate.replay.trace import MAX_QUESTION_TOKENS, MAX_QUESTIONS, BlockPrompt, Call, Stored, TextPrompt, Usage

BLOCK_SIZE = 16
"""Block size for text traces when none is given: vLLM's default on most GPUs."""

SCALE_CALLS = 64
SCALE_BYTES = 32 << 20
"""How much of a text trace is looked at to learn its tokens per byte, before the replay begins."""


MIN_RATIO, MAX_RATIO = 1 / 64, 1.0
"""Tokens per byte that text can have: a token is a byte at least, and a word or a line at most. Counts beyond that are broken."""

MEDIA_TOKENS = 1 << 20
"""Tokens that one part of a prompt which is no text may stand for (an hour of video, a book as a file)."""

_TEXT_PARTS = {"text", "input_text", "output_text", "thinking", "reasoning", "refusal", "summary_text"}


@dataclass(slots=True)
class Options:
    """What a replay can be asked for; the defaults of the command line."""

    workers: int = 1
    route: Route = "sticky"
    kv_tokens: int | None = None
    block_size: int | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    gate_model: str = "shared"
    questions: int = 3
    question_tokens: int = 45
    costs: Costs = field(default_factory=Costs)

    def check(self) -> None:
        """Refuse what no replay can mean.

        Raises:
            OptionError: Names the option and its range.
        """
        ranges: tuple[tuple[str, float | None, float, float], ...] = (
            ("--workers", self.workers, 1, 4096),
            ("--kv-tokens", self.kv_tokens, 1, 1 << 40),
            ("--block-size", self.block_size, 1, 1 << 20),
            ("--questions", self.questions, 0, MAX_QUESTIONS),
            ("--question-tokens", self.question_tokens, 1, MAX_QUESTION_TOKENS),
            ("--prefill-rate", self.costs.prefill_rate, 1e-9, 1e12),
            ("--hop-ms", self.costs.hop_ms, 0, 1e9),
            ("--price-per-mtok", self.costs.price_per_mtok, 0, 1e9),
        )
        for name, value, low, high in ranges:
            if value is not None and not low <= value <= high:  # also refuses nan
                raise OptionError(f"{plain(value)} is out of range", where=name, mend=f"give a number from {plain(low)} to {plain(high)}")


Progress = Callable[[str, int], None]
"""Called with a trace's path and the calls replayed so far."""


def replay(
    names: Sequence[str],
    options: Options,
    *,
    say: Callable[[str], None] = lambda _line: None,
    progress: Progress = lambda _path, _calls: None,
) -> Replay:
    """Replay traces, each on fresh workers, and sum them up.

    Args:
        names: Files, directories, globs; ``-`` is stdin.
        options: See :class:`Options`.
        say: Receives lines for people: skipped records, refused traces.
        progress: Called now and then.

    Raises:
        OptionError: The options contradict each other or the traces.
        TokenizerError: ``--tokenizer`` cannot be used.
        TemplateError: ``--chat-template`` cannot be used.
    """
    options.check()
    template = ChatTemplate.from_file(options.chat_template, options.tokenizer) if options.chat_template else ChatTemplate.default()
    template.check()
    exact = ExactTokens(options.tokenizer, template) if options.tokenizer else None
    total = Ledger()
    result = Replay(SCHEMA, None, "none", [], Totals(), [], [])
    scenarios: dict[tuple[str, str], list[Scenario]] = {}
    for path in expand(names):
        try:
            one = _Trace(path, options, template, exact, len(result.traces), progress)
            one.run(say)
        except TraceError as fault:
            result.refused.append(Refusal(path, str(fault)))
            say(str(fault))
            continue
        result.traces.append(one.result())
        result.calls += one.rows
        total.merge(one.ledger)
        for scenario in one.scenarios():
            scenarios.setdefault((scenario.name, scenario.route), []).append(scenario)
    result.totals = totals_of(total)
    result.scenarios = [_merge(parts) for parts in scenarios.values()]
    result.block_size = _common([t.block_size for t in result.traces if t.block_size is not None])
    kinds = {t.tokenizer for t in result.traces}
    result.tokenizer = "scaled" if "scaled" in kinds else "exact" if "exact" in kinds else "none"
    result.options = _shown(options)
    result.notes = _notes(result)
    return result


class _Trace:
    """One trace on its way through the replay."""

    def __init__(
        self,
        path: str,
        options: Options,
        template: ChatTemplate,
        exact: ExactTokens | None,
        index: int,
        progress: Progress,
    ) -> None:
        self.path = path
        self.options = options
        self.template = template
        self.exact = exact
        self.index = index
        self.progress = progress
        self.ledger = Ledger()
        self.rows: list[CallRow] = []
        self.sessions: dict[str, int] = {}
        self.notes: list[str] = []
        self.format = ""
        self.skipped = 0
        self.block_size: int | None = None
        self.tokenizer: Tokenizer = "none"
        self._simulations: dict[tuple[str, str], Simulation] = {}
        self._hashes: HashPreparer | None = None
        self._text: TextPreparer | None = None
        self._workers: dict[str, UnboundedWorker] = {}
        self._without_prompt = 0
        self._cut = 0
        self._impossible = 0
        self._agreement = Agreement()
        self._recorded_questions = 0

    def run(self, say: Callable[[str], None]) -> None:
        """Read and simulate all calls.

        Raises:
            TraceError: The trace cannot be read, or holds no call.
        """
        with open_trace(self.path, say) as (reader, source):
            self.format = reader.name
            calls = self._scale(reader.read(source), source)
            for number, call in enumerate(calls, 1):
                self._take(call, source)
                if number % 64 == 0:
                    self.progress(self.path, number)
            self.skipped = source.skipped.count
            self.notes += source.notes
        self._close()

    def _scale(self, calls: Iterator[Call], source: Source) -> Iterator[Call]:
        """Look at the first calls to learn how many tokens a byte of text carries, then pass all of them on."""
        if self.exact is not None:
            self.tokenizer = "exact"
            return calls
        seen: list[Call] = []
        size = tokens = counted = 0
        for call in calls:
            seen.append(call)
            if isinstance(call.prompt, BlockPrompt):
                break
            if isinstance(call.prompt, TextPrompt):
                try:
                    text = self.template.render(call.prompt.messages, call.prompt.tools, **arguments(call.prompt.template_kwargs))
                except TooCostly:
                    break
                except TemplateError:
                    continue
                length = len(text.encode("utf-8", "replace"))
                size += length
                if call.usage.prompt_tokens and call.usage.prompt_tokens <= length:
                    tokens += call.usage.prompt_tokens
                    counted += length
            if len(seen) >= SCALE_CALLS or size > SCALE_BYTES:
                break
        else:
            if not tokens and size and source.prompt_tokens:  # the trace was read to its end and reports a sum alone
                tokens, counted = source.prompt_tokens, size
        ratio = tokens / counted if counted else None
        self._ratio = ratio if ratio is not None and MIN_RATIO <= ratio <= MAX_RATIO else None  # a broken count scales nothing
        if self._ratio is not None:
            self.tokenizer = "scaled"
        return chain(seen, calls)

    _ratio: float | None = None

    def _take(self, call: Call, source: Source) -> None:
        index = self.sessions.get(call.session, 0)
        for stored in call.stored:
            self._store(stored)
        prepared: Prepared | None = None
        if not 0 <= (call.questions or 0) <= MAX_QUESTIONS or not 0 <= (call.question_tokens or 0) <= MAX_QUESTION_TOKENS:
            source.skipped(call.line, f"it counts more than {MAX_QUESTIONS:,} questions, or {MAX_QUESTION_TOKENS:,} tokens of them")
            return
        if call.prompt is None:
            self._without_prompt += 1
        else:
            try:
                prepared = self._prepare(call)
            except TemplateError as fault:
                source.skipped(call.line, fault.what)
                return
        self.sessions[call.session] = index + 1
        if prepared is not None and not self._credible(call, prepared):
            self._impossible += 1
            call.usage = Usage(output_tokens=call.usage.output_tokens)
        entry = Entry(call.usage.prompt_tokens, "measured", reported_cached=call.usage.cached_tokens)
        if prepared is not None:
            self._simulate(prepared, entry)
        if entry.reported_cached is not None:
            entry.survived, entry.survived_basis = entry.reported_cached, "measured"
            entry.cause = call.cause  # the engine's loss is measured; its cause is not in the trace unless the workers are
        if prepared is not None and call.worker is not None:
            self._recorded_worker(prepared, call.worker, entry)
        self.ledger.add(entry)
        self.rows.append(self._row(call, index, entry, prepared))

    def _store(self, stored: Stored) -> None:
        """A gate's read: what later prompts find of it counts as shared, and the worker it was on holds it."""
        if self._text is not None:
            return  # of text traces, reads have no text
        if self._hashes is None:
            self._hashes = HashPreparer(self.options.block_size)
        nodes = self._hashes.store(stored)
        if stored.worker is not None:
            worker = self._workers.setdefault(stored.worker, UnboundedWorker())
            worker.serve(AGENT, nodes, len(nodes), stored.prompt.tokens, stored.prompt.tokens)

    def _credible(self, call: Call, prepared: Prepared) -> bool:
        """Whether a tokenizer can make as many tokens as reported out of this prompt: one a byte, and more for what is no text."""
        reported, prompt = call.usage.prompt_tokens, call.prompt
        if reported is None or not isinstance(prompt, TextPrompt):
            return True
        per_byte = MIN_RATIO if self.exact is not None else self._ratio or 1 / BYTES_PER_TOKEN
        size = (prepared.tokens + 1) / per_byte
        if reported <= size:
            return True
        parts = (mapping(part).get("type") for message in prompt.messages for part in items(message.get("content")))
        return reported <= size + MEDIA_TOKENS * sum(kind not in _TEXT_PARTS for kind in parts)

    def _prepare(self, call: Call) -> Prepared:
        if isinstance(call.prompt, BlockPrompt):
            if self._hashes is None:
                self._hashes = HashPreparer(self.options.block_size)
            prepared = self._hashes.prepare(call, call.prompt)
            size = self._hashes.block_size
        else:
            assert isinstance(call.prompt, TextPrompt)
            if self._text is None:
                tokens = self.exact or ScaledBytes(self._ratio)
                self._text = TextPreparer(self.template, tokens, self.options.block_size or BLOCK_SIZE)
            prepared = self._text.prepare(call, call.prompt)
            size = self._text.block_size
        if self.block_size is None:
            self.block_size = size
            self._start(size or BLOCK_SIZE)
        return prepared

    def _start(self, block_size: int) -> None:
        options = self.options
        sticky = Sticky(options.workers)
        routes: list[Route] = ["sticky", "random"]
        if options.route not in routes:
            routes.append(options.route)
        for route in routes:
            for name in NAMES:
                self._simulations[name, route] = Simulation(
                    name,
                    route,
                    sidecar=options.gate_model == "sidecar",
                    workers=options.workers,
                    block_size=block_size,
                    kv_tokens=options.kv_tokens,
                    sticky=sticky,
                )

    def _simulate(self, prepared: Prepared, entry: Entry) -> None:
        call, options = prepared.call, self.options
        questions, each = options.questions, options.question_tokens
        if call.questions is not None:
            self._recorded_questions += 1
            questions = call.questions
            if call.question_tokens and questions:
                each = max(1, round(call.question_tokens / questions))
        for (name, route), simulation in self._simulations.items():
            outcome = simulation.feed(prepared, questions, each)
            if name == "none" and route == options.route:
                entry.survived, entry.cause = outcome.survived, outcome.cause
        if prepared.alone is not None:  # no scenario is the one that was recorded
            entry.survived, entry.cause = call.survived, call.cause
        size = self.block_size or BLOCK_SIZE
        if entry.prompt_tokens is None:
            entry.prompt_tokens = max(prepared.tokens, entry.reported_cached or 0)
            entry.prompt_basis = "measured" if isinstance(call.prompt, BlockPrompt) else "predicted"
        entry.shared = prepared.shared
        entry.reusable = min(prepared.shared, prepared.tokens - 1) // size * size
        entry.divergence, entry.namespace_change = prepared.diverged_tokens, prepared.namespace_tokens
        if self.exact is not None and isinstance(call.prompt, TextPrompt) and (call.usage.prompt_tokens or entry.reported_cached):
            self._agreement.settle(entry, prepared.tokens, entry.prompt_tokens, size)
        if entry.reusable > (most := max(entry.prompt_tokens - 1, 0) // size * size):
            # the provider counts fewer tokens than the text carries here: no more of them can have been reusable
            self._cut += 1
            entry.shared = entry.reusable = most
            entry.survived = None if entry.survived is None else min(entry.survived, most)

    def _recorded_worker(self, prepared: Prepared, name: str, entry: Entry) -> None:
        """Where the trace names its workers, a loss is a change of worker if this one never held the blocks that are missing."""
        size = self.block_size or BLOCK_SIZE
        worker = self._workers.setdefault(name, UnboundedWorker())
        held = worker.hit(AGENT, prepared.nodes, (prepared.tokens - 1) // size) * size
        if (
            entry.cause is None
            and entry.reported_cached is not None
            and entry.reusable is not None
            and held < entry.reusable
            and entry.reported_cached <= held
        ):
            entry.cause = "worker_change"
        worker.serve(AGENT, prepared.stored, len(prepared.stored), prepared.stored_tokens, prepared.tokens)

    def _row(self, call: Call, index: int, entry: Entry, prepared: Prepared | None) -> CallRow:
        divergence = prepared.divergence if prepared is not None else None
        return CallRow(
            session=call.session,
            index=index,
            model=call.model,
            prompt_tokens=entry.prompt_tokens,
            reusable=entry.reusable,
            survived=entry.survived,
            basis=None if entry.survived is None else entry.survived_basis,
            lost=entry.lost,
            cause=(entry.cause or "unknown") if entry.lost else None,
            diverged_at=None if divergence is None else DivergedAt(divergence.message, divergence.field, divergence.token),
            why=None if divergence is None else divergence.why,
            diverged_tokens=0 if prepared is None else prepared.diverged_tokens,
            trace=self.index,
        )

    def _close(self) -> None:
        if not self.rows:
            raise TraceError(
                f"recognised as {self.format}, but none of its calls could be replayed",
                where=self.path,
                mend="see the skipped records above" if self.skipped else "is it the right file?",
            )
        if self._text is None:
            self.tokenizer = "none"
        elif self.tokenizer == "scaled":
            assert self._ratio is not None
            self.notes.append(
                f"no tokenizer: text is counted in bytes at {1 / self._ratio:.2f} bytes a token, learnt from the trace's own counts; "
                "--tokenizer makes it exact"
            )
        elif self.tokenizer == "none":
            self.notes.append("no tokenizer and no usable counts: 4 bytes of text are taken for a token; --tokenizer makes it exact")
        if self._text is not None:
            self.notes += self._text.notes()
        if (doubt := self._agreement.note()) is not None:
            self.notes.append(doubt)
        if self._impossible:
            self.notes.append(
                f"{plural(self._impossible, 'call')} with more prompt tokens reported than the text has bytes: either the count is broken "
                "or the trace leaves out a part of the prompt; what was reported is not used"
            )
        if self._cut:
            self.notes.append(
                f"{plural(self._cut, 'call')} with fewer prompt tokens reported than the text carries as counted here: reusable tokens are "
                "cut to the reported prompt; scenarios rest on the text as counted"
            )
        if self._without_prompt:
            self.notes.append(
                f"{self._without_prompt:,} of {plural(len(self.rows), 'call')} with usage but no whole prompt: reusable tokens, survival "
                "and scenarios leave them out"
            )
        if self._recorded_questions:
            self.notes.append(f"questions per turn come from the trace for {plural(self._recorded_questions, 'call')}")
        if (refused := self._refused()) is not None:
            self.notes.append(refused)

    def _refused(self) -> str | None:
        """What is larger than a whole cache, in the scenarios of the route asked for."""
        mine = {name: s for (name, route), s in self._simulations.items() if route == self.options.route}
        parts = [plural(mine["none"].refused_calls, "call")] if mine and mine["none"].refused_calls else []
        parts += [f"the gate's reads before {plural(s.refused_asks, 'call')} ({name})" for name, s in mine.items() if s.refused_asks]
        if not parts:
            return None
        return (
            f"larger than --kv-tokens: {', '.join(parts)}; an engine refuses such requests; here they are priced as computed in full, "
            "find nothing cached and leave nothing behind"
        )

    def result(self) -> TraceResult:
        """This trace's part of the output."""
        return TraceResult(
            path=self.path,
            format=self.format,
            sessions=len(self.sessions),
            calls=len(self.rows),
            prompt_tokens=self.ledger.prompt_tokens,
            skipped_lines=self.skipped,
            totals=totals_of(self.ledger),
            block_size=self.block_size,
            tokenizer=self.tokenizer,
            notes=self.notes,
        )

    def scenarios(self) -> list[Scenario]:
        """This trace's scenarios; none where no call has a prompt."""
        return [s.result(self._simulations["none", s.route], self.options.costs) for s in self._simulations.values()]


def totals_of(ledger: Ledger) -> Totals:
    """A ledger's sums in the result's form."""
    return Totals(
        calls=ledger.calls,
        prompt_tokens=ledger.prompt_tokens,
        reusable_tokens=ledger.reusable,
        survived_tokens=ledger.survived,
        survival=ledger.survival,
        hit_rate=ledger.hit_rate,
        intra_call_reuse=ledger.intra_call,
        surplus_tokens=ledger.surplus,
        lost_tokens=ledger.lost,
        outside=Outside(ledger.divergence, ledger.namespace_change, ledger.rounding),
        reported_cached_tokens=ledger.reported_cached,
        basis=ledger.basis,
    )


def _merge(parts: Sequence[Scenario]) -> Scenario:
    """Sum one scenario over several traces."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    computed, floor = sum(p.computed_tokens for p in parts), sum(p.floor_tokens for p in parts)
    reusable = sum(p.reusable_tokens for p in parts)
    taxes = [p.tax_ms for p in parts if p.tax_ms is not None]
    return Scenario(
        name=first.name,
        route=first.route,
        gate=first.gate,
        computed_tokens=computed,
        floor_tokens=floor,
        compute_ratio=computed / floor if floor else None,
        survival=sum(p.survived_tokens for p in parts) / reusable if reusable else None,
        tax_tokens=sum(p.tax_tokens for p in parts),
        tax_ms=TaxMs(_total([t.hop for t in taxes]), _total([t.prefill for t in taxes])) if taxes else None,
        tax_money=_total([p.tax_money for p in parts]),
        gate_tokens=sum(p.gate_tokens for p in parts),
        reusable_tokens=reusable,
        survived_tokens=sum(p.survived_tokens for p in parts),
    )


def _total(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _common(sizes: Sequence[int]) -> int | None:
    return sizes[0] if sizes and len(set(sizes)) == 1 else None


def _shown(options: Options) -> dict[str, Any]:
    shown = asdict(options)
    costs = shown.pop("costs")
    return {**shown, **costs}


def _notes(result: Replay) -> list[str]:
    notes: list[str] = []
    sizes = {t.block_size for t in result.traces if t.block_size is not None}
    if len(sizes) > 1:
        notes.append(f"traces have different block sizes ({', '.join(map(str, sorted(sizes)))}): totals add them up as they are")
    if result.traces and not result.scenarios:
        notes.append("no scenarios: they need the prompts' text or block hashes, and these traces record usage alone")
    if len(result.traces) > 1:
        notes.append("each trace was replayed alone, on fresh workers")
    return notes
