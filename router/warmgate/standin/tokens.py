"""``POST /tokenize`` and ``POST /detokenize``: the exact text and ids without a local tokenizer."""

from __future__ import annotations

from typing import Any

from warmgate.standin.bodies import DetokenizeBody, TokenizeChatBody, TokenizeTextBody, check, read_json
from warmgate.standin.prompts import untrusted_template
from warmgate.standin.replies import Refused, Reply, invalid, refusal, wrong_value
from warmgate.standin.served import Request, Served
from warmgate.standin.shapes import as_object, is_object


async def tokenize(served: Served, request: Request) -> Reply:
    """Token ids of a text or of a conversation."""
    value = read_json(request.body, request.headers.get("content-type", ""))
    if "messages" in as_object(value) and "prompt" not in value:
        chat = check(TokenizeChatBody, value)
        if chat.continue_final_message and "add_generation_prompt" in chat.model_fields_set and chat.add_generation_prompt:
            raise refusal("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        served.adapter(chat.model)
        if chat.chat_template is not None:
            raise untrusted_template()
        text = served.prompts.chat(
            chat.messages,
            chat.tools,
            chat.chat_template_kwargs,
            add_generation_prompt=chat.add_generation_prompt,
            continue_final=chat.continue_final_message,
        )
        strings = chat.return_token_strs
    else:
        plain = _text_or_both_complaints(value)
        served.adapter(plain.model)
        text, strings = plain.prompt, plain.return_token_strs
    ids = served.prompts.encode(text)
    payload: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": served.prompts.max_model_len,
        "tokens": ids,
        "token_strs": served.text.names(ids) if strings else None,
    }
    return Reply(payload=payload)


async def detokenize(served: Served, request: Request) -> Reply:
    """The text of token ids."""
    body = check(DetokenizeBody, read_json(request.body, request.headers.get("content-type", "")))
    served.adapter(body.model)
    check_ids(served, body.tokens)
    return Reply(payload={"prompt": served.text.decode(body.tokens)})


def check_ids(served: Served, ids: list[int], param: str | None = None) -> None:
    """Refuse ids the vocabulary does not have."""
    beyond = max(ids, default=0)
    if beyond >= served.text.vocabulary_size:
        message = f"Token id {beyond} is out of vocabulary"
        raise refusal(message) if param is None else wrong_value(message, param)


def _text_or_both_complaints(value: Any) -> TokenizeTextBody:
    """A body that is neither a text nor a conversation is told what both lack, as a union of the two is in vLLM."""
    try:
        return check(TokenizeTextBody, value)
    except Refused:
        if is_object(value) and "prompt" not in value:
            missing: dict[str, Any] = {"type": "missing", "msg": "Field required", "input": value}
            raise invalid([{**missing, "loc": ("body", "prompt")}, {**missing, "loc": ("body", "messages")}]) from None
        raise
