"""If these fail, long sessions take minutes, or prompts of no token end the replay."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from tests.unit.replay.tokenizers_of_our_own import write
from warmgate.alignment import budget
from warmgate.alignment.template import CHATML, ChatTemplate
from warmgate.errors import TemplateError
from warmgate.prefix.blocks import TextTree
from warmgate.replay.prepare import HashPreparer, TextPreparer
from warmgate.replay.readers._history import Grown
from warmgate.replay.readers._sharing import HELD_BYTES, Conversations
from warmgate.replay.run import Options, replay
from warmgate.replay.tokens import ExactTokens, ScaledBytes
from warmgate.replay.trace import BlockPrompt, Call, TextPrompt


class Counting(list):
    """Messages that count how many of them were looked at."""

    looked = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.looked += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self):
        for one in super().__iter__():
            self.looked += 1
            yield one


class CountingTemplate(ChatTemplate):
    rendered = 0

    def render(self, messages, tools=None, /, **kwargs):
        self.rendered += len(messages)
        return super().render(messages, tools, **kwargs)


class CountingText(ScaledBytes):
    size = 0

    def encode(self, text, *, whole=True):
        self.size += len(text)
        return super().encode(text, whole=whole)


class CountingTree(TextTree):
    size = 0

    def match(self, namespace, data, ruler, known, skip=0):
        self.size += len(data)
        return super().match(namespace, data, ruler, known, skip)

    def store(self, namespace, data, ruler, known, skip=0):
        self.size += len(data)
        return super().store(namespace, data, ruler, known, skip)


def test_a_turn_costs_its_new_messages_however_long_the_session_is():
    """A session of 10,000 turns would cost as many million messages."""
    template, tokens = CountingTemplate(CHATML), CountingText(0.25)
    preparer = TextPreparer(template, tokens, 16)
    preparer.tree = tree = CountingTree()
    conversation = Counting([{"role": "system", "content": "You mend code. " * 20}])
    costs = []
    for turn in range(300):
        conversation.append({"role": "user", "content": f"question {turn:04}"})
        answer = {"role": "assistant", "content": f"answer {turn:04}"}
        call = Call("s", "m", TextPrompt(Grown(conversation, len(conversation))), response=answer)
        preparer.prepare(call, call.prompt)
        conversation.append(answer)
        costs.append((template.rendered, tokens.size, tree.size, conversation.looked))
    steps = [tuple(after - before for before, after in zip(one, other, strict=True)) for one, other in pairwise(costs)]
    for kind in range(4):
        assert max(step[kind] for step in steps[200:]) <= 1.5 * max(step[kind] for step in steps[5:20])
    assert steps[-1][0] == 3  # the last answer, the new question, and the new answer


@pytest.mark.parametrize("tokens", [0, 1])
def test_a_recorded_prompt_of_no_token_is_the_shortest_there_is(tokens):
    """The simulation would look for block −1."""
    preparer = HashPreparer(1)
    prompt = BlockPrompt(1, [], tokens)
    prepared = preparer.prepare(Call("s", "m", prompt), prompt)
    assert (prepared.tokens, len(prepared.nodes), prepared.shared, prepared.diverged_tokens) == (1, 0, 0, 0)


def replayed(tmp_path, rows, **options):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said: list[str] = []
    return replay([str(path)], Options(**options), say=said.append), said


def row(text, session="s", **more):
    return {"session": session, "model": "m", "messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize("kv_tokens", [None, 64])
@pytest.mark.parametrize("block_size", [1, 16])
def test_text_too_short_for_one_token_is_one_token(tmp_path, kv_tokens, block_size):
    """Where a trace reports few tokens for much text, its shortest prompts would round to none and end the replay."""
    source = tmp_path / "x.jinja"
    source.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    rows = [row("x" * 6400, usage={"prompt_tokens": 101}), *(row("x", f"s{n}") for n in range(3)), row("", "e")]
    result, said = replayed(tmp_path, rows, chat_template=str(source), kv_tokens=kv_tokens, block_size=block_size)
    assert result.totals.calls == 4
    assert [call.prompt_tokens for call in result.calls] == [101, 1, 1, 1]
    assert all(call.reusable == 0 for call in result.calls[1:])
    assert result.traces[0].skipped_lines == 1
    assert any("prints nothing" in line for line in said)


def test_a_template_that_prints_nothing_of_some_prompts_skips_and_counts_them(tmp_path):
    """They would count as prompts of no token, or end the replay."""
    source = tmp_path / "x.jinja"
    source.write_text("{% if messages[0].content != 'no' %}{{ messages[0].content }}{% endif %}")
    result, said = replayed(tmp_path, [row("yes it is"), row("no", "t"), row("yes it is", "u")], chat_template=str(source))
    assert result.totals.calls == 2
    assert result.traces[0].skipped_lines == 1
    assert any(":2: skipped, the chat template prints nothing" in line for line in said)


def test_a_refused_prompt_leaves_the_session_as_it_was():
    """The next prompt would be compared with text that no engine saw."""
    template = ChatTemplate("{% if messages|length == 2 %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}")
    preparer = TextPreparer(template, ScaledBytes(1.0), 2)
    message = {"role": "user", "content": "abcdef"}
    for messages in ([message], [message, message], [message, message, message]):
        call = Call("s", "m", TextPrompt(messages))
        if len(messages) == 2:
            with pytest.raises(TemplateError):
                preparer.prepare(call, call.prompt)
        else:
            prepared = preparer.prepare(call, call.prompt)
    assert (prepared.shared, prepared.diverged_tokens) == (6, 0)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_that_the_default_template_leaves_out_is_noted(tmp_path, field):
    """The prompts would seem shorter than they are, and nobody would know why."""
    thought = {"role": "assistant", "content": "b", field: "hm"}
    user = {"role": "user", "content": "a"}
    rows = [{"session": "s", "messages": [user]}, {"session": "s", "messages": [user, thought, user]}]
    result, _ = replayed(tmp_path, rows)
    assert any("reasoning_content is not printed" in note for note in result.traces[0].notes)
    result, _ = replayed(tmp_path, [row("a")])
    assert not any("reasoning_content" in note for note in result.traces[0].notes)


def test_tiny_messages_count_as_the_objects_they_are():
    """A thousand sessions of one-word messages would fill the memory that longer ones may not."""
    held = Conversations()
    for session in range(400):
        held.join(str(session), [{"role": "user", "content": str(n)} for n in range(1000)])
    objects = sum(len(latest.messages) for latest in held._latest.values())
    assert objects * 350 <= HELD_BYTES  # a dictionary and a text of its own each
    assert objects > 50_000


def test_a_template_that_costs_too_much_is_given_up(tmp_path, monkeypatch):
    """Each of a trace's thousand calls would take seconds before it is left out."""
    monkeypatch.setattr(budget, "STEPS", 100_000)
    source = tmp_path / "x.jinja"
    source.write_text("{% if messages|length > 1 %}{% for a in range(90000) %}{{ a }}{% endfor %}{% endif %}{{ messages[0].content }}")
    rows = [{"session": f"s{n}", "messages": [{"role": "user", "content": "a"}] * (1 + n % 2)} for n in range(20)]
    rendered: list[int] = []
    original = ChatTemplate.render
    monkeypatch.setattr(ChatTemplate, "render", lambda self, *args, **kw: rendered.append(len(args[0])) or original(self, *args, **kw))
    result, said = replayed(tmp_path, rows, chat_template=str(source))
    assert result.traces[0].skipped_lines >= 10
    assert sum(size > 1 for size in rendered) <= 5
    assert any("takes too long on this conversation" in line for line in said)


def test_a_template_that_always_costs_too_much_ends_the_replay_at_once(tmp_path, monkeypatch):
    """Nothing of the trace could be replayed, and the user would learn it last."""
    monkeypatch.setattr(budget, "STEPS", 100_000)
    source = tmp_path / "x.jinja"
    source.write_text("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}{{ messages[0].content }}")
    with pytest.raises(TemplateError, match="takes too long"):
        replayed(tmp_path, [row("a")], chat_template=str(source))


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "self", "flat", "raise_exception", "strftime_now"])
@pytest.mark.parametrize("format_", ["openai_chat", "warmgate_trace"])
def test_a_traces_template_arguments_cannot_end_the_replay(tmp_path, name, format_):
    """One such name in one record would be a traceback."""
    message = [{"role": "user", "content": "hello there"}]
    kwargs = {name: "x", "enable_thinking": False}
    if format_ == "openai_chat":
        rows = [{"session": "s", "messages": message, "chat_template_kwargs": kwargs}]
    else:
        rows = [
            {"schema": "warmgate.trace/1", "block_size": 16, "content": "text"},
            {"session": "s", "index": 0, "model": "m", "kind": "call", "messages": message, "template_kwargs": kwargs},
        ]
    result, said = replayed(tmp_path, rows)
    plain, _ = replayed(tmp_path, [{"session": "s", "messages": message}])
    assert (result.totals.prompt_tokens, said) == (plain.totals.prompt_tokens, [])


def test_special_tokens_come_from_the_files_beside_the_template(tmp_path):
    """Every prompt would lack its first token, and every turn its last."""
    template = tmp_path / "a" / "x.jinja"
    template.parent.mkdir()
    template.write_text("{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
    tokenizer = tmp_path / "b"
    tokenizer.mkdir()
    write(tokenizer)
    result, _ = replayed(tmp_path, [row("a")], chat_template=str(template), tokenizer=str(tokenizer))
    assert any("prints bos_token, eos_token, which no tokenizer_config.json" in note for note in result.traces[0].notes)
    bare = result.totals.prompt_tokens
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}}))
    for where in (tokenizer, tokenizer / "tokenizer.json"):
        result, _ = replayed(tmp_path, [row("a")], chat_template=str(template), tokenizer=str(where))
        assert result.totals.prompt_tokens == bare + 2
        assert not any("bos_token" in note for note in result.traces[0].notes)
    (template.parent / "tokenizer_config.json").write_text(json.dumps({"bos_token": None, "eos_token": "<|im_end|>"}))
    result, _ = replayed(tmp_path, [row("a")], chat_template=str(template), tokenizer=str(tokenizer))
    assert result.totals.prompt_tokens == bare + 1
    assert any("prints bos_token, which" in note for note in result.traces[0].notes)
    (template.parent / "tokenizer_config.json").write_text("{")
    result, _ = replayed(tmp_path, [row("a")], chat_template=str(template), tokenizer=str(tokenizer))
    assert result.totals.prompt_tokens == bare + 2


@pytest.mark.parametrize("share", [None, 0.5, 1.0], ids=["nothing cached told", "half cached", "all cached"])
@pytest.mark.parametrize("prompts", [True, False], ids=["prompts counted", "prompts uncounted"])
@pytest.mark.parametrize("factor", [0.02, 0.5, 0.95, 1.0, 1.05, 2.0, 4.0])
def test_no_ratio_passes_one_whatever_the_trace_reports(tmp_path, factor, share, prompts):
    """With another model's tokenizer, tokens counted here and tokens reported are two units; their ratio would mean nothing."""
    template = ChatTemplate.default()
    tokens = ExactTokens(write(tmp_path), template)
    rows, history, before = [], [], 0
    for turn in range(5):
        history = [*history, {"role": "user", "content": f"please look at file number {turn} again " * 20}]
        counted = len(tokens.encode_whole(template.render(history))) // 4
        usage = {"prompt_tokens": int(counted * factor)} if prompts else {}
        if share is not None:  # of the block before the previous prompt's last one, as an engine with blocks of 16 would tell
            usage["prompt_tokens_details"] = {"cached_tokens": int(max(before - 32, 0) * factor * share) // 16 * 16}
        rows.append({"session": "s", "messages": history, "usage": usage})
        before = counted
    result, _ = replayed(tmp_path, rows, tokenizer=str(tmp_path))
    totals = result.totals
    assert 0 <= totals.hit_rate <= 1
    assert totals.reusable_tokens <= totals.prompt_tokens
    if prompts and totals.survival is not None:
        assert 0 <= totals.survival <= 1
        if share == 1.0 and factor > 0.1:
            assert totals.survival > 0.85
    assert all(s.survival is None or 0 <= s.survival <= 1 for s in result.scenarios)
    told = [note for note in result.traces[0].notes if "is it this model's tokenizer" in note]
    if prompts:
        assert len(told) == (abs(factor - 1) > 0.1)
        assert all(f"counts {1 / factor:.2f} times" in note for note in told if factor >= 0.5)
