"""Let a torchvision wheel built for CUDA be imported beside a CPU build of torch.

Copied into the engine's venv by `install.py` and started from a `.pth` file there, never imported by warmgate. Such a wheel cannot load
its compiled part, so the operators `torchvision::nms` and `::qnms` do not exist when it registers their shapes, and the import dies. vLLM needs the
import only (image processors of models that the tests run without images). Declaring the two schemas first is enough; nothing calls them.
"""

import importlib
import sys
from importlib.abc import MetaPathFinder

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class _DeclareFirst(MetaPathFinder):
    """Declares the operators at the first import of torchvision, then steps aside."""

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            torch = importlib.import_module("torch")  # by name: only the engine's venv has it
            for op in ("nms", "qnms"):
                torch.library.define(f"torchvision::{op}", _SCHEMA)
        # Always None: the finders after this one do the finding.


sys.meta_path.insert(0, _DeclareFirst())
