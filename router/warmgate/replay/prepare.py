"""From recorded calls to chains of blocks: each prompt rendered, tokenised and numbered once, whatever is simulated afterwards."""

from __future__ import annotations

import operator
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmgate.alignment.template import ChatTemplate
from warmgate.errors import OptionError, TemplateError
from warmgate.prefix.blocks import HashTree, Nodes, Ruler, TextTree, common_prefix
from warmgate.replay.divergence import Divergence, explain, same
from warmgate.replay.tokens import ExactTokens, ScaledBytes
from warmgate.replay.trace import BlockPrompt, Call, TextPrompt

GENERATION_TOKENS = 4
"""Tokens of the generation prompt where a trace has no text (Qwen-style templates: 3 to 7)."""

HOT_BYTES = 48 << 20
"""Prompt bytes of recent sessions kept for comparison. Older sessions are compared by their block chains alone."""


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
    generation_tokens: int = GENERATION_TOKENS
    divergence: Divergence | None = None
    diverged_tokens: int = 0
    namespace_tokens: int = 0


@dataclass(slots=True)
class _Session:
    """What is remembered of a session's previous prompt. ``data`` and ``prompt`` go when memory is short."""

    namespace: str
    tokens: int
    nodes: Nodes
    data: bytes | None = None
    open_data: bytes | None = None  # without the generation prompt
    prompt: TextPrompt | None = None
    hashes: Sequence[int] | None = None


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

    def prepare(self, call: Call, prompt: BlockPrompt) -> Prepared:
        """Number the prompt's blocks and compare it with what was stored before it.

        Raises:
            OptionError: The block size asked for is no multiple of the trace's.
        """
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
        group = size // own
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
        nodes = self.tree.store(namespace, hashes, nodes)
        full = nodes[: prompt.tokens // own]
        grouped = full if group == 1 else full[group - 1 :: group]
        prepared = Prepared(call, namespace, prompt.tokens, grouped, grouped, prompt.tokens, shared)
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
        self.unanswered = 0
        """Answers that the template renders otherwise than as a continuation; they are left out of what was stored."""
        self._template = template
        self._tokens = tokens
        self._sessions: dict[str, _Session] = {}
        self._hot: OrderedDict[str, int] = OrderedDict()
        self._hot_bytes = 0
        self._generation = template.generation_prompt
        self._generation_data = tokens.encode(self._generation, whole=False) if self._generation else b""

    def prepare(self, call: Call, prompt: TextPrompt) -> Prepared:
        """Render, tokenise and number one prompt.

        Raises:
            TemplateError: The chat template refuses the conversation.
        """
        namespace = f"{call.model}\n{call.namespace}"
        before = self._sessions.get(call.session)
        data, open_data = self._encode(prompt, before)
        ruler = self.ruler
        known: Nodes = array("q")
        common = 0
        if before is not None:
            common = common_prefix(before.data, data) if before.data is not None else self._walked(before, namespace, data)
            if ruler.exact:
                common &= ~3
            if before.namespace == namespace:
                known = before.nodes[: ruler.full_blocks(common)]
        nodes, shared = self.tree.match(namespace, data, ruler, known)
        nodes = self.tree.store(namespace, data, ruler, nodes)
        tokens = ruler.tokens(len(data))
        prepared = Prepared(call, namespace, tokens, nodes, nodes, tokens, ruler.tokens(shared), ruler.tokens(len(data) - len(open_data)))
        answered = self._answered(call, prompt, data, open_data)
        if answered is not None:
            prepared.stored = self.tree.store(namespace, answered, ruler, nodes[:])
            prepared.stored_tokens = ruler.tokens(len(answered))
        if before is not None:
            # a session goes on while the new prompt holds all of the old one; the generation prompt may be rendered anew
            reach = min(before.tokens - prepared.generation_tokens, tokens)
            _outside(prepared, before.namespace, reach, ruler.tokens(common))
            if ruler.tokens(common) < reach:
                prepared.divergence = explain(before.prompt, prompt, ruler.tokens(common), self._render)
        session = _Session(namespace, tokens, prepared.stored, answered or data, open_data, prompt)
        self._sessions[call.session] = session
        self._keep_hot(call.session, len(data) + len(open_data) + len(answered or b""))
        return prepared

    def _encode(self, prompt: TextPrompt, before: _Session | None) -> tuple[bytes, bytes]:
        """The prompt's bytes with and without its generation prompt."""
        grown = self._template.appendable and self._tokens.piecewise and self._grown(prompt, before)
        if grown and before is not None and before.open_data is not None and before.prompt is not None:
            news = prompt.messages[len(before.prompt.messages) :]
            open_data = before.open_data + self._tokens.encode(self._render(news, ()), whole=False)
            return open_data + self._generation_data, open_data
        text = self._render(prompt.messages, prompt.tools, prompt.template_kwargs, generation=True)
        data = self._tokens.encode(text)
        if self._template.appendable and self._tokens.piecewise:
            return data, data[: len(data) - len(self._generation_data)]
        bare = self._render(prompt.messages, prompt.tools, prompt.template_kwargs)
        open_data = self._tokens.encode(bare)
        return data, open_data if data.startswith(open_data) else data

    @staticmethod
    def _grown(prompt: TextPrompt, before: _Session | None) -> bool:
        if before is None or before.prompt is None or before.open_data is None:
            return False
        old = before.prompt
        size = len(old.messages)
        if size == 0 or size > len(prompt.messages):
            return False
        if prompt.tools is not old.tools and not same(list(prompt.tools), list(old.tools)):
            return False
        now, then = prompt.messages[:size], old.messages
        return all(map(operator.is_, now, then)) or all(map(same, now, then))

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        kwargs: Mapping[str, Any] | None = None,
        *,
        generation: bool = False,
    ) -> str:
        return self._template.render(messages, tools, add_generation_prompt=generation, **(kwargs or {}))

    def _answered(self, call: Call, prompt: TextPrompt, data: bytes, open_data: bytes) -> bytes | None:
        """The sequence the engine holds after the answer: up to the last generated token but its end-of-turn mark.

        That mark is sampled last and its keys are never computed (``vllm/v1/core/sched``: cached are computed tokens only).
        """
        if call.response is None:
            return None
        try:
            if self._template.appendable and self._tokens.piecewise:
                text = self._render([call.response], ())
                full = open_data + self._tokens.encode(text[: text.rfind("<|im_end|>")], whole=False)
            else:
                text = self._render([*prompt.messages, call.response], prompt.tools, prompt.template_kwargs)
                full = self._tokens.encode(_without_end(text, self._end_mark()), whole=False)
        except TemplateError:
            self.unanswered += 1
            return None
        if not full.startswith(data):
            self.unanswered += 1
            return None
        return full

    def _end_mark(self) -> str:
        """What the template prints after an assistant's text."""
        probe: list[dict[str, Any]] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "@answer@"}]
        text = self._render(probe, ())
        return text[text.rfind("@answer@") + len("@answer@") :] if "@answer@" in text else ""

    def _walked(self, before: _Session, namespace: str, data: bytes) -> int:
        """Bytes in common with a prompt of which only the block chain is still held; exact to a block."""
        nodes, _ = self.tree.match(namespace, data, self.ruler, array("q"))
        return self.ruler.offset(common_prefix(nodes, before.nodes))

    def _keep_hot(self, session: str, size: int) -> None:
        self._hot_bytes += size - self._hot.pop(session, 0)
        self._hot[session] = size
        while self._hot_bytes > HOT_BYTES and len(self._hot) > 1:
            old, freed = self._hot.popitem(last=False)
            self._hot_bytes -= freed
            cold = self._sessions[old]
            cold.data = cold.open_data = cold.prompt = None


def _without_end(text: str, mark: str) -> str:
    return text[: -len(mark)] if mark and text.endswith(mark) else text


def _outside(prepared: Prepared, namespace: str, reach: int, common: int) -> None:
    """What an unbroken session would have shared up to ``reach``: lost to a divergence, or to another namespace."""
    if namespace != prepared.namespace:
        prepared.namespace_tokens = max(0, common - prepared.shared)
    prepared.diverged_tokens = max(0, reach - max(common, prepared.shared))
