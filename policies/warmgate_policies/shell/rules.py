"""Rule packs: what programs are known, which of their flags, what their operands are, and what effects they have. Data, not code.

A pack is a YAML file. Users add packs of their own; a later pack replaces a program of an earlier one. Fields, and the compact notation of
options and operands, are documented in ``docs/shell-policy.md``, which is generated from the packs themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from warmgate.decision import Word
from warmgate.errors import InputError, one_line

ROLES = frozenset({
    "text", "read", "list", "write", "append", "create", "delete", "exec", "module", "url", "host", "bind", "listen", "command", "none",
    "pid", "assign",
    "code.sh", "code.sed", "code.awk", "code.python", "code.js", "code.perl", "code.ruby", "code.sql", "code.vim", "program", "project",
    "number", "load",
    "outdir", "secret", "dir", "workdir", "output", "search",
})  # fmt: skip
"""What an argument can be. ``project``: free text for the project's own code, checked for addresses and secrets alone."""


class Effect(BaseModel):
    """What an effect means.

    Attributes:
        verdict: The word it leads to.
        reason: Sentence, said after the program's name.
        tags: Origins that the program's output carries; see :class:`~.findings.Stream`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Word
    reason: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """One option: whether it takes a value and what that is, the values that are known, and the effect of using it."""

    role: str | None = None
    attached: bool = False
    effect: str | None = None
    only: str | None = None
    names: tuple[str, ...] = ()


class Program(BaseModel):
    """One program, or one of its subcommands.

    Attributes:
        options: The closed set, blank-separated: ``-a``, ``-n,--lines=number``, ``--color=?text`` (value only attached),
            ``--pre=code.sh!run.option``
            (with an effect), ``-#`` (a number as flag), ``-W*`` (any option that begins so), ``-p=text~no:.*`` (only such values),
            ``@name`` (a set of the pack's ``flags``). Any other option, and any other value, is at least ask.
        operands: Roles in order; one may end in ``*`` (any number). Empty: none may be given.
        style: How options are written: ``gnu`` (anywhere), ``posix`` (before operands), ``long`` (one dash,
            long names; ``-name=value`` too),
            ``raw`` (the handler reads them).
        effect: What running it does, whatever the arguments.
        bare: Effect without operands (or without a subcommand).
        unless: Options that take ``effect`` away (``--dry-run``, ``--offline``).
        subs: Subcommands.
        handler: Name of the code that judges what data cannot say.
        prints: Shape of its output, see :class:`~.findings.Stream`.
        tags: Origins its output carries.
        closed: With ``raw`` and no ``options``: it has none at all. (A ``raw`` program's options are checked only where either is given.)
        folder: Whether what it does depends on the current folder: it reads settings of it, runs code of it, or writes there. Such a
            program is asked about in a folder outside the workspace. Left out: as the parent, or the pack, says.
        inherit: Whether subcommands take the parent's options as well.
        same: Another program or ``program sub`` whose entry this one shares.
    """

    model_config = ConfigDict(extra="forbid")

    options: str = ""
    operands: str = ""
    style: Literal["gnu", "posix", "long", "raw"] = "gnu"
    effect: str | None = None
    bare: str | None = None
    unless: str = ""
    subs: dict[str, Program] = Field(default_factory=dict[str, Any])
    handler: str | None = None
    prints: str | None = None
    tags: tuple[str, ...] = ()
    same: str | None = None
    inherit: bool = True
    closed: bool = False
    folder: bool | None = None

    @field_validator("operands")
    @classmethod
    def _known_roles(cls, text: str) -> str:
        roles = text.split()
        unknown = [role for role in roles if role.rstrip("*") not in ROLES]
        if unknown or sum(role.endswith("*") for role in roles) > 1:
            raise ValueError(f"operands {text!r}: unknown role {unknown[:1]} or two starred")
        return text

    @field_validator("options")
    @classmethod
    def _known_values(cls, text: str) -> str:
        for name, option in _options(text).items():
            if option.role is not None and option.role not in ROLES:
                raise ValueError(f"options: unknown role {option.role!r}")
            if not name.startswith(("-", "+", "@")):
                raise ValueError(f"options: {name!r} does not look like an option")
            if option.only is not None:
                _compiled(option.only)
        return text

    @cached_property
    def table(self) -> dict[str, Option]:
        """Option → what it is."""
        return _options(self.options)

    @cached_property
    def beginnings(self) -> list[tuple[str, Option]]:
        """Beginnings of options (``-W*``) → what they are, longest first."""
        found = [(name[:-1], option) for name, option in self.table.items() if name.endswith("*")]
        return sorted(found, key=lambda item: -len(item[0]))

    @cached_property
    def roles(self) -> list[str]:
        """Operand roles in order."""
        return self.operands.split()

    def forget(self) -> None:
        """Derive the tables anew, after a change of the texts they come from."""
        for name in ("table", "beginnings", "roles"):
            vars(self).pop(name, None)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as fault:
        raise ValueError(f"options: {pattern!r} is not a regular expression ({fault})") from None


def known_value(option: Option, value: str) -> bool:
    """Whether the option's value is one that the pack names."""
    return option.only is None or _compiled(option.only).fullmatch(value) is not None


def _options(text: str) -> dict[str, Option]:
    table: dict[str, Option] = {}
    for token in text.split():
        names, equals, rest = token.partition("=")
        if not equals:
            names, _, effect = token.partition("!")
            role = only = ""
        else:
            role, tilde, only = rest.partition("~")
            role, _, effect = role.partition("!") if tilde else rest.partition("!")
        attached = role.startswith("?")
        option = Option(role.removeprefix("?") if equals else None, attached, effect or None, only or None, tuple(names.split(",")))
        for name in names.split(","):
            table[name] = option
    return table


class Pack(BaseModel):
    """One file of rules."""

    model_config = ConfigDict(extra="forbid")

    pack: str
    version: str
    about: str
    folder: bool = True
    """What ``folder`` is for programs of this pack that do not say."""
    effects: dict[str, Effect] = Field(default_factory=dict[str, Any])
    programs: dict[str, Program] = Field(default_factory=dict[str, Any])
    environment: dict[str, list[str]] = Field(default_factory=dict[str, Any])
    """Class of assignment → variable names, globs allowed; classes are those of :mod:`.assignments`."""
    flags: dict[str, str] = Field(default_factory=dict[str, str])
    """Sets of options that several programs share: ``@name`` in a program's ``options``. A set may not name another."""


@dataclass(frozen=True, eq=False)
class Rules:
    """All packs together.

    Attributes:
        programs: Name → program, every alias its own key.
        effects: Id → effect.
        environment: Variable name or glob → class.
        version: Changes whenever any rule changes.
        packs: Pack names with versions.
    """

    programs: Mapping[str, Program]
    effects: Mapping[str, Effect]
    environment: Mapping[str, str]
    version: str
    packs: tuple[str, ...]


def read_pack(text: str, name: str) -> Pack:
    """One pack from YAML.

    Raises:
        InputError: Not YAML, or not a pack; the message names the file and the field.
    """
    import yaml

    try:
        data: Any = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both loaders are safe ones
        return Pack.model_validate(data)
    except yaml.YAMLError as fault:
        raise InputError(f"not YAML ({one_line(str(fault), 160)})", where=name, mend="see docs/shell-policy.md") from None
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(f"not a rule pack: {field}: {first['msg']}", where=name, mend="see docs/shell-policy.md") from None


@lru_cache(maxsize=1)
def _builtin() -> tuple[Pack, ...]:
    folder = resources.files("warmgate_policies.shell").joinpath("packs")
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name)
    return tuple(read_pack(entry.read_text(encoding="utf-8"), entry.name) for entry in files)


@lru_cache(maxsize=8)
def load(extra: tuple[str, ...] = ()) -> Rules:
    """The built-in packs and, after them, the users' own files.

    Raises:
        InputError: A pack cannot be read or refers to what does not exist.
    """
    packs = [*_builtin()]
    for path in extra:
        try:
            packs.append(read_pack(Path(path).read_text(encoding="utf-8"), path))
        except (OSError, UnicodeDecodeError) as fault:
            raise InputError(f"cannot be read ({fault})", where=path, mend="give the path of a YAML rule pack") from None
    return combine(packs)


def combine(packs: Sequence[Pack]) -> Rules:
    """Packs in order, later ones replacing."""
    programs: dict[str, Program] = {}
    effects: dict[str, Effect] = {}
    environment: dict[str, str] = {}
    for pack in packs:
        effects.update(pack.effects)
        for names, program in pack.programs.items():
            _settle_folder(program, pack.folder)
            for name in names.split():
                programs[name] = program
        for kind, variables in pack.environment.items():
            for name in variables:
                environment[name] = kind
    flags = {name: text for pack in packs for name, text in pack.flags.items()}
    for program in {id(program): program for program in programs.values()}.values():
        _expand(program, flags)
    for name, program in list(programs.items()):
        if program.same is not None:
            programs[name] = _shared(program, programs, name)
    for name, program in programs.items():
        _check(name, program, effects)
    digest = hashlib.sha256("\n".join(pack.model_dump_json() for pack in packs).encode()).hexdigest()[:12]
    return Rules(programs, effects, environment, digest, tuple(f"{pack.pack} {pack.version}" for pack in packs))


def _settle_folder(program: Program, above: bool) -> None:
    if program.folder is None:
        program.folder = above
    for sub in program.subs.values():
        _settle_folder(sub, program.folder)


def _expand(program: Program, flags: Mapping[str, str]) -> None:
    """Put the sets of options in the place of their names."""
    if "@" in program.options:
        words: list[str] = []
        for word in program.options.split():
            if not word.startswith("@"):
                words.append(word)
            elif word[1:] in flags:
                words.insert(0, flags[word[1:]])  # in front: a program's own word for an option counts
            else:
                raise InputError(f"options name the set {word}, which no pack describes", where="rule packs")
        program.options = " ".join(words)
        program.forget()
    for sub in program.subs.values():
        _expand(sub, flags)


def _shared(program: Program, programs: Mapping[str, Program], name: str) -> Program:
    path = (program.same or "").split()
    found = programs.get(path[0])
    for sub in path[1:]:
        found = found.subs.get(sub) if found is not None else None
    if found is None or found.same is not None:
        raise InputError(f"program {name!r} is the same as {program.same!r}, which no pack describes", where="rule packs")
    return found


def _check(name: str, program: Program, effects: Mapping[str, Effect]) -> None:
    used = [program.effect, program.bare, *(option.effect for option in program.table.values())]
    for effect in used:
        if effect is not None and effect not in effects:
            raise InputError(f"program {name!r} has the effect {effect!r}, which no pack describes", where="rule packs")
    subs: dict[str, Program] = {}
    for names, sub in program.subs.items():
        for one in names.split():
            subs[one] = sub
            _check(f"{name} {one}", sub, effects)
    program.subs = subs
