"""From recorded calls to chains of blocks: each prompt rendered, tokenised and numbered once, whatever is simulated afterwards."""

from __future__ import annotations

import operator
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmgate.alignment.template import ChatTemplate, TooCostly, arguments
from warmgate.errors import OptionError, TemplateError
from warmgate.prefix.blocks import HashTree, Nodes, Ruler, TextTree, common_prefix
from warmgate.replay.divergence import Divergence, explain, same
from warmgate.replay.figures import plural
from warmgate.replay.readers._history import Grown
from warmgate.replay.simulate import AGENT, UnboundedWorker
from warmgate.replay.tokens import ExactTokens, ScaledBytes
from warmgate.replay.trace import BlockPrompt, Call, Message, Stored, TextPrompt

GENERATION_TOKENS = 4
"""Tokens of the generation prompt where a trace has no text (Qwen-style templates: 3 to 7)."""

HOT_BYTES = 48 << 20
"""Prompts of recent sessions kept for comparison. Older sessions are compared by their block chains alone."""

COSTLY = 3
"""Prompts that may cost too much to render before all others are left out unseen: each takes seconds."""

MESSAGE_BYTES = 400
"""Memory of a short message as an object, beside its text."""


@dataclass(slots=True)
class Prepared:
    """A call whose prompt is known, ready for any simulation. Counts are tokens.

    Attributes:
        call: As read.
        namespace: Model, LoRA and salt as one key.
        tokens: |P|.
        nodes: The prompt's full blocks.
        stored: Full blocks of what the engine stores: the prompt and, where recorded, the answer.
        stored_tokens: Tokens of that sequence.
        shared: L.
        alone: The part of L that the agent's own calls stored; ``None`` where that is all of it. Scenarios bring reads of their own.
        generation_tokens: Tokens of the generation prompt, which a gate's read does not share.
        divergence: Where and why it parts from the session's previous prompt, if it does.
        diverged_tokens: Tokens of that prompt which no stored sequence gives back.
        namespace_tokens: Tokens shared with the session's previous prompt in another namespace only.
    """

    call: Call
    namespace: str
    tokens: int
    nodes: Nodes
    stored: Nodes
    stored_tokens: int
    shared: int
    alone: int | None = None
    generation_tokens: int = GENERATION_TOKENS
    divergence: Divergence | None = None
    diverged_tokens: int = 0
    namespace_tokens: int = 0


@dataclass(slots=True)
class _Session:
    """What is remembered of a session's previous prompt. ``held`` and ``prompt`` go when memory is short."""

    namespace: str
    tokens: int
    nodes: Nodes
    held: _Held | None = None
    prompt: TextPrompt | None = None
    hashes: Sequence[int] | None = None


@dataclass(slots=True)
class _Held:
    """A sequence of bytes in two parts, so that the long first one grows in place from prompt to prompt.

    Attributes:
        open: The prompt without its generation prompt.
        rest: What follows: the generation prompt, or with it the answer.
    """

    open: bytearray
    rest: bytes

    def __len__(self) -> int:
        return len(self.open) + len(self.rest)

    def since(self, start: int) -> bytes:
        """The bytes from ``start`` on."""
        size = len(self.open)
        return bytes(self.open[start:]) + self.rest if start < size else self.rest[start - size :]

    def common(self, other: _Held) -> int:
        """Length of the common prefix with ``other``."""
        size = common_prefix(self.open, other.open)
        if size < min(len(self.open), len(other.open)):
            return size
        return size + common_prefix(self.since(size), other.since(size))


@dataclass(slots=True)
class HashPreparer:
    """Prepares calls of traces that record block hashes.

    Args:
        block_size: Hit granularity asked for, or ``None`` for the trace's own.
    """

    block_size: int | None
    tree: HashTree = field(default_factory=HashTree)
    _sessions: dict[str, _Session] = field(default_factory=dict[str, _Session])
    _own: int | None = None
    _called: UnboundedWorker = field(default_factory=UnboundedWorker)
    _short: dict[int, int] = field(default_factory=dict[int, int])
    """Blocks that were only ever the partial last one of a prompt, and the most tokens they held there."""

    def store(self, stored: Stored) -> Nodes:
        """Number the blocks of what is no call: they count as stored. Its full blocks, as those of :attr:`Prepared.nodes`.

        Raises:
            OptionError: As :meth:`prepare`.
        """
        group = self._group(stored.prompt)
        namespace = f"{stored.model}\n{stored.namespace}"
        hashes = stored.prompt.hashes
        nodes = self.tree.match(namespace, hashes, array("q"))
        matched = len(nodes)
        nodes = self.tree.store(namespace, hashes, nodes)
        self._fill(nodes, matched, stored.prompt)
        full = nodes[: stored.prompt.tokens // stored.prompt.block_size]
        return full if group == 1 else full[group - 1 :: group]

    def _fill(self, nodes: Nodes, matched: int, prompt: BlockPrompt) -> None:
        """Remember which block is partial so far. ``matched`` of the nodes were there before."""
        full, rest = divmod(prompt.tokens, prompt.block_size)
        if 0 < matched <= full:
            self._short.pop(nodes[matched - 1], None)
        if len(nodes) > full and (matched <= full or nodes[full] in self._short):
            self._short[nodes[full]] = max(rest, self._short.get(nodes[full], 0))

    def _group(self, prompt: BlockPrompt) -> int:
        """How many of the trace's blocks are one here."""
        if self._own is None:
            self._own = prompt.block_size
            self.block_size = self.block_size or prompt.block_size
        size, own = self.block_size or prompt.block_size, prompt.block_size
        if own != self._own or size % own:
            raise OptionError(
                f"the trace's blocks are {own} tokens; {size} is no multiple of that",
                where="--block-size",
                mend=f"leave the option out or give a multiple of {own}",
            )
        return size // own

    def prepare(self, call: Call, prompt: BlockPrompt) -> Prepared:
        """Number the prompt's blocks and compare it with what was stored before it.

        Raises:
            OptionError: The block size asked for is no multiple of the trace's.
        """
        group, own = self._group(prompt), prompt.block_size
        hashes = prompt.hashes
        namespace = f"{call.model}\n{call.namespace}"
        before = self._sessions.get(call.session)
        common = 0
        known: Nodes = array("q")
        if before is not None and before.hashes is not None:
            common = common_prefix(before.hashes, hashes)
            if before.namespace == namespace:
                known = before.nodes[:common]
        nodes = self.tree.match(namespace, hashes, known)
        matched = len(nodes)
        shared = prompt.tokens if matched == len(hashes) > prompt.tokens // own else min(matched * own, prompt.tokens)
        if matched and (held := self._short.get(nodes[-1])) is not None:
            shared = min(shared, (matched - 1) * own + held)
        if call.shared is not None:
            shared = min(call.shared, prompt.tokens)
        called = self._called.hit(AGENT, nodes, matched) * own
        alone = min(called, shared) if call.shared is not None or called < matched * own else None
        nodes = self.tree.store(namespace, hashes, nodes)
        self._fill(nodes, matched, prompt)
        self._called.serve(AGENT, nodes, len(nodes), prompt.tokens, prompt.tokens)
        full = nodes[: prompt.tokens // own]
        grouped = full if group == 1 else full[group - 1 :: group]
        # some token is always computed; a record of a prompt without any is taken for the shortest there is
        prepared = Prepared(call, namespace, max(prompt.tokens, 1), grouped, grouped, prompt.tokens, shared, alone)
        if before is not None and before.hashes is not None:
            # a partial last block has no name of its own, or one that always changes: whole blocks alone can be compared
            reach = min(before.tokens, prompt.tokens) // own * own
            _outside(prepared, before.namespace, reach, min(common * own, prompt.tokens))
            if prepared.diverged_tokens:
                prepared.divergence = Divergence(
                    None, None, common * own, "the block hashes part here; the trace records no text to say why"
                )
        self._sessions[call.session] = _Session(namespace, prompt.tokens, nodes, hashes=hashes)
        return prepared


class TextPreparer:
    """Prepares calls of traces that record text: renders, tokenises and compares, at a cost that follows the new messages.

    Args:
        template: Chat template of the served model.
        tokens: How text becomes bytes.
        block_size: Hit granularity.
    """

    def __init__(self, template: ChatTemplate, tokens: ExactTokens | ScaledBytes, block_size: int) -> None:
        self.block_size = block_size
        self.tree = TextTree()
        self.ruler: Ruler = tokens.ruler(block_size)
        self._template = template
        self._tokens = tokens
        self._sessions: dict[str, _Session] = {}
        self._hot: OrderedDict[str, int] = OrderedDict()
        self._hot_bytes = 0
        self._unanswered = 0
        self._unprinted = 0
        self._costly = 0
        self._generation = template.generation_prompt
        self._generation_data = tokens.encode(self._generation, whole=False) if self._generation else b""

    def prepare(self, call: Call, prompt: TextPrompt) -> Prepared:
        """Render, tokenise and number one prompt.

        Raises:
            TemplateError: The chat template refuses the conversation, prints nothing of it, or costs too much on it or on some before.
        """
        if self._costly >= COSTLY:
            raise TemplateError(f"the chat template cost too much on {COSTLY} prompts before")
        try:
            return self._prepare(call, prompt)
        except TooCostly:
            self._costly += 1
            raise

    def _prepare(self, call: Call, prompt: TextPrompt) -> Prepared:
        namespace = f"{call.model}\n{call.namespace}"
        before = self._sessions.get(call.session)
        news = self._news(prompt, before)
        if news is not None and before is not None and before.held is not None:
            added = self._tokens.encode(self._render(news, ()), whole=False)
            front = len(before.held.open)
            held = _Held(before.held.open, self._generation_data)
            common = front + common_prefix(before.held.rest, added + held.rest)
            held.open += added  # the earlier prompt's bytes go on in this one; nothing reads them as the earlier prompt again
        else:
            held = self._encode(prompt)
            common = self._common(before, namespace, held)
        ruler = self.ruler
        if ruler.exact:
            common &= ~3
        known: Nodes = array("q")
        if before is not None and before.namespace == namespace:
            known = before.nodes[: ruler.full_blocks(common)]
        skip = ruler.offset(len(known))
        data = held.since(skip)
        nodes, shared = self.tree.match(namespace, data, ruler, known, skip)
        nodes = self.tree.store(namespace, data, ruler, nodes, skip)
        size, generation = len(held), len(held.rest)
        tokens = ruler.tokens(size)
        # text too short for a token on average is one all the same: engines compute at least that
        prepared = Prepared(call, namespace, max(tokens, 1), nodes, nodes, tokens, ruler.tokens(shared), None, ruler.tokens(generation))
        answered = self._answered(call, prompt, held)
        if answered is not None:
            held.rest = answered
            skip = ruler.offset(len(nodes))
            prepared.stored = self.tree.store(namespace, held.since(skip), ruler, nodes[:], skip)
            prepared.stored_tokens = ruler.tokens(len(held))
        if before is not None:
            # a session goes on while the new prompt holds all of the old one; the generation prompt may be rendered anew
            reach = min(before.tokens - prepared.generation_tokens, tokens)
            _outside(prepared, before.namespace, reach, ruler.tokens(common))
            if ruler.tokens(common) < reach:
                prepared.divergence = explain(before.prompt, prompt, ruler.tokens(common), self._render)
        self._sessions[call.session] = _Session(namespace, tokens, prepared.stored, held, prompt)
        self._keep_hot(call.session, len(held) + MESSAGE_BYTES * len(prompt.messages))
        if self._template.appendable and any(map(_thinks, prompt.messages if news is None else news)):
            self._unprinted += 1
        return prepared

    def notes(self) -> list[str]:
        """What the figures leave out, for people."""
        notes: list[str] = []
        if self._unanswered:
            notes.append(f"{plural(self._unanswered, 'answer')} not continuing the prompt in this chat template: counted as not stored")
        if self._template.unset:
            notes.append(
                f"the chat template prints {', '.join(self._template.unset)}, which no tokenizer_config.json beside it or the tokenizer "
                "gives: nothing is printed in the place"
            )
        if self._unprinted:
            notes.append(
                "reasoning_content is not printed by the default ChatML template, as by most templates once a turn is over; "
                "--chat-template with the model's own counts what it prints"
            )
        return notes

    def _encode(self, prompt: TextPrompt) -> _Held:
        """The prompt's bytes."""
        text = self._render(prompt.messages, prompt.tools, prompt.template_kwargs, generation=True)
        if not text:
            raise TemplateError("the chat template prints nothing of this conversation")
        data = self._tokens.encode(text)
        if self._template.appendable and self._tokens.seamless:
            size = len(data) - len(self._generation_data)
        else:
            bare = self._tokens.encode(self._render(prompt.messages, prompt.tools, prompt.template_kwargs))
            size = len(bare) if data.startswith(bare) else len(data)
        return _Held(bytearray(data[:size]), data[size:])

    def _news(self, prompt: TextPrompt, before: _Session | None) -> Sequence[Message] | None:
        """The messages after those of the session's previous prompt, where its bytes can be gone on with; ``None`` where not."""
        if not (self._template.appendable and self._tokens.seamless) or before is None or before.prompt is None:
            return None
        then, now = before.prompt.messages, prompt.messages
        if not 0 < len(then) <= len(now):
            return None
        if prompt.tools is not before.prompt.tools and not same(list(prompt.tools), list(before.prompt.tools)):
            return None
        if not (isinstance(now, Grown) and now.extends(then)) and not all(map(operator.is_, then, now)) and not all(map(same, then, now)):
            return None
        return now[len(then) :]

    def _common(self, before: _Session | None, namespace: str, held: _Held) -> int:
        """Bytes in common with the session's previous prompt; exact to a block where only its chain is still known."""
        if before is None:
            return 0
        if before.held is not None:
            return before.held.common(held)
        nodes, _ = self.tree.match(namespace, held.since(0), self.ruler, array("q"))
        return self.ruler.offset(common_prefix(nodes, before.nodes))

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        kwargs: Mapping[str, Any] | None = None,
        *,
        generation: bool = False,
    ) -> str:
        return self._template.render(messages, tools, add_generation_prompt=generation, **arguments(kwargs or {}))

    def _answered(self, call: Call, prompt: TextPrompt, held: _Held) -> bytes | None:
        """What follows the open prompt in the engine after the answer: up to the last generated token but its end-of-turn mark.

        That mark is sampled last and its keys are never computed (``vllm/v1/core/sched``: cached are computed tokens only).
        """
        if call.response is None:
            return None
        rest: bytes | None = None
        try:
            if self._template.appendable and self._tokens.seamless:
                text = self._render([call.response], ())
                rest = self._tokens.encode(text[: text.rfind("<|im_end|>")], whole=False)
            else:
                text = self._render([*prompt.messages, call.response], prompt.tools, prompt.template_kwargs)
                full = self._tokens.encode(_without_end(text, self._end_mark()), whole=False)
                size = len(held.open)
                rest = full[size:] if common_prefix(held.open, full) == size else None
        except TemplateError:
            pass
        if rest is None or not rest.startswith(held.rest):
            self._unanswered += 1
            return None
        return rest

    def _end_mark(self) -> str:
        """What the template prints after an assistant's text."""
        probe: list[dict[str, Any]] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "@answer@"}]
        text = self._render(probe, ())
        return text[text.rfind("@answer@") + len("@answer@") :] if "@answer@" in text else ""

    def _keep_hot(self, session: str, size: int) -> None:
        self._hot_bytes += size - self._hot.pop(session, 0)
        self._hot[session] = size
        while self._hot_bytes > HOT_BYTES and len(self._hot) > 1:
            old, freed = self._hot.popitem(last=False)
            self._hot_bytes -= freed
            cold = self._sessions[old]
            cold.held = cold.prompt = None


def _thinks(message: Message) -> bool:
    return bool(message.get("reasoning_content") or message.get("reasoning"))


def _without_end(text: str, mark: str) -> str:
    return text[: -len(mark)] if mark and text.endswith(mark) else text


def _outside(prepared: Prepared, namespace: str, reach: int, common: int) -> None:
    """What an unbroken session would have shared up to ``reach``: lost to a divergence, or to another namespace."""
    if namespace != prepared.namespace:
        prepared.namespace_tokens = max(0, common - prepared.shared)
    prepared.diverged_tokens = max(0, reach - max(common, prepared.shared))
