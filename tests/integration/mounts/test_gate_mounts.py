"""If these fail, a gate prefills a catalogue to cut it, or a restarted process gives a session another list than its prefix was computed with."""

from __future__ import annotations

from typing import Any

from warmgate.gate import Gate
from warmgate.mounting import Held
from warmgate.settings import Settings
from warmgate.standin import StandIn
from warmgate.turn import Turn
from warmgate_policies.mounts import MountOptions, ToolMounts

SERVERS = ("git", "web", "mail", "files")
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": f"{s}__{v}", "description": f"to {v} things of {s}. " * 40, "parameters": {"type": "object"}}}
    for s in SERVERS
    for v in ("read", "write")
]
SYSTEM = {"role": "system", "content": "You help with work of every kind."}
FIRST = [SYSTEM, {"role": "user", "content": "commit my work"}]
SECOND = [*FIRST, {"role": "assistant", "content": "done"}, {"role": "user", "content": "and now write a long mail to the whole team"}]
# the questions are mount0 … in the order of the servers: git is wanted at first; then web, mail and files are in doubt, and mail is wanted
WANTS = {
    "decisions": [{"id": f"mount{i}", "probabilities": {"yes": p}} for i, p in enumerate((0.9, 0.01, 0.01, 0.01))],
}
THEN = {
    "decisions": [{"id": f"mount{i}", "probabilities": {"yes": p}} for i, p in enumerate((0.01, 0.9, 0.01))],
}
GIT, MAIL = ("git__read", "git__write"), ("mail__read", "mail__write")


def gate(worker: StandIn, strategy: str = "append") -> Gate:
    options = MountOptions(strategy=strategy, smallest=0, lengths=(200,) * 5)  # type: ignore[arg-type]
    settings = Settings(workers=[worker.url], model="standin", deadline_ms=30_000, alignment="always")
    return Gate(settings, mounts=ToolMounts(options))


async def test_the_first_questions_do_not_compute_the_whole_catalogue():
    """Two hundred tools are tens of thousands of tokens, in every session, to be thrown away."""
    async with StandIn(script=WANTS) as worker, gate(worker) as cut, gate(worker, "native") as whole:
        bare = await cut.decide(Turn("a", FIRST, TOOLS))
        full = await whole.decide(Turn("b", FIRST, TOOLS))
    assert bare.mounts.offered == GIT
    assert full.mounts.offered == tuple(t["function"]["name"] for t in TOOLS)
    tokens = [sum(r.ledger.prompt_tokens or 0 for r in d.reads if r.ledger is not None) for d in (bare, full)]
    assert 0 < tokens[0] < tokens[1] / 2


async def test_a_restarted_process_goes_on_with_the_list_the_prefix_was_computed_with():
    """What was announced at the end must not move to the front: the conversation behind it would be computed again."""
    async with StandIn(script=WANTS) as worker, gate(worker) as before:
        first = await before.decide(Turn("s", FIRST, TOOLS))
    async with StandIn(script=THEN) as worker:
        async with gate(worker) as before:
            before.memory.keep("s", Held(1, first.mounts.tools, first.mounts.offered or ()))
            second = await before.decide(Turn("s", SECOND, TOOLS))
            assert (second.mounts.offered, second.mounts.announce) == (GIT, MAIL)
        async with gate(worker) as after:  # a new process: the adapter's state tells the gate what the session has
            after.memory.keep("s", Held(2, second.mounts.tools, second.mounts.offered or ()))
            third = await after.decide(Turn("s", [*SECOND, {"role": "assistant", "content": "sent"}, SECOND[-1]], TOOLS))
            assert third.mounts.offered == GIT
            assert set(MAIL) <= set(third.mounts.tools)
            assert not set(MAIL) & set(third.mounts.announce)


async def test_an_empty_list_is_a_list():
    """A session that got nothing at first must not have what is announced to it in the list at the front."""
    async with StandIn(script=THEN) as worker, gate(worker) as one:
        one.memory.keep("s", Held(1, (), ()))
        decision = await one.decide(Turn("s", SECOND, TOOLS))
        assert decision.mounts.offered == ()
        assert decision.mounts.announce
        assert one.memory.offered(Turn("s", SECOND, TOOLS)) == []
