"""``warmgate shell``: the verdict of a command, of many, or of what an agent host is about to run."""

from __future__ import annotations

import json as json_text
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from warmgate.errors import InputError, OptionError, one_line

if TYPE_CHECKING:
    from warmgate_policies.shell import Facts, Judge, ShellVerdict

EXIT = {"allow": 0, "ask": 10, "deny": 20}
HOOK_SECONDS = 20
"""Deadline of a hook: below the 30 s and 60 s after which hosts let a command run unjudged."""
MAX_LINE = 4 * 1024 * 1024
"""Bytes of one JSONL row; a longer one is answered with ask like any command that is too long."""


@click.command("shell")
@click.argument("text", metavar="[CMD]", required=False)
@click.option("--cwd", metavar="DIR", help="Working directory of the command. [the workspace]")
@click.option("--jsonl", metavar="FILE|-", help="Judge rows {id, command, cwd}; a JSON row each on stdout, in the same order.")
@click.option("--hook", type=click.Choice(["claude-code", "codex"]), help="Read a host's pre-tool JSON on stdin, answer in its JSON.")
@click.option("--workspace", metavar="DIR", help="The project's folder. [/workspace; in a hook the checkout around the host's folder]")
@click.option("--home", metavar="DIR", help="Home of the user the command runs as. [/home/agent; in a hook $HOME]")
@click.option("--pack", "extra", multiple=True, metavar="FILE", help="A rule pack of your own; later ones replace.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes for --jsonl. [one a core]")
@click.option("--untrusted", is_flag=True, help="A checkout nobody has looked at: running its code is at least ask.")
@click.option("--worker", metavar="URL", help="Ask this server's model about grey cases; needs --policy.")
@click.option("--model", metavar="M", help="Model as it is served there.")
@click.option("--policy", metavar="FILE", help="Thresholds of `warmgate calibrate`. Without them no model lifts an ask.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the worker's API key.")
@click.option("--json", is_flag=True, help="Print the verdict of CMD as JSON.")
def command(text: str | None, cwd: str | None, jsonl: str | None, hook: str | None, **given: Any) -> int:
    """Whether a shell command may run: allow (exit code 0), ask (10), deny (20).

    Nothing is run, and no network is used but for --worker. Allow means a proof was found; whatever is not understood is ask.
    """
    if sum(value is not None for value in (text, jsonl, hook)) != 1:
        raise OptionError("give one command, or --jsonl, or --hook", where="warmgate shell", mend="quote the command as one argument")
    worker, policy = given["worker"], given["policy"]
    if (worker is None) != (policy is None):
        raise OptionError("go together", where="--worker and --policy", mend="make the file with `warmgate calibrate`")
    if worker is not None and text is None:
        raise OptionError("is for one command", where="--worker", mend="leave out --jsonl or --hook")
    if hook is not None:
        return _hook(hook, given)
    facts = _facts(given, workspace=given["workspace"] or "/workspace", home=given["home"] or "/home/agent")
    extra = tuple(given["extra"])
    if jsonl is not None:
        return _many(jsonl, facts, extra, given["jobs"] or os.cpu_count() or 1)
    assert text is not None
    if worker is not None:
        return _asked(text, cwd, facts, extra, given)
    verdict = _judge(facts, extra).judge(text, cwd)
    if given["json"]:
        row = {**verdict.to_row(), "programs": list(verdict.programs), "binding": verdict.binding}
        sys.stdout.write(json_text.dumps(row) + "\n")
    else:
        sys.stdout.write(f"{verdict.verdict}: {_printable(verdict)}\n")
    return EXIT[verdict.verdict]


def _asked(text: str, cwd: str | None, facts: Facts, extra: tuple[str, ...], given: dict[str, Any]) -> int:
    from warmgate.cli.keys import api_key
    from warmgate.cli.shell_worker import asked

    judged = asked(
        text,
        cwd,
        facts,
        extra,
        worker=given["worker"],
        model=given["model"],
        calibrated=given["policy"],
        key=api_key(given["api_key_env"]),
    )
    if given["json"]:
        sys.stdout.write(json_text.dumps({"verdict": judged.verdict, "rule": judged.rule, "reason": judged.reason}) + "\n")
    else:
        sys.stdout.write(f"{judged.verdict}: {one_line(judged.reason, 300)} [{judged.rule}]\n")
    return EXIT[judged.verdict]


def _printable(verdict: ShellVerdict) -> str:
    start, end = verdict.site
    return f"{one_line(verdict.reason, 300)} [{verdict.rule}, bytes {start}-{end}]"


def _facts(given: dict[str, Any], *, workspace: str, home: str, file_system: bool = False) -> Facts:
    from warmgate_policies.shell import Facts

    for name, value in (("--workspace", workspace), ("--home", home)):
        if not value.startswith("/"):
            raise OptionError("must be an absolute path", where=name)
    return Facts(
        workspace=os.path.normpath(workspace), home=os.path.normpath(home), file_system=file_system, trusted_project=not given["untrusted"]
    )


def _judge(facts: Facts, extra: tuple[str, ...]) -> Judge:
    from warmgate_policies.shell import Judge
    from warmgate_policies.shell.rules import load

    return Judge(facts, load(extra))


# -- many -----------------------------------------------------------------------------------------------------------------------

_WORKER: dict[str, Judge] = {}


def _start(facts: Facts, extra: tuple[str, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _WORKER["judge"] = _judge(facts, extra)


def _row(item: tuple[int, bytes]) -> tuple[bool, str]:
    """One line judged: whether it was a good row, and the JSON (or the complaint)."""
    number, line = item
    try:
        row: Any = json_text.loads(line)
    except (ValueError, RecursionError):
        return False, f"line {number} is not JSON"
    if not isinstance(row, dict):
        return False, f"line {number} is not a JSON object"
    fields = cast("dict[str, Any]", row)
    text, cwd = fields.get("command"), fields.get("cwd")
    if not isinstance(text, str) or not isinstance(cwd, str | None):
        return False, f"line {number} has no text in command (or a cwd that is not text)"
    verdict = _WORKER["judge"].judge(text, cwd or None)
    return True, json_text.dumps({"id": fields.get("id"), **verdict.to_row()})


def _lines(source: str) -> Iterator[tuple[int, bytes]]:
    try:
        stream = sys.stdin.buffer if source == "-" else Path(source).open("rb")  # noqa: SIM115  closed with the process, read to its end
    except OSError as fault:
        raise InputError(f"cannot be read ({fault.strerror})", where=source, mend="give the path of a JSONL file, or -") from None
    with stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, line


def _many(source: str, facts: Facts, extra: tuple[str, ...], jobs: int) -> int:
    """Every row, in input order; bad rows are reported on stderr, and the exit code is 2 with any."""
    from concurrent.futures import ProcessPoolExecutor

    from warmgate.cli.app import say

    bad = 0
    lines = _lines(source)
    if jobs == 1:
        _start(facts, extra)
        results: Iterator[tuple[bool, str]] = map(_row, lines)
        bad = _print(results, say)
    else:
        with ProcessPoolExecutor(jobs, initializer=_start, initargs=(facts, extra)) as pool:
            _judge(facts, extra)  # a bad pack is reported here, in one line
            bad = _print(_ordered(pool, lines, jobs), say)
    return 2 if bad else 0


def _ordered(pool: Any, lines: Iterator[tuple[int, bytes]], jobs: int) -> Iterator[tuple[bool, str]]:
    """Results in order with a bounded number under way, so that an endless input needs no memory."""
    from collections import deque

    under_way: deque[Any] = deque()
    batch: list[tuple[int, bytes]] = []
    for item in lines:
        batch.append(item)
        if len(batch) >= 32:
            under_way.append(pool.submit(_rows, batch))
            batch = []
        if len(under_way) >= jobs * 4:
            yield from under_way.popleft().result()
    if batch:
        under_way.append(pool.submit(_rows, batch))
    while under_way:
        yield from under_way.popleft().result()


def _rows(batch: list[tuple[int, bytes]]) -> list[tuple[bool, str]]:
    return [_row(item) for item in batch]


def _print(results: Iterator[tuple[bool, str]], say: Any) -> int:
    bad = 0
    for good, text in results:
        if good:
            sys.stdout.write(text + "\n")
        else:
            bad += 1
            say(text)
    return bad


# -- hooks ----------------------------------------------------------------------------------------------------------------------


def _hook(host: str, given: dict[str, Any]) -> int:
    """One pre-tool call: exit code 0 with the host's JSON, or 2, a refusal to every host. Any other code would let the command run."""
    from warmgate.cli.app import say

    def late(number: int, frame: object) -> NoReturn:
        sys.stderr.write("warmgate: the command could not be judged in time\n")
        sys.stderr.flush()
        os._exit(2)

    signal.signal(signal.SIGALRM, late)
    signal.alarm(HOOK_SECONDS)
    try:
        answer = _answer(sys.stdin.buffer.read(MAX_LINE * 4), given, host)
        if answer is not None:
            sys.stdout.write(json_text.dumps(answer) + "\n")
        sys.stdout.flush()
    except BaseException as fault:  # noqa: BLE001  whatever it is, the command must not run because of it
        say(f"the command could not be judged ({one_line(str(fault) or type(fault).__name__, 200)})")
        return 2
    return 0


def _answer(data: bytes, given: dict[str, Any], host: str) -> dict[str, Any] | None:
    event: Any = json_text.loads(data)
    if not isinstance(event, dict):
        raise InputError("not a JSON object", where="stdin")
    fields = cast("dict[str, Any]", event)
    tool = fields.get("tool_name", fields.get("tool"))
    arguments: Any = fields.get("tool_input", fields.get("input", fields.get("arguments")))
    if isinstance(arguments, str):
        arguments = json_text.loads(arguments)
    if not isinstance(tool, str) or not isinstance(arguments, dict):
        raise InputError("no tool_name and tool_input in the host's JSON", where="stdin")
    values = cast("dict[str, Any]", arguments)
    text: Any = values.get("command", values.get("cmd"))
    if text is None and not any(word in tool.lower() for word in ("bash", "shell", "exec", "command", "terminal")):
        return None  # another tool: none of this policy's business
    if isinstance(text, list):
        import shlex

        text = shlex.join(str(part) for part in cast("list[object]", text))
    if not isinstance(text, str):
        raise InputError("no command in the host's JSON", where="stdin")
    folder: Any = values.get("workdir") or values.get("cwd") or fields.get("cwd") or str(Path.cwd())
    if not isinstance(folder, str):
        raise InputError("cwd is not text", where="stdin")
    workspace = given["workspace"] or _checkout(str(fields.get("cwd") or folder))
    facts = _facts(given, workspace=workspace, home=given["home"] or os.environ.get("HOME") or "/home/agent", file_system=True)
    verdict = _judge(facts, tuple(given["extra"])).judge(text, folder)
    reason = f"warmgate: {_printable(verdict)}"
    if host == "codex" and verdict.verdict == "ask":
        # Codex knows no ask here, and may not ask when a hook stays silent: refused, with the reason to show.
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason + "; ask the user",
            }
        }
    return {
        "hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": verdict.verdict, "permissionDecisionReason": reason}
    }


def _checkout(folder: str) -> str:
    """The checkout around a folder, or the folder itself."""
    path = Path(folder).absolute()
    home = os.environ.get("HOME")
    for parent in (path, *path.parents):
        if (parent / ".git").exists() and str(parent) not in ("/", home):
            return str(parent)
    return str(path)
