"""If these fail, exact counts are not exact, or a broken tokenizer.json ends the replay with somebody else's backtrace."""

from __future__ import annotations

import json
import os
import random
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

from tests.unit.replay.tokenizers_of_our_own import trained, write
from warmgate.alignment.template import ChatTemplate
from warmgate.errors import TokenizerError
from warmgate.prefix.blocks import common_prefix
from warmgate.replay import panics
from warmgate.replay.prepare import TextPreparer
from warmgate.replay.tokens import ExactTokens
from warmgate.replay.trace import Call, TextPrompt

CONTENTS = [
    "<|im_start|>",
    "<|im_end|>",
    "\n<|im_start|>",
    "<|im_end|>\n<|im",
    "<|im_start|>user",
    "|>\n",
    "\n",
    "start",
    " ",
    "r\n<",
    "><|",
    "é",
]
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
NORMALIZERS = [
    None,
    {"type": "NFC"},
    {"type": "Lowercase"},
    {"type": "Prepend", "prepend": "_"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Replace", "pattern": {"String": "|"}, "content": "!"},
]
SPLITTERS = [
    "own",
    None,
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": True},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": False},
    {"type": "WhitespaceSplit"},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
]
added = st.fixed_dictionaries({"content": st.sampled_from(CONTENTS), **{flag: st.sampled_from([False, False, True]) for flag in FLAGS}})
words = st.text("ab \n<|é", max_size=6) | st.sampled_from(["<|im_end|>", "\n<|im_start|>user\n", " \n ", "start"])
news = st.lists(
    st.builds(lambda r, c: {"role": r, "content": c}, st.sampled_from(["user", "assistant", "system"]), words), min_size=1, max_size=2
)


def odd(directory, tokens, normalizer, splitter, spelled):
    """A tokenizer.json with such added tokens; ``spelled`` puts ChatML's markers into the vocabulary, as no added tokens."""
    made = json.loads(trained(markers=False))
    vocab = made["model"]["vocab"]
    if spelled:
        for marker in ("<|im_start|>", "<|im_end|>"):
            vocab[marker] = len(vocab)
    seen: dict[str, dict[str, object]] = {one["content"]: one for one in tokens}
    for number, content in enumerate(seen):
        seen[content]["id"] = vocab.get(content, 10_000 + number)
    made["added_tokens"] = sorted(seen.values(), key=lambda one: one["id"])
    made["normalizer"] = normalizer
    if splitter != "own":
        made["pre_tokenizer"] = splitter
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(made))
    return path


def token(content, **flags):
    return {"content": content, **dict.fromkeys(FLAGS, False), **flags}


USER = [{"role": "user", "content": "a"}]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much])
@given(
    tokens=st.lists(added, max_size=5),
    normalizer=st.sampled_from(NORMALIZERS),
    splitter=st.sampled_from(SPLITTERS),
    spelled=st.booleans(),
    turns=st.lists(news, min_size=2, max_size=4),
)
@example([token("<|im_start|>", lstrip=True)], None, "own", False, [USER, USER])
@example([token("\n<|im_start|>")], None, "own", False, [USER, USER])
@example([token("<|im_start|>user", lstrip=True)], None, "own", False, [USER, USER])
@example([token("<|im_end|>", rstrip=True), token("\n")], None, "own", False, [USER, USER])
@example([], None, "own", True, [USER, USER])
@example([], None, SPLITTERS[2], False, [USER, USER])
def test_a_prompt_grown_turn_by_turn_has_the_ids_of_the_whole(tmp_path, tokens, normalizer, splitter, spelled, turns):
    """Markers that take white space, that other tokens overlap, or that are no control tokens would shift every count after them."""
    template = ChatTemplate.default()
    try:
        exact = ExactTokens(odd(tmp_path, tokens, normalizer, splitter, spelled), template)
    except TokenizerError:  # one that drops letters
        reject()
    exact._checks = 0  # the rule alone must hold, without the comparison of the first prompts
    preparer = TextPreparer(template, exact, 3)
    stored: list[bytes] = []
    history: list[dict[str, str]] = []
    for turn in turns:
        history = [*history, *turn]
        answer = {"role": "assistant", "content": "ab"}
        call = Call("s", "m", TextPrompt(history), response=answer)
        try:
            truth = exact.encode_whole(template.render(history))
        except TokenizerError:  # the library panics on some of these: its normaliser leaves nothing of an added token
            reject()
        prepared = preparer.prepare(call, call.prompt)
        assert prepared.tokens == max(len(truth) // 4, 1)
        assert prepared.shared == max((common_prefix(truth, other) // 4 for other in stored), default=0)
        stored.append(truth)
        full = template.render([*history, answer], add_generation_prompt=False)
        answered = exact.encode_whole(full[: full.rindex("<|im_end|>")])
        if answered.startswith(truth):
            assert prepared.stored_tokens == len(answered) // 4
            stored.append(answered)


def test_ordinary_tokenizers_are_cut(tmp_path):
    """A rule too strict would tokenise every prompt of every trace from its first word."""
    exact = ExactTokens(write(tmp_path), ChatTemplate.default())
    assert exact.seamless
    assert exact._split is not None


def with_part(directory, **parts):
    made = {**json.loads(trained()), **parts}
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(made))
    return path


BROKEN = [
    {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////wAA"}},
    {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}},
]


@pytest.mark.parametrize("part", BROKEN, ids=["no table", "a table that claims 4 GiB", "no token for a merge"])
def test_a_tokenizer_that_makes_the_library_panic_is_one_line(tmp_path, part, capfd):
    """The user would see a Rust backtrace, and no word of which file is broken."""
    with pytest.raises(TokenizerError, match=r"tokenizer\.json.*not a tokenizer") as caught:
        ExactTokens(with_part(tmp_path, **part), ChatTemplate.default())
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "part",
    [
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        {"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"}},
    ],
    ids=["blocks of nothing", "replaces nothing"],
)
def test_a_tokenizer_that_panics_on_text_is_one_line(tmp_path, part, capfd):
    """It loads well and fails at the first text."""
    with pytest.raises(TokenizerError, match="cannot tokenise"):
        ExactTokens(with_part(tmp_path, **part), ChatTemplate.default())
    assert capfd.readouterr().err == ""


def test_a_tokenizer_that_drops_letters_is_refused(tmp_path):
    """Text would be counted as fewer tokens than it has, and called exact."""
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}))
    with pytest.raises(TokenizerError, match="drops text: it has no token for 'abcdefgh'"):
        ExactTokens(path, ChatTemplate.default())


def test_what_others_write_to_standard_error_meanwhile_arrives(capfd):
    """A warning of the library would vanish with the panics."""
    assert panics.contained(lambda: os.write(2, b"a warning\n")) == 10
    assert capfd.readouterr().err == "a warning\n"


def test_a_tokenizer_with_random_bytes_in_it_never_ends_the_process(tmp_path, capfd):
    """Half-copied files are what users hand in."""
    good = trained()
    draw = random.Random(3)
    for _ in range(30):
        at = draw.randrange(len(good))
        (tmp_path / "tokenizer.json").write_text(good[:at] + draw.choice(['"', "}", "-1", "null", ""]) + good[at + draw.randrange(3) :])
        with suppress(TokenizerError):
            ExactTokens(tmp_path, ChatTemplate.default()).encode("hello <|im_start|> é")
    assert capfd.readouterr().err == ""
