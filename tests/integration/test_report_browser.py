"""The report in a real browser: it renders, reaches for nothing, breaks no policy, fits a phone and follows the colour scheme.

Chromium is driven over its debugging pipe (file descriptors 3 and 4, messages of JSON ended by a zero byte), so that neither a port nor a
client library is needed.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time

import pytest

from tests.unit.replay import results
from warmgate.replay.html import write_html

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")

DEADLINE_S = 60


class Browser:
    """One headless Chromium with one page."""

    def __init__(self, profile):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (ours_in, theirs_out, theirs_in, ours_out)]  # clear of 3 and 4
        for end in (ours_in, theirs_out, theirs_in, ours_out):
            os.close(end)
        self._in, theirs_out, theirs_in, self._out = ends
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
        flags += ["--disable-component-update", "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        start = f"import os, sys; os.dup2({theirs_in}, 3); os.dup2({theirs_out}, 4); os.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-c", start, str(CHROMIUM), *flags, "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), stdin=quiet, stdout=quiet, stderr=quiet)
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._last = 0
        self._session = None
        self.events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Run one command and give its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._last:
                assert "error" not in reply, reply["error"]
                return reply["result"]
            self.events.append(reply)

    def _receive(self):
        until = time.monotonic() + DEADLINE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 16)
            assert data, "the browser has gone"
            self._buffer += data
        one, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(one)

    def open(self, url):
        """Load a page and forget the events of the one before."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._receive())
        self.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")  # what scripts start late

    def value(self, expression):
        """Evaluate JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def of(self, method):
        return [e["params"] for e in self.events if e.get("method") == method]

    def quit(self):
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(timeout=20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(timeout=20)
        os.close(self._in)
        os.close(self._out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.quit()


@pytest.fixture
def opened(browser, tmp_path):
    """Writes a replay's page, opens it at a width and scheme, and gives the browser."""

    def open_(replay, width=1200, scheme="light"):
        path = tmp_path / "report.html"
        write_html(replay, path)
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.open(path.as_uri())
        return browser

    return open_


MAKES = ("typical", "usage_alone", "without_calls", "nothing_reusable", "hostile", "large")


@pytest.mark.parametrize("make", MAKES)
def test_it_loads_itself_and_nothing_else_without_a_complaint(opened, make):
    """A report that reaches out, breaks its own policy or throws would be caught only by its readers."""
    page = opened(getattr(results, make)())
    asked = [r["request"]["url"].split(":")[0] for r in page.of("Network.requestWillBeSent")]
    assert sorted(set(asked)) in (["data", "file"], ["file"])
    assert asked.count("file") == 1
    assert not page.of("Runtime.exceptionThrown")
    assert not page.of("Runtime.consoleAPICalled")
    assert [entry["entry"]["text"] for entry in page.of("Log.entryAdded")] == []  # violations of the policy come here
    assert not page.of("Page.javascriptDialogOpening")
    assert page.value("document.scripts.length") == 1
    assert page.value("document.title").startswith("warmgate replay: ")


def test_the_policy_is_in_force(opened):
    """The style's hash must match, and a script put into the page must not run."""
    page = opened(results.typical())
    assert page.value("getComputedStyle(document.querySelector('.cards')).display") == "grid"
    inject = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); window.ran || 0"
    assert page.value(inject) == 0
    assert page.value("fetch('https://example.invalid/').then(() => 'sent', () => 'refused')") == "refused"
    assert not [r for r in page.of("Network.requestWillBeSent") if r["request"]["url"].startswith("http")]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("width", [360, 768, 1200])
def test_it_fits_the_width(opened, make, width):
    """On a phone the reader would have to scroll sideways to read a sentence."""
    page = opened(getattr(results, make)(), width)
    assert page.value("document.documentElement.scrollWidth") <= width
    outside = (
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, svg') || e.matches('.scroll, svg'))"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + '.' + e.className)"
    )
    assert page.value(outside) == []


def test_it_follows_the_colour_scheme(opened):
    """At night the page would glare."""
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = (opened(results.typical(), scheme=scheme).value(ground) for scheme in ("light", "dark"))
    assert light == "rgb(246, 247, 249)"
    assert dark == "rgb(16, 21, 26)"


def test_the_filter_finds_words_in_any_order(opened):
    """Among two hundred divergences the one looked for would not be found."""
    page = opened(results.typical())
    assert page.value("document.querySelector('.filter').hidden") is False
    search = (
        "(words => {{ const box = document.getElementById('filter'); box.value = words; box.dispatchEvent(new Event('input')); "
        "return [document.querySelectorAll('#list tbody tr:not([hidden])').length, document.getElementById('filtered').textContent]; }})({!r})"
    )
    assert page.value(search.format("MONDAY tools")) == [0, "0 of 15 rows match"]
    assert page.value(search.format("call prompt changed system")) == [7, "7 of 15 rows match"]
    assert page.value(search.format("")) == [15, ""]
    assert page.value("document.querySelectorAll('#kinds tr[hidden]').length") == 0


def test_it_prints(opened):
    """A printout would be dark, cut or empty."""
    page = opened(results.typical(), scheme="dark")
    page.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert len(page.call("Page.printToPDF")["data"]) > 20_000
