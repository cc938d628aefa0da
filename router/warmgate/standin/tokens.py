"""``POST /tokenize`` and ``POST /detokenize``: the exact text and ids without a local tokenizer."""

from __future__ import annotations

from typing import Any

from warmgate.standin.bodies import DetokenizeBody, TokenizeChatBody, TokenizeTextBody, check, read_json
from warmgate.standin.prompts import untrusted_template
from warmgate.standin.replies import Invalid, Reply, refusal, wrong_value
from warmgate.standin.served import Request, Served


async def tokenize(served: Served, request: Request) -> Reply:
    """Token ids of a text or of a conversation."""
    body = _text_or_chat(read_json(request.body, request.headers.get("content-type", "")))
    if isinstance(body, TokenizeTextBody):
        served.adapter(body.model)
        text = body.prompt
    else:
        if body.continue_final_message and "add_generation_prompt" in body.model_fields_set and body.add_generation_prompt:
            raise refusal("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        served.adapter(body.model)
        if body.chat_template is not None:
            raise untrusted_template()
        text = served.prompts.chat(
            body.messages,
            body.tools,
            body.chat_template_kwargs,
            add_generation_prompt=body.add_generation_prompt,
            continue_final=body.continue_final_message,
        )
    ids = served.prompts.encode(text)
    payload: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": served.prompts.max_model_len,
        "tokens": ids,
        "token_strs": served.text.names(ids) if body.return_token_strs else None,
    }
    return Reply(payload=payload)


async def detokenize(served: Served, request: Request) -> Reply:
    """The text of token ids."""
    body = check(DetokenizeBody, read_json(request.body, request.headers.get("content-type", "")))
    served.adapter(body.model)
    return Reply(payload={"prompt": served.text.decode(body.tokens)})


def check_ids(served: Served, ids: list[int], param: str | None = None) -> None:
    """Refuse ids the vocabulary does not have."""
    beyond = max(ids, default=0)
    if beyond >= served.text.vocabulary_size:
        message = f"Token id {beyond} is out of vocabulary"
        raise refusal(message) if param is None else wrong_value(message, param)


def _text_or_chat(value: Any) -> TokenizeTextBody | TokenizeChatBody:
    """The body as either of the two; where it is neither, what both lack is told, as for vLLM's union of them."""
    try:
        return check(TokenizeTextBody, value)
    except Invalid as no_text:
        try:
            return check(TokenizeChatBody, value)
        except Invalid as no_chat:
            raise Invalid(no_text.errors + no_chat.errors) from None
