"""From a file of people's trajectories to a folder with a policy, a report and a privacy statement.

:func:`learn` keeps one order, on which the guarantee and the ledger rest:

1. every row is checked against the schema and counted; a broken row, an absent column, too large a delta
   end here, with nothing spent and nothing written;
2. the ledger reserves what the release will cost, and is on the disk;
3. noise is drawn, and the folder is written aside, ``release.parquet`` first;
4. the folder gets its name by one rename;
5. the ledger marks the reservation, with the hashes of the files.

If the process dies after 2 the reservation counts as spent. If anything fails after ``release.parquet`` was
written, the hidden folder is kept, since its release is paid for: :func:`plan_again` goes on from it. Noise
is never drawn a second time for the same reservation.

:func:`plan_again` reads a folder's release, not the data: other learners' knobs, other known rewards, another
choice for unsupported states. It costs no privacy.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np

from discreet.core import checks
from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.core.randomness import Randomness, Secure
from discreet.core.shown import brief
from discreet.data.readers import Progress, Source
from discreet.data.schema import Schema, read_schema, write_schema
from discreet.data.validate import episodes
from discreet.knobs import Knobs
from discreet.linear.responses import ResponseSession
from discreet.local.record import ReportRecord, composable_from_dict
from discreet.offline import linear, tabular
from discreet.offline.linear_releases import LinearRelease
from discreet.offline.policies import PolicyTable, Unsupported, write_policy
from discreet.offline.releases import (
    ReleaseFacts,
    read_release,
    read_tables,
    write_release,
    write_tables,
)
from discreet.privatizers.central import Central
from discreet.privatizers.none import NoPrivacy
from discreet.protocol import Floats
from discreet.sessions.one_shot import OneShotSession
from discreet.storage.ledger import Ledger, Reservation
from discreet.storage.saved_state import sync_folder
from discreet.stored.forecast import schema_spec
from discreet.stored.linear_report import LinearReport
from discreet.stored.report import report_of
from discreet.stored.statement import (
    LedgerFacts,
    RunFacts,
    Statement,
    check_delta,
    file_hash,
    statement_of,
    write_statement,
)

__all__ = ["Outcome", "Settings", "learn", "plan_again"]

RELEASE, SCHEMA = "release.parquet", "schema.toml"
RUN = "run.json"  # in a hidden folder only
_EXPECTED = (RELEASE, SCHEMA, "policy.csv")  # files that a statement cannot do without
Privatizer = Central | NoPrivacy


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What does not touch the release.

    unsupported : "abstain", "behaviour" or "policy"
        What the policy's files say where there is too little data behind the planner's action.
    level : float in (0, 1)
        Of the report's intervals.
    return_bound : float > 0, optional
        A public bound of one episode's return, in units of [0, 1] a step, H by default: what is not known may
        be worth as much, so a lower one makes the report's intervals shorter.
    operator, approval, command : str
        Lines of the statement: who ran it, who approved it, and the command as typed.
    synthetic : bool
        The data are made up, and the statement says so.
    """

    __repr__ = brief

    unsupported: Unsupported = "abstain"
    level: float = 0.95
    return_bound: float | None = None
    operator: str = ""
    approval: str = ""
    command: str = ""
    synthetic: bool = False

    def __post_init__(self) -> None:
        checks.choice("unsupported", self.unsupported, ("abstain", "behaviour", "policy"))
        checks.real("level", self.level, 0.0, 1.0, open_low=True, open_high=True)
        if self.return_bound is not None:
            checks.positive("return_bound", self.return_bound)
        checks.flag("synthetic", self.synthetic)
        for name in ("operator", "approval"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} = {checks.said(getattr(self, name))}: must be text on one line")

    def chosen(self) -> dict[str, Any]:
        """What the statement's configuration tells of it."""
        return {
            "unsupported": self.unsupported, "level": self.level, "return_bound": self.return_bound,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run left behind: the folder, its statement, and the report's text."""

    __repr__ = brief

    folder: Path
    statement: Statement
    report: str


# ------------------------------------------------------------------------------ two kinds of sums


class _Report(Protocol):
    """What a folder's report must be able to do."""

    def to_dict(self) -> dict[str, Any]: ...
    def to_markdown(self) -> str: ...
    def figures(self, folder: str | Path) -> Any: ...


@dataclass(frozen=True, eq=False)
class _Planned:
    """A policy, and the report on it."""

    table: PolicyTable
    report: _Report


class _Counts:
    """APVI and DP-APVI: one release of counts."""

    def __init__(self, schema: Schema, learner: tabular.APVI | tabular.DPAPVI) -> None:
        self.schema, self.learner, self.spec = schema, learner, schema_spec(schema)

    def check(self, settings: Settings) -> None:
        """Every setting will do."""

    def start(self, privatizer: Privatizer | None, randomness: Randomness) -> OneShotSession:
        exact = privatizer is None or isinstance(privatizer, NoPrivacy)
        if exact and isinstance(self.learner, tabular.DPAPVI):
            raise ValueError(f"privatizer = {checks.said(privatizer)}: must be Central(...) for DP-APVI")
        if not exact and isinstance(self.learner, tabular.APVI):
            raise ValueError(
                f"privatizer = {checks.said(privatizer)}: must be none for APVI, which ignores noise"
            )
        query = replace(self.learner.query(self.spec), episodes=self.schema.episodes_per_user)
        return (privatizer or NoPrivacy()).stored(query, randomness)

    def release(self, session: Any, path: Path, facts: Mapping[str, Any], settings: Settings) -> _Planned:
        released = session.release()
        write_release(path, released, ReleaseFacts(**facts, laws=released.laws))
        return self.again(path, settings)

    def again(self, path: Path, settings: Settings) -> _Planned:
        stored = read_release(path)
        learned = self.learner.learn(stored, self.spec)
        named = {"states": self.schema.state_labels, "actions": self.schema.action_labels}
        found = report_of(
            stored, learned, self.spec, unsupported=settings.unsupported, level=settings.level,
            return_bound=settings.return_bound, episodes_per_user=stored.facts.episodes,
            first_step=self.schema.first_step,
            labels={name: labels for name, labels in named.items() if labels is not None},
        )  # fmt: skip
        return _Planned(PolicyTable.of(learned, self.schema), found)


class _LinearSums:
    """PEVI and its relatives: questions about sums of features, asked while planning."""

    def __init__(self, schema: Schema, learner: linear.Linear) -> None:
        self.schema, self.learner = schema, learner
        self.known = schema_spec(schema).known_rewards
        self.features = linear.schema_features(
            schema.layout, schema.features, schema.feature_bound,
            nonneg=schema.features is None or bool((schema.features >= 0.0).all()),
        )  # fmt: skip

    def check(self, settings: Settings) -> None:
        """``ValueError`` for what the policy's files could not say, before anything is spent."""
        if settings.unsupported == "behaviour":
            raise ValueError(
                "unsupported = 'behaviour': must be 'abstain' or 'policy' for linear learners, whose sums do "
                "not say what people did most often"
            )

    def start(self, privatizer: Privatizer | None, randomness: Randomness) -> ResponseSession:
        if privatizer is not None:
            raise ValueError("privatizer: must be none, linear learners hold their budget themselves")
        return self.learner.open(
            self.schema.layout, self.features, randomness, episodes=self.schema.episodes_per_user,
            known_rewards=self.known is not None,
        )  # fmt: skip

    def release(self, session: Any, path: Path, facts: Mapping[str, Any], settings: Settings) -> _Planned:
        released, learned = self.learner.ask(session, self.known)
        write_tables(path, released.tables(), ReleaseFacts(**facts, query=released.query()))
        return self._planned(learned, settings)

    def again(self, path: Path, settings: Settings) -> _Planned:
        stored = read_tables(path)
        facts = stored.facts
        tables = {(name, h): stored.table(name, h) for name in stored.families for h in stored.steps(name)}
        released = LinearRelease.of(facts.layout, facts.users, facts.guarantee, facts.query, tables)
        return self._planned(linear.replan(self.learner, released, self.features, self.known), settings)

    def _planned(self, learned: linear.Learned, settings: Settings) -> _Planned:
        chosen = np.take_along_axis(learned.q, learned.policy[..., None], axis=-1)[..., 0]
        table = PolicyTable(
            policy=learned.policy, supported=learned.supported, values=chosen,
            state_labels=self.schema.state_labels, action_labels=self.schema.action_labels,
            first_step=self.schema.first_step,
        )  # fmt: skip
        return _Planned(table, LinearReport(table, learned, settings.unsupported))


_Kind = _Counts | _LinearSums


def _kind(schema: Schema, learner: Any) -> _Kind:
    if isinstance(learner, linear.Linear):
        return _LinearSums(schema, learner)
    if not isinstance(learner, type) and hasattr(learner, "query") and hasattr(learner, "learn"):
        return _Counts(schema, learner)
    raise ValueError(f"learner = {checks.said(learner)}: must be an offline learner")


def _options(knobs: Knobs) -> dict[str, Any]:
    """Every option by name, resolved, as JSON values."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in knobs.options().items()
    }


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What a statement says of the run that made the release, and no other file holds."""

    users: int
    guarantee: Guarantee
    records: tuple[MechanismRecord | ReportRecord, ...]
    ledger: LedgerFacts | None
    date: str
    synthetic: bool
    replanned: bool = False

    def write(self, folder: Path) -> None:
        """Into the folder, until its statement is there: so that no release is without it."""
        ledger = None if self.ledger is None else asdict(self.ledger)
        document = {"ledger": ledger, "date": self.date, "synthetic": self.synthetic}
        (folder / RUN).write_text(json.dumps(document), "utf-8")

    @classmethod
    def of(cls, release: Path, schema: Schema) -> _Run:
        """Of a release in a folder, for planning again; the schema is the one that was read beside it."""
        facts = read_tables(release).facts
        if schema.hash != facts.schema:
            raise ValueError(f"{release.parent / SCHEMA}: is not the schema of the release beside it")
        whole = (release.parent / "statement.json").exists()
        path = release.parent / ("statement.json" if whole else RUN)
        try:
            document = json.loads(path.read_text("utf-8"))
            if whole and document["files"][release.name] != file_hash(release):
                raise ValueError(f"{release}: is not the release that the statement beside it is about")
            ledger = document["ledger"]
            return cls(
                users=facts.users,
                guarantee=facts.guarantee,
                records=composable_from_dict(facts.records),
                ledger=None if ledger is None else LedgerFacts(**ledger),
                date=document["date"],
                synthetic=document["synthetic"],
                replanned=True,
            )
        except (OSError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: must be the statement of the release beside it ({error!r})") from None


# ------------------------------------------------------------------------------------- learn


def learn(
    source: Source,
    learner: tabular.APVI | tabular.DPAPVI | linear.Linear,
    out: str | Path,
    *,
    privatizer: Privatizer | None = None,
    ledger: Ledger | None,
    randomness: Randomness | None = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
    scratch: str | Path | None = None,
) -> Outcome:
    """Learn a policy from stored trajectories, with one release, into a new folder.

    Parameters
    ----------
    source : Source
        Files and their schema (:func:`discreet.data.readers.open_source`).
    learner : DPAPVI, APVI, or one of the linear learners, which hold their budget themselves
    out : folder
        Must not exist, or be empty.
    privatizer : Central, for DPAPVI only
    ledger : Ledger or None
        None writes nothing down; the statement says so in capitals. Must be None without privacy.
    randomness : Secure (default) or Seeded (simulation: the statement says that it protects nobody)
    settings : Settings
    progress, scratch
        As for :func:`discreet.data.validate.episodes`.

    Raises
    ------
    DataError
        If rows break the schema: a private message. Nothing was spent or written.
    BudgetError
        If the owner's limit would be passed. Nothing was spent or written.
    ValueError
        If anything else is not allowed. Nothing was spent or written.
    """
    settings, out = settings or Settings(), Path(out)
    _check_free(out)
    schema = source.schema
    kind = _kind(schema, learner)
    kind.check(settings)
    session = kind.start(privatizer, Secure() if randomness is None else randomness)
    private = session.guarantee.epsilon is not None
    if ledger is not None and not private:
        raise ValueError("ledger: must be None (--no-ledger), exact sums have no epsilon to write down")
    with session:
        for part in episodes(source, progress=progress, scratch=scratch):
            session.submit_many(part.trajectories, part.user)
        if not session.users:
            raise ValueError("source: holds no rows")
        if private:
            check_delta(session.guarantee.delta, session.users)
        options = {"learner": _options(learner)}
        if privatizer is not None:
            options["privatizer"] = _options(privatizer)
        facts = {
            "layout": schema.layout,
            "users": session.users,
            "guarantee": session.guarantee,
            "records": tuple(record.to_dict() for record in session.records),
            "episodes": schema.episodes_per_user,
            "dataset": schema.dataset,
            "schema": schema.hash,
            "algorithm": _name(learner),
            "options": options,
        }
        run = _Run(
            users=session.users,
            guarantee=session.guarantee,
            records=session.records,
            ledger=None,
            date=_now(),
            synthetic=settings.synthetic,
        )
        _rehearse(schema, _name(learner), options, settings, run)
        _check_free(out)  # reading may have taken long: was another run faster?
        reservation = None
        if ledger is not None:
            reservation = ledger.reserve(
                schema.dataset, session.records, delta=session.guarantee.delta, users=session.users,
                purpose=" ".join(settings.command.split()) or _name(learner),
            )  # fmt: skip
        with _spent(ledger, reservation), _aside(out, paid=True) as folder:
            if ledger is not None:
                run = replace(run, ledger=LedgerFacts.of(ledger, reservation))
            write_schema(schema, folder / SCHEMA)
            run.write(folder)
            planned = kind.release(session, folder / RELEASE, facts, settings)
            statement, text = _fill(folder, schema, planned, _name(learner), options, settings, run)
    if ledger is not None and reservation is not None:
        ledger.mark(reservation, _hashes(out))
    return Outcome(out, statement, text)


def plan_again(
    release: str | Path,
    learner: tabular.APVI | tabular.DPAPVI | linear.Linear,
    out: str | Path,
    *,
    settings: Settings | None = None,
    rewards: Floats | None = None,
) -> Outcome:
    """Plan again from a folder's release, into a new folder: no data are read, no budget is spent.

    Parameters
    ----------
    release : path of ``release.parquet`` in a folder that :func:`learn` made
        Its ``schema.toml`` and ``statement.json`` must lie beside it.
    learner : as for :func:`learn`; a budget that it holds is not used.
    rewards : (1 or H, S, A) in [0, 1], optional
        Known rewards, in place of the schema's; kept as ``rewards.npy``.

    Raises
    ------
    ValueError
        If a file is missing or is not what it was, or the learner asks what the release does not hold.
    """
    settings, out, path = settings or Settings(), Path(out), Path(release)
    _check_free(out)
    folder = path.parent
    if not (folder / SCHEMA).is_file():
        raise ValueError(f"{path}: the folder's schema.toml and statement.json must lie beside it")
    schema = read_schema(folder / SCHEMA)
    run = _Run.of(path, schema)
    _check_kind(path, learner)
    kind = _kind(schema if rewards is None else replace(schema, known=rewards), learner)
    kind.check(settings)
    with _aside(out, paid=False) as aside:
        write_schema(schema, aside / SCHEMA)
        if rewards is not None:
            np.save(aside / "rewards.npy", rewards)
        shutil.copyfile(path, aside / RELEASE)
        planned = kind.again(aside / RELEASE, settings)
        options = {"learner": _options(learner)}
        statement, text = _fill(aside, schema, planned, _name(learner), options, settings, run)
    return Outcome(out, statement, text)


# ------------------------------------------------------------------------------------ the folder


def _check_kind(path: Path, learner: Any) -> None:
    """The release must hold the kind of sums that the learner reads."""
    facts = read_tables(path).facts
    counts = not facts.query
    if counts == isinstance(learner, linear.Linear):
        held = "counts, for dp-apvi or apvi" if counts else f"sums of features, for {facts.algorithm}"
        raise ValueError(f"learner = {_name(learner)!r}: {path} holds {held}")


def _hidden(out: Path) -> Path:
    """A new folder's path beside ``out``."""
    return out.absolute().with_name(f".{out.name}.{secrets.token_hex(8)}.part")


def _check_free(out: Path) -> None:
    """The folder must be new (or empty), and able to get its name by a rename: found out before all else.

    The rename is rehearsed with an empty folder: it fails for a link, a mount, ``.``, a name that is too
    long, or where nothing may be written, and must not do so when the release has been paid for.
    """
    there = out.exists()
    if there and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out = {str(out)!r}: exists already, must be a new folder")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        rehearsal = _hidden(out)
        rehearsal.mkdir(mode=0o700)
        try:
            os.replace(rehearsal, out)
        except OSError:
            rehearsal.rmdir()
            raise
    except (OSError, ValueError) as error:
        raise ValueError(
            f"out = {str(out)!r}: must be a folder that can be made by renaming another one ({error})"
        ) from None
    if not there:
        out.rmdir()


@contextmanager
def _aside(out: Path, *, paid: bool) -> Iterator[Path]:
    """A hidden folder that takes the name ``out`` when the block ends well, and is on the disk then.

    If the block raises after a release that was ``paid`` for was written, the hidden folder stays, and the
    error says where.
    """
    hidden = _hidden(out)
    hidden.mkdir(mode=0o700)
    try:
        yield hidden
        for path in (*hidden.iterdir(), hidden):
            _sync(path)
        os.replace(hidden, out)
        sync_folder(out.absolute().parent)
    except BaseException as error:
        if paid and (hidden / RELEASE).exists():
            error.add_note(
                f"The release was made, and paid for, before this happened. It is kept: {hidden / RELEASE}"
            )
        else:
            shutil.rmtree(hidden, ignore_errors=True)
        raise


@contextmanager
def _spent(ledger: Ledger | None, reservation: Reservation | None) -> Iterator[None]:
    """An error from here on has cost what was reserved, and says so."""
    try:
        yield
    except BaseException as error:
        if ledger is not None and reservation is not None:
            error.add_note(f"Entry {reservation.number} of the ledger {ledger.path} counts as spent.")
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fill(
    folder: Path,
    schema: Schema,
    planned: _Planned,
    algorithm: str,
    options: Mapping[str, Any],
    settings: Settings,
    run: _Run,
) -> tuple[Statement, str]:
    """Everything beside schema and release: policy, report, statement."""
    write_policy(folder, planned.table, run.guarantee.statement, settings.unsupported)
    text = planned.report.to_markdown()
    (folder / "report.md").write_text(text, "utf-8", newline="\n")
    document = json.dumps(planned.report.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "report.json").write_text(document + "\n", "utf-8", newline="\n")
    planned.report.figures(folder)
    statement = _statement(schema, algorithm, options, settings, run, _hashes(folder))
    write_statement(folder, statement)
    (folder / RUN).unlink(missing_ok=True)  # the statement tells it now
    return statement, text


def _statement(
    schema: Schema, algorithm: str, options: Mapping[str, Any], settings: Settings, run: _Run,
    files: Mapping[str, str],
) -> Statement:  # fmt: skip
    """The statement of a run; also tried before a release, as what it refuses must not cost anything."""
    facts = RunFacts(
        schema=schema, algorithm=algorithm, options={**options, **settings.chosen()},
        command=" ".join(settings.command.split()), files=files, operator=settings.operator,
        approval=settings.approval, **vars(run),
    )  # fmt: skip
    return statement_of(facts)


def _rehearse(
    schema: Schema, algorithm: str, options: Mapping[str, Any], settings: Settings, run: _Run
) -> None:
    """``ValueError`` where the statement or the folder's schema would fail, before anything is spent."""
    _statement(schema, algorithm, options, settings, run, dict.fromkeys(_EXPECTED, "0" * 64))
    with TemporaryDirectory() as folder:
        path = Path(folder) / SCHEMA
        write_schema(schema, path)
        if read_schema(path).hash != schema.hash:
            raise ValueError("source.schema: must be one that can be written as SCHEMA.toml without loss")


def _hashes(folder: Path) -> dict[str, str]:
    """Of every file in the folder, by name."""
    return {path.name: file_hash(path) for path in sorted(folder.iterdir()) if path.name != RUN}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _name(learner: Any) -> str:
    """The learner's name on the command line."""
    return {
        tabular.APVI: "apvi", tabular.DPAPVI: "dp-apvi", linear.PEVI: "pevi", linear.VAPVI: "vapvi",
        linear.DPPEVI: "dp-pevi", linear.DPVAPVI: "dp-vapvi",
    }.get(type(learner), type(learner).__name__)  # fmt: skip
