"""How a value is written down, and when two are equal: one rule for all cases.

- Text, integers, flags, and arrays of integers are equal exactly (arrays by SHA-256); but a number in a text
  with more than eight decimals is compared as a float.
- A float is kept with 12 significant digits, and equal within a relative 1e-9 (or an absolute 1e-13, for what
  is zero but for rounding).
- An array of floats is kept as its shape, its l1 norm, and four sums of its entries with fixed weights in
  [1/2, 3/2); they are equal within 1e-9 of the norm. A change of one entry by more than that is seen.

Why not the bytes of floats: exp and log of NumPy, of the C library, and matrix products of BLAS differ in the
last digit from one x86-64 processor to the next. And not a hash of rounded floats: a last digit
moves some of a hundred thousand of them across a rounding boundary. Bytes are kept all the same, as ``bits``,
and are compared only by ``python -m tests.goldens --bits``, on the machine that wrote them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("goldens.json")
COMMAND = "make goldens"

_RELATIVE, _ABSOLUTE = 1e-9, 1e-13
_SUMS = 4
_LISTED = 4  # arrays up to this size are kept as they are
LONG = re.compile(r"\d+\.\d{9,}(?:e[-+]?\d+)?")  # a number that a text gives to its last digits
_IRRATIONAL = (0.6180339887498949, 0.4142135623730950, 0.7320508075688772, 0.2360679774997898)


def _digits(x: float) -> float | str:
    return float(f"{x:.12g}") if math.isfinite(x) else str(x)


def _hash(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def _array(array: np.ndarray) -> Any:
    if array.dtype.kind in "biu":
        plain = array.astype(np.int64)
        if plain.size <= _LISTED:
            return {"shape": list(array.shape), "values": plain.ravel().tolist()}
        return {"shape": list(array.shape), "integers": _hash(plain)}
    flat = array.astype(np.float64).ravel()
    bits = _hash(flat + 0.0)  # (one zero)
    if flat.size <= _LISTED or not np.isfinite(flat).all():
        return {"shape": list(array.shape), "values": [_digits(x) for x in flat.tolist()], "bits": bits}
    index = np.arange(1, flat.size + 1)
    sums = [math.fsum((0.5 + np.mod(index * step, 1.0)) * flat) for step in _IRRATIONAL[:_SUMS]]
    norm = math.fsum(np.abs(flat))
    return {
        "shape": list(array.shape), "norm": _digits(norm), "sums": [_digits(x) for x in sums], "bits": bits,
    }  # fmt: skip


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return _digits(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__}: is no value that a golden can hold")


def differences(kept: Any, found: Any, *, bits: bool = False, where: str = "") -> Iterator[str]:
    """What differs, each with its place; both as :func:`plain` made them."""
    if isinstance(kept, dict) and isinstance(found, dict):
        for key in sorted({*kept, *found}):
            if key not in kept or key not in found:
                yield f"{where}.{key}: {'is new' if key not in kept else 'is gone'}"
            elif key == "bits":
                if bits and kept[key] != found[key]:
                    yield f"{where}.bits: {kept[key]} became {found[key]}"
            elif key == "sums" and "norm" in kept:
                most = _RELATIVE * float(kept["norm"]) + _ABSOLUTE
                if any(abs(a - b) > most for a, b in zip(kept[key], found[key], strict=False)):
                    yield f"{where}.sums: {kept[key]} became {found[key]}"
            else:
                yield from differences(kept[key], found[key], bits=bits, where=f"{where}.{key}")
    elif isinstance(kept, list) and isinstance(found, list):
        if len(kept) != len(found):
            yield f"{where}: {len(kept)} entries became {len(found)}"
        for i, (a, b) in enumerate(zip(kept, found, strict=False)):
            yield from differences(a, b, bits=bits, where=f"{where}[{i}]")
    elif _number(kept) and _number(found) and float in (type(kept), type(found)):
        if not abs(kept - found) <= _ABSOLUTE + _RELATIVE * abs(kept):
            yield f"{where}: {kept!r} became {found!r}"
    elif isinstance(kept, str) and isinstance(found, str) and kept != found and LONG.search(kept):
        if LONG.sub("#", kept) != LONG.sub("#", found):
            yield f"{where}: {kept!r} became {found!r}"
        numbers = (map(float, LONG.findall(text)) for text in (kept, found))
        for i, (a, b) in enumerate(zip(*numbers, strict=False)):
            yield from differences(a, b, where=f"{where}, number {i}")
    elif type(kept) is not type(found) or kept != found:
        yield f"{where}: {kept!r} became {found!r}"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read() -> dict[str, Any]:
    """The kept goldens, by name of the case."""
    return dict(json.loads(FILE.read_text("utf-8"))) if FILE.exists() else {}


def write(goldens: Mapping[str, Any]) -> None:
    """Sorted, one case a line, so that a change of one case is a change of one line."""
    lines = (
        f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(goldens[name], ensure_ascii=False)}"
        for name in sorted(goldens)
    )
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
