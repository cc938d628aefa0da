"""What an operator can set about mounting."""

from __future__ import annotations

from difflib import get_close_matches
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
        smallest: Catalogues of fewer schema tokens are mounted whole at the session's start: choosing would cost
            more than it saves (a recorded service agent with 3,630: narrowing paid 7 % more than the whole list and missed a call in six).
        questions: Most questions in one turn, both steps of a narrowing together.
        options: Most options of one choice; vLLM takes 26.
        recent: Messages from the end that count as history beside the last user message.
        context_tokens: The model's context window, if the policy should make room when it gets tight.
        pressure: Share of the context window from which unneeded tools are taken down.
        cached_cost: See :data:`~warmgate_policies.mounts.price.CACHED_COST`.
        hysteresis: See :data:`~warmgate_policies.mounts.price.HYSTERESIS`.
        prefill_rate: Prompt tokens a second of the workers, for prices in milliseconds; without it the settings' rate, else what the
            reads of this process showed.
        lengths: Calls that sessions of yours made, recorded (docs/mounting.md tells how to get them): prices look that far ahead.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    strategy: Planned = "freeze"
    groups: dict[str, list[str]] = Field(default_factory=dict)
    descriptions: dict[str, str] = Field(default_factory=dict)
    always: list[str] = Field(default_factory=list)
    needs: dict[str, list[str]] = Field(default_factory=dict)
    threshold: float = Field(default=0.3, gt=0, lt=1)
    smallest: int = Field(default=4000, ge=0)
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
            what, mend = first["msg"], None
            if first["type"] == "extra_forbidden":
                near = get_close_matches(str(first["loc"][0]), cls.model_fields, 1)
                what, mend = "is no such option", f"meant {near[0]}?" if near else f"one of {', '.join(cls.model_fields)}"
            raise OptionError(what, where=f"mount_options.{where}", mend=mend) from None
