"""A worker's own tokenizer over ``/tokenize`` and ``/detokenize``, and the labels that are one token there.

No local tokenizer can disagree with the server's. Texts asked again and again (a question's, a label's) are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from warmgate.engines._base import Call
from warmgate.engines.http import Http, decode
from warmgate.engines.together import together
from warmgate.errors import NotSupported

REMEMBERED = 4096
"""Texts whose ids are kept per worker."""

Ids = tuple[int, ...]


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Text(msgspec.Struct):
    prompt: str


class Tokenizer:
    """Calls of one worker. Not safe across threads."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._known: OrderedDict[tuple[str | None, str], Ids] = OrderedDict()
        self._endings: dict[tuple[str | None, str], str] = {}

    async def ids(self, text: str, call: Call) -> Ids:
        """The ids of a text without special tokens around it; control tokens written in it become control tokens."""
        key = (call.request.model, text)
        ids = self._known.get(key)
        if ids is None:
            ids = await self._tokenize({"prompt": text, "add_special_tokens": False}, call)
            self._known[key] = ids
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return ids

    async def chat_ids(self, messages: Sequence[Mapping[str, str]], call: Call) -> Ids:
        """The ids of a chat prompt, up to and with its generation prompt, thinking off."""
        kwargs = {"enable_thinking": False, **(call.request.chat_template_kwargs or {})}
        return await self._tokenize({"messages": messages, "add_generation_prompt": True, "chat_template_kwargs": kwargs}, call)

    async def chat_ending(self, call: Call) -> str:
        """The text that follows the last user message in every chat prompt: its end, and the generation prompt."""
        key = (call.request.model, repr(call.request.chat_template_kwargs))
        if key not in self._endings:
            one, two = await together([self.chat_ids([{"role": "user", "content": word}], call) for word in ("x", "y")])
            same = next((i for i, (a, b) in enumerate(zip(reversed(one), reversed(two), strict=False)) if a != b), min(len(one), len(two)))
            body = self._with_model({"tokens": one[len(one) - same :]}, call)
            raw = await self._http.post("/detokenize", body, deadline=call.deadline, request_id=f"{call.request_id}-text")
            text: _Text = decode(raw, _Text, worker=self._http.worker, request_id=call.request_id)
            self._endings[key] = text.prompt
        return self._endings[key]

    async def _tokenize(self, body: dict[str, Any], call: Call) -> Ids:
        raw = await self._http.post(
            "/tokenize", self._with_model(body, call), deadline=call.deadline, request_id=f"{call.request_id}-tokens"
        )
        tokens: _Tokens = decode(raw, _Tokens, worker=self._http.worker, request_id=call.request_id)
        return tuple(tokens.tokens)

    @staticmethod
    def _with_model(body: dict[str, Any], call: Call) -> bytes:
        return msgspec.json.encode(body if call.request.model is None else {"model": call.request.model, **body})

    async def labels(self, sets: Sequence[Sequence[str]], count: int, ending: str, call: Call) -> tuple[tuple[str, ...], Ids]:
        """``count`` labels that are one distinct token each right after ``ending``, and these tokens.

        Args:
            sets: Candidates, best set first. A label that is not one token is passed over within its set; all come from one set.
            count: How many are needed.
            ending: The text before the label.
            call: The call they are for.

        Raises:
            NotSupported: No set has enough.
        """
        before = await self.ids(ending, call)
        best: tuple[int, Sequence[str]] = (0, ())
        for candidates in sets:
            # After a space or markup the bare label continues; after a word it would glue on, and the model writes a space first.
            spaces = ("", " ") if not ending or ending[-1] in " \n>]" else (" ", "")
            for space in spaces:
                found: dict[int, str] = {}
                for start in range(0, len(candidates), count):  # no more requests than needed
                    batch = candidates[start : start + count]
                    longer = await together([self.ids(ending + space + label, call) for label in batch])
                    for label, ids in zip(batch, longer, strict=True):
                        if ids[:-1] == before and ids[-1] not in found and len(found) < count:
                            found[ids[-1]] = label
                    if len(found) == count:
                        return tuple(found.values()), tuple(found)
                best = max(best, (len(found), tuple(found.values())))
        raise NotSupported(
            f"only {best[0]} of {count} labels are one token after this prompt: {' '.join(best[1]) or 'none'}",
            where=self._http.worker,
            mend="ask with fewer options, or use round_trip",
            request_id=call.request_id,
        )
