"""What the prefix cache really gives: a prompt again, a shorter prefix of it, a prefix planted first.

The experiment, over ``/v1/completions`` with one token of output. ``g`` is the stated block size, P = 1½ g, every tail is new::

    P + long tail     cold
    P + long tail     repeat: does the cache work, and what are its hits a multiple of?
    P + short tail    first: with full attention ⌊P/g⌋·g; layers with recurrent state or a window keep it only at the first prompt's end
    P + short tail    second, if the first found nothing: some engines notice the shared prefix and keep it from then on
    Q, Q + short tail planted, likewise: a prefix sent alone leaves its state at its own end

The long tail passes the next block's boundary, and the windows of models that may have some, so that what the cold prompt keeps at
its end is of no use to the first. See ``tests/engine/rig/NOTES.md`` for vLLM's rules.
"""

from __future__ import annotations

import time
from typing import Any

from warmgate.doctor.check import Check, passed, skipped, warned
from warmgate.doctor.counters import around
from warmgate.doctor.decisions import ask
from warmgate.doctor.findings import Decision, Sent
from warmgate.doctor.prompts import Material, material, words
from warmgate.doctor.styles import CLEF
from warmgate.doctor.visit import Visit, object_of
from warmgate.engines.http import Reply
from warmgate.engines.wire import usage_of
from warmgate.errors import EngineError
from warmgate.questions import Noul

PATH = "/v1/completions"
UNKNOWN_BLOCK = 512
"""Block size assumed where the server states none; longer ones are told from it by finding nothing at all."""
WINDOW = 1088
"""Tokens a tail has at least where the model may have sliding windows: 1,024, the longest in wide use, and some."""
LONGEST = 16384
"""Longest prompt sent, in tokens."""
_SHORT = 8


async def experiment(visit: Visit) -> None:
    """Send the prompts and keep what they found in ``visit.reuse``."""
    reuse, facts = visit.reuse, visit.facts
    if facts.model is None:
        reuse.why_not = "needs a model"
        return
    if facts.prefix_caching is False:
        reuse.why_not = "the prefix cache is off"
        return
    block = facts.block_size or UNKNOWN_BLOCK
    head = block + block // 2
    tail = max(block + block // 2, _window(visit))
    total = -(-(head + tail) // block) * block
    if total > min(LONGEST, (facts.max_model_len or LONGEST) - 1):
        reuse.why_not = f"needs a prompt of {total:,} tokens, longer than the model or this probe allows"
        return
    for exact in (True, False):
        stuff = await material(visit, 2 * head + total + 4 * _SHORT, exact=exact)
        try:
            await _run(visit, stuff, head, total)
        except _Refused as refusal:
            reuse.why_not = str(refusal)
            if exact and stuff.exact:  # some gateways take text alone
                continue
        except EngineError as error:
            reuse.why_not = error.what
        return


def _window(visit: Visit) -> int:
    """Tokens a tail must have to pass every window."""
    if visit.facts.window:
        return visit.facts.window + (visit.facts.block_size or UNKNOWN_BLOCK)
    return WINDOW if visit.style is None or visit.style.windows else 0


async def _run(visit: Visit, stuff: Material, head: int, total: int) -> None:
    reuse = visit.reuse
    after = total

    def fresh() -> tuple[int, int]:
        nonlocal after
        after += _SHORT
        return after - _SHORT, after

    reuse.why_not = None
    await _send(visit, stuff.cut((0, total)))
    reuse.repeat = await _send(visit, stuff.cut((0, total)))
    reuse.shared = head
    if not reuse.repeat.cached:
        return
    gap = reuse.repeat.tokens - reuse.repeat.cached
    if stuff.exact and reuse.repeat.tokens == total and gap > 0 and total % gap == 0:
        visit.facts.hit_granularity = gap  # a prompt of whole blocks has all but its last one again
    reuse.first = await _send(visit, stuff.cut((0, head), fresh()))
    if reuse.first.cached == 0:
        reuse.second = await _send(visit, stuff.cut((0, head), fresh()))
        plant = (after + 2 * _SHORT, after + 2 * _SHORT + head)
        await _send(visit, stuff.cut(plant))
        reuse.planted = await _send(visit, stuff.cut(plant, fresh()))


class _Refused(Exception):
    """The server does not take such a prompt."""


async def _send(visit: Visit, prompt: list[int] | str) -> Sent:
    """One prompt, one token of output.

    Raises:
        _Refused: The server does not take it.
        EngineError: No reply.
    """
    body: dict[str, Any] = {"model": visit.facts.model, "prompt": prompt, "max_tokens": 1}

    async def work() -> Reply:
        return await visit.call("POST", PATH, body, patience=visit.deadline.remaining())

    reply, delta = await around(visit, work, lambda reply: usage_of(object_of(reply).get("usage")).input_tokens)
    if reply.status != 200:
        raise _Refused(f"{PATH} answers {reply.status}")
    data = object_of(reply)
    _note_release(visit, data.get("system_fingerprint"))
    usage = usage_of(data.get("usage"))
    if usage.input_tokens is None:
        raise _Refused(f"{PATH} counts no tokens")
    visit.reuse.details = usage.cached_tokens is not None
    if usage.cached_tokens is not None:
        return Sent(usage.input_tokens, usage.cached_tokens, "usage")
    counted = delta.hits if delta is not None and delta.queries else None
    return Sent(usage.input_tokens, counted, "counters")


def _note_release(visit: Visit, fingerprint: object) -> None:
    """The fingerprint of vLLM (``vllm-0.32.0-…``) tells the release through gateways that hide /version."""
    if visit.facts.version is None and isinstance(fingerprint, str) and fingerprint.startswith("vllm-"):
        visit.facts.version = fingerprint.split("-")[1][:40]


async def shorter_prefix(visit: Visit) -> Check:
    """Whether a prompt that shares a proper prefix of an earlier one finds it: what aligned decisions live on."""
    name, where = "shorter_prefix", visit.where("POST", PATH)
    reuse, facts = visit.reuse, visit.facts
    first, second, planted = reuse.first, reuse.second, reuse.planted
    if first is None or first.cached is None:
        return skipped(name, _why_not(visit), where=where)
    if first.cached:
        facts.shorter_prefix = "first"
        step = f"hits are multiples of {facts.hit_granularity}; " if facts.hit_granularity else ""
        return passed(name, f"{first.cached} of {reuse.shared} shared tokens found at once ({step}{first.basis})", where=where)
    later = second is not None and bool(second.cached)
    helped = planted is not None and bool(planted.cached)
    facts.shorter_prefix = "planted" if helped else "second" if later else "never"
    found = [f"0 of {reuse.shared} shared tokens found by the first prompt that shares them"]
    if second is not None:
        found.append(f"{second.cached or 0} by the second")
    if planted is not None:
        found.append(f"{planted.cached or 0} after the prefix was sent on its own")
    kind = "recurrent layers" if facts.recurrent else "recurrent or sliding-window layers"
    return warned(name, f"{', '.join(found)} ({first.basis}): {kind} keep little of a prompt", mend=_flags(visit, helped), where=where)


def _flags(visit: Visit, helped: bool) -> str:
    block = visit.facts.hit_granularity or visit.facts.block_size
    interval = f"--prefix-cache-retention-interval {block or 'N'}" + ("" if block else " (a multiple of the block size)")
    parts = [f"start vLLM with {interval}: it then keeps a state every so many tokens, for memory"]
    if block is None or block > 64:
        parts.append("--prefix-match-unit 32 lets hits land inside its long blocks")
    if helped:
        parts.append("or let the gate plant the shared prefix by a one-token completion before it asks")
    parts.append("on the CPU, if the log says 'Setting attention block size to N' with N ≠ 128, pass --block-size N")
    return "; ".join(parts)


def _why_not(visit: Visit) -> str:
    reuse = visit.reuse
    if reuse.why_not:
        return reuse.why_not
    if reuse.repeat is not None and reuse.repeat.cached == 0:
        return "not even the same prompt was found again; see prefix_caching"
    return "neither usage nor counters tell what was cached"


async def cached_tokens(visit: Visit) -> Check:
    """Whether ``usage`` says how many tokens were cached: the cheapest measure of survival."""
    name, where = "cached_tokens", visit.where("POST", PATH)
    reuse = visit.reuse
    visit.facts.cached_tokens_reported = reuse.details
    if reuse.details is None:
        return skipped(name, reuse.why_not or "no completion was made", where=where)
    if reuse.details:
        return passed(
            name, "usage.prompt_tokens_details.cached_tokens is there (not on /v1/systemone, which has none in 0.32)", where=where
        )
    return warned(
        name,
        "usage has no cached tokens: survival of each call can only be predicted",
        mend="start vLLM with --enable-prompt-tokens-details",
        where=where,
    )


async def reads_cached(visit: Visit) -> Check:
    """Whether decisions look into the prefix cache, and find themselves there when asked twice."""
    name, where = "reads_cached", visit.where("POST", "/v1/systemone")
    if visit.decision is None:
        return skipped(name, "needs an answer of the route", where=where)
    facts = visit.facts
    size = 2 * (facts.block_size or UNKNOWN_BLOCK)
    if size > min(LONGEST, facts.max_model_len or LONGEST) // 2:
        size = 16
    state = " ".join(words(size))
    question = Noul(instructions="Is a house mentioned?")

    async def work() -> Decision:
        return await ask(visit, state, {"q": question})

    begun = time.monotonic()
    once, looked = await around(visit, work, lambda made: made.answers.usage.input_tokens)
    took = time.monotonic() - begun
    if looked is None:
        facts.reads_use_cache = None if visit.style is None else visit.style.reads_cache
        if visit.style is CLEF:
            return warned(
                name,
                "no: reads of this style never use the prefix cache (by its source, not measured here)",
                mend=_NO_AFFINITY,
                where=where,
            )
        return skipped(name, "needs the counters of one worker with nothing else in flight", where=where)
    if looked.queries == 0:
        facts.reads_use_cache = False
        return warned(
            name,
            f"no: {once.answers.usage.input_tokens} tokens were read and none looked up in the cache (counters)",
            mend=_NO_AFFINITY,
            where=where,
        )
    facts.reads_use_cache = True
    _, again = await around(visit, work, lambda made: made.answers.usage.input_tokens)
    if again is None:
        return passed(name, f"yes: {looked.queries} tokens looked up (counters); others used the worker meanwhile", where=where)
    seen = f"yes: a decision asked twice found {again.hits} of {again.queries} tokens (counters; {took * 1000:.0f} ms cold)"
    if again.hits == 0:
        return warned(name, seen, mend="see prefix_caching", where=where)
    return passed(name, seen, where=where)


_NO_AFFINITY = "neither align states nor route by session for this model: ask it as a sidecar, spread over its workers"
