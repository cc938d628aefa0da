"""SQL: whether statements only read, change rows, or destroy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warmgate_policies.shell.findings import UNKNOWN, Arg

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_READS = re.compile(
    r"(?is)^\s*(select|explain(?!\s+analy[sz]e\s+(insert|update|delete))|show|describe|desc|pragma(?!.*=)|"
    r"values|table|use|\\(d|l|dt|du|di|dv|df|dn|x|timing|conninfo|q|pset|echo|z|sf|sv)\b.*)\b|^\s*\\[dl]"
)
_DESTROYS = re.compile(r"(?is)\b(drop\s+(database|schema|table|user|role|owned|tablespace)|truncate|delete\s+from\s+[\w.\"`]+\s*($|;))")
_RUNS = re.compile(
    r"(?is)\bcopy\b.*\b(from|to)\s+program\b|\\!|xp_cmdshell|load_extension|sys_exec|into\s+(out|"
    r"dump)file|pg_read_file|lo_import|lo_export|load_file\s*\(|\bsystem\b\s+\w|pg_ls_dir|"
    r"\\copy\b.*\bprogram\b|\\g\s*\||\\o\s*\||writefile\s*\(|readfile\s*\(|edit\s*\("
)
_SIDE = re.compile(
    r"(?is)\b(insert|update|delete|drop|alter|create|truncate|grant|revoke|into|call|do|copy|merge|"
    r"replace\s+into|vacuum|reindex|lock|set|attach|nextval|setval|pg_terminate_backend|pg_cancel_backend|"
    r"pg_(reload|rotate|promote|switch|stat_reset|wal|drop|create|logical|replication)\w*|\\gexec|dblink\w*|for\s+update|pg_sleep|load|handler|prepare|execute|begin|commit)\b"
)


def judge(walker: Walker, code: Arg, who: str, *, remote: bool) -> None:
    """Judge SQL text."""
    text = code.text
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", " ", re.sub(r"'(?:''|[^'])*'", "''", text), flags=re.DOTALL)
    if _RUNS.search(text):
        walker.find("deny", "conceal.sql", f"{who} is told to run a program or reach files", code.start, code.end)
    elif _DESTROYS.search(bare) and remote:
        walker.find("deny", "destroy.database", f"{who} destroys data of a remote database", code.start, code.end)
    elif re.search(r"(?i)\b(pg_shadow|pg_authid|mysql\.user)\b", bare):
        walker.find("deny", "secret.read", f"{who} reads password hashes", code.start, code.end)
    elif UNKNOWN in text:
        walker.find("ask", "dynamic.code", f"{who} runs statements that the text does not fix", code.start, code.end)
    else:
        statements = [part for part in bare.split(";") if part.strip()]
        if not all(_READS.match(part) for part in statements) or any(
            _SIDE.search(part) for part in statements if not re.match(r"\s*(show|use|pragma|explain|\\)", part, re.IGNORECASE)
        ):
            walker.find("ask", "db.mutate", f"{who} changes a database", code.start, code.end)
