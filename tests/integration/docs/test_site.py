"""The site is built as `make check` builds it, and the picture in it is the one that the figures give."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import make_chart

from tests.integration.docs.pages import ROOT

MEASURED = (ROOT / "docs/measured.md").read_text("utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ, NO_MKDOCS_2_WARNING="1"), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder


def test_nothing_is_loaded_from_other_hosts(site: Path):
    """The site must show behind a firewall, and tell nobody who reads it."""
    loaded = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]+\"")
    for page in site.glob("*.html"):
        foreign = [tag for tag in loaded.findall(page.read_text("utf-8")) if 'rel="canonical"' not in tag]
        assert foreign == [], page.name


def test_blocks_and_tables_came_out(site: Path):
    """What the site's Markdown does not take stands there as raw marks."""
    for page in site.glob("*.html"):
        found = re.search(r"<article.*?</article>", page.read_text("utf-8"), re.DOTALL)
        if found:
            prose = re.sub(r"<code>.*?</code>", "", re.sub(r"<pre.*?</pre>", "", found[0], flags=re.DOTALL), flags=re.DOTALL)
            assert re.findall(r"```|^\|.*\||--8&lt;--|--8<--", prose, re.MULTILINE) == [], page.name


def test_the_readmes_programs_are_in_the_site(site: Path):
    """Who reads the site alone finds the whole programs there."""
    text = re.sub(r"<[^>]+>", "", (site / "start.html").read_text("utf-8"))
    assert "GatedToolNode(tools, gate)" in text
    assert "GateMiddleware(gate)" in text
    assert "gated_tools([shell], gate)" in text


def test_the_picture_is_what_the_figures_give():
    """Else it would show what nobody measured. Mend: python scripts/make_chart.py."""
    assert make_chart.PICTURE.read_text("utf-8") == make_chart.draw(json.loads(make_chart.DATA.read_text("utf-8")))


def test_the_figures_are_those_of_the_page():
    """Picture and page come from one run. Mend: python scripts/make_chart.py --from LOG."""
    assert json.loads(make_chart.DATA.read_text("utf-8")) == make_chart.read(MEASURED)


def test_pages_that_quote_a_figure_quote_the_measured_one():
    """The tables of the page about two prefills, against what was printed."""
    page = (ROOT / "docs/two-prefills.md").read_text("utf-8")
    for panel in json.loads(make_chart.DATA.read_text("utf-8"))["panels"]:
        for way in panel["ways"].values():
            assert f"| {way['computed']:,} |" in page


def test_the_picture_is_readable_on_light_and_dark_pages():
    """It brings its own ground, and colours for either."""
    drawn = make_chart.PICTURE.read_text("utf-8")
    assert "prefers-color-scheme: dark" in drawn
    assert 'class="paper"' in drawn
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
