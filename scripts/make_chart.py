"""Draw docs/figures/two-prefills.svg from docs/figures/two-prefills.json, so that the picture cannot say what was not measured.

python scripts/make_chart.py                  # draws the picture from the figures
python scripts/make_chart.py --from run.log   # takes the figures from what `make bench-engine ONLY=seed,ten` printed, then draws
"""

from __future__ import annotations

import argparse
import json
import re
from html import escape
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
DATA = FIGURES / "two-prefills.json"
PICTURE = FIGURES / "two-prefills.svg"

COMMAND = "make bench-engine ONLY=seed,ten"
SETTING = "vLLM 0.32.0 on a CPU, Qwen3 with random weights, 3 questions a decision, block size 32"
WAYS = {
    "none": "no gate",
    "separate": "a router of its own",
    "json": "systemone, JSON state",
    "aligned": "warmgate, aligned state",
}

_WAY = re.compile(
    r"^\W*(?:ok\s+)?(none|separate|json|aligned)\s+computed\s+([\d,]+)\s+floor\s+([\d,]+)(?:.*cached\s+([\d,]+) of ([\d,]+))?", re.MULTILINE
)

# Units of the picture.
WIDTH, LEFT, ROW, BAR = 860, 190, 30, 18
SCALE = 500

STYLE = """
  .paper { fill: #ffffff; stroke: #d0d7de } .title { fill: #1f2328; font-weight: 600 } .text { fill: #1f2328 } .faint { fill: #59636e }
  .bar { fill: #8c959f } .ours { fill: #1a7f6b } .floor { stroke: #cf222e; stroke-width: 2 } .key { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; stroke: #3d444d } .title, .text { fill: #e6edf3 } .faint { fill: #9198a1 }
    .bar { fill: #6e7681 } .ours { fill: #2fb59b } .floor { stroke: #ff7b72 } .key { fill: #ff7b72 }
  }
"""


def read(log: str) -> dict[str, Any]:
    """The figures in what ``make bench-engine ONLY=seed,ten`` printed.

    Args:
        log: Its output; other scenarios' lines are left out.

    Returns:
        What ``two-prefills.json`` holds; counts are tokens.

    Raises:
        ValueError: A scenario or a way of gating is missing.
    """
    parts = {"seed": _between(log, "== seed", "== ten"), "ten": _between(log, "long turns:", "short turns:")}
    panels = [_panel(name, part) for name, part in parts.items()]
    return {"command": COMMAND, "setting": SETTING, "unit": "prompt tokens computed by the engines, measured", "panels": panels}


def _between(log: str, start: str, end: str) -> str:
    if start not in log:
        raise ValueError(f"{start!r} is not in the log: it is not the output of `{COMMAND}`")
    return log[log.index(start) :].split(end, 1)[0]


def _panel(name: str, part: str) -> dict[str, Any]:
    ways: dict[str, dict[str, int]] = {}
    for way, computed, floor, cached, prompt in _WAY.findall(part):
        ways[way] = {"computed": _count(computed), "floor": _count(floor)}
        if prompt:
            ways[way] |= {"cached": _count(cached), "prompt": _count(prompt)}
    if missing := [way for way in WAYS if way not in ways]:
        raise ValueError(f"{name}: no figures of {', '.join(missing)}")
    return {"scenario": name, "title": _title(name, part), "ways": {way: ways[way] for way in WAYS}}


def _title(name: str, part: str) -> str:
    if name == "seed":
        found = re.search(r"prompt ([\d,]+) tokens", part)
        return f"One decision, then the agent's call, on a cold prompt of {found[1] if found else '?'} tokens"
    found = re.search(r"(\d+) of them, prompts from ([\d,]+) to ([\d,]+) tokens", part)
    return f"{found[1]} turns of one session, prompts growing from {found[2]} to {found[3]} tokens" if found else "Ten turns"


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def draw(data: dict[str, Any]) -> str:
    """The picture, as SVG that carries colours for light and for dark pages."""
    y = 30
    body = [
        f'<text class="title" x="20" y="{y}" font-size="16">Prompt tokens computed, gate and agent together</text>',
        f'<text class="faint" x="20" y="{y + 20}" font-size="12">measured: {escape(data["setting"])}</text>',
    ]
    y += 52
    for panel in data["panels"]:
        body.append(f'<text class="text" x="20" y="{y}" font-size="13" font-weight="600">{escape(panel["title"])}</text>')
        y += 14
        most = max(way["computed"] for way in panel["ways"].values())
        for name, way in panel["ways"].items():
            body += _row(name, way, y, SCALE / most)
            y += ROW
        y += 22
    y -= 4
    body += [
        f'<line class="floor" x1="20" y1="{y - 10}" x2="20" y2="{y + 4}"/>',
        f'<text class="faint" x="30" y="{y + 1}" font-size="12">what a perfect gate would have had computed'
        f'<tspan dx="16">printed by: {escape(data["command"])}</tspan></text>',
    ]
    height = y + 20
    told = "; ".join(_in_words(panel) for panel in data["panels"])
    head = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" font-family="ui-sans-serif, system-ui, sans-serif"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {head}>',
        f"<title>Prompt tokens computed. {escape(told)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _in_words(panel: dict[str, Any]) -> str:
    return f"{panel['title']}: " + ", ".join(f"{WAYS[name]} {way['computed']:,}" for name, way in panel["ways"].items())


def _row(name: str, way: dict[str, int], y: int, scale: float) -> list[str]:
    length, floor = way["computed"] * scale, LEFT + way["floor"] * scale
    middle = y + BAR - 5
    found = (
        f", the agent's call found {100 * way['cached'] / way['prompt']:.1f} % of its prompt"
        if name == "aligned" and "prompt" in way
        else ""
    )
    label = LEFT + max(length, floor - LEFT) + 8
    return [
        f'<text class="text" x="{LEFT - 10}" y="{middle}" font-size="12" text-anchor="end">{escape(WAYS[name])}</text>',
        f'<rect class="{"ours" if name == "aligned" else "bar"}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        f'<line class="floor" x1="{floor:.1f}" y1="{y - 3}" x2="{floor:.1f}" y2="{y + BAR + 3}"/>',
        f'<text class="text" x="{label:.1f}" y="{middle}" font-size="12">{way["computed"]:,}{found}</text>',
    ]


def main() -> None:
    """Write the picture, and before it the figures where a log is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--from", dest="log", metavar="LOG", type=Path, help=f"the output of `{COMMAND}`")
    log = parser.parse_args().log
    if log is not None:
        DATA.write_text(json.dumps(read(log.read_text("utf-8")), indent=2) + "\n", "utf-8")
    PICTURE.write_text(draw(json.loads(DATA.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
