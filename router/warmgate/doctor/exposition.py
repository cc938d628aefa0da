"""Samples of a Prometheus text exposition: as much of the format as vLLM's ``/metrics`` uses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a series and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


class Metrics:
    """The samples of one scrape, by name.

    Args:
        text: The exposition. Lines that are not samples are skipped: a page of HTML has none.
    """

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[Sample]] = {}
        for sample in _parse(text):
            self._samples.setdefault(sample.name, []).append(sample)

    @property
    def names(self) -> AbstractSet[str]:
        """The metric names that have a sample."""
        return self._samples.keys()

    def of(self, name: str) -> list[Sample]:
        """The samples of a metric; none where it is missing."""
        return self._samples.get(name, [])

    def total(self, name: str) -> float | None:
        """The sum over all labels, or None where the metric is missing."""
        samples = self.of(name)
        return math.fsum(sample.value for sample in samples) if samples else None


def _parse(text: str) -> Iterator[Sample]:
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = _SAMPLE.fullmatch(line)
        if found is None:
            continue
        name, labels, number = found.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        if math.isfinite(value):
            yield Sample(name, _labels(labels or ""), value)


def _labels(text: str) -> dict[str, str]:
    return {name: re.sub(r"\\.", lambda m: _ESCAPES.get(m[0], m[0]), value) for name, value in _LABEL.findall(text)}
