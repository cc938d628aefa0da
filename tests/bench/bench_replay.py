"""How fast ``warmgate replay`` is, against whole-prompt tokenising, against kvlint, and against itself at ten times the length."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.timing import Lines, cpu
from tests.unit.replay.tokenizers_of_our_own import write
from warmgate.alignment.template import ChatTemplate
from warmgate.replay.prepare import HashPreparer, TextPreparer
from warmgate.replay.run import Options, replay
from warmgate.replay.scenarios import NAMES, Simulation
from warmgate.replay.tokens import ExactTokens
from warmgate.replay.trace import BlockPrompt, Call, TextPrompt

SHARED = Path(__file__).parents[3] / "shared/traces"

SIMPLE = """\
{%- if tools %}{{- '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- if message.tool_calls %}{{- message.tool_calls | tojson }}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def run() -> Lines:
    yield from _mooncake()
    with tempfile.TemporaryDirectory() as directory:
        yield from _text(Path(directory))
    yield from _length()
    yield from _memory()


def _mooncake() -> Lines:
    """The whole command's work on a trace of 3,000 calls with 80,619 block ids."""
    path = SHARED / "mooncake/conversation_trace.first3000.jsonl"
    with tempfile.TemporaryDirectory() as directory:
        if not path.exists():
            yield f"{path.name} is absent: a trace of the same shape is generated instead", None
            path = _mooncake_like(Path(directory) / "mooncake.jsonl", calls=3000, blocks=27)
        seconds, result = cpu(lambda: replay([str(path)], Options()).to_json(), times=5)
    calls = json.loads(result)["totals"]["calls"]
    yield f"Mooncake, {calls:,} calls, all scenarios: {seconds:.3f} s of CPU (bound 0.5 s)", seconds < 0.5


def _mooncake_like(path: Path, calls: int, blocks: int) -> Path:
    fresh = iter(range(1, 1 << 40))
    chains: dict[int, list[int]] = {}
    with path.open("w") as file:
        for index in range(calls):
            chain = chains.setdefault(index % 400, [0])
            chain += [next(fresh) for _ in range(max(1, 2 * blocks // (calls // 400 + 1)))]
            file.write(
                json.dumps({"timestamp": index, "input_length": len(chain) * 512 - 100, "output_length": 10, "hash_ids": chain}) + "\n"
            )
    return path


def _chat_log(directory: Path) -> Path:
    """tau-bench's airline runs as a log of OpenAI chat requests, or a log of our own of that shape."""
    source = SHARED / "taubench/gpt-4o-airline.first60.json"
    if source.exists():
        runs = [run["traj"] for run in json.loads(source.read_text())]
    else:
        text = Path(__file__).read_text()
        runs = [
            [{"role": "system", "content": text * 2}]
            + [{"role": ("user", "assistant")[i % 2], "content": text[(i * 97 + r) % 2000 :][:700]} for i in range(26)]
            for r in range(60)
        ]
    log = directory / "log.jsonl"
    with log.open("w") as file:
        for number, messages in enumerate(runs):
            for index, message in enumerate(messages):
                if message["role"] == "assistant":
                    file.write(json.dumps({"model": "m", "session": str(number), "messages": messages[:index]}) + "\n")
    return log


def _text(directory: Path) -> Lines:
    model = directory / "model"
    model.mkdir()
    write(model)
    (model / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": SIMPLE, "eos_token": "<|im_end|>"})
    )
    (model / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    (model / "chat_template.jinja").write_text(SIMPLE)
    log = _chat_log(directory)
    template = ChatTemplate.from_file(model / "chat_template.jinja")
    requests = [json.loads(line) for line in log.read_text().splitlines()]
    calls = [Call(r["session"], "m", TextPrompt(r["messages"])) for r in requests]

    def piecewise() -> tuple[int, int]:
        preparer = TextPreparer(template, ExactTokens(model, template), 16)
        prepared = [preparer.prepare(c, c.prompt) for c in calls]
        return sum(p.tokens for p in prepared), sum(p.shared for p in prepared)

    def whole() -> tuple[int, int]:
        tokens = ExactTokens(model, template)
        tokens.distrust()
        preparer = TextPreparer(template, tokens, 16)
        prepared = [preparer.prepare(c, c.prompt) for c in calls]
        return sum(p.tokens for p in prepared), sum(p.shared for p in prepared)

    fast, one = cpu(piecewise)
    slow, other = cpu(whole, times=1)
    yield f"text, {len(calls)} calls, {one[0]:,} prompt tokens: identical totals piecewise and whole", one == other
    yield f"each message tokenised once: {slow / fast:.1f} × faster than every prompt whole (bound 3 ×)", slow / fast >= 3

    ours_command = [sys.executable, "-m", "warmgate", "replay", str(log), "--tokenizer", str(model / "tokenizer.json")]
    ours_command += ["--chat-template", str(model / "chat_template.jinja"), "--json", str(directory / "ours.json")]
    theirs_command = [str(Path(sys.executable).parent / "kvlint"), "analyze", str(log), "--model", str(model), "--engine", "vllm"]
    theirs_command += ["--json", str(directory / "theirs.json")]
    if not Path(theirs_command[0]).exists():
        yield "kvlint is not installed in this environment: `make bench` installs it", None
        return
    idle = {"ours": _children([sys.executable, "-c", "import warmgate.replay.run"]), "theirs": _children([theirs_command[0], "--version"])}
    ours = min(_children(ours_command) for _ in range(3)) - idle["ours"]
    theirs = _children(theirs_command) - idle["theirs"]
    totals = json.loads((directory / "ours.json").read_text())["totals"]
    rate = totals["prompt_tokens"] / 1e6
    yield (
        f"same log, beyond start-up: warmgate {rate / ours:.2f} and kvlint 0.1.1 {rate / theirs:.2f} million prompt tokens a CPU second: "
        f"{theirs / ours:.1f} × (bound 5 ×)",
        theirs / ours >= 5,
    )


def _children(command: list[str]) -> float:
    """CPU seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _length() -> Lines:
    """The same new blocks per call, on sessions ten times as long. Everything but reading the file."""

    def per_call(length: int) -> float:
        fresh = iter(range(1 << 40))
        chain = [next(fresh) for _ in range(length)]
        calls: list[Call] = []
        for _ in range(200):
            chain += [next(fresh) for _ in range(8)]
            calls.append(Call("s", "m", BlockPrompt(16, list(chain), len(chain) * 16 + 5)))
        best = float("inf")
        for _ in range(7):
            preparer = HashPreparer(None)
            sims = [Simulation(n, "sticky", sidecar=False, workers=1, block_size=16, kv_tokens=None) for n in NAMES]
            first = preparer.prepare(calls[0], calls[0].prompt)
            for sim in sims:
                sim.feed(first, 3, 45)
            start = time.process_time()
            for call in calls[1:]:
                prepared = preparer.prepare(call, call.prompt)
                for sim in sims:
                    sim.feed(prepared, 3, 45)
            best = min(best, (time.process_time() - start) / (len(calls) - 1))
        return best

    short, long = per_call(600), per_call(6000)
    yield (
        f"hash trace, 8 new blocks a call: {short * 1e6:.0f} µs a call at 10,000 tokens, {long * 1e6:.0f} µs at 100,000: "
        f"× {long / short:.2f} for × 10 (bound × 3)",
        long / short < 3,
    )

    def text_per_call(turns: int) -> float:
        template = ChatTemplate.default()
        with tempfile.TemporaryDirectory() as directory:
            tokens = ExactTokens(write(Path(directory)), template)
        words = Path(__file__).read_text()
        history = [{"role": ("user", "assistant")[i % 2], "content": words[i % 1000 :][:2000]} for i in range(turns + 80)]
        preparer = TextPreparer(template, tokens, 16)
        call = Call("s", "m", TextPrompt(history[:turns]))
        preparer.prepare(call, call.prompt)
        start = time.process_time()
        for n in range(turns + 1, turns + 80):
            call = Call("s", "m", TextPrompt(history[:n]))
            preparer.prepare(call, call.prompt)
        return (time.process_time() - start) / 79

    short, long = (min(text_per_call(n) for _ in range(3)) for n in (16, 160))
    yield (
        f"text trace, one new message a call: {short * 1e6:.0f} µs a call at 16 messages, {long * 1e6:.0f} µs at 160: "
        f"× {long / short:.2f} for × 10 (bound × 3)",
        long / short < 3,
    )


def _memory() -> Lines:
    """Peak memory of the whole command on 100 million prompt tokens, as block hashes and as text."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "long.jsonl"
        fresh = iter(range(1, 1 << 40))
        total, index = 0, 0
        chains = [[next(fresh) for _ in range(40)] for _ in range(50)]
        with path.open("w") as file:
            while total < 100_000_000:
                chain = chains[index % 50]
                chain += [next(fresh) for _ in range(2)]
                if len(chain) > 300:
                    chain[:] = chain[:20]
                tokens = len(chain) * 512 - 7
                file.write(json.dumps({"timestamp": index, "input_length": tokens, "output_length": 1, "hash_ids": chain}) + "\n")
                total += tokens
                index += 1
        peak, result = _peak(path, directory)
        yield f"{result['prompt_tokens']:,} prompt tokens as hashes of 512: peak {peak:.0f} MB (bound 300 MB)", peak < 300

        text = Path(__file__).read_text()
        total = index = 0
        histories: list[list[dict[str, str]]] = [[] for _ in range(20)]
        with path.open("w") as file:
            while total < 400_000_000:  # bytes; about four a token
                history = histories[index % 20]
                if len(history) > 120:
                    history.clear()
                history += [{"role": "user", "content": f"{index} {text[index % 900 :][:3000]}"}, {"role": "assistant", "content": "ok"}]
                line = json.dumps({"model": "m", "session": str(index % 20), "messages": history[:-1]})
                file.write(line + "\n")
                total += len(line)
                index += 1
        peak, result = _peak(path, directory)
        yield f"{result['prompt_tokens']:,} prompt tokens as text: peak {peak:.0f} MB (bound 300 MB)", peak < 300


def _peak(path: Path, directory: str) -> tuple[float, dict]:
    out = Path(directory) / "out.json"
    script = (
        "import resource, sys; from warmgate.cli.app import run; code = run(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", script, "replay", str(path), "--json", str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stderr.split()[-1]), json.loads(out.read_text())["totals"]
