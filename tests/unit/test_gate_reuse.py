"""If these fail, the gate measures workers too often, for too long, or believes what was true before a restart."""

from __future__ import annotations

import asyncio

from warmgate.errors import Unreachable
from warmgate.workers.reuse import MISSES, RETRY_S, UNKNOWN, Finding, Findings

FIRST = Finding("first", "found at once")
PLANTED = Finding("planted", "only planted", "--prefix-match-unit 32")


class Lab:
    """Measures as told, and counts."""

    def __init__(self, result=FIRST):
        self.now = 0.0
        self.result = result
        self.asked = 0
        self.go = asyncio.Event()
        self.go.set()
        self.findings = Findings(self, ttl_s=100, clock=lambda: self.now)

    async def __call__(self, worker, model, headers):
        self.asked += 1
        await self.go.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def of(self, restarts=0, wait_s=5.0):
        return await self.findings.of("http://w", "m", {}, restarts=restarts, wait_s=wait_s)


async def test_a_worker_is_measured_once_while_its_finding_holds():
    """Every decision would send six prompts more."""
    lab = Lab()
    assert [await lab.of() for _ in range(5)] == [FIRST] * 5
    assert lab.asked == 1


async def test_many_decisions_at_once_measure_once():
    """A burst would measure the worker as often as it has sessions."""
    lab = Lab()
    lab.go.clear()
    asked = [asyncio.create_task(lab.of(wait_s=0.01)) for _ in range(20)]
    assert await asyncio.gather(*asked) == [UNKNOWN] * 20
    lab.go.set()
    await asyncio.sleep(0.01)
    assert await lab.of() == FIRST
    assert lab.asked == 1


async def test_a_decision_does_not_wait_longer_than_it_may():
    """A slow worker's measuring would eat the deadline."""
    lab = Lab()
    lab.go.clear()
    assert await lab.of(wait_s=0.0) == UNKNOWN
    await lab.findings.aclose()
    assert not [t for t in asyncio.all_tasks() if t.get_name() == "warmgate-probe"]


async def test_an_old_finding_holds_until_it_is_replaced_and_one_from_before_a_restart_does_not():
    """A restart with another flag would go unseen, or every expiry cost a decision its alignment."""
    lab = Lab()
    await lab.of()
    lab.now, lab.result = 101, PLANTED
    assert await lab.of() == FIRST
    await asyncio.sleep(0.01)
    assert await lab.of() == PLANTED
    lab.result = FIRST
    assert await lab.of(restarts=1) == FIRST
    assert lab.asked == 3


async def test_a_failed_measurement_is_unknown_and_tried_again_later():
    """One dropped connection would end alignment on a worker for half an hour, or hammer it."""
    lab = Lab(Unreachable("no reply", where="http://w"))
    found = await lab.of()
    assert found.hits == "unknown"
    assert "no reply" in found.why
    assert (await lab.of()).hits == "unknown"
    assert lab.asked == 1
    lab.now, lab.result = RETRY_S + 1, FIRST
    await lab.of()
    await asyncio.sleep(0.01)
    assert await lab.of() == FIRST


async def test_planting_that_finds_nothing_again_and_again_is_given_up():
    """Each turn would cost a request more and save nothing."""
    lab = Lab(PLANTED)
    await lab.of()
    assert lab.findings.missed("http://w", "m") is None
    lab.findings.found("http://w", "m")
    missed = [lab.findings.missed("http://w", "m") for _ in range(MISSES)]
    assert missed[:-1] == [None] * (MISSES - 1)
    assert missed[-1].hits == "never"
    assert "--prefix-match-unit" in missed[-1].mend
    assert not (await lab.of()).pays
