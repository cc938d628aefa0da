"""The stand-in's tokenizer: exact in pieces, and with the tokens that decisions need."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from warmgate.errors import TokenizerError
from warmgate.standin import text as module
from warmgate.standin.text import Text

TEXT = Text()
PLAIN = module._load(None)
PIECES = [
    "<|im_start|>",
    "<|im_end|>\n",
    "</think>\n\n",
    "\n",
    "\r\n",
    "  \n",
    "\t",
    " ",
    "word",
    "é☃",
    "12",
    "{}",
    '"a": ',
    "<tool",
    "_call>",
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_pieces_give_the_whole(parts: list[str]):
    """Remembered pieces that tokenized otherwise would move every block boundary behind them."""
    whole = "".join(parts)
    assert TEXT.encode(whole) == PLAIN.encode(whole, add_special_tokens=False).ids


def test_long_pieces_are_cut_at_line_ends_exactly(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LONG_PIECE", 20)
    whole = 'def f(x):\n    return x\n\n\n# 12\r\nx = {"a":\n1}\n \n  y\n' * 30
    assert Text().encode(whole) == PLAIN.encode(whole, add_special_tokens=False).ids


def test_a_text_comes_back():
    whole = "naïve ☃\n\n<|im_start|>user\n\t1234 <think>"
    assert TEXT.decode(TEXT.encode(whole)) == whole
    assert TEXT.decode(TEXT.encode(whole), skip_special=True) == whole.replace("<|im_start|>", "")


def test_labels_are_single_tokens():
    """Otherwise the decision route would answer 501."""
    for label in ["yes", "no", "Yes", "No", *string.ascii_uppercase, *string.digits, "<think>", "</think>", "<tool_call>", "</tool_call>"]:
        assert TEXT.single(label) is not None
        assert TEXT.encode("assistant\n" + label)[:-1] == TEXT.encode("assistant\n")
    assert TEXT.single("é") is None


def test_the_file_stays_small():
    """It ships with every installation."""
    from importlib.resources import files

    assert len(files("warmgate.standin").joinpath("tokenizer.json").read_bytes()) <= 200_000
    assert 4000 <= TEXT.vocabulary_size <= 4200


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """A worker that runs for days must not grow with every prompt it has seen."""
    monkeypatch.setattr(module, "REMEMBERED_CHARACTERS", 10_000)
    text = Text()
    for number in range(2000):
        text.encode(f"prompt number {number}")
    assert len(text._pieces) < 200


def test_a_tokenizer_whose_pieces_depend_on_each_other_is_not_cut(tmp_path):
    """A Llama-style tokenizer puts a space before a text: before the first piece alone."""
    tokenizer = Tokenizer(models.BPE(vocab={"▁": 0, "a": 1, "<s>": 2}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = Text(tmp_path)
    assert text.encode("a<s>a") == tokenizer.encode("a<s>a", add_special_tokens=False).ids


@pytest.mark.parametrize("content", [None, "", "{}", "not json", "[]", '{"model": 7}', '"\\ud800"'])
def test_a_file_that_is_no_tokenizer(tmp_path, content: str | None):
    """One line that says what, where and how to mend it."""
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(TokenizerError) as caught:
        Text(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
