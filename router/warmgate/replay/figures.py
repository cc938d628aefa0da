"""How the figures of a replay are named and written for people. Shared by the terminal table and the HTML report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warmgate.replay.result import Basis, CallRow, Replay, Totals

UNKNOWN = "n/a"
"""Shown where the trace cannot know a figure. Never 0: not applicable is not zero."""

LEGEND: dict[Basis, str] = {
    "measured": "reported by the provider or the engine",
    "predicted": "computed from the trace's text or block hashes",
}

CAUSES: dict[str, str] = {
    "worker_change": "sent to a worker without the prefix",
    "worker_restart": "the worker that held it restarted",
    "eviction": "evicted for lack of room",
    "not_read": "the engine skips its cache here",
    "unknown": "the trace does not say why",
}
"""Why reusable tokens did not survive, in the order in which causes are tried. Short enough for one line of a terminal."""

OUTSIDE: dict[str, str] = {
    "divergence": "does not extend the previous prompt",
    "namespace_change": "of another model, LoRA or salt only",
    "rounding": "part of a block, or the last token",
}
"""What lies outside R: tokens that no cache could have served."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One headline figure: its name, its value as text, what it rests on and a sentence beside it."""

    label: str
    value: str
    basis: Basis | None
    detail: str


@dataclass(frozen=True, slots=True)
class Part:
    """One row of a breakdown. ``share`` is of the whole that the breakdown divides, or None where that is 0 or unknown."""

    name: str
    tokens: int
    share: float | None
    meaning: str


def count(value: float | None) -> str:
    """A whole number with thousands separators. Averages below 10 keep one decimal, so that 0.4 does not read as nothing."""
    if value is None:
        return UNKNOWN
    whole = round(value)
    if abs(value) < 10 and abs(value - whole) >= 0.05:
        return f"{value:.1f}"
    if whole == 0 and value:
        return "< 0.1" if value > 0 else "> −0.1"
    return _minus(f"{whole:,}")


def signed(value: float | None) -> str:
    """Like :func:`count`, with a plus where something is added."""
    return f"+{count(value)}" if value is not None and value > 0 else count(value)


def compact(value: float | None) -> str:
    """Three significant digits and a unit, for narrow columns: ``12.3 M``."""
    if value is None or abs(value) < 10_000:
        return count(value)
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if abs(value) < 999.5 * size:
            return _minus(f"{_three(value / size)} {unit}")
    return _minus(f"{_three(value / 1e12)} T")


def percent(value: float | None) -> str:
    """A share with one decimal. What is not all never reads as 100 %, and what is not nothing never as 0 %."""
    if value is None:
        return UNKNOWN
    if 0.9995 <= value < 1:
        return "> 99.9 %"
    if 0 < value < 0.0005:
        return "< 0.1 %"
    return _minus(f"{value * 100:,.1f} %")


def ratio(value: float | None) -> str:
    """Computed over floor, three decimals."""
    return UNKNOWN if value is None else f"{value:,.3f}"


def duration(ms: float | None) -> str:
    """Milliseconds in the unit that reads best: ms, s, min or h."""
    if ms is None:
        return UNKNOWN
    for unit, size, until in (("ms", 1, 1e3), ("s", 1e3, 1.2e5), ("min", 6e4, 7.2e6)):
        if abs(ms) < until:
            return _minus(f"{_three(ms / size)} {unit}")
    return _minus(f"{ms / 3.6e6:,.1f} h")


def money(value: float | None) -> str:
    """An amount in whatever currency the price was given in: cents, or three significant digits below one."""
    if value is None:
        return UNKNOWN
    return _minus(f"{value:,.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}")


def plain(number: float) -> str:
    """A number of the command line, spelt as a person would: ``1000000000000``, ``0.000000001``, ``1.5``."""
    if number != number or abs(number) >= 1e15:
        return f"{number:g}"
    return f"{number:.9f}".rstrip("0").rstrip(".")


def plural(number: int, word: str) -> str:
    """``1 call``, ``2 calls``."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _three(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 99.95 or value == round(value) else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def _minus(text: str) -> str:
    return text.replace("-", "−")


def headline(replay: Replay) -> list[Figure]:
    """The figures that come first: prompts, survival, hit rate, what was lost, and what the trace itself reports."""
    totals, rows = replay.totals, replay.calls
    basis = totals.basis.get
    recorded = sum(row.prompt_tokens is not None for row in rows)
    detail = f"in {plural(totals.calls, 'call')}" if recorded == len(rows) else f"in the {recorded:,} of {totals.calls:,} calls that say"
    figures = [Figure("prompt tokens", count(totals.prompt_tokens), basis("prompt_tokens"), detail)]
    figures += [_survival(totals, rows), _hit_rate(totals, rows)]
    if totals.reusable_tokens is not None:
        lost = sum(totals.lost_tokens.values())
        figures.append(Figure("lost", count(lost), basis("lost_tokens"), "reusable tokens computed again"))
    if (reported := totals.reported_cached_tokens) is not None:
        figures.append(Figure("reported cached", count(reported), basis("reported_cached_tokens"), "what the trace itself says was cached"))
    if totals.intra_call_reuse:
        detail = "tokens shared with reads of the same call; no part of R"
        figures.append(Figure("reuse within a call", count(totals.intra_call_reuse), basis("survival"), detail))
    if totals.surplus_tokens:
        detail = "tokens survived beyond R: the cache was warm before the trace began, or the replay's model or tokenizer is wrong"
        figures.append(Figure("surplus", count(totals.surplus_tokens), basis("survival"), detail))
    return figures


def _survival(totals: Totals, rows: Sequence[CallRow]) -> Figure:
    if totals.survival is None:
        if not totals.calls:
            why = "no calls"
        elif totals.reusable_tokens is None:
            why = "no prompts are recorded: what could have been reused is unknown"
        elif totals.reusable_tokens == 0:
            why = "not applicable: no call could have reused anything (R = 0)"
        else:
            why = "what survived is not recorded"
        return Figure("survival", UNKNOWN, None, why)
    known = [r for r in rows if r.reusable is not None and r.survived is not None]
    kept, reusable = sum(r.survived or 0 for r in known), sum(r.reusable or 0 for r in known)
    detail = f"{count(kept)} of {count(reusable)} reusable tokens" if reusable else "of the reusable tokens"
    if len(known) < len(rows):
        detail += f", in the {plural(len(known), 'call')} with a prompt"
    if known and all(r.basis == "measured" for r in known):
        detail += "; survived is measured, reusable predicted"
    return Figure("survival", percent(totals.survival), totals.basis.get("survival"), detail)


def _hit_rate(totals: Totals, rows: Sequence[CallRow]) -> Figure:
    if totals.hit_rate is None:
        return Figure("hit rate", UNKNOWN, None, "what survived is not recorded" if totals.calls else "no calls")
    known = [r for r in rows if r.prompt_tokens is not None and r.survived is not None]
    kept, prompt = sum(r.survived or 0 for r in known), sum(r.prompt_tokens or 0 for r in known)
    detail = f"{count(kept)} of {count(prompt)} prompt tokens" if prompt else "of the prompt tokens"
    if len(known) < len(rows):
        detail += f", in the {plural(len(known), 'call')} that say both"
    return Figure("hit rate", percent(totals.hit_rate), totals.basis.get("hit_rate"), detail)


def losses(totals: Totals) -> list[Part]:
    """What was lost inside R, by cause, largest first. Shares are of R."""
    return _parts(totals.lost_tokens, CAUSES, totals.reusable_tokens)


def outside(totals: Totals) -> list[Part]:
    """What lies outside R, in the order of the definitions. Empty where R is unknown. Shares are of all prompt tokens."""
    if totals.reusable_tokens is None:
        return []
    tokens = {name: getattr(totals.outside, name) for name in OUTSIDE}
    return [Part(name, n, _share(n, totals.prompt_tokens), OUTSIDE[name]) for name, n in tokens.items()]


def _parts(tokens: Mapping[str, int], meanings: Mapping[str, str], whole: int | None) -> list[Part]:
    rows = [Part(name, n, _share(n, whole), meanings.get(name, "")) for name, n in tokens.items() if n]
    return sorted(rows, key=lambda part: (-part.tokens, part.name))


def _share(part: int, whole: int | None) -> float | None:
    return part / whole if whole else None
