"""If these fail, cron jobs, daemons, pipes and full disks get another exit code than the documented one, a traceback, or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.cli.processes import CHAT, warmgate

LOST = ["2>&-", "2>/dev/full", "2>/dev/null"]


@pytest.mark.parametrize("streams", LOST)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["replay", CHAT], 0),
        (["replay", "nope.jsonl"], 2),
        (["--help"], 0),
        ([], 2),
        (["nonsense"], 2),
        (["doctor", "http://127.0.0.1:9"], 3),
    ],
    ids=lambda value: str(value[0] if value else "none") if isinstance(value, list) else "",
)
def test_a_lost_stderr_changes_nothing_else(arguments, code, streams):
    """1 for a good run, or for bad input, sends people looking in the wrong place."""
    done = warmgate(*arguments, streams=streams)
    assert done.returncode == code
    assert bool(done.stdout) == (code != 2)


@pytest.mark.parametrize("arguments", [["replay", CHAT], ["replay", CHAT, "--json", "-"], ["--help"], ["--version"], ["replay", "--help"]])
@pytest.mark.parametrize("stdout", [">&-", ">/dev/full", "1</dev/null"])
def test_a_lost_stdout_is_one_line_and_exit_2(arguments, stdout):
    """A report that never arrived would pass for a good run."""
    done = warmgate(*arguments, streams=stdout)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"warmgate: standard output")
    for stderr in LOST:
        assert warmgate(*arguments, streams=f"{stdout} {stderr}").returncode == 2


def test_files_never_land_on_a_closed_stream(tmp_path):
    """The next file opened would become stderr, and messages be written into it."""
    done = warmgate("replay", CHAT, tmp_path / "nope", "--json", tmp_path / "out.json", streams="<&- 2>&-")
    assert done.returncode == 2
    assert (tmp_path / "out.json").read_bytes().startswith(b'{"schema":')
    assert b"warmgate: " not in (tmp_path / "out.json").read_bytes()


@pytest.mark.parametrize("arguments", ["replay $CHAT", "replay $CHAT --json -", "--help", "replay --help"])
def test_a_reader_that_leaves_is_no_fault(arguments, tmp_path):
    """`warmgate … | head -1` would fail every pipeline that checks."""
    script = f"{sys.executable} -m warmgate {arguments} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "CHAT": str(CHAT)}, capture_output=True, timeout=120)
    assert done.returncode == 0
    assert not done.stderr


def test_files_are_written_even_where_the_reader_leaves(tmp_path):
    """`--html report.html | head` would lose the report."""
    script = f"{sys.executable} -m warmgate replay $CHAT --json {tmp_path}/r.json --html {tmp_path}/r.html | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "CHAT": str(CHAT)}, capture_output=True, timeout=120)
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r.json"]


@pytest.mark.parametrize("columns", ["0", "-5", "x", "", "1", "999999999"])
def test_an_odd_width_still_prints_the_figures(columns):
    """Some terminals and CI systems say COLUMNS=0; the report would be empty."""
    done = warmgate("replay", CHAT, env={"COLUMNS": columns, "LINES": columns})
    assert done.returncode == 0
    assert b"prompt tokens" in done.stdout
    assert len(done.stdout) < 100_000


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:strict", "utf-8"])
def test_an_output_without_our_signs_is_no_fault(encoding):
    """A server's C locale would show a traceback in place of the help."""
    for arguments in (["replay", "--help"], ["replay", CHAT], ["replay", CHAT, "--json", "-"]):
        done = warmgate(*arguments, env={"PYTHONIOENCODING": encoding, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"})
        assert done.returncode == 0
        assert not done.stderr


def _started(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A replay that has written its file and not yet put it in its place."""
    code = f"""
import sys
from warmgate import output
from warmgate.cli import main
write = output._write
def slow(path, work, *, replace):
    def hold(file):
        work(file)
        if replace:
            print("writing", flush=True)
            import time
            time.sleep(100)
    write(path, hold, replace=replace)
output._write = slow
sys.argv = ["warmgate", "replay", {str(CHAT)!r}, "--json", {str(tmp_path / "x.json")!r}]
main()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_leaves_no_file_behind(number, code, tmp_path):
    """Each `timeout 60 warmgate …` would leave a `.x.json.1f3a` in the folder."""
    process = _started(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.count(b"\n") == 1
    assert not list(tmp_path.iterdir())


def test_ctrl_c_while_python_is_loading_is_no_traceback(tmp_path):
    """Whoever notices a typo at once would see thirty lines of import machinery."""
    module = tmp_path / "click"
    module.mkdir()
    (module / "__init__.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)\n")
    done = warmgate("--help", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 130
    assert b"Traceback" not in done.stderr


def test_ctrl_c_while_it_works_is_exit_130_and_one_line():
    """Thirty lines of traceback would follow every Ctrl-C."""
    code = "from warmgate.cli import main\nprint(flush=True)\nmain()"
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code, "replay", "-"], **streams)
    process.stdout.readline()
    time.sleep(2)  # it waits for standard input, or is still on its way there
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
