r"""Privacy statement of a release from offline data: a JSON file and two pages.

A statement is a function of :class:`RunFacts`: :func:`make_statement` computes all other contents from these
facts. :mod:`discreet.pipeline.verify` computes the statement again from the files in the folder. The
``fingerprint`` is a SHA-256 of the statement without the fingerprint itself and without the two free lines,
``operator`` and ``approval``. The approver of a statement writes down its fingerprint. Hashes detect changes,
but do not identify who made them.

*Scope.* The privacy losses of several releases are added. Therefore the sentence for patients, the attacker's
table, the groups and the warnings refer to *all* releases of the dataset in the ledger, up to and including
this release. The numbers are totals at this release's delta that the ledger's filter certifies
(:meth:`discreet.ledger.ledger.Ledger.certified`). The filter may have no finite epsilon at this delta
(Gaussian noise before a release at delta = 0). Then the numbers are for delta = 0.1/users. The cost of this
release alone is also stated. The total of the filter holds even if later releases depended on the results of
earlier releases. Without a ledger, the statement refers only to this release, and states this.

The statement contains neither the command line nor paths, because these can reveal private information.

*Sentences.* (epsilon, delta)-privacy means that P(E) <= e^epsilon P'(E) + delta for every event E. Here P is
the distribution of the release with your data, and P' is the distribution with another user's data instead of
yours. The sentence for patients and the attacker's table (:mod:`discreet.reports.trade_off_function`) state
exactly this. Every printed number is rounded up. Sentences about these numbers are defined in
:mod:`discreet.accounting.text.sentence_templates`, by version. A statement is verified with the sentences of
its version.

*delta compared with 1/users.* A mechanism that publishes the raw data of one user chosen at random is (0,
1/users)-private. Therefore a delta above 1/users is rejected, and a delta above 0.1/users causes a warning.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

from discreet.accounting.privacy_filter import covers
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.accounting.serialization import of_guarantee
from discreet.accounting.text.guarantee_sentences import up
from discreet.accounting.text.sentence_templates import with_modules_of
from discreet.core import checks
from discreet.core import families as counts
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.core.short_repr import brief
from discreet.data.schema import DECLARED, Schema
from discreet.data.synthetic_mark import SYNTHETIC_INPUT
from discreet.learners.offline.release_files import FIRST_VISITS
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.names import __version__
from discreet.reports.dpo_report import HTML_NAME, OFFICER_NAME, officer_html, officer_markdown
from discreet.reports.phrases import phrases
from discreet.reports.statement_page import (
    FREE,
    JSON_NAME,
    MARKDOWN_NAME,
    hundredths,
    markdown,
    markdown_lines,
    times,
)
from discreet.reports.statement_schema import FORMAT, VERSION, of_version, ordered, violations
from discreet.reports.trade_off_function import TradeOff
from discreet.utils.atomic_file import write_aside
from discreet.utils.document import Line, text_of

Records = tuple[MechanismRecord | ReportRecord, ...]

_FALSE_POSITIVES = (0.01, 0.05, 0.10)
_PRIORS = (0.5, 0.1, 0.01)
_GROUPS = (2, 5, 10)
_NEEDED = ("release.parquet", "schema.toml")
_GROUPED = 5  # first version that supports groups, censored ends and comparisons with rules


# ------------------------------------------------------------------------------ facts


class _ReadableLedger(Protocol):
    """Methods of :class:`discreet.ledger.ledger.Ledger` that a statement uses. They only read the ledger."""

    @property
    def path(self) -> Path: ...
    @property
    def identity(self) -> str: ...
    def entries(self, dataset: str | None = None) -> Sequence[Any]: ...
    def totals(self, dataset: str, *, delta: float | None = None, upto: int | None = None) -> Any: ...
    def certified(self, dataset: str, delta: float, *, upto: int | None = None) -> Any: ...
    def owner(self, dataset: str) -> str | None: ...
    def successors(self, dataset: str, key: str) -> tuple[str, ...]: ...


LedgerLike = _ReadableLedger
Totals = Mapping[str, float | str | None]
_TOTALS = ("reservations", "epsilon", "delta", "method", "pure", "mu", "rho", "limit_key")


def _totals(totals: Any) -> Totals:
    """Return the totals of a ledger as plain values. An infinite epsilon is replaced by None."""
    plain = {name: getattr(totals, name) for name in _TOTALS}
    plain["limit_epsilon"], plain["limit_delta"] = totals.limit or (None, None)
    return _finite(plain)


_TOGETHER = ("reservations", "epsilon", "delta", "rule", "pure", "mu", "rho")


def _together(ledger: _ReadableLedger, dataset: str, number: int, delta: float, users: int) -> Totals:
    """Return the total privacy loss that the ledger's filter certifies for all entries up to ``number``.

    The total is for the given ``delta``. If the filter has no finite epsilon at this delta, the total is for
    delta = 1/(10 users).
    """
    found = ledger.certified(dataset, delta, upto=number)
    if not math.isfinite(found.epsilon):
        found = ledger.certified(dataset, 0.1 / users, upto=number)
    return _finite({name: getattr(found, name) for name in _TOGETHER})


def _finite(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with infinite numbers replaced by None, because JSON has no infinity."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in plain.items()
    }


@dataclass(frozen=True)
class LedgerFacts:
    """Public facts about the entry of a run in the ledger. :meth:`of` reads them from the ledger.

    Parameters
    ----------
    name : file name of the ledger, without folders
    identity : random identifier that was drawn when the ledger was created
    new : True if this is the first reservation of any dataset in the ledger
    dataset : name of the dataset in the ledger
    number, head : number and hash of the run's reservation; the hash covers all entries up to this one
    before, after : totals of the dataset without and with the reservation, with epsilon at the same delta,
        and the owner's limit
    together : total that the filter certifies for all reservations up to this one, at the statement's delta
    """

    name: str
    identity: str
    new: bool
    dataset: str
    number: int
    head: str
    before: Totals
    after: Totals
    together: Totals

    def __post_init__(self) -> None:
        check_encodable("name of the ledger's file", self.name)
        checks.flag("new", self.new)
        if set(self.together) != set(_TOGETHER):
            raise ValueError(f"together: must hold {', '.join(_TOGETHER)}")
        if not self.name or PurePosixPath(self.name.replace("\\", "/")).name != self.name:
            raise ValueError(f"name = {checks.said(self.name)}: must be the name of a file, without folders")

    @classmethod
    def of(cls, ledger: _ReadableLedger, reservation: Any) -> LedgerFacts:
        """Return the facts about a reservation. It is made by :meth:`discreet.ledger.ledger.Ledger.reserve`.

        Raises ``ValueError`` if the reservation is not in this ledger.
        """
        dataset, number = reservation.dataset, reservation.number
        made = [entry for entry in ledger.entries() if entry.kind == "reserve"]
        entry = next((entry for entry in made if entry.number == number), None)
        if entry is None:
            raise ValueError(f"reservation = {reservation!r}: is not in this ledger")
        after = ledger.totals(dataset, upto=number)
        before = ledger.totals(dataset, delta=after.delta, upto=number - 1)
        return cls(
            name=ledger.path.name,
            identity=ledger.identity,
            new=made[0].number == number,
            dataset=dataset,
            number=number,
            head=reservation.hash,
            before=_totals(before),
            after=_totals(after),
            together=_together(ledger, dataset, number, entry.delta or 0.0, entry.users or 1),
        )


def dry_run_ledger_facts(ledger: _ReadableLedger, dataset: str) -> LedgerFacts:
    """Return placeholder facts about a reservation.

    With them, a statement can be tested before budget is spent.
    """
    none = dict.fromkeys((*_TOTALS, "limit_epsilon", "limit_delta"))
    together = {**dict.fromkeys(_TOGETHER), "reservations": 1}
    return LedgerFacts(ledger.path.name, ledger.identity, False, dataset, 1, "0" * 64, none, none, together)


@dataclass(frozen=True)
class SecondGroup:
    """Mechanism on a second group of users, whose records are not in the release of the run.

    A keyed hash of the identifier divides users into the two groups before anything is counted. Each user is
    in one group, and both mechanisms have the same privacy loss. Therefore the guarantee of the run holds for
    every user (parallel composition; :mod:`discreet.mechanisms.dataset.clipped_sum`).

    share : expected share of users in this group, in (0, 1).

    users : number of users in this group, at least 1.

    record : record of the mechanism.
    """

    share: float
    users: int
    record: MechanismRecord

    def __post_init__(self) -> None:
        checks.real("share", self.share, 0.0, 1.0, open_low=True, open_high=True)
        checks.integer("users", self.users, 1)
        checks.exactly("record", self.record, MechanismRecord)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values."""
        return {"share": self.share, "users": self.users, "record": self.record.to_dict()}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> SecondGroup:
        """Return the facts that :meth:`to_dict` returned.

        Raises ``ValueError`` if a value is missing or wrong.
        """
        if set(table) != {"share", "users", "record"}:
            raise ValueError("second_group: must have share, users and record")
        return cls(table["share"], table["users"], MechanismRecord.from_dict(table["record"]))


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFacts:
    """Facts of one run, from which the statement is computed.

    Parameters
    ----------
    schema : Schema
    users : int
        Number of users, at least 1. With a second group, the number of both groups together.
    guarantee : Guarantee
        Privacy guarantee of the release.
    records : tuple
        Mechanism records of the guarantee; empty if exact sums were released.
    algorithm, options
        Name of the learner, and all its options (JSON values).
    purpose : str
        Purpose of the release, in one line. If there is a ledger, its entry states the same purpose.
    files : mapping of name to hash
        Hashes (by :func:`file_hash`) of all files in the folder except the statement and its pages. Names
        separate folders by ``/``.
    ledger : LedgerFacts or None
        Facts about the entry in the ledger. None if no ledger recorded the release; the statement then states
        this in capitals. Must be None for data that were generated from a schema and for noise from a seed,
        because they spend no budget and protect no user.
    synthetic : bool
        True for synthetic data; the statement is then not about real users. If they were drawn from the model
        of an earlier release, ``options`` contains the facts of their mark.
    replanned : bool
        True if this run read no user data, because it planned again from an earlier release.
    date : str
        Date of the release, in ISO 8601.
    verdict : mapping, optional
        For decision points, the result of :func:`discreet.reports.verdict_text.stated_verdict`; None for
        other learners.
    second_group : SecondGroup, optional
        Facts about users who are not in the release and answered a question about the policy.
    query : mapping, optional
        Result of :func:`discreet.reports.checkable_files.stated_query`; None before the release is made.
    versions : mapping
        Result of :func:`versions`.
    operator, approval : str
        Free lines of the operator and the approver. They can be empty and be filled in later.

    Raises
    ------
    ValueError
        If a fact is missing or wrong, or delta is above 1/users.
    """

    schema: Schema
    users: int
    guarantee: Guarantee
    records: Records
    algorithm: str
    options: Mapping[str, Any]
    purpose: str
    files: Mapping[str, str]
    ledger: LedgerFacts | None
    date: str
    synthetic: bool = False
    replanned: bool = False
    verdict: Mapping[str, Any] | None = None
    second_group: SecondGroup | None = None
    query: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: versions())
    operator: str = ""
    approval: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not isinstance(self.schema, Schema):
            raise ValueError(f"schema = {checks.said(self.schema)}: must be a Schema")
        if not isinstance(self.guarantee, Guarantee):
            raise ValueError(f"guarantee = {checks.said(self.guarantee)}: must be a Guarantee")
        put(self, "users", checks.integer("users", self.users, 1))
        put(self, "records", tuple(self.records))
        put(self, "synthetic", checks.flag("synthetic", self.synthetic))
        put(self, "replanned", checks.flag("replanned", self.replanned))
        if self.records != self.guarantee.records:
            raise ValueError("records: must be those of the guarantee")
        made_up = self.synthetic and SYNTHETIC_INPUT not in self.options
        if self.ledger is not None and (made_up or self.guarantee.randomness != "secure"):
            raise ValueError(
                "ledger: must be None (--no-ledger) for synthetic data and for noise from a seed: a ledger "
                "records only releases that protect users"
            )
        for name in _NEEDED:
            if name not in self.files:
                raise ValueError(f"files lacks {name!r}: must hold {', '.join(_NEEDED)} and the policy")
        if not any(name.startswith("policy.") for name in self.files):
            raise ValueError("files lacks the policy: must hold policy.csv or another policy.*")
        check_delta(self.guarantee.delta, self.users)
        second = self.second_group
        if second is not None:
            if not covers(self.records, (second.record,)):
                raise ValueError("second_group: must cost at most as much as the records of the release")
            if second.users >= self.users:
                raise ValueError(f"second_group.users = {second.users}: must be below users = {self.users}")


def check_encodable(name: str, value: str) -> None:
    """Raise ``ValueError`` if a string cannot be encoded in UTF-8.

    Such text can come from bytes in a command line or a path that cannot be decoded.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} = {value!a}: must be text that can be encoded (UTF-8)") from None


def versions() -> dict[str, str]:
    """Return the installed versions of the library, Python, NumPy and Matplotlib."""
    return {
        "discreet": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "matplotlib": metadata.version("matplotlib"),
    }


def file_hash(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, 64 hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_delta(delta: float, users: int) -> str:
    """Return ``"warn"`` if delta is above 0.1/users, ``"pure"`` if delta is 0, and otherwise ``"small"``.

    Raises ``ValueError`` if delta is above 1/users.
    """
    delta = checks.real("delta", delta, 0.0, 1.0, open_high=True)
    users = checks.integer("users", users, 1)
    if delta > 1.0 / users:
        raise ValueError(
            f"delta = {delta:g}: must be at most 1/users = {1 / users:g}; publishing one user's raw data at "
            "random would meet it"
        )
    if delta == 0.0:
        return "pure"
    return "warn" if delta > 0.1 / users else "small"


# ------------------------------------------------------------------------------ the document


@dataclass(frozen=True, eq=False)
class Statement:
    """Privacy statement as a JSON document. :func:`learn` writes it and :func:`verify` checks it.

    document : JSON values that satisfy ``discreet.reports.statement_schema.JSON_SCHEMA``.
    """

    __repr__ = brief

    document: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of the document as plain values. ``statement_schema.JSON_SCHEMA`` describes them."""
        return json.loads(self.to_json())

    def to_json(self) -> str:
        """Return the document as indented JSON text."""
        return json.dumps(self.document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"

    def to_markdown(self) -> str:
        """Return the page ``statement.md``, which depends only on the document."""
        return markdown(self.document)


def make_statement(facts: RunFacts, version: int = VERSION) -> Statement:
    """Return the statement of a run.

    version : format of the statement; earlier versions are used to verify old statements.

    Raises ``ValueError`` if the library of that version could not have made the run, or if the statement
    violates the schema.
    """
    guarantee, schema, said = facts.guarantee, facts.schema, phrases(version)
    _check_known_to(version, facts)
    alone = TradeOff.of(guarantee, facts.records)
    whole = whole_of(facts, alone)
    verdict = check_delta(guarantee.delta, facts.users) if guarantee.epsilon is not None else "none"
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": version,
        "synthetic": facts.synthetic,
        "replanned": facts.replanned,
        "date": facts.date,
        "purpose": facts.purpose,
        "sentence": sentence_of(facts, whole, alone, said),
        "warnings": list(_warnings(facts, whole, verdict, said)),
        "population": _population(facts),
        "data": _data(schema),
        "guarantee": of_guarantee(guarantee, version),
        "delta": {
            "delta": guarantee.delta,
            "per_user": 1.0 / facts.users,
            "ratio": guarantee.delta * facts.users,
            "verdict": verdict,
        },
        "attacker": attacker_of(whole.attacker),
        "alone": None if whole.releases == 1 else attacker_of(alone),
        "groups": [_group(whole.attacker, people, whole.delta) for people in _GROUPS],
        "covered": list(_covered(facts, said)),
        "not_covered": list(_not_covered(facts, said)),
        "mechanisms": [_mechanism(record, facts, version) for record in facts.records],
        **({} if facts.second_group is None else {
            "second_group": _second_group(facts.second_group, facts, version),
        }),
        "query": None if facts.query is None else dict(facts.query),
        "verdict": None if facts.verdict is None else dict(facts.verdict),
        "configuration": configuration_of(facts.algorithm, facts.options),
        "files": dict(sorted(facts.files.items())),
        "versions": dict(facts.versions),
        "ledger": None if facts.ledger is None else {
            **vars(facts.ledger),
            **{name: dict(getattr(facts.ledger, name)) for name in ("before", "after", "together")},
        },
        "operator": facts.operator,
        "approval": facts.approval,
    }  # fmt: skip
    document = of_version(document, version)
    document["fingerprint"] = fingerprint_of(document)
    broken = next(violations(document), None)
    if broken is not None:
        raise ValueError(f"statement: {broken}")
    return Statement(ordered(document))


def _population(facts: RunFacts) -> dict[str, Any]:
    schema = facts.schema
    return {
        "dataset": schema.dataset,
        "unit": schema.unit,
        "users": facts.users,
        "users_public": facts.guarantee.users_public,
        "episodes_per_user": schema.episodes_per_user,
        "contribute": schema.contribute,
        "horizon": schema.horizon,
        "states": schema.layout.states,
        "actions": schema.layout.actions,
        "pairs": schema.layout.rows,
        "provenance": dict(schema.provenance),
        **({} if schema.groups is None else {"groups": {
            "column": schema.groups.column, "labels": list(schema.groups.labels),
        }}),
        "schema": schema.hash,
    }  # fmt: skip


def _check_known_to(version: int, facts: RunFacts) -> None:
    """Raise ``ValueError`` if a run uses features that the given version of the statement does not support.

    The report of that version would not mention these features.
    """
    if version >= _GROUPED:
        return
    newer = {
        "groups": facts.schema.groups is not None, "censored ends": facts.schema.censored is not None,
        "rules to compare with": "compare" in facts.options,
        "a second group": facts.second_group is not None,
    }  # fmt: skip
    for what in (name for name, there in newer.items() if there):
        raise ValueError(f"version = {version}: must be at least {_GROUPED} for a run with {what}")


def _data(schema: Schema) -> dict[str, Any]:
    """Return the statement's part about the data: columns, first step, rewards and declarations."""
    labels, returns, end = schema.state_labels, schema.returns, schema.censored
    outcomes = None
    if schema.outcomes is not None:
        outcomes = {str(s) if labels is None else labels[s]: float(r) for s, r in schema.outcomes.items()}
    least, most = returns.bounds(schema.horizon)
    columns = {part.name: getattr(schema.columns, part.name) for part in fields(schema.columns)}
    if schema.context is not None:  # these columns replace the state
        names = ", ".join(schema.context.read)
        columns["state"] = names if len(names) <= 500 else f"{len(schema.context.read)} context columns"
    return {
        "columns": columns,
        "first_step": schema.first_step,
        "reward": {
            "low": float(schema.low),
            "high": float(schema.high),
            "source": "known" if schema.known is not None else "column" if outcomes is None else "outcomes",
            "outcomes": outcomes,
            "censored": None if end is None else str(end) if labels is None else labels[end],
            "return_low": float(least),
            "return_high": float(most),
        },
        "declared": {name: schema.declared.get(name) for name in DECLARED},
    }


PAGES: Mapping[str, Callable[[Mapping[str, Any]], list[Line]]] = {
    MARKDOWN_NAME: markdown_lines, OFFICER_NAME: officer_markdown, HTML_NAME: officer_html,
}  # fmt: skip
"""Functions that write the pages of a statement, by file name. The argument is the JSON document."""


def write_statement(folder: str | Path, statement: Statement) -> None:
    """Write ``statement.json`` and its pages into the folder.

    Each file is written under a hidden name first and is then renamed.
    """
    texts = {JSON_NAME: statement.to_json()}
    texts |= {name: text_of(lines(statement.document)) for name, lines in PAGES.items()}
    for name, text in texts.items():
        write_aside(Path(folder) / name, text.encode())


def published_hashes(document: Mapping[str, Any]) -> dict[str, str]:
    """Return a mapping of all files of a folder to their hashes, in the form that the ledger stores.

    Two lines of the statement and the free lines of its pages are filled in later. Therefore the value for
    ``statement.json`` is its fingerprint, and the value for each page is the SHA-256 of the page with empty
    free lines. The value for any other file is its SHA-256.
    """
    empty = {**document, **dict.fromkeys(FREE, "")}
    return {
        **document["files"],
        JSON_NAME: str(document["fingerprint"]),
        **{name: hashlib.sha256(text_of(lines(empty)).encode()).hexdigest() for name, lines in PAGES.items()},
    }


def _canonical(value: Any) -> bytes:
    """Return a JSON value as bytes in canonical form, with sorted keys and without spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode()


def fingerprint_of(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a statement without its fingerprint and without the two free lines."""
    kept = {key: value for key, value in document.items() if key not in (*FREE, "fingerprint")}
    return hashlib.sha256(_canonical(kept)).hexdigest()


def configuration_of(algorithm: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement's part about the learner and its options, with a hash of both."""
    plain = {"algorithm": algorithm, "options": dict(options)}
    return {**plain, "hash": hashlib.sha256(_canonical(plain)).hexdigest()}


@dataclass(frozen=True)
class _Whole:
    """Totals over all releases to which the statement refers.

    - releases : number of these releases.
    - epsilon, delta : their total privacy loss.
    - attacker : bounds on attackers who see all these releases.
    """

    releases: int
    epsilon: float
    delta: float
    attacker: TradeOff


def whole_of(facts: RunFacts, alone: TradeOff) -> _Whole:
    """Return the totals over all releases of the dataset in the ledger.

    alone : bounds on attackers who see only this release.
    """
    guarantee = facts.guarantee
    if facts.ledger is None or facts.ledger.together["reservations"] == 1:
        epsilon = math.inf if guarantee.epsilon is None else guarantee.epsilon
        return _Whole(1, epsilon, guarantee.delta, alone)
    found: Mapping[str, Any] = facts.ledger.together
    epsilon = math.inf if found["epsilon"] is None else float(found["epsilon"])
    points = [(epsilon, float(found["delta"]))] if math.isfinite(epsilon) else []
    if found["pure"] is not None and found["delta"]:
        points.append((float(found["pure"]), 0.0))
    attacker = TradeOff(tuple(points), found["mu"], found["rho"])
    return _Whole(int(found["reservations"]), epsilon, float(found["delta"]), attacker)


def attacker_of(attacker: TradeOff) -> dict[str, Any]:
    """Return bounds on an attacker as JSON values.

    These are the advantage, the true positive rates of tests at three false positive rates, and the
    posteriors at three priors.
    """
    return {
        "advantage": attacker.advantage,
        "tests": [{"false_positives": f, "true_positives": attacker.power(f)} for f in _FALSE_POSITIVES],
        "priors": [
            {
                "prior": prior,
                "right_guess": attacker.right_guess(prior),
                "posterior_of_any_outcome": attacker.posterior(prior),
                "posteriors": [
                    {"false_positives": f, "posterior": attacker.posterior(prior, f)}
                    for f in _FALSE_POSITIVES
                ],
            }
            for prior in _PRIORS
        ],
    }


def _group(attacker: TradeOff, people: int, delta: float) -> dict[str, Any]:
    together = attacker.group(people)
    return {
        "people": people,
        "epsilon": together.epsilon(delta),
        "delta": delta,
        "rho": together.rho,
        "mu": together.mu,
        "advantage": together.advantage,
    }


def count_query(names: Sequence[str], schema: Schema, first_visits: bool = False) -> CountQuery | None:
    """Return the count query whose families have exactly the given names; None without such a query.

    first_visits : True if the release states that it contains counts of first visits.
    """
    if counts.TRANSITIONS not in names:
        return None
    if first_visits:
        asked = FirstVisits(schema.spec(), schema.episodes_per_user).query()
        return asked if set(asked.row_families) == set(names) else None
    known = not {counts.REWARDS, counts.CENTERED_REWARDS} & set(names)
    query = CountQuery(
        schema.layout,
        visits=counts.VISITS in names,
        center_rewards=counts.CENTERED_REWARDS in names,
        known_rewards=known,
        episodes=schema.episodes_per_user,
    )
    return query if set(query.row_families) == set(names) else None


_PROOFS = {
    "counts": "sensitivity: derivation in the module discreet.core.count_query, tested by brute force on "
    "random neighbours",
    "linear": "sensitivity: lemmas in the module discreet.mechanisms.linear.sensitivities, tested by "
    "numerical maximisation",
    "laplace": "Laplace noise: Dwork, McSherry, Nissim and Smith 2006; sums of losses in "
    "discreet.core.guarantee",
    "discrete_laplace": "discrete Laplace noise: Ghosh, Roughgarden and Sundararajan 2009; sums of losses in "
    "discreet.core.guarantee",
    "gaussian": "Gaussian noise: Dong, Roth and Su 2022 (mu-GDP); curve by Balle and Wang 2018, in "
    "discreet.accounting.budget",
    "discrete_gaussian": "discrete Gaussian noise: Canonne, Kamath and Steinke 2020 (zCDP), in "
    "discreet.accounting.budget",
    "numerical": "epsilon at delta: numerical privacy-loss distributions, "
    "discreet.accounting.pld_calibration and discreet.accounting.pld",
    "secure": "exact samplers: discreet.core.noise.discrete_samplers",
    "clipped": "sensitivity of a clipped sum: derivation in the module "
    "discreet.mechanisms.dataset.clipped_sum, tested by brute force over all records of a small problem",
    "groups": "two groups of users: parallel composition, in discreet.mechanisms.dataset.clipped_sum and "
    "discreet.data.user_groups",
    "reports": "likelihood ratios of reports: discreet.mechanisms.local.randomized_response",
    "sites": "noise in shares of several sites: discreet.pipeline.distributed_noise",
    "attacker": "attacker's table and groups: discreet.reports.trade_off_function and "
    "discreet.accounting.budget",
}
SITES = "sites"  # key of the options about sites that do not share data (discreet.pipeline.federated)
_SOURCES = {
    "secure": "operating system's cryptographic source; discrete noise drawn exactly, in integers; no seed",
    "seeded": "SEEDED GENERATOR, FOR SIMULATION ONLY: whoever knows the seed can remove the noise",
}


def _mechanism(record: MechanismRecord | ReportRecord, facts: RunFacts, version: int) -> dict[str, Any]:
    families, proof = [], []
    if isinstance(record, MechanismRecord):
        of_first = facts.options.get("question") == FIRST_VISITS["question"]
        query = count_query(list(record.scales), facts.schema, of_first)
        proof = [_PROOFS["linear" if query is None else "counts"], _PROOFS[record.noise]]
        if record.exchanges:
            proof.append(_PROOFS["numerical"])
        spread = math.sqrt(2.0) if record.norm == "l1" else 1.0
        families = [
            {
                "family": name,
                "norm": record.norm,
                "sensitivity": record.sensitivities[name],
                "scale": scale,
                "std": spread * scale,
                "cells": None if query is None else math.prod(query.row_families[name]),
            }
            for name, scale in record.scales.items()
        ]
    else:
        proof = [_PROOFS["reports"]]
    if facts.guarantee.randomness == "secure":
        proof.append(_PROOFS["secure"])
    if facts.options.get(SITES, {}).get("noise") == "sites":
        proof.append(_PROOFS["sites"])
    return {
        "description": record.line(facts.guarantee.delta),
        "loss": record.loss,
        "families": families,
        "source_of_randomness": _SOURCES[facts.guarantee.randomness],
        "proof": [with_modules_of(version, one) for one in (*proof, _PROOFS["attacker"])],
        "record": record.to_dict(),
    }


def _second_group(second: SecondGroup, facts: RunFacts, version: int) -> dict[str, Any]:
    """Return the part of the statement about the second group: number of users, and mechanism."""
    proof = (_PROOFS["clipped"], _PROOFS["groups"], *_mechanism(second.record, facts, version)["proof"][1:])
    mechanism = {**_mechanism(second.record, facts, version), "proof": list(proof)}
    # The two cells are the sum of the answers and the sum of their squares.
    mechanism["families"] = [{**family, "cells": 2} for family in mechanism["families"]]
    return {
        "share": second.share,
        "users": second.users,
        "users_of_release": facts.users - second.users,
        "mechanism": mechanism,
    }


# ------------------------------------------------------------------------------ words


def _chance(delta: float) -> str:
    return f"1 in {math.floor(1 / delta * (1 + 1e-12)):,}"


def sentence_of(facts: RunFacts, whole: _Whole, alone: TradeOff, said: Mapping[str, str]) -> str:
    """Return the first sentence of the statement, which states how much is revealed about one user.

    - whole : totals over all releases.
    - alone : bounds on attackers who see only this release.
    - said : sentence templates of a version of the statement.
    """
    guarantee, m = facts.guarantee, facts.schema.episodes_per_user
    if facts.synthetic:
        return said["statement.model" if SYNTHETIC_INPUT in facts.options else "statement.synthetic"]
    if guarantee.epsilon is None:
        return said["statement.exact"].format(unit=facts.schema.unit)
    plus = said["patient, plus"].format(chance=_chance(whole.delta)) if whole.delta else ""
    what, beside = "only" if facts.ledger is None else "first", ""
    if whole.releases > 1:
        what = "all"
        own = guarantee.delta and said["statement.beside, plus"].format(chance=_chance(guarantee.delta))
        beside = said["statement.beside"].format(
            factor=times(guarantee.epsilon, said), own=own or "", right=hundredths(alone.right_guess(0.5))
        )
    promise = said["patient"].format(
        what=said[f"statement.{what}"].format(releases=whole.releases),
        factor=times(whole.epsilon, said),
        yours=said["statement.your record" if m == 1 else "statement.your records"].format(m=m),
        plus=plus,
        right=hundredths(whole.attacker.right_guess(0.5)),
    )
    start = said["statement.seeded" if guarantee.randomness == "seeded" else "statement.if"]
    return said["statement.start"].format(start=start, unit=facts.schema.unit, promise=promise, beside=beside)


def _plain(value: Any) -> str:
    return up(value) if isinstance(value, float) else checks.said(value).strip("'")


def _synthetic_input(found: Sequence[Mapping[str, Any]], said: Mapping[str, str]) -> str:
    """Return the warning about synthetic users.

    - found : facts in the marks of their files.
    """
    names = ("release", "epsilon", "delta", "model", "seed")
    releases = (
        said["warning.model, release"].format(**{name: _plain(one[name]) for name in names})
        if set(names) <= one.keys()
        else said["warning.model, unknown"]
        for one in found
    )
    return said["warning.model"].format(releases=", ".join(releases))


def _warnings(facts: RunFacts, whole: _Whole, verdict: str, said: Mapping[str, str]) -> Iterator[str]:
    guarantee, ledger, schema = facts.guarantee, facts.ledger, facts.schema
    if SYNTHETIC_INPUT in facts.options:
        yield _synthetic_input(facts.options[SYNTHETIC_INPUT], said)
    elif facts.synthetic:
        yield said["warning.synthetic"]
    if guarantee.epsilon is None:
        yield said["warning.exact"]
    if guarantee.randomness == "seeded":
        yield said["warning.seeded"]
    if ledger is None:
        yield said["warning.no ledger here" if SITES in facts.options else "warning.no ledger"]
    elif ledger.new:
        yield said["warning.new ledger"]
    if ledger is not None and ledger.after["limit_epsilon"] is None:
        yield said["warning.no limit"]
    if whole.releases > 1 and guarantee.epsilon is not None:
        yield said["warning.releases"].format(
            releases=whole.releases,
            epsilon=up(whole.epsilon),
            delta=up(whole.delta, 3),
            own_epsilon=up(guarantee.epsilon),
            own_delta=up(guarantee.delta, 3),
        )
    if verdict == "warn":
        ratio = up(guarantee.delta * facts.users, 3)
        yield said["warning.delta"].format(delta=up(guarantee.delta, 3), ratio=ratio)
    nominal = guarantee.epsilon_nominal
    if nominal is not None and guarantee.epsilon is not None and guarantee.epsilon > nominal * (1 + 1e-6):
        yield said["warning.nominal"].format(epsilon=up(guarantee.epsilon), nominal=f"{nominal:g}")
    yield from _facts_of_schema("warning", schema, said)


def _facts_of_schema(table: str, schema: Schema, said: Mapping[str, str]) -> Iterator[str]:
    """Yield sentences about facts that were taken from the data, and about facts without a stated origin."""
    for key, facts in (("leaks", schema.from_this_data), ("unstated", schema.unstated)):
        if facts:
            yield said[f"{table}.{key}"].format(facts=", ".join(facts))


def _covered(facts: RunFacts, said: Mapping[str, str]) -> Iterator[str]:
    if facts.guarantee.epsilon is None:
        return
    schema, m = facts.schema, facts.schema.episodes_per_user
    whole = said["covered.whole episode" if m == 1 else "covered.whole episodes"].format(m=m)
    yield said["covered.unit"].format(unit=schema.unit, whole=whole)
    groups = schema.groups
    if groups is not None:
        labels = ", ".join(groups.labels)
        yield said["covered.groups"].format(unit=schema.unit, column=groups.column, labels=labels)
    seeded = facts.guarantee.randomness == "seeded"
    yield said["covered.attackers"].format(attackers=said["covered.seeded" if seeded else "attackers"])
    if m > 1 and schema.contribute == "random":
        yield said["covered.random"].format(m=m)
    second = facts.second_group
    if second is not None:
        yield said["covered.second group"].format(
            unit=schema.unit, judges=second.users, others=facts.users - second.users
        )


def _of_sites(facts: RunFacts, said: Mapping[str, str]) -> Iterator[str]:
    """Yield sentences about a release from several sites: its assumptions, and facts that it reveals.

    Nothing is yielded if the release is from one site or has no guarantee.
    """
    sites = facts.options.get(SITES)
    if sites is None or facts.guarantee.epsilon is None:
        return
    keys = ["several sites", "masks", "analyst" if sites["noise"] == "analyst" else "colluding"]
    for key in keys:
        yield said[f"not covered.{key}"].format(unit=facts.schema.unit, **sites)


def _not_covered(facts: RunFacts, said: Mapping[str, str]) -> Iterator[str]:
    words = {key.removeprefix("not covered."): text for key, text in said.items()}
    yield words["raw"]
    yield words["messages"]
    if facts.guarantee.users_public:
        yield words["users"].format(users=facts.users)
    if facts.second_group is not None:
        yield words["second group"]
    yield words["member"]
    yield from _facts_of_schema("not covered", facts.schema, said)
    if facts.options.get("compare"):
        yield words["compare"]
    yield words["everybody"]
    yield from _of_sites(facts, said)
    if facts.ledger is None:
        yield words["no ledger"].format(here=words["here"] if SITES in facts.options else "")
    else:
        yield words["ledger"].format(number=facts.ledger.number, dataset=repr(facts.ledger.dataset))
    yield words["side channels"]
    yield words["groups"]
