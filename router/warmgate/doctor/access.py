"""Who may use the endpoint: is an API key asked for, and does it close what it should?"""

from __future__ import annotations

from warmgate.doctor.check import Check, failed, passed, skipped, warned
from warmgate.doctor.reachability import is_loopback, listens_beyond_loopback
from warmgate.doctor.visit import Visit

_DENIED = (401, 403)
_UNGUARDED = "/invocations"
"""A route with the powers of /v1 that vLLM's ``--api-key`` does not close (0.32: its middleware guards /v1, /v2, /inference, /cohere)."""


async def api_key(visit: Visit) -> Check:
    """``GET /v1/models`` without a key, and with the one that was given."""
    name, where = "api_key", visit.where("GET", "/v1/models")
    given = visit.options.api_key is not None
    bare = await visit.get("/v1/models", bare=True)
    demanded = bare.status in _DENIED
    visit.facts.key_demanded = demanded
    if not demanded:
        if bare.status != 200:
            return skipped(name, f"/v1/models answers {bare.status}: cannot tell", where=where)
        return await _open(visit, given)
    if not given:
        return failed(
            name, f"{bare.status}: a key is demanded and none was given", mend="name the key's variable with --api-key-env", where=where
        )
    keyed = await visit.get("/v1/models")
    if keyed.status in _DENIED:
        return failed(
            name,
            f"{keyed.status}: the key in the variable is not accepted",
            mend="check the variable's value, without quotes or spaces",
            where=where,
        )
    seen = "demanded, and the given one is accepted"
    if visit.facts.server == "vllm" and (await visit.get(_UNGUARDED, bare=True)).status == 405:  # the route is there and takes POST
        beyond = not is_loopback(visit.addresses)
        seen += f"; but {_UNGUARDED}, which can do what /v1 can, answers without it (vLLM's key closes /v1 alone)"
        if beyond:
            return warned(name, seen, mend="let a gateway or firewall pass /v1, /health and /metrics only", where=where)
    return passed(name, seen, where=where)


async def _open(visit: Visit, given: bool) -> Check:
    name, where = "api_key", visit.where("GET", "/v1/models")
    seen = "open: no key is asked for" + (", the given one is not looked at" if given else "")
    mend = "start vLLM with --api-key (or VLLM_API_KEY), and bind it with --host to where callers are"
    if not is_loopback(visit.addresses):
        return warned(name, f"{seen}, on an address other machines can reach", mend=mend, where=where)
    beyond = await listens_beyond_loopback(visit.port, visit.deadline)
    if beyond is not None:
        return warned(name, f"{seen}, and port {visit.port} is open on {beyond} too, not only on loopback", mend=mend, where=where)
    return passed(name, f"{seen}, on loopback only", where=where)
