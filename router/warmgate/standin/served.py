"""What every route works with: the options, the model that is claimed, the engine, the answers."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from warmgate.alignment.template import ChatTemplate
from warmgate.standin.answers import Answers
from warmgate.standin.engine import Adapter, Engine, Output, Prompt, Run
from warmgate.standin.faults import Faults, Plan
from warmgate.standin.options import VERSIONS, Options, Version
from warmgate.standin.prompts import Prompts
from warmgate.standin.replies import refusal
from warmgate.standin.script import Script
from warmgate.standin.styles import STYLES
from warmgate.standin.text import Text


@dataclass(slots=True)
class Request:
    """One request as routes see it.

    Attributes:
        headers: By lower-case name; of a repeated one, the last.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    plan: Plan = field(default_factory=Plan)

    def id(self, default: str | None = None) -> str:
        """What names the request in the engine: ``X-Request-Id``, else the body's ``request_id``, else random."""
        return self.headers.get("x-request-id") or default or secrets.token_hex(8)


class Served:
    """One claimed model with its engine.

    Raises:
        OptionError, TemplateError, TokenizerError: An option, or a file it names, cannot be used.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.style = STYLES[options.style]
        self.text = Text(options.tokenizer)
        template = ChatTemplate.default() if options.chat_template is None else ChatTemplate.from_file(options.chat_template)
        self.engine = Engine(options.block_size, options.kv_tokens, options.hash_algorithm, options.hash_seed)
        limit = min(options.max_model_len, self.engine.capacity * options.block_size)
        self.prompts = Prompts(self.text, template, limit, options.models[0])
        self.answers = Answers(Script.of(options.script))
        self.faults = Faults(options.faults)
        self.adapters = {name: Adapter(name, index=number) for number, name in enumerate(options.loras, 1)}

    def since(self, version: Version) -> bool:
        """Whether the imitated release is this one or later."""
        return list(VERSIONS).index(self.options.version) >= list(VERSIONS).index(version)

    def adapter(self, model: str | None) -> Adapter | None:
        """The adapter a request's ``model`` names, or ``None`` for the model itself.

        Raises:
            Refused: 404, it is neither.
        """
        if not model or model in self.options.models:
            return None
        adapter = self.adapters.get(model)
        if adapter is None:
            known = ", ".join(self.options.models)
            raise refusal(f"The model `{model}` does not exist. Valid aliases: {known}.", 404, "NotFoundError", "model")
        return adapter

    @asynccontextmanager
    async def running(self, request: Request, prompts: Sequence[Prompt], outputs: Iterable[Output]) -> AsyncGenerator[list[Run]]:
        """The engine requests of one HTTP request, from admission to their end; a client that leaves aborts them."""
        runs = await self.engine.admit(prompts, list(outputs))
        try:
            await hold(request.plan)
            yield runs
            self.engine.finish(*runs)
        finally:
            self.engine.abort(*runs)


async def hold(plan: Plan) -> None:
    """Take as long as the plan says."""
    if math.isinf(plan.delay):
        await asyncio.get_running_loop().create_future()
    elif plan.delay:
        await asyncio.sleep(plan.delay)
