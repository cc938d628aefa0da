"""KV cache events over ZeroMQ, in the frames of vLLM 0.32 (``vllm/distributed/kv_events.py``).

A batch goes out as three frames: topic, sequence number (8 bytes, big-endian, from 0), msgpack of ``[ts, events, dp_rank]``. A second
socket (ROUTER) answers ``["", start number]`` with every remembered batch from that number on, then the number -1.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from warmgate.errors import OptionError

if TYPE_CHECKING:
    import zmq.asyncio

BATCHES_KEPT = 10_000
END = (-1).to_bytes(8, "big", signed=True)


class BlockStored(msgspec.Struct, omit_defaults=True, gc=False, tag=True, kw_only=True):
    """Blocks that became readable: their names, the name before the first, and the tokens they hold."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    session_id: str | None = None


class BlockRemoved(msgspec.Struct, omit_defaults=True, gc=False, tag=True, kw_only=True):
    """Blocks whose memory was taken for something else."""

    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """The whole prefix cache was dropped."""


class Batch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What one step of the engine did to the cache."""

    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class Publisher:
    """Sends batches and replays them on request.

    Args:
        host: Address to bind.
        port: Port of the PUB socket; the replay socket takes the next one. 0 lets the system choose both.
        topic: Topic of every batch.

    Raises:
        OptionError: A port is taken.
    """

    def __init__(self, host: str, port: int, topic: str = "") -> None:
        import zmq
        import zmq.asyncio

        self._topic = topic.encode()
        self._next = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=BATCHES_KEPT)
        self._encoder = msgspec.msgpack.Encoder()
        self._context = zmq.Context()
        self._pub: zmq.Socket[bytes] = self._context.socket(zmq.PUB)
        self._replay: zmq.asyncio.Socket = zmq.asyncio.Context(self._context).socket(zmq.ROUTER)
        self._pub.set_hwm(100_000)
        for socket in (self._pub, self._replay):
            socket.linger = 0
        at = f"tcp://[{host}]" if ":" in host else f"tcp://{host}"
        if ":" in host:
            self._pub.ipv6 = self._replay.ipv6 = True
        try:
            self._pub.bind(f"{at}:{port or '*'}")
            self._replay.bind(f"{at}:{port + 1 if port else '*'}")
        except zmq.ZMQError as fault:
            self._release()
            raise OptionError(f"cannot bind {at}:{port} for KV events ({fault})", mend="choose another --kv-events-port") from fault
        self.endpoint = _bound(self._pub.getsockopt(zmq.LAST_ENDPOINT))
        self.replay_endpoint = _bound(self._replay.getsockopt(zmq.LAST_ENDPOINT))
        self._task = asyncio.get_running_loop().create_task(self._answer_replays())

    def source(self) -> dict[str, Any]:
        """The publisher's settings, as ``GET /kv_event_sources`` shows them."""
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.endpoint,
            "replay_endpoint": self.replay_endpoint,
            "buffer_steps": BATCHES_KEPT,
            "hwm": 100_000,
            "max_queue_size": 100_000,
            "topic": self._topic.decode(),
        }

    def publish(self, events: list[BlockStored | BlockRemoved | AllBlocksCleared]) -> None:
        """Send one batch. A subscriber that cannot keep up loses batches, as with vLLM, and may ask for a replay."""
        payload = self._encoder.encode(Batch(time.time(), events, 0))
        number = self._next
        self._next += 1
        self._kept.append((number, payload))
        self._pub.send_multipart((self._topic, number.to_bytes(8, "big"), payload))

    async def close(self) -> None:
        """Close both sockets."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._release()

    def _release(self) -> None:
        self._pub.close(linger=0)
        self._replay.close(linger=0)
        self._context.term()

    async def _answer_replays(self) -> None:
        while True:
            frames = await self._replay.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != 8:
                continue
            client, start = frames[0], int.from_bytes(frames[2], "big")
            for number, payload in list(self._kept):
                if number >= start:
                    await self._reply(client, self._topic, number.to_bytes(8, "big"), payload)
            await self._reply(client, b"", END, b"")

    async def _reply(self, client: bytes, *frames: bytes) -> None:
        await self._replay.send_multipart([client, b"", *frames])  # pyright: ignore[reportUnknownMemberType] -- untyped in pyzmq


def _bound(endpoint: object) -> str:
    return endpoint.rstrip(b"\0").decode() if isinstance(endpoint, bytes) else str(endpoint)
