"""Recovery of releases that were charged to the ledger but not completely published.

The folder of such a release does not have its final name, or is not yet marked as published in the ledger. If
a run stops after its reservation in the ledger, the reserved budget is spent. The files that exist depend on
when the run stopped:

========================  ====================================  =========================================
state                     what exists                           what :func:`finish` does
========================  ====================================  =========================================
``no release``            a reservation that is not marked      nothing: noise is never drawn twice

``hidden``                folder ``.NAME.*.part``, a release    plans, names the folder and marks it
``not marked``            a folder with its final name          verifies the folder and marks it

``running``               a hidden folder that a run uses       nothing: the run is active
``of another ledger``     a hidden folder of another ledger     nothing: that ledger must be given
========================  ====================================  =========================================

The metadata of a release contain all facts of its run. Therefore :func:`finish` completes a folder exactly as
the run would have done. Only the two free lines can be lost. This module reads no user data and spends no
budget. A fitted codebook is either absent or complete. A complete codebook is renamed and marked without
changes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from discreet.core.short_repr import brief
from discreet.data.row_batches import Progress
from discreet.data.schema import read_schema, write_schema
from discreet.data.synthetic_mark import SYNTHETIC_INPUT
from discreet.learners.offline.release_files import read_tables
from discreet.ledger.ledger import Ledger, Reservation
from discreet.pipeline import state_codebook as codebook
from discreet.pipeline.learn import RELEASE, SCHEMA, Run, copy_ledger, fill, judge_again
from discreet.pipeline.learned_files import LearnConfig, kind_of, learner_of
from discreet.pipeline.verify import verify
from discreet.reports.codebook_page import FACTS
from discreet.reports.statement import published_hashes, versions
from discreet.reports.statement_page import FREE, JSON_NAME, stated_in
from discreet.utils.atomic_folder import HIDDEN, aside, claimed, held

State = Literal["no release", "hidden", "not marked", "running", "of another ledger"]


@dataclass(frozen=True)
class Lost:
    """Unfinished run: a release that is not marked as published in the ledger, or a reservation without a
    release.

    Parameters
    ----------
    state : one of the states in the table of the module docstring
    folder : folder of the release; None in the state ``no release``
    name : final name of the folder
    number, dataset, time : values of the run's ledger entry. ``number`` is None for a hidden folder of a run
        without a ledger
    """

    __repr__ = brief

    state: State
    folder: Path | None
    name: str
    number: int | None
    dataset: str
    time: str


def lost(place: str | Path, ledger: Ledger | None) -> list[Lost]:
    """Return the unfinished releases in a folder, and the reservations without a release.

    Parameters
    ----------
    place : folder that contains the folders of runs (the parent of ``--out``)
    ledger : ledger of the runs. If None, only hidden folders of runs without a ledger are found

    Raises
    ------
    ValueError
        If ``place`` is not a folder.
    """
    place = Path(place)
    if not place.is_dir():
        raise ValueError(f"place = {str(place)!r}: must be the folder that contains the folders of runs")
    unmarked: dict[str, Any] = {}
    if ledger is not None:
        marked = {entry.reservation for entry in ledger.entries() if entry.kind == "mark"}
        unmarked = {
            entry.hash: entry
            for entry in ledger.entries()
            if entry.kind == "reserve" and entry.number not in marked
        }
    found = list(_folders(place, ledger, unmarked))
    numbers = {one.number for one in found if one.state != "of another ledger"}
    found += [
        Lost("no release", None, "", entry.number, entry.dataset, entry.time)
        for entry in unmarked.values()
        if entry.number not in numbers
    ]
    return found


def _folders(place: Path, ledger: Ledger | None, unmarked: dict[str, Any]) -> Iterator[Lost]:
    for path in sorted(place.iterdir()):
        if path.is_symlink() or not ((path / RELEASE).is_file() or _is_codebook(path)):
            continue
        hidden = HIDDEN.fullmatch(path.name)
        try:
            dataset, date, entry = _codebook_facts(path) if _is_codebook(path) else _release_facts(path)
        except ValueError:
            continue  # another version made the folder, or the folder is damaged
        number = None if entry is None else entry["number"]
        known = Lost("hidden", path, hidden["name"] if hidden else path.name, number, dataset, date)
        if hidden and not _free(path):
            yield replace(known, state="running")
        elif entry is None:
            if hidden:
                yield known
        elif ledger is None or entry["identity"] != ledger.identity or not ledger.contains(entry["head"]):
            if hidden:
                yield replace(known, state="of another ledger")
        elif hidden:
            yield known
        elif entry["head"] in unmarked and not stated_in(path, "replanned"):
            # A folder made by `replan` has the same release as the original folder, which must be marked.
            yield replace(known, state="not marked")


def _is_codebook(folder: Path) -> bool:
    return (folder / FACTS).is_file()


def _release_facts(folder: Path) -> tuple[str, str, dict[str, Any] | None]:
    """Return the dataset and the date of a release, and the facts about its entry in the ledger.

    These facts are a dictionary with the number and the hash of the entry and the identity of the ledger, or
    None for a run without a ledger.
    """
    facts = read_tables(folder / RELEASE).facts
    return facts.dataset or "", str(facts.run.get("date", "")), facts.run.get("ledger")


def _codebook_facts(folder: Path) -> tuple[str, str, dict[str, Any] | None]:
    """Return the dataset and the date of a fitted codebook, and the facts about its entry in the ledger.

    These facts are a dictionary with the number and the hash of the entry and the identity of the ledger, or
    None for a fit without a ledger.
    """
    facts = codebook.read_facts(folder)
    entry = facts["ledger"]
    if entry is not None:
        entry = {"number": entry["number"], "identity": entry["identity"], "head": entry["hash"]}
    return str(facts["dataset"]), str(facts["date"]), entry


def _free(folder: Path) -> bool:
    """Return True if no run is using the folder."""
    with held(folder) as alone:
        return alone


def finish(one: Lost, ledger: Ledger | None, progress: Progress | None = None) -> Path | None:
    """Finish the folder of a stopped run, as in the table of the module docstring.

    Returns the finished folder, or None if there is nothing to do. A hidden folder is replaced by the folder
    ``NAME``, or by ``NAME-entry-NUMBER`` if ``NAME`` exists.

    Raises
    ------
    ValueError
        If verification of the folder fails, or its learner is not part of this library. In this case nothing
        is changed.
    """
    if one.folder is None or one.state in ("no release", "running", "of another ledger"):
        return None
    with held(one.folder) as alone:
        if not alone:
            return None
        return _finished(one, one.folder, ledger, progress)


def _finished(one: Lost, folder: Path, ledger: Ledger | None, progress: Progress | None) -> Path:
    if _is_codebook(folder):
        codebook.verify_codebook(folder)
        out = folder
        if one.state != "not marked":
            with _free_name(one, folder) as name:
                out = folder.rename(name)
        _mark(one, _codebook_facts(out)[2], codebook.hashes(out), ledger)
        return out
    if one.state == "not marked":
        wrong = [check.name for check in verify(folder, ledger) if not check.ok]
        if wrong:
            raise ValueError(f"folder = {str(folder)!r}: does not verify ({wrong[0]}), and is not marked")
        document, out = json.loads((folder / JSON_NAME).read_text("utf-8")), folder
    else:
        document, out = _named(one, folder, progress)
    _mark(one, document["ledger"], published_hashes(document), ledger)
    if out != folder:
        shutil.rmtree(folder)
    return out


def _mark(one: Lost, entry: Any, files: dict[str, str], ledger: Ledger | None) -> None:
    """Mark a release as published in the ledger. The mark contains the hashes of the release's files.

    Nothing is written if the release is already marked. A release is already marked if the run stopped after
    it marked the release and before it renamed the folder.
    """
    if ledger is None or one.number is None:
        return
    if not any(entry.reservation == one.number for entry in ledger.entries(one.dataset)):
        ledger.mark(Reservation(one.dataset, entry["number"], entry["head"]), files)


def _named(one: Lost, folder: Path, progress: Progress | None) -> tuple[dict[str, Any], Path]:
    """Compute policy, report and statement from the release in a hidden folder.

    The files are written to a folder with the final name. Returns the document of the statement and the path
    of this folder.
    """
    release = folder / RELEASE
    schema, facts = read_schema(folder / SCHEMA), read_tables(release).facts
    run = Run.of(release, schema)
    run = replace(run, replanned=dict(run.versions) != versions(), versions=versions())
    kind = kind_of(schema, learner_of(facts.algorithm or "", facts.options["learner"]), progress)
    settings = LearnConfig(
        **{name: facts.options[name] for name in ("unsupported", "level", "return_bound")},
        **_signed(folder), synthetic=run.synthetic,
        synthetic_input=SYNTHETIC_INPUT in facts.options,
        compare=LearnConfig.rules_in(folder, facts.options, schema),
    )  # fmt: skip
    with _free_name(one, folder) as out, aside(out) as made:
        write_schema(schema, made / SCHEMA)
        settings.write_rules(made)
        shutil.copyfile(release, made / RELEASE)
        copy_ledger(folder, made)
        planned = kind.again(made / RELEASE, settings)
        run = judge_again(folder, made, schema, planned, settings, run)
        statement, _ = fill(made, schema, planned, facts.algorithm or "", facts.options, settings, run)
    return statement.to_dict(), out


@contextmanager
def _free_name(one: Lost, folder: Path) -> Iterator[Path]:
    """Claim a free folder name for a recovered run, and yield its path.

    The name is the final name ``NAME`` of the run. If a folder with this name exists, or another run has
    claimed the name, it is ``NAME-entry-NUMBER`` with the number of the ledger entry.
    """
    with ExitStack() as stack:
        out = folder.with_name(one.name)
        try:
            stack.enter_context(claimed(out))
            free = not out.exists()
        except ValueError:
            free = False
        if not free:
            out = folder.with_name(f"{one.name}-entry-{one.number}")
            stack.enter_context(claimed(out))
            if out.exists():
                raise ValueError(f"out = {str(out)!r}: exists already; must not exist before the recovery")
        yield out


def _signed(folder: Path) -> dict[str, Any]:
    """Return a mapping of names to the free lines in the statement that the stopped run wrote."""
    return {name: str(line) for name in FREE if (line := stated_in(folder, name)) is not None}
