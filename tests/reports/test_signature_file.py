"""Signatures of a folder: every change is seen."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import discreet as dr
from discreet.reports import signature_file as signing
from discreet.reports.signature_file import SIGNATURES_NAME

from ..pipeline.verify.test_tampering import leaves, other, quick, restore

Place = tuple[Path, Path, dict[str, bytes]]


pytestmark = pytest.mark.usefixtures("figures_are_sketched")


Signed = tuple[Path, str, str, dict[str, bytes]]


def on_signatures(text: bytes, folder: Path, other: Any) -> Iterator[tuple[str, bytes | None]]:
    """What may be done to signatures.json: by hand, by another key's holder, with another folder's."""
    document = json.loads(text)

    def made(change: Callable[[dict[str, Any]], Any]) -> bytes:
        changed = copy.deepcopy(document)
        change(changed)
        return (json.dumps(changed, ensure_ascii=False, indent=1) + "\n").encode()

    def signed_by(one: dict[str, Any], key: Any) -> dict[str, Any]:
        one = {**one, "key": key.public}
        one["signature"] = key.sign("discreet statement, 1", signing.content_of(one))
        return one

    yield "removed", None
    yield "no entry", made(lambda d: d["signatures"].clear())
    yield "twice", made(lambda d: d["signatures"].append(d["signatures"][0]))
    yield "the key swapped", made(lambda d: d["signatures"][0].update(key=other.public))
    yield (
        "another's signature",
        made(lambda d: d["signatures"].__setitem__(0, signed_by(d["signatures"][0], other))),
    )
    forged = signed_by(document["signatures"][0], other)["signature"]
    yield "another's signature, the key kept", made(lambda d: d["signatures"][0].update(signature=forged))
    limit = other.sign("discreet limit, 1", signing.content_of(document["signatures"][0]))
    yield "of another kind", made(lambda d: d["signatures"][0].update(signature=limit))
    replayed = json.loads((folder.parent / "first" / "signed.json").read_text("utf-8"))
    yield "replayed from another statement", made(lambda d: d.update(signatures=replayed["signatures"]))
    yield "replayed beside it", made(lambda d: d["signatures"].extend(replayed["signatures"]))
    yield (
        "upper case",
        made(lambda d: d["signatures"][0].update(signature=d["signatures"][0]["signature"].upper())),
    )
    yield "a further field", made(lambda d: d["signatures"][0].update(note="x"))
    yield "a further field above", made(lambda d: d.update(note="x"))
    yield (
        "other order of fields",
        made(lambda d: d["signatures"].__setitem__(0, dict(sorted(d["signatures"][0].items())))),
    )
    yield "other spaces", json.dumps(document).encode()
    yield "a key twice", text.replace(b'"version": 1,', b'"version": 1,\n "version": 1,')
    for path, value in leaves(document):

        def change(tree: Any, path: Any = path, value: Any = value) -> None:
            for key in path[:-1]:
                tree = tree[key]
            tree[path[-1]] = other_value(value)

        yield f"changed: {path}", made(change)
    for field in document["signatures"][0]:
        yield f"without {field}", made(lambda d, field=field: d["signatures"][0].pop(field))


def other_value(value: Any) -> Any:
    """A value of the same shape."""
    if isinstance(value, str) and len(value) in (64, 128):
        return ("0" if value[0] != "0" else "1") + value[1:]
    return other(value)


def test_signatures(signed: Signed, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, key, _, files = signed
    officer, someone = (dr.ledger.read_private_key(folder.parent / name) for name in ("officer", "other"))
    first = folder.parent / "first"
    dr.sign(first, officer, name="A. Weber")
    (first / SIGNATURES_NAME).rename(first / "signed.json")
    unseen, made = [], 0
    for what, content in on_signatures(files[SIGNATURES_NAME], folder, someone):
        try:
            if content is None:
                (folder / SIGNATURES_NAME).unlink()
            else:
                assert content != files[SIGNATURES_NAME], what
                (folder / SIGNATURES_NAME).write_bytes(content)
            if quick(folder, key, monkeypatch):
                unseen.append(what)
            made += 1
        finally:
            restore(folder, files)
    assert not unseen, unseen
    assert made > 30
    (first / "signed.json").unlink()
