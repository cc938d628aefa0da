"""Where sessions are remembered: in memory (default) or in Redis. Each store is one implementation of :class:`Affinity`."""

from __future__ import annotations

from warmgate.workers.affinity._base import Affinity, Candidate, Stance
from warmgate.workers.affinity.memory import MemoryAffinity

__all__ = ["Affinity", "Candidate", "MemoryAffinity", "Stance"]
