"""If these fail, a text trace's L, R and token counts differ from what an engine with that template and tokenizer would see."""

from __future__ import annotations

import json
from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.replay.tokenizers_of_our_own import write
from warmgate.alignment.template import CHATML, ChatTemplate
from warmgate.errors import OptionError, TemplateError, TokenizerError
from warmgate.prefix.blocks import common_prefix
from warmgate.replay import prepare
from warmgate.replay.prepare import HashPreparer, TextPreparer
from warmgate.replay.tokens import ExactTokens, ScaledBytes
from warmgate.replay.trace import BlockPrompt, Call, TextPrompt

TOOLS = [{"type": "function", "function": {"name": n, "parameters": {"type": "object"}}} for n in ("read", "write", "run")]
SYSTEM = {"role": "system", "content": "You mend code. Read first, then write."}

words = st.text("ab \n<é🙂", max_size=12) | st.sampled_from(["<|im_end|>", "<think>x</think>\n\ny", "<|im_start|>user\nhi", "  ", "\n\n"])
messages = st.one_of(
    st.builds(lambda c: {"role": "user", "content": c}, words),
    st.builds(lambda c: {"role": "assistant", "content": c}, words),
    st.builds(
        lambda c, a: {
            "role": "assistant",
            "content": c or None,
            "tool_calls": [{"id": "1", "function": {"name": "run", "arguments": json.dumps({"x": a})}}],
        },
        words,
        words,
    ),
    st.builds(lambda c: {"role": "tool", "content": c, "tool_call_id": "1"}, words),
    st.builds(lambda c: {"role": "developer", "content": c}, words),
    st.builds(lambda c: {"role": "user", "content": [{"type": "text", "text": c}]}, words),
)
# a turn adds messages, or edits the history, or changes the tools, or starts anew
turns = st.lists(
    st.tuples(st.lists(messages, min_size=1, max_size=3), st.sampled_from("gggget"), st.integers(0, 2)), min_size=1, max_size=8
)


def conversation(script):
    """Calls of two interleaved sessions, most of them growing."""
    state = {0: [SYSTEM], 1: []}
    tools = {0: TOOLS[:2], 1: []}
    for added, kind, which in script:
        session = which % 2
        if kind == "e" and state[session]:
            state[session] = [*state[session][:-1], {"role": "user", "content": "edited"}]
        if kind == "t":
            tools[session] = list(reversed(tools[session])) or TOOLS
        state[session] = state[session] + added
        *prompt, last = state[session]
        answered = last["role"] == "assistant" and prompt
        yield Call(
            str(session),
            "m",
            TextPrompt(tuple(prompt if answered else state[session]), tools[session]),
            response=last if answered else None,
        )


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tokenizer"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=turns)
@pytest.mark.parametrize("kind", ["exact", "scaled", "no-chatml"])
def test_piecewise_and_incremental_equals_whole(kind, script, tokenizer):
    """Speed would be bought with wrong totals: each prompt, tokenised whole and compared with all before it, is the truth."""
    template = ChatTemplate(CHATML + " ") if kind == "no-chatml" else ChatTemplate.default()
    tokens = ScaledBytes(0.3) if kind == "scaled" else ExactTokens(tokenizer, template)
    preparer = TextPreparer(template, tokens, 3)
    stored: list[bytes] = []
    for call in conversation(script):
        if kind == "no-chatml":
            call.response = None
        prepared = preparer.prepare(call, call.prompt)
        text = template.render(call.prompt.messages, call.prompt.tools)
        truth = text.encode() if kind == "scaled" else tokens.encode_whole(text)
        ruler = preparer.ruler
        shared = max((common_prefix(truth, other) for other in stored), default=0)
        assert prepared.tokens == ruler.tokens(len(truth))
        assert prepared.shared == ruler.tokens(shared)
        assert len(prepared.nodes) == ruler.full_blocks(len(truth))
        stored.append(truth)
        if call.response is not None:
            full = template.render([*call.prompt.messages, call.response], call.prompt.tools, add_generation_prompt=False)
            full = full[: full.rindex("<|im_end|>")]
            whole = full.encode() if kind == "scaled" else tokens.encode_whole(full)
            if whole.startswith(truth):
                assert prepared.stored_tokens == ruler.tokens(len(whole))
                stored.append(whole)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=turns)
def test_forgetting_cold_sessions_changes_no_shared_token(script, tokenizer):
    """A trace of thousands of sessions would be priced differently from the same trace in parts."""
    template = ChatTemplate.default()
    warm = TextPreparer(template, ExactTokens(tokenizer, template), 3)
    cold = TextPreparer(template, ExactTokens(tokenizer, template), 3)
    for call in conversation(script):
        one = warm.prepare(call, call.prompt)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(prepare, "HOT_BYTES", 0)
            other = cold.prepare(call, call.prompt)
        assert (one.tokens, one.shared, one.stored_tokens, one.nodes) == (other.tokens, other.shared, other.stored_tokens, other.nodes)


def test_each_message_is_tokenised_once(tokenizer, monkeypatch):
    """Long text traces would take minutes instead of seconds."""
    template = ChatTemplate.default()
    tokens = ExactTokens(tokenizer, template)
    tokens._checks = 0
    seen: list[str] = []
    original = tokens._ids
    monkeypatch.setattr(tokens, "_ids", lambda text: seen.append(text) or original(text))
    preparer = TextPreparer(template, tokens, 16)
    history = [SYSTEM]
    for turn in range(20):
        history = [*history, {"role": "user", "content": f"question {turn}"}]
        preparer.prepare(Call("s", "m", TextPrompt(history, TOOLS)), TextPrompt(history, TOOLS))
        history = [*history, {"role": "assistant", "content": f"answer {turn}"}]
    assert len(seen) == len(set(seen))
    assert sum("answer 3" in text for text in seen) == 1


def test_a_tokenizer_without_the_markers_gets_them(tmp_path):
    """With a foreign tokenizer every turn would be charged a dozen tokens of spelled-out markup."""
    template = ChatTemplate.default()
    tokens = ExactTokens(write(tmp_path, markers=False), template)
    assert len(tokens.encode("<|im_start|>")) == 4


def test_thinking_stripped_by_the_template_is_named(tokenizer):
    """The reader would look for an edit that nobody made."""
    source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last %}{{ m.content }}{% else %}{{ m.content.split('</think>')[-1] }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    template = ChatTemplate(source)
    preparer = TextPreparer(template, ExactTokens(tokenizer, template), 4)
    first = [{"role": "user", "content": "hello there"}, {"role": "assistant", "content": "<think>long thoughts here</think>done"}]
    preparer.prepare(Call("s", "m", TextPrompt(first)), TextPrompt(first))
    prepared = preparer.prepare(Call("s", "m", TextPrompt([*first, first[0]])), TextPrompt([*first, first[0]]))
    assert prepared.divergence is not None
    assert "template renders earlier turns differently" in prepared.divergence.why
    assert prepared.divergence.message == 1
    assert prepared.diverged_tokens > 0


def test_hash_prompts_share_by_chain_and_last_token_is_never_reusable():
    """Mooncake's partial last block would be promised as reusable."""
    preparer = HashPreparer(None)
    prompt = BlockPrompt(512, [1, 2, 3], 1100)
    assert preparer.prepare(Call("s", "m", prompt), prompt).shared == 0
    again = preparer.prepare(Call("s", "m", prompt), prompt)
    assert again.shared == 1100
    assert len(again.nodes) == 2
    longer = BlockPrompt(512, [1, 2, 9, 10], 1600)
    prepared = preparer.prepare(Call("s", "m", longer), longer)
    assert prepared.shared == 1024
    assert prepared.divergence is None


def test_hash_blocks_can_be_grouped_but_not_split():
    """--block-size would silently mean something else."""
    grouped = HashPreparer(128)
    first = BlockPrompt(64, [1, 2, 3, 4, 5], 330)
    second = BlockPrompt(64, [1, 2, 3, 6, 7], 330)
    grouped.prepare(Call("s", "m", first), first)
    prepared = grouped.prepare(Call("s", "m", second), second)
    assert prepared.shared == 192  # known to 64 tokens, whatever the hit granularity
    assert len(prepared.nodes) == 2
    assert prepared.diverged_tokens == 128
    assert prepared.divergence.token == 192
    with pytest.raises(OptionError, match="no multiple"):
        HashPreparer(100).prepare(Call("s", "m", first), first)


def test_another_namespace_shares_nothing_and_is_named():
    """A model change would look like an eviction."""
    preparer = HashPreparer(None)
    prompt = BlockPrompt(64, [1, 2, 3], 200)
    preparer.prepare(Call("s", "large", prompt), prompt)
    prepared = preparer.prepare(Call("s", "small", prompt), prompt)
    assert prepared.shared == 0
    assert prepared.namespace_tokens == 192


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": 3}', "\x00"])
def test_a_broken_tokenizer_is_one_line(tmp_path, content):
    """A traceback would tell the user nothing."""
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        ExactTokens(path, ChatTemplate.default())
    with pytest.raises(TokenizerError, match="no such file"):
        ExactTokens(tmp_path / "none", ChatTemplate.default())


@pytest.mark.parametrize("source", ["{% for %}", "{{ x", "{% generation %}"])
def test_a_broken_template_is_one_line(source):
    """A Jinja traceback would tell the user nothing."""
    with pytest.raises(TemplateError, match="line 1"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no tools here') }}",
        "{{ messages.nothing.here }}",
        "{% for x in range(999999999) %}{% endfor %}",
        "{{ ''.__class__.__mro__ }}",
    ],
)
def test_a_template_that_refuses_or_attacks_is_one_line(source):
    """A template from the internet could hang the replay or read this process."""
    with pytest.raises(TemplateError):
        ChatTemplate(source).render([{"role": "user", "content": "x"}])


def test_known_nodes_are_extended_in_place_only_for_this_call():
    """One call's chain would leak into another's."""
    preparer = HashPreparer(None)
    a = BlockPrompt(1, [1, 2], 2)
    first = preparer.prepare(Call("s", "m", a), a)
    b = BlockPrompt(1, [1, 2, 3], 3)
    preparer.prepare(Call("s", "m", b), b)
    assert first.nodes == array("q", [0, 1])


def test_what_another_sequence_gives_back_is_not_given_up():
    """A session that returns to another session's prompt would be blamed for tokens that the cache still serves."""
    preparer = HashPreparer(None)

    def next_of(session, hashes):
        prompt = BlockPrompt(16, hashes, 16 * len(hashes))
        return preparer.prepare(Call(session, "m", prompt), prompt)

    next_of("other", [1, 2, 7, 8, 9])
    next_of("s", [1, 2, 3, 4])
    assert next_of("s", [1, 2, 5, 6]).diverged_tokens == 32
    assert next_of("s", [1, 2, 7, 8]).diverged_tokens == 0


def test_a_growing_session_diverges_nowhere():
    """The partial last block of every prompt, and its generation prompt, would be blamed on the user."""
    preparer = HashPreparer(None)
    for n in range(1, 9):
        prompt = BlockPrompt(16, list(range(n)), 16 * n + 9)
        prepared = preparer.prepare(Call("s", "m", prompt), prompt)
        assert prepared.diverged_tokens == 0
        assert prepared.divergence is None


def test_a_second_user_message_without_an_answer_is_no_divergence(tokenizer):
    """The generation prompt alone would show as tokens given up, with no entry to explain them."""
    template = ChatTemplate.default()
    preparer = TextPreparer(template, ExactTokens(tokenizer, template), 16)
    messages = [SYSTEM, {"role": "user", "content": "one"}]
    preparer.prepare(Call("s", "m", TextPrompt(messages)), TextPrompt(messages))
    longer = [*messages, {"role": "user", "content": "two"}]
    prepared = preparer.prepare(Call("s", "m", TextPrompt(longer)), TextPrompt(longer))
    assert (prepared.diverged_tokens, prepared.divergence) == (0, None)


def test_a_block_that_was_partial_is_shared_no_further_than_it_went():
    """Its tokens would count as reusable though nobody ever stored them, and the loss be blamed on a worker."""
    hashes = HashPreparer(None)
    prompts = [
        BlockPrompt(512, array("q", [1, 2]), 600),
        BlockPrompt(512, array("q", [1, 2, 3]), 1100),
        BlockPrompt(512, array("q", [1, 2]), 1024),
    ]
    assert [hashes.prepare(Call("s", "m", prompt), prompt).shared for prompt in prompts] == [0, 600, 1024]
