"""The bodies clients send, with the checks and words of vLLM 0.32's own request models."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from warmgate.standin.replies import Invalid, unreadable, wrong_value
from warmgate.standin.shapes import as_object

MAX_LOGPROBS = 20
MAX_LOGPROB_TOKEN_IDS = 128
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
M = TypeVar("M", bound="Body")


class Body(BaseModel):
    """A request body; unknown fields are kept and ignored."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    model: str | None = None


class QuestionSpec(BaseModel):
    """One question of ``/v1/systemone`` as it is sent."""

    model_config = ConfigDict(extra="allow")

    type: str
    instructions: Any = ""
    criteria: Any = None


class SystemOneBody(Body):
    """``POST /v1/systemone``."""

    state: Any
    questions: dict[str, QuestionSpec]
    instructions: str | None = None
    images: list[str] | None = None
    audio: list[str] | None = None
    videos: list[str] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    cache_salt: str | None = None
    priority: Int64 = 0
    request_id: str | None = None


class StrictSystemOneBody(SystemOneBody):
    """The same in 0.33, which refuses unknown fields and knows ``joint``."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    joint: Annotated[bool, Field(strict=True)] = False


class FunctionSpec(BaseModel):
    """A tool's function, in the order in which vLLM hands it to the chat template."""

    model_config = ConfigDict(extra="allow")

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolSpec(BaseModel):
    """A tool of a chat request."""

    model_config = ConfigDict(extra="allow")

    type: Literal["function"] = "function"
    function: FunctionSpec

    def for_template(self) -> dict[str, Any]:
        """What the chat template sees: known fields alone, ``strict`` only where it was set."""
        shown = self.function.model_dump(include={"name", "description", "parameters", "strict"})
        if self.function.strict is None:
            del shown["strict"]
        return {"type": self.type, "function": shown}


class StreamOptions(BaseModel):
    """Options of a streamed reply."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class Sampled(Body):
    """What chat and completion requests share."""

    max_tokens: int | None = None
    n: int | None = 1
    temperature: float | None = None
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprob_token_ids: list[int] | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    request_id: str | None = None
    priority: Int64 = 0


class ChatBody(Sampled):
    """``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]]
    tools: list[ToolSpec] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = "none"
    parallel_tool_calls: bool | None = True
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    include_reasoning: bool = True


class CompletionBody(Sampled):
    """``POST /v1/completions``."""

    prompt: list[Annotated[int, Field(ge=0)]] | list[list[Annotated[int, Field(ge=0)]]] | str | list[str] | None = None
    echo: bool | None = False
    logprobs: int | None = None
    add_special_tokens: bool = True


class TokenizeTextBody(Body):
    """``POST /tokenize`` of a text."""

    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class TokenizeChatBody(Body):
    """``POST /tokenize`` of a conversation."""

    messages: list[dict[str, Any]]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    return_token_strs: bool | None = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[ToolSpec] | None = None


class DetokenizeBody(Body):
    """``POST /detokenize``."""

    tokens: list[Annotated[int, Field(ge=0, le=2**63 - 1)]]


def read_json(content: bytes, content_type: str) -> Any:
    """The value a body holds.

    Raises:
        Refused: It is not JSON, or is not said to be. Compressed bodies end here too: vLLM never unpacks them.
    """
    media_type = content_type.lower().split(";", maxsplit=1)[0]
    if media_type == "application/json" and content:
        try:
            value = json.loads(content)
        except json.JSONDecodeError as fault:
            error: dict[str, Any] = {"type": "json_invalid", "loc": ("body", fault.pos), "msg": "JSON decode error", "input": {}}
            raise Invalid([{**error, "ctx": {"error": fault.msg}}]) from None
        except (ValueError, RecursionError):
            raise unreadable("There was an error parsing the body") from None
        return value
    if media_type != "application/json":
        raise Invalid(["Unsupported Media Type: Only 'application/json' is allowed"])
    raise Invalid([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])


def check(shape: type[M], value: Any) -> M:
    """The value as a body of that shape.

    Raises:
        Refused: With vLLM's words for what is wrong.
    """
    check_salt(as_object(value).get("cache_salt"))
    try:
        return shape.model_validate(value, from_attributes=True)
    except ValidationError as fault:
        errors = fault.errors(include_url=False)
        raise Invalid([{**error, "loc": ("body", *error["loc"])} for error in errors]) from None


def check_salt(salt: object) -> None:
    """Refuse a ``cache_salt`` that vLLM would refuse."""
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise wrong_value("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > 128 or set(salt) & set("@/\\\x00"):
        raise wrong_value(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL.", "cache_salt"
        )
