"""Run a real vLLM API server for the length of a `with` block.

    with VllmServer(ServerOptions(model="qwen3", num_gpu_blocks=40, max_model_len=1024)) as server:
        reply = server.post("/v1/systemone", {...})

Booting takes 25 to 50 s on two cores (three processes import torch one after another), so share servers between tests.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, Self

from tests.engine.rig import tiny_models
from tests.engine.rig.home import engine_home, engine_python

#: Seconds a boot may take before the server counts as failed. A loaded two-core machine needs up to 100.
BOOT_DEADLINE = 300.0

#: Seconds between SIGTERM and SIGKILL.
STOP_GRACE = 20.0

#: Random weights pad JSON with white space until they are cut; these arguments rule that out. Real models do not need them.
COMPACT_JSON = ("--structured-outputs-config", '{"backend":"xgrammar","disable_any_whitespace":true}')

_LOG_LINES = 40
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # Two servers and the tests share two cores: no thread pinning, one compute thread each.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # The sampler's one compiled function costs 20 s of C++ compiler at the first request and changes no result here.
    "TORCHDYNAMO_DISABLE": "1",
    "PYTHONWARNINGS": "ignore",
}


class EngineStartError(AssertionError):
    """A server did not come up. The message ends with the last lines of its log."""


@dataclass(frozen=True)
class ServerOptions:
    """How to start a server. Equal options may share one server."""

    model: str = "qwen3"
    """A name of `tiny_models.MODELS`, or the path of a model folder."""
    version: str = "0.32"
    """The release: "0.32", or "0.31" which has no decision endpoint."""
    block_size: int | None = None
    """Tokens in a cache block, a multiple of 32 on the CPU; None takes the model's entry in `BLOCK_SIZES`."""
    max_model_len: int = 16384
    num_gpu_blocks: int | None = None
    """Blocks in the cache, the null block included; None: as many as 1 GiB holds."""
    served_model_name: str | None = None
    prefix_caching: bool = True
    token_details: bool = True
    """Whether chat and completions report cached tokens."""
    tools: bool = True
    """Whether chat parses tool calls."""
    kv_events: bool = False
    """Whether to publish KV events, on `kv_events_endpoint` and `kv_replay_endpoint`."""
    api_key: str | None = None
    allowed_origins: tuple[str, ...] | None = None
    extra: tuple[str, ...] = ()
    """Further command-line arguments."""
    threads: int = 1
    """Compute threads."""


#: Block size per model where `ServerOptions` names none; see NOTES.md, section 3.
BLOCK_SIZES = {"qwen3": 32}

#: Models that come as a configuration alone.
_WEIGHTLESS = frozenset(name for name, model in tiny_models.MODELS.items() if not model.weights)


@dataclass(frozen=True)
class Reply:
    """One HTTP answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> Any:
        """Decode the body. Raises ValueError when it is not JSON."""
        return json.loads(self.body)


class VllmServer:
    """A vLLM process group and its address. Start and stop it with `with`."""

    def __init__(self, options: ServerOptions | None = None) -> None:
        self.options = options or ServerOptions()
        self.model = self.options.served_model_name or Path(self.options.model).name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.boot_seconds = 0.0
        self.log = engine_home() / "logs" / f"{self.model}-{self.port}.log"
        self.kv_events_endpoint: str | None = None
        self.kv_replay_endpoint: str | None = None
        if self.options.kv_events:
            self.kv_events_endpoint = f"tcp://127.0.0.1:{free_port()}"
            self.kv_replay_endpoint = f"tcp://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and return when it answers /health. Raises EngineStartError."""
        if self._process is not None:
            raise RuntimeError("this server is running already")
        python = engine_python(self.options.version)
        if not python.is_file():
            raise EngineStartError(f"vLLM {self.options.version} is not at {python}: `make test-engine` installs it")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("VLLM_", "PYTEST_"))}
        environment |= _ENVIRONMENT | {"OMP_NUM_THREADS": str(self.options.threads)}
        started = time.monotonic()
        with self.log.open("wb") as log:
            # A session of its own, so that one signal reaches every process vLLM starts, and a death wish, so that none of them
            # outlives a test run that was killed.
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - a prctl call, and no thread runs here while a test starts a server
            )
        atexit.register(self.stop)
        try:
            self._wait_until_healthy(started)
        except BaseException:
            self.stop()
            raise
        self.boot_seconds = time.monotonic() - started

    def stop(self) -> None:
        """End every process of this server. Does nothing when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self.stop)
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal_group(process.pid, number)
            deadline = time.monotonic() + STOP_GRACE
            while process.poll() is None or _signal_group(process.pid, 0):  # polling reaps the leader, else it counts as alive
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)
            else:
                return

    def command(self) -> list[str]:
        """The command line that starts this server."""
        o = self.options
        known = o.model in tiny_models.MODELS
        folder = tiny_models.build(o.model) if known else Path(o.model)
        flags = [
            *("--model", str(folder), "--served-model-name", self.model),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--dtype", "bfloat16", "--enforce-eager", "--max-model-len", str(o.max_model_len)),
            "--enable-prefix-caching" if o.prefix_caching else "--no-enable-prefix-caching",
        ]
        block_size = o.block_size or BLOCK_SIZES.get(o.model)
        if block_size:
            flags += ["--block-size", str(block_size)]
        if o.model in _WEIGHTLESS:
            flags += ["--load-format", "dummy", "--language-model-only"]
        if o.token_details:
            flags += ["--enable-prompt-tokens-details"]
        if o.tools:
            flags += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
        if o.num_gpu_blocks is not None:
            flags += ["--num-gpu-blocks-override", str(o.num_gpu_blocks)]
        if o.api_key is not None:
            flags += ["--api-key", o.api_key]
        if o.allowed_origins is not None:
            flags += ["--allowed-origins", json.dumps(o.allowed_origins)]
        if o.kv_events:
            # Only a wildcard makes vLLM bind its publisher; to a plain host it would connect and wait for the subscriber to bind.
            endpoints = {"endpoint": self.kv_events_endpoint, "replay_endpoint": self.kv_replay_endpoint}
            config: dict[str, object] = {"enable_kv_cache_events": True, "publisher": "zmq"}
            config |= {key: str(value).replace("127.0.0.1", "*") for key, value in endpoints.items()}
            flags += ["--kv-events-config", json.dumps(config)]
        return [str(engine_python(o.version)), "-m", "vllm.entrypoints.openai.api_server", *flags, *o.extra]

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        """GET a path."""
        return self.call("GET", path, headers=headers)

    def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Reply:
        """POST a JSON body, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("POST", path, data, {"content-type": "application/json", **(headers or {})})

    def call(
        self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None, timeout: float = 120.0
    ) -> Reply:
        """Send one request and return the answer, an error's too. The server's API key is added unless `headers` has one."""
        merged = {key.lower(): value for key, value in (headers or {}).items()}
        if self.options.api_key is not None:
            merged.setdefault("authorization", f"Bearer {self.options.api_key}")
        request = urllib.request.Request(self.url + path, data=data, headers=merged, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return Reply(answer.status, _lower(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, _lower(error.headers), error.read())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels. Raises KeyError when there is none."""
        found = [
            float(line.rsplit(" ", 1)[1])
            for line in self.get("/metrics").body.decode().splitlines()
            if line.startswith((name + "{", name + " ")) and all(f'{key}="{value}"' in line for key, value in labels.items())
        ]
        if not found:
            raise KeyError(name)
        return sum(found)

    def log_tail(self, lines: int = _LOG_LINES) -> str:
        """The last lines of the server's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _wait_until_healthy(self, started: float) -> None:
        assert self._process is not None
        while True:
            code = self._process.poll()
            if code is not None:
                raise EngineStartError(f"vLLM ended with {code} while starting {self.model}; the end of {self.log}:\n{self.log_tail()}")
            try:
                if self.call("GET", "/health", timeout=5.0).status == 200:
                    return
            except OSError:
                pass  # not listening yet
            if time.monotonic() - started > BOOT_DEADLINE:
                raise EngineStartError(f"vLLM did not answer within {BOOT_DEADLINE:.0f} s; the end of {self.log}:\n{self.log_tail()}")
            time.sleep(0.2)


def free_port() -> int:
    """A port nobody listened on a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_group(group: int, number: int) -> bool:
    """Signal a process group; False when nobody is left in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _lower(headers: Message) -> dict[str, str]:
    return {key.lower(): value for key, value in headers.items()}
