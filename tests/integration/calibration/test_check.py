"""If these fail, a changed model goes on being trusted under thresholds made for the old one."""

from __future__ import annotations

import asyncio
import json
import random

from warmgate.cli.app import run
from warmgate.standin import StandIn

QUESTION = {"type": "noul", "instructions": "Does this remove files?", "criteria": None}


def labels(count: int) -> bytes:
    draw = random.Random(2)
    words = ["remove files now", "list some names", "show the weather", "files", "this will remove", "nothing"]
    rows = []
    for i in range(count):
        said = draw.choice(words)
        rows.append(
            {
                "id": "removes",
                "question": QUESTION,
                "model": "standin",
                "state": f"{said} {i}",
                "label": "yes" if "remove" in said else "no",
            }
        )
    return "\n".join(map(json.dumps, rows)).encode()


async def answer(worker: StandIn, arguments: list[str]) -> int:
    return await asyncio.to_thread(run, [*arguments, "--worker", worker.url])


async def test_a_worker_that_answers_as_before_holds_and_one_that_does_not_has_drifted(tmp_path, capsys):
    path, policy, found = tmp_path / "labels.jsonl", tmp_path / "policy.json", tmp_path / "drift.json"
    path.write_bytes(labels(400))
    async with StandIn() as worker:
        assert await answer(worker, ["calibrate", str(path), "--max-error", "0.45", "--json", str(policy)]) == 0
        assert json.loads(policy.read_text())["entries"][0]["pinned"]
        assert await answer(worker, ["calibrate", "--check", str(policy), "--json", str(found)]) == 0
    async with StandIn(script={"decisions": [{"id": "*", "probabilities": {"yes": 0.97}}]}) as worker:
        assert await answer(worker, ["calibrate", "--check", str(policy), "--json", str(found)]) == 1
        assert json.loads(found.read_text())["entries"][0]["drifted"] is True
    async with StandIn(fault=["503"]) as worker:
        assert await answer(worker, ["calibrate", "--check", str(policy), "--json", str(found), "--deadline-ms", "500"]) == 1
    assert "not answered" in capsys.readouterr().err
