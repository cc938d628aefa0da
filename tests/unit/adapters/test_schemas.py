"""One object for each tool schema. If these fail, lists of hundreds of tools are compared by their content several times a turn, or are mixed up."""

from __future__ import annotations

from langchain_core.tools import tool

from warmgate_adapters.core import one_of_each
from warmgate_adapters.langgraph.messages import schemas


@tool
def read(path: str) -> str:
    """Read a file."""
    return path


def test_every_node_of_a_graph_knows_the_same_objects():
    assert schemas([read])[0] is schemas([read])[0]


def test_what_differs_by_a_word_or_by_its_order_is_another():
    first = one_of_each({"name": "a", "description": "b"})
    assert one_of_each({"name": "a", "description": "b"}) is first
    assert one_of_each({"name": "a", "description": "c"}) is not first
    assert one_of_each({"description": "b", "name": "a"}) is not first


def test_what_is_no_json_stays_as_it_is():
    odd = {"name": object()}
    assert one_of_each(odd) is odd
