"""What the prefix cache really gives: whether reads use it, whether a shorter prefix hits, whether usage tells. See :mod:`.trial`."""

from __future__ import annotations

import time

from warmgate.doctor.check import Check, passed, skipped, warned
from warmgate.doctor.counters import around
from warmgate.doctor.decisions import ask
from warmgate.doctor.findings import Decision
from warmgate.doctor.prompts import words
from warmgate.doctor.styles import CLEF
from warmgate.doctor.trial import LONGEST, PATH, UNKNOWN_BLOCK
from warmgate.doctor.visit import Visit
from warmgate.questions import Noul

FINE = 32
"""The finest ``--prefix-match-unit`` worth naming: a CPU's block sizes are multiples of it."""
_NO_AFFINITY = "neither align states nor route by session for this model: ask it as a sidecar, spread over its workers"


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
        seen = f"{first.cached} tokens found at once, of a shared prefix of {reuse.shared} {reuse.unit} ({step}{first.basis})"
        return passed(name, seen, where=where)
    if visit.scattered:
        return skipped(
            name, f"0 tokens found of a shared prefix of {reuse.shared}, but requests may land on different workers here", where=where
        )
    later = second is not None and bool(second.cached)
    helped = planted is not None and bool(planted.cached)
    facts.shorter_prefix = "planted" if helped else "second" if later else "never"
    found = [f"of a prefix of {reuse.shared} {reuse.unit} the first prompt that shares it finds 0 tokens"]
    if second is not None:
        found.append(f"the second {second.cached or 0}")
    if planted is not None:
        found.append(f"one whose prefix was sent on its own before {planted.cached or 0}")
    kind = {True: "recurrent", False: "sliding-window", None: "recurrent or sliding-window"}[facts.recurrent] + " layers"
    return warned(name, f"{', '.join(found)} ({first.basis}): {kind} keep little of a prompt", mend=_flags(visit, helped), where=where)


def _flags(visit: Visit, helped: bool) -> str:
    facts = visit.facts
    block = facts.hit_granularity or facts.block_size
    parts: list[str] = []
    if helped:
        parts.append("let the gate plant the shared prefix by a one-token completion before it asks")
    if not facts.retention_interval:
        interval = f"--prefix-cache-retention-interval {facts.block_size or 'N (a multiple of the block size)'}"
        if facts.recurrent:
            parts.append(
                f"start vLLM with {interval}: it then keeps a state wherever a scheduler step ends, so only inside prompts longer than"
                " --max-num-batched-tokens (2048 on a CPU): lower that too"
            )
        else:
            parts.append(f"start vLLM with {interval}: it then keeps a window every so many tokens")
    elif facts.recurrent:
        parts.append(
            f"its retention interval of {facts.retention_interval} keeps states only where a scheduler step ends: prompts longer than"
            " --max-num-batched-tokens profit, or lower that"
        )
    if block is None or block > FINE:
        parts.append(f"--prefix-match-unit {FINE} lets hits land inside a long block")
    if facts.recurrent and facts.block_size_given is False and visit.reuse.again is not None:
        size = facts.block_size or "N"
        parts.append(f"on a CPU whose log says 'Setting attention block size to {size}', --block-size {size} cures missed first reuses")
    return "; or ".join(parts) or "see the server's log"


def _why_not(visit: Visit) -> str:
    reuse = visit.reuse
    if reuse.why_not:
        return reuse.why_not
    if reuse.again is not None and reuse.again.cached == 0:
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
    if facts.prefix_caching is False:
        return skipped(name, "the prefix cache is off", where=where)
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
