"""If these fail, long sessions take minutes, or prompts of no token end the replay."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from warmgate.alignment.template import CHATML, ChatTemplate
from warmgate.errors import TemplateError
from warmgate.prefix.blocks import TextTree
from warmgate.replay.prepare import HashPreparer, TextPreparer
from warmgate.replay.readers._history import Grown
from warmgate.replay.readers._sharing import HELD_BYTES, Conversations
from warmgate.replay.run import Options, replay
from warmgate.replay.tokens import ScaledBytes
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
