"""If these fail, a trace is read as another format's, and its numbers are made up."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.unit.replay.reading import DATA, head
from warmgate.replay.readers import readers
from warmgate.replay.source import open_trace

FILES = sorted(path for path in DATA.glob("*/*") if path.parent.name in {reader.name for reader in readers()})


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_each_sample_is_claimed_by_its_own_reader_alone(path):
    """Whichever reader is asked first would decide what the numbers mean. Plain request logs know least, and are asked last."""
    found = head(path.read_bytes())
    claims = [reader.name for reader in readers() if reader.recognises(found)]
    assert claims[0] == path.parent.name
    assert set(claims[1:]) <= {"openai_chat"}
    assert readers()[-1].name == "openai_chat"


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_folder_name_and_compression_do_not_matter(path, tmp_path):
    """Formats would be told by where a file lies."""
    copy = tmp_path / "download"
    copy.write_bytes(gzip.compress(path.read_bytes()))
    with open_trace(str(copy), print) as (reader, _):
        assert reader.name == path.parent.name


def test_every_format_has_a_sample():
    assert {path.parent.name for path in FILES} == {reader.name for reader in readers()}


def test_names_are_words_and_titles_say_more():
    for reader in readers():
        assert reader.name.isidentifier()
        assert reader.title != reader.name


@pytest.mark.parametrize(
    "rows",
    [
        [{"model": "text-embedding-3", "input": "hello"}, {"model": "text-embedding-3", "input": ["a", "b"]}],
        [{"prompt": "a", "completion": "b"}],
        [{"level": "info", "msg": "started", "timestamp": 1}],
        [{"type": "user", "message": "hi"}, {"type": "assistant", "message": "yo"}],
        [{"hash_ids": [1]}, {"input_length": 5}],
        [{"block_size": 64, "requests": []}],
        [{"name": "warmgate", "version": "1.0", "dependencies": {"x": "1"}}],
        [[1, 2], [3, 4]],
    ],
)
def test_lines_of_no_format_are_claimed_by_none(rows):
    """An embeddings log or a package.json would be reported as an empty trace."""
    found = head(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    assert [reader.name for reader in readers() if reader.recognises(found)] == []
