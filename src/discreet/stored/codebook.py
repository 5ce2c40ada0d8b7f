r"""Centres of states, and cut points, fitted to people: at a budget that the ledger is charged with.

Cut points and codebooks from the literature cost nothing. What is fitted to the people themselves reads
their records, and is a release like any other: with noise, an entry in the ledger, and files that say so.

Both fits ask for sums over people of one vector each, the mean over her own steps of e_(cell) (x) y
(:mod:`discreet.linear.person_sums` has the proof of what one person changes, and the noise):

* k-means: y = (z, R), z the scaled values, cut to their declared ranges, which lie in a ball of radius R.
  B = sqrt(2) R, D = 2 R, hence 2 R: the weight R of the count is the largest that costs nothing beside the
  sums.
* quantiles: y = 1. B = 1, D = 0, hence sqrt(2).

**Lloyd's rounds** are adaptive: the centres of a round follow from released sums alone, so that rho adds up
over rounds (``levels`` of the record), and so does what the ledger holds. The start is public: points of a
Halton sequence in the declared ranges, or a file. A cell whose noisy count does not stand out of the noise
keeps its centre. Nothing else of the data is read.
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
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.conversions import check_epsilon, zcdp_epsilon
from discreet.core.guarantee import Guarantee
from discreet.core.randomness import Randomness, Secure
from discreet.core.shown import brief
from discreet.data.declaration import Declaration, Value, nearest, read_declaration
from discreet.data.places import Text, local_files, places_of
from discreet.data.prepare import MEMORY, Maker, parts, refuse
from discreet.data.readers import Progress
from discreet.data.records import Reader
from discreet.data.schema import DECLARED, read_public_table
from discreet.linear.person_sums import GRID, PersonSums, guaranteed, noisy
from discreet.storage.folders import aside, check_free, claims_out, room_for
from discreet.storage.ledger import Ledger, LedgerError, Reservation, spent
from discreet.storage.owner_rules import check_rules
from discreet.stored.codebook_page import FACTS, PAGES, codebook_signed, write_codebook_pages
from discreet.stored.pages import compared_with
from discreet.stored.signing import SIGNATURES_NAME, found_in
from discreet.stored.statement import LedgerFacts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CENTRES, CUTS = "codebook.csv", "cuts.toml"
VERSION = 2
# 1: no page for the data protection officer, and nothing of what was declared
_CERTAIN = 1.96  # 95 %
_PAGES = 2**18  # bytes of the pages of a fit, of any size
_STANDS_OUT = 3.0  # standard deviations of noise


def budget_of(epsilon: float | None, delta: float | None, rho: float | None) -> tuple[float, float]:
    """(rho, delta) of a budget in epsilon or rho; delta is that of the statement.

    Raises ``ValueError`` unless exactly one of epsilon and rho is given, with a delta in (0, 1).
    """
    if (epsilon is None) == (rho is None):
        raise ValueError("epsilon, rho: must be given one of the two, for what is fitted to people")
    if delta is None:
        raise ValueError("delta is missing: Gaussian noise has an epsilon only at a delta above 0")
    delta = checks.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    if rho is not None:
        return checks.positive("rho", rho), delta
    goal = check_epsilon(epsilon)
    low, high = 0.0, goal  # zcdp_epsilon rises with rho, and is above it
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_epsilon(middle, delta) <= goal else (low, middle)
    return checks.positive("rho", low), delta


# ------------------------------------------------------------------------------------------- forecast
@dataclass(frozen=True)
class Fit:
    """Public facts of a fit: what it costs, and how far noise moves what is fitted.

    what : "centres" or "quantiles". names, widths : of the values, and the length of their declared ranges.
    users, number, rounds : n, k, rounds. sigma : of one coordinate of a sum, in scaled units.
    error : 95 % of one coordinate of a centre that a k-th of all people is in, as a share of the range (by
    value); of quantiles: of the share of people below a cut. spacing : what that is held against.
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
        """Does noise move a centre (a cut) by more than public ones of the same number lie apart?"""
        return max(self.error) >= self.spacing

    @property
    def verdict(self) -> str:
        """One sentence."""
        cost = (
            f"epsilon = {self.epsilon:.4g} at delta = {self.delta:g} (rho = {self.rho:.4g}), to which every "
            "later release of these people adds; a public one costs nothing"
        )
        if self.what == "quantiles":
            said = (
                f"each of {self.number - 1} cuts is off by up to {max(self.error):.1%} of the people (95 %), "
                f"where a bin is to hold {1 / self.number:.1%}"
            )
        else:
            said = (
                f"each of {self.number} centres is off by up to {max(self.error):.1%} of a value's range "
                f"(95 %, if a {self.number}th of the people is there), where {self.number} public points "
                f"lie about {self.spacing:.1%} of the ranges apart"
            )
        if self.hopeless:
            return f"HOPELESS: {said}: take public ones. It would cost {cost}."
        return f"{said[:1].upper()}{said[1:]}. It costs {cost}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "what": self.what, "values": list(self.names), "users": self.users, "number": self.number,
            "rounds": self.rounds, "epsilon": self.epsilon, "delta": self.delta, "rho": self.rho,
            "sigma": self.sigma, "error": dict(zip(self.names, self.error, strict=True)),
            "spacing": self.spacing, "hopeless": self.hopeless, "verdict": self.verdict,
        }  # fmt: skip


def _ranges(values: Sequence[Value]) -> None:
    for value in values:
        if value.categories is not None or not math.isfinite(value.high - value.low):
            raise ValueError(
                f"prepare.values.{value.name}: must be a number with a declared range, which bounds what one "
                "person can change"
            )


@dataclass(frozen=True, eq=False)
class _Means:
    """k-means of a declaration: scaled values z = (x - middle) / scale, within +- half."""

    values: tuple[Value, ...]
    middle: Floats
    scale: Floats
    half: Floats
    sums: PersonSums

    @classmethod
    def of(cls, declared: Declaration, number: int) -> _Means:
        chosen = declared.states
        if chosen.centres is None or chosen.scale is None:
            raise ValueError("prepare.states: must be a codebook, whose centres are to be fitted")
        _ranges(chosen.reads)
        low, high = (np.array([getattr(one, end) for one in chosen.reads]) for end in ("low", "high"))
        half = (high - low) / 2 / chosen.scale
        radius = float(np.linalg.norm(half))
        sums = PersonSums(
            number, len(half) + 1, math.sqrt(2.0) * radius, 2 * radius, _most_steps(declared, number)
        )
        return cls(chosen.reads, (low + high) / 2, chosen.scale, half, sums)

    @property
    def radius(self) -> float:
        return self.sums.apart / 2


def _most_steps(declared: Declaration, cells: int) -> int:
    """The most cells that one person can be in."""
    schema = declared.schema
    if schema.contribute == "random":
        return cells
    return min(cells, schema.horizon * schema.episodes_per_user)


def forecast_codebook(
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
) -> Fit:
    """What a fit would cost, and what it would be worth: from public facts, before anything is read.

    Parameters
    ----------
    declaration : with a codebook of states (its file need not be there), for ``centres``
    users : n, at least 1
    centres, rounds : k-means with k centres, 1 to 100 000, in 1 to 100 rounds; or
    quantiles, bins : (value, number of bins of equal shares, 2 to 1000), from a histogram of so many public
        cells, as many as there are bins to 100 000
    epsilon or rho, and delta : the budget

    Raises
    ------
    ValueError
        If a number is out of range, or not exactly one of ``centres`` and ``quantiles`` is given.
    """
    declared = _declared(declaration)
    users = checks.integer("users", users, 1)
    rho, delta = budget_of(epsilon, delta, rho)
    if (centres is None) == (quantiles is None):
        raise ValueError("centres, quantiles: must be given one of the two")
    if centres is not None:
        number, rounds = (
            checks.integer("centres", centres, 1, 100_000),
            checks.integer("rounds", rounds, 1, 100),
        )
        means = _Means.of(declared, number)
        sigma = means.sums.sigma(rho, rounds)
        record = means.sums.record("k-means", sigma, rounds)
        noise = sigma / GRID
        # sum / count: the noise of the count moves a centre on the radius by as much again
        off = _CERTAIN * math.sqrt(2.0) * noise * number / users / (2 * means.half)
        names, widths = (
            tuple(one.name for one in means.values),
            tuple(one.high - one.low for one in means.values),
        )
        spacing = number ** (-1.0 / len(names))
        what = "centres"
    else:
        assert quantiles is not None
        value, number = _value(declared, quantiles[0]), checks.integer("quantiles", quantiles[1], 2, 1000)
        bins, rounds = checks.integer("bins", bins, number, 100_000), 1
        sums = PersonSums(bins, 1, 1.0, 0.0, _most_steps(declared, bins))
        sigma = sums.sigma(rho, 1)
        record = sums.record("histogram", sigma, 1)
        noise = sigma / GRID
        off = np.array(
            [_CERTAIN * noise * math.sqrt(bins) / 2 / users]
        )  # of a bridge of noise, in its middle
        names, widths, spacing, what = (value.name,), (value.high - value.low,), 1.0 / number, "quantiles"
    stated = guaranteed(record, delta, "secure")
    assert stated.epsilon is not None and stated.rho is not None
    return Fit(
        what, names, widths, users, number, rounds, stated.rho, delta, stated.epsilon, noise,
        tuple(off.tolist()), spacing,
    )  # fmt: skip


def _declared(declaration: Declaration | str | Path) -> Declaration:
    if isinstance(declaration, Declaration):
        return declaration
    return read_declaration(declaration, fitting=True)


def _value(declared: Declaration, name: str) -> Value:
    value = declared.values[checks.choice("quantiles", name, declared.values)]
    _ranges([value])
    return value


# ------------------------------------------------------------------------------------------------- fit
@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit left: its folder, the centres (k, d) or cuts in the values' own units, what it promises."""

    __repr__ = brief

    folder: Path
    found: Floats
    forecast: Fit
    guarantee: Guarantee


class _Points(Maker):
    """Values of all steps in place of trajectories."""

    wanted: tuple[str, ...] = ()

    def finished(self, at: Ints, *_: Any) -> pa.Table | None:
        """The person of each step, and her values there."""
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
    """(owner, values (n, d), people): RAW DATA."""
    text = Text(how.get("delimiter"), how.get("decimal", "."), how.get("encoding", "utf-8"))
    places = places_of(where, text, how.get("sql"))
    check_rules(local_files(places), declared.schema.dataset, ledger)
    reader = Reader(declared, places)
    maker = _Points(declared, reader)
    maker.wanted = tuple(names)
    tables = [made for part in parts(reader, MEMORY, how.get("scratch"), progress) if (made := maker(part))]
    if reader.offences.counts:
        refuse(reader.offences, private)
    if not tables:
        raise ValueError("records: hold no row of anybody")
    check_rules(local_files(places), declared.schema.dataset, ledger)  # reading may have taken long
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
    """Fit centres or cut points to people, with one release that the ledger is charged with.

    The order is that of :func:`discreet.stored.learn.learn`: all rows are checked, the ledger reserves, noise
    is drawn, the folder is written aside and renamed, the ledger marks it. Parameters are those of
    :func:`forecast_codebook`, and:

    Parameters
    ----------
    where, how : records, and ``sql``, ``delimiter``, ``decimal``, ``encoding``, ``scratch``, as for
        :func:`discreet.data.prepare.prepare`
    out : new folder: ``codebook.csv`` or ``cuts.toml``, and ``codebook.json``, which says what they cost
    ledger : Ledger, or None, which writes nothing down (and must be None for seeded noise)
    start : file of public centres; default: a Halton sequence in the declared ranges
    anyway : fit also where the forecast calls it hopeless
    centres, quantiles, rounds, bins, epsilon, delta, rho : as for :func:`forecast_codebook`
    randomness : Secure (default); Seeded for simulations
    purpose : a line of the ledger's entry
    progress : called with words

    Raises
    ------
    Refused
        If records break the declaration. Nothing was spent.
    BudgetError
        If the owner's limit would be passed. Nothing was spent.
    ValueError
        If anything else is not allowed (by the owner's rule over the data, too), or the fit is hopeless.
        Nothing was spent.
    """
    declared, out = _declared(declaration), Path(out)
    randomness = Secure() if randomness is None else randomness
    check_free(out)
    if ledger is not None and randomness.kind != "secure":
        raise ValueError("ledger: must be None with noise from a seed, which protects nobody")
    asked: dict[str, Any] = {
        "centres": centres, "quantiles": quantiles, "rounds": rounds, "bins": bins, "epsilon": epsilon,
        "delta": delta, "rho": rho,
    }  # fmt: skip
    forecast_codebook(declared, 1, **asked)  # arguments first, before anything is read
    means = _Means.of(declared, centres) if centres is not None else None
    first = _start(means, start, declared) if means is not None else np.empty((0, 0))
    names = [one.name for one in means.values] if means is not None else [str(quantiles and quantiles[0])]
    private = out.with_name(f"{out.name}.offending.csv")
    owner, values, people = _read(where, declared, names, private, how, progress, ledger)
    expected = forecast_codebook(declared, people, **asked)
    if expected.delta > 1 / people:
        raise ValueError(f"delta = {expected.delta:g}: must be at most 1/users, better below a tenth of it")
    if expected.hopeless and not anyway:
        raise ValueError(f"{expected.verdict} Nothing was spent (anyway = true fits all the same)")
    sums = means.sums if means is not None else _histogram(declared, bins)
    sigma = sums.sigma(budget_of(epsilon, delta, rho)[0], expected.rounds)
    record = sums.record("k-means" if means is not None else "histogram", sigma, expected.rounds)
    guarantee = guaranteed(record, expected.delta, randomness.kind)
    purpose = purpose or f"codebook, {expected.what} of {', '.join(names)}"
    reservation = None
    with room_for(out, _PAGES + 64 * expected.number * (len(names) + 2)):
        if ledger is not None:
            reservation = ledger.reserve(
                declared.schema.dataset, [record], delta=expected.delta, users=people, purpose=purpose
            )
    with spent(ledger, reservation):
        return _released(
            out, declared, means, first, owner, values, sums, sigma, expected, guarantee, purpose, ledger,
            reservation, randomness,
        )  # fmt: skip


def _released(
    out: Path, declared: Declaration, means: _Means | None, first: Floats, owner: Ints, values: Floats,
    sums: PersonSums, sigma: int, expected: Fit, guarantee: Guarantee, purpose: str, ledger: Ledger | None,
    reservation: Reservation | None, randomness: Randomness,
) -> Fitted:  # fmt: skip
    """Noise, and the folder; what is reserved is spent from here on."""
    names, people = expected.names, expected.users
    source = os.urandom if isinstance(randomness, Secure) else np.random.default_rng(randomness.seed).bytes
    if means is not None:
        found, share = _lloyd(means, first, owner, values, sigma, expected.rounds, source)
    else:
        value = _value(declared, names[0])
        found, share = _cut(value, expected.number, sums, owner, values[:, 0], sigma, source)
    facts: dict[str, Any] = {
        "format": "discreet codebook", "version": VERSION, "dataset": declared.schema.dataset,
        "unit": declared.schema.unit, "users": people, "episodes_per_user": declared.schema.episodes_per_user,
        "provenance": dict(declared.schema.provenance),
        "declared": {name: declared.schema.declared.get(name) for name in DECLARED}, "purpose": purpose,
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "declaration": declared.hash,
        "forecast": expected.to_dict(), "guarantee": guarantee.to_dict(), "statement": guarantee.statement,
        "ledger": None if ledger is None or reservation is None else _in_ledger(ledger, reservation),
    }  # fmt: skip
    if ledger is None:
        facts["warning"] = "NO LEDGER: nothing was written down; losses of several releases add up"
    with aside(out, paid=FACTS, ledger=None if ledger is None else ledger.path) as hidden:
        name = CENTRES if means is not None else CUTS
        table = _centres_text(names, found) if means is not None else _cuts_text(names[0], found)
        (hidden / name).write_text(table, "utf-8")
        facts["shares"] = [round(one, 6) for one in (share / max(share.sum(), 1e-300)).tolist()]
        facts["files"] = {name: _digest(hidden / name)}
        text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        write_codebook_pages(hidden, text)
        (hidden / FACTS).write_text(text, "utf-8", newline="\n")  # last: with it the folder is whole
        published = hashes(hidden)
    if ledger is not None and reservation is not None:
        ledger.mark(reservation, published)
    return Fitted(out, found, expected, guarantee)


def _in_ledger(ledger: Ledger, reservation: Reservation) -> dict[str, Any]:
    """What a fit did to the ledger, as statements tell it."""
    found = LedgerFacts.of(ledger, reservation)
    return {
        "name": found.name, "identity": found.identity, "new": found.new, "number": found.number,
        "hash": found.head, "after": dict(found.after), "together": dict(found.together),
    }  # fmt: skip


def verify_codebook(
    folder: str | Path, ledger: Ledger | None = None, *, public_keys: Sequence[str] = ()
) -> None:
    """Raise ``ValueError`` unless the files in a fit's folder are what its facts (and the ledger's mark) say.

    The guarantee is computed again from the record that the facts hold, and the pages from the facts, but for
    what people wrote into their lines. Signatures that are there must be in order, and ``public_keys`` must
    have signed (:func:`discreet.stored.approval.sign`).
    """
    folder = Path(folder)
    facts = read_facts(folder)
    known = {FACTS, SIGNATURES_NAME, *PAGES, *facts["files"]}
    foreign = sorted(one.name for one in folder.iterdir() if one.name not in known or one.is_symlink())
    if foreign:
        raise ValueError(f"{folder / foreign[0]}: is not of this fit")
    fingerprint = _digest(folder / FACTS)
    for name, lines in PAGES.items():
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: is not there, which a fit makes")
        text = (folder / name).read_bytes().decode("utf-8", "replace")
        for what, stated, made, ok in compared_with(text, lines(facts, fingerprint)):
            if not ok:
                raise ValueError(f"{folder / name}: {what} is not as it was made ({stated!r}, {made!r})")
    signed = found_in(folder, fingerprint, public_keys, codebook_signed(), "discreet codebook, 1")
    for what, stated, made, ok in signed:
        if not ok:
            raise ValueError(
                f"{folder / SIGNATURES_NAME}: {what}: is not as it must be ({stated!r}, {made!r})"
            )
    guarantee, files, held = Guarantee.from_dict(facts["guarantee"]), facts["files"], facts["ledger"]
    if facts.get("statement") != guarantee.statement:
        raise ValueError(f"{folder / FACTS}: its statement is not that of its guarantee")
    for name, digest in files.items():
        if not (folder / name).is_file() or _digest(folder / name) != digest:
            raise ValueError(f"{folder / name}: is not the file that was made")
    if ledger is None:
        return
    if held is None:
        raise ValueError(f"{folder / FACTS}: names no ledger")
    marks = {entry.reservation: entry for entry in ledger.entries(facts["dataset"]) if entry.kind == "mark"}
    mark = marks.get(held["number"])
    if held["identity"] != ledger.identity or not ledger.contains(held["hash"]) or mark is None:
        raise LedgerError(f"{ledger}: does not hold this fit")
    again = _in_ledger(ledger, Reservation(facts["dataset"], held["number"], held["hash"]))
    wrong = sorted(name for name in {*again, *held} - {"name"} if again.get(name) != held.get(name))
    if wrong:
        raise ValueError(f"{folder / FACTS}: {wrong[0]} of the ledger is not what the ledger holds")
    if dict(mark.files) != {**files, FACTS: _digest(folder / FACTS)}:
        raise ValueError(f"{folder}: its files are not those that the ledger marked")


def read_facts(folder: Path) -> dict[str, Any]:
    """What a fit says of itself; ``ValueError`` if that is not there, or not what a fit writes."""
    try:
        facts: dict[str, Any] = json.loads((folder / FACTS).read_text("utf-8"))
        if facts["version"] != VERSION:
            raise ValueError(f"version {facts['version']!r}, this library reads {VERSION}")
        Guarantee.from_dict(facts["guarantee"])
        _ = dict(facts["files"]), facts["dataset"], facts["date"]
        _ = [facts["declared"][name] for name in DECLARED], dict(facts["provenance"])
        if facts["ledger"] is not None:
            _ = [facts["ledger"][name] for name in ("identity", "number", "hash", "after", "together", "new")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / FACTS}: is not what a fit writes ({error!r})") from None
    return facts


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a fit, as the ledger marks them: all but the pages, which follow from them, and
    into which people write.
    """
    return {one.name: _digest(one) for one in folder.iterdir() if one.name not in (*PAGES, SIGNATURES_NAME)}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _start(means: _Means, start: str | Path | None, declared: Declaration) -> Floats:
    """(k, d) public centres in scaled units."""
    number, size = means.sums.cells, len(means.values)
    if start is None:
        from scipy.stats import qmc

        points = qmc.Halton(size, scramble=False).random(number + 1)[1:]  # the first one is a corner
        return np.asarray((2 * points - 1) * means.half)
    columns = read_public_table(
        "start",
        Path(start),
        (*(one.name for one in means.values), "label"),
        [one.name for one in means.values],
    )
    table = np.stack([np.asarray(columns[one.name], np.float64) for one in means.values], axis=1)
    if len(table) != number or not np.isfinite(table).all():
        raise ValueError(f"start: {Path(start).name} has {len(table)} centres: must be {number}, all numbers")
    return np.clip((table - means.middle) / means.scale, -means.half, means.half)


def _lloyd(
    means: _Means, first: Floats, owner: Ints, values: Floats, sigma: int, rounds: int,
    source: Callable[[int], bytes],
) -> tuple[Floats, Floats]:  # fmt: skip
    """Centres in the values' own units, and the noisy number of people at each."""
    # ranges are declared of cells: the sum of a step's doses, or a constant for missing ones, may be outside
    z = np.clip((values - means.middle) / means.scale, -means.half, means.half)
    radius = means.radius
    payload = np.column_stack([z, np.full(len(z), radius)])
    centres = first.copy()
    for _ in range(rounds):
        sums = noisy(means.sums.exact(owner, nearest(z, centres), payload), sigma, source)
        count = sums[:, -1] / radius
        seen = count > _STANDS_OUT * sigma / GRID / radius
        moved = sums[:, :-1] / np.where(seen, count, 1.0)[:, None]
        centres = np.where(seen[:, None], np.clip(moved, -means.half, means.half), centres)
    return centres * means.scale + means.middle, np.maximum(count, 0.0)


def _histogram(declared: Declaration, bins: int) -> PersonSums:
    return PersonSums(bins, 1, 1.0, 0.0, _most_steps(declared, bins))


def _cut(
    value: Value, number: int, sums: PersonSums, owner: Ints, values: Floats, sigma: int,
    source: Callable[[int], bytes],
) -> tuple[Floats, Floats]:  # fmt: skip
    """Cut points between bins of equal shares, and a noisy histogram over the declared range."""
    from scipy.optimize import isotonic_regression

    known = ~np.isnan(values)
    share = (values[known] - value.low) / (value.high - value.low)
    cell = np.clip(np.floor(share * sums.cells), 0, sums.cells - 1).astype(np.int64)
    histogram = noisy(sums.exact(owner[known], cell, np.ones((len(cell), 1))), sigma, source)[:, 0]
    below = isotonic_regression(np.cumsum(histogram)).x
    below = np.concatenate([[0.0], np.clip(below, 0.0, None)])
    edges = np.linspace(value.low, value.high, sums.cells + 1)
    cuts = np.interp(below[-1] * np.arange(1, number) / number, below, edges)
    cuts = np.array([float(f"{cut:.6g}") for cut in cuts])
    return np.unique(cuts[(cuts > value.low) & (cuts < value.high)]), np.diff(below)


def _centres_text(names: Sequence[str], centres: Floats) -> str:
    lines = [",".join([*names, "label"])]
    for i, row in enumerate(centres):
        lines.append(",".join([*(f"{one:.9g}" for one in row), f"centre {i}"]))
    return "\n".join(lines) + "\n"


def _cuts_text(name: str, cuts: Floats) -> str:
    listed = ", ".join(f"{cut:.6g}" for cut in cuts)
    return f"# of prepare.values.{name}; by a private release: see {FACTS}\ncuts = [{listed}]\n"
