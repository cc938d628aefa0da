"""Transports over a scripted network. If these fail, an agent's call misses its prefix, or is made twice, or is lost."""

from __future__ import annotations

import asyncio
import errno

import httpx
import httpx2
import pytest

from warmgate.errors import BadRequest, DeadlineExceeded, MalformedAnswer, NotSupported, OptionError, Overloaded, ServerFault, Unreachable
from warmgate.workers import (
    AsyncStickyTransport,
    AsyncStickyTransport2,
    StickyTransport,
    StickyTransport2,
    WorkerPool,
    current_session,
    outcome_of,
    session,
)

A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
LIBRARIES = [(httpx, StickyTransport, AsyncStickyTransport), (httpx2, StickyTransport2, AsyncStickyTransport2)]


class Network:
    """What the workers do, by base URL; a fault's name is raised as the library raises it."""

    def __init__(self, library):
        self.library = library
        self.faults = {}
        self.seen = []

    def __call__(self, request):
        url = request.url
        base = f"{url.scheme}://{url.netloc.decode()}"
        self.seen.append(request)
        fault = self.faults.get(base)
        if isinstance(fault, OSError):
            raise self.library.ConnectError(str(fault)) from fault
        if isinstance(fault, int):
            return self.library.Response(fault, text=base)
        if fault:
            raise getattr(self.library, fault)("scripted")
        return self.library.Response(200, text=base)


@pytest.fixture(params=LIBRARIES, ids=["httpx", "httpx2"])
def library(request):
    return request.param


@pytest.fixture
def network(library):
    return Network(library[0])


@pytest.fixture(params=["sync", "async"])
def call(request, library, network):
    """``call(pool, …)``: a request through a client of either kind."""
    module, sync, asynchronous = library

    def through(pool, method="POST", url="http://session.invalid/v1/chat/completions", *, header="X-Session-ID", **arguments):
        if request.param == "sync":
            transport = sync(pool, session_header=header, inner=module.MockTransport(network))
            with module.Client(transport=transport) as client:
                return client.request(method, url, **arguments)

        async def run():
            transport = asynchronous(pool, session_header=header, inner=module.MockTransport(network))
            async with module.AsyncClient(transport=transport) as client:
                return await client.request(method, url, **arguments)

        return asyncio.run(run())

    return through


def dead(pool):
    """A pool whose looks at a worker find it dead if a call found it so (the real look is tested with real sockets)."""

    async def look(worker, path, timeout_s):
        return "refused" if worker in looked_dead else "alive"

    looked_dead = set()
    pool._prober.look = look
    return looked_dead


def home(pool, name):
    return pool.acquire_sync(name).worker


def test_a_call_goes_to_its_sessions_worker(call, network):
    pool = WorkerPool([A, B])
    for number in range(20):
        reply = call(pool, headers={"X-Session-ID": f"s{number}"}, json={"n": number})
        assert reply.text == home(pool, f"s{number}")
    assert {r.headers["host"] for r in network.seen} == {"10.0.0.1:8000", "10.0.0.2:8000"}


def test_only_scheme_host_and_port_change(call, network):
    pool = WorkerPool([A])
    call(
        pool,
        url="https://session.invalid:444/v1/x%2Fy?q=a%20b&r=1",
        headers={"X-Session-ID": "s", "Authorization": "Bearer k", "X-Other": "1"},
        content=b'{"a": 1}',
    )
    (request,) = network.seen
    assert str(request.url) == "http://10.0.0.1:8000/v1/x%2Fy?q=a%20b&r=1"
    assert request.headers["authorization"] == "Bearer k"
    assert request.headers["x-other"] == "1"
    assert request.headers["x-session-id"] == "s"
    assert request.read() == b'{"a": 1}'


def test_a_worker_behind_a_path(call, network):
    call(WorkerPool(["http://proxy:80/worker-1/v1"]), headers={"X-Session-ID": "s"}, url="http://x.invalid/v1/models?a=1", method="GET")
    assert str(network.seen[0].url) == "http://proxy/worker-1/v1/models?a=1"


def test_the_surrounding_block_names_the_session(call):
    """For clients that cannot set a header a call."""
    pool = WorkerPool([A, B])
    for number in range(10):
        with session(f"s{number}"):
            assert call(pool).text == home(pool, f"s{number}")
    assert current_session() is None


def test_the_header_is_stronger_than_the_block_and_can_be_renamed(call):
    pool = WorkerPool([A, B])
    here, there = next((a, b) for a in map(str, range(99)) for b in map(str, range(99)) if home(pool, a) != home(pool, b))
    with session(here):
        assert call(pool, header="X-Agent", headers={"x-agent": there}).text == home(pool, there)
        assert call(pool, header="X-Agent", headers={"X-Session-ID": there}).text == home(pool, here)


def test_calls_without_a_session_are_spread(call):
    """GET /v1/models and the like have no session and must work."""
    pool = WorkerPool([A, B])
    assert {call(pool, method="GET").text for _ in range(4)} == {A, B}
    assert len(pool._stores["workers"]) == 0


@pytest.mark.parametrize("fault", ["ConnectError", "ConnectTimeout", "ReadError", "WriteError", "RemoteProtocolError"])
def test_a_dead_workers_call_is_made_elsewhere_and_the_session_stays_there(call, network, fault):
    pool = WorkerPool([A, B])
    gone = home(pool, "s")
    other = B if gone == A else A
    dead(pool).add(gone)
    network.faults[gone] = fault
    assert call(pool, headers={"X-Session-ID": "s"}, json={}).text == other
    binding = pool.acquire_sync("s")
    assert (binding.worker, binding.moved_from, binding.reason, binding.moves) == (other, gone, "worker_lost", 1)
    assert pool.counts.total("retried_elsewhere") == 1
    network.faults.clear()
    assert call(pool, headers={"X-Session-ID": "s"}, json={}).text == other


@pytest.mark.parametrize("fault", ["ReadError", "RemoteProtocolError", "ReadTimeout", "WriteTimeout", "PoolTimeout"])
def test_a_living_workers_fault_is_the_callers(call, library, network, fault):
    """The worker may be computing: a second call elsewhere doubles the work and moves the session off its prefix."""
    pool = WorkerPool([A, B])
    where = home(pool, "s")
    dead(pool)
    network.faults[where] = fault
    with pytest.raises(getattr(library[0], fault)):
        call(pool, headers={"X-Session-ID": "s"}, json={})
    assert len(network.seen) == 1
    assert home(pool, "s") == where


def test_a_time_out_never_moves_a_call_even_if_the_worker_is_dead(call, library, network):
    pool = WorkerPool([A, B])
    where = home(pool, "s")
    dead(pool).add(where)
    network.faults[where] = "ReadTimeout"
    with pytest.raises(library[0].ReadTimeout):
        call(pool, headers={"X-Session-ID": "s"}, json={})
    assert len(network.seen) == 1


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_a_reply_is_a_reply(call, network, status):
    """Bytes of a response were seen: it is the caller's, whatever its status."""
    pool = WorkerPool([A, B])
    where = home(pool, "s")
    network.faults[where] = status
    assert call(pool, headers={"X-Session-ID": "s"}, json={}).status_code == status
    assert home(pool, "s") == where


def test_with_everybody_dead_the_last_fault_is_raised(call, library, network):
    """It must end, after each worker was tried once."""
    pool = WorkerPool([A, B])
    dead(pool).update({A, B})
    network.faults = {A: "ConnectError", B: "ConnectError"}
    with pytest.raises(library[0].ConnectError):
        call(pool, headers={"X-Session-ID": "s"}, json={})
    assert len(network.seen) == 2


def test_a_fault_of_this_machine_says_nothing_about_workers(call, library, network):
    """Out of file descriptors here: moving every session would be the answer to the wrong question."""
    pool = WorkerPool([A, B])
    dead(pool).update({A, B})
    network.faults = dict.fromkeys((A, B), OSError(errno.EMFILE, "too many open files"))
    with pytest.raises(library[0].ConnectError):
        call(pool, headers={"X-Session-ID": "s"}, json={})
    assert len(network.seen) == 1
    assert pool.counts.total("worker_lost") == 0


def test_a_body_that_can_be_read_once_is_not_sent_twice(library):
    """Half a generator's body on another worker would be another request."""
    module, sync, _ = library
    pool = WorkerPool([A, B])
    where = home(pool, "s")
    dead(pool).add(where)

    class Inner(module.BaseTransport):
        def handle_request(self, request):
            if str(request.url).startswith(where):
                if fault is module.ReadError:
                    next(iter(request.stream))
                raise fault("scripted")
            return module.Response(200, content=request.read())

    with module.Client(transport=sync(pool, inner=Inner())) as client:
        fault = module.ReadError
        with pytest.raises(module.ReadError):
            client.post("http://x.invalid/", headers={"X-Session-ID": "s"}, content=iter([b"a", b"b"]))
        fault = module.ConnectError  # nothing was read from the body yet
        assert client.post("http://x.invalid/", headers={"X-Session-ID": "s"}, content=iter([b"a", b"b"])).content == b"ab"


def test_a_gateways_header_is_added(call, network):
    pool = WorkerPool([A], gateway="smg")
    call(pool, headers={"X-Session-ID": "s"})
    with session("t"):
        call(pool)
    call(pool)
    assert [r.headers.get("x-smg-routing-key") for r in network.seen] == ["s", "t", None]


@pytest.mark.parametrize("name", ["", "X Session", "X:Y", "é"])
def test_a_header_that_cannot_be_is_refused(library, name):
    with pytest.raises(OptionError, match="name of a header"):
        library[1](WorkerPool([A]), session_header=name)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (DeadlineExceeded("x"), "timeout"),
        (Overloaded("x"), "overloaded"),
        (ServerFault("x"), "fault"),
        (MalformedAnswer("x"), "fault"),
        (BadRequest("x"), "ok"),
        (NotSupported("x"), "ok"),
        (Unreachable("x"), "reset"),
    ],
)
def test_what_an_engines_error_says_of_its_worker(error, outcome):
    """A gate reports what its engines met: a request's own fault must not lose a worker."""
    assert outcome_of(error) == outcome


def test_a_refused_connection_is_told_from_a_broken_one(library):
    for name, outcome in [("ConnectError", "refused"), ("ReadError", "reset")]:
        error = Unreachable("x")
        error.__cause__ = getattr(library[0], name)("scripted")
        assert outcome_of(error) == outcome


def test_the_pool_outlives_its_transports(call):
    pool = WorkerPool([A, B])
    call(pool, headers={"X-Session-ID": "s"})
    assert not pool.acquire_sync("s").fresh


async def test_idle_connections_are_given_up_before_vllm_closes_them(library):
    """A call sent over a connection that the worker is just closing is lost, and neither side can be blamed."""
    for inner in (library[1](WorkerPool([A]))._inner, await library[2](WorkerPool([A]))._own.get()):
        assert inner._pool._keepalive_expiry < 5
