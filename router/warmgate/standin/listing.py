"""The routes that only tell: models, version, health, load, metrics, KV event sources."""

from __future__ import annotations

import time
from typing import Any

from warmgate.standin import metrics
from warmgate.standin.options import VERSIONS
from warmgate.standin.replies import Reply
from warmgate.standin.served import Request, Served

STARTED = int(time.time())


async def health(_served: Served, _request: Request) -> Reply:
    """Empty and 200 while the stand-in runs."""
    return Reply(content_type=None)


async def version(served: Served, _request: Request) -> Reply:
    """The imitated release."""
    return Reply(payload={"version": VERSIONS[served.options.version]})


async def models(served: Served, _request: Request) -> Reply:
    """Every name requests may carry. ``owned_by`` says who is really there."""
    base = [_card(name, None, served) for name in served.options.models]
    adapters = [_card(name, served.options.models[0], served) for name in served.adapters]
    return Reply(payload={"object": "list", "data": base + adapters})


async def load(served: Served, _request: Request) -> Reply:
    """Requests in flight."""
    return Reply(payload={"server_load": served.engine.counters.running + served.engine.counters.waiting})


async def show_metrics(served: Served, _request: Request) -> Reply:
    """The counters in Prometheus' text format."""
    engine = served.engine
    page = metrics.render(
        engine.counters,
        model=served.options.models[0],
        block_size=engine.block_size,
        blocks=engine.capacity,
        usage=engine.usage,
        max_model_len=served.prompts.max_model_len,
        algorithm=served.options.hash_algorithm,
    )
    return Reply(body=page.encode(), content_type=metrics.CONTENT_TYPE)


async def kv_event_sources(served: Served, _request: Request) -> Reply:
    """Where KV events come from, by data-parallel rank; an empty object where there are none."""
    publisher = served.engine.publisher
    return Reply(payload={} if publisher is None else {"0": publisher.source()})


def _card(name: str, parent: str | None, served: Served) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": STARTED,
        "owned_by": "standin",
        "root": name if parent is None else served.adapters[name].path,
        "parent": parent,
        "max_model_len": served.prompts.max_model_len if parent is None else None,
        "permission": [],
    }
