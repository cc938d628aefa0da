"""Tiny models that a real vLLM serves, made offline in a few seconds and the same every time.

    python -m tests.engine.rig.tiny_models [NAME ...]

`qwen3` has random weights, so its answers depend on the prompt; the others are configs alone, to be started with
`--load-format dummy`: their answers are noise, their wire and their cache are real. Needs `tokenizers` and nothing of the engine.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import struct
import sys
import tempfile
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.engine.rig.corpus import LABEL_WORDS, training_text
from tests.engine.rig.home import engine_home

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONFIGS = Path(__file__).with_name("configs")

#: Byte-level BPE entries; the added tokens of a family follow from this id on, and every config has room for them.
BASE_VOCAB = 3000

#: How Qwen's tokenizers cut text before merging. Newline runs stay together, so `</think>\n\n` followed by a label keeps the label one token.
_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

_CHAT = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_VISION = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")
_LIQUID_CHAT = ("<|pad|>", "<|im_start|>", "<|im_end|>", "<|startoftext|>", "<|endoftext|>")
_LIQUID_IMAGE = (
    "<image>",
    "<|image_start|>",
    "<|image_end|>",
    "<|img_thumbnail|>",
    *(f"<|img_row_{r}_col_{c}|>" for r in (1, 2) for c in (1, 2)),
)
_MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


@dataclass(frozen=True)
class TinyModel:
    """What sets one model folder apart from the next."""

    special: tuple[str, ...]
    """Control tokens, in id order from `BASE_VOCAB`; the third is the end of a turn."""
    markup: tuple[str, ...] = ()
    """Added tokens that are text to a reader: they survive `skip_special_tokens`."""
    tokens: tuple[tuple[str, str], ...] = ()
    """Named tokens of `tokenizer_config.json`, beyond eos and pad."""
    template: str | None = None
    """The chat template's file in `configs`, where it is not the model's own name."""
    weights: bool = False
    extra_files: tuple[str, ...] = ()


MODELS = {
    "qwen3": TinyModel(_CHAT, _MARKUP, weights=True),
    "qwen35": TinyModel(_CHAT + _VISION, _MARKUP),
    "qwen35moe": TinyModel(_CHAT + _VISION, _MARKUP, template="qwen35"),
    "lfm2vl": TinyModel(
        (*_LIQUID_CHAT, *_LIQUID_IMAGE),
        tokens=(("bos_token", "<|startoftext|>"),),
    ),
    "clef": TinyModel(
        (
            *_CHAT,
            "<|image_pad|>",
            "<|audio_pad|>",
            "<|video_pad|>",
            "<|vision_start|>",
            "<|vision_end|>",
            "<|audio_start|>",
            "<|audio_end|>",
        ),
        tokens=(
            ("image_token", "<|image_pad|>"),
            ("audio_token", "<|audio_pad|>"),
            ("video_token", "<|video_pad|>"),
            ("vision_bos_token", "<|vision_start|>"),
            ("vision_eos_token", "<|vision_end|>"),
            ("audio_bos_token", "<|audio_start|>"),
            ("audio_eos_token", "<|audio_end|>"),
        ),
        extra_files=("joint_head_config.json",),
    ),
}


def build(name: str) -> Path:
    """Make one model folder, or find it made, and return it.

    Raises KeyError for a name that is not in `MODELS`.
    """
    model = MODELS[name]
    target = engine_home() / "models" / name
    stamp = target / ".made-from"
    digest = _sources_digest()
    if stamp.is_file() and stamp.read_text() == digest:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Built aside and moved in one step: two test processes may build at once, and neither may serve half a folder.
    workdir = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    try:
        _write(workdir, name, model)
        (workdir / ".made-from").write_text(digest)
        workdir.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        workdir.rename(target)
    except OSError:
        if not (stamp.is_file() and stamp.read_text() == digest):  # nobody else made it meanwhile
            raise
    finally:
        shutil.rmtree(workdir, ignore_errors=True)
    return target


def _write(folder: Path, name: str, model: TinyModel) -> None:
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    tokenizer = train_tokenizer(model)
    eos, pad = model.special[2], model.special[0]
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 65536,
        "clean_up_tokenization_spaces": False,
        "eos_token": eos,
        "pad_token": pad,
        **dict(model.tokens),
    }
    tokenizer.save(str(folder / "tokenizer.json"))
    _dump(folder / "tokenizer_config.json", settings)
    _dump(folder / "config.json", config)
    _dump(folder / "generation_config.json", {"eos_token_id": tokenizer.token_to_id(eos), "pad_token_id": tokenizer.token_to_id(pad)})
    shutil.copyfile(CONFIGS / f"{model.template or name}.jinja", folder / "chat_template.jinja")
    for extra in model.extra_files:
        shutil.copyfile(CONFIGS / f"{name}.{extra}", folder / extra)
    if model.weights:
        _write_weights(folder / "model.safetensors", config)


def train_tokenizer(model: TinyModel) -> Tokenizer:
    """Train the byte-level BPE and add a family's tokens behind it."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=BASE_VOCAB, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    if tokenizer.get_vocab_size() != BASE_VOCAB:
        raise RuntimeError(f"the training text gave {tokenizer.get_vocab_size()} entries, not {BASE_VOCAB}: it is too small")
    for word in LABEL_WORDS:
        if len(tokenizer.encode(word).ids) != 1:
            raise RuntimeError(f"{word!r} did not become one token: systemone would answer 501")
    special = [AddedToken(token, special=True, normalized=False) for token in model.special]
    markup = [AddedToken(token, special=False, normalized=False) for token in model.markup]
    tokenizer.add_special_tokens(special)  # pyright: ignore[reportUnknownMemberType] - the library types it as a bare list
    tokenizer.add_tokens(markup)  # pyright: ignore[reportUnknownMemberType] - as above
    return tokenizer


def _write_weights(path: Path, config: dict[str, Any]) -> None:
    """Write random bfloat16 weights of a Qwen3 in the safetensors format (8-byte header length, JSON header, raw little-endian data)."""
    rng = random.Random(20261120)
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    # Larger than a trained model's initial scale: with so few layers the answers would hardly depend on the prompt otherwise.
    wide, one = 0.12, 0.0
    shapes: list[tuple[str, tuple[int, ...], float]] = [("model.embed_tokens.weight", (config["vocab_size"], hidden), wide)]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes += [
            (f"{prefix}.input_layernorm.weight", (hidden,), one),
            (f"{prefix}.post_attention_layernorm.weight", (hidden,), one),
            (f"{prefix}.self_attn.q_norm.weight", (head,), one),
            (f"{prefix}.self_attn.k_norm.weight", (head,), one),
            (f"{prefix}.self_attn.q_proj.weight", (q, hidden), wide),
            (f"{prefix}.self_attn.k_proj.weight", (kv, hidden), wide),
            (f"{prefix}.self_attn.v_proj.weight", (kv, hidden), wide),
            (f"{prefix}.self_attn.o_proj.weight", (hidden, q), wide),
            (f"{prefix}.mlp.gate_proj.weight", (inner, hidden), wide),
            (f"{prefix}.mlp.up_proj.weight", (inner, hidden), wide),
            (f"{prefix}.mlp.down_proj.weight", (hidden, inner), wide),
        ]
    shapes += [("model.norm.weight", (hidden,), one), ("lm_head.weight", (config["vocab_size"], hidden), wide)]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape, scale in shapes:
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array("f", (1.0 for _ in range(size)) if scale == one else (rng.gauss(0.0, scale) for _ in range(size)))
        halves = array("H", values.tobytes())
        begin = len(data)
        data += halves[1::2].tobytes()  # bfloat16 is the upper half of a float32, which comes second on the machines vLLM has wheels for
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def _sources_digest() -> str:
    digest = hashlib.sha256()
    for source in (Path(__file__), Path(__file__).with_name("corpus.py"), *sorted(CONFIGS.iterdir())):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _dump(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def main(names: list[str]) -> int:
    """Build the named models, or all of them, and print their folders."""
    unknown = sorted(set(names) - set(MODELS))
    if unknown:
        print(f"no such tiny model: {', '.join(unknown)}; there are {', '.join(MODELS)}", file=sys.stderr)
        return 2
    for name in names or list(MODELS):
        print(build(name))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    raise SystemExit(main(sys.argv[1:]))
