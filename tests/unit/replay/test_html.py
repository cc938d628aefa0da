"""If these fail, the report leaks, lies, breaks on a hostile trace, or cannot be read by someone."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

from tests.unit.replay import results
from warmgate.errors import OutputError
from warmgate.replay.charts import COLUMNS, SESSIONS, scenario_bars, session_charts
from warmgate.replay.figures import count, percent
from warmgate.replay.html import BREAKS, TRACES, render_html, write_html
from warmgate.replay.meaning import groups

ALL = ("typical", "usage_alone", "without_calls", "nothing_reusable", "hostile")
VOID = {"meta", "link", "br", "input"}


class Page(HTMLParser):
    """Tags with attributes, the text people see, and whether every tag is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute twice in {tag}"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, f"{tag} closed out of order"

    def handle_data(self, data):
        if self._open and self._open[-1] in self.inside:
            self.inside[self._open[-1]].append(data)
        else:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def page_of(make):
    return Page(render_html(getattr(results, make)()))


@pytest.mark.parametrize("make", ALL)
def test_the_page_is_well_formed(make):
    """A browser would repair it differently from the next one."""
    page = page_of(make)
    identifiers = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))
    links = [attrs["href"][1:] for attrs in page.all("a")]
    assert set(links) <= set(identifiers)
    for _, attrs in page.tags:
        for reference in ("aria-labelledby", "aria-describedby", "for"):
            assert attrs.get(reference, identifiers[0]) in identifiers


@pytest.mark.parametrize("make", ALL)
def test_nothing_is_fetched_from_anywhere(make):
    """Opening a report would tell someone that, and which, and from where."""
    html = render_html(getattr(results, make)())
    page = Page(html)
    for tag, attrs in page.tags:
        for name, value in attrs.items():
            if name in {"src", "href", "srcset", "data", "poster", "action", "formaction", "ping", "xlink:href", "background", "cite"}:
                assert value is not None
                assert value.startswith("#") or value == "data:,", (tag, name, value)
            assert name != "style", "the page's own policy would ignore it"
            assert not name.startswith("on"), (tag, name)
            assert "url(" not in (value or "")
    style, script = "".join(page.inside["style"]), "".join(page.inside["script"])
    assert not re.search(r"url\(|@import|@font-face|image-set", style)
    assert not re.search(r"fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import\(|innerHTML|eval", script)
    assert {tag for tag, _ in page.tags}.isdisjoint(
        {"img", "iframe", "object", "embed", "base", "form", "video", "audio", "source", "image"}
    )


@pytest.mark.parametrize("make", ["typical", "hostile"])
def test_the_policy_allows_the_pages_own_style_and_script_alone(make):
    """A stray byte would turn the style off; a loose policy would let an injected script run."""
    page = page_of(make)
    (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'"
    for name in ("style", "script"):
        (text,) = page.inside[name]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules.pop(f"{name}-src") == f"'sha256-{digest}'"
    assert rules == {"img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}


def test_a_hostile_trace_adds_no_tag_no_attribute_and_no_odd_character():
    """Whoever writes a session's name would write the page."""
    html = render_html(results.hostile())
    hostile, typical = Page(html), page_of("typical")
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in typical.tags}
    assert {(tag, name) for tag, attrs in hostile.tags for name in attrs} <= {(tag, name) for tag, attrs in typical.tags for name in attrs}
    assert len(hostile.all("script")) == len(hostile.all("style")) == 1
    assert "alert" not in hostile.inside["script"][0]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]", html)
    assert "[bold red]x[/] </style></script><script>alert(1)</script>" in hostile.words  # shown, not run
    assert "${7*7} {{7*7}} :boom:" in hostile.words


@pytest.mark.parametrize("make", ALL)
def test_no_python_shines_through(make):
    """None, nan or an object's address would stand among the figures."""
    words = page_of(make).words
    assert not re.search(r"\bNone\b|\bnan\b|\binf\b|0x[0-9a-f]{6}|Undefined|<bound", words)


def test_the_headline_is_the_replays():
    """The large figure would be another one than the JSON's."""
    replay = results.typical()
    words = page_of("typical").words
    totals = replay.totals
    assert f"survival predicted {percent(totals.survival)}" in words
    assert f"hit rate predicted {percent(totals.hit_rate)}" in words
    assert f"lost predicted {count(sum(totals.lost_tokens.values()))}" in words
    assert "aligned gate predicted +150 tokens a call; JSON state +3,705; separate router +3,559" in words
    for s in replay.scenarios:
        assert f"{s.name} {count(s.computed_tokens)} {count(s.floor_tokens)} {s.compute_ratio:,.3f}" in words
    for cause, tokens in totals.lost_tokens.items():
        assert re.search(rf"{cause} .{{0,60}} {count(tokens)} ", words)


def test_unknown_is_said_and_the_known_figure_comes_first():
    """A trace of usage alone would show a large n/a, or a survival of 0 %."""
    words = page_of("usage_alone").words
    assert words.index("hit rate measured 72.7 %") < words.index("survival n/a")
    assert "Unknown: no prompts are recorded, so what could have been reused cannot be told." in words
    assert "No scenario could be priced" in words
    assert "computed; the trace cannot tell whether it was reusable" in words
    assert "not applicable: no call could have reused anything (R = 0)" in page_of("nothing_reusable").words
    empty = page_of("without_calls").words
    assert "No call records prompt tokens, so there is nothing to draw." in empty
    assert "refused other.json : not a trace" in empty


def test_hundred_thousand_calls_stay_below_three_megabytes_and_say_what_is_left_out():
    """The page would not open, or would pass a part for the whole."""
    replay = results.large()
    html = render_html(replay)
    assert len(html.encode()) < 3_000_000
    words = Page(html).words
    assert f"Drawn: the {SESSIONS} largest of 400 sessions." in words
    assert f"The {BREAKS} costliest of {count(sum(r.diverged_at is not None for r in replay.calls))}" in words
    assert "250 calls" in html


def test_traces_and_notes_beyond_the_limit_are_counted():
    """Some would be missing without a word."""
    found, traces = [], []
    for number in range(TRACES + 7):
        found += (some := results.rows(1, 2, trace=number))
        traces.append(results.trace_of(some, f"runs/{number}.jsonl", notes=["note " + "x" * number]))
    words = Page(render_html(results.replay_of(found, traces=traces))).words
    assert "7 more, smaller" in words
    assert "And 7 more; the JSON has all of them." in words


def test_a_long_session_is_averaged_over_equal_stretches_and_the_sums_hold():
    """A chart of a sample would hide the calls that lost most."""
    replay = results.replay_of(results.rows(1, 1_000))
    (chart,), undrawn = session_charts(replay)
    assert undrawn.sessions == 0
    assert len(chart.columns) <= COLUMNS
    assert chart.per_column == 11
    sizes = [c.last - c.first + 1 for c in chart.columns]
    assert set(sizes[:-1]) == {11}
    assert sum(sizes) == 1_000
    assert sum(c.prompt * n for c, n in zip(chart.columns, sizes, strict=True)) == pytest.approx(replay.totals.prompt_tokens)
    assert sum(c.lost * n for c, n in zip(chart.columns, sizes, strict=True)) == pytest.approx(sum(r.lost for r in replay.calls))
    assert sum(c.breaks for c in chart.columns) == sum(r.diverged_at is not None for r in replay.calls)
    assert "11 a column (their mean)" in Page(render_html(replay)).words


def test_columns_add_up_to_the_prompt():
    """The parts of a column would not be the call's tokens."""
    replay = results.typical()
    replay.calls[3].survived = replay.calls[3].basis = None
    charts, _ = session_charts(replay)
    for chart in charts:
        for column in chart.columns:
            assert sum(column.parts.values()) == pytest.approx(column.prompt)
            assert min(column.parts.values()) >= 0
    assert max(c.parts["unknown"] for chart in charts for c in chart.columns) > 0
    known = [c for c in charts if c.survival is not None]
    assert known[0].survival == pytest.approx(
        sum(c.survived or 0 for c in known[0].columns) / sum(c.reusable or 0 for c in known[0].columns)
    )


def test_more_survived_or_lost_than_the_prompt_holds_draws_no_negative_column():
    """A provider's odd count would draw a column upside down."""
    found = results.usage_rows(1, 2)
    found[1].survived = (found[1].prompt_tokens or 0) + 5_000
    (chart,), _ = session_charts(results.replay_of(found))
    assert chart.columns[1].parts["survived"] == found[1].prompt_tokens
    odd = results.rows(1, 2)
    odd[1].lost = (odd[1].prompt_tokens or 0) + 5_000
    (other,), _ = session_charts(results.replay_of(odd))
    assert min(other.columns[1].parts.values()) >= 0
    assert sum(other.columns[1].parts.values()) == odd[1].prompt_tokens
    assert "v--" not in "".join(chart.paths.values())


def test_sessions_of_one_name_in_two_traces_stay_apart():
    """Two files that number their sessions from 0 would be drawn as one."""
    charts, _ = session_charts(results.replay_of(results.rows(1, 3) + results.rows(1, 3, trace=1), traces=results.typical().traces))
    assert [(c.session, c.trace, c.calls) for c in charts] == [("session-0", 0, 3), ("session-0", 1, 3)]


def test_bars_share_one_scale_and_a_saving_shortens_them():
    """A gate on one route would look cheaper than the same on another."""
    replay = results.replay_of(results.rows())
    saving = replay.scenarios[3]
    saving.tax_tokens, saving.computed_tokens = -1_000, replay.scenarios[0].computed_tokens - 1_000
    shown = scenario_bars(groups(replay))
    top = max(s.computed_tokens for s in replay.scenarios)
    for group, bars in shown:
        for s, bar in zip(group.scenarios, bars, strict=True):
            assert bar.alone + bar.tax == pytest.approx(s.computed_tokens / top * 1000)
            assert bar.floor == pytest.approx(s.floor_tokens / top * 1000)
    assert shown[0][1][3].saved > 0
    assert scenario_bars([]) == []


def test_charts_have_names_and_their_figures_as_tables():
    """Who cannot see a chart would learn nothing from it."""
    page = page_of("typical")
    for attrs in page.all("svg"):
        assert attrs.get("aria-hidden") == "true" or attrs.get("class") == "bar" or (attrs.get("role") == "img" and attrs["aria-label"])
    assert page.words.count("Figures of this chart") == len(session_charts(results.typical())[0])
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(headings))
    assert all("scope" in attrs for attrs in page.all("th"))
    assert page.all("html")[0]["lang"] == "en"


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_contrast_is_enough_to_read(scheme):
    """Grey on grey would shut people out: WCAG asks 4.5 for text and 3 for graphics."""
    style = resources.files("warmgate").joinpath("replay", "report.css").read_text("utf-8")
    blocks = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)]
    colours = blocks[("light", "dark", "print").index(scheme)]

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one, other):
        light, dark = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    for ground in ("paper", "card"):
        assert min(contrast(name, ground) for name in ("ink", "soft", "accent")) >= 4.5
        assert contrast("lost", ground) >= 4.5  # the tags of refused and skipped
    assert min(contrast(name, "card") for name in ("accent", "lost", "rest")) >= 2.85


def test_the_same_replay_gives_the_same_page():
    """Reports kept in a repository would differ each time."""
    assert render_html(results.typical()) == render_html(results.typical())


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    """A failed run would leave half a report, or destroy the last good one."""
    target = tmp_path / "report.html"
    write_html(results.typical(), target)
    whole = target.read_bytes()
    assert whole.rstrip().endswith(b"</html>")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    (tmp_path / "folder").mkdir()
    for wrong in (tmp_path / "missing" / "report.html", tmp_path / "folder"):
        with pytest.raises(OutputError) as fault:
            write_html(results.typical(), wrong)
        assert str(wrong) in str(fault.value)
    broken = results.typical()
    broken.totals = None
    with pytest.raises(AttributeError):
        write_html(broken, target)
    assert target.read_bytes() == whole
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "report.html"]
