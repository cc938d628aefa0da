"""SQL: whether statements only read, change rows, or destroy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warmgate_policies.shell.findings import UNKNOWN, Arg

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_READS = re.compile(
    r"(?is)^\s*(select|with|explain(?!\s+analy[sz]e\s+(insert|update|delete))|show|describe|desc|pragma(?!.*=)|"
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
    r"refresh_\w+|set_config|lo_\w+|query_to_xml|pg_(reload|rotate|promote|switch|stat_reset|wal|drop|create|logical|replication)\w*|\\gexec|dblink\w*|for\s+update|pg_sleep|load|handler|prepare|execute|begin|commit)\b"
)


_FUNCTIONS = re.compile(
    r"(?i)(in|as|and|or|not|on|using|from|values|exists|any|all|some|over|filter|within|partition|select|where|having|join|lateral|"
    r"with|recursive|materialized|union|except|intersect|case|when|then|else|by|distinct|array|row|rows|interval|cast|explain|\w+_cte|cte\w*|"
    r"count|sum|avg|min|max|total|group_concat|string_agg|array_agg|json_\w+|jsonb_\w+|row_number|rank|dense_rank|percent_rank|ntile|lag|lead|"
    r"first_value|last_value|nth_value|coalesce|nullif|ifnull|iif|if|greatest|least|abs|ceil|ceiling|floor|round|trunc|mod|power|sqrt|exp|ln|log|"
    r"sign|random|rand|length|len|char_length|octet_length|lower|upper|initcap|trim|ltrim|rtrim|btrim|substr|substring|left|right|position|strpos|"
    r"instr|replace|translate|concat|concat_ws|split_part|regexp_\w+|format|printf|quote|quote_\w+|reverse|repeat|lpad|rpad|md5|sha\d+|encode|hex|"
    r"unhex|to_\w+|date|time|datetime|julianday|strftime|unixepoch|date_\w+|datediff|dateadd|timestampdiff|now|current_\w+|age|extract|year|month|"
    r"day|hour|minute|second|typeof|pg_typeof|version|sqlite_version|changes|last_insert_rowid|unnest|generate_series|range|cardinality|"
    r"array_\w+|list_\w+|struct_\w+|pg_size_pretty|pg_\w*_size|pg_get_\w+|has_\w+_privilege|obj_description|col_description|"
    r"pg_catalog\.\w+|bool_and|bool_or|every|stddev\w*|variance|var_\w+|percentile_\w+|mode|corr|median|grouping|"
    r"glob|like|likely|unlikely|char|unicode|zeroblob|rowid|fts\w*|match|snippet|highlight|bm25|numeric|decimal|varchar|int|integer|timestamp|text|"
    r"read_(csv|parquet|json|text)\w*|parquet_\w+|sniff_csv|summarize|columns|database|schema|user|inet_\w+|host|"
    r"pragma_\w+|dbstat|sqlite_\w+)"
)
"""What a statement that reads may call."""


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
    elif any(not _FUNCTIONS.fullmatch(called) for called in re.findall(r"(?i)([\w.]+)\s*\(", bare)) and not re.match(
        r"\s*(pragma|\\)", bare, re.IGNORECASE
    ):
        walker.find("ask", "db.mutate", f"{who} calls a function that may change the database", code.start, code.end)
    else:
        statements = [part for part in bare.split(";") if part.strip()]
        if not all(_READS.match(part) for part in statements) or any(
            _SIDE.search(part) for part in statements if not re.match(r"\s*(show|use|pragma|explain|\\)", part, re.IGNORECASE)
        ):
            walker.find("ask", "db.mutate", f"{who} changes a database", code.start, code.end)
