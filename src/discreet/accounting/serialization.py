"""Conversion of guarantees and records to plain values for JSON, and back.

A guarantee or record is restored from its numbers, never from its sentences. The constructors of
:mod:`discreet.core.guarantee` and of the records reject a number that does not follow from the mechanisms.
This module rejects a sentence that does not match the numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from discreet.accounting.text import guarantee_sentences as sentences
from discreet.accounting.text.sentence_templates import VERSION, version_of
from discreet.core import checks
from discreet.core.events import Coordinate, MechanismRecord
from discreet.core.guarantee import Guarantee
from discreet.core.registry import record_class

if TYPE_CHECKING:
    from discreet.core.protocols import Record

# ------------------------------------------------------------------------------ records

_SHAPES = {"scales": dict, "sensitivities": dict, "alphabets": dict, "exchanges": list, "mechanism": str}


def plain_record(record: Any, kind: str) -> dict[str, Any]:
    """Return the kind of a record and its fields as plain values."""
    table: dict[str, Any] = {"kind": kind}
    for item in fields(record):
        value = getattr(record, item.name)
        table[item.name] = dict(value) if isinstance(value, Mapping) else value
    return table


def record_fields(cls: type, kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a record without its key ``kind``.

    Raises ``ValueError`` unless the kind, the keys and the container types of the table are those of the
    class.
    """
    names = {"kind", *(item.name for item in fields(cls))}
    wrong = names.symmetric_difference(table)
    if wrong:
        raise ValueError(f"record: key {min(wrong)!r} is {'missing' if min(wrong) in names else 'unknown'}")
    checks.choice("record: kind", table["kind"], (kind,))
    for name, shape in _SHAPES.items():
        if name in table and not isinstance(table[name], shape):
            raise ValueError(f"record: {name} = {checks.said(table[name])}: must be a {shape.__name__}")
    return {name: value for name, value in table.items() if name != "kind"}


def _float(name: str, value: Any) -> float:
    if type(value) is not float:
        raise ValueError(f"record: {name} = {checks.said(value)}: must be a floating-point number")
    return value


def _coordinate(plain: Any) -> Coordinate:
    types = [type(part) for part in plain] if isinstance(plain, list) else []
    if types != [str, float, float, int]:
        raise ValueError(
            f"record: exchanges hold {checks.said(plain)}: must be [noise, scale, shift, count] each"
        )
    noise, scale, shift, count = plain
    return noise, scale, shift, count


def records_from_dict(plain: Sequence[Mapping[str, Any]]) -> tuple[Record, ...]:
    """Return the records from the values that ``to_dict`` returned.

    The records are exactly equal to the original records. Raises ``ValueError`` for an unknown kind, key or
    type.
    """
    found = []
    for table in plain:
        if not isinstance(table, Mapping):
            raise ValueError(f"records hold {checks.said(table)}: must be tables")
        found.append(record_class(table.get("kind")).from_dict(table))
    return tuple(found)


def of_noise(record: MechanismRecord) -> dict[str, Any]:
    """Return a record of noise in sums as plain values that JSON stores without loss of digits."""
    table = plain_record(record, "noise")
    table["exchanges"] = [[list(coordinate) for coordinate in way] for way in record.exchanges]
    return table


def noise_fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments of the record that :func:`of_noise` wrote.

    Raises ``ValueError`` for a wrong key or type.
    """
    given = record_fields(MechanismRecord, "noise", table)
    for name in ("scales", "sensitivities"):
        given[name] = {str(family): _float(f"{name}[{family!r}]", x) for family, x in given[name].items()}
    given["joint"] = _float("joint", given["joint"])
    given["exchanges"] = tuple(tuple(_coordinate(one) for one in way) for way in given["exchanges"])
    return given


# ------------------------------------------------------------------------------ guarantees

_PLAIN = (
    "trust", "epsilon", "delta", "rho", "mu", "epsilon_nominal", "users_public", "randomness", "episodes",
    "reason",
)  # fmt: skip
_RENDERED = ("unit", "neighbours", "holds_if_seed_is_guessed", "composition", "statement")
_KEYS = (
    "trust", "epsilon", "delta", "rho", "mu", "exceeds", "epsilon_nominal", "unit", "neighbours",
    "users_public", "randomness", "holds_if_seed_is_guessed", "composition", "statement", "episodes",
    "reason", "mechanisms", "kinds",
)  # fmt: skip
_ADDED = {5: ("exceeds",)}
"""For each version of the statement: the keys that this version added."""


def _keys(version: int) -> tuple[str, ...]:
    """Return the keys of a guarantee's table in this version of the statement."""
    later = {name for added, names in _ADDED.items() if added > version for name in names}
    return tuple(name for name in _KEYS if name not in later)


def of_guarantee(guarantee: Guarantee, version: int = VERSION) -> dict[str, Any]:
    """Return the guarantee as a table of plain values: its numbers, the mechanisms, and sentences.

    The value None becomes null in JSON. ``version`` is the version of the statement. The version determines
    the keys and sentences of the table.
    """
    table: dict[str, Any] = {name: getattr(guarantee, name, None) for name in _keys(version)}
    table["neighbours"] = _neighbours(guarantee, version)
    table["composition"] = list(guarantee.composition)
    table["statement"] = sentences.statement(guarantee, version)
    table["mechanisms"] = [record.to_dict() for record in guarantee.records]
    table["kinds"] = [
        {"users": words, "guarantee": of_guarantee(one, version)} for words, one in guarantee.kinds
    ]
    return table


def _neighbours(guarantee: Guarantee, version: int) -> str:
    """Return the neighbouring relation as text. Before version 6, users could not return."""
    return sentences.neighbours(guarantee.episodes) if version < 6 else guarantee.neighbours


def guarantee_fields(table: Any, nested: Callable[[Any], Guarantee]) -> dict[str, Any]:
    """Return the constructor arguments of the guarantee that :func:`of_guarantee` wrote.

    ``nested`` builds the guarantees in ``kinds``. Raises ``ValueError`` for a missing or unknown key.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"guarantee = {checks.said(table)}: must be a table")
    if "composition" in table and "mechanisms" not in table:
        raise ValueError(
            "guarantee: key 'mechanisms' is missing: an earlier version wrote sentences only, and no "
            "guarantee is made of sentences"
        )
    keys = _keys(version_of(table))
    wrong = set(keys).symmetric_difference(table)
    if wrong:
        raise ValueError(f"guarantee: key {min(wrong)!r} is {'missing' if min(wrong) in keys else 'unknown'}")
    for name in ("mechanisms", "kinds"):
        if not isinstance(table[name], list):
            raise ValueError(f"{name} = {checks.said(table[name])}: must be a list")
    kinds = []
    for one in table["kinds"]:
        if not isinstance(one, Mapping) or set(one) != {"users", "guarantee"}:
            raise ValueError(f"kinds hold {checks.said(one)}: must be objects of users and guarantee")
        kinds.append((str(one["users"]), nested(one["guarantee"])))
    given = {name: table[name] for name in _PLAIN}
    return given | {"records": records_from_dict(table["mechanisms"]), "kinds": tuple(kinds)}


def check_sentences(found: Guarantee, table: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless every sentence and bound in ``table`` matches the guarantee ``found``.

    A table of an earlier version must have the sentences of that version.
    """
    version = version_of(table)
    if version > 4 and not _same_bound(found.exceeds, table["exceeds"]):
        raise ValueError(f"exceeds = {checks.said(table['exceeds'])}: must be {found.exceeds!r}")
    for name in _RENDERED:
        own, stored = getattr(found, name), table[name]
        if name == "statement":
            own = sentences.statement(found, version)
        if name == "neighbours":
            own = _neighbours(found, version)
        if not same_up_to_rounding(own, stored):
            raise ValueError(f"{name} = {checks.said(stored)}: is not the sentence of these numbers")


_DECIMAL = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")
_ROUNDING = 1e-9  # relative tolerance, because the last digits of sums differ between processors


def same_up_to_rounding(own: Any, stored: Any) -> bool:
    """Return True if two plain values are equal. Floats, also inside text, may differ by rounding errors."""
    if isinstance(own, Mapping) and isinstance(stored, Mapping):
        return set(own) == set(stored) and all(same_up_to_rounding(own[name], stored[name]) for name in own)
    if isinstance(own, list | tuple) and isinstance(stored, list | tuple):
        return len(own) == len(stored) and all(map(same_up_to_rounding, own, stored))
    if isinstance(own, bool | str) or isinstance(stored, bool | str):
        if type(own) is not type(stored):
            return False
    elif isinstance(own, int | float) and isinstance(stored, int | float):
        whole = isinstance(own, int) and isinstance(stored, int)
        return own == stored or (not whole and math.isclose(own, stored, rel_tol=_ROUNDING))
    if isinstance(own, str):
        numbers = zip(_DECIMAL.findall(own), _DECIMAL.findall(stored), strict=False)
        return _DECIMAL.sub("#", own) == _DECIMAL.sub("#", stored) and all(
            math.isclose(float(one), float(other), rel_tol=_ROUNDING) for one, other in numbers
        )
    return bool(own == stored)


def _same_bound(own: Mapping[str, float] | None, stored: Any) -> bool:
    """Return True if two values of ``exceeds`` agree.

    The bound has three digits. The last digit may differ, because another machine may have rounded it up.
    """
    if own is None or not isinstance(stored, Mapping):
        return own is stored
    return set(own) == set(stored) and all(
        type(stored[name]) is float and math.isclose(stored[name], value, rel_tol=0.01)
        for name, value in own.items()
    )
