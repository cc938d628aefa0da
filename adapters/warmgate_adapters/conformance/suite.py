"""The suite: each test's name says what a user would lose if it failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from warmgate.foreign import items, mapping
from warmgate_adapters.conformance.driver import Answer, Capability, Driver
from warmgate_adapters.conformance.rig import Rig, Sets, Words, calls, rig, says

LS, RM, MAKE = (("shell", {"command": command}) for command in ("ls", "rm -r x", "make"))
ALL = ("read", "shell", "web")


@pytest.mark.asyncio
class AdapterConformance:
    """To be subclassed with a ``driver``."""

    driver: ClassVar[Driver]

    def needs(self, *capabilities: Capability) -> None:
        """Skip where the framework cannot."""
        for one in capabilities:
            if one not in self.driver.capabilities:
                pytest.skip(f"{type(self.driver).__name__}: {self.driver.whyever.get(one, f'no {one}')}")

    @asynccontextmanager
    async def world(self, store: Path, *chat: Any, **more: Any) -> AsyncGenerator[Rig]:
        """See :func:`rig`."""
        async with rig(self.driver, store, chat, **more) as made:
            yield made

    # -- what may not run does not --------------------------------------------------------------------------------------------------

    async def test_a_tool_that_is_not_mounted_does_not_run_and_the_agent_goes_on(self, tmp_path: Path) -> None:
        """Hiding a tool from the list stops no model from naming it."""
        async with self.world(tmp_path, calls(LS), says("done"), mounts=Sets({1: ("read",)})) as world:
            told = await (await world.open()).say("look around")
            assert world.ran == []
            assert "not mounted" in told.results[0]
            assert "read" in told.results[0]
            assert told.final == "done"

    async def test_a_denied_call_does_not_run_and_the_model_learns_why(self, tmp_path: Path) -> None:
        """A refusal without its reason is tried again."""
        async with self.world(tmp_path, calls(RM), says("sorry")) as world:
            told = await (await world.open()).say("clean up")
            assert world.ran == []
            assert "it removes files" in told.results[0]
            assert told.final == "sorry"

    async def test_parallel_calls_are_judged_each_and_by_one_decision(self, tmp_path: Path) -> None:
        """A harmless call must not carry a dangerous one through, nor cost a request each."""
        read = ("read", {"path": "a.txt"})
        async with self.world(tmp_path, calls(LS, RM, read, LS), says("done")) as world:
            told = await (await world.open()).say("many things")
            assert sorted(world.ran) == [("read", "a.txt"), ("shell", "ls"), ("shell", "ls")]
            assert [("it removes files" in result) for result in told.results] == [False, True, False, False]
            assert world.gate.judgings() == 1

    async def test_nobody_to_approve_means_no(self, tmp_path: Path) -> None:
        """An unattended agent must neither hang nor run what needed a person."""
        async with self.world(tmp_path, calls(MAKE, LS), says("done")) as world:
            told = await (await world.open(on_ask="deny")).say("build")
            assert world.ran == [("shell", "ls")]
            assert "nobody is there" in told.results[0]
            assert told.final == "done"

    async def test_a_call_changed_after_it_was_judged_is_judged_as_it_will_run(self, tmp_path: Path) -> None:
        """A wrapper around the tools must not turn an allowed call into a denied one."""
        self.needs("tamper")
        async with self.world(tmp_path, calls(LS), calls(("read", {"path": "a"})), says("done")) as world:
            agent = await world.open(tamper=worse)
            told = await agent.say("look around")
            assert world.ran == [("read", "b")]
            assert "it removes files" in told.results[0]

    async def test_a_call_changed_into_one_that_needs_a_person_does_not_run(self, tmp_path: Path) -> None:
        """Nobody saw what it would do."""
        self.needs("tamper")
        async with self.world(tmp_path, calls(LS), says("done")) as world:
            agent = await world.open(tamper=doubtful)
            told = await agent.say("look around")
            assert world.ran == []
            assert "not the one that was judged" in told.results[0]

    # -- a person decides -----------------------------------------------------------------------------------------------------------

    async def test_a_person_is_shown_the_call_and_approves_exactly_it(self, tmp_path: Path) -> None:
        """Nothing runs before the answer, and what was approved runs once."""
        self.needs("ask")
        async with self.world(tmp_path, calls(LS, MAKE), says("built")) as world:
            agent = await world.open()
            told = await agent.say("build")
            assert told.asked == [MAKE]
            assert told.final is None
            assert MAKE[1]["command"] not in [given for _, given in world.ran]
            told = await agent.answer([Answer("approve")])
            assert sorted(world.ran) == [("shell", "ls"), ("shell", "make")]
            assert told.final == "built"

    async def test_going_on_after_an_answer_decides_nothing_twice(self, tmp_path: Path) -> None:
        """A second decision could differ from the one a person saw."""
        self.needs("ask")
        policy = Words()
        async with self.world(tmp_path, calls(LS, MAKE, RM), says("built"), policy=policy) as world:
            agent = await world.open()
            await agent.say("build")
            await agent.answer([Answer("approve")])
            assert len(policy.judged) == 3
            assert world.gate.judgings() == 1

    async def test_an_approval_outlives_the_process(self, tmp_path: Path) -> None:
        """People answer hours later."""
        self.needs("ask", "restart")
        async with self.world(tmp_path, calls(MAKE, RM), says("built")) as world:
            await (await world.open()).say("build")
            later = Words()
            await world.restart(later)
            told = await (await world.open()).answer([Answer("approve")])
            assert world.ran == [("shell", "make")]
            assert "it removes files" in told.results[1]
            assert later.judged == []
            assert told.final == "built"

    async def test_a_rejection_is_final_though_the_policy_would_now_allow(self, tmp_path: Path) -> None:
        """Neither a laxer policy nor the model's insisting lifts a person's no."""
        self.needs("ask", "restart")
        for version in ("1", "2"):
            store = tmp_path / version
            store.mkdir()
            async with self.world(store, calls(MAKE), calls(MAKE), says("fine")) as world:
                await (await world.open()).say("build")
                await world.restart(Words(version, lenient=True))
                told = await (await world.open()).answer([Answer("reject")])
                assert world.ran == []
                assert all("a person refused" in result for result in told.results)
                assert len(told.results) == 2
                assert told.final == "fine"

    async def test_an_approval_under_another_policy_is_judged_anew(self, tmp_path: Path) -> None:
        """A verdict is tied to the policy that gave it."""
        self.needs("ask", "restart")
        async with self.world(tmp_path, calls(("shell", {"command": "make"})), says("fine")) as world:
            await (await world.open()).say("build")
            later = Words("2")
            await world.restart(later)
            told = await (await world.open()).answer([Answer("approve")])
            assert later.judged
            assert world.ran == []
            assert told.asked == [MAKE] or told.results

    async def test_an_edited_call_is_judged_anew(self, tmp_path: Path) -> None:
        """Approving something else than was judged is not approving it."""
        self.needs("ask", "edit")
        for edited, ran in (("rm -r /", []), ("ls -l", [("shell", "ls -l")])):
            store = tmp_path / edited[:2]
            store.mkdir()
            policy = Words()
            async with self.world(store, calls(MAKE), says("fine"), policy=policy) as world:
                agent = await world.open()
                await agent.say("build")
                told = await agent.answer([Answer("edit", {"command": edited})])
                assert world.ran == ran
                assert any(edited in said for said in policy.judged)
                assert told.final == "fine"

    async def test_an_edit_into_what_needs_a_person_is_put_to_one(self, tmp_path: Path) -> None:
        """The person sees what the policy says of the new call."""
        self.needs("ask", "edit")
        async with self.world(tmp_path, calls(MAKE), says("fine")) as world:
            agent = await world.open()
            await agent.say("build")
            told = await agent.answer([Answer("edit", {"command": "make install"})])
            assert told.asked == [("shell", {"command": "make install"})]
            assert world.ran == []
            await agent.answer([Answer("approve")])
            assert world.ran == [("shell", "make install")]

    async def test_a_persons_word_is_told_to_the_gate_once_and_fits_its_verdict(self, tmp_path: Path) -> None:
        """Without these labels nobody can calibrate a threshold; one told twice counts double."""
        self.needs("ask")
        chat = (calls(MAKE, ("shell", {"command": "make all"})), calls(LS), says("done"), says("bye"))
        async with self.world(tmp_path, *chat) as world:
            agent = await world.open()
            await agent.say("build")
            assert world.gate.words == []
            await agent.answer([Answer("approve"), Answer("reject")])
            await agent.say("thanks")
            verdicts = {
                (decision.id, verdict.call, verdict.binding)
                for _, decision in world.gate.decisions
                for verdict in decision.verdicts.values()
            }
            assert sorted((approved, tool) for *_, approved, tool in world.gate.words) == [(False, "shell"), (True, "shell")]
            assert {word[:3] for word in world.gate.words} <= verdicts
            assert len({word[:3] for word in world.gate.words}) == 2

    async def test_an_edit_is_no_word_on_the_call_that_was_asked_about(self, tmp_path: Path) -> None:
        """It would teach that what a person changed was right, or wrong, as it stood."""
        self.needs("ask", "edit")
        async with self.world(tmp_path, calls(MAKE), says("fine")) as world:
            agent = await world.open()
            await agent.say("build")
            await agent.answer([Answer("edit", {"command": "make install"})])
            assert world.gate.words == []
            await agent.answer([Answer("approve")])
            assert [word[3] for word in world.gate.words] == [True]

    async def test_after_a_restart_the_mount_policy_is_told_what_the_session_has(self, tmp_path: Path) -> None:
        """A policy that forgot would change the list of tools, and with it the whole prefix."""
        self.needs("restart", "announce")
        mounts = Sets({1: ("read",), 2: ("read", "web")}, announce={2: ("web",)})
        async with self.world(tmp_path, says("hello"), says("a"), says("b"), mounts=mounts) as world:
            agent = await world.open()
            await agent.say("hi")
            await agent.say("search")
            mounts.restored.clear()
            await world.restart(Words())
            await (await world.open()).say("again")
            assert mounts.restored[0] == {"session": "s", "offered": ("read",), "announced": ("web",), "mounted": ("read", "web")}

    # -- the gate is down -----------------------------------------------------------------------------------------------------------

    async def test_without_a_gate_mounts_stay_and_calls_are_put_to_a_person(self, tmp_path: Path) -> None:
        """An outage must neither take tools away nor let commands through."""
        chat = (says("hello"), calls(LS, ("web", {"query": "x"})), says("done"))
        async with self.world(tmp_path, *chat, mounts=Sets({1: ("read", "shell")})) as world:
            agent = await world.open(on_ask="deny")
            await agent.say("hi")
            world.gate.down = True
            told = await agent.say("go on")
            assert world.ran == []
            assert "unavailable" in told.results[0]
            assert "not mounted" in told.results[1]
            assert told.final == "done"
            assert [names(body) for body in world.chats()] == [["read", "shell"]] * 3

    # -- the framework stays itself -------------------------------------------------------------------------------------------------

    async def test_blocking_code_is_gated_as_well(self, tmp_path: Path) -> None:
        """Both ways into the framework pass the gate."""
        self.needs("sync")
        async with self.world(tmp_path, calls(LS, RM), says("done"), mounts=Sets({1: ("shell",)})) as world:
            told = await (await world.open(sync=True)).say("look around")
            assert world.ran == [("shell", "ls")]
            assert "it removes files" in told.results[1]
            assert told.final == "done"

    async def test_text_still_streams(self, tmp_path: Path) -> None:
        """A gate that waits for the whole reply takes the typing away."""
        self.needs("stream")
        words = "one two three four five six seven eight nine ten"
        async with self.world(tmp_path, calls(LS), says(words)) as world:
            told = await (await world.open()).say("count", stream=True)
            assert "".join(told.pieces) == words
            assert len([piece for piece in told.pieces if piece]) > 3
            assert world.ran == [("shell", "ls")]

    async def test_a_cancelled_run_leaves_nothing_behind(self, tmp_path: Path) -> None:
        """Neither a call that runs unjudged nor a session that is stuck."""
        self.needs("cancel")
        async with self.world(tmp_path, calls(LS), says("done")) as world:
            agent = await world.open()
            world.gate.held = asyncio.Event()
            run = asyncio.ensure_future(agent.say("look around"))
            await asyncio.sleep(0.2)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert world.ran == []
            world.gate.held = None
            other = await world.open("again")
            assert (await other.say("look around")).final == "done"
            assert world.ran == [("shell", "ls")]

    # -- sessions, workers, prefix --------------------------------------------------------------------------------------------------

    async def test_two_sessions_never_share(self, tmp_path: Path) -> None:
        """Neither a refusal, nor an approval, nor a tool list."""
        self.needs("ask")
        async with self.world(tmp_path, calls(MAKE), says("done"), workers=2, mounts=Sets({1: ("shell",)})) as world:
            left, right = await world.open("left"), await world.open("right")
            both = await asyncio.gather(left.say("build it left"), right.say("build it right"))
            assert [told.asked for told in both] == [[MAKE], [MAKE]]
            refused = await left.answer([Answer("reject")])
            assert world.ran == []
            built = await right.answer([Answer("approve")])
            assert world.ran == [("shell", "make")]
            assert "a person refused" in refused.results[0]
            assert built.results == ["output of make"]
            for session, other in (("left", "right"), ("right", "left")):
                assert other not in str([body["messages"] for body in world.chats(session)])

    async def test_decision_and_call_of_a_turn_reach_one_worker(self, tmp_path: Path) -> None:
        """On another worker the prompt is computed a second time."""
        mounts = Sets({1: ALL})
        async with self.world(tmp_path, calls(LS), says("a"), says("b"), mounts=mounts, workers=3) as world:
            sessions = [f"s{number}" for number in range(6)]
            for session in sessions:
                agent = await world.open(session)
                await agent.say("look")
                await agent.say("again")
            places = [{worker for worker, _ in world.seen(session)} for session in sessions]
            assert all(len(found) == 1 for found in places)
            assert len({place for found in places for place in found}) > 1
            for session in sessions:
                paths = {request.path for _, request in world.seen(session)}
                assert "/v1/chat/completions" in paths
                assert paths & {"/v1/systemone", "/v1/completions"}

    async def test_survival_of_the_agents_calls_is_recorded(self, tmp_path: Path) -> None:
        """What routing costs is what the product shows."""
        async with self.world(tmp_path, calls(LS), says("done"), mounts=Sets({1: ALL})) as world:
            await (await world.open()).say("look around " * 40)
            observed = [one for session, one in world.gate.observations if session == "s"]
            assert len(observed) == len(world.chats()) == 2
            assert observed[-1].cached_tokens

    async def test_the_adapter_adds_nothing_that_breaks_the_prefix(self, tmp_path: Path) -> None:
        """Each request extends the one before, and is token for token the prompt that the gate aligned to."""
        chat = (calls(LS, RM), calls(("web", {"query": "x"})), says("a"), says("b"))
        async with self.world(tmp_path, *chat, mounts=Sets({1: ("read", "shell")})) as world:
            agent = await world.open()
            await agent.say("look")
            await agent.say("again")
            sent = world.chats()
            assert len(sent) == 4
            for before, after in pairwise(sent):
                assert after["messages"][: len(before["messages"])] == before["messages"]
                assert after["tools"] == before["tools"]
            observed = [one for _, one in world.gate.observations]
            assert [one.predicted_tokens for one in observed] == [one.reported_tokens for one in observed]
            assert all(one.predicted_tokens and one.drift is None for one in observed)

    async def test_announced_tools_come_once_and_stay(self, tmp_path: Path) -> None:
        """A tool that is mounted and that the model never heard of is of no use; one announced each turn grows the prompt."""
        self.needs("announce")
        mounts = Sets({1: ("read",), 2: ("read", "web")}, announce={2: ("web",)})
        chat = (says("hello"), calls(("web", {"query": "x"})), says("a"), says("b"))
        async with self.world(tmp_path, *chat, mounts=mounts) as world:
            agent = await world.open()
            await agent.say("hi")
            await agent.say("search")
            await agent.say("thanks")
            assert world.ran == [("web", "x")]
            sent = world.chats()
            told = [[m for m in body["messages"] if "Search the web" in str(m.get("content"))] for body in sent]
            assert [len(found) for found in told] == [0, 1, 1, 1]
            assert [names(body) for body in sent] == [["read"]] * 4
            for before, after in pairwise(sent):
                assert after["messages"][: len(before["messages"])] == before["messages"]


def names(body: dict[str, Any]) -> list[str]:
    """Names of the tools that a request carries."""
    return [str(mapping(mapping(tool).get("function")).get("name")) for tool in items(body.get("tools"))]


def worse(given: dict[str, Any]) -> dict[str, Any]:
    """Another path to read, and another command altogether."""
    return {"command": "rm -r /"} if "command" in given else {"path": "b"}


def doubtful(given: dict[str, Any]) -> dict[str, Any]:
    """A command that needs a person."""
    return {**given, "command": "make"}


__all__ = ["AdapterConformance"]
