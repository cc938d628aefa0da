"""What an operator can set about mounting."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from warmgate.errors import OptionError
from warmgate_policies.mounts.price import CACHED_COST, HYSTERESIS

Planned = Literal["freeze", "append", "remount", "native"]


class MountOptions(BaseModel):
    """Options of the mount policy (``[mount_options]`` of ``warmgate.toml``).

    Attributes:
        strategy: ``freeze`` holds the list of the session's first turn; ``append`` announces later tools by a message at the
            end; ``remount`` changes the list where its price pays; ``native`` leaves the list whole and narrows with the provider's
            own allowed-tools or deferred loading.
        groups: Toolset name → tool names, or prefixes ending in ``*``. Tools that no group names are grouped by the MCP server in their
            name.
        descriptions: Toolset name → what it is for, shown to the deciding model.
        always: Tools that are always mounted.
        needs: Tool → tools that it cannot work without.
        threshold: Probability from which a toolset is mounted. Low, since a missing tool costs a turn and a spare one some tokens.
        smallest: Catalogues of fewer schema tokens are mounted whole at the session's start: choosing would cost more than it saves.
        questions: Most questions in one turn, both steps of a narrowing together.
        options: Most options of one choice; vLLM takes 26.
        recent: Messages from the end that count as history beside the last user message.
        context_tokens: The model's context window, if the policy should make room when it gets tight.
        pressure: Share of the context window from which unneeded tools are taken down.
        cached_cost: See :data:`~warmgate_policies.mounts.price.CACHED_COST`.
        hysteresis: See :data:`~warmgate_policies.mounts.price.HYSTERESIS`.
        prefill_rate: Prompt tokens a second of the workers, for prices in milliseconds.
        lengths: Calls a session of yours makes, recorded (``warmgate replay`` prints them): prices look that far ahead.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Planned = "freeze"
    groups: dict[str, list[str]] = Field(default_factory=dict)
    descriptions: dict[str, str] = Field(default_factory=dict)
    always: list[str] = Field(default_factory=list)
    needs: dict[str, list[str]] = Field(default_factory=dict)
    threshold: float = Field(default=0.3, gt=0, lt=1)
    smallest: int = Field(default=1500, ge=0)
    questions: int = Field(default=8, ge=1, le=64)
    options: int = Field(default=24, ge=2, le=26)
    recent: int = Field(default=12, ge=0)
    context_tokens: int | None = Field(default=None, gt=0)
    pressure: float = Field(default=0.85, gt=0, le=1)
    cached_cost: float = Field(default=CACHED_COST, ge=0)
    hysteresis: float = Field(default=HYSTERESIS, ge=1)
    prefill_rate: float | None = Field(default=None, gt=0)
    lengths: tuple[int, ...] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> MountOptions:
        """Options from a settings table.

        Raises:
            OptionError: One line for the first that is wrong.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as fault:
            first = fault.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise OptionError(first["msg"], where=f"mount_options.{where}") from None
