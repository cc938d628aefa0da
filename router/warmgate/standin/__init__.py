"""A worker without a model, for laptops and tests: vLLM's wire, prefix cache and faults, answers from a script or from shared words.

``async with StandIn(...) as worker: worker.url`` in async code, ``with StandIn(...) as worker`` elsewhere. Every response says that it is
a stand-in: ``"model": "standin"`` and the header ``x-warmgate-standin: 1``.
"""

from warmgate.standin.faults import FAULTS
from warmgate.standin.options import Options
from warmgate.standin.script import Script
from warmgate.standin.worker import Exchange, StandIn

__all__ = ["FAULTS", "Exchange", "Options", "Script", "StandIn"]
