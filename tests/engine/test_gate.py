"""The gate on a real vLLM. If these fail, the claim the product stands on no longer holds: a decision would cost a second prefill."""

from __future__ import annotations

import httpx
import pytest

from tests.engine.rig import tiny_models
from warmgate.alignment.template import ChatTemplate
from warmgate.decision import Mounts
from warmgate.gate import Gate
from warmgate.questions import Choice, Noul
from warmgate.settings import Settings
from warmgate.turn import Turn

TOOLS = [
    {"type": "function", "function": {"name": n, "description": f"to {n} a file", "parameters": {"type": "object", "properties": {}}}}
    for n in ("read", "write", "run")
]
WORDS = "Read the file before you change it, say why you change it, and run the tests afterwards. "


class Three:
    """Three questions, every turn."""

    name, version = "three", "1"

    def questions(self, turn, mounted):
        return {
            "set": Choice(instructions="Which toolset does the next step need?", criteria={"files": "read and write", "shell": "run"}),
            "shell": Noul(instructions="Does the next step need a shell?"),
            "safe": Noul(instructions="Is the next step harmless?"),
        }

    def settle(self, turn, mounted, answers, *, widen):
        return Mounts(tools=("read", "write", "run"), strategy="freeze", changed=False, reason="frozen")


async def computed(client, url):
    """Prompt tokens the engine has computed so far."""
    text = (await client.get(f"{url}/metrics")).text
    rows = [line for line in text.splitlines() if line.startswith("vllm:prompt_tokens_by_source_total") and "local_compute" in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in rows)


@pytest.mark.parametrize("aligned", [True, False], ids=["aligned", "json"])
async def test_what_a_decision_leaves_the_agents_call(vllm_qwen3, aligned):
    """Aligned, the agent's call finds all but its last block; as JSON, the conversation is computed twice."""
    template = ChatTemplate.from_file(tiny_models.build("qwen3") / "chat_template.jinja") if aligned else None
    url, model = vllm_qwen3.url, "qwen3"
    settings = Settings(
        workers=[url], model=model, deadline_ms=60_000, label_mass_floor=0, engines=["systemone"], cache_salt=f"gate-{aligned}"
    )
    system = {"role": "system", "content": WORDS * 90}
    async with httpx.AsyncClient(timeout=120) as client, Gate(settings, mounts=Three(), template=template) as gate:
        messages = [system]
        for turn in range(3):
            messages = [*messages, {"role": "user", "content": f"Step {turn}: mend the parser. " * 8}]
            before = await computed(client, url)
            decision = await gate.decide(Turn("session", messages, TOOLS))
            assert [(r.state, r.outcome) for r in decision.reads] == [("aligned" if aligned else "json", "answered")]
            body = {"model": model, "messages": messages, "tools": TOOLS, "max_tokens": 4, "cache_salt": settings.cache_salt}
            reply = (await client.post(f"{url}/v1/chat/completions", json=body, headers=decision.headers)).json()
            usage = reply["usage"]
            prompt, cached = usage["prompt_tokens"], (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
            spent = await computed(client, url) - before
            if aligned:
                assert prompt - cached <= 32 + 8
                assert spent <= (prompt if turn == 0 else 400) + 3 * (60 + 32) + 40
            elif turn == 0:
                assert cached == 0
                assert spent >= 1.9 * prompt
            messages = [*messages, {"role": "assistant", "content": "Done."}]
