"""A program's arguments, told apart by its pack entry: options with values, operands with roles. Unknown options stay unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from warmgate_policies.shell.findings import UNKNOWN, Arg
from warmgate_policies.shell.rules import Option, Program


@dataclass(slots=True)
class Call:
    """Arguments taken apart.

    Attributes:
        options: (name, value or None, entry), in order.
        operands: (role, argument), in order.
        unknown: Arguments that look like options and are in no set.
        rest: Where the tail of a wrapper begins: the program it runs and its arguments.
        sub: Words of the subcommand.
    """

    options: list[tuple[str, Arg | None, Option]] = field(default_factory=list[tuple[str, Arg | None, Option]])
    operands: list[tuple[str, Arg]] = field(default_factory=list[tuple[str, Arg]])
    unknown: list[Arg] = field(default_factory=list[Arg])
    rest: list[Arg] = field(default_factory=list[Arg])
    surplus: list[Arg] = field(default_factory=list[Arg])

    def has(self, *names: str) -> bool:
        """Whether one of the options was given."""
        return any(name in names or not set(names).isdisjoint(entry.names) for name, _, entry in self.options)

    def value(self, *names: str) -> Arg | None:
        """The last value given to one of the options."""
        found = None
        for name, value, entry in self.options:
            if value is not None and (name in names or not set(names).isdisjoint(entry.names)):
                found = value
        return found

    def values(self, *names: str) -> list[Arg]:
        """All values given to the options."""
        return [
            value for name, value, entry in self.options if value is not None and (name in names or not set(names).isdisjoint(entry.names))
        ]

    @property
    def args(self) -> list[Arg]:
        """The operands without their roles."""
        return [arg for _, arg in self.operands]


_NO_ABBREVIATIONS = ("project", "script", "server", "coverage-run", "npx", "fallback")
"""Only programs that read their options with getopt_long take the beginning of an option for the whole."""


def take_apart(args: list[Arg], program: Program) -> Call:
    """Sort ``args`` by the entry ``program``."""
    call = Call()
    plain: list[Arg] = []
    table = program.table
    wrapper = "command" in program.operands or "command*" in program.operands
    at = 0
    while at < len(args):
        arg = args[at]
        at += 1
        text = arg.text
        if text == "--" and not arg.split:
            plain.extend(args[at:])
            break
        if (
            not text.startswith(("-", "+"))
            or text == "-"
            or (text.startswith("+") and not _plus(text, table))
            or arg.text.startswith(UNKNOWN)
        ):
            plain.append(arg)
            if program.style == "posix" or (wrapper and _is_command(len(plain), program)):
                plain.extend(args[at:])
                break
            continue
        at = _option(arg, args, at, program, call)
    if wrapper:
        fixed = program.roles.index("command*") if "command*" in program.roles else len(program.roles) - 1
        call.operands.extend(zip(program.roles[:fixed], plain[:fixed], strict=False))
        call.rest = plain[fixed:]
        return call
    _assign(plain, program.roles, call)
    return call


def _plus(text: str, table: dict[str, Option]) -> bool:
    return text in table or text[:2] in table or ("+#" in table and text[1:].isdigit())


def _is_command(count: int, program: Program) -> bool:
    return count > sum(role != "command*" for role in program.roles)


def _option(arg: Arg, args: list[Arg], at: int, program: Program, call: Call) -> int:
    """Take one option word (and its value) off; returns the next position."""
    table, text = program.table, arg.text
    name, equals, value = text.partition("=")
    if program.style == "long" and not text.startswith("--"):
        name = text if not equals else name
        found = table.get(name)
        if found is None:
            if len(text) == 2 or text[1:].isdigit():
                return _cluster(arg, args, at, program, call)
            return _begun(arg, program, call, at)
        return _valued(arg, name, value if equals else None, found, args, at, call)
    if text.startswith("--"):
        found = table.get(name) or (_abbreviated(name, table) if program.handler not in _NO_ABBREVIATIONS else None)
        if found is None or UNKNOWN in name:
            return _begun(arg, program, call, at)
        if name not in table:
            name = next(key for key in table if key.startswith(name) and not key.endswith("*"))
        return _valued(arg, name, value if equals else None, found, args, at, call)
    if text in table:
        return _valued(arg, text, None, table[text], args, at, call)
    if equals and name in table and len(name) > 2 and table[name].role is not None:
        return _valued(arg, name, value, table[name], args, at, call)
    return _cluster(arg, args, at, program, call)


def _begun(arg: Arg, program: Program, call: Call, at: int) -> int:
    """An option that is known by its beginning alone (``-Wextra`` by ``-W*``), or not at all."""
    for start, option in program.beginnings:
        if arg.text.startswith(start) and UNKNOWN not in arg.text[: len(start)]:
            tail = replace(arg, text=arg.text[len(start) :].removeprefix("="), spelled=None) if option.role is not None else None
            call.options.append((start + "*", tail, option))
            return at
    return _unknown(arg, call, at)


def _unknown(arg: Arg, call: Call, at: int) -> int:
    call.unknown.append(arg)
    return at


def _abbreviated(name: str, table: dict[str, Option]) -> Option | None:
    """GNU programs take any unambiguous beginning of a long option."""
    if len(name) < 4:
        return None
    found = {key: option for key, option in table.items() if key.startswith(name) and not key.endswith("*")}
    return next(iter(found.values())) if len(set(found.values())) == 1 and found else None


def _valued(arg: Arg, name: str, value: str | None, option: Option, args: list[Arg], at: int, call: Call) -> int:
    if option.role is None:
        if value is not None:
            return _unknown(arg, call, at)
        call.options.append((name, None, option))
        return at
    if value is not None or option.attached:
        tail = replace(arg, text=value or "", start=arg.start, shape=None, spelled=None) if value is not None else None
        call.options.append((name, tail, option))
        return at
    if at < len(args):
        call.options.append((name, args[at], option))
        return at + 1
    call.options.append((name, None, option))
    return at


def _cluster(arg: Arg, args: list[Arg], at: int, program: Program, call: Call) -> int:
    """``-abc``, ``-n5``, ``-20``."""
    text, table = arg.text, program.table
    kept = len(call.options)
    if "-#" in table and text[1:].isdigit():
        call.options.append(("-#", None, table["-#"]))
        return at
    if "+#" in table and text.startswith("+") and text[1:].isdigit():
        return at
    position = 1
    while position < len(text):
        name = text[0] + text[position]
        option = table.get(name)
        if option is None:
            if "-#" in table and text[position:].isdigit():
                return at
            del call.options[kept:]
            return _begun(arg, program, call, at)
        position += 1
        if option.role is None:
            call.options.append((name, None, option))
            continue
        if option.attached and option.role == "number":  # perl -lne, ruby -W2e: digits alone are its value
            solid = text[position:].replace(UNKNOWN, "0") if arg.shape in ("number", "word") else text[position:]
            digits = re.match(r"x[0-9a-fA-F]+|\d*", solid)
            size = digits.end() if digits is not None else 0
            value = replace(arg, text=text[position : position + size], shape=None, spelled=None) if size else None
            call.options.append((name, value, option))
            position += size
            continue
        if position < len(text):
            call.options.append(
                (
                    name,
                    replace(arg, text=text[position:].removeprefix("=") if len(text) > 3 else text[position:], shape=None, spelled=None),
                    option,
                )
            )
            return at
        if option.attached:
            call.options.append((name, None, option))
            return at
        return _valued(arg, name, None, option, args, at, call)
    return at


def _assign(plain: list[Arg], roles: list[str], call: Call) -> None:
    """Roles from the front and the back; what the star covers lies between."""
    star = next((index for index, role in enumerate(roles) if role.endswith("*")), None)
    if star is None:
        call.operands.extend(zip(roles, plain, strict=False))
        call.surplus.extend(plain[len(roles) :])
        return
    front, back = roles[:star], roles[star + 1 :]
    middle_end = len(plain) - len(back) if len(plain) >= len(front) + len(back) else len(plain)
    for index, arg in enumerate(plain):
        if index < len(front):
            role = front[index]
        elif index >= middle_end and back:
            role = back[index - middle_end]
        else:
            role = roles[star].rstrip("*")
        call.operands.append((role, arg))
