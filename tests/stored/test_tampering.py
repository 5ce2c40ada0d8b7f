"""Hundreds of ways to change a folder after it was published: none goes unseen but the two free lines.

A tamperer who knows the library makes what he can fit again: hashes, fingerprint, page. What finds him
without the ledger is that everything is made again from the release; with it, that its mark holds every hash.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.made_up import write_made_up
from discreet.data.readers import open_source
from discreet.data.schema import Schema
from discreet.offline.tabular import DPAPVI
from discreet.storage.ledger import Ledger
from discreet.stored import statement, verification
from discreet.stored.learn import learn
from discreet.stored.statement import file_hash
from discreet.stored.statement_page import FREE, markdown
from discreet.stored.verification import verify

MASK = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], bool)
SCHEMA = Schema("ward", "patient", Layout(4, 2, 3, MASK), terminal=(3,), low=-1.0)
Place = tuple[Path, Path, dict[str, bytes]]

pytestmark = pytest.mark.usefixtures("equal_figures_drawn_once")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """(folder of a second release, its ledger, content of its files)."""
    here = tmp_path_factory.mktemp("tampering")
    write_made_up(SCHEMA, 60, here / "people.parquet", seed=1)
    with Ledger.open(here / "ledger.sqlite") as ledger:
        ledger.set_limit("ward", 20.0, 1e-5)
        for name in ("first", "second"):
            source = open_source(here / "people.parquet", SCHEMA)
            privatizer = dr.Central(epsilon=1.0, delta=1e-6)
            learn(source, DPAPVI(), here / name, privatizer=privatizer, ledger=ledger)
    folder = here / "second"
    return folder, here / "ledger.sqlite", {path.name: path.read_bytes() for path in folder.iterdir()}


def restore(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def reseal(folder: Path, document: dict[str, Any]) -> None:
    """Hashes of the folder's files, fingerprint and page are made to fit a document."""
    configuration = document["configuration"]
    document["configuration"] = statement.configuration_of(
        configuration["algorithm"], configuration["options"]
    )
    document["fingerprint"] = statement.fingerprint_of(document)
    (folder / "statement.json").write_text(statement.Statement(document).to_json(), "utf-8", newline="\n")
    (folder / "statement.md").write_text(markdown(document), "utf-8", newline="\n")


def rehash(folder: Path) -> None:
    """As if the changed files were those of the run."""
    document = json.loads((folder / "statement.json").read_text("utf-8"))
    kept = [path for path in folder.rglob("*") if path.is_file() and path.stem != "statement"]
    document["files"] = {path.relative_to(folder).as_posix(): file_hash(path) for path in sorted(kept)}
    reseal(folder, document)


# ------------------------------------------------------------------------------ files


def replaced(path: Path) -> None:
    path.write_bytes(b"another content\n")


def edited(path: Path) -> None:
    """One byte in the middle, of text the first digit of a number."""
    content = bytearray(path.read_bytes())
    inner = b".0123456789"
    digits = [i for i, byte in enumerate(content) if 48 <= byte < 57 and content[i - 1] not in inner]
    at = digits[len(digits) // 2] if digits else len(content) // 2
    content[at] += 1
    path.write_bytes(bytes(content))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def removed(path: Path) -> None:
    path.unlink()


def linked(path: Path) -> None:
    """The same content, elsewhere."""
    away = path.parent.parent / "away" / path.name
    away.parent.mkdir(exist_ok=True)
    away.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(away)


def into_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


FILE_WAYS = (replaced, edited, truncated, emptied, lengthened, removed, linked, into_a_folder)
RESEALED = (replaced, edited, truncated, emptied, lengthened)


def exchanged(path: Path) -> None:
    """By that of the first release."""
    path.write_bytes((path.parent.parent / "first" / path.name).read_bytes())


def on_files(files: dict[str, bytes]) -> Iterator[tuple[str, Callable[[Path], None]]]:
    for name in files:
        for way in FILE_WAYS:
            yield f"{way.__name__}: {name}", lambda folder, way=way, name=name: way(folder / name)
        if name.startswith("statement."):
            continue
        for way in RESEALED:
            if name == "release.parquet" and way in (edited, lengthened):
                continue  # an edited page of Parquet is found by its checksum; both are below

            def forged(folder: Path, way: Any = way, name: str = name) -> None:
                way(folder / name)
                rehash(folder)

            yield f"{way.__name__} and resealed: {name}", forged
    for name in ("policy.csv", "report.json", "report.md", "values.svg", "values.png", "release.parquet"):

        def other(folder: Path, name: str = name) -> None:
            exchanged(folder / name)
            rehash(folder)

        yield f"of another release, resealed: {name}", other

    def added(folder: Path) -> None:
        (folder / "notes.txt").write_text("x")

    def named(folder: Path) -> None:
        added(folder)
        rehash(folder)

    def dotted(folder: Path) -> None:
        (folder / ".hidden").write_text("x")

    def inner(folder: Path) -> None:
        (folder / "more").mkdir()

    def inside(folder: Path) -> None:
        inner(folder)
        (folder / "more" / "policy.csv").write_text("x")

    def dangling(folder: Path) -> None:
        (folder / "more").symlink_to(folder / "nowhere")

    for way in (added, named, dotted, inner, inside, dangling):
        yield f"{way.__name__}: a further file", way


SLOW = ("accounting", "plan", "release", "sensitivities", "document")


CHECKS = {slow: getattr(verification, f"_check_{slow}") for slow in SLOW}


def seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """By hashes and page alone, else by all that is made again; accounting sees no file."""
    for skipped in (SLOW, ("accounting", "sensitivities", "document"), ("accounting",)):
        with monkeypatch.context() as patch:
            for slow, check in CHECKS.items():
                part = (lambda *_: iter(())) if slow in skipped else check
                patch.setattr(verification, f"_check_{slow}", part)
            if not all(check.ok for check in verify(folder)):
                return True
    return False


def test_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the ledger: every file is changed in every way, with hashes left or made to fit."""
    folder, _, files = place
    assert [check for check in verify(folder) if not check.ok] == []
    unseen, made = [], 0
    for what, way in on_files(files):
        try:
            way(folder)
            if not seen(folder, monkeypatch):
                unseen.append(what)
            made += 1
        finally:
            restore(folder, files)
    assert not unseen, unseen
    assert made > 150
    assert [check for check in verify(folder) if not check.ok] == []


def test_a_release_that_was_lengthened_is_known_to_the_ledger(place: Place) -> None:
    """A file of the same content in other bytes: the same release, but not the one that was published."""
    folder, book, files = place
    with Ledger.open(book, readonly=True) as ledger:
        try:
            document = json.loads(files["statement.json"])
            document["files"]["release.parquet"] = "0" * 64
            reseal(folder, document)
            names = {check.name for check in verify(folder, ledger) if not check.ok}
            assert "ledger: published.release.parquet" in names
            assert "ledger: published.statement.json" in names
        finally:
            restore(folder, files)


# ------------------------------------------------------------------------------ leaves


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(tree, dict | list) and tree:
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(value, (*path, key))
    else:
        yield path, tree


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    if isinstance(value, str):
        return value[:-1] + ("0" if value.endswith("1") else "1") if value else "x"
    return 1.0 if value is None else "more"


@pytest.mark.parametrize("sealed", [False, True])
def test_every_leaf(sealed: bool, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the least that can be, plainly and resealed; with the ledger, whose mark holds the fingerprint."""
    folder, book, files = place
    document = json.loads(files["statement.json"])
    for slow in SLOW:
        monkeypatch.setattr(verification, f"_check_{slow}", lambda *_: iter(()))
    unseen, made = [], 0
    with Ledger.open(book, readonly=True) as ledger:
        facts = statement.LedgerFacts(**document["ledger"])
        monkeypatch.setattr(statement.LedgerFacts, "of", lambda *_: facts)  # slow, and the same each time
        for path, value in leaves(document):
            changed = copy.deepcopy(document)
            at = changed
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = other(value)
            try:
                if sealed and path not in (("fingerprint",), ("configuration", "hash")):
                    reseal(folder, changed)
                else:
                    text = statement.Statement(changed).to_json()
                    (folder / "statement.json").write_text(text, "utf-8", newline="\n")
                if all(check.ok for check in verify(folder, ledger)) and not seen(folder, monkeypatch):
                    unseen.append(path)
                made += 1
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # a page cannot even be written
            finally:
                restore(folder, files)
    assert unseen == [(name,) for name in FREE]
    assert made > 200


@pytest.mark.parametrize(
    ("one", "other", "exact", "alike"),
    [
        ("1,0,0.5000000001", "1,0,0.5", True, True), ("1,0,0.500001", "1,0,0.5", True, False),
        ("1,0,0.5", "1,1,0.5", True, False), ("at least 0.884", "at least 0.885", False, True),
        ("at least 0.884", "at least 0.886", False, False), ("60 people", "61 people", False, False),
        ("0.1 a", "0.1 b", False, False), ("0.1", "0.1 and 0.2", False, False),
    ],
)  # fmt: skip
def test_what_another_machine_may_round(one: str, other: str, exact: bool, alike: bool) -> None:
    assert verification._texts_alike(one, other, exact=exact) == alike
