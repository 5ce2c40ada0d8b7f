r"""The privacy statement of a release of stored people: a page, the same as JSON, and its verification.

A statement is a function of :class:`RunFacts`: whatever is not a fact is computed from the facts, by
:func:`statement_of`, and :func:`verify` computes it again from the files in the folder. Facts themselves are
compared with where they come from: hashes with files, the population with ``schema.toml``, sensitivities with
the query rebuilt from the schema, the guarantee with its mechanisms' records (by the closed forms and through
dp-accounting), records and users with the metadata of ``release.parquet``, totals with the ledger. What has
no second source (date, versions, command) is under the statement's ``fingerprint``, a SHA-256 of everything
but itself and the two lines that people fill in, ``operator`` and ``approval``. Whoever approves a statement
writes down its fingerprint: hashes find changes, they do not tell who made them.

Sentences. (epsilon, delta) says P(E) <= e^epsilon P'(E) + delta for every event E, where P' is the world with
somebody else's data in place of yours; both the sentence for patients and the table of the attacker
(:mod:`discreet.stored.tradeoff`) are that and nothing more. Every printed number is rounded up.

delta against 1/users. A mechanism that publishes one user's raw data at random is (0, 1/users)-private, so a
delta above 1/users is refused, and one above a tenth of it is warned of.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

import discreet
from discreet.accounting import calibration, numerical
from discreet.core import checks, counts
from discreet.core.counts import CountQuery
from discreet.core.files import write_aside
from discreet.core.guarantee import Guarantee, MechanismRecord, guarantee_of, joint_loss, no_guarantee
from discreet.core.shown import brief
from discreet.core.wording import up
from discreet.data.schema import Schema, read_schema
from discreet.linear.responses import planned_records
from discreet.local.record import ReportRecord, composable_from_dict
from discreet.offline.linear import schema_features
from discreet.offline.linear_releases import LinearRelease, fingerprint
from discreet.offline.releases import StoredTables, read_release, read_tables
from discreet.stored.statement_page import FREE, JSON_NAME, MARKDOWN_NAME, SIGNED, hundredths, markdown
from discreet.stored.statement_schema import FORMAT, VERSION, violations
from discreet.stored.tradeoff import TradeOff

Records = tuple[MechanismRecord | ReportRecord, ...]

__all__ = [
    "Check", "LedgerFacts", "RunFacts", "Statement", "check_delta", "file_hash", "statement_of", "verify",
    "versions", "write_statement",
]  # fmt: skip


_FALSE_POSITIVES = (0.01, 0.05, 0.10)
_PRIORS = (0.5, 0.1, 0.01)
_GROUPS = (2, 5, 10)
_NEEDED = ("release.parquet", "schema.toml")


# ------------------------------------------------------------------------------ facts


class _Ledger(Protocol):
    """What is asked of a ledger: that of :class:`discreet.storage.ledger.Ledger`."""

    @property
    def path(self) -> Path: ...
    def entries(self, dataset: str | None = None) -> Sequence[Any]: ...
    def totals(self, dataset: str, *, delta: float | None = None, upto: int | None = None) -> Any: ...


Totals = Mapping[str, float | str | None]
_TOTALS = ("reservations", "epsilon", "delta", "method", "pure", "mu", "rho")


def _totals(totals: Any) -> Totals:
    """A ledger's totals as plain values: an infinite epsilon is none."""
    plain = {name: getattr(totals, name) for name in _TOTALS}
    plain["limit_epsilon"], plain["limit_delta"] = totals.limit or (None, None)
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in plain.items()
    }


@dataclass(frozen=True)
class LedgerFacts:
    """What a run did to the ledger, in public numbers; made by :meth:`of`.

    name : of its file, without folders; dataset : the key of its entries.
    number, head : of the run's reservation; the hash stands for the chain up to it.
    before, after : totals without and with it, epsilon at one delta.
    """

    name: str
    dataset: str
    number: int
    head: str
    before: Totals
    after: Totals

    def __post_init__(self) -> None:
        if not self.name or PurePosixPath(self.name.replace("\\", "/")).name != self.name:
            raise ValueError(f"name = {checks.said(self.name)}: must be the name of a file, without folders")

    @classmethod
    def of(cls, ledger: _Ledger, reservation: Any) -> LedgerFacts:
        """The facts of a reservation (:meth:`discreet.storage.ledger.Ledger.reserve`)."""
        dataset, number = reservation.dataset, reservation.number
        after = ledger.totals(dataset, upto=number)
        before = ledger.totals(dataset, delta=after.delta, upto=number - 1)
        return cls(ledger.path.name, dataset, number, reservation.hash, _totals(before), _totals(after))


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFacts:
    """What is known of one run, before anything is computed from it.

    Parameters
    ----------
    schema : Schema
    users : int
        How many people are in the release, at least 1.
    guarantee : Guarantee
        The session's; ``records`` : what its mechanisms did, empty for exact sums.
    algorithm, options, command
        The learner's name, its options (JSON values), and the command as typed, in one line.
    files : mapping of name to hash
        Of every other file in the folder: ``/`` between folders, by :func:`file_hash`.
    ledger : LedgerFacts or None
        None: nothing was written down, and the statement says so in capitals.
    synthetic : bool
        Made-up data: the statement is of no real people.
    replanned : bool
        This run read no data: it planned again from a release that was made, and paid for, before.
    date : str
        ISO 8601, of the release.
    versions : mapping
        :func:`versions`.
    operator, approval : str
        One line each, may be empty, to be filled in later.

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
    command: str
    files: Mapping[str, str]
    ledger: LedgerFacts | None
    date: str
    synthetic: bool = False
    replanned: bool = False
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
        for name in _NEEDED:
            if name not in self.files:
                raise ValueError(f"files lacks {name!r}: must hold {', '.join(_NEEDED)} and the policy")
        if not any(name.startswith("policy.") for name in self.files):
            raise ValueError("files lacks the policy: must hold policy.csv or another policy.*")
        check_delta(self.guarantee.delta, self.users)


def versions() -> dict[str, str]:
    """Of the library, Python and NumPy that run now."""
    return {"discreet": discreet.__version__, "python": platform.python_version(), "numpy": np.__version__}


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's content, 64 hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_delta(delta: float, users: int) -> str:
    """``"pure"``, ``"small"``, or ``"warn"`` where delta is above a tenth of 1/users.

    Raises ``ValueError`` above 1/users.
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
    """A statement as a JSON document; made by :func:`statement_of`."""

    __repr__ = brief

    document: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The document, of plain values, as ``statement_schema.JSON_SCHEMA`` describes it; a copy."""
        return json.loads(self.to_json())

    def to_json(self) -> str:
        """JSON text, indented."""
        return json.dumps(self.document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"

    def to_markdown(self) -> str:
        """One page, rendered from the document alone."""
        return markdown(self.document)


def statement_of(facts: RunFacts) -> Statement:
    """The statement of a run."""
    guarantee, schema = facts.guarantee, facts.schema
    attacker = TradeOff.of(guarantee, facts.records)
    verdict = check_delta(guarantee.delta, facts.users) if guarantee.epsilon is not None else "none"
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "synthetic": facts.synthetic,
        "replanned": facts.replanned,
        "date": facts.date,
        "sentence": _sentence(facts, attacker),
        "warnings": list(_warnings(facts, verdict)),
        "population": {
            "dataset": schema.dataset,
            "unit": schema.unit,
            "users": facts.users,
            "users_public": guarantee.users_public,
            "episodes_per_user": schema.episodes_per_user,
            "contribute": schema.contribute,
            "horizon": schema.horizon,
            "states": schema.layout.states,
            "actions": schema.layout.actions,
            "pairs": schema.layout.rows,
            "provenance": dict(schema.provenance),
            "schema": schema.hash,
        },
        "guarantee": guarantee.to_dict(),
        "delta": {
            "delta": guarantee.delta,
            "per_user": 1.0 / facts.users,
            "ratio": guarantee.delta * facts.users,
            "verdict": verdict,
        },
        "attacker": _attacker(attacker),
        "groups": [_group(attacker, people, guarantee.delta) for people in _GROUPS],
        "covered": list(_covered(facts)),
        "not_covered": list(_not_covered(facts)),
        "mechanisms": [_mechanism(record, facts) for record in facts.records],
        "configuration": _configuration(facts.algorithm, facts.options, facts.command),
        "files": dict(sorted(facts.files.items())),
        "versions": dict(facts.versions),
        "ledger": None if facts.ledger is None else {
            "name": facts.ledger.name,
            "dataset": facts.ledger.dataset,
            "number": facts.ledger.number,
            "before": dict(facts.ledger.before),
            "after": dict(facts.ledger.after),
            "head": facts.ledger.head,
        },
        "operator": facts.operator,
        "approval": facts.approval,
    }  # fmt: skip
    document["fingerprint"] = _fingerprint(document)
    broken = next(violations(document), None)
    if broken is not None:
        raise ValueError(f"statement: {broken}")
    return Statement(document)


def write_statement(folder: str | Path, statement: Statement) -> None:
    """Write ``statement.json`` and ``statement.md`` into the folder, each aside and then renamed."""
    for name, text in ((JSON_NAME, statement.to_json()), (MARKDOWN_NAME, statement.to_markdown())):
        write_aside(Path(folder) / name, text.encode())


def _canonical(value: Any) -> bytes:
    """One text for one JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode()


def _fingerprint(document: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in document.items() if key not in (*FREE, "fingerprint")}
    return hashlib.sha256(_canonical(kept)).hexdigest()


def _configuration(algorithm: str, options: Mapping[str, Any], command: str) -> dict[str, Any]:
    plain = {"algorithm": algorithm, "options": dict(options), "command": command}
    return {**plain, "hash": hashlib.sha256(_canonical(plain)).hexdigest()}


def _attacker(attacker: TradeOff) -> dict[str, Any]:
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


def count_query(names: Sequence[str], schema: Schema) -> CountQuery | None:
    """The query of counts that has just these families under the schema; None if there is none."""
    if counts.TRANSITIONS not in names:
        return None
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
    "counts": "sensitivity: derivation in the module discreet.core.counts, tested by brute force on "
    "random neighbours",
    "linear": "sensitivity: lemmas in the module discreet.linear.gram, tested by numerical maximisation",
    "laplace": "Laplace noise: Dwork, McSherry, Nissim and Smith 2006; sums of losses in "
    "discreet.core.guarantee",
    "discrete_laplace": "discrete Laplace noise: Ghosh, Roughgarden and Sundararajan 2009; sums of losses in "
    "discreet.core.guarantee",
    "gaussian": "Gaussian noise: Dong, Roth and Su 2022 (mu-GDP); curve by Balle and Wang 2018, in "
    "discreet.accounting.budget",
    "discrete_gaussian": "discrete Gaussian noise: Canonne, Kamath and Steinke 2020 (zCDP), in "
    "discreet.accounting.budget",
    "numerical": "epsilon at delta: numerical privacy-loss distributions, "
    "discreet.accounting.calibration and discreet.accounting.numerical",
    "secure": "exact samplers: discreet.core.noise.exact",
    "reports": "likelihood ratios of reports: discreet.local.reports",
    "attacker": "attacker's table and groups: discreet.stored.tradeoff and discreet.accounting.budget",
}
_SOURCES = {
    "secure": "operating system's cryptographic source; discrete noise drawn exactly, in integers; no seed",
    "seeded": "SEEDED GENERATOR, FOR SIMULATION ONLY: whoever knows the seed can remove the noise",
}


def _mechanism(record: MechanismRecord | ReportRecord, facts: RunFacts) -> dict[str, Any]:
    families, proof = [], []
    if isinstance(record, MechanismRecord):
        query = count_query(list(record.scales), facts.schema)
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
    return {
        "description": record.line(facts.guarantee.delta),
        "loss": record.loss,
        "families": families,
        "source_of_randomness": _SOURCES[facts.guarantee.randomness],
        "proof": [*proof, _PROOFS["attacker"]],
        "record": record.to_dict(),
    }


# ------------------------------------------------------------------------------ words


def _times(epsilon: float) -> str:
    """e^epsilon for a reader, rounded up."""
    if epsilon > 13.8:
        return "more than a million"
    factor = math.exp(epsilon)
    return f"{math.ceil(factor):,}" if factor >= 100 else up(factor, 3)


def _chance(delta: float) -> str:
    return f"1 in {math.floor(1 / delta * (1 + 1e-12)):,}"


def _yours(schema: Schema) -> str:
    """What is exchanged, in words for the person."""
    m = schema.episodes_per_user
    return "your record" if m == 1 else f"your records (up to {m} episodes)"


def _sentence(facts: RunFacts, attacker: TradeOff) -> str:
    guarantee = facts.guarantee
    if facts.synthetic:
        return "No person's data were used: the data are made up."
    if guarantee.epsilon is None:
        return (
            f"Your data as a {facts.schema.unit} ARE NOT PROTECTED: what is published is exact, and may tell "
            "what is in your record."
        )
    start = "If"
    if guarantee.randomness == "seeded":
        start = "Unless somebody knows or guesses the seed, which takes all protection away: if"
    extra = f", plus a chance of at most {_chance(guarantee.delta)}" if guarantee.delta else ""
    return (
        f"{start} you are a {facts.schema.unit} in these data: whatever anyone could learn about you, or do "
        f"to you, because of what is published is at most {_times(guarantee.epsilon)} times as likely with "
        f"{_yours(facts.schema)} in the data as with somebody else's instead{extra}; and who has to "
        f"guess which of the two it was is right at most {hundredths(attacker.right_guess(0.5))} times in "
        "100, where tossing a coin is right 50 times."
    )


def _warnings(facts: RunFacts, verdict: str) -> Iterator[str]:
    guarantee = facts.guarantee
    if facts.synthetic:
        yield "SYNTHETIC DATA: made up from the schema; this statement is a rehearsal and concerns no person."
    if guarantee.epsilon is None:
        yield "NO PRIVACY GUARANTEE: exact sums were released."
    if guarantee.randomness == "seeded":
        yield "SEEDED NOISE: for simulation only; whoever knows the seed can remove the noise."
    if facts.ledger is None:
        yield (
            "NO LEDGER: nothing was written down; what other releases of the same people cost is not known "
            "here, and losses add up."
        )
    if verdict == "warn":
        yield (
            f"delta = {up(guarantee.delta, 3)} is {up(guarantee.delta * facts.users, 3)} times 1/users: "
            "should be at most a tenth of it."
        )
    nominal = guarantee.epsilon_nominal
    if nominal is not None and guarantee.epsilon is not None and guarantee.epsilon > nominal * (1 + 1e-6):
        yield f"The noise gives epsilon = {up(guarantee.epsilon)}, more than the nominal {nominal:g}."
    leaks = facts.schema.from_this_data
    if leaks:
        yield f"Read off THIS DATA, hence leaked without noise: {', '.join(leaks)}."
    if facts.schema.unstated:
        yield f"Nobody stated where these facts come from: {', '.join(facts.schema.unstated)}."


def _covered(facts: RunFacts) -> Iterator[str]:
    if facts.guarantee.epsilon is None:
        return
    m = facts.schema.episodes_per_user
    whole = "the whole episode" if m == 1 else f"all episodes that count, at most {m}, together"
    yield (
        f"One {facts.schema.unit}: {whole}, with all states, actions, rewards, and their order; against "
        "exchange for any other admissible record."
    )
    attackers = "with any computing power and any other knowledge, even of everybody else's data"
    if facts.guarantee.randomness == "seeded":
        attackers = "who neither know nor guess the seed, whatever they know of everybody else's data"
    yield (
        "Everything computed from release.parquet, now or later: policies, reports, intervals, this "
        f"statement; by attackers {attackers}."
    )
    if m > 1 and facts.schema.contribute == "random":
        yield f"Who has more than {m} episodes: {m} of them count, chosen by a secret key."


def _not_covered(facts: RunFacts) -> Iterator[str]:
    schema = facts.schema
    yield "The raw data themselves, where they are stored, and copies of them."
    yield "Messages about broken rows: they quote people's data and are for the data's owner alone."
    if facts.guarantee.users_public:
        yield f"The number of people, {facts.users}: it is treated as public."
    yield (
        "Whether somebody is in the data set at all, where that is known otherwise (a list, a study, a "
        "ward): one person's record is exchanged for another's, which hides its content, and that it is "
        "hers, but not that there is one more."
    )
    leaks = schema.from_this_data
    if leaks:
        yield f"Facts read off this data: {', '.join(leaks)}. They are public now, and no noise is on them."
    if schema.unstated:
        yield f"Facts whose origin nobody stated: {', '.join(schema.unstated)}; if from this data, they leak."
    yield "What holds of everybody: a conclusion about all such people reaches those not in the data, too."
    yield (
        "Earlier or other releases of the same people that this ledger does not hold: losses add up."
        if facts.ledger is not None
        else "Any other release of the same people: NO LEDGER was kept, and losses add up."
    )
    yield "Side channels: timing, memory, power, temporary files, and whether and when the run was made."
    yield "More than one person at once, except as the table of groups says."


# ------------------------------------------------------------------------------ verification


@dataclass(frozen=True)
class Check:
    """One comparison: what the statement says, what was found, and whether they agree."""

    __repr__ = brief

    name: str
    stated: Any
    recomputed: Any
    ok: bool


def verify(folder: str | Path, ledger: _Ledger | None = None) -> list[Check]:
    """Recompute every number and hash of the statement in a folder.

    Parameters
    ----------
    folder : with ``statement.json``, ``statement.md`` and all files that they name.
    ledger : the open ledger of the run, if it is at hand; its entry and totals are then compared, too.

    Returns
    -------
    list of Check
        One for every comparison; the statement holds if all are ok. A file that is missing or broken is a
        check that is not ok, never an exception.
    """
    folder = Path(folder)
    try:
        document = _read(folder / JSON_NAME)
        broken = list(violations(document))
    except _WRONG as error:
        return [Check(JSON_NAME, JSON_NAME, str(error), False)]
    if broken:
        return [Check(JSON_NAME, text, "the statement's JSON Schema", False) for text in broken]
    found: list[Check] = []
    parts: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("fingerprint", lambda: _leaves("fingerprint", document["fingerprint"], _fingerprint(document))),
        ("files", lambda: _check_files(folder, document)),
        (MARKDOWN_NAME, lambda: _check_markdown(folder, document)),
        ("statement", lambda: _check_document(folder, document)),
        ("sensitivities", lambda: _check_sensitivities(folder, document)),
        ("guarantee by another route", lambda: _check_accounting(document)),
        ("release.parquet", lambda: _check_release(folder, document)),
    ]
    if ledger is not None:
        parts.append(("ledger", lambda: _check_ledger(document, ledger)))
    for name, part in parts:
        try:
            found.extend(part())
        except _WRONG as error:
            found.append(Check(name, "what can be recomputed", str(error), False))
    return found


_WRONG = (ValueError, OSError, ArithmeticError, KeyError, TypeError, AttributeError, RecursionError)
"""What a damaged or forged file can make the readers raise."""


def _read(path: Path) -> Any:
    """Strict JSON: no key twice, no NaN."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a key occurs twice in one object")
        return table

    def constant(text: str) -> Any:
        raise ValueError(f"{text} is not a number of JSON")

    return json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)


def _same(stated: Any, recomputed: Any) -> bool:
    """Equal values of equal kinds; floating-point numbers to 1e-9, as other machines' libraries round."""
    if type(stated) is not type(recomputed):
        return False
    if type(stated) is float:
        return math.isclose(stated, recomputed, rel_tol=1e-9)
    return bool(stated == recomputed)


def _compared(name: str, stated: Any, recomputed: Any) -> Check:
    return Check(name, stated, recomputed, _same(stated, recomputed))


def _leaves(name: str, stated: Any, recomputed: Any) -> Iterator[Check]:
    """A check for every leaf of two JSON trees, and for every key or item that one of them lacks."""
    if isinstance(stated, dict) and isinstance(recomputed, dict):
        for key in dict.fromkeys((*stated, *recomputed)):
            if key in stated and key in recomputed:
                yield from _leaves(f"{name}.{key}", stated[key], recomputed[key])
            else:
                yield Check(f"{name}.{key}", stated.get(key), recomputed.get(key), False)
        if not stated and not recomputed:
            yield Check(name, stated, recomputed, True)
    elif isinstance(stated, list) and isinstance(recomputed, list):
        yield Check(f"{name}: items", len(stated), len(recomputed), len(stated) == len(recomputed))
        for i, (one, other) in enumerate(zip(stated, recomputed, strict=False)):
            yield from _leaves(f"{name}[{i}]", one, other)
    else:
        yield _compared(name, stated, recomputed)


def _check_files(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Hashes of all files named; no file that is not named, no link."""
    stated = document["files"]
    present = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or not path.is_dir()
    }
    for name, digest in stated.items():
        path = present.get(name)
        if path is None or path.is_symlink() or not path.is_file():
            yield Check(f"files: {name}", digest, "no such file in the folder", False)
        else:
            yield _compared(f"files: {name}", digest, file_hash(path))
    for name in present.keys() - stated.keys() - {JSON_NAME, MARKDOWN_NAME}:
        yield Check(f"files: {name}", "not named", "lies in the folder", False)


def _check_markdown(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """The page, line by line, but for what people wrote after the two fields at its end."""
    stated = (folder / MARKDOWN_NAME).read_bytes().decode("utf-8").split("\n")
    rendered = markdown(document).split("\n")
    yield Check(f"{MARKDOWN_NAME}: lines", len(stated), len(rendered), len(stated) == len(rendered))
    signed = {len(rendered) - 4: SIGNED["operator"], len(rendered) - 2: SIGNED["approval"]}
    for i, (one, other) in enumerate(zip(stated, rendered, strict=False)):
        if i in signed:
            one, other = one[: len(signed[i])], signed[i]
        yield _compared(f"{MARKDOWN_NAME}: line {i + 1}", one, other)


def _check_document(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Everything computed again from the facts, of which the schema and the records are read anew."""
    schema = read_schema(folder / "schema.toml")
    records = composable_from_dict([one["record"] for one in document["mechanisms"]])
    ledger, population, stated = document["ledger"], document["population"], document["guarantee"]
    episodes = schema.episodes_per_user
    if records:
        guarantee = guarantee_of(
            stated["trust"],
            records,
            randomness=stated["randomness"],
            delta=stated["delta"] or None,
            epsilon_nominal=stated["epsilon_nominal"],
            users_public=stated["users_public"],
            episodes=episodes,
        )
    else:
        guarantee = no_guarantee(stated["randomness"], episodes=episodes)
    facts = RunFacts(
        schema=schema,
        users=population["users"],
        guarantee=guarantee,
        records=records,
        ledger=None if ledger is None else LedgerFacts(**ledger),
        **{name: document["configuration"][name] for name in ("algorithm", "options", "command")},
        **{name: document[name] for name in ("files", "date", "synthetic", "replanned", "versions", *FREE)},
    )
    recomputed = statement_of(facts).to_dict()
    kept = {key: value for key, value in document.items() if key != "fingerprint"}
    yield from _leaves("statement", kept, {key: recomputed[key] for key in recomputed if key in kept})
    if ledger is not None:
        yield _compared("statement.ledger.dataset of the schema", ledger["dataset"], schema.dataset)


def _check_sensitivities(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """Sensitivities again: of counts from the query that the schema and the families' names determine, of
    linear sums from the questions in the release and the features of the schema.
    """
    schema = read_schema(folder / "schema.toml")
    release = read_tables(folder / "release.parquet")
    if release.facts.query:
        yield from _check_linear(schema, release, document)
        return
    for i, record in enumerate(composable_from_dict([one["record"] for one in document["mechanisms"]])):
        query = count_query(list(record.scales), schema) if isinstance(record, MechanismRecord) else None
        name = f"sensitivities of mechanism {i + 1}"
        if query is None or not isinstance(record, MechanismRecord):
            yield Check(name, record.line(0.0), "no query of counts has these families", False)
            continue
        for family, own in record.sensitivities.items():
            yield _compared(f"{name}: {family}", own, float(query.sensitivity(record.norm, {family: 1.0})))
        joint = joint_loss(query, record.norm, record.scales)
        yield _compared(f"{name}: joint", record.joint, float(joint))
        yield _compared(f"{name}: noisy sums with one user", record.levels, 1)
        if record.exchanges:
            yield _check_exchanges(f"{name}: exchanges", record, query)


def _check_linear(schema: Schema, release: StoredTables, document: Mapping[str, Any]) -> Iterator[Check]:
    """What the planned questions cost, from the questions themselves."""
    features = schema_features(
        schema.layout, schema.features, schema.feature_bound,
        nonneg=schema.features is None or bool((schema.features >= 0.0).all()),
    )  # fmt: skip
    facts = release.facts
    told = LinearRelease.of(facts.layout, facts.users, facts.guarantee, facts.query, release.tables())
    tables = {place: array.shape for place, array in release.tables().items()}
    answered = {(name, step): array.shape for name, step, array in told.tables()}
    yield Check("tables of the release", sorted(tables), sorted(answered), tables == answered)
    yield from _leaves("features of the release", dict(told.features), fingerprint(features))
    exact = document["guarantee"]["randomness"] == "secure"
    plan = [one.question for one in told.asked]
    records = planned_records(plan, features, schema.layout, exact, schema.episodes_per_user)
    stated = [one["record"] for one in document["mechanisms"]]
    yield from _leaves("sensitivities", stated, [json.loads(json.dumps(r.to_dict())) for r in records])


def _check_exchanges(name: str, record: MechanismRecord, query: CountQuery) -> Check:
    """The ways to exchange a user, on whatever grid of rewards: coordinates are in units of it."""
    patterns = calibration.shift_patterns(query, record.levels) or ()
    rewards = next((f for f in (counts.CENTERED_REWARDS, counts.REWARDS) if f in record.scales), None)
    grids = {1}
    if rewards is not None:
        scales = {scale for way in record.exchanges for _, scale, _, _ in way}
        grids |= {round(scale / record.scales[rewards]) for scale in scales}
    expected = [
        calibration.exchanges(
            patterns,
            record.noise,
            [(family, scale, grid if family == rewards else 1) for family, scale in record.scales.items()],
        )
        for grid in sorted(grids)
        if grid >= 1
    ]
    found = record.exchanges in expected
    return Check(name, "as stated", "as stated" if found else "another list", found)


def _check_accounting(document: Mapping[str, Any]) -> Iterator[Check]:
    """epsilon through dp-accounting, which shares no formula with ours."""
    if document["guarantee"]["epsilon"] is None:
        return
    guarantee = Guarantee.from_dict(document["guarantee"])
    records = composable_from_dict([one["record"] for one in document["mechanisms"]])
    name = "guarantee by another route: epsilon"
    yield Check(name, guarantee.epsilon, numerical.verify(guarantee, records), True)


def _check_release(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    """The release's own facts, and that its values are those that were written."""
    release = read_tables(folder / "release.parquet")
    if not release.facts.query:  # counts: these tables and no others
        release = read_release(folder / "release.parquet")
    release.check()
    found, population = release.facts.to_dict(), document["population"]
    stated = {
        "users": population["users"],
        "guarantee": document["guarantee"],
        "records": [one["record"] for one in document["mechanisms"]],
        "episodes": population["episodes_per_user"],
        "dataset": population["dataset"],
        "schema": population["schema"],
        "states": population["states"],
        "actions": population["actions"],
        "horizon": population["horizon"],
    }
    plain = json.loads(json.dumps({key: found[key] for key in stated}, allow_nan=False))
    yield from _leaves("release.parquet", stated, plain)
    schema = read_schema(folder / "schema.toml")
    same = release.facts.layout == schema.layout
    yield Check("release.parquet: admissible pairs", True, same, same)
    scales = {
        name: scale
        for record in composable_from_dict(stated["records"])
        if isinstance(record, MechanismRecord)
        for name, scale in record.scales.items()
    }
    for name, law in release.facts.laws.items():
        if name in scales:
            yield _compared(f"release.parquet: scale of {name}", scales[name], float(law.scale))  # type: ignore[attr-defined]


def _check_ledger(document: Mapping[str, Any], ledger: _Ledger) -> Iterator[Check]:
    """The run's entry in the ledger, the totals up to it, and the release that it was marked with."""
    stated = document["ledger"]
    if stated is None:
        yield Check("ledger", "NO LEDGER", "NO LEDGER", True)
        return
    entries = ledger.entries(stated["dataset"])
    entry = next((one for one in entries if one.hash == stated["head"]), None)
    if entry is None:
        yield Check("ledger: head", stated["head"], "no such entry in this ledger", False)
        return
    yield Check("ledger: head", stated["head"], entry.hash, True)
    yield _compared("ledger: kind of the entry", "reserve", entry.kind)
    yield _compared("ledger: number", stated["number"], entry.number)
    yield _compared("ledger: users", document["population"]["users"], entry.users)
    records = [record.to_dict() for record in entry.records]
    yield from _leaves("ledger: records", [one["record"] for one in document["mechanisms"]], records)
    facts = LedgerFacts.of(ledger, entry)
    for name in ("before", "after"):
        yield from _leaves(f"ledger: {name}", stated[name], dict(getattr(facts, name)))
    for mark in entries:
        if mark.kind == "mark" and mark.reservation == entry.number and "release.parquet" in mark.files:
            digest = document["files"]["release.parquet"]
            yield _compared("ledger: published release.parquet", mark.files["release.parquet"], digest)
