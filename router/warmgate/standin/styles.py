"""The model families that vLLM 0.32 answers ``/v1/systemone`` for, as far as a client can tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

StyleName: TypeAlias = Literal["qwen3", "d1", "clef", "dgemma"]


@dataclass(frozen=True, slots=True)
class Style:
    """What sets a family apart on the wire.

    Attributes:
        name: What ``--style`` calls it.
        architecture: The model class vLLM would load.
        pooling: One forward pass scores all questions: no instructions, no chat, no look into the prefix cache, label mass 1, no output
            tokens, and a state that is too long loses its tail.
        media: What a decision may attach.
        output_tokens: Tokens a read generates.
        canvas: Tokens a diffusion read needs behind the prompt.
        samples: Whether chat takes sampling parameters such as ``temperature``.
    """

    name: StyleName
    architecture: str
    pooling: bool = False
    media: frozenset[str] = frozenset()
    output_tokens: int = 1
    canvas: int = 0
    samples: bool = True


STYLES: dict[str, Style] = {
    "qwen3": Style("qwen3", "Qwen3ForCausalLM"),
    "d1": Style("d1", "Lfm2VlForConditionalGeneration", media=frozenset({"image"})),
    "clef": Style("clef", "ClefOmniForJointSchema", pooling=True, media=frozenset({"image", "audio", "video"}), output_tokens=0),
    "dgemma": Style("dgemma", "DiffusionGemmaForBlockDiffusion", output_tokens=2, canvas=16, samples=False),
}

DIFFUSION_REFUSES = ("temperature", "min_p", "seed", "min_tokens", "logit_bias", "bad_words", "allowed_token_ids")
"""Sampling parameters a diffusion model answers 400 to."""
