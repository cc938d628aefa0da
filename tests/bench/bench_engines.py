"""What an engine costs over raw httpx on the same bytes: CPU of this process alone, the server runs in another."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import psutil

from tests.bench.timing import Line, Lines
from warmgate.engines import AskRequest, Deadline, SystemOne
from warmgate.engines.systemone import encode_request
from warmgate.questions import Choice, Noul, Question, Score

QUESTIONS: dict[str, Question] = {
    "route": Choice(instructions="Which tool set next?", criteria={"files": "read and write files", "web": "the web", "none": None}),
    "shell": Noul(instructions="Does the next step need a shell?"),
    "risk": Score(instructions="How risky is it?", criteria=("none", "some", "high")),
}
REQUEST = AskRequest(questions=QUESTIONS, state="The user asked to list the files of the project. " * 40, model="m")
REPLY = (
    b'{"id":"decision-1","object":"structured_decision","created":1,"model":"m","answers":{"route":{"type":"choice","choice":"none",'
    b'"probabilities":{"files":0.0849846104096263,"web":0.3790615818690226,"none":0.5359538077213511},"confidence":0.2843877660376685},'
    b'"shell":{"type":"noul","noul":0.8421426563945005,"probabilities":{"yes":0.8421426563945005,"no":0.15785734360549952},"confidence":0.44},'
    b'"risk":{"type":"score","score":0.9704810184976016,"legend":{"0":"none","1":"some","2":"high"},"probabilities":{"0":0.3883416120679651,'
    b'"1":0.25283575736646796,"2":0.35882263056556685},"confidence":0.264564783897783}},"usage":{"input_tokens":178,"output_tokens":3},'
    b'"diagnostics":{"route":{"label_mass":0.53,"argmax_is_label":true},"shell":{"label_mass":0.52,"argmax_is_label":true},'
    b'"risk":{"label_mass":0.68,"argmax_is_label":true}}}'
)
SERVER = """
import asyncio, sys
BODY = bytes.fromhex(sys.argv[1])
REPLY = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(BODY) + BODY

class Server(asyncio.Protocol):
    def connection_made(self, transport): self.transport, self.data = transport, b""
    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\\r\\n\\r\\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\\r\\n")[0]) if at >= 0 else 0
            if len(self.data) < end + 4 + size: return
            self.data = self.data[end + 4 + size :]
            self.transport.write(REPLY)

async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
"""As little of a server as there can be: its speed must not hide the client's."""

MOST_MS_MORE = 0.3
LEAST_RATE = 0.8
LEAST_DECISIONS = 100_000
MOST_GROWTH_MB = 4.0

Call = Callable[[], Awaitable[object]]


def run() -> Lines:
    process = subprocess.Popen([sys.executable, "-c", SERVER, REPLY.hex()], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        with asyncio.Runner() as runner:  # a line is printed as it is found, not when all are
            lines = _run(url)
            while (line := runner.run(_next(lines))) is not None:
                yield line
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


async def _next(lines: AsyncIterator[Line]) -> Line | None:
    return await anext(lines, None)


async def _run(url: str) -> AsyncIterator[Line]:
    body = encode_request(REQUEST)
    headers = {"content-type": "application/json", "x-request-id": "a" * 32}
    limits = httpx.Limits(max_connections=256, max_keepalive_connections=256)
    async with httpx.AsyncClient(limits=limits) as client, SystemOne(url) as engine:

        async def raw() -> bytes:
            return (await client.post(f"{url}/v1/systemone", content=body, headers=headers)).content

        async def ours() -> object:
            return await engine.ask(REQUEST, deadline=Deadline(30))

        plain, asked = await _best(raw, ours, calls=400, side_by_side=1)
        more = (asked - plain) * 1000
        yield (
            f"one at a time: {asked * 1000:.3f} ms of CPU a decision, raw httpx {plain * 1000:.3f}: {more:+.3f} ms"
            f" (bound {MOST_MS_MORE} ms)",
            more <= MOST_MS_MORE,
        )
        plain, asked = await _best(raw, ours, calls=1280, side_by_side=64)
        rate = plain / asked
        yield (
            f"64 at once: {1 / asked:,.0f} decisions a second of CPU, raw httpx {1 / plain:,.0f}: {rate:.0%} of its rate"
            f" (bound {LEAST_RATE:.0%})",
            rate >= LEAST_RATE,
        )
        count = int(os.environ.get("WARMGATE_BENCH_DECISIONS", LEAST_DECISIONS))
        growth = await memory_growth(ours, count)
        yield (
            f"memory after {count:,} decisions: {growth:+.1f} MB since the first tenth (bound {MOST_GROWTH_MB:.0f} MB)",
            growth <= MOST_GROWTH_MB,
        )


async def _best(one: Call, other: Call, *, calls: int, side_by_side: int, times: int = 7) -> tuple[float, float]:
    """Seconds of CPU a call of each, best of ``times``, in turns so that a slow moment of the machine strikes both."""
    best = [float("inf"), float("inf")]
    for _ in range(times):
        for index, call in enumerate((one, other)):
            gc.collect()
            start = time.process_time()
            await _many(call, calls, side_by_side)
            best[index] = min(best[index], (time.process_time() - start) / calls)
    return best[0], best[1]


async def _many(call: Call, calls: int, side_by_side: int) -> None:
    async def some() -> None:
        for _ in range(calls // side_by_side):
            await call()

    await asyncio.gather(*(some() for _ in range(side_by_side)))


async def memory_growth(call: Call, count: int) -> float:
    """Resident memory in MB after ``count`` calls, less that after a tenth of them."""
    resident = psutil.Process().memory_info
    await _many(call, count // 10, 16)
    gc.collect()
    before = resident().rss
    await _many(call, count - count // 10, 16)
    gc.collect()
    return (resident().rss - before) / 1e6
