"""The text the test tokenizer is trained on: made here, the same on every machine.

A tokenizer trained on files that change (this repo, the standard library) would move every token count in the engine tests. So the
text comes from a seeded generator: prose, tool schemas and calls, shell, Python, tracebacks and diffs, as an agent's prompt has them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

#: Words that must be one token with and without a leading space: labels and the roles of a chat.
LABEL_WORDS = ("yes", "no", "Yes", "No", "YES", "NO", "system", "user", "assistant", "tool")

_WORD_LIST = """
a about above access account act action add address after again against agent alert all allow almost already also always amount and
another answer any api app append apply approve archive are argument around array as ask assert at attempt attribute audit author await
back backup bad balance base batch be because been before begin behind below best better between big binary block body book bool both
branch break bring broken bucket budget buffer build but button by cache call can cancel capacity card case catch cause cell change channel
charge check child choice choose class clean clear client clone close cluster code collect column command comment commit common compare
complete config confirm connect constant contact container content context control copy correct cost could count country cover crash
create current customer cut daily damage data database date day dead deadline debug decide decision deep default define delay delete deliver
deny depend deploy depth describe design detail detect device did different digest direct directory disable disk display do document does done
door down draft drive drop due during each early edge edit effect either else email empty enable end endpoint engine enough ensure enter entry
equal error escape even event every exact example except exchange execute exist exit expect explain export expose extra fail failure fall false
fast fault feature fetch few field file fill filter final find finish first fix flag flight flow folder follow for force form format forward
found free from full function future gate general get give global go goal good grant graph group grow guard guide had half hand handle happen
hard has hash have header health held help here hidden high history hold home host hour how human idea identity if ignore image import improve
in include increase index info initial inner input insert inside install instance instead integer into invoice is issue it item its job join
just keep key kind know label language large last late later latency launch layer lead learn least left length less let level library light like
limit line link list listen little load local lock log logic long look loop lost low main make manage many map mark match may mean measure
member memory merge message metadata method metric middle might minute miss missing mode model module moment money monitor month more most
mount move much must name near need network never new next night node none normal not note nothing notice now number object of off offer offset
often old on once one only open operation option or order origin other our out output outside over owner pack package page panic parent parse
part partial pass password past patch path pattern pay payment pending people per percent permission person phase pick piece pipeline place
plain plan point policy pool port position possible post power prefix prepare present press price primary print private problem process
produce product profile program project prompt proof proper protect provide public pull purpose push put quality query question queue quick
quiet quota raise random range rate raw reach read ready real reason receive recent record recover reduce refer refund region register reject
relative release reload remain remember remote remove rename render repair repeat replace replica reply report repository request require
reset resolve resource response rest restart result resume retry return reuse review right risk role roll room root round route router row rule
run safe same save scale scan schedule schema scope score search second secret section secure see select self send separate sequence series
serve server service session set several share shell short should show side sign signal similar simple since single site size skip sleep slot
slow small snapshot so socket some sort source space speak spec split stable stack stage stale start state status stay step still stock stop
storage store stream string strong structure style submit subject success such suggest suite sum summary supply support sure survive switch
symbol sync table tag take target task team tell template term test text than that the their them then there these they thing think third this
those thread three through ticket time timeout title to today together token too tool top total trace track traffic transfer tree trigger trip
true trust try turn two type under unit unknown unless until up update upload upper usage use user valid value variable verdict verify
version very view visible volume vote wait walk want warm warning was watch way we weather week weight well were what when where which while
who whole why wide will window wire with within without word work worker workspace world worth would wrap write wrong year yet you your zone
"""
_WORDS = tuple(_WORD_LIST.split())

_COMMANDS = (
    "git diff --stat HEAD~1",
    "rm -rf build dist",
    "grep -rn 'TODO' src | head -20",
    "cat /etc/hosts",
    "curl -fsSL http://127.0.0.1:8000/health",
    "python -m pytest -q tests/unit",
    'find . -name "*.py" -mtime -1 -print0 | xargs -0 wc -l',
    "docker compose up -d && docker compose logs --tail=50",
    "sudo systemctl restart nginx",
    "ls -la $HOME/.config",
    "kubectl get pods -n default -o wide",
    "sed -i 's/old/new/g' config.yaml",
)


def _prose(r: random.Random) -> str:
    sentences: list[str] = []
    for _ in range(r.randint(2, 5)):
        words = [r.choice(_WORDS) for _ in range(r.randint(5, 14))]
        words[r.randrange(len(words))] += r.choice(("", ",", ";", ":"))
        sentences.append(" ".join(words).capitalize() + r.choice((".", ".", ".", "?", "!")))
    return " ".join(sentences)


def _name(r: random.Random) -> str:
    return "_".join(r.choice(_WORDS) for _ in range(r.randint(1, 3)))


def _schema(r: random.Random) -> str:
    fields = {_name(r): {"type": r.choice(("string", "integer", "boolean")), "description": _prose(r)} for _ in range(r.randint(1, 4))}
    parameters = {"type": "object", "properties": fields, "required": sorted(fields)[:1], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": _name(r), "description": _prose(r), "parameters": parameters}}
    return json.dumps(tool, indent=r.choice((None, 2)))


def _call(r: random.Random) -> str:
    arguments = {_name(r): r.choice((r.randint(0, 9999), _name(r), True, False, None, r.choice(_COMMANDS))) for _ in range(r.randint(1, 3))}
    return json.dumps({"name": _name(r), "arguments": arguments})


def _shell(r: random.Random) -> str:
    return f"$ {r.choice(_COMMANDS)}\n{r.choice(_COMMANDS)}\n./{_name(r)}.sh --{r.choice(_WORDS)} {r.randint(1, 500)} > /tmp/{_name(r)}.log 2>&1"


def _python(r: random.Random) -> str:
    return (
        f"import {r.choice(_WORDS)}\n\n\ndef {_name(r)}({_name(r)}: str, {_name(r)}: int = {r.randint(0, 99)}) -> None:\n"
        f'    """{_prose(r)}"""\n    for {r.choice(_WORDS)} in range({r.randint(1, 99)}):\n'
        f"        if {_name(r)} is not None:\n            return self.{_name(r)}({_name(r)})\n"
    )


def _traceback(r: random.Random) -> str:
    return (
        f'Traceback (most recent call last):\n  File "/app/{_name(r)}.py", line {r.randint(1, 900)}, in {_name(r)}\n'
        f"    raise {r.choice(('ValueError', 'KeyError', 'RuntimeError', 'TimeoutError'))}({_name(r)!r})\n"
    )


def _diff(r: random.Random) -> str:
    return (
        f"--- a/{_name(r)}.py\n+++ b/{_name(r)}.py\n@@ -{r.randint(1, 90)},7 +{r.randint(1, 90)},9 @@\n-    {_name(r)}\n+    {_name(r)}\n"
    )


def _labels(r: random.Random) -> str:
    return " ".join(r.choice(LABEL_WORDS) for _ in range(12)) + "\n" + "\n".join(r.choice(LABEL_WORDS) for _ in range(6))


def training_text(pieces: int = 3000) -> Iterator[str]:
    """Yield `pieces` short documents, the same ones on every run."""
    r = random.Random(20261120)
    makers: list[Callable[[random.Random], str]] = [_prose, _prose, _schema, _call, _shell, _python, _traceback, _diff, _labels]
    for i in range(pieces):
        yield makers[i % len(makers)](r)
