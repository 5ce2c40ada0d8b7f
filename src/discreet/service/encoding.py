"""Encodings of plans and releases: an exact binary form for the database, and JSON for clients.

The exact form has the format of saved sessions (:mod:`discreet.mechanisms.saved_state.state_file`), with
another magic number.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from typing import Any

import numpy as np

from discreet.core.releases import Plan, Release
from discreet.mechanisms.saved_state import state_file as saved_state
from discreet.mechanisms.saved_state.save import CLASSES

__all__ = ["canonical", "digest", "exact", "of_exact", "plan_table", "policy_of", "release_table"]

_LAYOUT = saved_state.FileLayout(b"\x89discreet-shown\n", 1, "a public release")


def digest(content: bytes) -> str:
    """Return the SHA-256 of bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def canonical(content: Any) -> bytes:
    """Return a value as JSON in a canonical form, for signatures and comparison."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode()


def text_of(form: bytes) -> str | None:
    """Return the base64 text in which a form is published, or None if ``form`` is empty."""
    return base64.b64encode(form).decode() if form else None


def of_text(text: Any) -> bytes:
    """Decode the result of :func:`text_of`. Raises ``ValueError`` if ``text`` is invalid."""
    if not isinstance(text, str):
        raise ValueError("form: must be a text")
    return base64.b64decode(text, validate=True)


def exact(release: Release) -> bytes:
    """Return the exact binary encoding of a release."""
    file = io.BytesIO()
    saved_state.write_content(file, "0" * 32, {"release": release}, CLASSES, _LAYOUT)
    return file.getvalue()


def of_exact(content: bytes) -> Release:
    """Decode the result of :func:`exact`. Raises ``ValueError`` if the bytes are damaged."""
    _, values = saved_state.read_content(io.BytesIO(content), len(content), "release", CLASSES, _LAYOUT)
    found: Release = values["release"]
    return found


def plan_table(plan: Plan, number: int) -> dict[str, Any]:
    """Return a table with a plan's number, users and policy: ``(H, S)`` actions, ``(H, S, A)``
    probabilities, or ``(blocks, p)`` coefficients of contexts with the arrays of the plan's context.
    """
    table = {"number": number, "users": int(plan.users), "policy": np.asarray(plan.policy).tolist()}
    if plan.context:
        table["context"] = {name: np.asarray(one).tolist() for name, one in plan.context.items()}
    return table


def policy_of(table: Any) -> np.ndarray[Any, Any]:
    """Return the policy in the result of :func:`plan_table`, bit for bit.

    JSON preserves every float exactly.
    """
    found = np.array(table["policy"])
    return found.astype(np.int64 if found.dtype.kind in "iu" else np.float64)


def release_table(release: Release, time: str) -> dict[str, Any]:
    """Return a release as JSON values: the noisy sums of every family, and the standard deviations of their
    noise.
    """
    return {
        "number": release.number,
        "users": release.users,
        "time": time,
        "sums": _families(release.estimates),
        "newest": None if release.measurement is None else _families(release.measurement.estimates),
    }


def _families(estimates: Any) -> dict[str, Any]:
    return {
        name: {
            "value": np.asarray(one.value).tolist(),
            "shape": list(np.shape(one.value)),
            "noise_std": float(one.law.std()),
            "covers": int(one.covers),
        }
        for name, one in estimates.items()
    }
