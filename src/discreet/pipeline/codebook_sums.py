r"""Noisy sums of a fit of state centres or cut points, and the numbers computed from these sums.

A fit reads users' records only through noisy sums (:mod:`discreet.mechanisms.linear.per_user_means`). The
sums are integers, in units of 2^-20. The folder of the fit contains the sums in the file ``sums.csv``. For
k-means, it also contains the public initial centres in the file ``start.csv``. Centres, cut points and shares
are functions of these two files and of public sizes (:class:`CodebookQuery`). Therefore anyone who has the
folder can compute these numbers again (:func:`discreet.pipeline.state_codebook.verify_codebook`). This check
detects numbers that do not follow from the noisy sums, for example exact counts.

For k-means, let S_j be the released sum of the scaled values z in cell j, and let W_j be the released sum of
the weights. Let R be the radius, and let sigma be the standard deviation of the noise. Then a round computes

    n_j = W_j / R,    c_j <- S_j / n_j, clipped to the ranges, if n_j > 3 sigma / R.

If n_j is not larger than 3 sigma / R, c_j does not change. The share of centre j is proportional to max(n_j,
0) in the last round. For quantiles, the cumulative histogram is made monotone by isotonic regression. Cut
points are interpolated in the monotone histogram, and shares are its differences.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.data.schema import Schema
from discreet.mechanisms.linear.per_user_means import GRID, PersonSums

CENTRES, CUTS, SUMS, START = "codebook.csv", "cuts.toml", "sums.csv", "start.csv"
STANDS_OUT = 3.0  # a noisy count is used if it exceeds this number of standard deviations of the noise
_EXACT = 2**53


@dataclass(frozen=True, eq=False)
class CodebookQuery:
    """Public sizes of a fit. They determine the sensitivity.

    Parameters
    ----------
    what : "centres" or "quantiles".
    names, low, high : names of the values, and lower and upper ends of their declared ranges.
    scale : (d,) unit of distance for each value; ones for quantiles.
    number : number k of centres, or of bins with equal shares of users.
    bins : number of cells of the histogram; 0 for centres.
    rounds : number of rounds; each round releases one noisy sum per cell.
    horizon, episodes, contribute : values of the schema. These values bound the number of cells to which one
        user contributes.
    """

    what: Literal["centres", "quantiles"]
    names: tuple[str, ...]
    low: Floats
    high: Floats
    scale: Floats
    number: int
    bins: int
    rounds: int
    horizon: int
    episodes: int
    contribute: str

    @classmethod
    def of(
        cls,
        schema: Schema,
        ranges: Mapping[str, tuple[float, float]],
        scale: Floats | None,
        *,
        number: int,
        bins: int = 0,
        rounds: int = 1,
    ) -> CodebookQuery:
        """Return the sizes of a fit, computed from the schema of the data.

        - ranges : declared range of each value.
        - scale : (d,) unit of distance for each value. If it is None, the fit is for quantiles, and
          ``ranges`` must have exactly one value.
        """
        low, high = (np.array([pair[end] for pair in ranges.values()], np.float64) for end in (0, 1))
        return cls(
            "quantiles" if scale is None else "centres", tuple(ranges), low, high,
            np.ones(len(low)) if scale is None else np.asarray(scale, np.float64), number, bins, rounds,
            schema.horizon, schema.episodes_per_user, schema.contribute,
        )  # fmt: skip

    @classmethod
    def read(cls, query: Mapping[str, Any], forecast: Mapping[str, Any], episodes: int) -> CodebookQuery:
        """Return the sizes from the dictionary that :meth:`to_dict` returned.

        Raises ``ValueError`` if the dictionary is incomplete or inconsistent.
        """
        if set(query) != set(_KEYS):
            raise ValueError(f"query: must have the keys {', '.join(_KEYS)}")
        ranges = {str(name): (float(low), float(high)) for name, (low, high) in query["ranges"].items()}
        scale = None if query["scale"] is None else [float(query["scale"][name]) for name in ranges]
        if not ranges or not all(math.isfinite(b - a) and b > a for a, b in ranges.values()):
            raise ValueError("query.ranges: must be finite, each with an upper end above the lower one")
        if scale is not None and (len(scale) != len(query["scale"]) or min(scale) <= 0.0):
            raise ValueError("query.scale: must be a number above 0 for each value")
        if (scale is None) != (query["bins"] is not None) or (scale is None and len(ranges) > 1):
            raise ValueError("query: must have a scale for centres, or bins and one value for quantiles")
        low, high = (np.array([pair[end] for pair in ranges.values()]) for end in (0, 1))
        found = cls(
            "quantiles" if scale is None else "centres", tuple(ranges), low, high,
            np.ones(len(low)) if scale is None else np.array(scale),
            checks.integer("query.k", query["k"], 1, 100_000),
            0 if query["bins"] is None else checks.integer("query.bins", query["bins"], 2, 100_000),
            checks.integer("forecast.rounds", forecast["rounds"], 1, 100),
            checks.integer("query.horizon", query["horizon"], 1),
            checks.integer("episodes_per_user", episodes, 1),
            checks.choice("query.contribute", query["contribute"], ("error", "random")),
        )  # fmt: skip
        own = found.to_dict(query["sigma"], query["start"])
        for name in _KEYS:
            same = own[name] == query[name]
            if name == "radius":  # the last bits of a sum can differ on another machine
                same = math.isclose(own[name], float(query[name]), rel_tol=1e-12)
            if not same:
                raise ValueError(f"query.{name} = {checks.said(query[name])}: must be {own[name]!r}")
        return found

    def to_dict(self, sigma: int, start: str | None) -> dict[str, Any]:
        """Return the sizes as a dictionary of plain values.

        - sigma : standard deviation of the noise, in units of the grid.
        - start : origin of the initial centres, "halton" or "file"; None for quantiles.
        """
        centres = self.what == "centres"
        ends = zip(self.low.tolist(), self.high.tolist(), strict=True)
        return {
            "ranges": {name: list(pair) for name, pair in zip(self.names, ends, strict=True)},
            "scale": dict(zip(self.names, self.scale.tolist(), strict=True)) if centres else None,
            "radius": self.radius, "k": self.number, "bins": None if centres else self.bins,
            "touched": self.sums.touched, "horizon": self.horizon, "contribute": self.contribute,
            "grid": GRID, "sigma": checks.integer("sigma", sigma, 1),
            "start": checks.choice("start", start, ("halton", "file")) if centres else None,
        }  # fmt: skip

    # -------------------------------------------------------------------------- public sizes
    @property
    def middle(self) -> Floats:
        """(d,) midpoints of the ranges."""
        return np.asarray((self.low + self.high) / 2)

    @property
    def half(self) -> Floats:
        """(d,) half widths of the ranges of the scaled values z = (x - middle) / scale."""
        return np.asarray((self.high - self.low) / 2 / self.scale)

    @cached_property
    def radius(self) -> float:
        """Radius R of a ball that contains all scaled values z. It is also the weight of one user.

        For quantiles, the radius is 1.
        """
        return float(np.linalg.norm(self.half)) if self.what == "centres" else 1.0

    @property
    def cells(self) -> int:
        """Number of cells, which are the rows of the table of sums."""
        return self.number if self.what == "centres" else self.bins

    @cached_property
    def sums(self) -> PersonSums:
        """Query of the sums, which defines their sensitivity to one user."""
        cells, radius = self.cells, self.radius
        touched = cells if self.contribute == "random" else min(cells, self.horizon * self.episodes)
        if self.what == "quantiles":
            return PersonSums(cells, 1, 1.0, 0.0, touched)
        return PersonSums(cells, len(self.names) + 1, math.sqrt(2.0) * radius, 2 * radius, touched, radius)

    @property
    def mechanism(self) -> str:
        """Name of the mechanism in mechanism records."""
        return "k-means" if self.what == "centres" else "histogram"

    # -------------------------------------------------------------------------- what follows
    def scaled(self, values: Floats) -> Floats:
        """Return the scaled values z for values in original units. They are clipped to the ranges."""
        return np.clip((values - self.middle) / self.scale, -self.half, self.half)

    def people(self, released: Ints) -> Floats:
        """Return the noisy number of users in each of the k cells, computed from the released sums of one
        round.
        """
        return np.asarray(released[:, -1].astype(np.float64) / GRID / self.radius)

    def moved(self, centres: Floats, released: Ints, sigma: int) -> Floats:
        """Return the (k, d) scaled centres after one round.

        - centres : (k, d) scaled centres before the round.
        - released : (k, d + 1) noisy sums of the round.
        """
        count, sums = self.people(released), released[:, :-1].astype(np.float64) / GRID
        seen = count > STANDS_OUT * sigma / GRID / self.radius
        means = sums / np.where(seen, count, 1.0)[:, None]
        return np.where(seen[:, None], np.clip(means, -self.half, self.half), centres)

    def monotone(self, released: Ints) -> Floats:
        """Return the estimated number of users below each of the bins + 1 edges of the histogram.

        These numbers never decrease.

        - released : (bins, 1) noisy histogram.
        """
        from scipy.optimize import isotonic_regression

        below = isotonic_regression(np.cumsum(released[:, 0].astype(np.float64) / GRID)).x
        return np.concatenate([[0.0], np.clip(below, 0.0, None)])

    def cuts(self, released: Ints) -> Floats:
        """Return the cut points between bins with equal shares of users, from the noisy histogram."""
        (low,), (high,), below = self.low, self.high, self.monotone(released)
        edges = np.linspace(low, high, self.bins + 1)
        cuts = np.interp(below[-1] * np.arange(1, self.number) / self.number, below, edges)
        cuts = np.array([float(f"{cut:.6g}") for cut in cuts])
        return np.unique(cuts[(cuts > low) & (cuts < high)])

    def shares(self, released: Ints) -> list[float]:
        """Return the estimated share of users at each centre or in each cell of the histogram.

        released : noisy sums of the last round.
        """
        people = np.diff(self.monotone(released)) if self.bins else np.maximum(self.people(released), 0.0)
        return [round(one, 6) for one in (people / max(people.sum(), 1e-300)).tolist()]

    def found(self, start: str, released: Ints, sigma: int) -> Floats:
        """Return the centres or cut points in the original units of the values.

        - start : text of ``start.csv``.
        - released : noisy sums of all rounds.
        """
        if self.bins:
            return self.cuts(released[0])
        centres = self.read_start(start)
        for one in released:
            centres = self.moved(centres, one, sigma)
        return centres * self.scale + self.middle

    # -------------------------------------------------------------------------- as text
    def halton(self) -> str:
        """Return the text of ``start.csv`` for the default initial centres.

        The default centres are points of a Halton sequence, scaled to the declared ranges.
        """
        from scipy.stats import qmc

        # The first point of the sequence is left out, because it is a corner of the ranges.
        points = qmc.Halton(len(self.names), scramble=False).random(self.number + 1)[1:]
        return self.start_text((2 * points - 1) * self.half * self.scale + self.middle)

    def start_text(self, start: Floats) -> str:
        """Return the text of ``start.csv`` for initial centres in the original units of the values.

        Every number is written with all its digits, so that reading the text gives the same number.
        """
        rows = [",".join(self.names), *(",".join(map(repr, row)) for row in start.tolist())]
        return "\n".join(rows) + "\n"

    def read_start(self, text: str) -> Floats:
        """Return the (k, d) scaled initial centres from the text of ``start.csv``.

        They are clipped to the ranges. Raises ``ValueError`` if the text has another format.
        """
        rows = list(csv.reader(io.StringIO(text)))
        if len(rows) != self.number + 1 or tuple(rows[0]) != self.names:
            raise ValueError(f"must have {self.number} centres of {', '.join(self.names)}")
        table = np.array([[float(one) for one in row] for row in rows[1:]])
        if not np.isfinite(table).all() or self.start_text(table) != text:
            raise ValueError("must be numbers, as a fit writes them")
        return self.scaled(table)

    def sums_text(self, released: Ints) -> str:
        """Return the text of ``sums.csv``, which has one line per round and cell.

        released : (rounds, cells, width) noisy sums.
        """
        names = [] if self.bins else [f"sum_{name}" for name in self.names]
        lines = [",".join(["round", "cell", *names, "weight"])]
        for number, table in enumerate(released.tolist()):
            lines += [",".join(map(str, (number, cell, *row))) for cell, row in enumerate(table)]
        return "\n".join(lines) + "\n"

    def read_sums(self, text: str) -> Ints:
        """Return the (rounds, cells, width) noisy sums from a string that :meth:`sums_text` returned.

        Raises ``ValueError`` if the string has another format.
        """
        shape = self.rounds, self.cells, self.sums.width
        rows = list(csv.reader(io.StringIO(text)))[1:]
        if len(rows) != shape[0] * shape[1] or {len(row) for row in rows} != {shape[2] + 2}:
            raise ValueError(f"must have {shape[0]} rounds of {shape[1]} cells, {shape[2]} sums each")
        numbers = [[int(one) for one in row[2:]] for row in rows]
        if any(abs(one) > _EXACT for row in numbers for one in row):
            raise ValueError("must be integers of at most 2^53")
        released = np.array(numbers, np.int64).reshape(shape)
        if self.sums_text(released) != text:
            raise ValueError("must be as a fit writes it: rounds and cells in order, from 0")
        return released

    def table_text(self, found: Floats, facts: str) -> tuple[str, str]:
        """Return the name and the text of the file that contains the centres or the cut points.

        A declaration of data names this file.

        - facts : name of the file that contains the facts of the fit.
        """
        if self.bins:
            listed = ", ".join(f"{cut:.6g}" for cut in found)
            head = f"# of prepare.values.{self.names[0]}; by a private release: see {facts}\n"
            return CUTS, f"{head}cuts = [{listed}]\n"
        lines = [",".join([*self.names, "label"])]
        for i, row in enumerate(found):
            lines.append(",".join([*(f"{one:.9g}" for one in row), f"centre {i}"]))
        return CENTRES, "\n".join(lines) + "\n"


_KEYS: Sequence[str] = (
    "ranges", "scale", "radius", "k", "bins", "touched", "horizon", "contribute", "grid", "sigma", "start",
)  # fmt: skip
