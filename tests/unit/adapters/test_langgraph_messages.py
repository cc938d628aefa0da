"""What the gate is told the agent's request says. If these fail, decisions align to a prompt that is never sent."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from warmgate_adapters.langgraph.messages import ANNOUNCES, openai_messages, schemas, usage_of, user_turns

CONVERSATION = [
    SystemMessage("You mend code."),
    HumanMessage([{"type": "text", "text": "look"}, {"type": "text", "text": "here"}]),
    AIMessage("", tool_calls=[{"id": "1", "name": "read", "args": {"path": "ä.txt", "n": 1.0}}]),
    ToolMessage("contents", tool_call_id="1", name="read"),
    AIMessage("I see", tool_calls=[{"id": "2", "name": "read", "args": {}}]),
    ToolMessage("", tool_call_id="2", name="read", status="error"),
    SystemMessage("These tools are available", additional_kwargs={ANNOUNCES: True}),
    AIMessage("done", additional_kwargs={"reasoning_content": "hm"}),
    HumanMessage("thanks", additional_kwargs={ANNOUNCES: True}),
]


def test_messages_are_those_that_chatopenai_sends():
    payload = ChatOpenAI(model="m", api_key="none", base_url="http://session.invalid/v1")._get_request_payload(CONVERSATION)
    sent = [dict(message) for message in payload["messages"]]
    ours = openai_messages(CONVERSATION)
    for one in (*sent, *ours):  # the text of arguments is parsed by servers: only its value counts
        for call in one.get("tool_calls") or ():
            call["function"]["arguments"] = __import__("json").loads(call["function"]["arguments"])
    assert ours == sent


def test_tools_are_those_that_chatopenai_sends():
    @tool
    def read(path: str, lines: int = 3) -> str:
        """Read a file."""
        return path

    bound = ChatOpenAI(model="m", api_key="none").bind_tools([read])
    assert schemas([read]) == bound.kwargs["tools"]


def test_an_announcement_is_no_turn_of_the_user():
    assert user_turns(CONVERSATION) == 1


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (None, None),
        ({"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}, {"prompt_tokens": 5, "completion_tokens": 2}),
        (
            {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "input_token_details": {"cache_read": 0}},
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}},
        ),
    ],
)
def test_usage_says_no_more_than_the_server_did(usage, told):
    """No cached tokens and unknown cached tokens are two things."""
    assert usage_of(AIMessage("x", usage_metadata=usage)) == told
