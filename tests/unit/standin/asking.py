"""Ask a stand-in's routes without a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Unpack

from warmgate.standin.app import App
from warmgate.standin.options import OptionArguments, Options
from warmgate.standin.replies import Reply
from warmgate.standin.served import Request, Served


class Asker:
    """One stand-in, asked directly."""

    def __init__(self, **options: Unpack[OptionArguments]) -> None:
        self.served = Served(Options(**options))
        self.app = App(self.served)

    async def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, *, raw: bytes | None = None
    ) -> Reply:
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        return await asyncio.wait_for(self.app(Request(method, path, sent, content)), 30)

    async def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        reply = await self.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return reply.status, read(reply)

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        reply = await self.request("GET", path, None, {name.replace("_", "-"): value for name, value in headers.items()})
        return reply.status, read(reply)

    async def decide(self, questions: dict[str, Any], state: Any = "x", **more: Any) -> tuple[int, Any]:
        return await self.post("/v1/systemone", {"state": state, "questions": questions, **more})


def read(reply: Reply) -> Any:
    """A reply's JSON, or its text."""
    content = reply.content()
    try:
        return json.loads(content)
    except ValueError:
        return content.decode()


def noul(text: str = "Is it red?", **more: Any) -> dict[str, Any]:
    return {"type": "noul", "instructions": text, **more}
