"""Everything an operator can set: in code, as ``WARMGATE_*`` in the environment, or in ``warmgate.toml``; later ones give way."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from warmgate.errors import OptionError, one_line
from warmgate.foreign import mapping, text

EngineName = Literal["systemone", "decisions", "prefix_read", "round_trip"]
Mode = Literal["enforce", "shadow"]

FILE = "warmgate.toml"

HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
"""Names of headers (RFC 9110, 5.1)."""


class Settings(BaseSettings):
    """Settings of a gate.

    Attributes:
        workers: Base URLs of the workers that serve the agent's model, one API server each.
        model: Name under which they serve it.
        gate_workers: Workers of a small decision model of its own; empty: the agent's model answers (``shared``).
        gate_model: Name of that model.
        engines: Engines in the order they are tried.
        dialect: Dialect of ``systemone`` on the workers.
        round_trip_url: OpenAI-compatible server of the last resort; without it ``round_trip`` asks the worker itself.
        round_trip_model: Its model.
        deadline_ms: Milliseconds one decision may take, all engines and retries together.
        chat_template: Chat template of the agent's model (``.jinja``, ``tokenizer_config.json`` or a folder holding either); without it
            the workers are asked for theirs.
        alignment: ``auto`` measures on each worker whether aligned states pay and need planting; ``always`` aligns without asking,
            ``plant`` plants besides, ``off`` sends JSON states.
        reuse_ttl_s: Seconds for which such a measurement holds.
        api_key_env: Name of the environment variable that holds the workers' API key.
        affinity: ``memory``, or the URL of a Redis.
        affinity_ttl_s: Seconds a session keeps its worker after its last use.
        session_header: Header that carries the session to workers and gateways.
        gateway: Engine gateway that the workers stand behind, if any.
        cache_salt: Salt of the agent's calls where a turn names none.
        priority: Priority of decisions, where workers schedule by it; lower is first.
        label_mass_floor: An aligned read whose label mass is below this is asked once more with a JSON state.
        policies: Names in the entry-point group ``warmgate.policies``.
        mount_options: Options of the mount policy, by name; it says which.
        shell_options: Options of the shell policy, by name; it says which.
        mounts_mode: ``shadow`` decides and records mounts and changes nothing.
        calls_mode: The same for verdicts.
        on_ask: ``deny`` where nobody is there to approve.
        metrics: Prometheus metrics: ``auto`` where prometheus_client is installed. See docs/operations.md for these and what follows.
        logs: ``json`` writes an event a line to standard error.
        traces: Spans by OpenTelemetry (extra ``otel``), and ``traceparent`` on the gate's requests.
        record: Folder that decisions and the traffic (hashes only) are recorded in; ``{pid}`` in it is the process's number.
        record_text: Record the resolved facts that proposed calls are judged by, too.
        follow: What is predicted of the workers' prefix caches: ``auto`` listens to the KV events of workers that announce them and models
            the others' caches; ``model`` never listens; ``off`` predicts nothing.
        hash_seed: ``PYTHONHASHSEED`` of the workers, where it is set there.
        measure_reads: Read the worker's counters before and after each decision, where its answers do not say what was cached: exact
            while nothing else runs there, and two more requests in every decision's time.
        prefill_rate: Tokens a second that the workers prefill; with it the tax is shown in seconds too.
    """

    model_config = SettingsConfigDict(env_prefix="WARMGATE_", toml_file=FILE, extra="forbid", frozen=True)

    workers: Annotated[tuple[str, ...], NoDecode] = Field(min_length=1)
    model: str = Field(min_length=1)
    gate_workers: Annotated[tuple[str, ...], NoDecode] = ()
    gate_model: str | None = None
    engines: Annotated[tuple[EngineName, ...], NoDecode] = ("systemone", "prefix_read", "round_trip")
    dialect: str = "vllm"
    round_trip_url: str | None = None
    round_trip_model: str | None = None
    deadline_ms: float = Field(default=2000, gt=0, le=600_000)
    chat_template: Path | None = None
    alignment: Literal["auto", "always", "plant", "off"] = "auto"
    reuse_ttl_s: float = Field(default=1800, gt=0)
    api_key_env: str | None = None
    affinity: str = "memory"
    affinity_ttl_s: float = Field(default=3600, gt=0)
    session_header: str = "X-Session-ID"
    gateway: Literal["vllm-router", "smg"] | None = None
    cache_salt: str | None = None
    priority: int | None = None
    label_mass_floor: float = Field(default=0.1, ge=0, le=1)
    policies: Annotated[tuple[str, ...], NoDecode] = ("mounts", "shell")
    mount_options: dict[str, Any] = Field(default_factory=dict[str, Any])
    shell_options: dict[str, Any] = Field(default_factory=dict[str, Any])
    mounts_mode: Mode = "enforce"
    calls_mode: Mode = "enforce"
    on_ask: Literal["ask", "deny"] = "ask"
    metrics: Literal["auto", "on", "off"] = "auto"
    logs: Literal["off", "json"] = "off"
    traces: bool = False
    record: Path | None = None
    record_text: bool = False
    follow: Literal["auto", "model", "off"] = "auto"
    hash_seed: str | None = None
    measure_reads: bool = False
    prefill_rate: float | None = Field(default=None, gt=0)

    def __init__(self, **values: Any) -> None:
        """Raises OptionError, one line, for the first setting that is wrong."""
        try:
            super().__init__(**values)
        except ValidationError as fault:
            first = fault.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            if not where:  # of the settings as a whole
                raise OptionError(first["msg"], where="Settings", mend=f"in code, in {FILE}, or in the environment as WARMGATE_*") from None
            field = str(first["loc"][0]).upper()
            raise OptionError(first["msg"], where=f"Settings.{where}", mend=f"in code, in {FILE}, or as WARMGATE_{field}") from None

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, values: Any) -> Any:
        """Lists come from the environment as ``a,b``."""
        given = dict(mapping(values))
        for name in ("workers", "gate_workers", "engines", "policies"):
            if (listed := text(given.get(name))) is not None:
                given[name] = [part.strip() for part in listed.split(",") if part.strip()]
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.gate_workers and not self.gate_model:
            raise OptionError("serve a model of their own, which has no name", where="Settings.gate_workers", mend="name it in gate_model")
        if self.gate_model and not self.gate_workers:
            raise OptionError("no worker serves it", where="Settings.gate_model", mend="name its workers in gate_workers, or leave it out")
        if not self.engines:
            raise OptionError("is empty", where="Settings.engines", mend="name at least one")
        if len(set(self.engines)) < len(self.engines):
            raise OptionError("names one twice", where="Settings.engines", mend="name each at most once")
        if not re.fullmatch(HEADER, self.session_header):
            given = one_line(self.session_header, 40)
            raise OptionError(f"{given!r} is no name of a header", where="Settings.session_header", mend="use letters, digits and -")
        self._spoken()
        return self

    def _spoken(self) -> None:
        """See that the engines can be made.

        Raises:
            OptionError: A dialect that nobody speaks, or a URL that is none.
        """
        from warmgate.engines.dialects import SYSTEMONE
        from warmgate.engines.dialects import dialect as named

        try:
            named(SYSTEMONE, self.dialect)
        except OptionError as fault:
            raise OptionError(fault.what, where="Settings.dialect", mend=fault.mend) from None
        if self.round_trip_url is not None:
            from warmgate.engines.http import base_url

            try:
                base_url(self.round_trip_url)
            except OptionError as fault:
                raise OptionError(fault.what, where="Settings.round_trip_url", mend=fault.mend) from None

    @property
    def api_key(self) -> str | None:
        """The workers' API key.

        Raises:
            OptionError: The variable it should come from is not set.
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env)
        if not key:
            raise OptionError(f"the environment variable {self.api_key_env} is not set", where="Settings.api_key_env")
        return key

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Code first, then the environment, then the file."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)
