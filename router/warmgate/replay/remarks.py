"""What readers must know beside the figures: traces refused, records skipped, and the notes. Alike ones are said once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from warmgate.replay.figures import plural
from warmgate.replay.names import shown
from warmgate.replay.result import Replay


@dataclass(frozen=True, slots=True)
class Remark:
    """One line for people. ``where`` names the trace (``and 3 more`` where others say the same), or is empty for all of them."""

    kind: Literal["refused", "skipped", "note"]
    where: str
    text: str


def remarks(replay: Replay) -> list[Remark]:
    """Refused traces first, then skipped records, then notes of traces, then notes of the whole."""
    names = short_names([t.path for t in replay.traces])
    several = len(names) > 1
    found = [Remark("refused", shown(r.path), r.reason.removeprefix(f"{shown(r.path)}: ")) for r in replay.refused]
    for name, trace in zip(names, replay.traces, strict=True):
        if trace.skipped_lines:
            found.append(Remark("skipped", name if several else "", f"{plural(trace.skipped_lines, 'record')} left out of the figures"))
    alike: dict[str, list[tuple[str, str]]] = {}
    for name, trace in zip(names, replay.traces, strict=True):
        for note in trace.notes:
            alike.setdefault(re.sub(r"\d[\d.,]*", "#", note), []).append((name, note))
    for same in alike.values():
        name, note = same[0]
        others = len(same) - 1
        if others and any(one != note for _, one in same):  # the figures are the first trace's alone
            note = f"{note} ({plural(others, 'more trace')} with figures of {'its' if others == 1 else 'their'} own)"
        elif others:
            name = f"{name} and {others:,} more"
        found.append(Remark("note", name if several else "", note))
    return found + [Remark("note", "", note) for note in replay.notes]


def short_names(paths: Sequence[str]) -> list[str]:
    """Paths without the folders that all of them share, so that what tells them apart is what is seen."""
    parts = [PurePath(path).parts for path in paths]
    if len(parts) < 2:
        return [PurePath(path).name or path for path in paths]
    shared = 0
    while all(len(p) > shared + 1 for p in parts) and len({p[shared] for p in parts}) == 1:
        shared += 1
    return [str(PurePath(*p[shared:])) if p else path for p, path in zip(parts, paths, strict=True)]
