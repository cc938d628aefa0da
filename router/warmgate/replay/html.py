"""A replay as one self-contained page: ``report.html.j2`` with its style and script inside, nothing fetched from anywhere.

Whatever a trace holds passes :func:`_clean` (no control or direction-changing characters, bounded length) and Jinja's escaping.
The page's policy allows its own style and script by their hashes and nothing else.
"""

from __future__ import annotations

import os
from base64 import b64encode
from functools import cache, partial
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Any

from warmgate import __version__
from warmgate.errors import one_line
from warmgate.replay import figures
from warmgate.replay.assumptions import assumptions
from warmgate.replay.breaks import breaks, kinds
from warmgate.replay.charts import SERIES, scenario_bars, session_charts
from warmgate.replay.figures import Figure, count, headline, losses, outside, signed
from warmgate.replay.meaning import GATES, groups, meaning, per_call, scope
from warmgate.replay.remarks import remarks, short_names
from warmgate.replay.result import Replay

if TYPE_CHECKING:
    from jinja2 import Template

TEXT = 600
"""Characters of any one text from a trace. Bounds the page, whatever a trace holds."""
BREAKS = 200
"""Divergences listed, the costliest."""
TRACES = 200
"""Traces listed, the largest."""
REMARKS = 200
"""Notes listed."""


def write_html(replay: Replay, path: str | os.PathLike[str]) -> None:
    """Write the page to ``path``, whole or not at all; ``-`` is standard output.

    Raises:
        OutputError: The path cannot be written.
    """
    from warmgate.output import write_bytes

    write_bytes(os.fspath(path), render_html(replay).encode("utf-8"))


def render_html(replay: Replay) -> str:
    """The page as text. The same replay gives the same page: no date, no random id."""
    style, script = _read("report.css"), _read("report.js")
    found = breaks(replay)
    names = short_names([t.path for t in replay.traces])
    traces = sorted(zip(names, replay.traces, strict=True), key=lambda row: -row[1].prompt_tokens)
    charts, undrawn = session_charts(replay)
    shown = groups(replay)
    said = remarks(replay)
    return _template().render(
        style=_whole(style),
        script=_whole(script),
        style_hash=_digest(style),
        script_hash=_digest(script),
        version=__version__,
        replay=replay,
        totals=replay.totals,
        sessions=sum(t.sessions for t in replay.traces),
        legend=figures.LEGEND,
        cards=_cards(replay),
        figures=[f for f in headline(replay) if f.label not in _CARDS],
        losses=losses(replay.totals),
        outside=outside(replay.totals),
        bars=scenario_bars(shown),
        gates=GATES,
        priced_names={s.name for s in replay.scenarios},
        meaning=meaning(replay),
        scope=scope(replay),
        priced=any(s.tax_ms is not None or s.tax_money is not None for s in replay.scenarios),
        sidecar=any(s.gate == "sidecar" for s in replay.scenarios),
        each=partial(per_call, replay),
        series=SERIES,
        charts=charts,
        undrawn=undrawn,
        names=names,
        breaks=found[:BREAKS],
        breaks_total=len(found),
        kinds=kinds(found)[:20],
        traces=traces[:TRACES],
        more_traces=[trace for _, trace in traces[TRACES:]],
        remarks=said[:REMARKS],
        more_remarks=len(said) - REMARKS,
        assumptions=assumptions(replay),
    )


_CARDS = ("survival", "hit rate", "lost")


def _cards(replay: Replay) -> list[Figure]:
    """The figures that answer the reader's first question; those that are known come first."""
    cards = sorted((f for f in headline(replay) if f.label in _CARDS), key=lambda f: f.basis is None)
    shown = groups(replay)
    taxes = {s.name: per_call(replay, s.tax_tokens) for s in shown[0].scenarios} if shown else {}
    if (aligned := taxes.get("aligned")) is not None:
        others = {"json": "JSON state", "separate": "separate router"}
        detail = "; ".join(f"{said} {signed(taxes[name])}" for name, said in others.items() if name in taxes)
        cards.append(Figure("aligned gate", signed(aligned), "predicted", f"tokens a call{f'; {detail}' if detail else ''}"))
    return cards


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_clean)
    said = (count, signed, figures.percent, figures.ratio, figures.duration, figures.money, figures.plural)
    filters: dict[str, Any] = environment.filters
    filters |= {function.__name__: function for function in said}
    return environment.from_string(_read("report.html.j2"))


def _clean(value: Any) -> Any:
    """What every expression of the template passes before it is escaped."""
    return one_line(value, TEXT) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _whole(text: str) -> Any:
    """Our own style and script, byte for byte: their hashes must hold."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 -- a file of this package


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode("utf-8")).digest()).decode()


@cache
def _read(name: str) -> str:
    return resources.files("warmgate").joinpath("replay", name).read_text("utf-8").replace("\r\n", "\n")
