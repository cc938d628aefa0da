"""The stand-in beside a real vLLM with the same tokenizer, template and block size: the same token counts, to the token, call by call.

Usage, cached tokens and counters are what the ledger, doctor and replay are tested on. Here they are compared on a random conversation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import zmq

from tests.engine.rig import tiny_models
from tests.engine.rig.server import VllmServer
from tests.unit.standin.test_metrics import NOT_SERVED
from tests.wire.raw import CHOICE, NOUL, SCORE, TOOLS, Worker, fresh
from warmgate.doctor.exposition import Metrics
from warmgate.standin import StandIn

WATCHED = (
    "prefix_cache_queries",
    "prefix_cache_hits",
    "prompt_tokens",
    "prompt_tokens_cached",
    "prompt_tokens_by_source.local_compute",
    "prompt_tokens_by_source.local_cache_hit",
)

FIELDS = ("type", "block_hashes", "parent_block_hash", "token_ids", "medium")


@pytest.fixture(scope="module")
def pair(vllm_qwen3: VllmServer) -> Iterator[tuple[Worker, Worker]]:
    folder = tiny_models.build("qwen3")
    block, length = vllm_qwen3.options.block_size or 32, vllm_qwen3.options.max_model_len
    real = Worker(vllm_qwen3.url, vllm_qwen3.model, block, length)
    with StandIn(
        model=real.model,
        block_size=block,
        max_model_len=length,
        tokenizer=folder / "tokenizer.json",
        chat_template=folder / "chat_template.jinja",
    ) as standin:
        yield real, Worker(standin.url, real.model, block, length)


def both(pair: tuple[Worker, Worker], path: str, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same request to both, and that both counted the same."""
    replies, moves = [], []
    for worker in pair:
        with worker.counted() as moved:
            reply = worker.post(path, body)
        assert reply.status_code == 200, reply.text
        replies.append(reply.json())
        moves.append({name: moved[name] for name in WATCHED})
    assert moves[0] == moves[1], body
    return replies[0], replies[1]


@pytest.mark.parametrize("seed", range(3))
def test_a_conversation_with_decisions(pair: tuple[Worker, Worker], seed: int):
    """Survival and tax computed on the stand-in would not hold on a real worker."""
    dice = random.Random(seed)
    questions = {"route": CHOICE, "red": NOUL, "risk": SCORE}
    messages: list[dict[str, Any]] = [{"role": "system", "content": fresh(dice.randrange(30, 300))}]
    salt = {"cache_salt": f"s{seed}"} if dice.random() < 0.5 else {}
    for turn in range(4):
        messages.append({"role": "user", "content": fresh(dice.randrange(5, 200))})
        tools = {"tools": TOOLS} if dice.random() < 0.7 else {}
        asked = dict(dice.sample(sorted(questions.items()), dice.randrange(1, 4)))
        state: Any = messages if dice.random() < 0.3 else messages[-1]["content"]
        real, standin = both(pair, "/v1/systemone", {"state": state, "questions": asked, "instructions": messages[0]["content"], **salt})
        assert real["usage"] == standin["usage"]
        # One token, so that what the model says does not tell the two caches apart.
        chat = {"messages": messages, "temperature": 0, "max_tokens": 1, **tools, **salt}
        real, standin = both(pair, "/v1/chat/completions", chat)
        assert real["usage"] == standin["usage"]
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read_file", "arguments": f'{{"path": "{turn}.txt"}}'}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": fresh(dice.randrange(5, 100))})
        real, standin = both(pair, "/v1/chat/completions", {**chat, "messages": messages})
        assert real["usage"] == standin["usage"]
        messages.append({"role": "assistant", "content": "Done.", "reasoning": "I have read it."})


def test_token_ids_and_templates(pair: tuple[Worker, Worker]):
    """Prompts would be assembled differently, and every count with them."""
    real, standin = pair
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "id": "1", "function": {"name": "f", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "1", "content": "x"},
        {"role": "assistant", "content": "ok", "reasoning_content": "because"},
        {"role": "user", "content": "and <|im_end|> now\n\n\n 12 naïve"},
    ]
    for more in ({}, {"tools": TOOLS}, {"add_generation_prompt": False}, {"chat_template_kwargs": {"enable_thinking": False}}):
        assert real.tokens(messages=conversation, **more) == standin.tokens(messages=conversation, **more)
    old_name = {"role": "assistant", "content": "ok", "reasoning_content": "because"}
    new_name = {"role": "assistant", "content": "ok", "reasoning": "because"}
    user = {"role": "user", "content": "why?"}
    assert standin.tokens(messages=[user, old_name]) == real.tokens(messages=[user, old_name])  # /tokenize overlooks the old name
    assert standin.tokens(messages=[user, new_name]) == real.tokens(messages=[user, new_name])
    for reasoned in (old_name, new_name):
        both(pair, "/v1/chat/completions", {"messages": [user, reasoned], "max_tokens": 1, "temperature": 0})  # chat does not
    final = {"add_generation_prompt": False, "continue_final_message": True}
    assert real.tokens(messages=conversation[:5], **final) == standin.tokens(messages=conversation[:5], **final)
    text = fresh(500) + '{"a": "\\u00e9", "b": [1, 2]}\n\tif x:\r\n  '
    assert real.tokens(prompt=text) == standin.tokens(prompt=text)


def test_exact_multiples_of_the_block(pair: tuple[Worker, Worker]):
    """The last block of a prompt that fills it is computed again, and exists twice."""
    real, _ = pair
    ids = real.tokens(prompt=fresh(900))
    for length in (real.block_size, 4 * real.block_size, 4 * real.block_size + 1, 5 * real.block_size - 1):
        for _ in range(3):
            told = both(pair, "/v1/completions", {"prompt": ids[:length], "max_tokens": 1, "temperature": 0})
            assert told[0]["usage"] == told[1]["usage"]


def test_metrics_have_the_same_series_and_labels(pair: tuple[Worker, Worker]):
    """A query that works on a laptop would find nothing in production."""

    def labels(worker: Worker) -> dict[str, set[tuple[str, ...]]]:
        page = Metrics(worker.get("/metrics").text)
        return {name: {tuple(sorted(sample.labels)) for sample in page.of(name)} for name in page.names if name.startswith("vllm:")}

    real, standin = map(labels, pair)
    assert {name: real.get(name) for name in standin} == standin
    histograms = ("_bucket", "_sum", "_count", "_created")
    assert {name for name in real.keys() - standin.keys() if not name.endswith(histograms)} <= NOT_SERVED
    assert "mamba_cache_mode" in next(iter(standin["vllm:cache_config_info"]))


def events(worker: Worker) -> list[tuple[Any, ...]]:
    """Everything a worker has announced, from its replay socket: what happened, to which blocks, after which one, with which tokens."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVTIMEO, 20_000)
    socket.linger = 0
    found: list[tuple[Any, ...]] = []
    try:
        socket.connect(worker.replay or "")
        socket.send_multipart([b"", (0).to_bytes(8, "big")])
        while True:
            *_, number, payload = socket.recv_multipart()
            if int.from_bytes(number, "big", signed=True) == -1:
                return found
            found += [tuple(event.get(key) for key in FIELDS) for event in msgspec.msgpack.decode(payload)[1]]
    finally:
        socket.close()
        context.term()


@pytest.mark.engine_all
def test_events_of_a_small_cache(vllm_server: Callable[..., VllmServer]):
    """A router would count copies of blocks that are gone, or miss some that are there: stored, evicted and duplicate blocks, one by one."""
    server = vllm_server(kv_events=True, num_gpu_blocks=24, max_model_len=512)
    folder = tiny_models.build("qwen3")
    options: dict[str, Any] = {"tokenizer": folder / "tokenizer.json", "chat_template": folder / "chat_template.jinja"}
    dice = random.Random(5)
    with StandIn(model=server.model, block_size=32, max_model_len=512, kv_tokens=23 * 32, kv_events_port=0, **options) as standin:
        publisher = standin.served.engine.publisher
        assert publisher is not None
        real = Worker(server.url, server.model, 32, 512, server.kv_events_endpoint, server.kv_replay_endpoint)
        ours = Worker(standin.url, server.model, 32, 512, publisher.endpoint, publisher.replay_endpoint)
        ids = real.tokens(prompt=fresh(2000))
        heads = [ids[start : start + 200] for start in range(0, 800, 200)]
        for _ in range(60):
            head, length = dice.choice(heads), dice.choice((64, 96, 128, 170, 192))
            tail = ids[1000 : 1000 + dice.choice((0, 0, 32, 50))]
            both((real, ours), "/v1/completions", {"prompt": head[:length] + tail, "max_tokens": 1, "temperature": 0})
        told, said = events(real), events(ours)
    assert sum(event[0] == "BlockRemoved" for event in told) > 50
    assert said == told
