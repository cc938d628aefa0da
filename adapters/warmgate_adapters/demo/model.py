"""A model that says what the script has, behind calls that are really made.

A stand-in says the same by itself, but names its calls at random, as vLLM does, and names are a part of what a gate with JSON state reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from warmgate.foreign import mappings
from warmgate_adapters.demo import script


class Scripted(BaseChatModel):
    """Calls another chat model, and gives the script's reply with the other's usage.

    Attributes:
        inner: The model that is called.
        header: The header that names the session.
        limit: Tokens that it may generate, where nothing of that is used; ``None`` for a stand-in, which says what the script has.
    """

    inner: BaseChatModel
    header: str
    limit: int | None = None

    @property
    def _llm_type(self) -> str:
        return "warmgate-demo"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[Any, AIMessage]:
        """As OpenAI's models do."""
        more: dict[str, Any] = {} if tool_choice is None else {"tool_choice": tool_choice}
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **more, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = self.inner.invoke(messages, stop=stop, **self._limited(), **kwargs)
        return self._scripted(reply, messages, kwargs)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = await self.inner.ainvoke(messages, stop=stop, **self._limited(), **kwargs)
        return self._scripted(reply, messages, kwargs)

    def _limited(self) -> dict[str, Any]:
        return {} if self.limit is None else {"max_tokens": self.limit, "temperature": 0}

    def _scripted(self, reply: AIMessage, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any]) -> ChatResult:
        session = dict(kwargs.get("extra_headers") or {}).get(self.header)
        turn = sum(isinstance(message, AIMessage) for message in messages)
        said: script.Reply = next(
            (talk.replies[turn] for talk in script.TALKS if talk.name == session and turn < len(talk.replies)), {"content": ""}
        )
        calls = [
            {"name": call["name"], "args": dict(call["arguments"]), "id": f"call-{session}-{turn}-{number}", "type": "tool_call"}
            for number, call in enumerate(mappings(said.get("tool_calls")))
        ]
        message = AIMessage(said.get("content", ""), tool_calls=calls, usage_metadata=reply.usage_metadata)
        return ChatResult(generations=[ChatGeneration(message=message)])
