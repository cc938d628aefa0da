"""If these fail, a stock vLLM without a template setting is asked on states that are slow, stale or not the agent's prompt."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.alignment.test_plan import QWENISH, SYSTEM, TOOLS, USER, call, growing, result
from warmgate.alignment.fetch import ServerTemplate, drive, fetch
from warmgate.alignment.plan import Planner
from warmgate.alignment.remote import Remote
from warmgate.alignment.served import served_message, served_tool
from warmgate.alignment.template import ChatTemplate
from warmgate.engines.deadline import Deadline
from warmgate.engines.http import Http
from warmgate.errors import BadRequest, TemplateError


class Characters(Remote):
    """A server whose tokens are characters."""

    def __init__(self, source=QWENISH):
        super().__init__(Http("http://127.0.0.1:9"), "m", Deadline(60))
        self.template_ = ChatTemplate(source)
        self.rendered = []

    async def chat_ids(self, messages, tools=None, kwargs=None, *, add_generation_prompt=True):
        self.rendered.append(len(messages))
        try:
            shown = self.template_.render(
                list(map(served_message, messages)),
                list(map(served_tool, tools or ())),
                add_generation_prompt=add_generation_prompt,
                **(kwargs or {}),
            )
        except TemplateError as fault:
            raise BadRequest(fault.what, where=self.worker, server_words=fault.what) from None
        return tuple(map(ord, shown))

    async def text(self, ids):
        return "".join(map(chr, ids))


def planner_of(remote):
    template = ServerTemplate("the server's")
    return asyncio.run(drive(template, threading.Lock(), lambda: Planner(template), remote))


def plan(planner, remote, messages, tools=()):
    return asyncio.run(drive(planner.template, planner.lock, lambda: planner.plan("s", messages, tools), remote))


@settings(max_examples=30, deadline=None)
@given(growing, st.booleans())
def test_what_the_server_renders_is_planned_as_if_it_were_rendered_here(script, tools):
    """Users without a template file would get other states than those with one."""
    remote = Characters()
    far, near = planner_of(remote), Planner(ChatTemplate(QWENISH))
    history = [SYSTEM]
    for news in script:
        history = [*history, *news]
        offered = TOOLS if tools else ()
        assert replace(plan(far, remote, history, offered), rendered=0) == replace(near.plan("s", history, offered), rendered=0)


def test_a_turn_asks_the_server_for_its_new_messages_alone():
    """Each turn of a long conversation would be sent over twice."""
    remote = Characters()
    planner = planner_of(remote)
    history = [SYSTEM, USER]
    for n in range(8):
        history = [*history, call(n), result(n)]
        remote.rendered.clear()
        plan(planner, remote, history, TOOLS)
    assert len(remote.rendered) == 2
    assert max(remote.rendered) <= 5


def test_a_conversation_that_the_server_refuses_is_json_with_its_words():
    """A refusal would look like a dead server."""
    remote = Characters("{% if messages | length > 3 %}{{ raise_exception('too many turns') }}{% endif %}" + QWENISH)
    state = plan(planner_of(remote), remote, [SYSTEM, USER, USER, USER])
    assert state.kind == "json"
    assert "too many turns" in state.reason


def test_work_that_never_has_enough_ends():
    """A template with a clock in it would keep a decision rendering until its deadline."""
    remote = Characters()
    template = ServerTemplate("the server's")
    count = iter(range(1000))

    def work():
        while True:
            template.render([{"role": "user", "content": str(next(count))}])

    with pytest.raises(TemplateError, match="wants more than"):
        asyncio.run(drive(template, threading.Lock(), work, remote))


def test_what_json_cannot_say_is_the_templates_error():
    """An odd object in a message would crash the decision."""
    with pytest.raises(TemplateError, match="cannot be sent"):
        ServerTemplate("the server's").render([{"role": "user", "content": object()}])


@pytest.mark.parametrize(
    ("given", "kind"),
    [((QWENISH, {"eos_token": "</s>"}), ChatTemplate), (("{% broken", {}), ServerTemplate), (None, ServerTemplate)],
)
async def test_a_source_that_the_server_gives_is_rendered_here(given, kind):
    """Every turn would ask a server that has said all there is to know, or one broken template end alignment."""

    class Telling(Characters):
        async def template(self):
            return given

    template = await fetch(Telling())
    assert type(template) is kind
    assert template.special == (given[1] if kind is ChatTemplate else {})
