"""If these fail, a report is half-written, lands elsewhere than the user said, or takes something else away."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from warmgate.errors import OutputError
from warmgate.output import check_writable, is_stdout, write_bytes


def fault(path) -> str:
    """The same line, whether it is found out before or at the writing."""
    lines = []
    for work in (check_writable, lambda name: write_bytes(name, b"new")):
        with pytest.raises(OutputError) as found:
            work(str(path))
        lines.append(str(found.value))
    assert len(set(lines)) == 1
    assert lines[0].isprintable()
    return lines[0]


def test_a_symbolic_link_is_written_through(tmp_path):
    """`report.html -> /srv/www/report.html` would be replaced by a file, and the web page stay as it was."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there/report.html").write_bytes(b"old")
    for name, to in (("link", "there/report.html"), ("chain", "link"), ("new", "there/new.html")):
        (tmp_path / name).symlink_to(to)
        write_bytes(str(tmp_path / name), name.encode())
        assert (tmp_path / name).is_symlink()
    assert (tmp_path / "there/report.html").read_bytes() == b"chain"
    assert (tmp_path / "there/new.html").read_bytes() == b"new"
    assert sorted(p.name for p in (tmp_path / "there").iterdir()) == ["new.html", "report.html"]


def test_checking_leaves_everything_as_it_was(tmp_path):
    """A refused run would have emptied the last good report."""
    (tmp_path / "old.json").write_bytes(b"old")
    for name in ("old.json", "new.json"):
        check_writable(str(tmp_path / name))
    assert [p.name for p in tmp_path.iterdir()] == ["old.json"]
    assert (tmp_path / "old.json").read_bytes() == b"old"


def test_what_cannot_be_written_is_one_line(tmp_path):
    """A traceback, or a line that does not say which path."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    assert "a symbolic link that leads to itself" in fault(tmp_path / "loop")
    assert "is a directory" in fault(tmp_path)
    assert "is a directory" in fault(f"{tmp_path}/new/")
    assert "No such file or directory" in fault(tmp_path / "no/such/file")
    assert "Not a directory" in fault(tmp_path / "file/below")
    assert "''" in fault("")
    assert "null" in fault("x\0y")
    assert "File name too long" in fault(tmp_path / ("x" * 300))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_may_not_be_written_is_refused(tmp_path):
    """Read-only means that somebody wants to keep it."""
    kept = tmp_path / "kept"
    kept.write_bytes(b"old")
    kept.chmod(0o444)
    assert "read-only" in fault(kept)
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o555)
    assert "Permission denied" in fault(shut / "new")


def test_a_name_as_long_as_names_may_be(tmp_path):
    """The file beside it must not need a longer one."""
    for name in ("x" * 255, "é" * 127):
        write_bytes(str(tmp_path / name), b"whole")
        assert (tmp_path / name).read_bytes() == b"whole"


def test_the_mode_of_a_replaced_file_stays_and_a_new_one_follows_the_umask(tmp_path):
    """A report that only its owner may read would be opened to everybody."""
    private = tmp_path / "private"
    private.touch(mode=0o600)
    before = os.umask(0o027)
    try:
        for name in ("private", "new"):
            write_bytes(str(tmp_path / name), b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_an_interrupted_write_leaves_nothing_and_keeps_the_old(tmp_path, monkeypatch):
    """Ctrl-C would leave `.report.html.x7f2` behind, or half a page."""
    target = tmp_path / "report.html"
    target.write_bytes(b"old")

    def interrupted(_self: Path, _target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(str(target), b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert target.read_bytes() == b"old"


def test_pipes_and_devices_are_written_into(tmp_path):
    """They would be replaced by a file: /dev/null of the whole machine, with enough rights."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(str(pipe))  # does not wait for a reader
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_bytes(str(pipe), b"through")
    reader.join(10)
    assert got == [b"through"]
    write_bytes(os.devnull, b"x")
    assert not pipe.is_file()
    assert not Path(os.devnull).is_file()


def test_paths_that_lead_to_standard_output_are_it(tmp_path, monkeypatch):
    """`--json out.json > out.json` would write two things into one file."""
    (tmp_path / "other").touch()
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert is_stdout("-")
        assert is_stdout(str(tmp_path / "out"))
        assert not is_stdout(str(tmp_path / "other"))
        assert not is_stdout("")
        write_bytes(str(tmp_path / "out"), b"whole")
    assert (tmp_path / "out").read_bytes() == b"whole"
    with Path(os.devnull).open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert not is_stdout(os.devnull)
    monkeypatch.setattr(sys, "stdout", None)
    assert not is_stdout(str(tmp_path / "other"))
    with pytest.raises(OutputError, match="is closed"):
        write_bytes("-", b"")


def test_json_on_a_terminal_steers_nothing(monkeypatch):
    """A trace could clear the screen, or show its lines in another order, through C1 and bidi characters that JSON leaves as they are."""
    value = {"text": "\x7f\x85\x9b31m\u202egnp\u2066\u200b\ufeff\U000e0041 größe 漢 😀"}
    data = json.dumps(value, ensure_ascii=False).encode() + b"\n"
    leader, follower = os.openpty()
    with os.fdopen(follower, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        write_bytes("-", data)
        name = os.ttyname(out.fileno())
        shown = os.read(leader, 4096)
        write_bytes(name, data)
        assert os.read(leader, 4096) == shown
    os.close(leader)
    text = shown.decode()
    assert text.strip().isprintable()
    assert "größe 漢 😀" in text
    assert json.loads(text) == value
