"""If these fail, figures of a worker's cache are read off the wrong line of its metrics."""

from __future__ import annotations

from warmgate.doctor.exposition import Metrics

TEXT = """\
# HELP vllm:hits Tokens.
# TYPE vllm:hits counter
vllm:hits_total{engine="0",model_name="a,b=\\"c\\" {x} \\\\ \\n"} 12.0
vllm:hits_total{engine="1"} 3 1700000000000
vllm:bare 1e3
vllm:nan NaN
vllm:words of no number
<html>not a sample</html>
"""


def test_samples_are_summed_over_their_labels():
    """A worker with several engines would be read as one of them."""
    metrics = Metrics(TEXT)
    assert metrics.total("vllm:hits_total") == 15
    assert metrics.total("vllm:bare") == 1000
    assert metrics.total("vllm:absent") is None
    assert metrics.of("vllm:absent") == []


def test_labels_with_commas_quotes_and_braces():
    """A model's name with such characters would hide the labels after it."""
    first = Metrics(TEXT).of("vllm:hits_total")[0]
    assert first.labels == {"engine": "0", "model_name": 'a,b="c" {x} \\ \n'}


def test_what_is_no_sample_is_skipped():
    """A page of HTML, or a NaN, would become a figure."""
    assert Metrics(TEXT).names == {"vllm:hits_total", "vllm:bare"}
    assert Metrics("<!DOCTYPE html><p>hello 1</p>\n\x00\xff").names == set()
