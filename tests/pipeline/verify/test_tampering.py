"""Hundreds of ways to change a folder after it was published: none goes unseen but the two free lines.

A tamperer who knows the library makes what he can fit again: hashes, fingerprint, page. What finds him
without the ledger is that everything is made again from the release; with it, that its mark holds every hash.
Once somebody has signed, what people wrote into their lines is fixed, too.
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
from forged import Edit, rewrite

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.learners.offline.apvi import DPAPVI
from discreet.ledger.ledger import Ledger, LedgerError
from discreet.pipeline import approve as approval
from discreet.pipeline import verify as verification
from discreet.pipeline.learn import learn
from discreet.pipeline.synthetic_data import write_made_up
from discreet.pipeline.verify import verify
from discreet.reports import signature_file as signing
from discreet.reports import statement
from discreet.reports.signature_file import SIGNATURES_NAME
from discreet.reports.statement import file_hash
from discreet.reports.statement_page import FREE
from discreet.utils.document import Written, text_of

MASK = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], bool)
SCHEMA = Schema(
    "ward", "patient", Layout(4, 2, 3, MASK), terminal=(3,), low=-1.0,
    declared={"controller": "A <b>hospital</b>", "legal_basis": "Art. 9 (2)", "recipients": "nobody | all"},
)  # fmt: skip
Place = tuple[Path, Path, dict[str, bytes]]

pytestmark = pytest.mark.usefixtures("figures_are_sketched")


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
    for name, lines in statement.PAGES.items():
        (folder / name).write_text(text_of(lines(document)), "utf-8", newline="\n")


def rehash(folder: Path) -> None:
    """As if the changed files were those of the run."""
    document = json.loads((folder / "statement.json").read_text("utf-8"))
    own = {"statement.json", *statement.PAGES, SIGNATURES_NAME}
    kept = [path for path in folder.rglob("*") if path.is_file() and path.name not in own]
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
    content[at] = (content[at] + 1) % 256  # a signature is any bytes, 255 among them
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
        if name == "statement.json" or name in statement.PAGES:
            continue
        for way in RESEALED:
            if name == "release.parquet" and way in (edited, lengthened):
                continue  # an edited page of Parquet is found by its checksum; both are below

            def forged(folder: Path, way: Any = way, name: str = name) -> None:
                way(folder / name)
                rehash(folder)

            yield f"{way.__name__} and resealed: {name}", forged
    for name in (
        "policy.csv", "report.json", "report.md", "report.html", "values.svg", "values.png",
        "release.parquet",
    ):  # fmt: skip

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


def test_every_leaf(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the least that can be, and resealed; with the ledger, whose mark holds the fingerprint.

    What is not resealed is found without a ledger: ``test_statement.py::test_every_leaf_is_guarded``.
    """
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
                if path not in (("fingerprint",), ("configuration", "hash")):
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


def test_other_orders_of_fields(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers in another order are not the text that was written."""
    folder, _, files = place
    document = json.loads(files["statement.json"])

    def objects(tree: Any) -> Iterator[dict[str, Any]]:
        if isinstance(tree, dict | list):
            if isinstance(tree, dict) and len(tree) > 1:
                yield tree
            for one in tree.values() if isinstance(tree, dict) else tree:
                yield from objects(one)

    try:
        for number in range(len(list(objects(document)))):
            changed = copy.deepcopy(document)
            one = list(objects(changed))[number]
            items = [*one.items()]
            one.clear()
            one.update([*items[1:], items[0]])
            (folder / "statement.json").write_text(
                statement.Statement(changed).to_json(), "utf-8", newline="\n"
            )
            for name, lines in statement.PAGES.items():
                (folder / name).write_text(text_of(lines(changed)), "utf-8", newline="\n")
            assert seen(folder, monkeypatch), items
    finally:
        restore(folder, files)
    assert number > 20


# ------------------------------------------------------------------------------ pages
PLAIN = ["", "A. Weber", "Dr. Weber, 3 May 2026 - yes, until 2027!", "\u00dcbel, \u03b5 = 3"]
MARKED = {
    "officer.md": ["*bold*", "[x](y)", "<b>", "a | b", "\x0b", "\u202e", "`x`", "# x", "x" * 501, "&#8203;"],
    "officer.html": [
        "<b>x</b>",
        "a & b",
        "&nbsp;",
        "<!-- x -->",
        "\x0b",
        "\u202e",
        "x" * 501,
        "&#60;script&#62;",
    ],
}


@pytest.mark.parametrize("name", MARKED)
def test_lines_of_the_officers_page(name: str, place: Place) -> None:
    """Every line is fixed, or people may write plain text into it; nothing else."""
    folder, _, files = place
    document = json.loads(files["statement.json"])
    lines = statement.PAGES[name](document)
    check = lambda: all(one.ok for one in verification._check_page(folder, document, name))  # noqa: E731
    blanks = [i for i, line in enumerate(lines) if isinstance(line, Written)]
    assert len(blanks) > 12
    try:
        for i, line in enumerate(lines):
            fixed = line if isinstance(line, str) else line.before
            for edited in (
                [fixed + "x"] if isinstance(line, str) else [fixed[1:] + line.after],
                [],
                [line, "x"],
            ):
                changed = text_of([*lines[:i], *edited, *lines[i + 1 :]])
                (folder / name).write_text(changed, "utf-8", newline="\n")
                assert not check(), (i, edited)
        for i in blanks[:2] + blanks[-1:]:
            line = lines[i]
            assert isinstance(line, Written)
            for said, allowed in [*((one, True) for one in PLAIN), *((one, False) for one in MARKED[name])]:
                said = f" {said}" if name.endswith(".md") else said
                written = f"{line.before}{said}{line.after}"
                content = text_of([*lines[:i], written, *lines[i + 1 :]]).encode()
                (folder / name).write_bytes(content)
                assert check() == allowed, (i, said)
    finally:
        restore(folder, files)


# ------------------------------------------------------------------------------ signatures
Signed = tuple[Path, str, str, dict[str, bytes]]


@pytest.fixture(scope="module")
def signed(place: Place) -> Signed:
    """(folder, the officer's public key, somebody else's, content of its files), with lines filled in."""
    pytest.importorskip("cryptography")
    folder = place[0].parent / "signed"
    shutil.copytree(place[0], folder)
    for name in ("officer", "other"):
        dr.new_key(folder.parent / name)
    page = (folder / "officer.md").read_bytes().replace(b"**Answer 1:** ", b"**Answer 1:** Yes.")
    (folder / "officer.md").write_bytes(page)
    officer, other = (dr.ledger.read_private_key(folder.parent / name) for name in ("officer", "other"))
    with Ledger.open(place[1], readonly=True) as ledger:
        dr.sign(folder, officer, name="A. Weber", ledger=ledger)
        with pytest.raises(ValueError, match="has signed"):
            dr.sign(folder, officer, ledger=ledger)
    return folder, officer.public, other.public, {path.name: path.read_bytes() for path in folder.iterdir()}


def quick(folder: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether all is in order, as far as hashes, pages and signatures tell."""
    with monkeypatch.context() as patch:
        for slow in SLOW:
            patch.setattr(verification, f"_check_{slow}", lambda *_: iter(()))
        return all(check.ok for check in verify(folder, public_keys=[key]))


def test_a_signed_folder_is_fixed(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file in every way, hashes made to fit or not; lines for people too."""
    folder, key, _, files = signed
    assert [check for check in verify(folder, public_keys=[key]) if not check.ok] == []
    ways = dict(on_files(files))
    for name in statement.PAGES:
        lines = (folder / name).read_text("utf-8").split("\n")
        for i, line in enumerate(statement.PAGES[name](json.loads(files["statement.json"]))):
            if isinstance(line, Written):
                filled = "\n".join([*lines[:i], f"{line.before} Yes{line.after}", *lines[i + 1 :]])
                ways[f"written after: {name} {i}"] = lambda folder, name=name, text=filled: (
                    folder / name
                ).write_text(text, "utf-8", newline="\n")
    unseen = []
    for what, way in ways.items():
        try:
            way(folder)
            if quick(folder, key, monkeypatch):
                unseen.append(what)
        finally:
            restore(folder, files)
    assert not unseen, unseen
    assert len(ways) > 200
    assert quick(folder, key, monkeypatch)


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


def test_who_looks_for_no_key_sees_all_but_a_signature_that_is_gone(
    signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --public-key: whose signature it is, or that there was one, nobody can tell."""
    folder, _, other_key, files = signed
    someone = dr.ledger.read_private_key(folder.parent / "other")
    try:
        (folder / SIGNATURES_NAME).unlink()
        assert all(check.ok for check in verify(folder))
        assert not quick(folder, other_key, monkeypatch)
        dr.sign(folder, someone, name="A. Weber")
        assert all(check.ok for check in verify(folder, public_keys=[other_key]))
    finally:
        restore(folder, files)


# ------------------------------------------------------------------------------ the ledger's mark
def test_the_ledgers_mark(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By who can write the ledger and its head: every hash of the mark, and entries before it."""
    folder, book, _ = place
    for slow in SLOW:
        monkeypatch.setattr(verification, f"_check_{slow}", lambda *_: iter(()))

    def unseen(change: Edit) -> bool:
        copied = tmp_path / "ledger.sqlite"
        shutil.copyfile(book, copied)
        rewrite(copied, change)
        try:
            with Ledger.open(copied, readonly=True) as ledger:
                return all(check.ok for check in verify(folder, ledger))
        except LedgerError:  # what no ledger holds is damage
            return False

    assert unseen(lambda entries: None)
    with Ledger.open(book, readonly=True) as ledger:
        hashes = [entry for entry in ledger.entries() if entry.kind == "mark"][-1].files
    assert {"officer.md", "officer.html", "statement.md", "release.parquet", "policy.csv"} <= set(hashes)
    ways: list[Edit] = [
        *(lambda e, name=name: e[-1]["files"].update({name: "0" * 64}) for name in hashes),
        *(lambda e, name=name: e[-1]["files"].pop(name) for name in hashes),
        lambda e: e[-1]["files"].update(more="0" * 64),
        lambda e: e[-1].update(files=e[-3]["files"]),
        lambda e: e[-2].update(users=61),
        lambda e: e[-2].update(purpose="x"),
        lambda e: e[1].update(epsilon=21.0),
        lambda e: e[0].update(identity="0" * 32),
        lambda e: e[-4].update(records=e[-4]["records"] * 2),
        lambda e: e.__delitem__(slice(4, None)),
        lambda e: e.pop(1),
    ]
    assert [number for number, way in enumerate(ways) if unseen(way)] == []


def test_what_is_signed_is_what_was_verified(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is exchanged while the folder is being verified is not signed."""
    folder, _, _, files = signed
    someone = dr.ledger.read_private_key(folder.parent / "other")

    def slow(*given: Any, **how: Any) -> list[verification.Check]:
        page = (folder / "officer.md").read_bytes()
        (folder / "officer.md").write_bytes(page.replace(b"Yes.", b"No."))
        return []

    try:
        monkeypatch.setattr(approval, "verify", slow)
        with pytest.raises(ValueError, match="was changed while it was verified"):
            dr.sign(folder, someone)
        assert (folder / SIGNATURES_NAME).read_bytes() == files[SIGNATURES_NAME]
        monkeypatch.undo()
        with pytest.raises(ValueError, match="must be a folder that"):
            dr.sign(folder / "none", someone)
    finally:
        restore(folder, files)
