r"""State centres and cut points that are fitted to users' data with a privacy budget.

Cut points and codebooks from the literature spend no privacy budget. A fit to users' data reads their
records. Therefore it is a private release, with noise, a ledger entry, and files that state the guarantee.
Both kinds of fit query sums over users. The vector of a user is the mean of e_(cell) (x) y over the steps of
this user. :mod:`discreet.mechanisms.linear.per_user_means` adds the noise, and has the proof of the
sensitivity for vectors with constants B and D:

* k-means: y = (z, R), where z are the scaled values after clipping to their declared ranges. These ranges are
  in a ball of radius R. B = sqrt(2) R and D = 2 R, so the sensitivity is 2 R. The count has the weight R.
  This is the largest weight at which the count does not increase the sensitivity of the sums.
* quantiles: y = 1. B = 1 and D = 0, so the sensitivity is sqrt(2).

**Lloyd's rounds** are adaptive. The centres of a round are computed only from released sums. Therefore rho is
summed over rounds (``levels`` in the record), and the ledger is charged with the total. The initial centres
are public: points of a Halton sequence in the declared ranges, or a file. A cell keeps its centre if its
noisy count is not clearly above the noise (:data:`.codebook_sums.STANDS_OUT`). The fit uses no other
information from the data.

**Verification.** The folder contains the noisy sums, from which all published numbers are computed
(:mod:`discreet.pipeline.codebook_sums`). :func:`verify_codebook` computes all these numbers again: the
sensitivity (from the declared ranges), the noise, and every centre of every round. It also computes the cut
points, shares, forecast and guarantee.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from discreet.accounting.serialization import records_from_dict
from discreet.accounting.text import guarantee_sentences as sentences
from discreet.accounting.text.sentence_templates import version_of
from discreet.core import checks
from discreet.core.epsilon_conversions import check_epsilon, zcdp_epsilon
from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.core.releases import Floats, Ints
from discreet.core.rng import Randomness, Secure
from discreet.core.short_repr import brief
from discreet.data.cell_parsing import Reader
from discreet.data.prepare import MEMORY, Maker, parts, refuse
from discreet.data.prepare_config import ColumnValue, Declaration, nearest, read_prepare_config
from discreet.data.row_batches import Progress
from discreet.data.schema import DECLARED, read_public_table
from discreet.data.sources import Text, local_files, places_of
from discreet.ledger.ledger import Ledger, LedgerError, Reservation, spent
from discreet.ledger.owner_rules import check_rules
from discreet.mechanisms.linear.per_user_means import GRID, guaranteed, noisy
from discreet.pipeline.codebook_sums import START, SUMS, CodebookQuery
from discreet.reports.codebook_page import FACTS, PAGES, codebook_signed, write_codebook_pages
from discreet.reports.signature_file import SIGNATURES_NAME, found_in
from discreet.reports.statement import LedgerFacts
from discreet.utils.atomic_folder import aside, check_free, claims_out, room_for
from discreet.utils.document import compared_with

VERSION = 3
# Folders of version 1 have no page for the data protection officer, and no facts of the declaration. Folders
# of versions 1 and 2 have no noisy sums, no initial centres and no ranges.
_CERTAIN = 1.96  # half width of a 95 % interval, in standard deviations
_LARGER_SCALE = ": declare a larger scale (prepare.states.codebook.scale), or narrower ranges"
_PAGES = 2**18  # upper bound on the bytes of the pages of any fit


def budget_of(epsilon: float | None, delta: float | None, rho: float | None) -> tuple[float, float]:
    """Return (rho, delta) for a budget that is stated as (epsilon, delta) or as (rho, delta).

    The statement uses the same delta. Raises ``ValueError`` unless exactly one of epsilon and rho is given,
    together with a delta in (0, 1).
    """
    if (epsilon is None) == (rho is None):
        raise ValueError("epsilon, rho: must be given one of the two, for what is fitted to users' data")
    if delta is None:
        raise ValueError("delta is missing: Gaussian noise has an epsilon only at a delta above 0")
    delta = checks.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    if rho is not None:
        return checks.positive("rho", rho), delta
    goal = check_epsilon(epsilon)
    low, high = 0.0, goal  # zcdp_epsilon(rho) increases with rho and is larger than rho
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_epsilon(middle, delta) <= goal else (low, middle)
    return checks.positive("rho", low), delta


# ------------------------------------------------------------------------------------------- forecast
@dataclass(frozen=True)
class CodebookFit:
    """Forecast of a fit: its privacy cost and the error due to noise. All facts are public.

    Parameters
    ----------
    what : "centres" or "quantiles"
    names, widths : names of the values, and lengths of their declared ranges
    users, number, rounds : number n of users, number k of centres or bins, and number of rounds
    rho, delta, epsilon : privacy cost of the fit
    sigma : standard deviation of the noise in one coordinate of a sum, in scaled units
    error : 95 % bound on the error due to noise, for each value. For centres, it is the error of one
        coordinate of a centre with 1/k of all users, as a share of the range. For quantiles, it is the error
        of the share of users below a cut point.
    spacing : number to which the error is compared. For quantiles, it is the share of users in a bin. For
        centres, it is the distance between points of a regular grid or, for many values, the typical
        difference in one value between centres (:func:`_apart`).
    """

    __repr__ = brief

    what: str
    names: tuple[str, ...]
    widths: tuple[float, ...]
    users: int
    number: int
    rounds: int
    rho: float
    delta: float
    epsilon: float
    sigma: float
    error: tuple[float, ...]
    spacing: float

    @property
    def hopeless(self) -> bool:
        """True if, for some value, the error due to noise is at least ``spacing``. Such a fit is useless."""
        return max(self.error) >= self.spacing

    @property
    def verdict(self) -> str:
        """Sentence that states the error due to noise and the privacy cost of the fit."""
        n = self.number
        cost = (
            f"epsilon = {self.epsilon:.4g} at delta = {self.delta:g} (rho = {self.rho:.4g}), which adds to "
            "the cost of every later release of these users. Public ones cost nothing"
        )
        if self.what == "quantiles":
            said = (
                f"Noise moves each of {n - 1} cut points by up to {max(self.error):.1%} of the users "
                f"(95 %). A bin should hold {1 / n:.1%}."
            )
        else:
            said = (
                f"Noise moves each of {n} centres by up to {max(self.error):.1%} of a value's range (95 %, "
                f"if 1/{n} of the users belong to it). {n} "
            )
            if self.spacing == _points_apart(n, len(self.names)):
                said += f"public points lie about {self.spacing:.1%} of the ranges apart."
            else:
                said += (
                    f"centres of users who fill the ranges evenly differ by about {self.spacing:.1%} in a "
                    "value (95 %), and by less if users are closer together."
                )
        if self.hopeless:
            return f"HOPELESS: {said} Use public ones. The cost would be {cost}."
        return f"{said} The cost is {cost}."

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as a dictionary of plain values."""
        return {
            "what": self.what, "values": list(self.names), "users": self.users, "number": self.number,
            "rounds": self.rounds, "epsilon": self.epsilon, "delta": self.delta, "rho": self.rho,
            "sigma": self.sigma, "error": dict(zip(self.names, self.error, strict=True)),
            "spacing": self.spacing, "hopeless": self.hopeless, "verdict": self.verdict,
        }  # fmt: skip


def _points_apart(number: int, size: int) -> float:
    """Return the distance between neighbouring points of a regular grid, as a share of the ranges.

    - number : number of points.
    - size : number of values, which is the dimension of the grid.
    """
    return float(number ** (-1.0 / size))


def _apart(number: int, size: int) -> float:
    """Return the typical difference between centres in one value, as a share of the range of this value.

    - number : number of centres.
    - size : number of values.

    The error of a centre is compared with the result.

    A few centres in many dimensions can be far apart although they are close in each single value. Therefore
    the result is the smaller of two numbers. One is the distance between points of a regular grid. The other
    is computed for users who fill the ranges evenly. Then the variance of a value is a twelfth of its squared
    range. With the best centres, a share of about number^(-2 / size) of this variance is within cells (the
    distortion of ``number`` codewords for independent Gaussian values). The remaining share is the variance
    between centres. Real users, and therefore their centres, are closer together.
    """
    points = _points_apart(number, size)
    if number == 1:  # differences between centres require at least two centres
        return points
    return min(points, _CERTAIN * math.sqrt((1.0 - number ** (-2.0 / size)) / 12))


def _ranges(values: Sequence[ColumnValue]) -> None:
    for value in values:
        if value.categories is not None or not math.isfinite(value.high - value.low):
            raise ValueError(
                f"prepare.values.{value.name}: must be a number with a declared range, which bounds the "
                "effect of one user"
            )


def _asked(
    declared: Declaration, centres: int | None, quantiles: tuple[str, int] | None, rounds: int, bins: int
) -> CodebookQuery:
    """Return the public sizes of a fit.

    Raises ``ValueError`` if the arguments are invalid or do not fit the declaration.
    :func:`estimate_codebook` describes the arguments.
    """
    if (centres is None) == (quantiles is None):
        raise ValueError("centres, quantiles: must be given one of the two")
    if centres is not None:
        number = checks.integer("centres", centres, 1, 100_000)
        rounds = checks.integer("rounds", rounds, 1, 100)
        chosen = declared.states
        if chosen.centres is None or chosen.scale is None:
            raise ValueError("prepare.states: must be a codebook, whose centres are to be fitted")
        _ranges(chosen.reads)
        ranges = {one.name: (one.low, one.high) for one in chosen.reads}
        return CodebookQuery.of(declared.schema, ranges, chosen.scale, number=number, rounds=rounds)
    assert quantiles is not None
    value, number = _value(declared, quantiles[0]), checks.integer("quantiles", quantiles[1], 2, 1000)
    bins = checks.integer("bins", bins, number, 100_000)
    ranges = {value.name: (value.low, value.high)}
    return CodebookQuery.of(declared.schema, ranges, None, number=number, bins=bins)


def _fit(asked: CodebookQuery, users: int, sigma: int, delta: float) -> tuple[CodebookFit, MechanismRecord]:
    """Return the forecast of a fit, and its mechanism record.

    sigma : standard deviation of the noise, in units of the grid.
    """
    record = asked.sums.record(asked.mechanism, sigma, asked.rounds)
    noise, number = sigma / GRID, asked.number
    if asked.what == "centres":
        # A centre is a sum divided by a count. For a centre at distance R from the middle, the noise of the
        # count contributes as much to the error as the noise of the sum.
        off = _CERTAIN * math.sqrt(2.0) * noise * number / users / (2 * asked.half)
        spacing = _apart(number, len(asked.names))
    else:
        off = np.array(  # the noise in a share is a Brownian bridge; its variance is largest in the middle
            [_CERTAIN * noise * math.sqrt(asked.bins) / 2 / users]
        )
        spacing = 1.0 / number
    stated = guaranteed(record, delta, "secure")
    assert stated.epsilon is not None and stated.rho is not None
    found = CodebookFit(
        asked.what, asked.names, tuple((asked.high - asked.low).tolist()), users, number, asked.rounds,
        stated.rho, delta, stated.epsilon, noise, tuple(off.tolist()), spacing,
    )  # fmt: skip
    return found, record


def estimate_codebook(
    declaration: Declaration | str | Path,
    users: int,
    *,
    centres: int | None = None,
    quantiles: tuple[str, int] | None = None,
    rounds: int = 5,
    bins: int = 64,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
) -> CodebookFit:
    """Return the forecast of the cost and error of a fit. Only public facts are read.

    Parameters
    ----------
    declaration : declaration of the data. For ``centres``, it must declare a codebook of states, whose file
        can be absent
    users : number of users, at least 1
    centres, rounds : number of centres, 1 to 100 000, and number of rounds, 1 to 100, of a fit by k-means
    quantiles, bins : for a fit of quantiles, (name of a value, number of bins with equal shares of users, 2
        to 1000), and number of cells of the histogram, from the number of bins to 100 000
    epsilon, delta, rho : budget, either epsilon and delta or rho and delta

    Raises
    ------
    ValueError
        If a number is out of range, or unless exactly one of ``centres`` and ``quantiles`` is given.
    """
    declared = _declared(declaration)
    users = checks.integer("users", users, 1)
    rho, delta = budget_of(epsilon, delta, rho)
    asked = _asked(declared, centres, quantiles, rounds, bins)
    sigma = asked.sums.sigma(rho, asked.rounds)
    asked.sums.check_people(users, _LARGER_SCALE if asked.what == "centres" else "", sigma)
    return _fit(asked, users, sigma, delta)[0]


def _declared(declaration: Declaration | str | Path) -> Declaration:
    if isinstance(declaration, Declaration):
        return declaration
    return read_prepare_config(declaration, fitting=True)


def _value(declared: Declaration, name: str) -> ColumnValue:
    value = declared.values[checks.choice("quantiles", name, declared.values)]
    _ranges([value])
    return value


# ------------------------------------------------------------------------------------------------- fit
@dataclass(frozen=True, eq=False)
class Fitted:
    """Result of a fit.

    Parameters
    ----------
    folder : folder of the fit
    found : (k, d) centres, or at most k - 1 cut points, in the original units of the values
    forecast : forecast of the cost and error of the fit
    guarantee : privacy guarantee of the fit
    """

    __repr__ = brief

    folder: Path
    found: Floats
    forecast: CodebookFit
    guarantee: Guarantee


class _Points(Maker):
    """Collector of the values at all steps of all users. It replaces the collector of trajectories."""

    wanted: tuple[str, ...] = ()

    def finished(self, at: Ints, *_: Any) -> pa.Table | None:
        """Return a table with one row per step: the index of the user, and the values at this step."""
        owner = self.owner[self.of[at]]
        table = pa.table(
            {"person": owner + self.people, **{name: self.cells[name][at] for name in self.wanted}}
        )
        self.people += len(self.user_names)
        return table


def _read(
    where: Any, declared: Declaration, names: Sequence[str], private: Path, how: Mapping[str, Any],
    progress: Progress | None, ledger: Ledger | None,
) -> tuple[Ints, Floats, int]:  # fmt: skip
    """Read the records and return (owners, values, number of users). The result is RAW DATA.

    - owners : (n,) index of the user of each row.
    - values : (n, d).

    :func:`fit_codebook` describes the other arguments. Records with errors are written to the file
    ``private``.
    """
    text = Text(how.get("delimiter"), how.get("decimal", "."), how.get("encoding", "utf-8"))
    places = places_of(where, text, how.get("sql"), how.get("reads"))
    check_rules(local_files(places), declared.schema.dataset, ledger)
    reader = Reader(declared, places)
    maker = _Points(declared, reader)
    maker.wanted = tuple(names)
    tables = [made for part in parts(reader, MEMORY, how.get("scratch"), progress) if (made := maker(part))]
    if reader.offences.counts:
        refuse(reader.offences, private)
    maker.refuse_late()
    if not tables:
        raise ValueError("records: must contain a row of at least one user")
    # The owner of the data may have added a rule while the records were read.
    check_rules(local_files(places), declared.schema.dataset, ledger)
    maker.warn()
    whole = pa.concat_tables(tables)
    owner = whole["person"].to_numpy()
    people = len(np.unique(owner))
    return owner, np.stack([whole[name].to_numpy() for name in names], axis=1), people


@claims_out
def fit_codebook(
    where: Any,
    declaration: Declaration | str | Path,
    out: str | Path,
    *,
    ledger: Ledger | None,
    centres: int | None = None,
    quantiles: tuple[str, int] | None = None,
    rounds: int = 5,
    bins: int = 64,
    start: str | Path | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    randomness: Randomness | None = None,
    anyway: bool = False,
    purpose: str = "",
    progress: Progress | None = None,
    **how: Any,
) -> Fitted:
    """Fit centres or cut points to users' data, with one private release.

    The order of steps is the same as in :func:`discreet.pipeline.learn.learn`. All rows are checked, the
    ledger reserves the budget, and noise is drawn. The folder is written under a hidden name and renamed, and
    the ledger marks the release as published.

    Parameters
    ----------
    where, how : records, and options for reading them (``sql``, ``reads``, ``delimiter``, ``decimal``,
        ``encoding``, ``scratch``); see :func:`discreet.data.prepare.prepare`
    out : new folder. It will contain ``codebook.csv`` or ``cuts.toml``, and ``codebook.json``, which states
        the privacy cost
    ledger : Ledger, which is charged. If None, nothing is recorded. Must be None for seeded noise
    start : file with public initial centres; by default, a Halton sequence in the declared ranges
    anyway : if True, the fit is made even if the forecast says that the noise is too large
    centres, quantiles, rounds, bins, epsilon, delta, rho : see :func:`estimate_codebook`
    randomness : Secure (default), or Seeded for simulations
    purpose : purpose of the fit for its entry in the ledger, one line
    progress : function that is called with a string about the current stage

    Raises
    ------
    Refused
        If records violate the declaration. No budget is spent.
    BudgetError
        If the owner's limit would be exceeded. No budget is spent.
    ValueError
        If any other input is not allowed (for example by a rule of the data's owner), or the noise is too
        large for the fit. No budget is spent.
    """
    declared, out = _declared(declaration), Path(out)
    randomness = Secure() if randomness is None else randomness
    check_free(out)
    if ledger is not None and randomness.kind != "secure":
        raise ValueError("ledger: must be None with noise from a seed, which protects no user")
    given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho}
    given |= {"centres": centres, "quantiles": quantiles, "rounds": rounds, "bins": bins}
    estimate_codebook(declared, 1, **given)  # checks the arguments before data are read
    asked = _asked(declared, centres, quantiles, rounds, bins)
    first = "" if asked.bins else asked.halton() if start is None else _start(asked, start)
    private = out.with_name(f"{out.name}.offending.csv")
    owner, values, people = _read(where, declared, asked.names, private, how, progress, ledger)
    expected = _feasible(estimate_codebook(declared, people, **given), anyway)
    sigma = asked.sums.sigma(budget_of(epsilon, delta, rho)[0], expected.rounds)
    return _Release(
        out, declared, asked, first, "halton" if start is None else "file", owner, values, sigma, expected,
        purpose or f"codebook, {expected.what} of {', '.join(asked.names)}", ledger, randomness,
    ).make()  # fmt: skip


def _feasible(expected: CodebookFit, anyway: bool) -> CodebookFit:
    """Return the forecast unchanged, or raise ``ValueError`` if the fit is not allowed.

    Raised if delta is above 1/users, or if the forecast is hopeless and ``anyway`` is False.
    """
    if expected.delta > 1 / expected.users:
        raise ValueError(f"delta = {expected.delta:g}: must be at most 1/users, better below a tenth of it")
    if expected.hopeless and not anyway:
        raise ValueError(f"{expected.verdict} Nothing was spent (anyway = true fits all the same)")
    return expected


@dataclass(frozen=True, eq=False)
class _Release:
    """Data and public facts of one fit, before its budget is reserved."""

    out: Path
    declared: Declaration
    asked: CodebookQuery
    first: str  # text of start.csv, which contains the initial centres
    begun: str  # origin of the initial centres: "halton" or "file"
    owner: Ints
    values: Floats
    sigma: int
    expected: CodebookFit
    purpose: str
    ledger: Ledger | None
    randomness: Randomness

    def make(self) -> Fitted:
        """Reserve the privacy cost in the ledger, draw the noise and write the folder."""
        expected, schema = self.expected, self.declared.schema
        record = _fit(self.asked, expected.users, self.sigma, expected.delta)[1]
        guarantee = guaranteed(record, expected.delta, self.randomness.kind)
        reservation = None
        # upper bound on the number of rows in the files of sums, initial centres and results
        rows = (expected.rounds + 2) * max(expected.number, self.asked.bins or 0)
        with room_for(self.out, _PAGES + 32 * rows * (len(self.asked.names) + 2)):
            if self.ledger is not None:
                reservation = self.ledger.reserve(
                    schema.dataset, [record], delta=expected.delta, users=expected.users, purpose=self.purpose
                )
        with spent(self.ledger, reservation):
            return self._write(guarantee, reservation)

    def _write(self, guarantee: Guarantee, reservation: Reservation | None) -> Fitted:
        """Draw the noise and write the folder. The reservation already counts as spent."""
        asked, ledger, draws = self.asked, self.ledger, self.randomness
        source = os.urandom if isinstance(draws, Secure) else np.random.default_rng(draws.seed).bytes
        made = _lloyd if asked.what == "centres" else _cut
        found, released = made(asked, self.first, self.owner, self.values, self.sigma, source)
        facts = self._facts(guarantee, reservation)
        book = None if ledger is None else ledger.path
        with aside(self.out, paid=FACTS, ledger=book) as hidden:
            name, table = asked.table_text(found, FACTS)
            written = {name: table, SUMS: asked.sums_text(released)}
            written |= {} if asked.bins else {START: self.first}
            for file, content in written.items():
                (hidden / file).write_text(content, "utf-8", newline="\n")
            facts["shares"] = asked.shares(released[-1])
            facts["files"] = {file: _digest(hidden / file) for file in written}
            text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
            write_codebook_pages(hidden, text)
            # This file is written last, because its presence shows that the folder is complete.
            (hidden / FACTS).write_text(text, "utf-8", newline="\n")
            published = hashes(hidden)
        if ledger is not None and reservation is not None:
            ledger.mark(reservation, published)
        return Fitted(self.out, found, self.expected, guarantee)

    def _facts(self, guarantee: Guarantee, reservation: Reservation | None) -> dict[str, Any]:
        schema, asked, ledger = self.declared.schema, self.asked, self.ledger
        query = asked.to_dict(self.sigma, None if asked.bins else self.begun)
        facts: dict[str, Any] = {
            "format": "discreet codebook", "version": VERSION, "dataset": schema.dataset,
            "unit": schema.unit, "users": self.expected.users, "episodes_per_user": schema.episodes_per_user,
            "provenance": dict(schema.provenance),
            "declared": {name: schema.declared.get(name) for name in DECLARED}, "purpose": self.purpose,
            "date": datetime.now(UTC).isoformat(timespec="seconds"), "declaration": self.declared.hash,
            "query": query, "forecast": self.expected.to_dict(),
            "guarantee": guarantee.to_dict(), "statement": guarantee.statement,
            "ledger": None if ledger is None or reservation is None else ledger_facts(ledger, reservation),
        }  # fmt: skip
        if ledger is None:
            facts["warning"] = (
                "NO LEDGER: this fit was not recorded. Privacy losses of several releases add up."
            )
        return facts


def ledger_facts(ledger: Ledger, reservation: Reservation) -> dict[str, Any]:
    """Return the facts about an entry in the ledger, in the form in which statements contain them.

    ledger : the ledger. reservation : the entry.
    """
    found = LedgerFacts.of(ledger, reservation)
    return {
        "name": found.name, "identity": found.identity, "new": found.new, "number": found.number,
        "hash": found.head, "after": dict(found.after), "together": dict(found.together),
    }  # fmt: skip


def verify_codebook(
    folder: str | Path, ledger: Ledger | None = None, *, public_keys: Sequence[str] = ()
) -> tuple[str, ...]:
    """Raise ``ValueError`` if the folder of a fit does not agree with its noisy sums, its facts and the
    ledger.

    Sensitivity and noise are computed again from the declared ranges. The centres of every round, the cut
    points and the shares are computed again from the noisy sums. Forecast, guarantee and pages (except their
    free lines) are computed again from these results. Existing signatures must be valid, and each of
    ``public_keys`` must have signed the folder (:func:`discreet.pipeline.approve.sign`).

    Returns sentences about facts that cannot be checked. Two cases are not checked completely: folders of
    earlier versions, which do not contain the sums, and initial centres from a file.
    """
    folder = Path(folder)
    facts = read_facts(folder)
    version = facts["version"]
    pages = PAGES if version > 1 else {}
    known = {FACTS, SIGNATURES_NAME, *pages, *facts["files"]}
    foreign = sorted(one.name for one in folder.iterdir() if one.name not in known or one.is_symlink())
    if foreign:
        raise ValueError(f"{folder / foreign[0]}: is not of this fit")
    fingerprint = _digest(folder / FACTS)
    for name, lines in pages.items():
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: is not there, which a fit makes")
        if version < VERSION:
            continue  # the page has the wording of the version that wrote it
        text = (folder / name).read_bytes().decode("utf-8", "replace")
        for what, stated, made, ok in compared_with(text, lines(facts, fingerprint)):
            if not ok:
                raise ValueError(f"{folder / name}: {what} is not as it was made ({stated!r}, {made!r})")
    signed = found_in(folder, fingerprint, public_keys, codebook_signed(), "discreet codebook, 1")
    for what, stated, made, ok in signed if version > 1 or public_keys else ():
        if not ok:
            raise ValueError(
                f"{folder / SIGNATURES_NAME}: {what}: is not as it must be ({stated!r}, {made!r})"
            )
    if version == VERSION and facts.get("statement") != sentences.statement(
        Guarantee.from_dict(facts["guarantee"]), version_of(facts["guarantee"])
    ):
        raise ValueError(f"{folder / FACTS}: its statement is not that of its guarantee")
    files = facts["files"]
    for name, digest in files.items():
        if not (folder / name).is_file() or _digest(folder / name) != digest:
            raise ValueError(f"{folder / name}: is not the file that was made")
    unchecked = _follows(folder, facts)
    if ledger is not None:
        _held(folder, facts, ledger)
    return unchecked


def _held(folder: Path, facts: Mapping[str, Any], ledger: Ledger) -> None:
    """Raise an error if the ledger does not contain this fit with the hashes of its files.

    The error is a ``LedgerError`` or a ``ValueError``.
    """
    files, held = facts["files"], facts["ledger"]
    if held is None:
        raise ValueError(f"{folder / FACTS}: names no ledger")
    marks = {entry.reservation: entry for entry in ledger.entries(facts["dataset"]) if entry.kind == "mark"}
    mark = marks.get(held["number"])
    if held["identity"] != ledger.identity or not ledger.contains(held["hash"]) or mark is None:
        raise LedgerError(f"{ledger}: does not hold this fit")
    again = ledger_facts(ledger, Reservation(facts["dataset"], held["number"], held["hash"]))
    names = {*again, *held} - {"name"} if facts["version"] > 1 else set()
    wrong = sorted(name for name in names if again.get(name) != held.get(name))
    if wrong:
        raise ValueError(f"{folder / FACTS}: {wrong[0]} of the ledger is not what the ledger holds")
    if dict(mark.files) != {**files, FACTS: _digest(folder / FACTS)}:
        raise ValueError(f"{folder}: its files are not those that the ledger marked")


def _follows(folder: Path, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Raise ``ValueError`` if the numbers of a fit do not follow from the ranges and the noisy sums.

    Returns sentences about facts that cannot be checked.
    """
    forecast, where = facts["forecast"], folder / FACTS
    guarantee = _guarantee(facts)
    if facts["users"] != forecast["users"]:
        raise ValueError(f"{where}: users: must be those of its forecast")
    if facts["version"] < VERSION:
        record = guarantee.records[0]
        if len(guarantee.records) != 1 or not isinstance(record, MechanismRecord):
            raise ValueError(f"{where}: guarantee: must be of one mechanism, noisy sums")
        stated = {
            "epsilon": guarantee.epsilon, "delta": guarantee.delta, "rho": guarantee.rho,
            "sigma": record.scales["sums"], "rounds": record.levels,
        }  # fmt: skip
        agree(where, "forecast", {name: forecast[name] for name in stated}, stated)
        return _EARLIER if facts["version"] > 1 else (*_EARLIER[:-1], *_FIRST)
    try:
        asked = CodebookQuery.read(facts["query"], forecast, facts["episodes_per_user"])
        sigma, begun = facts["query"]["sigma"], facts["query"]["start"]
        asked.sums.check_people(facts["users"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: {error}") from None
    expected, record = _fit(asked, facts["users"], sigma, guarantee.delta)
    agree(where, "forecast", forecast, expected.to_dict())
    made = guaranteed(record, guarantee.delta, guarantee.randomness)
    agree(where, "guarantee", facts["guarantee"], made.to_dict())
    texts = {}
    for name in [SUMS, *([] if asked.bins else [START])]:
        try:
            texts[name] = (folder / name).read_bytes().decode()
            _ = asked.read_sums(texts[name]) if name == SUMS else asked.read_start(texts[name])
        except (ValueError, OSError) as error:
            raise ValueError(f"{folder / name}: is not what a fit writes ({error})") from None
    released = asked.read_sums(texts[SUMS])
    if begun == "halton" and texts[START] != asked.halton():
        raise ValueError(f"{folder / START}: is not the Halton sequence in the ranges")
    name, table = asked.table_text(asked.found(texts.get(START, ""), released, sigma), FACTS)
    if set(facts["files"]) != {name, *texts} or (folder / name).read_bytes() != table.encode():
        raise ValueError(f"{folder / name}: does not follow from the noisy sums in {SUMS}")
    if facts["shares"] != asked.shares(released[-1]):
        raise ValueError(f"{where}: shares: do not follow from the noisy sums in {SUMS}")
    return _FROM_FILE if begun == "file" else ()


_EARLIER = (
    "that centres, cut points and shares follow from noisy sums: this version did not keep the sums",
    "that the sensitivity is that of the declared ranges: this version did not write them down",
    "the wording of officer.md and officer.html, which is that of an earlier version",
)
_FIRST = ("what was declared of the data: this version did not write it down, and made no officer's page",)
_FROM_FILE = (f"that {START}, which came from a file, is public: it must not be made of these people's data",)


def agree(where: Path, name: str, stated: Any, made: Any) -> None:
    """Raise ``ValueError`` if stated values and recomputed values (``made``) differ.

    Numbers must agree to a relative tolerance of 1e-9, because machines round differently. Recomputed values
    can have keys that did not exist when the file was written.
    """
    if isinstance(stated, Mapping) and isinstance(made, Mapping):
        for key, value in stated.items():
            agree(where, f"{name}.{key}", value, made.get(key))
    elif isinstance(stated, list | tuple) and isinstance(made, list | tuple) and len(stated) == len(made):
        for number, (one, other) in enumerate(zip(stated, made, strict=True)):
            agree(where, f"{name}[{number}]", one, other)
    else:
        numbers = isinstance(stated, float) and isinstance(made, float)
        if not (math.isclose(stated, made, rel_tol=1e-9) if numbers else stated == made):
            raise ValueError(f"{where}: {name} is not what follows from the rest ({stated!r}, {made!r})")


class _Numbers(NamedTuple):
    """Numbers of a guarantee, without the sentences about it."""

    epsilon: float
    delta: float
    rho: float | None
    randomness: Literal["secure", "seeded"]
    records: tuple[Any, ...]


def _guarantee(facts: Mapping[str, Any]) -> _Numbers:
    """Return the numbers of the guarantee of a fit.

    The sentences of the guarantee are not read, because they can have the wording of an earlier version.
    """
    table = facts["guarantee"]
    numbers = {name: table[name] for name in ("epsilon", "delta", "rho", "randomness")}
    return _Numbers(**numbers, records=records_from_dict(table["mechanisms"]))


def read_facts(folder: Path) -> dict[str, Any]:
    """Read the facts of a fit from ``codebook.json`` in its folder.

    Raises ``ValueError`` if the file is absent or was not written by a fit.
    """
    try:
        facts: dict[str, Any] = json.loads((folder / FACTS).read_text("utf-8"))
        version = facts["version"]
        if version not in range(1, VERSION + 1):
            raise ValueError(f"version {version!r}, this library reads 1 to {VERSION}")
        _guarantee(facts)
        _ = dict(facts["files"]), facts["dataset"], facts["date"], dict(facts["forecast"]), facts["users"]
        held = facts["ledger"]
        if version > 1:
            _ = [facts["declared"][name] for name in DECLARED], dict(facts["provenance"])
        elif held is not None:
            held["number"] = held.pop("entry")
        if held is not None:
            names = ("identity", "number", "hash", "after", "together", "new")
            _ = [held[name] for name in names[: None if version > 1 else 3]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / FACTS}: is not what a fit writes ({error!r})") from None
    return facts


def hashes(folder: Path) -> dict[str, str]:
    """Return a mapping of the files of a fit to their SHA-256, in the form that the ledger stores.

    The pages are excluded, because they have free lines and can be computed from the other files.
    """
    return {one.name: _digest(one) for one in folder.iterdir() if one.name not in (*PAGES, SIGNATURES_NAME)}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _start(asked: CodebookQuery, start: str | Path) -> str:
    """Return the text of ``start.csv`` for public initial centres, which are read from the file ``start``."""
    columns = read_public_table("start", Path(start), (*asked.names, "label"), list(asked.names))
    table = np.stack([np.asarray(columns[name], np.float64) for name in asked.names], axis=1)
    if len(table) != asked.number or not np.isfinite(table).all():
        raise ValueError(
            f"start: {Path(start).name} has {len(table)} centres: must be {asked.number}, all numbers"
        )
    return asked.start_text(table)


def _noised(asked: CodebookQuery, sums: Ints, sigma: int, source: Callable[[int], bytes]) -> Ints:
    """Return the sums over users with noise, in units of the grid. Sums leave this module only through this
    function.
    """
    return np.rint(noisy(sums, sigma, source) * GRID).astype(np.int64)


def _lloyd(
    asked: CodebookQuery, first: str, owner: Ints, values: Floats, sigma: int, source: Callable[[int], bytes]
) -> tuple[Floats, Ints]:
    """Return the centres in the original units of the values, and the noisy sums of each round.

    - first : text of ``start.csv``.
    - owner : index of the user of each row of ``values``.
    - sigma : standard deviation of the noise, in units of the grid.
    """
    # The declared ranges are the ranges of single cells of the records. The sum of several doses in a step,
    # or a constant that replaces a missing value, can be outside these ranges.
    z = asked.scaled(values)
    payload = np.column_stack([z, np.full(len(z), asked.radius)])
    centres, released = asked.read_start(first), list[Ints]()
    for _ in range(asked.rounds):
        exact = asked.sums.exact(owner, nearest(z, centres), payload)
        released.append(_noised(asked, exact, sigma, source))
        centres = asked.moved(centres, released[-1], sigma)
    return centres * asked.scale + asked.middle, np.stack(released)


def _cut(
    asked: CodebookQuery, _: str, owner: Ints, values: Floats, sigma: int, source: Callable[[int], bytes]
) -> tuple[Floats, Ints]:
    """Return cut points between bins with equal shares of users, and the noisy histogram.

    The cells of the histogram divide the declared range evenly.

    - owner : index of the user of each row of ``values``.
    - sigma : standard deviation of the noise, in units of the grid.
    """
    known = ~np.isnan(values[:, 0])
    share = (values[known, 0] - asked.low) / (asked.high - asked.low)
    cell = np.clip(np.floor(share * asked.bins), 0, asked.bins - 1).astype(np.int64)
    exact = asked.sums.exact(owner[known], cell, np.ones((len(cell), 1)))
    released = _noised(asked, exact, sigma, source)
    return asked.cuts(released), released[None]
