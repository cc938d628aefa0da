"""warmgate: a gating router for agent graphs.

The decision rides on the agent's own prefix, on the worker that holds it, and every figure says whether it was measured or
predicted. Importing this package stays cheap (under 0.3 s): names are loaded when first used.
"""

from __future__ import annotations

__version__ = "0.1.0.dev0"

__all__ = ["__version__"]
