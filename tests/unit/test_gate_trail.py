"""If these fail, the ledger expects what cannot be there, or blames the cache for a move."""

from __future__ import annotations

import pytest

from warmgate.trail import Trails, entry
from warmgate.workers.binding import Binding


def on(worker="http://a", restarts=0):
    return Binding(worker, fresh=False, restarts=restarts)


def test_a_move_and_a_restart_are_told_apart_and_told_once():
    """Lost prefixes would have no cause, or the cause stick to every later turn."""
    trails = Trails()
    assert trails.on("s", on()) is None
    trails.reached("s", 1000)
    assert trails.on("s", on("http://b")) == "worker_change"
    assert trails.held("s") == (1000, "worker_change")
    assert trails.on("s", on("http://b")) is None
    trails.reached("s", 1100)
    assert trails.held("s") == (1100, None)
    assert trails.on("s", on("http://b", 1)) == "worker_restart"


def test_an_aligned_read_counts_for_one_call():
    """A later call would be credited with a read it never had."""
    trails = Trails()
    trails.on("s", on())
    trails.extended("s")
    assert trails.called("s") == "read"
    assert trails.called("s") is None
    trails.extended("s")
    trails.on("s", on("http://b"))
    assert not trails.called("s")


@pytest.mark.parametrize(
    ("given", "reusable", "survived", "basis", "cause"),
    [
        ({"shared": 100, "unit": 32, "cached": 96}, 96, 96, "measured", None),
        ({"shared": 100, "unit": 32, "cached": 0, "loss": "worker_change"}, 96, 0, "measured", "worker_change"),
        ({"shared": 100, "unit": 32, "cached": 0}, 96, 0, "measured", "unknown"),
        ({"shared": 100, "unit": 32}, 96, 96, "predicted", None),
        ({"shared": 100, "unit": 32, "loss": "worker_restart"}, 96, 0, "predicted", "worker_restart"),
        ({"shared": 100, "unit": 32, "looked_up": False}, 96, 0, "predicted", "not_read"),
        ({"shared": 200, "unit": 32}, 96, 96, "predicted", None),
        ({"shared": 100, "unit": None, "cached": 96}, None, 96, "measured", None),
        ({"shared": None, "unit": 32}, None, None, "predicted", None),
    ],
)
def test_every_figure_has_its_basis_and_every_loss_its_cause(given, reusable, survived, basis, cause):
    """Predictions would pass for measurements."""
    made = entry(120, **given)
    assert (made.reusable, made.survived, made.survived_basis, made.cause) == (reusable, survived, basis, cause)


def test_each_question_of_a_request_shares_on_its_own():
    """Three questions would be expected to find what one finds."""
    made = entry(3 * 150, reads=3, shared=100, unit=32)
    assert (made.shared, made.reusable) == (300, 288)
