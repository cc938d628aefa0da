"""From the tree, every site that can run something, in the order bash would reach it: an abstract run of the command.

Variables, working directories and written files are followed; both branches of everything are taken; what one command prints flows into the
next. Each simple command goes to the judge (:mod:`.judge`), which may come back here with code that the command hands to a shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from warmgate.decision import Word
from warmgate_policies.shell import shapes, words
from warmgate_policies.shell.facts import Facts
from warmgate_policies.shell.findings import EMPTY, NOTHING_KNOWN, UNKNOWN, Arg, Capped, Finding, Site, Stream, joined
from warmgate_policies.shell.memory import Files
from warmgate_policies.shell.parse import parse
from warmgate_policies.shell.paths import classify, inside, resolve
from warmgate_policies.shell.rules import Rules
from warmgate_policies.shell.state import State
from warmgate_policies.shell.trees import Tree, items, kid, kids, span
from warmgate_policies.shell.words import Value
from warmgate_policies.shell.written import Step

MAX_SITES = 256
"""Sites of one command. Past that it is asked about: a cap must never mean fewer checks."""
MAX_DEPTH = 12
"""Code inside code (``sh -c`` in ``xargs`` in …)."""
MAX_ITEMS = 32
"""Values of a loop variable that are tried one by one."""


class Walker:
    """One command's run.

    Args:
        rules: All packs.
        facts: The setting.
        cwd: Working directory at the start.
        files: What is known of files written so far, in this command and in the session.
        judge: Judges a simple command and gives what it prints.
    """

    def __init__(self, rules: Rules, facts: Facts, cwd: str, files: Files, judge: Callable[[Walker, Site], Stream]) -> None:
        self.rules = rules
        self.facts = facts
        self.files = files
        self.judge = judge
        self.findings: list[Finding] = []
        self.state: State = State(cwd)
        self.depth = 0
        self.sites = 0
        self.calls: list[str] = []
        self.base: tuple[int, int] | None = None
        self.stdin: Stream = NOTHING_KNOWN
        self.loops = 0
        self.programs: list[str] = []
        self.default_ifs = True
        self.judged: set[str] = set()
        self.trace: list[Step] = []
        self.connected = False
        """Whether ``exec`` opened a connection: wired to a shell it is a deny."""
        self.integers = False

    # -- findings -----------------------------------------------------------------------------------------------------------

    def find(self, verdict: Word, rule: str, reason: str, start: int, end: int) -> None:
        """Record a finding; inside code of code it is placed at the argument that carries the code."""
        if self.base is not None:
            start, end = self.base
        self.findings.append(Finding(verdict, rule, reason, start, end))

    def flag(self, verdict: str, rule: str, reason: str, node: Tree) -> None:
        """See :class:`~.words.Scope`."""
        start, end = span(node)
        self.find(cast("Word", verdict), rule, reason, start, end)

    # -- scope --------------------------------------------------------------------------------------------------------------

    def lookup(self, name: str) -> Value | None:
        """See :class:`~.words.Scope`."""
        state = self.state
        if name in state.variables:
            return state.variables[name]
        if name in (
            "?",
            "#",
            "$",
            "PPID",
            "UID",
            "EUID",
            "RANDOM",
            "SECONDS",
            "LINENO",
            "BASHPID",
            "EPOCHSECONDS",
            "COLUMNS",
            "LINES",
            "SHLVL",
        ):
            return Value(UNKNOWN, "number")
        if name == "!":
            return Value(UNKNOWN, "number", tags=frozenset({"ownjob"}) if state.own_jobs else frozenset[str]())
        if name in ("@", "*"):
            return Value(UNKNOWN, items=state.positional)
        if name.isdigit():
            if name == "0":
                return Value("bash")
            if state.positional is not None:
                index = int(name) - 1
                if index < len(state.positional):
                    arg = state.positional[index]
                    return Value(arg.text, arg.shape, arg.pattern, arg.tags)
                return Value("")
            return None
        if name == "HOME":
            return Value(self.facts.home)
        if name == "PWD":
            return Value(state.cwd) if state.cwd is not None and not state.other_cwds else Value(UNKNOWN)
        if name in ("USER", "LOGNAME"):
            return Value(self.facts.user)
        if name == "TMPDIR":
            return Value(UNKNOWN, "path", self.facts.scratch[0] + "/*") if self.facts.scratch else None
        if name == "IFS":
            return Value(" \t\n")
        return None

    def assign(self, name: str, value: Value) -> None:
        """See :class:`~.words.Scope`."""
        if name == "IFS":
            self.default_ifs = False
        if self.integers and re.search(r"\[.*(\$\(|`)", value.text, re.DOTALL):  # ``declare -i x; x='a[$(…)]'``
            self.find("deny", "conceal.arithmetic", f"assigns {name} a text that is evaluated as arithmetic", 0, 0)
        self.state.variables[name] = value

    def home_of(self, user: str) -> str | None:
        """See :class:`~.words.Scope`."""
        if user == "":
            home = self.state.variables.get("HOME")
            return home.text if home is not None and home.known else (None if home is not None else self.facts.home)
        if user == "+":
            return self.state.cwd
        if user == "root":
            return "/root"
        return f"/home/{user}" if re.fullmatch(r"[a-z_][a-z0-9_-]*", user) else None

    def capture(self, node: Tree) -> Stream:
        """See :class:`~.words.Scope`."""
        kept, stdin = self.state, self.stdin
        self.state = kept.copy()
        out = Stream()
        try:
            stmts: list[Tree] = kids(node, "Stmts")
            if node["Type"] == "ProcSubst" and node.get("Op") == ">(":
                self.stdin = NOTHING_KNOWN
            if node["Type"] == "CmdSubst" and len(stmts) == 1 and not stmts[0].get("Cmd") and stmts[0].get("Redirs"):
                out, _ = self._redirect(stmts[0])
            else:
                out = self.run(stmts, sink="pipe")
        finally:
            self.state, self.stdin = kept, stdin
        return out

    def touch(self, node: Any) -> None:
        """See :class:`~.words.Scope`."""
        if isinstance(node, list):
            for item in items(cast("object", node)):
                self.touch(item)
            return
        if not isinstance(node, dict):
            return
        tree = cast("Tree", node)
        kind = tree.get("Type")
        if kind == "CmdSubst" or kind == "ProcSubst":
            self.capture(tree)
        elif kind == "ParamExp":
            words.expand({"Parts": [tree], "Pos": kid(tree, "Pos"), "End": kid(tree, "End")}, self, split=False)
        elif kind == "ExtGlob" and re.search(r"[$`]|[<>]\(", str(kid(tree, "Pattern").get("Value", ""))):
            self.flag("ask", "parse.doubt", "hides an expansion inside a pattern", tree)
        else:
            if kind == "Lit" or (kind is None and "Value" in tree):
                name = str(tree.get("Value", ""))
                held = self.state.variables.get(name)
                if held is not None and held.known and re.search(r"[\[$`]", held.text):
                    self.flag(
                        "deny", "conceal.arithmetic", "evaluates a variable as arithmetic that holds a subscript or an expansion", tree
                    )
            for key, value in tree.items():
                if key not in ("Pos", "End"):
                    self.touch(value)

    # -- statements ---------------------------------------------------------------------------------------------------------

    def run(self, stmts: list[Tree] | None, sink: str = "out") -> Stream:
        """Statements in order; what they print together."""
        out = EMPTY
        for stmt in stmts or []:
            out = joined(out, self._stmt(stmt, sink))
        return out

    def code(
        self,
        text: str,
        at: Arg,
        sink: str = "out",
        positional: tuple[Arg, ...] | None = None,
        *,
        zero: Arg | None = None,
        subshell: bool = True,
    ) -> Stream:
        """Run shell code that a command hands to a shell."""
        if self.depth >= MAX_DEPTH:
            raise Capped("code is nested in code too deeply")
        if UNKNOWN in text:
            self.find("ask", "dynamic.code", "runs shell code that the text of the command does not fix", at.start, at.end)
            if at.tags & {"net", "decoded"}:
                self.find("deny", "flow.run", "runs code that was just downloaded or decoded", at.start, at.end)
            text = text.replace(UNKNOWN, "${WARMGATE_UNKNOWN_PART}")
        if not text.strip():
            return EMPTY
        kept, base = self.state, self.base
        if subshell:
            self.state = kept.copy()
            if positional is not None:
                self.state.positional = positional
                self.state.variables.pop("0", None)
            if zero is not None:
                self.state.variables["0"] = Value(zero.text, zero.shape, zero.pattern, zero.tags)
        self.base = base or (at.start, at.end)
        self.depth += 1
        try:
            try:
                parsed = parse(text)
            except Capped as cap:  # the code cannot be read, but what stands around it can
                self.find("ask", "limit", f"hands on code that cannot be judged: {cap}", at.start, at.end)
                return NOTHING_KNOWN
            for doubt in parsed.doubts:
                self.find("ask", "parse.doubt", f"cannot be proven harmless: {doubt}", at.start, at.end)
            out = self.run(parsed.tree.get("Stmts"), sink)
            if parsed.joined is not None:
                self.find("ask", "parse.doubt", "joins words by a line continuation", at.start, at.end)
                self.run(parse(parsed.joined).tree.get("Stmts"), sink)
            return out
        finally:
            self.depth -= 1
            if subshell:
                self.state = kept
            self.base = base

    def _stmt(self, stmt: Tree, sink: str) -> Stream:
        kept_stdin = self.stdin
        redirected = bool(stmt.get("Redirs"))
        out_redirect = None
        if redirected:
            self.stdin, out_redirect = self._redirect(stmt)
        command = stmt.get("Cmd")
        try:
            if command is None:
                if out_redirect is not None:
                    out_redirect(EMPTY)
                return EMPTY
            if stmt.get("Background") or stmt.get("Coprocess"):
                kept = self.state
                self.state = kept.copy()
                out = self._command(command, sink, stmt)
                self.state = kept
                kept.own_jobs = True
            else:
                out = self._command(command, "file" if out_redirect else sink, stmt)
            if out_redirect is not None:
                return out_redirect(out)
            return out
        finally:
            self.stdin = kept_stdin

    def _command(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        kind = str(node.get("Type"))
        method = getattr(self, "_" + kind.lower(), None)
        if method is None:
            start, end = span(node)
            self.find("ask", "parse.unknown", "uses shell syntax that this policy does not know", start, end)
            self.touch(node)
            return NOTHING_KNOWN
        return cast("Stream", method(node, sink, stmt))

    def _binarycmd(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        op = node.get("Op")
        if op in ("|", "|&"):
            kept, stdin = self.state, self.stdin
            self.state = kept.copy()
            left = self._stmt(node["X"], "pipe")
            self.state = kept.copy()
            self.stdin = left
            right = self._stmt(node["Y"], sink)
            if self.state.own_jobs:
                kept.own_jobs = True
            self.state, self.stdin = kept, stdin
            return right
        first = self._stmt(node["X"], sink)
        if op == "&&":
            before = self.state
            after = before.copy()
            after.other_cwds = () if shapes.chdirs(node["X"]) else after.other_cwds
            self.state = after
            second = self._stmt(node["Y"], sink)
            if not after.ended:
                self._merge(before, after, cd_only=not shapes.chdirs(node["X"]))
            self.state = before
        else:
            before = self.state
            branch = before.copy()
            if shapes.chdirs(node["X"]) and before.other_cwds:
                branch.cwd, branch.other_cwds = before.other_cwds[0], ()
            self.state = branch
            second = self._stmt(node["Y"], sink)
            if branch.ended and shapes.chdirs(node["X"]):
                before.other_cwds = ()
            elif not branch.ended:
                self._merge(before, branch)
            self.state = before
        return joined(first, second)

    def _merge(self, into: State, other: State, *, cd_only: bool = True) -> None:
        """After a branch that may or may not have run: what differs is unknown, and both working directories count."""
        for name in {*into.variables, *other.variables}:
            a, b = into.variables.get(name), other.variables.get(name)
            if a != b:
                if not cd_only:
                    into.variables[name] = b if b is not None else Value()
                    continue
                same = a is not None and b is not None and a.shape == b.shape and a.pattern == b.pattern
                tags = (a.tags if a else frozenset[str]()) | (b.tags if b else frozenset[str]())
                into.variables[name] = Value(UNKNOWN, a.shape if same and a else None, a.pattern if same and a else None, tags)
        into.functions.update(other.functions)
        into.exported |= other.exported
        into.own_jobs |= other.own_jobs
        into.errexit &= other.errexit
        if into.positional != other.positional:
            into.positional = None
        if other.cwd != into.cwd or other.other_cwds != into.other_cwds:
            cwds = [cwd for cwd in dict.fromkeys([into.cwd, *into.other_cwds, *other.other_cwds]) if cwd != other.cwd]
            into.cwd, into.other_cwds = other.cwd, tuple(cwds)[:6]

    def _branches(self, bodies: list[list[Tree]], sink: str) -> Stream:
        start = self.state
        out = EMPTY
        ends: list[State] = []
        for body in bodies:
            self.state = start.copy()
            out = joined(out, self.run(body, sink))
            ends.append(self.state)
        self.state = start
        for end in ends:
            if not end.ended:
                self._merge(start, end)
        return replace(out, text=None)

    def _ifclause(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        bodies: list[list[Tree]] = []
        clause: Tree | None = node
        while clause is not None:
            if clause.get("Cond"):
                self.run(clause["Cond"])
            bodies.append(kids(clause, "Then"))
            clause = clause.get("Else")
        return self._branches(bodies, sink)

    def _loop(self, body: list[Tree], sink: str) -> Stream:
        """A loop body runs from the start's values, then with what it assigns unknown: a round may see what the last one left."""
        start = self.state
        first = start.copy()
        self.state = first
        self.loops += 1
        out = self.run(body, sink)
        changed = {name for name, value in first.variables.items() if start.variables.get(name) != value}
        if changed or first.cwd != start.cwd:
            again = start.copy()
            for name in changed:
                value = first.variables[name]
                again.variables[name] = (
                    value if value == start.variables.get(name) else Value(UNKNOWN, value.shape, value.pattern, value.tags)
                )
            again.cwd, again.other_cwds = (
                (first.cwd, (start.cwd, *start.other_cwds)) if first.cwd != start.cwd else (start.cwd, start.other_cwds)
            )
            self.state = again
            self.run(body, sink)
            self._merge(start, again)
        self.loops -= 1
        self.state = start
        if not first.ended:
            self._merge(start, first)
        return replace(out, text=None)

    def _whileclause(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        self.run(node.get("Cond"))
        if shapes.endless(node) and not shapes.breaks(node.get("Do")):
            ran, written = len(self.programs), len(self.files.written)
            out = self._loop([*(kids(node, "Cond")), *(kids(node, "Do"))], sink)
            start, end = span(node)
            body = self.programs[ran:]
            if "sleep" not in body and (
                len(self.files.written) > written or {"mkdir", "cp", "tee", "touch", "dd", "mktemp", "fallocate"} & set(body)
            ):
                self.find("deny", "exhaust.disk", "writes without end", start, end)
            if shapes.starts_jobs(node.get("Do")) and not {"wait", "sleep", "read"} & set(body):
                self.find("deny", "exhaust.forkbomb", "starts programs in the background without end", start, end)
            self.find("ask", "loop.endless", "loops without an end", start, end)
            return out
        return self._loop([*(kids(node, "Cond")), *(kids(node, "Do"))], sink)

    def _forclause(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        loop = kid(node, "Loop")
        if loop.get("Type") != "WordIter":
            self.touch({key: value for key, value in loop.items() if key != "Type"})
            for part in ("Init", "Post"):
                name = shapes.arithmetic_name(loop.get(part))
                if name:
                    self.state.variables[name] = Value(UNKNOWN, "number")
            if loop.get("Cond") is None and not shapes.breaks(node.get("Do")):
                start, end = span(node)
                self.find("ask", "loop.endless", "loops without an end", start, end)
            return self._loop(kids(node, "Do"), sink)
        name = str(kid(loop, "Name").get("Value", ""))
        items: list[Arg] = []
        for word in kids(loop, "Items"):
            items.extend(words.expand(word, self))
        if not kid(loop, "InPos").get("Line") and not loop.get("Items"):
            items = list(self.state.positional or (Arg(UNKNOWN, *span(node), split=True),))
        values = [shapes.loop_value(item) for item in items]
        distinct = list(dict.fromkeys(values))
        if len(distinct) > MAX_ITEMS:
            shape = distinct[0].shape if len({value.shape for value in distinct}) == 1 else None
            if all(re.fullmatch(r"\d+", value.text) for value in distinct):
                shape = "number"
            distinct = [Value(UNKNOWN, shape)]
        out = EMPTY
        for value in distinct:
            self.assign(name, value)
            out = joined(out, self._loop(kids(node, "Do"), sink))
        if len(distinct) > 1:
            self.state.variables[name] = distinct[-1]
        return replace(out, text=None)

    def _caseclause(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        words.expand(node["Word"], self, split=False)
        bodies: list[list[Tree]] = []
        for item in kids(node, "Items"):
            for pattern in kids(item, "Patterns"):
                words.expand(pattern, self, split=False)
            bodies.append(kids(item, "Stmts"))
        return self._branches(bodies, sink)

    def _block(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        return self.run(node.get("Stmts"), sink)

    def _subshell(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        kept = self.state
        self.state = kept.copy()
        out = self.run(node.get("Stmts"), sink)
        self.state = kept
        return out

    def _timeclause(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        return self._stmt(node["Stmt"], sink) if node.get("Stmt") else EMPTY

    def _coprocclause(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        kept = self.state
        self.state = kept.copy()
        self._stmt(node["Stmt"], "pipe")
        self.state = kept
        return EMPTY

    def _funcdecl(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        names = [node["Name"]] if node.get("Name") else kids(node, "Names")
        for name in names:
            text = str(name.get("Value", ""))
            self.state.functions[text] = node["Body"]
            if re.search(r"(^|[^\w])" + re.escape(text) + r"\s*\|\s*" + re.escape(text) + r"(\s|$)", self._text(node)):
                self.flag("deny", "exhaust.forkbomb", "defines a function that starts itself without end", node)
        return EMPTY

    def _text(self, node: Tree) -> str:
        return " ".join(shapes.flat(node.get("Body")))

    def call_function(self, name: str, site: Site) -> Stream:
        """A function that the command itself defined."""
        if self.calls.count(name) >= 2:
            self.find("ask", "loop.recursion", f"{name} calls itself", site.start, site.end)
            return NOTHING_KNOWN
        kept = self.state.positional
        self.calls.append(name)
        self.state.positional = tuple(site.argv[1:])
        try:
            return self._stmt(self.state.functions[name], site.sink)
        finally:
            self.state.positional = kept
            self.calls.pop()

    def _testclause(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        self.touch(node.get("X"))
        for word in shapes.test_words(node.get("X")):
            arg = words.expand(word, self, split=False)[0]
            if re.search(r"\[.*(\$\(|`)", arg.text):
                self.flag("deny", "conceal.arithmetic", "tests a text that is evaluated as a subscript with a command in it", word)
        return EMPTY

    def _arithmetic(self, node: Any) -> None:
        """An expression that is evaluated: quotes in it protect nothing."""
        self.touch(node)
        if shapes.quoted_code(node):
            self.flag("deny", "conceal.arithmetic", "evaluates as arithmetic a quoted text with a command in it", node)

    def _arithmcmd(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        self._arithmetic(node.get("X"))
        name = shapes.arithmetic_name(node.get("X"))
        if name:
            self.state.variables[name] = Value(UNKNOWN, "number")
        return EMPTY

    def _letclause(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        for expression in kids(node, "Exprs"):
            self._arithmetic(expression)
            name = shapes.arithmetic_name(expression)
            if name:
                self.state.variables[name] = Value(UNKNOWN, "number")
        return EMPTY

    def _declclause(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        variant = str(kid(node, "Variant").get("Value", ""))
        argv = [Arg(variant, *span(node))]
        for item in kids(node, "Args"):
            name = item.get("Name")
            if name is None:
                argv.extend(words.expand(item["Value"], self) if item.get("Value") else [])
                continue
            value = self._assignment(item, export=variant == "export" or any(a.text in ("-x", "-gx") for a in argv))
            text = str(name.get("Value", ""))
            argv.append(Arg(text if item.get("Naked") else f"{text}={value.text}", *span(item), tags=value.tags))
        site = Site(argv, [], self.stdin, *span(node), sink)
        self._count()
        return self.judge(self, site)

    def _assignment(self, item: Tree, *, export: bool = False, keep: bool = True) -> Value:
        name = str(kid(item, "Name").get("Value", ""))
        if item.get("Index") is not None:
            self._arithmetic(item["Index"])
        if item.get("Array") is not None:
            elements: list[Arg] = []
            for element in kids(item["Array"], "Elems"):
                if element.get("Index") is not None:
                    self.touch(element["Index"])
                if element.get("Value"):
                    elements.extend(words.expand(element["Value"], self))
            value = Value(UNKNOWN, items=tuple(elements) if len(elements) <= MAX_ITEMS and not item.get("Append") else None)
        elif item.get("Value"):
            arg = words.expand(item["Value"], self, split=False)[0]
            value = Value(arg.text, arg.shape, arg.pattern, arg.tags)
            if item.get("Append"):
                old = self.lookup(name)
                value = Value(old.text + value.text if old is not None else UNKNOWN + value.text, tags=value.tags)
        elif item.get("Naked"):
            held = self.lookup(name)
            value = held if held is not None else Value()
        else:
            value = Value("")
        if item.get("Index") is not None:
            value = Value(UNKNOWN, tags=value.tags)
        if keep and not (item.get("Naked") and name in self.state.variables) and not item.get("Naked"):
            self.assign(name, value)
        if export:
            self.state.exported.add(name)
        return value

    def _callexpr(self, node: Tree, sink: str, stmt: Tree) -> Stream:
        assigns: list[Tree] = kids(node, "Assigns")
        args: list[Tree] = kids(node, "Args")
        start, end = span(node)
        if not args:
            env: list[tuple[str, Arg]] = []
            for item in assigns:
                name = str(kid(item, "Name").get("Value", ""))
                value = self._assignment(item)
                env.append((name, Arg(value.text, *span(item), shape=value.shape, pattern=value.pattern, tags=value.tags)))
            self._count()
            return self.judge(self, Site([], env, self.stdin, start, end, sink))
        argv: list[Arg] = []
        for word in args:
            argv.extend(words.expand(word, self))
        env = []
        for item in assigns:
            value = self._assignment(item, keep=False)
            env.append(
                (
                    str(item["Name"].get("Value", "")),
                    Arg(value.text, *span(item), shape=value.shape, pattern=value.pattern, tags=value.tags),
                )
            )
        self._count()
        if not argv:
            return EMPTY
        return self.judge(self, Site(argv, env, self.stdin, start, end, sink))

    def _count(self) -> None:
        self.sites += 1
        if self.sites > MAX_SITES:
            raise Capped(f"the command has more than {MAX_SITES} parts that run something")

    # -- redirects ----------------------------------------------------------------------------------------------------------

    def _redirect(self, stmt: Tree) -> tuple[Stream, Callable[[Stream], Stream] | None]:
        """What stdin becomes, and what to do with the output."""
        from warmgate_policies.shell import roles

        stdin = self.stdin
        targets: list[tuple[Arg, bool]] = []
        swallow = False
        for redirect in kids(stmt, "Redirs"):
            op = str(redirect.get("Op", ""))
            start, end = span(redirect)
            if op in ("<<", "<<-"):
                text, tags = self._heredoc(redirect, strip=op == "<<-")
                stdin = Stream(text if UNKNOWN not in text else None, tags)
                continue
            arg = words.expand(redirect["Word"], self, split=False)[0]
            arg.start, arg.end = start, end
            writer = shapes.first_word(stmt)
            if writer == "exec" and str(kid(redirect, "N").get("Value", "") if redirect.get("N") else "0") not in ("0", "1", "2"):
                writer = "exec: a descriptor of its own"
            if op == "<<<":
                stdin = Stream(arg.text + "\n" if arg.known else None, arg.tags, arg.shape, arg.pattern)
            elif op in (">&", "<&") and re.fullmatch(r"\d*-?|\d+-", arg.text):
                continue
            elif op == "<":
                stdin = arg.stream if arg.stream is not None else roles.read(self, arg, "the shell")
            elif op == "<>":
                roles.write(self, arg, "the shell", command=writer)
                stdin = Stream(tags=frozenset({"net"}) if "/dev/tcp" in arg.text or "/dev/udp" in arg.text else frozenset[str]())
            elif arg.stream is not None:
                continue
            else:
                number = str(kid(redirect, "N").get("Value", "") if redirect.get("N") else "")
                roles.write(self, arg, "the shell", append=op in (">>", "&>>"), command=writer)
                if number in ("", "1") or op in ("&>", "&>>", ">&"):
                    targets.append((arg, op in (">>", "&>>")))
                    swallow = True
        if not swallow:
            return stdin, None

        def deliver(out: Stream) -> Stream:
            for arg, append in targets:
                roles.store(self, arg, out, append=append)
            return EMPTY

        return stdin, deliver

    def _heredoc(self, redirect: Tree, *, strip: bool) -> tuple[str, frozenset[str]]:
        body = redirect.get("Hdoc")
        if body is None:
            return "", frozenset[str]()
        quoted = any(
            part.get("Type") in ("SglQuoted", "DblQuoted") or "\\" in str(part.get("Value", "")) for part in kids(redirect["Word"], "Parts")
        )
        parts: list[Tree] = kids(body, "Parts")
        if quoted:
            text = "".join(str(part.get("Value", "")) for part in parts)
            tags: frozenset[str] = frozenset[str]()
        else:
            arg = words.expand(
                {"Parts": [{"Type": "DblQuoted", "Parts": parts}], "Pos": kid(body, "Pos"), "End": kid(body, "End")},
                self,
                split=False,
            )[0]
            text, tags = arg.text, arg.tags
        if strip:
            text = re.sub(r"(?m)^\t+", "", text)
        return text, tags

    # -- directories --------------------------------------------------------------------------------------------------------

    def chdir(self, target: str | None) -> None:
        """``cd``: where it may fail, the old directory stays possible."""
        state = self.state
        old = (state.cwd, *state.other_cwds)
        state.before = state.cwd
        if target is None:
            state.cwd, state.other_cwds = None, tuple(dict.fromkeys(old))[:6]
            return
        path = resolve(target, state.cwd, self.facts)
        sure = path is not None and (path == "/" or inside(self.facts.workspace,
            path) or path in self.facts.scratch or path == self.facts.home or path in old
                                     or self.files.has_folder(path))  # fmt: skip
        state.cwd = path
        state.other_cwds = () if (sure or state.errexit) else tuple(cwd for cwd in dict.fromkeys(old) if cwd != path)[:6]

    def place(self, text: str) -> Any:
        """Class of a path, seen from the working directory that most likely holds."""
        return classify(text, self.state.cwd, self.facts)
