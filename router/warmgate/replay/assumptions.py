"""What the figures of a replay rest on: block size, tokenizer, and what the simulated workers and gates were taken to be."""

from __future__ import annotations

from typing import Any

from warmgate.replay.figures import count, plural
from warmgate.replay.result import Replay


def assumptions(replay: Replay) -> list[tuple[str, str]]:
    """What the figures rest on, as pairs of a name and what holds for it. Options that this version does not know are shown as they are."""
    given = {name: value for name, value in replay.options.items() if value is not None and name not in ("block_size", "tokenizer")}
    rest: list[tuple[str, str]] = []
    sizes = sorted({t.block_size for t in replay.traces if t.block_size is not None} or {replay.block_size or 0} - {0})
    if sizes:
        rest.append(("block size", f"{', '.join(map(count, sizes))} tokens"))
    rest.append(("tokens", _TOKENIZERS[replay.tokenizer]))
    if (template := given.pop("chat_template", None)) is not None:
        rest.append(("chat template", str(template)))
    rest += _simulation(given, priced=bool(replay.scenarios))
    rest += [(name.replace("_", " "), str(value)) for name, value in given.items()]
    return rest


def _simulation(given: dict[str, Any], *, priced: bool) -> list[tuple[str, str]]:
    """Options that only a simulated cache depends on, taken out of ``given``; none of them where nothing was simulated."""
    names = ("workers", "route", "kv_tokens", "questions", "question_tokens", "gate_model", *_UNITS)
    taken = {name: given.pop(name) for name in names if name in given}
    if not priced:
        return []
    rest: list[tuple[str, str]] = []
    if (workers := taken.get("workers")) is not None:
        rest.append(("workers", f"{workers}, routed {str(taken.get('route', 'sticky')).replace('_', ' ')}"))
        kv = taken.get("kv_tokens")
        rest.append(("cache of each worker", "unbounded" if kv is None else f"{count(kv)} tokens"))
    if (asked := taken.get("questions")) is not None:
        each = plural(taken.get("question_tokens", 0), "token")
        rest.append(("gate", f"{plural(asked, 'question')} a turn of {each} each, unless the trace records its own"))
    if (gate := taken.get("gate_model")) is not None:
        rest.append(("gate model", _GATES.get(gate, str(gate))))
    rest += [(label, f"{taken[name]:,g} {unit}") for name, (label, unit) in _UNITS.items() if name in taken]
    rest.append(("JSON state", "priced at as many tokens as the prompt it restates"))
    rest.append(("cache rule", "full attention: every full block of a prefix can be hit"))
    return rest


_UNITS = {
    "prefill_rate": ("prefill rate", "tokens a second"),
    "hop_ms": ("hop", "ms a decision"),
    "price_per_mtok": ("price", "a million tokens"),
}
_GATES = {"shared": "the agent's own (shared)", "sidecar": "a small one on its own workers (sidecar)"}
_TOKENIZERS = {
    "exact": "counted with the tokenizer given",
    "scaled": "text counted in bytes, at the trace's own bytes a token",
    "none": "as recorded; where only text is, 4 bytes a token",
}
