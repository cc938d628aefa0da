"""A value that a JSON schema allows: what a constrained reply holds when the script says nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from warmgate.standin.shapes import as_list, as_object, is_list

Pick: TypeAlias = Callable[[Sequence[str], "str | None"], int]
"""Which of several texts to take, given the name of the field they are for."""

MAX_DEPTH = 24


def sample(schema: Any, pick: Pick) -> Any:
    """The smallest value of a schema that still has every declared property.

    Enumerations are decided by ``pick``; numbers take the middle of their range, else the least allowed. Patterns and formats are not
    looked at.
    """
    return _sample(schema, schema, pick, None, 0)


def _sample(schema: Any, root: Any, pick: Pick, name: str | None, depth: int) -> Any:
    spec = as_object(schema)
    if not spec or depth > MAX_DEPTH:
        return None
    if "$ref" in spec:
        return _sample(_resolve(root, spec["$ref"]), root, pick, name, depth + 1)
    if "const" in spec:
        return spec["const"]
    if values := as_list(spec.get("enum")):
        return values[pick([str(value) for value in values], name)]
    for several in ("anyOf", "oneOf"):
        if alternatives := as_list(spec.get(several)):
            return _sample(alternatives[0], root, pick, name, depth + 1)
    if parts := as_list(spec.get("allOf")):
        merged: dict[str, Any] = {key: value for key, value in spec.items() if key != "allOf"}
        for part in map(as_object, parts):
            merged |= as_object(_resolve(root, part["$ref"])) if "$ref" in part else part
        return _sample(merged, root, pick, name, depth + 1)
    kind = spec.get("type")
    if is_list(kind):
        kind = next(iter(as_list(kind)), None)
    if kind == "object" or (kind is None and "properties" in spec):
        return {key: _sample(value, root, pick, key, depth + 1) for key, value in as_object(spec.get("properties")).items()}
    if kind == "array":
        return [_sample(spec.get("items"), root, pick, name, depth + 1) for _ in range(min(int(spec.get("minItems") or 0), 64))]
    return _scalar(kind, spec, pick, name)


def _scalar(kind: Any, spec: Mapping[str, Any], pick: Pick, name: str | None) -> Any:
    if kind == "boolean":
        return pick(["true", "false"], name) == 0
    if kind in ("integer", "number"):
        low, high = spec.get("minimum"), spec.get("maximum")
        value = (low + high) / 2 if low is not None and high is not None else low if low is not None else min(0, high or 0)
        return int(value) if kind == "integer" else value
    if kind == "string":
        return "x" * int(spec.get("minLength") or 0)
    return None


def _resolve(root: Any, reference: str) -> Any:
    place = root
    for part in reference.removeprefix("#/").split("/"):
        place = as_object(place).get(part)
    return place
