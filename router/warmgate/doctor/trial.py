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

from typing import Any

from warmgate.doctor.counters import around
from warmgate.doctor.findings import Sent
from warmgate.doctor.prompts import Material, material
from warmgate.doctor.styles import CLEF
from warmgate.doctor.visit import Visit, object_of
from warmgate.engines.http import Reply
from warmgate.engines.wire import usage_of
from warmgate.errors import EngineError

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
    if visit.style is CLEF:
        reuse.why_not = "a pooling model completes nothing, and its reads use no cache"
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
    reuse.shared, reuse.unit = head, "tokens" if stuff.exact else "words"
    await _send(visit, stuff.cut((0, total)))
    reuse.repeat = await _send(visit, stuff.cut((0, total)))
    found = reuse.repeat
    if found.cached == 0:  # a fault of some servers: reuse begins one prompt late
        found = reuse.again = await _send(visit, stuff.cut((0, total)))
    if not found.cached:
        return
    gap = found.tokens - found.cached
    if stuff.exact and found.tokens == total and gap > 0 and total % gap == 0:
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
