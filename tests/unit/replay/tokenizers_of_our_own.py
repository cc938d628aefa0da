"""A tokenizer.json trained in a moment on this project's own text."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPLIT = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


@lru_cache
def trained(markers: bool = True) -> str:
    """The JSON of a byte-level BPE with 600 entries, with or without ChatML's markers as added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    text = [p.read_text() for p in sorted(Path(__file__).parents[3].joinpath("router/warmgate/replay").glob("*.py"))]
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(text, trainer)
    if markers:
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<|im_start|>", "<|im_end|>")])
        tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<think>", "</think>", "<tool_call>", "</tool_call>")])
    return tokenizer.to_str()


def write(directory: Path, markers: bool = True) -> Path:
    """Write it as ``tokenizer.json`` into ``directory``."""
    path = directory / "tokenizer.json"
    path.write_text(trained(markers))
    return path
