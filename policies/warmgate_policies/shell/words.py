"""Words as bash would expand them: quotes, escapes, tilde, braces, variables, substitutions; what the text does not fix is unknown."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import Any, Protocol

from warmgate_policies.shell.findings import UNKNOWN, Arg, Capped, Stream
from warmgate_policies.shell.trees import Tree, kid, kids, span

MAX_BRACES = 64
SECRET_NAME = re.compile(
    r"(?i)(^|_)(token|secret|passw(or)?d|passphrase|api_?key|private_?key|access_?key|credentials?|auth)(_|$|s$)|(?i:secret|passwd|apikey)"
)
_ANSI = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_SIMPLE = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Value:
    """What a variable holds; the fields mean what they mean in :class:`~.findings.Arg`."""

    text: str = UNKNOWN
    shape: str | None = None
    pattern: str | None = None
    tags: frozenset[str] = frozenset[str]()
    items: tuple[Arg, ...] | None = None

    @property
    def known(self) -> bool:
        """Whether the text fixes it."""
        return UNKNOWN not in self.text


class Scope(Protocol):
    """What expansion needs of the interpreter."""

    def lookup(self, name: str) -> Value | None:
        """A variable's value; None where it is not known to be set."""
        ...

    def capture(self, node: Tree) -> Stream:
        """Run a command or process substitution and give what it prints."""
        ...

    def touch(self, node: Any) -> None:
        """Visit the commands inside an arithmetic or index expression."""
        ...

    def flag(self, verdict: str, rule: str, reason: str, node: Tree) -> None:
        """Record a finding."""
        ...

    def assign(self, name: str, value: Value) -> None:
        """Set a variable (``${x:=y}``)."""
        ...

    def home_of(self, user: str) -> str | None:
        """The home that ``~user`` stands for."""
        ...

    default_ifs: bool


@dataclass(slots=True)
class Piece:
    """A run of characters of one origin."""

    text: str
    quoted: bool
    value: Value | None = None
    trick: str | None = None


def ansi(text: str) -> str:
    r"""``$'…'`` decoded."""

    def one(found: re.Match[str]) -> str:
        body = found.group(1)
        if body[0] in "xuU" and len(body) > 1:
            code = int(body[1:], 16)
            return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else UNKNOWN
        if body[0] in "01234567":
            return chr(int(body, 8) & 0xFF)
        if body[0] == "c" and len(body) == 2:
            return chr(ord(body[1]) & 0x1F)
        return _SIMPLE.get(body, body if body in "\\'\"?" else "\\" + body)

    return _ANSI.sub(one, text).split("\0", 1)[0]


def expand(word: Tree, scope: Scope, *, split: bool = True) -> list[Arg]:
    """The arguments a word becomes. With ``split`` off (assignments, redirect targets, case words) always exactly one."""
    start, end = span(word)
    pieces: list[Piece] = []
    stream: Stream | None = None
    parts: list[Tree] = kids(word, "Parts")
    for index, part in enumerate(parts):
        if part.get("Type") == "ProcSubst":
            stream = scope.capture(part)
            pieces.append(Piece("/dev/fd/63", True, Value("/dev/fd/63", tags=stream.tags)))
            continue
        if split and len(parts) == 1 and part.get("Type") in ("ParamExp", "DblQuoted"):
            array = _array(part, scope)
            if array is not None:
                return [replace(item, start=start, end=end) for item in array]
        pieces.extend(_pieces(part, scope, first=index == 0))
    variants = _braces(pieces) if split else [pieces]
    if len(variants) > MAX_BRACES:
        scope.flag("ask", "exhaust.braces", "expands braces to a great many words", word)
        variants = [[Piece(UNKNOWN, False, Value(UNKNOWN))]]
    args: list[Arg] = []
    for variant in variants:
        args.extend(_fields(variant, scope, split, start, end, spelled="brace expansion" if len(variants) > 1 else None))
    if args and stream is not None:
        args[0].stream = stream
    return args


def _array(part: Tree, scope: Scope) -> tuple[Arg, ...] | None:
    """``"${a[@]}"`` and ``"$@"`` of an array whose elements are known."""
    if part["Type"] == "DblQuoted":
        inner = kids(part, "Parts")
        if len(inner) != 1 or inner[0].get("Type") != "ParamExp":
            return None
        part = inner[0]
    name = kid(part, "Param").get("Value", "")
    index = part.get("Index")
    whole = name in ("@", "*") or (index is not None and [p.get("Value") for p in kids(index, "Parts")] in (["@"], ["*"]))
    if not whole or any(part.get(key) for key in ("Exp", "Repl", "Slice", "Length", "Excl")):
        return None
    value = scope.lookup(name)
    return value.items if value is not None else None


def _pieces(part: Tree, scope: Scope, *, first: bool, quoted: bool = False) -> list[Piece]:
    kind = part.get("Type")
    if kind == "Lit":
        return _literal(str(part.get("Value", "")), scope, first=first, quoted=quoted)
    if kind == "SglQuoted":
        text = str(part.get("Value", ""))
        if part.get("Dollar"):
            return [Piece(ansi(text), True, trick="an escaped spelling" if re.search(r"\\[xuU0-7c]", text) else "quotes inside it")]
        return [Piece(text, True, trick="quotes inside it")]
    if kind == "DblQuoted":
        found: list[Piece] = []
        for inner in kids(part, "Parts"):
            found.extend(_pieces(inner, scope, first=False, quoted=True))
        if not found:
            return [Piece("", True, trick="quotes inside it")]
        for piece in found:
            piece.trick = piece.trick or "quotes inside it"
        return found
    if kind == "ParamExp":
        return [_parameter(part, scope, quoted)]
    if kind == "CmdSubst":
        stream = scope.capture(part)
        if stream.text is not None:
            return [Piece(stream.text.rstrip("\n"), quoted, Value(stream.text.rstrip("\n"), tags=stream.tags), trick="a substitution")]
        return [Piece(UNKNOWN, quoted, Value(UNKNOWN, stream.shape, stream.pattern, stream.tags), trick=None)]
    if kind == "ArithmExp":
        scope.touch(part)
        return [Piece(UNKNOWN, True, Value(UNKNOWN, "number"))]
    if kind == "ExtGlob":
        scope.touch(part)
        return [Piece("*", False, trick="a glob")]
    scope.touch(part)
    return [Piece(UNKNOWN, quoted, Value(UNKNOWN))]


def _literal(text: str, scope: Scope, *, first: bool, quoted: bool) -> list[Piece]:
    if quoted:
        return [Piece(re.sub(r"\\([$`\"\\\n])", lambda m: "" if m.group(1) == "\n" else m.group(1), text), True)]
    found: list[Piece] = []
    if first and text.startswith("~"):
        head, slash, rest = text.partition("/")
        home = scope.home_of(head[1:]) if "\\" not in head else None
        if home is not None:
            found.append(Piece(home, True))
            text = slash + rest
        elif head != "~" and "\\" not in head:
            found.append(Piece(UNKNOWN, True, Value(UNKNOWN)))
            text = slash + rest
    if "\\" not in text:
        if text or not found:
            found.append(Piece(text, False))
        return found
    plain = ""
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            if plain:
                found.append(Piece(plain, False))
                plain = ""
            if text[at + 1] != "\n":
                found.append(Piece(text[at + 1], True, trick="a backslash inside it"))
            at += 2
        else:
            plain += text[at]
            at += 1
    if plain:
        found.append(Piece(plain, False))
    return found


def _parameter(part: Tree, scope: Scope, quoted: bool) -> Piece:
    name = str(kid(part, "Param").get("Value", ""))
    if part.get("Index") is not None:
        scope.touch(part["Index"])
    if part.get("Length") or part.get("Width"):
        return Piece(UNKNOWN, True, Value(UNKNOWN, "number"))
    value = scope.lookup(name)
    tags = value.tags if value is not None else frozenset[str]()
    if value is None and SECRET_NAME.search(name):
        tags = frozenset({"secretvar"})
    if part.get("Excl"):
        return Piece(UNKNOWN, quoted, Value(UNKNOWN, tags=tags), trick="an indirect variable")
    for key in ("Repl", "Slice"):
        if part.get(key) is not None:
            scope.touch(part[key])
            return Piece(UNKNOWN, quoted, Value(UNKNOWN, tags=tags), trick="a part of a variable")
    if part.get("Index") is not None:
        return Piece(UNKNOWN, quoted, Value(UNKNOWN, tags=tags))
    operation = part.get("Exp")
    if operation is not None:
        return _operation(part, operation, name, value, tags, scope, quoted)
    if name == "IFS" and not quoted:
        return Piece(" ", False, Value(" "), trick="the separator variable")
    if value is None:
        return Piece(UNKNOWN, quoted, Value(UNKNOWN, tags=tags))
    return Piece(value.text, quoted, value, trick="a variable")


def _operation(part: Tree, operation: Tree, name: str, value: Value | None, tags: frozenset[str], scope: Scope, quoted: bool) -> Piece:
    op = str(operation.get("Op", ""))
    word = operation.get("Word")
    if op == "@":
        if word and any("P" in str(p.get("Value", "")) for p in kids(word, "Parts")):
            scope.flag("deny", "conceal.prompt", "expands a variable as a prompt (@P), which runs what it holds", part)
        return Piece(UNKNOWN, quoted, Value(UNKNOWN, tags=tags), trick="a transformed variable")
    other = expand(word, scope, split=False)[0] if word else Arg("")
    shape = value.shape if value is not None else None
    pattern = value.pattern if value is not None else None
    if op in (":-", "-", ":=", "="):
        if value is not None and value.known and value.items is None:
            if value.text or not op.startswith(":"):
                return Piece(value.text, quoted, value, trick="a variable")
            return Piece(other.text, quoted, Value(other.text, tags=other.tags), trick="a variable")
        return Piece(UNKNOWN, quoted, Value(UNKNOWN, tags=tags | other.tags))
    if op in (":?", "?"):
        return Piece(value.text if value else UNKNOWN, quoted, value or Value(UNKNOWN, tags=tags), trick="a variable")
    if op in ("%", "%%"):
        return Piece(UNKNOWN, quoted, Value(UNKNOWN, shape, pattern, tags), trick="a part of a variable")
    if op in ("#", "##"):
        return Piece(
            UNKNOWN,
            quoted,
            Value(UNKNOWN, "word" if op == "##" and other.text in ("*/", "*.") else None, None, tags),
            trick="a part of a variable",
        )
    return Piece(UNKNOWN, quoted, Value(UNKNOWN, tags=tags | other.tags), trick="a transformed variable")


def _fields(pieces: list[Piece], scope: Scope, split: bool, start: int, end: int, spelled: str | None) -> list[Arg]:
    fields: list[list[Piece]] = [[]]
    for piece in pieces:
        blanks = " " in piece.text or "\n" in piece.text or "\t" in piece.text or not scope.default_ifs
        if split and not piece.quoted and piece.value is not None and piece.value.known and blanks and piece.text:
            if not scope.default_ifs:
                fields[-1].append(Piece(UNKNOWN, False, Value(UNKNOWN, tags=piece.value.tags)))
                continue
            words = re.split(r"[ \t\n]+", piece.text)
            for index, text in enumerate(words):
                if index:
                    fields.append([])
                if text:
                    fields[-1].append(replace(piece, text=text))
            continue
        fields[-1].append(piece)
    args: list[Arg] = []
    separators = any(piece.trick == "the separator variable" for piece in pieces)
    for field in fields:
        if split and not any(piece.quoted or piece.text for piece in field):
            continue
        arg = _one(field, scope, start, end)
        if separators:
            arg.spelled = "the separator variable"
        elif spelled and arg.spelled is None:
            arg.spelled = spelled
        args.append(arg)
    if not split and not args:
        args.append(Arg("", start, end))
    return args


def _one(field: list[Piece], scope: Scope, start: int, end: int) -> Arg:
    text = "".join(piece.text for piece in field)
    if len(text) > 200_000:
        raise Capped("an argument grows too large")
    arg = Arg(text, start, end)
    arg.glob = _globs(field)
    arg.split = any(
        not piece.quoted and UNKNOWN in piece.text and (piece.value is None or piece.value.shape not in ("number", "word"))
        for piece in field
    )
    arg.computed = any(piece.value is not None for piece in field)
    tags: frozenset[str] = frozenset[str]()
    for piece in field:
        if piece.value is not None:
            tags |= piece.value.tags
    arg.tags = tags
    unknown = [piece for piece in field if UNKNOWN in piece.text]
    if len(unknown) == 1 and unknown[0].value is not None and UNKNOWN in unknown[0].text and unknown[0].value.shape in ("number", "word"):
        arg.shape = unknown[0].value.shape if len(field) == 1 else "word"
    elif len(unknown) == 1 and unknown[0].value is not None and unknown[0].text == UNKNOWN:
        shape = unknown[0].value.shape
        if shape in ("number", "word") or len(field) == 1:
            arg.shape, arg.pattern = shape, unknown[0].value.pattern
            if arg.pattern is not None and len(field) > 1:
                arg.shape = arg.pattern = None
        elif shape == "path" and unknown[0].value.pattern is not None and field[0] is unknown[0]:
            # "$f.bak": a suffix behind a path of known place
            rest = "".join(piece.text for piece in field[1:])
            if "/" not in rest:
                arg.shape, arg.pattern = "path", unknown[0].value.pattern + "*"
            elif rest.startswith("/") and not unknown[0].value.pattern.endswith("**"):
                arg.shape, arg.pattern = "path", unknown[0].value.pattern.rstrip("/") + rest
        elif (
            shape == "path"
            and len(field) == 2
            and field[1] is unknown[0]
            and field[0].text.endswith("/")
            and ".." not in (unknown[0].value.pattern or "..")
        ):
            arg.shape, arg.pattern = "path", field[0].text + "**/found"  # names listed in a folder, put behind it again
        elif shape == "path" and unknown[0].value.pattern is not None and len(field) == 2 and field[0].text.endswith(("@", "<")):
            arg.shape, arg.pattern = "path", field[0].text + unknown[0].value.pattern  # curl -d @"$f"
    elif len(unknown) > 1 and all(piece.value is not None and piece.value.shape in ("number", "word") for piece in unknown):
        arg.shape = "word"
    arg.spelled = _spelled(field)
    arg.head = field[0].text if field and not field[0].quoted and field[0].value is None else ""
    return arg


def _globs(field: list[Piece]) -> bool:
    """Whether a pattern is active: a bracket alone is a program's name."""
    bare = "".join(piece.text for piece in field if not piece.quoted)
    return "*" in bare or "?" in bare or ("[" in bare and "]" in bare and bare != "[]")


def _spelled(field: list[Piece]) -> str | None:
    """How a word hides what it says, if it were a program or an option's name."""
    solid = [piece for piece in field if piece.text or piece.quoted]
    tricks = {piece.trick for piece in solid if piece.trick}
    if "an escaped spelling" in tricks:
        return "an escaped spelling"
    if "a substitution" in tricks:
        return "a substitution"
    if _globs(solid):
        return "a glob"
    if tricks & {"a part of a variable", "a transformed variable", "an indirect variable", "the separator variable"}:
        return min(tricks & {"a part of a variable", "a transformed variable", "an indirect variable", "the separator variable"})
    if len(solid) == 1 or (len(solid) == 2 and solid[0].trick == "a backslash inside it" and solid[0].text.isalpha()):
        return None  # \ls and 'ls' and "$CMD" hide nothing
    if "a backslash inside it" in tricks:
        return "a backslash inside it"
    if "a variable" in tricks:
        return None if any("/" in piece.text for piece in solid) else "several variables"
    if "quotes inside it" in tricks:
        return "quotes inside it"
    return None


def _braces(pieces: list[Piece]) -> list[list[Piece]]:
    if not any(not piece.quoted and piece.value is None and "{" in piece.text for piece in pieces):
        return [pieces]
    marks: list[Piece] = []
    for piece in pieces:
        if piece.quoted or piece.value is not None:
            marks.append(piece)
        else:
            marks.extend(Piece(c, False, trick=piece.trick) for c in piece.text)
    variants = _brace(marks)
    return [_merge(variant) for variant in variants] if len(variants) > 1 else [pieces]


def _merge(marks: list[Piece]) -> list[Piece]:
    merged: list[Piece] = []
    for mark in marks:
        if merged and not mark.quoted and mark.value is None and not merged[-1].quoted and merged[-1].value is None:
            merged[-1] = Piece(merged[-1].text + mark.text, False, trick=mark.trick)
        else:
            merged.append(mark)
    return merged


def _plain(piece: Piece, text: str) -> bool:
    return not piece.quoted and piece.value is None and piece.text == text


def _brace(marks: list[Piece], depth: int = 0) -> list[list[Piece]]:
    if depth > 12:
        raise Capped("brace expansion is nested too deeply")
    for start, mark in enumerate(marks):
        if not _plain(mark, "{"):
            continue
        level, commas, end = 0, [start], -1
        for at in range(start, len(marks)):
            if _plain(marks[at], "{"):
                level += 1
            elif _plain(marks[at], "}"):
                level -= 1
                if level == 0:
                    end = at
                    break
            elif _plain(marks[at], ",") and level == 1:
                commas.append(at)
        if end < 0:
            continue
        body = marks[start + 1 : end]
        if len(commas) > 1:
            cuts = [*commas, end]
            options = [marks[a + 1 : b] for a, b in itertools.pairwise(cuts)]
            inner = [variant for option in options for variant in _brace(option, depth + 1)]
        else:
            series = (
                _series("".join(piece.text for piece in body)) if all(not piece.quoted and piece.value is None for piece in body) else None
            )
            if series is None:
                continue
            inner = [[Piece(text, False) if text != UNKNOWN else Piece(UNKNOWN, True, Value(UNKNOWN, "number"))] for text in series]
        tails = _brace(marks[end + 1 :], depth + 1)
        if len(inner) * len(tails) > MAX_BRACES:
            return [[Piece(UNKNOWN, False, Value(UNKNOWN))]] * (MAX_BRACES + 1)
        return [marks[:start] + middle + tail for middle in inner for tail in tails]
    return [marks]


def _series(body: str) -> list[str] | None:
    found = re.fullmatch(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?", body)
    if found:
        first, last, step = int(found[1]), int(found[2]), abs(int(found[3] or 1)) or 1
        count = abs(last - first) // step + 1
        if count > MAX_BRACES:
            return [UNKNOWN] * (2 if count <= 100_000 else MAX_BRACES + 1)
        return [str(first + (step if last >= first else -step) * index) for index in range(count)]
    if re.fullmatch(r"[A-Za-z]\.\.[A-Za-z]", body):
        a, b = ord(body[0]), ord(body[-1])
        return [chr(code) for code in (range(a, b + 1) if a <= b else range(a, b - 1, -1))][:MAX_BRACES]
    return None
