"""Six losses, staged one after another on two workers, and what the trackers make of each. Runs on stand-ins and on real vLLM."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from tests.integration.events.traffic import Pooled, until
from tests.wire.raw import TOOLS, fresh
from warmgate.prefix.divergence import PromptView
from warmgate.prefix.events import EventReader, EventSource
from warmgate.prefix.hashes import BlockNames, Namespace, wire_names
from warmgate.prefix.index import ShadowIndex
from warmgate.prefix.intake import Intake
from warmgate.prefix.survival import Outcome, Prompt, SurvivalTracker
from warmgate.prefix.usage import reported

NAMED = {
    "worker_change": ("worker_change", None, False),
    "worker_restart": ("worker_restart", None, False),
    "eviction": ("eviction", None, False),
    "tools changed": (None, "tools_changed", False),
    "clock": (None, "clock", False),
    "salt": (None, None, True),
    "nothing": (None, None, False),
}
"""What each must be called: cause, change of the prompt, whether another namespace."""


class Fleet:
    """Two workers followed by events. `blocks` is the pool of each; `restart` ends the first one and starts it anew, at the same address."""

    def __init__(self, workers: list[Pooled], blocks: int, restart: Callable[[], Pooled]) -> None:
        self.workers, self.blocks, self.restart = workers, blocks, restart
        self.names = BlockNames(workers[0].block_size)
        self.tracker = SurvivalTracker(workers[0].block_size)
        self.readers: list[EventReader] = []
        for worker in workers:
            self.follow(worker)

    def follow(self, worker: Pooled) -> None:
        index = ShadowIndex(worker.block_size, source="events")
        self.tracker.add_worker(worker.url, index)
        assert worker.events is not None
        intake = Intake(index, names=self.names, stored=lambda names: self.tracker.stored(worker.url, names))
        self.readers.append(EventReader(EventSource(worker.events, worker.replay), intake))
        self.readers[-1].start()
        assert until(lambda: self.readers[-1].status.state == "fresh"), self.readers[-1].status

    def close(self) -> None:
        for reader in self.readers:
            reader.close()

    def call(self, session: str, messages: list[Any], *, at: int = 0, tools: Any = None, salt: str | None = None) -> Outcome:
        worker = self.workers[at]
        more: dict[str, Any] = {"tools": tools} if tools else {}
        ids = worker.tokens(messages=messages, add_generation_prompt=True, **more)
        space = Namespace(salt=salt)
        names = wire_names(self.names.of(ids, space))
        prompt = Prompt(
            session, names, len(ids), namespace=salt or "", plain=wire_names(self.names.of(ids)), view=PromptView(messages, tools or ()), generation_tokens=8
        )  # fmt: skip
        (expected,) = self.tracker.expect(worker.url, prompt)
        more |= {"cache_salt": salt} if salt else {}
        usage = reported(worker.chat(messages, max_tokens=1, **more).json())
        outcome = self.tracker.settle(expected, usage.cached_tokens)
        index = self.tracker.index(worker.url)
        assert index is not None
        until(lambda: all(name in index for name in names), 2)
        return outcome

    def stage(self, what: str) -> Outcome:
        """One loss. A call warms, something happens, and the outcome is the next call's."""
        session = uuid.uuid4().hex
        system = {"role": "system", "content": "It is 09:15 on Monday. " + fresh(150)}
        first = [system, {"role": "user", "content": fresh(40)}]
        then = [*first, {"role": "assistant", "content": "Done."}, {"role": "user", "content": fresh(20)}]
        self.call(session, first, tools=TOOLS)
        if what == "worker_change":
            return self.call(session, then, at=1, tools=TOOLS)
        if what == "worker_restart":
            old = self.workers[0].url
            self.workers[0] = self.restart()
            assert self.workers[0].url == old
            assert until(lambda: self.readers[0].intake.restarts > 0 and self.readers[0].status.state == "fresh", 60), self.readers[
                0
            ].status
            self.readers[0].intake.restarts = 0
            self.tracker.restarted(old)
        if what == "eviction":
            index = self.tracker.index(self.workers[0].url)
            assert index is not None
            size = self.workers[0].block_size
            for _ in range(4 * self.blocks * size // 600):
                self.call(uuid.uuid4().hex, [{"role": "user", "content": fresh(300)}])
        if what == "tools changed":
            return self.call(session, then, tools=TOOLS[:-1] or None)
        if what == "clock":
            then = [{**system, "content": system["content"].replace("09:15 on Monday", "16:40 on Tuesday")}, *then[1:]]
        return self.call(session, then, tools=TOOLS, salt="tenant" if what == "salt" else None)


def named(outcome: Outcome) -> tuple[str | None, str | None, bool]:
    return outcome.cause, outcome.expected.divergence, outcome.expected.other_namespace > 0
