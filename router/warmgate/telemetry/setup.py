"""The listeners of one gate, as its settings ask for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from warmgate.errors import OptionError
from warmgate.settings import Settings
from warmgate.telemetry.aside import Aside
from warmgate.telemetry.protocol import Fan, Telemetry

if TYPE_CHECKING:
    from warmgate.telemetry.prometheus import Prometheus


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who listens.

    Attributes:
        fan: All of them. Those that only count are told at once, the others from threads of their own.
        prometheus: The one among them that serves metrics.
        asides: Those told from threads of their own.
    """

    fan: Fan
    prometheus: Prometheus | None = None
    asides: Sequence[Aside] = field(default=())

    def drain(self) -> None:
        """Wait a little until what was told so far has arrived everywhere."""
        for aside in self.asides:
            aside.drain()

    def close(self) -> None:
        """Write what is held back. Whoever is told something afterwards opens again."""
        for aside in self.asides:
            aside.close()


def listeners(settings: Settings, own: Sequence[Telemetry], blocks: Callable[[], tuple[int, str] | None]) -> Listeners:
    """Make them.

    Args:
        settings: Which are asked for.
        own: The application's. One with a true attribute ``inline`` is told at once, on the decision's path.
        blocks: Tokens per block and the name of the hash, once the workers are followed.

    Raises:
        OptionError: What is asked for is not installed.
        OutputError: The record cannot be opened.
    """
    direct: list[Telemetry] = [one for one in own if getattr(one, "inline", False)]
    asides = [Aside(one) for one in own if not getattr(one, "inline", False)]
    prometheus: Prometheus | None = None
    if settings.metrics == "on" or (settings.metrics == "auto" and find_spec("prometheus_client") is not None):
        try:
            from warmgate.telemetry.prometheus import Prometheus

            prometheus = Prometheus(prefill_rate=settings.prefill_rate)
        except ImportError:
            raise OptionError(
                "prometheus_client is not installed", where="Settings.metrics", mend="pip install prometheus-client"
            ) from None
        direct.append(prometheus)
    if settings.traces:
        from warmgate.telemetry.spans import Spans

        direct.append(Spans())
    if settings.logs == "json":
        from warmgate.telemetry.logs import Logs

        asides.append(Aside(Logs(sys.stderr)))
    if settings.record is not None:
        from warmgate.telemetry.record import Records

        asides.append(Aside(Records(settings.record, text=settings.record_text, blocks=blocks)))
    return Listeners(Fan(*direct, *asides), prometheus, tuple(asides))
