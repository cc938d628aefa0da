"""From a request to the token ids an engine would read: chat rendering, decision prompts, media placeholders, length checks."""

from __future__ import annotations

import base64
import binascii
import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from warmgate.alignment.template import ChatTemplate
from warmgate.errors import TemplateError
from warmgate.standin.bodies import ToolSpec
from warmgate.standin.replies import refusal, wrong_value
from warmgate.standin.shapes import as_list, as_object, is_list, is_object
from warmgate.standin.text import Text

PAD = "<|image_pad|>"
MEDIA_TOKENS = 64
"""Placeholder tokens the stand-in spends on any picture, clip or video."""

_MAGIC = {
    "image": (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM"),
    "audio": (b"RIFF", b"ID3", b"\xff\xfb", b"OggS", b"fLaC"),
    "video": (b"\x00\x00\x00", b"\x1aE\xdf\xa3", b"RIFF"),
}


class Prompts:
    """Turns requests into token ids.

    Args:
        text: The tokenizer.
        template: The chat template.
        max_model_len: Tokens a prompt may have.
        model: What the model is called in complaints.
    """

    def __init__(self, text: Text, template: ChatTemplate, max_model_len: int, model: str) -> None:
        self.model = model
        self.text = text
        self.template = template
        self.max_model_len = max_model_len

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
    ) -> str:
        """The text of a conversation; with ``continue_final`` its last message is left open.

        Raises:
            Refused: The template refuses it, or brings one of its own.
        """
        options = dict(kwargs or {})
        if options.get("chat_template") is not None:
            raise untrusted_template()
        for decided in ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"):
            options.pop(decided, None)
        if not messages:
            raise refusal("Cannot apply chat template to an empty conversation. Provide at least one message.")
        shown = normalized(messages, self.model)
        try:
            text = self.template.render(
                shown,
                [tool.for_template() for tool in tools] if tools is not None else None,
                add_generation_prompt=add_generation_prompt and not continue_final,
                **options,
            )
        except TemplateError as fault:
            raise refusal(fault.what) from None
        last = str(shown[-1]["content"]).strip() if continue_final and shown else ""
        return text[: text.rindex(last) + len(last)] if last and last in text else text

    def encode(self, text: str) -> list[int]:
        """Token ids of a text.

        Raises:
            Refused: It holds half a surrogate pair, which is no text.
        """
        try:
            return self.text.encode(text)
        except (TypeError, UnicodeEncodeError):
            raise refusal("TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]") from None

    def fits(self, ids: Sequence[int], *, tokenized: bool = True) -> None:
        """Refuse a prompt longer than the model's context, in the engine's words.

        Args:
            ids: The prompt.
            tokenized: Whether the engine's tokenizer made it, which stops one token past the limit and so cannot say how long it is.
        """
        limit = self.max_model_len
        if len(ids) <= limit:
            return
        length = limit + 1 if tokenized else len(ids)
        qualifier = "at least " if length == limit + 1 else ""
        raise wrong_value(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains {qualifier}{length} input tokens, "
            "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
            "input_tokens",
            length,
        )

    def tail(self, ids: Sequence[int]) -> list[int]:
        """The ids after the last control token."""
        control = set(self.text.added.values())
        start = max((at + 1 for at, token in enumerate(ids) if token in control), default=0)
        return list(ids[start:])

    def label_ids(self, ids: Sequence[int], labels: Sequence[str]) -> list[int] | None:
        """The token each label is as the first of a reply to ``ids``; ``None`` when one is not a single, distinct token there."""
        tail = self.tail(ids)
        before = self.text.decode(tail)
        found: list[int] = []
        for label in labels:
            whole = self.text.encode(before + label)
            if whole[:-1] != tail or whole[-1] in found:
                return None
            found.append(whole[-1])
        return found

    def media(self, urls: Mapping[str, Sequence[str]]) -> list[str]:
        """Digests of attached media, in order.

        Raises:
            Refused: Something is not a data URL, or not what it says it is. The stand-in fetches nothing.
        """
        return [_digest(kind, url) for kind, several in urls.items() for url in several]

    def placeholders(self, digests: Sequence[str]) -> str:
        """What stands for media in a prompt."""
        if PAD in self.text.added:
            return PAD * MEDIA_TOKENS * len(digests)
        return "".join(f"[media {digest}]" for digest in digests)

    def spans(self, ids: Sequence[int], digests: Sequence[str]) -> tuple[tuple[str, int, int], ...]:
        """Where each medium's placeholders are: (digest, first position, length)."""
        pad = self.text.added.get(PAD)
        if pad is None or not digests:
            return ()
        first = next((at for at, token in enumerate(ids) if token == pad), 0)
        return tuple((digest, first + number * MEDIA_TOKENS, MEDIA_TOKENS) for number, digest in enumerate(digests))


def untrusted_template() -> Exception:
    """Requests may not bring a template unless the server trusts them to."""
    return refusal(
        "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with untrusted chat template."
    )


def normalized(messages: Sequence[Mapping[str, Any]], model: str) -> list[dict[str, Any]]:
    """Messages as vLLM hands them to a chat template (``vllm/renderers/chat_utils.py``).

    Contents in parts become one text, joined by line ends; a call's arguments become an object; ``reasoning`` is shown under its old name
    too. (A client's ``reasoning_content`` counts for chat alone: ``/tokenize`` overlooks it.)

    Raises:
        Refused: A message has no role, or a call is not a function's.
    """
    return [_message(message, model) for message in messages]


def _message(message: Mapping[str, Any], model: str) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise refusal("each message needs a role", 400, "Bad Request", "body.messages")
    shown: dict[str, Any] = {"role": role, "content": _content(message.get("content"), model)}
    if role == "assistant":
        if message.get("tool_calls"):
            shown["tool_calls"] = [_call(call) for call in message["tool_calls"]]
        reasoning = message.get("reasoning")
        if reasoning is not None:
            shown["reasoning"] = shown["reasoning_content"] = reasoning
    if role == "tool" and "tool_call_id" in message:
        shown["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        shown["name"] = message["name"]
    return shown


def _content(content: Any, model: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not is_list(content):
        raise refusal("message content must be text or a list of parts", 400, "Bad Request", "body.messages")
    texts: list[str] = []
    for part in as_list(content):
        if isinstance(part, str):
            texts.append(part)
            continue
        known = as_object(part)
        value = known.get("text", known.get("thinking", known.get("refusal")))
        if not isinstance(value, str):
            raise refusal(f"{model} is not a multimodal model")
        texts.append(value)
    return "\n".join(texts)


def _call(call: Any) -> dict[str, Any]:
    if not is_object(call):
        raise wrong_value("assistant tool_calls entries must be objects.", "tool_calls")
    shown = copy.deepcopy(as_object(call))
    told = as_object(shown.get("function"))
    if shown.get("type", "function") != "function" or not told:
        raise wrong_value("chat completions only support assistant tool_calls of type 'function'.", "tool_calls")
    arguments: Any = told.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    told["arguments"] = as_object(arguments)
    return shown


def _digest(kind: str, url: str) -> str:
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise refusal("media: the stand-in fetches nothing; send a data URL")
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise refusal(f"media: Failed to load {kind}: the data URL is not base64") from None
    if not content.startswith(_MAGIC[kind]):
        noun = f"cannot identify {kind} file <_io.BytesIO object>"
        raise refusal(f"media: Failed to load {kind}: {noun}")
    return hashlib.sha256(content).hexdigest()[:32]
