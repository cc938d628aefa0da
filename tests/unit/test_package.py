"""If these fail, installing warmgate costs its users start-up time, types, or a name they rely on."""

from __future__ import annotations

import importlib.resources
import subprocess
import sys

import pytest


def test_import_is_cheap():
    """Every process that imports warmgate would pay. Counted in modules, since seconds depend on the machine."""
    code = "import sys; before = set(sys.modules); import warmgate; print(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60
    heavy = "import sys, warmgate; print([m for m in ('openai', 'httpx', 'pydantic', 'rich', 'tokenizers', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["warmgate", "warmgate_policies", "warmgate_adapters"])
def test_packages_are_typed(package):
    """Users' type checkers would see Any everywhere."""
    assert importlib.resources.files(package).joinpath("py.typed").is_file()


def test_errors_are_one_printable_line_and_cross_processes():
    """A file name with a terminal escape in it would paint the user's terminal."""
    import pickle

    from warmgate.errors import TraceError

    fault = TraceError("bad\nthing\x1b[31m", where="a\tb", mend="do\x07 this")
    assert str(fault) == "a b: bad thing [31m; do this"
    again = pickle.loads(pickle.dumps(fault))
    assert (type(again), str(again)) == (TraceError, str(fault))


def test_exports_are_there():
    """``from warmgate import Gate`` would fail for a name in the documentation."""
    import warmgate

    assert set(warmgate.__all__) <= set(dir(warmgate))
    for name in warmgate.__all__:
        assert getattr(warmgate, name)
    with pytest.raises(AttributeError, match="Gat"):
        _ = warmgate.Gat
