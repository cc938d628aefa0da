"""Which tools to mount: chosen at the session's start, held by default, changed only where the price pays."""

from warmgate_policies.mounts.catalogue import Catalogue, Toolset
from warmgate_policies.mounts.options import MountOptions
from warmgate_policies.mounts.policy import ToolMounts, from_settings
from warmgate_policies.mounts.price import Price, TurnsAhead

__all__ = ["Catalogue", "MountOptions", "Price", "ToolMounts", "Toolset", "TurnsAhead", "from_settings"]
