"""JSON Schema of ``statement.json``, and a validator for the schema keywords that are used.

Objects allow only the keys that the schema names. The schema does not determine the content of three parts:
the operator, the approver, and the options of the algorithm. The statement contains a hash of these options.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from discreet.accounting.text.sentence_templates import OLDEST, VERSION
from discreet.core import checks
from discreet.data.schema import ALL_FACTS, DECLARED, Columns
from discreet.learners.ope.verdict import KINDS

__all__ = [
    "ADDED", "FORMAT", "JSON_SCHEMA", "OLDEST", "SIGNATURES_SCHEMA", "VERSION", "of_version", "ordered",
    "read_json", "violations",
]  # fmt: skip

FORMAT = "discreet privacy statement"
# Versions 1 to 3 of the statement can no longer be read. In version 1, guarantees were texts. In version 2,
# the sentence was about one release, and the statement contained the command. Version 3 stated no
# declarations and no signer of the limit. Version 4 can be read; its sentences about epsilon, delta, rho and
# mu are different (discreet.accounting.text.earlier_sentences). Version 5 has no query.
ADDED: Mapping[int, tuple[str, ...]] = {
    5: ("guarantee.exceeds", "verdict", "data.reward.censored"),
    6: ("query",),
}
"""Keys that each version of the statement added, as dotted paths. Earlier versions do not have these keys."""

_TEXT = {"type": "string"}
# The pattern excludes control characters, marks that reverse or hide the text after them, and surrogates.
_LINE = {
    "type": "string",
    "pattern": r"^[^\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ud800-\udfff]{0,500}$",
}
_HASH = {"type": "string", "pattern": r"^(sha256:)?[0-9a-f]{64}$"}
_NUMBER = {"type": "number"}
_MAYBE = {"type": ["number", "null"]}
_RATE = {"type": "number", "minimum": 0, "maximum": 1}
_COUNT = {"type": "integer", "minimum": 1}
_FACTOR = {"type": "number", "minimum": 1}
_P = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_FLAG = {"type": "boolean"}
_RECORD = {"type": "object", "required": ["kind"]}
_SUM = {"type": ["number", "string", "null"]}
_SUMS = (
    "reservations", "epsilon", "delta", "method", "rule", "pure", "mu", "rho", "limit_epsilon", "limit_delta",
    "limit_key",
)  # fmt: skip
_TOTALS = {"type": "object", "properties": dict.fromkeys(_SUMS, _SUM), "additionalProperties": _SUM}


def _table(properties: Mapping[str, Any], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Return the schema of an object that allows exactly these keys. Keys in ``optional`` can be missing."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}


_ATTACKER = _table(
    {
        "advantage": _RATE,
        "tests": _list(_table({"false_positives": _RATE, "true_positives": _RATE})),
        "priors": _list(
            _table(
                {
                    "prior": _RATE,
                    "right_guess": _RATE,
                    "posterior_of_any_outcome": _MAYBE,
                    "posteriors": _list(_table({"false_positives": _RATE, "posterior": _RATE})),
                }
            )
        ),
    }
)

_MECHANISM = _table(
    {
        "description": _TEXT,
        "loss": _NUMBER,
        "families": _list(
            _table(
                {
                    "family": _LINE,
                    "norm": {"enum": ["l1", "l2"]},
                    "sensitivity": _NUMBER,
                    "scale": _NUMBER,
                    "std": _NUMBER,
                    "cells": {"type": ["integer", "null"], "minimum": 1},
                }
            )
        ),
        "source_of_randomness": _TEXT,
        "proof": _list(_TEXT),
        "record": _RECORD,
    }
)

JSON_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": FORMAT,
    **_table(
        optional=("second_group",),
        properties={
            "format": {"const": FORMAT},
            "version": {"const": VERSION},
            "synthetic": _FLAG,
            "replanned": _FLAG,
            "date": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}(T[0-9:.]+(Z|[+-]\d{2}:\d{2}))?$"},
            "purpose": _LINE,
            "sentence": _TEXT,
            "warnings": _list(_TEXT),
            "population": _table(
                optional=("groups",),
                properties={
                    "dataset": _LINE,
                    "unit": _LINE,
                    "users": _COUNT,
                    "users_public": _FLAG,
                    "episodes_per_user": _COUNT,
                    "contribute": {"enum": ["error", "random"]},
                    "horizon": _COUNT,
                    "states": _COUNT,
                    "actions": _COUNT,
                    "pairs": _COUNT,
                    "provenance": {
                        "type": "object",
                        "properties": dict.fromkeys(ALL_FACTS, _LINE),
                        "additionalProperties": False,
                    },
                    "groups": _table({"column": _LINE, "labels": _list(_LINE)}),
                    "schema": _HASH,
                },
            ),
            "data": _table(
                {
                    "columns": _table({part.name: _LINE for part in fields(Columns)}),
                    "first_step": {"enum": [0, 1]},
                    "reward": _table(
                        {
                            "low": _NUMBER,
                            "high": _NUMBER,
                            "source": {"enum": ["column", "known", "outcomes"]},
                            "outcomes": {"type": ["object", "null"], "additionalProperties": _NUMBER},
                            "censored": {"anyOf": [{"type": "null"}, _TEXT]},
                            "return_low": _NUMBER,
                            "return_high": _NUMBER,
                        }
                    ),
                    "declared": _table({name: {"anyOf": [{"type": "null"}, _LINE]} for name in DECLARED}),
                }
            ),
            "guarantee": _table(
                {
                    "trust": _TEXT,
                    "epsilon": _MAYBE,
                    "delta": _RATE,
                    "rho": _MAYBE,
                    "mu": _MAYBE,
                    "exceeds": {"anyOf": [{"type": "null"}, _table({"epsilon": _NUMBER, "at_most": _RATE})]},
                    "epsilon_nominal": _MAYBE,
                    "unit": _TEXT,
                    "neighbours": _TEXT,
                    "users_public": _FLAG,
                    "randomness": {"enum": ["secure", "seeded"]},
                    "holds_if_seed_is_guessed": _FLAG,
                    "composition": _list(_TEXT),
                    "statement": _TEXT,
                    "episodes": _COUNT,
                    "reason": {"type": ["string", "null"]},
                    "mechanisms": _list(_RECORD),
                    "kinds": _list({"type": "object", "required": ["users", "guarantee"]}),
                }
            ),
            "delta": _table(
                {
                    "delta": _RATE,
                    "per_user": _RATE,
                    "ratio": _NUMBER,
                    "verdict": {"enum": ["pure", "small", "warn", "none"]},
                }
            ),
            "attacker": _ATTACKER,
            "alone": {"anyOf": [{"type": "null"}, _ATTACKER]},
            "groups": _list(
                _table(
                    {
                        "people": _COUNT,
                        "epsilon": _MAYBE,
                        "delta": _RATE,
                        "rho": _MAYBE,
                        "mu": _MAYBE,
                        "advantage": _RATE,
                    }
                )
            ),
            "covered": _list(_TEXT),
            "not_covered": _list(_TEXT),
            "mechanisms": _list(_MECHANISM),
            # users of the second group, who answered a question about the policy; absent without such a group
            "second_group": _table(
                {"share": _RATE, "users": _COUNT, "users_of_release": _COUNT, "mechanism": _MECHANISM}
            ),
            "query": {
                "anyOf": [
                    {"type": "null"},
                    _table(
                        {
                            "kind": {"enum": ["counts", "first visits", "linear sums"]},
                            "steps": _COUNT,
                            "states": _COUNT,
                            "actions": _COUNT,
                            "pooled": _FLAG,
                            "first": _FLAG,
                            "start": {"type": "null"},
                            "episodes": _COUNT,
                            "families": {
                                "type": "object",
                                "additionalProperties": _table({"grid": _MAYBE, "cells": _COUNT}),
                            },
                            "features": {"type": ["object", "null"]},
                            "questions": {"type": ["array", "null"]},
                            "derivation": _TEXT,
                        }
                    ),
                ]
            },
            "verdict": {  # null for learners other than decision-points
                "anyOf": [
                    {"type": "null"},
                    _table(
                        {
                            "kind": {"enum": list(KINDS)},
                            "hidden_cause": _table(
                                {
                                    "asked": _FACTOR,
                                    "each_step": _FACTOR,
                                    "lasting": _FACTOR,
                                    "recorded": _FACTOR,
                                }
                            ),
                            "contrasts_p": _P,
                            "levels_p": _P,
                            "covered": _RATE,
                            "ended": _RATE,
                            "censored": {
                                "anyOf": [{"type": "null"}, _table({"share": _RATE, "deviation": _RATE})]
                            },
                        }
                    ),
                ]
            },
            "configuration": _table(
                {
                    "algorithm": _LINE,
                    "options": {"type": "object", "additionalProperties": {"additionalProperties": {}}},
                    "hash": _HASH,
                }
            ),
            "files": {"type": "object", "additionalProperties": _HASH},
            "versions": {
                "type": "object",
                "properties": dict.fromkeys(("discreet", "python", "numpy", "matplotlib"), _LINE),
                "additionalProperties": _LINE,
            },
            "ledger": {
                "anyOf": [
                    {"type": "null"},
                    _table(
                        {
                            "name": _LINE,
                            "identity": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
                            "new": _FLAG,
                            "dataset": _LINE,
                            "number": _COUNT,
                            "head": _HASH,
                            "before": _TOTALS,
                            "after": _TOTALS,
                            "together": _TOTALS,
                        }
                    ),
                ]
            },
            "operator": _LINE,
            "approval": _LINE,
            "fingerprint": _HASH,
        },
    ),
}

_TIME = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\+00:00$"}
SIGNATURES_SCHEMA: dict[str, Any] = _table(
    {
        "format": {"const": "discreet signatures"},
        "version": {"const": 1},
        "signatures": _list(
            _table(
                {
                    "name": _LINE,
                    "key": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                    "time": _TIME,
                    "fingerprint": _HASH,
                    "files": {"type": "object", "additionalProperties": _HASH},
                    "signature": {"type": "string", "pattern": "^[0-9a-f]{128}$"},
                }
            )
        ),
    }
)


def read_json(path: Path) -> Any:
    """Parse a JSON file. Raises ``ValueError`` for duplicate keys, and for NaN and infinite numbers."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a key occurs twice in one object")
        return table

    def constant(text: str) -> Any:
        raise ValueError(f"{text} is not a number of JSON")

    return json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)


def ordered(value: Any, schema: Mapping[str, Any] = JSON_SCHEMA) -> Any:
    """Return a JSON value with its keys in the order of the schema, so that a document has only one text
    form.

    Keys that the schema does not name are sorted. Objects for which the schema names no keys are unchanged.
    """
    if isinstance(value, dict):
        if not schema.keys() & {"properties", "additionalProperties", "anyOf"}:
            return value
        known = dict(schema.get("properties", {}))
        for part in schema.get("anyOf", ()):
            known |= part.get("properties", {})
        more = schema.get("additionalProperties")
        rest = more if isinstance(more, Mapping) else {}
        keys = [*(key for key in known if key in value), *sorted(key for key in value if key not in known)]
        return {key: ordered(value[key], known.get(key, rest)) for key in keys}
    if isinstance(value, list):
        return [ordered(item, schema.get("items", {})) for item in value]
    return value


_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),), "boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,),
    "array": (list,), "object": (dict,),
}  # fmt: skip


def _lacked(version: int) -> Iterator[list[str]]:
    """Yield the paths of the keys that versions after ``version`` added."""
    for added, paths in ADDED.items():
        if added > version:
            yield from (path.split(".") for path in paths)


def of_version(document: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return a copy of a document without the keys that the given earlier version does not have.

    document : a statement in the newest version.
    """
    found = dict(document)
    for *parents, last in _lacked(version):
        table = found
        for name in parents:
            table[name] = table = dict(table[name])
        table.pop(last, None)
    return found


@lru_cache(maxsize=8)
def _schema(version: int) -> dict[str, Any]:
    """Return the JSON Schema of statements of the given version."""
    found = copy.deepcopy(JSON_SCHEMA)
    found["properties"]["version"]["const"] = version
    for *parents, last in _lacked(version):
        table = found
        for name in parents:
            table = table["properties"][name]
        del table["properties"][last]
        table["required"].remove(last)
    return found


def violations(value: Any, schema: Mapping[str, Any] | None = None, path: str = "$") -> Iterator[str]:
    """Yield a description, with location, of each place where a parsed JSON value violates the schema.

    The supported keywords are ``type``, ``const``, ``enum``, ``pattern``, ``minimum`` and ``maximum``. The
    keywords ``properties``, ``required``, ``additionalProperties``, ``items`` and ``anyOf`` are also
    supported.

    schema : by default, the schema of statements in the version that the document states.
    path : location of the value in the document.
    """
    if schema is None:
        stated = value.get("version") if isinstance(value, dict) else None
        read = type(stated) is int and OLDEST <= stated < VERSION
        schema = _schema(stated) if read else JSON_SCHEMA
    if "anyOf" in schema:
        broken = [list(violations(value, one, path)) for one in schema["anyOf"]]
        if all(broken):
            yield from min(broken, key=len)
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        if not any(type(value) in _TYPES[name] for name in names):
            yield f"{path} = {checks.said(value)}: must be {' or '.join(names)}"
            return
    if "const" in schema and (type(value), value) != (type(schema["const"]), schema["const"]):
        yield f"{path} = {checks.said(value)}: must be {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path} = {checks.said(value)}: must be one of {schema['enum']}"
    if isinstance(value, str) and not re.fullmatch(schema.get("pattern", r"(?s)^.*$"), value):
        yield f"{path} = {checks.said(value)}: is not written as it must be"
    if isinstance(value, int | float) and not (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
    ):
        yield f"{path} = {checks.said(value)}: is out of range"
    if isinstance(value, dict):
        yield from _of_object(value, schema, path)
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from violations(item, schema["items"], f"{path}[{i}]")


def _of_object(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{path}.{key}: is missing"
    more = schema.get("additionalProperties", True)
    for key, item in value.items():
        if key in known:
            yield from violations(item, known[key], f"{path}.{key}")
        elif more is False:
            yield f"{path}.{key}: is unknown"
        elif isinstance(more, Mapping):
            yield from violations(item, more, f"{path}.{key}")
