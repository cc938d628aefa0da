"""If these fail, L is wrong: prompts would share more or less than they really do."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from warmgate.prefix.blocks import HashTree, Ruler, TextTree, common_prefix

tokens = st.lists(st.integers(0, 2), max_size=24)


def ids(values):
    return array("I", values).tobytes()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), tokens), max_size=14), st.integers(1, 5))
def test_longest_shared_prefix_is_exact_to_the_token(sequences, size):
    """R and rounding would be off: L must be the longest prefix shared with any stored sequence of the namespace."""
    tree, ruler, stored = TextTree(), Ruler(size), []
    for namespace, values in sequences:
        truth = max((common_prefix(values, other) for ns, other in stored if ns == namespace), default=0)
        nodes, shared = tree.match(namespace, ids(values), ruler, array("q"))
        assert shared // 4 == truth
        assert len(nodes) == truth // size
        whole = tree.store(namespace, ids(values), ruler, nodes[:])
        assert len(whole) == len(values) // size
        assert whole[: len(nodes)] == nodes
        assert tree.match(namespace, ids(values), ruler, nodes[:])[1] == len(values) * 4
        stored.append((namespace, values))


@settings(max_examples=80, deadline=None)
@given(st.lists(tokens, max_size=10), st.floats(0.05, 1.0), st.integers(1, 6))
def test_scaled_text_shares_whole_blocks_only_when_its_bytes_agree(texts, ratio, size):
    """Without a tokenizer, two different prompts could count as one."""
    tree, ruler, stored = TextTree(), Ruler(size, ratio, exact=False), []
    for values in texts:
        data = bytes(values)
        truth = max((common_prefix(data, other) for other in stored), default=0)
        nodes, shared = tree.match("", data, ruler, array("q"))
        assert shared == truth
        assert len(nodes) == ruler.full_blocks(truth)
        tree.store("", data, ruler, nodes)
        stored.append(data)


@given(st.lists(st.integers(0, 3), max_size=600), st.lists(st.integers(0, 3), max_size=600), st.integers(0, 400))
def test_common_prefix_is_the_first_difference(a, b, shared):
    """Divergences would be placed at the wrong token."""
    a = [9] * shared + a
    b = [9] * shared + b
    truth = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(a, b) == truth
    assert common_prefix(bytes(a), bytes(b)) == truth
    assert common_prefix("".join(map(chr, a)), "".join(map(chr, b))) == truth


@given(st.integers(1, 700), st.floats(0.01, 4), st.integers(0, 5000))
def test_ruler_counts_the_blocks_it_cuts(size, ratio, length):
    """A block too many would read past the prompt; one too few would lose reuse."""
    ruler = Ruler(size, ratio, exact=False)
    full = ruler.full_blocks(length)
    assert ruler.offset(full) <= length < ruler.offset(full + 1)
    assert ruler.tokens(ruler.offset(full)) == full * size
    assert full * size <= ruler.tokens(length) < (full + 1) * size


def test_hashes_share_by_namespace():
    """Two models' caches would be counted as one."""
    tree = HashTree()
    nodes = tree.store("a", [1, 2, 3], array("q"))
    assert tree.match("a", [1, 2, 9], array("q")) == nodes[:2]
    assert len(tree.match("b", [1, 2], array("q"))) == 0
    assert tree.store("a", [1, 2, 9], nodes[:2])[:2] == nodes[:2]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.lists(st.integers(0, 3), max_size=8)), max_size=14))
def test_hashes_of_contents_alone_still_make_chains(sequences):
    """A converter that hashes blocks without what stands before them would be credited with reuse that no engine gives."""
    tree, stored = HashTree(), []
    for namespace, values in sequences:
        truth = max((common_prefix(values, other) for ns, other in stored if ns == namespace), default=0)
        nodes = tree.match(namespace, values, array("q"))
        assert len(nodes) == truth
        assert tree.store(namespace, values, nodes) == tree.match(namespace, values, array("q"))
        stored.append((namespace, values))
