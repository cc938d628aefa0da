"""Listening to a worker's KV events: a thread of its own, which may lag or die without a decision noticing more than a doubt.

SUB socket for what happens, DEALER to the replay socket for what was missed (at the start, on a gap, after a reconnect). A process that
restarted is known by a batch that is another one than was heard under its number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from warmgate.errors import OptionError, one_line
from warmgate.foreign import mapping, text
from warmgate.prefix.intake import Intake

if TYPE_CHECKING:
    import zmq

HIGH_WATER = 20_000
"""Batches that wait for us at most; ZeroMQ drops what comes beyond, and the gap is replayed."""

REPLAY_S = 3.0
"""Seconds a replay may pause. vLLM serves it between two batches, at most every 0.1 s."""

LAG_S = 1.0
"""Seconds behind the worker from which on a reader counts as lagging."""

_TICK_MS = 100
_SETTLE_S = 0.3
"""After connecting, the subscription takes a moment to reach the publisher; what happened meanwhile is asked for once more."""


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where one rank publishes.

    Attributes:
        endpoint: Of the PUB socket, to connect to.
        replay: Of the replay socket, if there is one.
        topic: Prefix of the topics to hear.
        rank: Data-parallel rank.
    """

    endpoint: str
    replay: str | None = None
    topic: str = ""
    rank: int | None = None

    def of_rank(self, rank: int) -> EventSource:
        """The source of another rank of the same deployment: vLLM adds the rank to the port.

        Raises:
            OptionError: The endpoint has no port to add to.
        """
        return EventSource(_offset(self.endpoint, rank), _offset(self.replay, rank) if self.replay else None, self.topic, rank)


def sources_of(body: Any, worker: str) -> dict[int, EventSource]:
    """The sources that ``GET /kv_event_sources`` lists, by rank; empty where events are off or go elsewhere than ZeroMQ.

    Args:
        body: The decoded JSON.
        worker: Base URL of the worker: a wildcard endpoint is at its host.
    """
    host = urlsplit(worker).hostname or "127.0.0.1"
    found: dict[int, EventSource] = {}
    for rank, value in mapping(body).items():
        config = mapping(value)
        endpoint = text(config.get("endpoint"))
        if not endpoint or config.get("publisher") != "zmq" or config.get("enable_kv_cache_events") is False or not str(rank).isdigit():
            continue
        replay = text(config.get("replay_endpoint"))
        found[int(rank)] = EventSource(
            _reachable(endpoint, host), _reachable(replay, host) if replay else None, text(config.get("topic")) or "", int(rank)
        )
    return found


@dataclass(frozen=True, slots=True)
class Status:
    """How much a worker's events can be relied on now.

    Attributes:
        state: ``fresh``: all that happened is in the index. ``lagging``: something is missing or late. ``gone``: nothing comes.
        since: Since when, seconds of ``time.time()``.
        why: One clause for people; empty when fresh.
        lag_s: How far the last batch was behind when it was applied.
    """

    state: Literal["fresh", "lagging", "gone"]
    since: float
    why: str = ""
    lag_s: float = 0.0


class EventReader:
    """Keeps one index up to date from one source, on a daemon thread.

    Args:
        source: Where to listen.
        intake: What applies the batches.
    """

    def __init__(self, source: EventSource, intake: Intake) -> None:
        self.source = source
        self.intake = intake
        self.replays = 0
        self._status = Status("gone", time.time(), "not started")
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._connected = False
        self._skew: float | None = None

    @property
    def status(self) -> Status:
        """How far its index can be relied on. Never waits."""
        thread = self._thread
        if thread is not None and not thread.is_alive() and self._status.state != "gone":
            self._say("gone", "the reader died")
        return self._status

    def start(self) -> None:
        """Begin to listen; returns at once. Starting twice does nothing.

        Raises:
            OptionError: The endpoint is none.
        """
        if self._thread is not None:
            return
        import zmq

        with zmq.Context() as probe, probe.socket(zmq.SUB) as socket:
            for endpoint in filter(None, (self.source.endpoint, self.source.replay)):
                try:
                    socket.connect(endpoint)
                except zmq.ZMQError as fault:
                    raise OptionError(f"is no endpoint to connect to ({fault})", where=one_line(endpoint, 100)) from None
        self._say("gone", "not connected yet")
        self._thread = threading.Thread(target=self._run, name="warmgate-kv-events", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop listening."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._say("gone", "closed")

    def _say(self, state: Literal["fresh", "lagging", "gone"], why: str = "", lag_s: float = 0.0) -> None:
        old = self._status
        since = old.since if old.state == state else time.time()
        if old.state != state or old.why != why or old.lag_s != lag_s:
            self._status = Status(state, since, why, lag_s)
        if state == "gone":
            self.intake.index.trust(f"its events are gone: {why}")
        elif old.state == "gone":
            self.intake.index.trust(self.intake.missing)

    def _run(self) -> None:
        import zmq

        context = zmq.Context()
        try:
            self._listen(context)
        except Exception as fault:  # noqa: BLE001 -- whatever happens here, decisions go on; the status says why figures are doubtful
            self._say("gone", f"the reader failed ({one_line(f'{type(fault).__name__}: {fault}', 120)})")
        finally:
            context.destroy(linger=0)

    def _listen(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        import zmq

        sub = context.socket(zmq.SUB)
        sub.set_hwm(HIGH_WATER)
        sub.setsockopt(zmq.HEARTBEAT_IVL, 2000)  # a host that vanished without a word is noticed
        sub.setsockopt(zmq.HEARTBEAT_TIMEOUT, 6000)
        sub.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        if self.source.endpoint.startswith("tcp://["):
            sub.ipv6 = True
        monitor = sub.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            sub.setsockopt(zmq.SUBSCRIBE, self.source.topic.encode())
            sub.connect(self.source.endpoint)
            self._follow(context, sub, monitor)
        finally:
            sub.disable_monitor()
            monitor.close(linger=0)
            sub.close(linger=0)

    def _follow(self, context: zmq.Context[zmq.Socket[bytes]], sub: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
        import zmq
        from zmq.utils.monitor import recv_monitor_message

        poller = zmq.Poller()
        poller.register(sub, zmq.POLLIN)
        poller.register(monitor, zmq.POLLIN)
        again: float | None = None
        while not self._stop.is_set():
            ready = dict(poller.poll(_TICK_MS))
            if monitor in ready:
                event = recv_monitor_message(monitor)["event"]
                self._connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                if self._connected:
                    self._resync(context)
                    again = time.monotonic() + _SETTLE_S
                else:
                    self._say("gone", "the connection broke")
                continue
            if again is not None and time.monotonic() >= again and self._connected:
                again = None
                self._resync(context)
            if sub in ready:
                self._drain(context, sub)
            elif self._connected:
                self._settled()

    def _drain(self, context: zmq.Context[zmq.Socket[bytes]], sub: zmq.Socket[bytes]) -> None:
        """Take what waits, at most a second of it, so that a broken connection is noticed in between."""
        import zmq

        until = time.monotonic() + 1.0
        while time.monotonic() < until and not self._stop.is_set():
            try:
                frames = sub.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            number = _number(frames)
            if number is None:
                self.intake.malformed += 1
                continue
            took = self.intake.take(number, frames[-1])
            if took in ("gap", "restart"):
                self._fill(context, number, frames[-1])
            self._lag()

    def _fill(self, context: zmq.Context[zmq.Socket[bytes]], number: int, payload: bytes) -> None:
        """Fetch what lies before a batch, then take it."""
        self._resync(context)
        intake = self.intake
        if intake.expected is None or number > intake.expected:
            if intake.expected is None:
                intake.expected = 0
            intake.skip(number)
        intake.take(number, payload)

    def _resync(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """Ask for everything from the last batch heard on: it shows whether the same process still sends."""
        intake = self.intake
        if self.source.replay is None:
            return
        start = max((intake.expected or 0) - 1, 0)
        batches = self._replay(context, start)
        if batches is None:
            return
        heard = intake.expected is not None and intake.expected > 0
        if heard and (not batches or batches[0][0] > start or not intake.fits(*batches[0])):
            # Another process, or a buffer that has moved on. Only a whole replay tells.
            whole = batches if start == 0 else self._replay(context, 0)
            if whole is None:
                return
            if not whole or whole[0][0] == 0 or whole[-1][0] < start or not all(intake.fits(*batch) for batch in whole):
                intake.begin_anew()
                batches = whole
        if not batches:
            intake.nothing_yet()
        for number, payload in batches:
            took = intake.take(number, payload)
            if took in ("gap", "restart"):
                if intake.expected is None:
                    intake.expected = 0
                intake.skip(number)
                intake.take(number, payload)

    def _replay(self, context: zmq.Context[zmq.Socket[bytes]], start: int) -> list[tuple[int, bytes]] | None:
        """The batches the worker remembers from a number on, or ``None`` where it does not say."""
        import zmq

        assert self.source.replay is not None
        self.replays += 1
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.set_hwm(0)  # what a worker remembers is bounded there (10,000 batches)
        if self.source.replay.startswith("tcp://["):
            socket.ipv6 = True
        found: list[tuple[int, bytes]] = []
        try:
            socket.connect(self.source.replay)
            socket.send_multipart([b"", start.to_bytes(8, "big")])
            while not self._stop.is_set():
                if not socket.poll(int(REPLAY_S * 1000)):
                    return None
                frames = socket.recv_multipart()
                number = _number(frames)
                if number is None:
                    return None
                if number == _END:
                    return found
                found.append((number, frames[-1]))
            return None
        finally:
            socket.close(linger=0)

    def _lag(self) -> None:
        ts = self.intake.last_ts
        if ts is None:
            return
        behind = time.time() - ts
        # Clocks of two hosts differ; the smallest difference ever seen is taken for that.
        self._skew = behind if self._skew is None else min(self._skew, behind)
        lag = behind - self._skew
        if lag > LAG_S:
            self._say("lagging", "it is behind the worker", round(lag, 3))
        else:
            self._settled(round(lag, 3))

    def _settled(self, lag_s: float = 0.0) -> None:
        missing = self.intake.missing
        self._say("fresh" if missing is None else "lagging", missing or "", lag_s)


_END = (1 << 64) - 1


def _number(frames: list[bytes]) -> int | None:
    """A batch's number; :data:`_END` ends a replay."""
    return int.from_bytes(frames[-2], "big") if len(frames) >= 2 and len(frames[-2]) == 8 else None


def _reachable(endpoint: str, host: str) -> str:
    """A publisher's endpoint as a subscriber reaches it: a wildcard is the worker's host."""
    scheme, _, rest = endpoint.partition("://")
    address, colon, port = rest.rpartition(":")
    if scheme != "tcp" or address not in ("*", "0.0.0.0", "[::]", "::"):  # noqa: S104 -- compared, not bound
        return endpoint
    return f"tcp://{f'[{host}]' if ':' in host else host}{colon}{port}"


def _offset(endpoint: str, rank: int) -> str:
    if not rank:
        return endpoint
    if endpoint.startswith("inproc://"):
        return f"{endpoint}_dp{rank}"
    head, colon, port = endpoint.rpartition(":")
    if not endpoint.startswith("tcp://") or not port.isdigit():
        raise OptionError("has no port to add a rank to", where=one_line(endpoint, 100))
    return f"{head}{colon}{int(port) + rank}"


def listen(sources: Mapping[int, EventSource], intakes: Mapping[int, Intake]) -> list[EventReader]:
    """Start a reader for every rank that has both a source and an intake."""
    readers = [EventReader(source, intakes[rank]) for rank, source in sources.items() if rank in intakes]
    for reader in readers:
        reader.start()
    return readers
