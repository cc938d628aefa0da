"""Train the stand-in worker's tokenizer and write ``router/warmgate/standin/tokenizer.json``.

A byte-level BPE of 4,096 entries and a few control tokens, trained on the docstrings of this Python's standard library and on
sentences written here, so that it needs no download and no foreign text. Run it again only when the control tokens or the splitting
rule change: token counts move with it.

    python scripts/make_standin_tokenizer.py
"""

from __future__ import annotations

import ast
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "router" / "warmgate" / "standin" / "tokenizer.json"
BASE_VOCABULARY = 4096
MAX_BYTES = 200_000

SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""How Qwen-style tokenizers cut text before merging: words with one leading mark, single digits, runs of marks with the line ends behind
them, runs of line ends kept whole."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>")
"""Control tokens: gone when text is decoded with ``skip_special_tokens``."""

ADDED = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>")
"""Markup that is one token and stays in decoded text."""

SINGLE_TOKENS = (
    *("yes", "no", "Yes", "No", "YES", "NO", "true", "false", "system", "user", "assistant", "tool"),
    *"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    *"0123456789",
)

MODULES = (
    *("argparse", "ast", "base64", "bdb", "calendar", "collections/__init__", "concurrent/futures/_base", "configparser", "contextlib"),
    *("copy", "csv", "ctypes/util", "dataclasses", "datetime", "decimal", "difflib", "doctest", "email/message", "enum", "ftplib"),
    *("functools", "getopt", "gettext", "heapq", "http/client", "http/cookiejar", "imaplib", "inspect", "ipaddress", "json/__init__"),
    *("locale", "logging/__init__", "logging/config", "mailbox", "optparse", "os", "pathlib", "pdb", "pickle", "pickletools", "platform"),
    *("plistlib", "random", "sched", "shlex", "shutil", "smtplib", "socket", "sqlite3/dump", "ssl", "statistics", "string", "subprocess"),
    *("tarfile", "tempfile", "textwrap", "threading", "timeit", "traceback", "trace", "turtle", "typing", "unittest/case"),
    *("unittest/mock", "urllib/parse", "urllib/request", "uuid", "warnings", "xml/dom/minidom", "xmlrpc/client", "zipfile"),
)

SENTENCES = (
    "Question: Which tool set does the next step need?\nA: files - read and write files\nB: web - fetch a page\nC: none",
    "Answer with the letter of one option only.\nAnswer with yes or no only.\nAnswer with the number of one level only.",
    "yes: a shell is needed\nno: nothing has to run\nYes.\nNo.\nYES\nNO\nyes\nno\n",
    "<|im_start|>system\nYou are a careful agent. Call tools by JSON.<|im_end|>\n<|im_start|>user\nList the files.<|im_end|>\n",
    '<|im_start|>assistant\n<tool_call>\n{"name": "run_shell", "arguments": {"command": "ls -la"}}\n</tool_call><|im_end|>\n',
    '{"type": "function", "function": {"name": "read_file", "description": "Read one text file", "parameters": '
    '{"type": "object", "properties": {"path": {"type": "string", "description": "A path"}}, "required": ["path"]}}}',
    "git status && git diff --stat HEAD~1\nrm -rf build dist\ngrep -rn TODO src | head -20\npython -m pytest -q tests/unit\n",
    "Is this command safe to run? Does the next step need a shell? How risky is it? The tool call was refused by the policy.",
    "The worker that already holds the session's prefix answers the decision, so that nothing is computed twice.",
)


def training_text() -> Iterator[str]:
    """Docstrings of the standard library, ASCII alone, then our sentences often enough to shape the merges."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for name in MODULES:
        path = root / f"{name}.py"
        if not path.is_file():
            path = root / name / "__init__.py"
        if not path.is_file():
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text and text.isascii():
                    yield text
    for sentence in SENTENCES:
        for _ in range(200):
            yield sentence
    for word in SINGLE_TOKENS:
        yield "\n".join([word] * 5000)


def main() -> None:
    """Train, check and write the tokenizer."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=BASE_VOCABULARY, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in ADDED])

    split = [word for word in (*SINGLE_TOKENS, *SPECIAL, *ADDED) if len(tokenizer.encode(word).ids) != 1]
    if split:
        sys.exit(f"not single tokens: {', '.join(split)}")
    spec = json.loads(tokenizer.to_str())
    spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":")) + "\n"
    if len(text.encode()) > MAX_BYTES:
        sys.exit(f"{len(text.encode())} bytes, more than {MAX_BYTES}")
    TARGET.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{TARGET}: {tokenizer.get_vocab_size()} entries, {len(text.encode())} bytes\n")


if __name__ == "__main__":
    main()
