"""How models are read for decisions, and what each way means for a gate.

After vLLM 0.32's ``entrypoints/generate/structured_decisions/strategies.py`` (``READ_STRATEGIES``) and servers run with each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadStyle:
    """One way of reading label probabilities.

    Attributes:
        name: As in ``warmgate standin --style`` where there is such a style.
        means: What a gate should know, one line.
        reads_cache: Whether its reads look into the prefix cache at all.
        windows: Whether its models may have sliding-window layers.
        caution: What it loses, if it should be pointed out.
    """

    name: str
    means: str
    reads_cache: bool = True
    windows: bool = False
    caution: str | None = None


QWEN3 = ReadStyle(
    "qwen3",
    "next-token read (Qwen3ForCausalLM), one engine request a question; full attention: every whole block of a shared prefix is reused",
)
QWEN35 = ReadStyle(
    "qwen3.5",
    "next-token read on a model with recurrent layers (Qwen3_5[Moe]ForConditionalGeneration), one engine request a question;"
    " the cache keeps few states, see shorter_prefix",
)
D1 = ReadStyle(
    "d1",
    "LiquidAI d1 (Lfm2VlForConditionalGeneration), one engine request a question; a choice's one-letter names become the labels"
    " and must be single tokens; takes images; recurrent layers, see shorter_prefix",
)
DGEMMA = ReadStyle(
    "dgemma",
    "DiffusionGemma canvas read, 2 output tokens a question; every read adds its thought block and a canvas of 16 tokens;"
    " sliding windows, see shorter_prefix",
    windows=True,
)
CLEF = ReadStyle(
    "clef",
    "clef-omni (ClefOmniForJointSchema), one pooling pass for all questions; takes images, audio and video; label mass is always 1",
    reads_cache=False,
    caution="no `instructions`, no prefix reuse, and a state that is too long is cut at its end without a word",
)
NEXT_TOKEN = ReadStyle("next-token", "next-token read, one engine request a question; which model family is not visible", windows=True)

STYLES = {style.name: style for style in (QWEN3, QWEN35, D1, DGEMMA, CLEF, NEXT_TOKEN)}

_NAMES = (
    (re.compile(r"clef"), CLEF),
    (re.compile(r"diffusion-?gemma|dgemma"), DGEMMA),
    (re.compile(r"lfm-?2|\bd1\b|liquid"), D1),
    (re.compile(r"qwen-?3[._]?5"), QWEN35),
    (re.compile(r"qwen-?3"), QWEN3),
)


def by_name(*names: str | None) -> ReadStyle | None:
    """The style that a model's name or folder suggests. A hint: people name models as they like."""
    for name in names:
        for pattern, style in _NAMES:
            if name and pattern.search(name.lower()):
                return style
    return None
