"""Realistic replays made by hand: what the table and the report show, without running the engine.

Totals are the sums of the rows, as the engine's are; scenarios follow the same trace, so that ratios and taxes fit together.
"""

from __future__ import annotations

from typing import Any

from warmgate.replay.result import SCHEMA, CallRow, DivergedAt, Outside, Refusal, Replay, Scenario, TaxMs, Totals, TraceResult

BLOCK = 16
WHYS = (
    ("tools changed: added web_search; removed run_tests", DivergedAt(None, "tools", 420)),
    ('system prompt changed: after "…The time is " "09:14:02" became "09:15:40"', DivergedAt(0, "content", 96)),
    ("thinking stripped from an earlier turn", DivergedAt(3, "reasoning_content", 2_210)),
    ('history edited: tool message, after "" "3 passed" became "(output cut)"', DivergedAt(5, "content", 3_007)),
)
ROUTES = ("sticky", "random")


def rows(sessions: int = 3, calls: int = 8, *, trace: int = 0, parts: bool = True, losses: bool = True) -> list[CallRow]:
    """Sessions that grow call by call, now and then lose blocks or part from their previous prompt."""
    found: list[CallRow] = []
    for s in range(sessions):
        before = 0
        for c in range(calls):
            prompt = 2_900 + 1_037 * c + 211 * s
            at, why, shared = None, None, before
            if parts and c and (c + s) % 5 == 0:
                why, at = WHYS[(c + s) // 5 % len(WHYS)]
                shared = min(before, at.token or 0)
            reusable = min(shared, prompt - 1) // BLOCK * BLOCK
            lost, cause = 0, None
            if losses and reusable and (c + 2 * s) % 6 == 3:
                lost, cause = (reusable, "worker_change") if s % 2 else (reusable // 2 // BLOCK * BLOCK, "eviction")
            found.append(
                CallRow(
                    f"session-{s}",
                    c,
                    "qwen3",
                    prompt,
                    reusable,
                    reusable - lost,
                    "predicted",
                    lost,
                    cause,
                    at,
                    why,
                    trace,
                    64 * c if at else 0,
                )
            )
            before = prompt
    return found


def usage_rows(sessions: int = 2, calls: int = 5, *, trace: int = 0) -> list[CallRow]:
    """Calls of which only the provider's usage is recorded: no R, no survival."""
    return [
        CallRow(f"usage-{s}", c, "gpt", 4_000 + 900 * c, None, 3_072 + 880 * c if c else 0, "measured", 0, None, None, None, trace)
        for s in range(sessions)
        for c in range(calls)
    ]


def totals_of(found: list[CallRow]) -> Totals:
    """Sums of rows, by the definitions."""
    totals = Totals(calls=len(found), prompt_tokens=sum(r.prompt_tokens or 0 for r in found))
    known = [r for r in found if r.reusable is not None]
    kept = [r for r in found if r.survived is not None]
    both = [r for r in known if r.survived is not None]
    measured = all(r.basis == "measured" for r in kept)
    if known:
        totals.reusable_tokens = sum(r.reusable or 0 for r in known)
        totals.basis |= {"reusable_tokens": "predicted", "outside": "predicted", "lost_tokens": "predicted"}
        rounding = sum(r.prompt_tokens or 0 for r in known) % 997
        totals.outside = Outside(divergence=sum(1_500 for r in known if r.diverged_at), rounding=rounding)
    if kept:
        totals.survived_tokens = sum(r.survived or 0 for r in kept)
        totals.hit_rate = totals.survived_tokens / (sum(r.prompt_tokens or 0 for r in kept) or 1)
        totals.basis |= {"survived_tokens": "measured" if measured else "predicted", "hit_rate": "measured" if measured else "predicted"}
    if both and (reusable := sum(r.reusable or 0 for r in both)):
        totals.survival = sum(r.survived or 0 for r in both) / reusable
        totals.basis["survival"] = "predicted"
    if found:
        totals.basis["prompt_tokens"] = "measured"
    for row in known:
        if row.lost and row.cause:
            totals.lost_tokens[row.cause] = totals.lost_tokens.get(row.cause, 0) + row.lost
    return totals


def scenarios(found: list[CallRow], *, gate: str = "shared", each: int = 150, priced: bool = False) -> list[Scenario]:
    """Four gates on two routes; ``each`` is what an aligned gate adds to a call."""
    known = [r for r in found if r.reusable is not None]
    prompt, reusable = sum(r.prompt_tokens or 0 for r in known), sum(r.reusable or 0 for r in known)
    floor, calls = prompt - reusable, len(known)
    made: list[Scenario] = []
    for route, worse in zip(ROUTES, (1.0, 2.6), strict=True):
        alone = round(floor * worse)
        taxes = {"none": 0, "separate": round(alone * 0.98), "json": round(alone * 1.02 * worse), "aligned": each * calls}
        for name, tax in taxes.items():
            computed, low = alone + tax, floor + (0 if name == "none" else 135 * calls)
            asked = 0 if name == "none" else calls
            made.append(
                Scenario(
                    name,
                    route,
                    "none" if name == "none" else gate,
                    computed,
                    low,
                    computed / low if low else None,
                    (reusable - alone + floor) / reusable if reusable else None,
                    tax,
                    TaxMs(asked * 4.0, tax / 8.0) if priced else None,
                    tax * 0.3e-6 if priced else None,
                    gate_tokens=tax,
                    reusable_tokens=reusable,
                    survived_tokens=max(0, reusable - alone + floor),
                )
            )
    return made


OPTIONS: dict[str, Any] = {
    "workers": 2,
    "route": "sticky",
    "kv_tokens": None,
    "block_size": None,
    "tokenizer": None,
    "chat_template": None,
    "gate_model": "shared",
    "questions": 3,
    "question_tokens": 45,
    "prefill_rate": None,
    "hop_ms": None,
    "price_per_mtok": None,
}


def trace_of(
    found: list[CallRow], path: str, form: str = "openai_chat", *, notes: list[str] | None = None, skipped: int = 0
) -> TraceResult:
    """A trace of these rows."""
    totals = totals_of(found)
    known = totals.reusable_tokens is not None
    sessions = len({r.session for r in found})
    size = BLOCK if known else None
    return TraceResult(
        path, form, sessions, len(found), totals.prompt_tokens, skipped, totals, size, "exact" if known else "none", notes or []
    )


def replay_of(found: list[CallRow], *, traces: list[TraceResult] | None = None, priced: bool = False, **changes: Any) -> Replay:
    """A replay of these rows, in one trace unless ``traces`` says otherwise. ``changes`` replace fields."""
    known = any(r.reusable is not None for r in found)
    fields: dict[str, Any] = {
        "block_size": BLOCK if known else None,
        "tokenizer": "exact" if known else "none",
        "traces": [trace_of(found, "traces/agent.jsonl")] if traces is None else traces,
        "totals": totals_of(found),
        "scenarios": scenarios(found, priced=priced) if known else [],
        "calls": found,
        "options": dict(OPTIONS, **({"prefill_rate": 8000.0, "hop_ms": 4.0, "price_per_mtok": 0.3} if priced else {})),
    }
    return Replay(schema=SCHEMA, **(fields | changes))


def typical() -> Replay:
    """Two traces with prompts, one with usage alone, losses, divergences, notes, a skipped record and a refused trace."""
    first, second, third = rows(3, 9), rows(2, 30, trace=1), usage_rows(trace=2)
    note = "66 of 66 calls record usage but no whole prompt: reusable tokens, survival and scenarios leave them out"
    traces = [
        trace_of(first, "runs/monday/agent.jsonl"),
        trace_of(second, "runs/tuesday/agent.jsonl", skipped=2),
        trace_of(third, "runs/codex/rollout.jsonl", "codex", notes=[note]),
    ]
    everything = first + second + third
    refused = [Refusal("runs/broken.json", "runs/broken.json: not JSON; is it the right file?")]
    notes = ["each trace was replayed alone, on fresh workers"]
    return replay_of(everything, traces=traces, priced=True, refused=refused, notes=notes)


def usage_alone() -> Replay:
    """Provider usage and nothing else: survival is not known, the hit rate is measured."""
    replay = replay_of(usage_rows())
    replay.totals.reported_cached_tokens = replay.totals.survived_tokens
    replay.totals.basis["reported_cached_tokens"] = "measured"
    return replay


def without_calls() -> Replay:
    """A trace with no call in it, and one refused."""
    return replay_of([], traces=[trace_of([], "empty.jsonl")], refused=[Refusal("other.json", "other.json: not a trace")])


def nothing_reusable() -> Replay:
    """One call a session: R is 0, so survival is not applicable."""
    return replay_of(rows(4, 1))


HOSTILE = "[bold red]x[/] </style></script><script>alert(1)</script> \x1b[31m\x07\u202egnp.exe\u2066 ${7*7} {{7*7}} :boom: \ud800 &amp; \"'"
"""What a trace may hold: markup of terminals and pages, escapes, direction overrides, template syntax, half a surrogate pair."""


def hostile() -> Replay:
    """:data:`HOSTILE` wherever a trace or a file name can put text."""
    found = rows(2, 9)
    for row in found:
        row.session, row.model = HOSTILE + row.session, HOSTILE
        if row.diverged_at is not None:
            row.why, row.diverged_at = f"history edited: {HOSTILE * 40}", DivergedAt(2, HOSTILE, 77)
        if row.cause is not None:
            row.cause = HOSTILE
    traces = [trace_of(found, HOSTILE, HOSTILE, notes=[HOSTILE], skipped=1), trace_of(usage_rows(trace=1), f"other/{HOSTILE}")]
    made = scenarios(found)
    return replay_of(
        found,
        traces=traces,
        scenarios=made,
        refused=[Refusal(HOSTILE, HOSTILE)],
        notes=[HOSTILE],
        options=dict(OPTIONS, chat_template=HOSTILE, **{HOSTILE: HOSTILE}),
    )


def large(calls: int = 100_000) -> Replay:
    """Hundreds of traces and thousands of divergences, each with a long reason."""
    found: list[CallRow] = []
    traces: list[TraceResult] = []
    number = 0
    while len(found) < calls:
        some = rows(4, 250, trace=number)
        for row in some:
            row.session = f"{row.session}-{number}-{'x' * 60}"
            row.why = row.why and f"{row.why} {'<&' * 400}"
        traces.append(
            trace_of(some, f"runs/{number:05}/{'trace-' * 20}.jsonl", notes=[f"{number} odd {'things ' * 60}", f"note-{'ab' * number}"])
        )
        found += some
        number += 1
    return replay_of(found, traces=traces)
