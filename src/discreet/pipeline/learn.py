"""Learning from trajectory files. The result is a folder with a policy, a report and a privacy statement.

The guarantee and the ledger depend on the order of these steps in :func:`learn`:

1. The name of the folder is claimed. Every row is checked against the schema and counted, and disk space is
reserved. If the folder is in use, a row is invalid, a column is missing, delta is too large or the disk is
full, the run ends here. No budget is spent, and nothing is written.
2. The ledger reserves the cost of the release and is written to disk.
3. Noise is drawn, and the folder is written under a hidden name. The first file is ``release.parquet``.
4. The folder is renamed to its final name.
5. The ledger marks the reservation as published, with the hashes of the files.

If the process stops after step 2, the reservation counts as spent. If a later step fails after
``release.parquet`` was written, the hidden folder is kept, because the budget of its release is spent. The
metadata of the release contain all facts of the run, and :mod:`discreet.pipeline.recovery` completes the
folder. Noise is never drawn a second time for the same reservation.

A ledger records only releases that protect users. Therefore it is not accepted together with seeded noise or
with data that were generated from a schema. An epsilon that is recorded for such a release would protect no
user.

Synthetic users can be drawn from the model of an earlier release (:mod:`discreet.pipeline.synthetic_users`).
They are read only with ``LearnConfig(synthetic_input=True)``. Their dataset has a separate name, ``synthetic
of ..``, and separate totals in the ledger. Report, statement and the purpose in the ledger say that intervals
describe the model.

:func:`replan` plans again from the release in a folder, without reading the data. Options of the learner,
known rewards, and the choice for states without support may change. This costs no privacy.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from discreet.accounting.randomized_response_event import ReportRecord, composable_from_dict
from discreet.core import checks
from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.core.rng import Randomness, Secure
from discreet.core.short_repr import brief
from discreet.data.context_visits import read_visits
from discreet.data.row_batches import Progress, Source
from discreet.data.schema import Schema, read_schema, write_schema
from discreet.data.synthetic_mark import SYNTHETIC_INPUT, Facts
from discreet.data.validate import episodes
from discreet.learners.offline import apvi as tabular
from discreet.learners.offline import linear_pevi as linear
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.offline.linear_advantage import LinearAdvantage
from discreet.learners.offline.release_files import ReleaseFacts, read_tables
from discreet.learners.ope.advantage_verdict import AdvantageVerdict
from discreet.ledger.ledger import Ledger, Reservation, spent
from discreet.ledger.owner_rules import check_rules, obeyed
from discreet.mechanisms.dataset.dataset_release import OneShotSession
from discreet.mechanisms.interfaces import Floats
from discreet.pipeline.context_judges import ContextJudges
from discreet.pipeline.context_learning import ContextLearning
from discreet.pipeline.federated import FederatedSum
from discreet.pipeline.fixed_policy import PolicyAnswer
from discreet.pipeline.judge_group import JUDGEMENT, JudgeGroup, answer_in, write_judgement
from discreet.pipeline.learned_files import (
    LearnConfig,
    PlannedPolicy,
    Privatizer,
    kind_of,
    name_of,
    options_of,
    write_plan,
)
from discreet.pipeline.partial_aggregates import PartialAggregateFile, facts_of
from discreet.reports.checkable_files import LEDGER_NAME, ledger_lines, stated_query, write_csv
from discreet.reports.statement import (
    PAGES,
    SITES,
    LedgerFacts,
    RunFacts,
    SecondGroup,
    Statement,
    check_delta,
    check_encodable,
    dry_run_ledger_facts,
    file_hash,
    make_statement,
    published_hashes,
    versions,
    write_statement,
)
from discreet.reports.statement_page import JSON_NAME
from discreet.reports.verdict_text import stated_verdict
from discreet.utils.atomic_folder import aside, check_free, claims_out, room_for
from discreet.utils.document import text_of

__all__ = ["LearnResult", "LearnConfig", "learn", "replan"]

RELEASE, SCHEMA = "release.parquet", "schema.toml"
REWARDS = "rewards.npy"  # this file exists only in folders made by `replan` with other known rewards
_EXPECTED = (RELEASE, SCHEMA, "policy.csv")  # files that a statement requires


@dataclass(frozen=True, eq=False)
class LearnResult:
    """Result of :func:`learn` and :func:`replan`.

    Parameters
    ----------
    folder : folder with the release, the policy, ``statement.json``, ``report.md``, ``report.html``
        and the officer's page.
    statement : the privacy statement that is in the folder.
    report : the text of ``report.md``.
    judgement : gain of the policy, estimated from the second group of users; None without such a group.
    """

    __repr__ = brief

    folder: Path
    statement: Statement
    report: str
    judgement: PolicyAnswer | AdvantageVerdict | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """Facts of the run that made a release.

    The statement contains these facts, and the metadata of the release store them.
    """

    users: int
    guarantee: Guarantee
    records: tuple[MechanismRecord | ReportRecord, ...]
    ledger: LedgerFacts | None
    date: str
    synthetic: bool
    purpose: str
    replanned: bool = False
    second_group: SecondGroup | None = None
    versions: Mapping[str, str] = field(default_factory=versions)

    def metadata(self) -> dict[str, Any]:
        """Return the facts for the metadata of the release, except users, guarantee and records."""
        return {
            "date": self.date, "purpose": self.purpose, "synthetic": self.synthetic,
            "versions": dict(self.versions), "ledger": None if self.ledger is None else asdict(self.ledger),
            **({} if self.second_group is None else {"second_group": self.second_group.to_dict()}),
        }  # fmt: skip

    @classmethod
    def of(cls, release: Path, schema: Schema) -> Run:
        """Return the facts of the run that made a release, from the metadata of the release.

        schema : schema in the folder of the release. Raises ``ValueError`` if it is not the schema of the
            release, or if facts are missing.
        """
        facts = read_tables(release).facts
        if schema.hash != facts.schema:
            raise ValueError(
                f"{release.parent / SCHEMA}: is not the schema of the release in the same folder"
            )
        try:
            run = dict(facts.run)
            ledger, second = run.pop("ledger"), run.pop("second_group", None)
            second = None if second is None else SecondGroup.from_dict(second)
            return cls(
                users=facts.users + (0 if second is None else second.users),
                second_group=second,
                guarantee=facts.guarantee,
                records=composable_from_dict(facts.records),
                ledger=None if ledger is None else LedgerFacts(**ledger),
                **run,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{release}: does not say which run made it ({error!r})") from None


# ------------------------------------------------------------------------------------- learn


@claims_out
def learn(
    source: Source | PartialAggregateFile | FederatedSum,
    learner: tabular.APVI | tabular.DPAPVI | DecisionPoints | LinearAdvantage | linear.Linear,
    out: str | Path,
    *,
    privatizer: Privatizer | None = None,
    ledger: Ledger | None,
    randomness: Randomness | None = None,
    settings: LearnConfig | None = None,
    progress: Progress | None = None,
    scratch: str | Path | None = None,
    schema: Schema | None = None,
    workers: int | None = None,
    judge_share: float | None = None,
) -> LearnResult:
    """Learn a policy from offline trajectories with one release, and write a new folder.

    Parameters
    ----------
    source : Source, PartialAggregateFile or FederatedSum
        Files and their schema (:func:`discreet.data.row_batches.open_source`), sums that were counted in
        parts (:func:`discreet.pipeline.partial_aggregates.merge_aggregates`), or the sum over sites
        (:mod:`discreet.pipeline.federated`). For a sum over sites, learner and privatizer must be those of
        the sites' plan.
    learner : DecisionPoints, LinearAdvantage, DPAPVI, APVI, or one of the linear learners, whose options
        include the budget
    out : folder. It must not exist, or must be empty. No other run is allowed to write to it.
    privatizer : Central, for DPAPVI, DecisionPoints and LinearAdvantage; None or NoPrivacy for exact sums
    ledger : Ledger or None
        If None, nothing is recorded, and the statement says so in capitals. Must be None if the release is
        not private, for seeded noise and for data that were generated from a schema.
    randomness : Secure (default) or Seeded
        Seeded noise is for simulations. The statement then says that the release protects no user.
    settings : LearnConfig
    progress : callable, optional
        Function that every long stage calls as ``progress(what, done, total)``. ``total`` is the number of
        rows or parts, or None if it is not known.
    schema : schema of sums that were counted in parts; must be None for other sources
    scratch, workers
        Passed to :func:`discreet.data.validate.episodes`, which describes them.
    judge_share : float in (0, 1), optional
        Expected share of users in a second group. They are not in the release, and answer one question about
        the policy instead (:mod:`discreet.pipeline.judge_group`). Both groups spend the whole budget, and
        each user is in one group. Only for LinearAdvantage with Central, and for DecisionPoints with Central
        if a rule pays the rewards. None: all users are in the release.

    Raises
    ------
    DataError
        If rows violate the schema. The error message contains private data. No budget is spent, and no file
        is written.
    BudgetError
        If the owner's limit would be exceeded. No budget is spent, and no file is written.
    ValueError
        If any other input is not allowed, for example by a rule of the data's owner
        (:mod:`discreet.ledger.owner_rules`). No budget is spent, and no file is written.
    """
    settings, out = settings or LearnConfig(), Path(out)
    check_free(out)
    schema = _schema_of(source, schema, learner, privatizer)
    synthetic = _check_synthetic(source, settings)
    _check_rules(source, schema, ledger)
    kind = kind_of(schema, learner, progress)
    if synthetic:
        settings = replace(settings, synthetic=True)
    randomness = Secure() if randomness is None else randomness
    judges = None
    if judge_share is not None:
        make = JudgeGroup if schema.context is None else ContextJudges
        judges = make(source, schema, learner, privatizer, judge_share, randomness)
    job = _LearnJob(source, schema, kind, learner, privatizer, ledger, settings, out, synthetic, judges)
    with judges or nullcontext(), job.start(randomness) as session:
        job.submit(session, progress, scratch, workers)
        reservation, statement, text, judgement = job.release(session)
    if ledger is not None and reservation is not None:
        ledger.mark(reservation, published_hashes(statement.document))
    return LearnResult(out, statement, text, judgement)


@dataclass(frozen=True, eq=False)
class _LearnJob:
    """Arguments of one call of :func:`learn`, and the steps of this call."""

    source: Source | PartialAggregateFile | FederatedSum
    schema: Schema
    kind: Any
    learner: Any
    privatizer: Privatizer | None
    ledger: Ledger | None
    settings: LearnConfig
    out: Path
    synthetic: tuple[Facts, ...] = ()  # facts of synthetic users; empty for real data
    judges: JudgeGroup | ContextJudges | None = None

    def start(self, randomness: Randomness) -> Any:
        """Return a new session. Raises ``ValueError`` if the ledger must not record the release."""
        self.kind.check(self.settings)
        self.kind.say("find the noise")
        session: Any = (
            self.source.session(randomness)
            if isinstance(self.source, FederatedSum)
            else self.kind.start(self.privatizer, randomness)
        )
        if self.ledger is None:
            return session
        if session.guarantee.epsilon is None:
            raise ValueError("ledger: must be None (--no-ledger), exact sums have no epsilon")
        if session.guarantee.randomness != "secure":
            raise ValueError(
                "ledger: must be None (--no-ledger) with noise from a seed, which gives no privacy: an "
                "epsilon that is written down would be a promise"
            )
        if self.settings.synthetic and not self.synthetic:
            raise ValueError("ledger: must be None (--no-ledger) for synthetic users, who spend no budget")
        return session

    def submit(
        self, session: Any, progress: Progress | None, scratch: str | Path | None, workers: int | None
    ) -> None:
        """Check all rows of the source, and submit the episodes or the sums to the session."""
        source = self.source
        if isinstance(source, PartialAggregateFile):
            if not isinstance(session, OneShotSession):
                raise ValueError(f"algorithm = {name_of(self.learner)!r}: cannot learn from counted parts")
            session.submit_tally(source.tally)
        elif isinstance(self.kind, ContextLearning):
            if isinstance(source, Source):
                stored = read_visits(source, progress=progress, scratch=scratch, workers=workers)
                self.kind.submit(session, stored, self.judges)
        elif not isinstance(source, FederatedSum):
            for part in episodes(source, progress=progress, scratch=scratch, workers=workers):
                if not isinstance(self.judges, JudgeGroup):
                    session.submit_many(self.kind.to_records(part.trajectories, part.group), part.user)
                elif (others := self.judges.others(part)) is not None:
                    session.submit_many(self.kind.to_records(others[0]), others[1])
        if not session.users:
            if self.judges is not None and self.judges.users:
                raise ValueError(
                    f"judge_share = {self.judges.share:g}: no user is left for learning; must be smaller"
                )
            raise ValueError("source: holds no rows")
        if session.guarantee.epsilon is not None:
            judging = 0 if self.judges is None else self.judges.users
            check_delta(session.guarantee.delta, session.users + judging)

    def options(self) -> dict[str, Any]:
        """Return the options that the metadata of the release and the statement contain."""
        options: dict[str, Any] = {"learner": options_of(self.learner)}
        if self.privatizer is not None:
            options["privatizer"] = options_of(self.privatizer)
        options |= {**self.settings.chosen(), **self.kind.asked}
        if self.judges is not None:
            options["judge_share"] = self.judges.share
        if isinstance(self.source, FederatedSum):
            options[SITES] = self.source.plan.statement_facts(self.source.sent)
        if self.synthetic:
            options[SYNTHETIC_INPUT] = [dict(one) for one in self.synthetic]
        return options

    def facts(self, session: Any) -> dict[str, Any]:
        """Return the facts for the metadata of the release, except the facts of the run."""
        return {
            "layout": self.kind.layout,
            "users": session.users,
            "guarantee": session.guarantee,
            "records": tuple(record.to_dict() for record in session.records),
            "episodes": self.schema.episodes_per_user,
            "dataset": self.schema.dataset,
            "schema": self.schema.hash,
            "algorithm": name_of(self.learner),
            "options": self.options(),
            **({"query": self.kind.asked} if self.kind.asked else {}),
        }

    def run(self, session: Any) -> Run:
        """Return the facts of the run. The facts about the ledger entry are placeholders."""
        ledger, settings = self.ledger, self.settings
        second = None if self.judges is None else self.judges.public_facts(session.records)
        return Run(
            users=session.users + (0 if second is None else second.users),
            second_group=second,
            guarantee=session.guarantee,
            records=session.records,
            ledger=None if ledger is None else dry_run_ledger_facts(ledger, self.schema.dataset),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            synthetic=settings.synthetic,
            purpose=_MODEL * bool(self.synthetic) + (settings.purpose or f"learn, {name_of(self.learner)}"),
        )

    def release(self, session: Any) -> tuple[Reservation | None, Statement, str, Any]:
        """Reserve the privacy cost in the ledger, draw the noise and write the folder.

        Returns the reservation, the statement, the text of the report, and the answer of the second group.
        """
        schema, kind, settings, ledger = self.schema, self.kind, self.settings, self.ledger
        facts, run = self.facts(session), self.run(session)
        _rehearse(schema, facts, settings, run)
        check_free(self.out)  # another process may have written the folder while the data were read
        _check_rules(self.source, schema, ledger)  # the owner may have added a rule while the data were read
        reservation, judgement, second = None, None, run.second_group
        with room_for(self.out, kind.room(session)):
            if ledger is not None:
                reservation = ledger.reserve(
                    schema.dataset, session.records, delta=session.guarantee.delta, users=run.users,
                    purpose=run.purpose, parallel=() if second is None else (second.record,),
                )  # fmt: skip
        book = None if ledger is None else ledger.path
        with spent(ledger, reservation), aside(self.out, paid=RELEASE, ledger=book) as folder:
            if ledger is not None and reservation is not None:
                time = next(e.time for e in ledger.entries() if e.number == reservation.number)
                run = replace(run, ledger=LedgerFacts.of(ledger, reservation), date=time)
                lines = ledger_lines(ledger.entries(), schema.dataset, reservation.number)
                (folder / LEDGER_NAME).write_text(lines, "utf-8", newline="\n")
            write_schema(schema, folder / SCHEMA)
            settings.write_rules(folder)
            planned = kind.release(session, folder / RELEASE, {**facts, "run": run.metadata()}, settings)
            if self.judges is not None and second is not None:
                kind.say("ask the other users about the policy")
                sums = self.judges.answer(folder / RELEASE, schema, planned.table, second)
                judgement = judge(folder, schema, planned, settings, second, sums)
            kind.say("write policy, report, figures")
            algorithm, options = facts["algorithm"], facts["options"]
            statement, text = fill(folder, schema, planned, algorithm, options, settings, run)
        return reservation, statement, text, judgement


def judge(
    folder: Path, schema: Schema, planned: PlannedPolicy, settings: LearnConfig, second: SecondGroup,
    sums: list[float],
) -> PolicyAnswer | AdvantageVerdict:  # fmt: skip
    """Write the answer of the second group into a folder that already contains the release.

    sums : noisy sums of the answers and of their squares. Returns the estimate and its interval.
    """
    return write_judgement(
        folder, folder / RELEASE, schema, planned.table, second, sums, settings.level, settings.synthetic
    )


def judge_again(
    found: Path, folder: Path, schema: Schema, planned: PlannedPolicy, settings: LearnConfig, run: Run
) -> Run:
    """Write the judgement that a stopped run left in the folder ``found`` into the folder ``folder``.

    Returns the facts of the run. If the run stopped before the second group was asked, the folder has no
    judgement, and the budget of the second group is spent. The run then counts as planned again from its
    release.

    Raises ``ValueError`` if the file with the answer is incomplete, or if the question was asked by other
    versions of the libraries. Other versions can compute another policy or another C from the same release,
    and the noisy sums would not match them.
    """
    if run.second_group is None:
        return run
    path = found / JUDGEMENT
    if not path.is_file():
        return replace(run, replanned=True)
    remedy = f"or delete {JUDGEMENT} to finish without the answer"
    if run.replanned:
        raise ValueError(f"{path}: other versions asked the question; finish with those, {remedy}")
    try:
        sums = answer_in(found)
    except ValueError as error:
        raise ValueError(f"{error}; repair it, {remedy}") from None
    judge(folder, schema, planned, settings, run.second_group, sums)
    return run


_MODEL = "synthetic input, intervals describe a model, not people: "  # first words in the ledger


def _check_synthetic(
    source: Source | PartialAggregateFile | FederatedSum, settings: LearnConfig
) -> tuple[Facts, ...]:
    """Return the facts of the synthetic users in the source; empty for real data.

    Raises ``ValueError`` if ``settings.synthetic_input`` does not match the source.
    """
    found = () if isinstance(source, FederatedSum) else source.synthetic
    if bool(found) != settings.synthetic_input:
        held = "synthetic users" if found else "people"
        raise ValueError(
            f"synthetic_input = {settings.synthetic_input}: the source holds {held}; must be {bool(found)} "
            "(--source synthetic=true)"
        )
    return found


def _schema_of(
    source: Source | PartialAggregateFile | FederatedSum, schema: Schema | None, learner: Any,
    privatizer: Privatizer | None,
) -> Schema:  # fmt: skip
    """Return the schema of the source. Raises ``ValueError`` if an argument does not fit the source."""
    if privatizer is not None and not hasattr(privatizer, "stored"):
        raise ValueError(
            f"privatizer = {checks.said(privatizer)}: must be Central or NoPrivacy, because one server has "
            "the stored records"
        )
    if isinstance(source, PartialAggregateFile):
        if schema is None:
            raise ValueError("schema: must be given with a counted part")
        _check_part(source, schema, learner)
        return schema
    if schema is not None:
        raise ValueError("schema: must be given only with a counted part, because a source has a schema")
    if isinstance(source, FederatedSum):
        source.check(learner, privatizer)
        return source.plan.schema
    return source.schema


def _check_rules(
    source: Source | PartialAggregateFile | FederatedSum, schema: Schema, ledger: Ledger | None
) -> None:
    """Raise ``ValueError`` if a rule of the data's owner forbids the release.

    In a federation, each site checks its own rules.
    """
    if isinstance(source, PartialAggregateFile):
        obeyed(source.rules, schema.dataset, ledger)
    elif not isinstance(source, FederatedSum):
        check_rules(source.files, schema.dataset, ledger)


def _check_part(part: PartialAggregateFile, schema: Schema, learner: Any) -> None:
    """Raise ``ValueError`` if a part was counted with another schema or for another kind of query."""
    for fact, wanted in facts_of(schema, kind_of(schema, learner)).items():
        if part.facts[fact] != wanted:
            raise ValueError(
                f"{fact} = {checks.said(wanted)}: must be that under which the parts were counted, "
                f"{checks.said(part.facts[fact])}"
            )


@claims_out
def replan(
    release: str | Path,
    learner: tabular.APVI | tabular.DPAPVI | DecisionPoints | LinearAdvantage | linear.Linear,
    out: str | Path,
    *,
    settings: LearnConfig | None = None,
    rewards: Floats | None = None,
    progress: Progress | None = None,
) -> LearnResult:
    """Plan again from the release in a folder, and write a new folder.

    No user data are read, and no budget is spent.

    Parameters
    ----------
    release : path of ``release.parquet`` in a folder that :func:`learn` made
        Its ``schema.toml`` must be in the same folder.
    learner : offline learner that :func:`learn` accepts. The budget of the learner is not used
    out : folder
        Must not exist, or must be empty.
    settings : LearnConfig, optional
        Settings that do not change the release.
    rewards : (1 or H, S, A) in [0, 1], optional
        Known rewards that replace the rewards in the schema. They are stored in the file ``rewards.npy``.
    progress : function that is called as described for :func:`learn`

    Raises
    ------
    ValueError
        If a file is missing or was changed, or the learner needs sums that the release does not contain.
    """
    settings, out, path = settings or LearnConfig(), Path(out), Path(release)
    check_free(out)
    folder = path.parent
    if not (folder / SCHEMA).is_file():
        raise ValueError(f"{path}: schema.toml must be in the same folder")
    schema = read_schema(folder / SCHEMA)
    run = replace(Run.of(path, schema), replanned=True, versions=versions())
    check_statement(path)
    _check_kind(path, learner)
    if rewards is not None and read_tables(path).facts.first_visits:
        raise ValueError(
            "rewards: must not be given, first visits were released with the returns of the schema"
        )
    known = schema if rewards is None else replace(schema, known=rewards, outcomes=None)
    kind = kind_of(known, learner, progress)
    first = read_tables(path).facts.options
    settings = replace(settings, synthetic=run.synthetic, synthetic_input=SYNTHETIC_INPUT in first)
    kind.check(settings)
    with aside(out) as hidden:
        write_schema(schema, hidden / SCHEMA)
        settings.write_rules(hidden)
        if rewards is not None:
            np.save(hidden / REWARDS, rewards)
        shutil.copyfile(path, hidden / RELEASE)
        copy_ledger(folder, hidden)
        planned = kind.again(hidden / RELEASE, settings)
        options = {"learner": options_of(learner), **settings.chosen(), **kind.asked}
        options |= {name: first[name] for name in (SITES, SYNTHETIC_INPUT) if name in first}
        if run.second_group is not None:
            options["judge_share"] = run.second_group.share
        kind.say("write policy, report, figures")
        statement, text = fill(hidden, schema, planned, name_of(learner), options, settings, run)
    return LearnResult(out, statement, text)


# ------------------------------------------------------------------------------------ the folder


def check_statement(release: Path) -> None:
    """Raise ``ValueError`` if the statement in the folder of a release is not about this release."""
    path = release.parent / JSON_NAME
    if not path.exists():
        return  # the run was stopped before it wrote a statement
    try:
        named = json.loads(path.read_text("utf-8"))["files"][release.name]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: must be the statement of the release in the same folder ({error!r})"
        ) from None
    if named != file_hash(release):
        raise ValueError(f"{release}: is not the release of the statement in the same folder")


def _check_kind(path: Path, learner: Any) -> None:
    """Raise ``ValueError`` if the release does not contain the kind of sums that the learner reads."""
    facts = read_tables(path).facts
    if facts.contexts != isinstance(learner, LinearAdvantage):
        held = "sums of contexts, for linear-advantage" if facts.contexts else "no sums of contexts"
        raise ValueError(f"learner = {name_of(learner)!r}: {path} holds {held}")
    if facts.contexts:
        return
    if facts.linear != isinstance(learner, linear.Linear):
        held = f"sums of features, for {facts.algorithm}" if facts.linear else "counts, for dp-apvi or apvi"
        raise ValueError(f"learner = {name_of(learner)!r}: {path} holds {held}")
    if facts.first_visits != isinstance(learner, DecisionPoints):
        held = "first visits, for decision-points" if facts.first_visits else "counts of every step"
        raise ValueError(f"learner = {name_of(learner)!r}: {path} holds {held}")


def copy_ledger(source: Path, folder: Path) -> None:
    """Copy ``ledger.jsonl``, if it exists, from the folder of a release to another folder for the same
    release.
    """
    if (source / LEDGER_NAME).is_file():
        shutil.copyfile(source / LEDGER_NAME, folder / LEDGER_NAME)


def fill(
    folder: Path,
    schema: Schema,
    planned: PlannedPolicy,
    algorithm: str,
    options: Mapping[str, Any],
    settings: LearnConfig,
    run: Run,
) -> tuple[Statement, str]:
    """Write policy, report and statement into a folder that already contains the schema and the release.

    Returns the statement and the text of the report.
    """
    text = write_plan(folder, planned, run.guarantee, settings, replanned=run.replanned)
    tables = read_tables(folder / RELEASE)
    write_csv(tables, folder)
    files = {path.name: file_hash(path) for path in sorted(folder.iterdir())}
    verdict = stated_verdict(planned.report.to_dict())
    statement = _statement(schema, algorithm, options, settings, run, files, verdict, stated_query(tables))
    write_statement(folder, statement)
    return statement, text


def _statement(
    schema: Schema, algorithm: str, options: Mapping[str, Any], settings: LearnConfig, run: Run,
    files: Mapping[str, str], verdict: Mapping[str, Any] | None = None,
    query: Mapping[str, Any] | None = None,
) -> Statement:  # fmt: skip
    """Return the privacy statement of a run.

    This function is also called before the release, so that invalid input fails before budget is spent.
    """
    facts = RunFacts(
        schema=schema, algorithm=algorithm, options=options, files=files, operator=settings.operator,
        approval=settings.approval, verdict=verdict, query=query, **vars(run),
    )  # fmt: skip
    return make_statement(facts)


def _rehearse(schema: Schema, facts: Mapping[str, Any], settings: LearnConfig, run: Run) -> None:
    """Raise ``ValueError`` if a file of the folder could not be written. Called before budget is spent.

    It must be possible to encode every string, and to write the schema to a file and read it back unchanged.
    """
    statement = _statement(
        schema, facts["algorithm"], facts["options"], settings, run, dict.fromkeys(_EXPECTED, "0" * 64)
    )
    checks_of = {
        **{name: getattr(settings, name) for name in ("operator", "approval", "purpose")},
        "statement": statement.to_json(),
        **{f"states.labels[{i}]": label for i, label in enumerate(schema.state_labels or ())},
        **{f"actions.labels[{i}]": label for i, label in enumerate(schema.action_labels or ())},
        **{name: text_of(lines(statement.document)) for name, lines in PAGES.items()},
    }
    for name, text in checks_of.items():
        check_encodable(name, text)
    ReleaseFacts(**{**facts, "run": run.metadata()}).to_dict()
    with TemporaryDirectory() as folder:
        path = Path(folder) / SCHEMA
        write_schema(schema, path)
        if read_schema(path).hash != schema.hash:
            raise ValueError("source.schema: must be one that can be written as SCHEMA.toml without loss")
