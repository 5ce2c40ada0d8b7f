"""Signatures of a release's folder, in the file ``signatures.json``.

A signature covers the statement's fingerprint and the SHA-256 of the files that the statement does not name.
These files are ``statement.json`` and its pages, with their content at the time of signing.
``statement.json`` names all other files with their hashes. So a signature covers the whole folder. After
signing, neither the files nor the free lines may change. A second signature covers the same bytes. The signed
content also includes the key, the name of the key's holder, and the time. A signature is not valid for
another statement.

This module defines the content of ``signatures.json`` and checks it. :mod:`discreet.pipeline.approve` signs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from discreet.ledger import signatures
from discreet.ledger.signatures import Kind
from discreet.reports.statement import PAGES, file_hash
from discreet.reports.statement_page import JSON_NAME
from discreet.reports.statement_schema import SIGNATURES_SCHEMA, ordered, read_json, violations

SIGNATURES_NAME = "signatures.json"
Found = tuple[str, Any, Any, bool]
"""Result of a comparison: its name, the stated value, the found value, and True if the two values agree."""


def signed_hashes(folder: Path, names: Sequence[str] = (JSON_NAME, *PAGES)) -> dict[str, str]:
    """Return the SHA-256 of the given files of a folder, by name.

    By default, these are the statement and its pages. The statement contains the hashes of all other files.
    """
    return {name: file_hash(folder / name) for name in names}


def content_of(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return the signed content of an entry: the whole entry except the signature."""
    return {key: value for key, value in one.items() if key != "signature"}


def text_of_signatures(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of ``signatures.json`` with the given entries."""
    document = {"format": "discreet signatures", "version": 1, "signatures": list(entries)}
    return json.dumps(ordered(document, SIGNATURES_SCHEMA), ensure_ascii=False, indent=1) + "\n"


def read_signatures(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of ``signatures.json``, or an empty list if the file does not exist.

    Raises ``ValueError`` if the file is invalid.
    """
    path = folder / SIGNATURES_NAME
    if not path.exists() and not path.is_symlink():
        return []
    document = read_json(path)
    broken = next(violations(document, SIGNATURES_SCHEMA), None)
    if broken is not None:
        raise ValueError(f"{SIGNATURES_NAME}: {broken}")
    entries: list[dict[str, Any]] = document["signatures"]
    if path.read_bytes() != text_of_signatures(entries).encode():
        raise ValueError(f"{SIGNATURES_NAME}: is not as the library writes it (other spaces or order)")
    return entries


def found_in(
    folder: Path, fingerprint: str, public_keys: Sequence[str],
    names: Sequence[str] = (JSON_NAME, *PAGES), kind: Kind = "discreet statement, 1",
) -> Iterator[Found]:  # fmt: skip
    """Yield the results of all comparisons that verify the signatures of a folder.

    Every signature is compared with its key, the statement and the files. It is also checked that no key
    signed twice, and that each of the given public keys has signed.
    """
    entries = read_signatures(folder)
    hashes = signed_hashes(folder, names) if entries else {}
    good = set()
    for number, one in enumerate(entries, 1):
        name = f"signature {number}, of {one['name']!r}"
        valid = signatures.is_valid(one["key"], kind, content_of(one), one["signature"])
        yield f"{name}: by its key", one["key"], one["key"] if valid else "of another key or text", valid
        same = one["fingerprint"] == fingerprint
        yield f"{name}: fingerprint", one["fingerprint"], fingerprint, same
        for file in sorted({*one["files"], *hashes}):
            stated, found = one["files"].get(file), hashes.get(file)
            yield f"{name}: {file}", stated, found, stated == found
        if valid and same and one["files"] == hashes:
            good.add(one["key"])
    keys = [one["key"] for one in entries]
    yield "signatures: keys that signed once", len(keys), len(set(keys)), len(keys) == len(set(keys))
    for key in public_keys:
        yield f"signed with the key {key}", True, key in good, key in good
