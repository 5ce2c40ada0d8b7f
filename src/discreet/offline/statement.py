r"""The privacy statement of a stored data set's release: one page for people, the same facts for machines, and
their verification.

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
(:mod:`discreet.privacy.tradeoff`) are that and nothing more. Every printed number is rounded up.

delta against 1/users. A mechanism that publishes one user's raw data at random is (0, 1/users)-private, so a
delta above 1/users is refused, and one above a tenth of it is warned of.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

import discreet
from discreet.data.schema import Schema, read_schema
from discreet.numerics import checks
from discreet.offline.statement_schema import FORMAT, JSON_SCHEMA, VERSION, violations
from discreet.privacy import accounting, calibration, counts
from discreet.privacy.counts import CountQuery
from discreet.privacy.guarantee import (
    Guarantee,
    MechanismRecord,
    ReportRecord,
    guarantee_of,
    no_guarantee,
    records_from_dict,
    _up as up,
)
from discreet.privacy.tradeoff import TradeOff

Records = tuple[MechanismRecord | ReportRecord, ...]

__all__ = [
    "Check", "LedgerFacts", "RunFacts", "Statement", "check_delta", "file_hash", "statement_of", "verify",
    "versions", "write_statement",
]  # fmt: skip

JSON_NAME, MARKDOWN_NAME = "statement.json", "statement.md"
FREE = ("operator", "approval")
"""Lines for people, which no hash covers."""

_FALSE_POSITIVES = (0.01, 0.05, 0.10)
_PRIORS = (0.5, 0.1, 0.01)
_GROUPS = (2, 5, 10)
_NEEDED = ("release.parquet", "schema.toml")


# ------------------------------------------------------------------------------ facts


@dataclass(frozen=True)
class LedgerFacts:
    """What a run did to the ledger, in public numbers.

    name : of its file, without folders; dataset : the key of its rows.
    before, after : totals as the ledger states them (:meth:`discreet.privacy.ledger.Ledger.totals`).
    head : hash of the run's last row, 64 hexadecimal digits.
    """

    name: str
    dataset: str
    before: Mapping[str, float | str | None]
    after: Mapping[str, float | str | None]
    head: str

    def __post_init__(self) -> None:
        if not self.name or PurePosixPath(self.name.replace("\\", "/")).name != self.name:
            raise ValueError(f"name = {checks.said(self.name)}: must be the name of a file, without folders")


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
        if (self.guarantee.epsilon is None) != (not self.records):
            raise ValueError("records: must be those of the guarantee, none if and only if it promises nothing")
        for name in _NEEDED:
            if name not in self.files:
                raise ValueError(f"files lacks {name!r}: must hold {', '.join(_NEEDED)} and the policy")
        if not any(name.startswith("policy.") for name in self.files):
            raise ValueError("files lacks the policy: must hold policy.csv or another policy.*")
        check_delta(self.guarantee.delta, self.users)

    def release_facts(self) -> dict[str, Any]:
        """What the metadata of ``release.parquet`` have to say as well, and :func:`verify` compares."""
        return {
            "users": self.users,
            "guarantee": self.guarantee.to_dict(),
            "records": [record.to_dict() for record in self.records],
            "episodes": self.schema.episodes_per_user,
            "dataset": self.schema.dataset,
            "schema": self.schema.hash,
        }


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

    document: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The document, of plain values, as ``statement_schema.JSON_SCHEMA`` describes it; a copy."""
        return json.loads(self.to_json())  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """JSON text, indented."""
        return json.dumps(self.document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"

    def to_markdown(self) -> str:
        """One page, rendered from the document alone."""
        return _markdown(self.document)


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
        path = Path(folder) / name
        aside = path.with_name(f".{name}.part")
        aside.write_text(text, "utf-8", newline="\n")
        os.replace(aside, path)


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
    "counts": "sensitivity: derivation in the module discreet.privacy.counts, tested by brute force on random "
    "neighbours",
    "linear": "sensitivity: lemmas in the module discreet.privacy.gram, tested by numerical maximisation",
    "laplace": "Laplace noise: Dwork, McSherry, Nissim and Smith 2006; sums of losses in "
    "discreet.privacy.guarantee",
    "discrete_laplace": "discrete Laplace noise: Ghosh, Roughgarden and Sundararajan 2009; sums of losses in "
    "discreet.privacy.guarantee",
    "gaussian": "Gaussian noise: Dong, Roth and Su 2022 (mu-GDP); curve by Balle and Wang 2018, in "
    "discreet.privacy.budget",
    "discrete_gaussian": "discrete Gaussian noise: Canonne, Kamath and Steinke 2020 (zCDP), in "
    "discreet.privacy.budget",
    "numerical": "epsilon at delta: numerical privacy-loss distributions, discreet.privacy.calibration and "
    "discreet.privacy.accounting",
    "secure": "exact samplers: discreet.privacy.noise.exact",
    "reports": "likelihood ratios of reports: discreet.privacy.local_reports",
    "attacker": "attacker's table and groups: discreet.privacy.tradeoff and discreet.privacy.budget",
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
        "description": str(record),
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


def _hundredths(rate: float) -> str:
    """A probability as cases in 100, rounded up."""
    return up(100.0 * rate, 3)


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
    extra = f", plus a chance of at most {_chance(guarantee.delta)}" if guarantee.delta else ""
    return (
        f"If you are a {facts.schema.unit} in these data: whatever anyone could learn about you, or do to you, "
        f"because of what is published is at most {_times(guarantee.epsilon)} times as likely with "
        f"{_yours(facts.schema)} in the data as with somebody else's in their place{extra}; and who has to "
        f"guess which of the two it was is right at most {_hundredths(attacker.right_guess(0.5))} times in 100, "
        "where tossing a coin is right 50 times."
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
            "NO LEDGER: nothing was written down; what other releases of the same people cost is not known here, "
            "and losses add up."
        )
    if verdict == "warn":
        yield (
            f"delta = {up(guarantee.delta, 3)} is {up(guarantee.delta * facts.users, 3)} times 1/users: should "
            "be at most a tenth of it."
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
    yield (
        "Everything computed from release.parquet, now or later: policies, reports, intervals, this statement; by "
        "attackers with any computing power and any other knowledge, even of everybody else's data."
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
        "Whether somebody is in the data set at all, where that is known otherwise (a list, a study, a ward): one "
        "person's record is exchanged for another's, which hides its content, and that it is hers, but not that "
        "there is one more."
    )
    leaks = schema.from_this_data
    if leaks:
        yield f"Facts read off this data: {', '.join(leaks)}. They are public now, and no noise is on them."
    if schema.unstated:
        yield f"Facts whose origin nobody stated: {', '.join(schema.unstated)}; if from this data, they leak."
    yield "What holds of the whole population: a conclusion about everybody reaches those who were not asked, too."
    yield (
        "Earlier or other releases of the same people that this ledger does not hold: losses add up."
        if facts.ledger is not None
        else "Any other release of the same people: NO LEDGER was kept, and losses add up."
    )
    yield "Side channels: timing, memory, power, temporary files, and whether or when the run was made or failed."
    yield "More than one person at once, except as the table of groups says."


# ------------------------------------------------------------------------------ the page


def _line(text: Any) -> str:
    """A text that cannot pass for Markdown's own marks."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in str(text))


def _number(value: float | None) -> str:
    return "none" if value is None else up(value)


def _percent(rate: float | None) -> str:
    return "certain, at worst" if rate is None else f"{_hundredths(rate)} %"


def _rows(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in body]


def _markdown(doc: Mapping[str, Any]) -> str:
    """The page; a function of the document."""
    people, guarantee = doc["population"], doc["guarantee"]
    title = f"# Privacy statement: {_line(people['dataset'])}"
    parts = [title, "", f"**{_line(doc['sentence'])}**", ""]
    parts += [f"- **{_line(warning)}**" for warning in doc["warnings"]]
    parts += [""] if doc["warnings"] else []
    parts += _guarantee_lines(doc)
    if guarantee["epsilon"] is not None:
        parts += _attacker_lines(doc["attacker"], people["unit"])
        parts += _group_lines(doc["groups"], people)
    for name, title in (("covered", "Covered"), ("not_covered", "Not covered")):
        if doc[name]:
            parts += [f"**{title}**", "", *(f"- {_line(text)}" for text in doc[name]), ""]
    parts += _mechanism_lines(doc["mechanisms"])
    parts += _file_lines(doc)
    return "\n".join(parts) + "\n"


def _guarantee_lines(doc: Mapping[str, Any]) -> list[str]:
    people, guarantee = doc["population"], doc["guarantee"]
    symbols = "no guarantee"
    if guarantee["epsilon"] is not None:
        symbols = (
            f"P(E | D) ≤ e^ε P(E | D′) + δ with ε = {up(guarantee['epsilon'])}, δ = {up(guarantee['delta'], 3)}"
        )
        symbols += f", ρ = {up(guarantee['rho'])} (zCDP)" if guarantee["rho"] is not None else ""
        symbols += f", μ = {up(guarantee['mu'])} (Gaussian DP)" if guarantee["mu"] is not None else ""
        symbols += (
            f", for every event E and all data sets D, D′ of {people['users']} people in which one "
            f"{_line(people['unit'])} differs"
        )
    delta = doc["delta"]
    against = {
        "pure": "δ = 0",
        "small": f"δ is {up(delta['ratio'], 3)} times 1/users: at most a tenth, as it should be",
        "warn": f"δ is {up(delta['ratio'], 3)} TIMES 1/users: more than a tenth",
        "none": "no δ",
    }[delta["verdict"]]
    return [
        f"**Guarantee.** {symbols}. Trust: {_line(guarantee['trust'])}. {_line(guarantee['neighbours'])}. Unit: "
        f"{_line(guarantee['unit'])}.",
        "",
        f"**People.** {people['users']} users ({_line(people['unit'])}), at most {people['episodes_per_user']} "
        f"episodes each, H = {people['horizon']}, S = {people['states']}, A = {people['actions']}, "
        f"{people['pairs']} admissible pairs; {against}.",
        "",
    ]


def _attacker_lines(attacker: Mapping[str, Any], unit: str) -> list[str]:
    rates = [_percent(test["false_positives"]) for test in attacker["tests"]]
    tests = [_percent(test["true_positives"]) for test in attacker["tests"]]
    priors = [
        [
            _percent(row["prior"]),
            _percent(row["right_guess"]),
            *(_percent(one["posterior"]) for one in row["posteriors"]),
            _percent(row["posterior_of_any_outcome"]),
        ]
        for row in attacker["priors"]
    ]
    return [
        f"**What an attacker can at best do** who knows everybody else's data and asks whether the record is that "
        f"of one {_line(unit)} or another (membership, or any attribute):",
        "",
        *_rows(
            ["false alarms", *rates],
            [["true alarms, at most", *tests]],
        ),
        "",
        f"True less false alarms: at most {_percent(attacker['advantage'])}.",
        "",
        *_rows(
            [
                "belief before",
                "right guess, at most",
                *(f"belief after an alarm with ≥ {rate} false ones" for rate in rates),
                "after any outcome",
            ],
            priors,
        ),
        "",
    ]


def _group_lines(groups: Sequence[Mapping[str, Any]], people: Mapping[str, Any]) -> list[str]:
    m = people["episodes_per_user"]
    rows = [
        [
            str(row["people"]),
            _number(row["epsilon"]),
            up(row["delta"], 3),
            _number(row["rho"]),
            _number(row["mu"]),
            _percent(row["advantage"]),
        ]
        for row in groups
    ]
    return [
        f"**Groups** of people exchanged together (each with at most {m} episode{'s' if m > 1 else ''}):",
        "",
        *_rows(["people", "ε", "at δ", "ρ", "μ", "true less false alarms"], rows),
        "",
    ]


def _mechanism_lines(mechanisms: Sequence[Mapping[str, Any]]) -> list[str]:
    parts: list[str] = []
    for number, one in enumerate(mechanisms, 1):
        parts += [f"**Mechanism {number}.** {_line(one['description'])}", ""]
        if one["families"]:
            parts += _rows(
                ["sum", "norm", "sensitivity", "scale", "std, at most", "cells"],
                [
                    [
                        _line(f["family"]),
                        f["norm"],
                        up(f["sensitivity"], 6),
                        f"{f['scale']:.6g}",
                        up(f["std"], 6),
                        str(f["cells"]),
                    ]
                    for f in one["families"]
                ],
            )
            parts.append("")
        parts += [f"Randomness: {_line(one['source_of_randomness'])}.", "", "Proofs:", ""]
        parts += [*(f"- {_line(text)}" for text in one["proof"]), ""]
    return parts


def _totals(totals: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_line(key)} = {_line(value if isinstance(value, str) else _number(value))}"
        for key, value in totals.items()
    )


def _file_lines(doc: Mapping[str, Any]) -> list[str]:
    configuration, ledger = doc["configuration"], doc["ledger"]
    parts = ["**Files and hashes (SHA-256)**", ""]
    hashes = [
        ("schema (its facts)", doc["population"]["schema"]),
        ("configuration", configuration["hash"]),
        *doc["files"].items(),
        ("this statement's fingerprint", doc["fingerprint"]),
    ]
    parts += _rows(["what", "hash"], [[_line(name), str(digest)] for name, digest in hashes])
    options = json.dumps(configuration["options"], ensure_ascii=False, sort_keys=True)
    parts += ["", f"Configuration: {_line(configuration['algorithm'])} {_line(options)}"]
    parts += [f"; command: {_line(configuration['command'])}"] if configuration["command"] else []
    parts += ["", f"Versions: {_line(', '.join(f'{k} {v}' for k, v in doc['versions'].items()))}. Date: {doc['date']}."]
    if doc["replanned"]:
        parts += ["", "This run read no data: it planned again from a release that was paid for before."]
    if ledger is None:
        parts += ["", "**NO LEDGER.**", ""]
    else:
        parts += [
            "",
            f"**Ledger** {_line(ledger['name'])}, data set {_line(ledger['dataset'])}: before {_totals(ledger['before'])}; "
            f"after {_totals(ledger['after'])}; head {ledger['head']}.",
            "",
        ]
    return [*parts, *(f"{_FIELDS[name]} {_line(doc[name])}\n" for name in FREE)][:-1] + [
        f"{_FIELDS[FREE[-1]]} {_line(doc[FREE[-1]])}"
    ]


_FIELDS = {"operator": "**Operator:**", "approval": "**Approval:**"}
