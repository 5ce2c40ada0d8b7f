#!/usr/bin/env python3
"""Independent verifier of privacy statements: one file, Python 3.11 or later, standard library only.

    python verify_statement.py DIR [--ledger FILE] [--public-key HEX] [--json]

DIR is a folder with ``statement.json``. Every line of the output names a check, the stated value and the found
value. Exit status: 0 if all checks agree, 1 if one differs, 2 if none differs but one was not possible.

Neighbours: the whole record of one user (at most m episodes of H steps) is replaced by any other record, and
the number of users stays the same. L = ln(P(o) / P'(o)) is the privacy loss of an outcome o drawn from P.
This file imports nothing of the library that wrote the folder, and shares no code with it. No file can prove
that noise was drawn as stated: signatures, and the check of the noise below, are the only evidence for this.
"""

import argparse
import hashlib
import json
import math
import os
import re
import sqlite3
import stat
import sys
import tomllib
from pathlib import Path

RESULTS = []
PAGES = ("statement.md", "officer.md", "officer.html")
FREE = ("operator", "approval", "fingerprint")


def report(name, stated, found, ok):
    """Record one check. ``ok`` is True, False, or None if the check was not possible."""
    RESULTS.append((name, stated, found, "not checkable" if ok is None else "agrees" if ok else "DIFFERS"))


def near(name, stated, found, tolerance=1e-9):
    """Record whether two numbers (or None) agree to a relative tolerance."""
    both = stated is not None and found is not None
    same = math.isclose(stated, found, rel_tol=tolerance, abs_tol=1e-300) if both else stated is found
    report(name, stated, found, same)


# ---------------------------------------------------------------------- 1. files, strict JSON, hashes


class Number(float):
    """Float of a JSON file that keeps its text."""

    def __new__(cls, text):
        value = super().__new__(cls, text)
        if not math.isfinite(value):
            raise ValueError(f"{text} is too large for a number")
        value.text = text
        return value


def strict_json(data):
    """Parse JSON. Refuses repeated names, NaN, infinity, -0 as an integer, and text that is not UTF-8."""

    def unique(pairs):
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a name occurs twice in one object")
        return table

    def refused(text):
        raise ValueError(f"{text} is not a number of JSON")

    def whole(text):
        return refused(text) if text == "-0" else int(text)

    return json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=refused,
                      parse_float=Number, parse_int=whole)  # fmt: skip


def canonical(value):
    """Return JSON text with sorted keys, no spaces, ASCII escapes, and each number as its text in the file."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{canonical(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return value.text if isinstance(value, Number) else json.dumps(value)


def sha256(data):
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def check_files(folder, doc):
    """Compare the hashes of all named files. Links, unnamed files and unnamed folders differ."""
    present, own = {}, {"statement.json", *PAGES}
    for place, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(place, name)
            mode, where = path.lstat().st_mode, path.relative_to(folder).as_posix()
            if not stat.S_ISDIR(mode):
                present[where] = path if stat.S_ISREG(mode) else None
            elif not any(file.startswith(f"{where}/") for file in doc["files"]):
                report(f"folder {where}", "not named", "is in the folder", False)
    for name, digest in doc["files"].items():
        path = present.get(name)
        found = sha256(path.read_bytes()) if path else "no such file, or a link"
        report(f"SHA-256 of {name}", digest, found, digest == found)
    for name in sorted(own | ({"signatures.json"} & set(present))):
        report(f"file {name}", "a file", "a file" if present.get(name) else "missing, or a link",
               bool(present.get(name)))  # fmt: skip
    for name in sorted(set(present) - set(doc["files"]) - own - {"signatures.json"}):
        report(f"file {name}", "not named", "is in the folder", False)
    found = sha256(canonical({key: value for key, value in doc.items() if key not in FREE}))
    report("fingerprint", doc["fingerprint"], found, doc["fingerprint"] == found)
    conf = doc["configuration"]
    found = sha256(canonical({key: conf[key] for key in ("algorithm", "options")}))
    report("hash of the configuration", conf["hash"], found, conf["hash"] == found)


# ---------------------------------------------------------------------- 2. closed forms


def _nodes():
    """Return tanh-sinh nodes and weights on (0, 1)."""
    for i in range(-384, 385):
        u = i / 96.0
        s, c = 0.5 * math.pi * math.sinh(u), 0.5 * math.pi * math.cosh(u)
        yield 1.0 / (1.0 + math.exp(-2.0 * s)), 0.5 * c / math.cosh(s) ** 2 / 96.0


NODES = [(x, w) for x, w in _nodes() if w > 0.0]


def gaussian_delta(mu, epsilon):
    """Return delta(epsilon) of mu-Gaussian privacy.

    delta = Phi(-a) - e^epsilon Phi(-a - mu) with a = epsilon/mu - mu/2. With Phi(-a) = phi(a) times the
    integral over t > 0 of exp(-a t - t^2/2), this is phi(a) times that integral with the factor 1 - exp(-mu t).
    """
    a = epsilon / mu - mu / 2.0
    if a > 40.0:
        return 0.0
    end = max(0.0, -a) + 40.0 / max(1.0, a)
    terms = (w * math.exp(-a * x * end - 0.5 * (x * end) ** 2 - 0.5 * a * a) * -math.expm1(-mu * x * end)
             for x, w in NODES)  # fmt: skip
    return end * math.fsum(terms) / math.sqrt(2.0 * math.pi)


def bisect(good, low, high, steps=200):
    """Return the end of the interval at which ``good`` holds, where it fails at low and holds at high."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def gaussian_epsilon(mu, delta):
    """Return the smallest epsilon >= 0 at which mu-Gaussian privacy has this delta."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * mu / 2.0 + mu * math.sqrt(2.0 * math.log(1.0 / delta))  # Chernoff bound of P(L > epsilon)
    return bisect(lambda e: gaussian_delta(mu, e) <= delta, 0.0, high)


def zcdp_epsilon(rho, delta):
    """Return the smallest epsilon of rho-zCDP at delta > 0: the best Renyi order is 1 + t.

    epsilon(t) = (1 + t) rho + ln(t / (1 + t)) + (g - ln(1 + t)) / t with g = ln(1/delta). Its derivative
    vanishes where rho t^2 + ln(1 + t) = g.
    """
    if rho == 0.0:
        return 0.0
    g = -math.log(delta)
    t = bisect(lambda t: rho * t * t + math.log1p(t) >= g, 0.0, math.sqrt(g / rho))
    return max(0.0, (2.0 * t + 1.0) * rho - math.log1p(1.0 / t))


def zcdp_delta(rho, epsilon):
    """Return the smallest delta of rho-zCDP at epsilon.

    ln delta(t) = t ((1 + t) rho - epsilon) + t ln t - (1 + t) ln(1 + t); it is convex in t > 0.
    """
    slope = lambda t: (1.0 + 2.0 * t) * rho - epsilon - math.log1p(1.0 / t)  # noqa: E731
    high = 1.0
    while slope(high) < 0.0:
        high *= 2.0
    t = bisect(lambda t: slope(t) >= 0.0, 0.0, high)
    return min(1.0, math.exp(t * ((1 + t) * rho - epsilon) + t * math.log(t) - (1 + t) * math.log1p(t)))


# ---------------------------------------------------------------------- 3. listed exchanges


def fft(x, sign):
    """Return the discrete Fourier transform (sign = -1) or its unscaled inverse (sign = 1); 2^k values."""
    n = len(x)
    if n == 1:
        return x
    if (n, sign) not in ROOTS:
        ROOTS[n, sign] = [complex(math.cos(a), math.sin(a))
                          for a in (sign * 2.0 * math.pi * i / n for i in range(n // 2))]  # fmt: skip
    even, odd = fft(x[::2], sign), fft(x[1::2], sign)
    odd = [w * b for w, b in zip(ROOTS[n, sign], odd, strict=True)]
    return [a + b for a, b in zip(even, odd, strict=True)] + [a - b for a, b in zip(even, odd, strict=True)]


ROOTS = {}
LARGEST_SCALE = 1e5  # in units of the grid: wider noise has too many values for a sum in this file


def losses(noise, scale, shift):
    """Return (loss, probability) of one coordinate that a neighbour moves by ``shift`` grid units."""
    shift = int(shift)
    if noise == "discrete_gaussian":
        reach = math.ceil(12.0 * scale) + shift
        mass = [math.exp(-0.5 * (x / scale) ** 2) for x in range(-reach, reach + 1)]
        total = math.fsum(mass)
        return [(shift * (shift - 2 * (i - reach)) / (2.0 * scale * scale), p / total)
                for i, p in enumerate(mass)]  # fmt: skip
    t = math.exp(-1.0 / scale)
    ends = [(shift / scale, 1.0 / (1.0 + t)), (-shift / scale, math.exp(-shift / scale) / (1.0 + t))]
    inner = [((shift - 2 * x) / scale, math.tanh(0.5 / scale) * math.exp(-x / scale)) for x in range(1, shift)]
    return ends + inner


class Grid:
    """Laws of losses on a grid of n points, by Fourier transforms.

    Each loss is split between its two neighbours on the grid so that E[1] and E[e^-L] are kept. The split law
    dominates the true one, so every delta is an upper bound. Probabilities are tilted by e^{theta L} before
    the transform, so that rounding errors are small relative to the tail beyond epsilon.
    """

    def __init__(self, n, width, theta, centre, laws):
        self.n, self.h, self.theta, self.low = n, width / n, theta, round(centre * n / width) - n // 4
        self.transforms = {key: self._transform(law) for key, law in laws.items()}

    def _transform(self, law):
        h, n, split, down = self.h, self.n, {}, math.expm1(-self.h)
        for loss, p in law:
            i = math.floor(loss / h)
            up = min(1.0, max(0.0, math.expm1(i * h - loss) / down)) * p
            split[i] = split.get(i, 0.0) + p - up
            split[i + 1] = split.get(i + 1, 0.0) + up
        cells = [0j] * n
        for i, p in split.items():
            cells[i % n] += p * math.exp(self.theta * i * h)
        total = math.fsum(z.real for z in cells)
        return fft([z / total for z in cells], -1), math.log(total)

    def points(self, terms):
        """Return (loss, probability) of a way from a quarter of the window below the centre up."""
        whole, log_mass, n = None, 0.0, self.n
        for key, count in terms.items():
            transform, log_total = self.transforms[key]
            power = [z**count for z in transform]
            whole = power if whole is None else [a * b for a, b in zip(whole, power, strict=True)]
            log_mass += count * log_total
        mass, h, theta = fft(whole, 1), self.h, self.theta
        return [(i * h, max(0.0, mass[i % n].real / n) * math.exp(log_mass - theta * i * h))
                for i in range(self.low, self.low + 3 * n // 4)]  # fmt: skip


def delta_at(points, epsilon):
    return math.fsum(p * -math.expm1(epsilon - loss) for loss, p in points if loss > epsilon)


def exchange_epsilon(ways, delta, stated, sizes=(2**14, 2**15)):
    """Return (upper bound, Richardson limit) of the largest epsilon of the listed ways, and a bound on delta.

    The error of epsilon is proportional to h^2. All ways are compared on small grids, the worst on fine ones.
    """
    laws = {key: losses(*key) for key in sorted({key for way in ways for key in way})}
    means = {key: math.fsum(p * loss for loss, p in law) for key, law in laws.items()}
    squares = {key: math.fsum(p * (loss - means[key]) ** 2 for loss, p in law) for key, law in laws.items()}
    most = max(abs(loss) for law in laws.values() for loss, p in law if p > 1e-40)
    variances = [math.fsum(count * squares[key] for key, count in way.items()) for way in ways]
    mean = max(math.fsum(count * means[key] for key, count in way.items()) for way in ways)
    width = 24.0 * math.sqrt(max(variances)) + 8.0 * most
    theta = min(max(0.0, (stated - mean) / max(variances)), 500.0 / width)

    def epsilons(grids, way):
        every = [grid.points(way) for grid in grids]
        return every[-1], [bisect(lambda e, p=p: delta_at(p, e) <= delta, p[0][0], p[-1][0], 40) for p in every]

    small = [Grid(n, width, theta, stated, laws) for n in (2**12, 2**13)]
    rough = [epsilons(small, way) for way in ways]
    limits = sorted(((4.0 * fine - coarse) / 3.0, i) for i, (_, (coarse, fine)) in enumerate(rough))
    large, best = [Grid(n, width, theta, stated, laws) for n in sizes], (-math.inf, -math.inf)
    for limit, i in reversed(limits):
        if limit > best[0] - 1e-6 * abs(best[0]):
            coarse, fine = epsilons(large, ways[i])[1]
            best = max(best, ((4.0 * fine - coarse) / 3.0, fine))
    return best[1], best[0], lambda e: max(delta_at(points, e) for points, _ in rough)


# ---------------------------------------------------------------------- 4, 5. sensitivity, completeness


def ways_of(steps):
    """Return the reachable triples (different pairs, same pair and other successor, all equal) over H steps.

    The automaton has two states: both records are in one state, or in two. From one state, a step is a
    different action (then one or two states), an equal action with another successor (then two), or equal.
    From two states, the pairs differ.
    """
    at = {True: {(0, 0, 0)}, False: {(0, 0, 0)}}
    for _ in range(steps):
        other = {(d + 1, o, e) for triples in at.values() for d, o, e in triples}
        at = {True: other | {(d, o, e + 1) for d, o, e in at[True]},
              False: other | {(d, o + 1, e) for d, o, e in at[True]}}  # fmt: skip
    return at[True] | at[False]


VISITS, TRANSITIONS, RAW, CENTRED = "visits", "transition_counts", "reward_sums", "centered_reward_sums"


def step_costs(names, p, weights):
    """Return the costs of (different pairs, other successor, all equal) in the p-th power.

    Counts move by 1 in each of two cells. A reward in [0, 1] moves its cell by at most 1 if both records are
    in it; otherwise two cells move by at most 1 each, or 1/2 if 1/2 is subtracted from rewards.
    """
    v, t = (2.0 * weights.get(name, 0.0) if name in names else 0.0 for name in (VISITS, TRANSITIONS))
    raw, centred = (weights.get(name, 0.0) if name in names else 0.0 for name in (RAW, CENTRED))
    r = raw + centred
    return v + t + 2.0 * raw + 2.0 * 0.5**p * centred, t + r, r


def count_sensitivity(query, p, weights):
    """Return the joint sensitivity of counts or of first visits; weights are 1/scale^p for each family."""
    different, other, equal = step_costs(set(weights), p, weights)
    if query["first"]:
        # At most m different states are visited by one user: both visit c of them, each visits others.
        m, both = min(query["states"], query["steps"]), max(different, other, equal)
        cost = max(c * both + (m - c) * different for c in range(m + 1))
    else:
        cost = max(d * different + o * other + e * equal for d, o, e in ways_of(query["steps"]))
    return query["episodes"] * (cost if p == 1 else math.sqrt(cost))


def question_cost(weights, features, states, centred, p):
    """Return the cost of one question about linear sums: a loss (p = 1) or a squared loss (p = 2).

    A user adds x x' (Gram), x y (response, rewards; the range of y has length 1) or x (e_s - 1/S) (next states),
    with |x| <= B and |x|_1 <= l1. With t the cosine of both vectors: Gram, on the upper triangle with twice the
    variance on the diagonal, (1 - t^2) B^4; y centred (1 + |t|)/2 B^2, or y in [0, 1] 2 (1 - t) B^2 and at least
    B^2; next states 2 ((1 - 1/S) (1 - t)) B^2 if equal, 2 (1 - 1/S + t/S) B^2 if not. If x >= 0, then t >= 0.
    For p = 1: triangle l1^2 + B^2; y centred l1, else 2 l1; next states 4 l1 (1 - 1/S). Start states: 2 counts.
    """
    g, s, start = (weights.get(kind, 0.0) for kind in ("gram", "successors", "start"))
    r, b, l1, other = weights.get("response", 0.0) + weights.get("rewards", 0.0), features["bound"], features["l1"], 1.0 - 1.0 / states
    if set(weights) - {"gram", "successors", "start", "response", "rewards"}:
        raise ValueError(f"sums {sorted(weights)}: not known here")
    if p == 1:
        return g * (l1**2 + b**2) + r * l1 * (1.0 if centred else 2.0) + 4.0 * s * l1 * other + 2.0 * start
    g, r, s, low = g * b**4, r * b**2, 2.0 * s * b**2, 0.0 if features["nonneg"] else -1.0

    def cost(t):
        y = 0.5 * (1.0 + abs(t)) if centred else max(2.0 * (1.0 - t), 1.0)
        return g * (1.0 - t * t) + r * y + s * max(other * (1.0 - t), other + t / states) + 2.0 * start

    slopes = [y + z for y in (-2.0 * r, -0.5 * r, 0.0, 0.5 * r) for z in (-s * other, s / states)]
    tops = [min(1.0, max(low, slope / (2.0 * g))) for slope in slopes] if g else []
    return max(map(cost, (low, 0.0, 0.5, 1.0, *tops)))  # a maximum is at an end, a kink, or a stationary point


def linear_sensitivity(query, p, scales):
    """Return the joint sensitivity of linear sums: costs of questions add up over each half of the users."""
    weights, totals = {}, {}
    for name, scale in scales.items():
        number, _, rest = name.partition(".")
        weights.setdefault(int(number), {})[rest.partition("[")[0]] = 1.0 / scale**p
    for number, parts in weights.items():
        question = query["questions"][number]
        cost = question_cost(parts, query["features"], query["states"], question["centre"] or question["low"] < 0, p)
        for half in (0, 1) if question["half"] is None else (question["half"],):
            totals[half] = totals.get(half, 0.0) + cost
    total = max(totals.values())
    return query["episodes"] * (total if p == 1 else math.sqrt(total))


def check_sensitivities(query, record, doc):
    """Compare sensitivities, joint sensitivity and exchanges of one record with the query."""
    p, scales, name = (1 if "laplace" in record["noise"] else 2), record["scales"], "sensitivity"
    if query is None:
        report("sensitivities", record["joint"], "the query is not described", None)
        return
    linear = query["kind"] == "linear sums"
    joint = (linear_sensitivity(query, p, scales) if linear
             else count_sensitivity(query, p, {k: 1.0 / s**p for k, s in scales.items()}))  # fmt: skip
    for family, stated in record["sensitivities"].items():
        found = (linear_sensitivity(query, p, {family: 1.0}) if linear
                 else count_sensitivity(query, p, {family: 1.0}))  # fmt: skip
        near(f"{name} of {family}", stated, found)
    near(f"joint {name}, in units of the noise", record["joint"], joint)
    report("noisy sums with one user", record["levels"], 1, record["levels"] == 1)
    if record["exchanges"]:
        check_complete(query, record)


def check_complete(query, record):
    """Check that each reachable way to exchange a record is dominated by a listed one.

    A way is dominated if its coordinates can be matched with coordinates of the listed way that have the same
    noise and an equal or larger shift.
    """
    if query["kind"] != "counts" or query["episodes"] != 1:
        report("exchanges are complete", len(record["exchanges"]), f"unknown for {query['kind']}", None)
        return
    listed, wrong = [], []
    for way in record["exchanges"]:
        shifts = {}
        for noise, scale, shift, count in way:
            shifts.setdefault((noise, round(scale, 6)), []).extend([float(shift)] * count)
        listed.append({key: sorted(values, reverse=True) for key, values in shifts.items()})
    for d, o, e in ways_of(query["steps"]):
        needed = {}
        for family, scale in record["scales"].items():
            grid = query["families"][family]["grid"]
            units = 1 if grid is None else round(1.0 / grid)
            half = units / 2.0 if family == CENTRED else float(units)
            count = {VISITS: [1.0] * 2 * d, TRANSITIONS: [1.0] * 2 * (d + o)}.get(family)
            moved = count if count is not None else [float(units)] * (o + e) + [half] * 2 * d
            needed.setdefault((record["noise"], round(scale * units, 6)), []).extend(moved)
        needed = {key: sorted(values, reverse=True) for key, values in needed.items() if values}
        if not any(all(len(way.get(key, ())) >= len(values) and
                       all(a <= b for a, b in zip(values, way[key], strict=False))
                       for key, values in needed.items()) for way in listed):  # fmt: skip
            wrong.append((d, o, e))
    found = "all ways are covered" if not wrong else f"not covered: (different, other, equal) {wrong[:3]}"
    report("exchanges are complete", f"{len(listed)} ways", found, not wrong)


# ---------------------------------------------------------------------- 6. guarantee, attacker, words


def loss_of(record):
    """Return (pure epsilon or None, rho) of a mechanism record.

    A pure epsilon has rho = epsilon tanh(epsilon/2). If exchanges are listed, each coordinate has its own pure
    epsilon = shift/scale, independent noise adds its rho, and the worst way counts.
    """
    if record["kind"] != "noise" or record["noise"] not in NOISES:
        return None
    if "laplace" not in record["noise"]:
        return None, record["levels"] * record["joint"] ** 2 / 2.0
    parts = [[(n, shift / scale) for _, scale, shift, n in way] for way in record["exchanges"]]
    parts = parts or [[(1, record["levels"] * record["joint"])]]
    rho = max(math.fsum(n * e * math.tanh(e / 2.0) for n, e in way) for way in parts)
    return record["levels"] * record["joint"], rho


NOISES = ("laplace", "discrete_laplace", "gaussian", "discrete_gaussian")


def composed(records):
    """Return (pure epsilon or None, rho, mu or None) of mechanisms on the same users."""
    found = [loss_of(record) for record in records]
    if not found or None in found:
        return None, None, None
    pure = math.fsum(e for e, _ in found) if all(e is not None for e, _ in found) else None
    rho = math.fsum(one for _, one in found)
    gaussian = all(record["noise"] == "gaussian" for record in records)
    return pure, rho, math.sqrt(2.0 * rho) if gaussian else None


ORDERS = [1.0 + 10.0 ** (-4.0 + i / 40.0) for i in range(401)]


def renyi(a, p, q):
    """Return the Renyi divergence of order a between Bernoulli laws with means p and q in (0, 1)."""
    if not (0.0 < p < 1.0 and 0.0 < q < 1.0):
        return math.inf if p != q else 0.0
    x = a * math.log(p) + (1.0 - a) * math.log(q)
    y = a * math.log1p(-p) + (1.0 - a) * math.log1p(-q)
    return (max(x, y) + math.log1p(math.exp(-abs(x - y)))) / (a - 1.0)


def zcdp_power(rho, f=None):
    """Return the largest true positive rate at rate f of false positives (None: f = 1 - t) under rho-zCDP."""
    best, low = 1.0, 0.5 if f is None else f
    for a in ORDERS:
        def broken(t, a=a):
            q = 1.0 - t if f is None else f
            return max(renyi(a, t, q), renyi(a, q, t)) > a * rho
        if broken(best * (1.0 - 1e-15)):
            best = bisect(broken, low, best, 60)
    return best


class Bounds:
    """Bounds on attackers: pairs (epsilon, delta), mu of Gaussian privacy, rho of zCDP; the smallest holds."""

    def __init__(self, points=(), mu=None, rho=None):
        self.points, self.mu, self.rho = [q for q in points if q[1] < 1.0], mu, rho
        self.pure = min((e for e, d in self.points if d == 0.0), default=None)

    def power(self, f):
        found = [1.0]
        for e, d in self.points:
            found += [math.exp(min(e, 700.0)) * f + d, 1.0 - math.exp(-e) * (1.0 - d - f)]
        if self.mu is not None:
            found.append(1.0 - phi(-phi_inverse(f) - self.mu))
        if self.rho is not None:
            found.append(zcdp_power(self.rho, f))
        return max(f, min(found))

    def excess(self, epsilon):
        """Return an upper bound on P(E) - e^epsilon P'(E) over all events E."""
        found = [1.0]
        for e, d in self.points:
            gain = -math.expm1(epsilon - e) / (1.0 + math.exp(-e)) if e > epsilon else 0.0
            found.append(d + (1.0 - d) * gain)
        if self.mu is not None:
            found.append(gaussian_delta(self.mu, epsilon))
        if self.rho is not None:
            found.append(zcdp_delta(self.rho, epsilon))
            if epsilon == 0.0:
                found.append(2.0 * zcdp_power(self.rho) - 1.0)
        return min(found)

    def table(self):
        rates = (0.01, 0.05, 0.1)
        power = {f: self.power(f) for f in rates}
        return {
            "advantage": self.excess(0.0),
            "tests": [{"false_positives": f, "true_positives": power[f]} for f in rates],
            "priors": [{
                "prior": p,
                "right_guess": 1.0 - p + p * self.excess(math.log((1.0 - p) / p)),
                "posterior_of_any_outcome":
                    None if self.pure is None else p / (p + (1.0 - p) * math.exp(-self.pure)),
                "posteriors": [{"false_positives": f, "posterior": p * power[f] / (p * power[f] + (1 - p) * f)}
                               for f in rates],
            } for p in (0.5, 0.1, 0.01)],
        }  # fmt: skip

    def group(self, people):
        """Return the bounds for k records at once: (k e, delta (e^{ke} - 1)/(e^e - 1)), k mu, k^2 rho."""
        points = []
        for e, d in self.points:
            ratio = people if e == 0.0 else math.inf if people * e > 700.0 else math.expm1(people * e) / math.expm1(e)
            points.append((people * e, d * ratio if d else 0.0))
        mu, rho = self.mu and people * self.mu, self.rho and people**2 * self.rho
        return Bounds(points, mu, rho)

    def epsilon(self, delta):
        found = [e for e, d in self.points if d <= delta]
        found += [gaussian_epsilon(self.mu, delta)] if self.mu is not None and delta else []
        found += [zcdp_epsilon(self.rho, delta)] if self.rho is not None and delta else []
        return min(found, default=None)


def phi(x):
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def phi_inverse(p):
    return bisect(lambda x: phi(x) >= p, -40.0, 40.0)


def same_tree(name, stated, found, tolerance=1e-9):
    """Compare two JSON values number by number."""
    if isinstance(stated, dict) and isinstance(found, dict) and set(stated) == set(found):
        for key in stated:
            same_tree(f"{name}.{key}", stated[key], found[key], tolerance)
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for i, pair in enumerate(zip(stated, found, strict=True)):
            same_tree(f"{name}[{i}]", *pair, tolerance)
    elif isinstance(stated, float) and isinstance(found, (int, float)):
        near(name, stated, found, tolerance)
    else:
        report(name, stated, found, type(stated) is type(found) and stated == found)


def best_exceedance(curve, epsilon):
    """Return the minimum over t < epsilon of curve(t) / (1 - e^(t - epsilon)), a bound on P(L > epsilon).

    It holds since delta(t) = E[(1 - e^(t - L))+] >= (1 - e^(t - epsilon)) P(L > epsilon).
    """
    ratio = lambda t: curve(t) / -math.expm1(t - epsilon)  # noqa: E731
    steps = [epsilon * (1.0 - i / 40.0) for i in range(1, 41)]
    i = min(range(40), key=lambda i: ratio(steps[i]))
    low, high = steps[min(i + 1, 39)], steps[i - 1] if i else epsilon * (1.0 - 1e-6)
    for _ in range(50):  # golden section
        a, b = high - 0.618 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if ratio(a) < ratio(b) else (a, high)
    return min(ratio(low), ratio(high), ratio(steps[i]))


def between(name, stated, low, high):
    report(name, stated, f"{low!r} to {high!r}", stated is not None and low <= stated <= high)


def check_guarantee(doc):
    """Recompute epsilon, rho, mu and ``exceeds`` from the records. Returns bounds for this release, or None."""
    g, records = doc["guarantee"], [one["record"] for one in doc["mechanisms"]]
    report("records, stated twice", len(records), len(g["mechanisms"]), records == g["mechanisms"])
    if g["epsilon"] is None:
        report("exact release has no records", len(records), 0, not records)
        return Bounds()
    pure, rho, mu = composed(records)
    if rho is None:
        report("guarantee", g["epsilon"], "a record of a kind that is not known here", None)
        return None
    for one in doc["mechanisms"]:
        near("loss of a mechanism", one["loss"], math.sqrt(one["record"]["levels"]) * one["record"]["joint"]
             if "gaussian" in one["record"]["noise"] else one["record"]["levels"] * one["record"]["joint"])  # fmt: skip
    epsilon, delta = g["epsilon"], g["delta"]
    near("mu", g["mu"], mu)
    l1 = any("laplace" in record["noise"] for record in records)
    near("rho", g["rho"], None if l1 else rho)
    exchanges = [record["exchanges"] for record in records if record.get("exchanges")]
    exceeds, stated = g.get("exceeds"), None if g.get("exceeds") is None else g["exceeds"]["at_most"]
    if exceeds:
        near("exceeds: epsilon", exceeds["epsilon"], epsilon)
    if delta == 0.0:
        near("epsilon, sum of pure losses", epsilon, pure)
        low = high = 0.0
    elif exchanges:
        ways = [way_of(way) for way in exchanges[0]]
        wide = max(scale for way in ways for _, scale, _ in way) > LARGEST_SCALE
        if len(records) > 1 or wide or delta < 1e-13:
            report("epsilon, numerical", epsilon, "several records, wide noise, or tiny delta", None)
            low, high = 0.0, 1.0
        else:
            upper, limit, curve = exchange_epsilon(ways, delta, epsilon)
            ok = limit * (1.0 - 2e-6) <= epsilon <= limit * (1.0 + 5e-3)
            report("epsilon, numerical", epsilon, f"limit {limit!r}, upper bound {upper!r}", ok)
            low = best_exceedance(curve, epsilon)
            high = 2.0 * low
    elif mu is not None:
        near("epsilon, Gaussian", epsilon, gaussian_epsilon(mu, delta))
        low = high = best_exceedance(lambda t: gaussian_delta(mu, t), epsilon)
    elif l1:
        near("epsilon, sum of pure losses", epsilon, pure)
        low, high = 0.0, delta
    else:
        near("epsilon, zCDP", epsilon, zcdp_epsilon(rho, delta))
        low = best_exceedance(lambda t: gaussian_delta(math.sqrt(2.0 * rho), t), epsilon)
        high = best_exceedance(lambda t: zcdp_delta(rho, t), epsilon)
    if exceeds:
        between("exceeds: probability of a larger loss", stated, low * (1 - 1e-3), high * 1.011)
    points = [(epsilon, delta)] + ([(pure, 0.0)] if delta and pure is not None else [])
    return Bounds(points, mu, None if l1 else rho)


def way_of(way):
    """Return a listed way {(noise, scale, shift): count}; equal coordinates are added."""
    terms = {}
    for noise, scale, shift, count in way:
        if noise not in ("discrete_gaussian", "discrete_laplace") or shift != int(shift) or count < 1:
            raise ValueError(f"exchange {noise, scale, shift, count}: not known here")
        terms[noise, float(scale), int(shift)] = terms.get((noise, float(scale), int(shift)), 0) + count
    return terms


def check_attacker(doc, alone):
    """Recompute the attacker's tables, and the table of groups, for all releases together."""
    g, ledger = doc["guarantee"], doc["ledger"]
    whole, delta, epsilon = alone, g["delta"], g["epsilon"]
    if ledger is not None and ledger["together"]["reservations"] > 1:
        t = ledger["together"]
        epsilon, delta = t["epsilon"], t["delta"]
        points = [] if epsilon is None else [(epsilon, delta)]
        points += [(t["pure"], 0.0)] if t["pure"] is not None and delta else []
        whole = Bounds(points, t["mu"], t["rho"])
        same_tree("alone", doc["alone"], alone.table())
    else:
        report("alone", doc["alone"], None, doc["alone"] is None)
    same_tree("attacker", doc["attacker"], whole.table())
    for group in doc["groups"]:
        k = group["people"]
        many = whole.group(k)
        found = {"people": k, "epsilon": many.epsilon(delta), "delta": delta, "rho": many.rho, "mu": many.mu,
                 "advantage": many.excess(0.0)}  # fmt: skip
        same_tree(f"group of {k}", group, found)
    report("groups", [group["people"] for group in doc["groups"]], [2, 5, 10],
           [group["people"] for group in doc["groups"]] == [2, 5, 10])  # fmt: skip
    return whole, epsilon, delta


def check_population(folder, doc):
    """Compare population and data with ``schema.toml``, and facts that the statement gives twice."""
    with open(folder / "schema.toml", "rb") as stream:
        schema = tomllib.load(stream)
    p, g, d = doc["population"], doc["guarantee"], doc["delta"]
    same = {name: schema.get(name) for name in ("dataset", "unit", "horizon", "episodes_per_user", "contribute")}
    for name, found in same.items():
        if found is not None:
            report(f"schema.toml: {name}", p[name], found, p[name] == found)
    for name in ("states", "actions"):
        table = schema.get(name)
        size = len(table.get("labels", [])) or table.get("count") if isinstance(table, dict) else None
        if size is not None:
            report(f"schema.toml: {name}", p[name], size, p[name] == size)
    for name in ("low", "high"):
        if isinstance(schema.get("reward"), dict) and name in schema["reward"]:
            near(f"schema.toml: reward {name}", doc["data"]["reward"][name], float(schema["reward"][name]))
    for name, source in schema.get("provenance", {}).items():
        report(f"schema.toml: provenance of {name}", p["provenance"].get(name), source,
               p["provenance"].get(name) == source)  # fmt: skip
    report("users are public", p["users_public"], g["users_public"], p["users_public"] == g["users_public"])
    report("episodes", g["episodes"], p["episodes_per_user"], g["episodes"] == p["episodes_per_user"])
    near("delta: stated twice", d["delta"], g["delta"])
    near("delta: per user", d["per_user"], 1.0 / p["users"])
    near("delta: ratio", d["ratio"], g["delta"] * p["users"])
    size = g["delta"] * p["users"]
    words = "none" if g["epsilon"] is None else "pure" if not size else "warn" if size > 0.1 else "small"
    report("delta: verdict", d["verdict"], words, d["verdict"] == words and size <= 1.0)
    secure = g["randomness"] == "secure"
    promised = secure and g["epsilon"] is not None
    report("holds if the seed is guessed", g["holds_if_seed_is_guessed"], promised,
           g["holds_if_seed_is_guessed"] is promised)  # fmt: skip
    for one in doc["mechanisms"]:
        exact = str(one["record"].get("noise", "")).startswith("discrete")
        report("randomness", g["randomness"], one["record"].get("noise"), exact == secure)
        said = one["source_of_randomness"].startswith("operating system")
        report("source of randomness", one["source_of_randomness"][:40], g["randomness"], said == secure)
        spread = math.sqrt(2.0) if "laplace" in str(one["record"].get("noise")) else 1.0
        report("families", [f["family"] for f in one["families"]], list(one["record"].get("scales", {})),
               [f["family"] for f in one["families"]] == list(one["record"].get("scales", {})))  # fmt: skip
        for f in one["families"]:
            near(f"scale of {f['family']}", f["scale"], one["record"]["scales"][f["family"]])
            near(f"sensitivity of {f['family']}", f["sensitivity"], one["record"]["sensitivities"][f["family"]])
            near(f"standard deviation of {f['family']}", f["std"], spread * f["scale"])


SAID = (
    (r"at most ([e^\d.,]+) times what", lambda s: math.exp(min(s["epsilon"], 700.0)), 1.011),
    (r"plus 1 in ([\d,]+)", lambda s: s["delta"], None),
    (r"guess is right at most ([\d.]+) times in 100", lambda s: 100.0 * s["right"], 1.002),
    (r"For this release alone: at most ([e^\d.,]+) times", lambda s: math.exp(min(s["own"], 700.0)), 1.011),
    (r"alone: .*a guess is right at most ([\d.]+) times", lambda s: 100.0 * s["own_right"], 1.002),
)
NOT_COVERED = (
    "The raw data where they are stored", "Messages about invalid rows", "Whether a person is in the data set",
    "Conclusions about people in general", "Releases of the same people that are not counted|Other releases of the same people.",
    "Side channels:", "More than one person at once",
)  # fmt: skip


def check_words(folder, doc, whole, alone, epsilon, delta):
    """Compare numbers in the sentence, required warnings and limits, and the pages with the statement."""
    g, p, ledger, sentence = doc["guarantee"], doc["population"], doc["ledger"], doc["sentence"]
    together = ledger and ledger["together"]["reservations"]
    if g["epsilon"] is not None and not doc["synthetic"]:
        values = {"epsilon": math.inf if epsilon is None else epsilon, "delta": delta, "own": g["epsilon"]}
        values |= {"right": whole.table()["priors"][0]["right_guess"]}
        values |= {"own_right": alone.table()["priors"][0]["right_guess"]}
        for pattern, value, slack in SAID[: 5 if (together or 1) > 1 else 3]:
            found, wanted = re.search(pattern, sentence), value(values)
            said = found and found[1].replace(",", "").rstrip(".")
            said = said and (math.exp(float(said[2:])) if said[:2] == "e^" else float(said))
            if slack is None:
                ok = (said is None) == (wanted == 0.0) and (not said or wanted <= 1 / said <= wanted * 1.011 + 1e-300)
            else:
                ok = said is not None and wanted * (1 - 1e-12) <= said <= wanted * slack + 0.1
            report(f"sentence: {pattern[:30]}", said, wanted, ok)
        text = g["statement"].replace("−", "-")
        for symbol, value in (("ε", g["epsilon"]), ("δ", delta if together is None else g["delta"]), ("ρ", g["rho"])):
            for said in re.findall(rf"{symbol} = (\d[\d.e+-]*\d|\d)", text):
                ok = value is not None and value * (1 - 1e-9) <= float(said) <= value * 1.011 + 1e-12
                report(f"guarantee's text: {symbol}", said, value, ok)
    else:
        words = "No person's data" if doc["synthetic"] else "NOT PROTECTED"
        report("sentence", sentence[:60], words, words in sentence)
    warned = {
        "SYNTHETIC DATA": doc["synthetic"], "SEEDED NOISE": g["randomness"] == "seeded",
        "NO PRIVACY GUARANTEE": g["epsilon"] is None, "NO LEDGER": ledger is None,
        "NEW LEDGER": bool(ledger and ledger["new"]),
        "NO LIMIT": bool(ledger and ledger["after"]["limit_epsilon"] is None),
        "RELEASES of the same people": bool(together and together > 1 and g["epsilon"] is not None),
        "THIS DATA": "this data" in p["provenance"].values(),
    }  # fmt: skip
    for words, needed in warned.items():
        there = any(words in one for one in doc["warnings"])
        report(f"warning {words}", there, needed, there == needed)
    there = any(one.startswith("delta =") for one in doc["warnings"])
    report("warning about delta", there, doc["delta"]["verdict"] == "warn", there == (doc["delta"]["verdict"] == "warn"))
    if g["epsilon"] is not None:
        needed = [*NOT_COVERED, *([f"The number of people, {p['users']}"] if p["users_public"] else [])]
        for words in needed:
            there = any(one.startswith(part) for one in doc["not_covered"] for part in words.split("|"))
            report(f"not covered: {words[:40]}", there, True, there)
        words = f"after entry {ledger['number']} of this ledger" if ledger else "NO LEDGER"
        there = any(words in one and (not ledger or repr(ledger["dataset"]) in one) for one in doc["not_covered"])
        report(f"not covered: {words}", there, True, there)
    texts = [sentence, *doc["warnings"], *doc["covered"], *doc["not_covered"]]
    for name in PAGES:
        page = (folder / name).read_text("utf-8")
        plain = flat(re.sub(r"<[^>]*>", "", page) if name.endswith("html") else page)
        wanted = texts if name == "statement.md" else [sentence, *doc["warnings"]]
        lacking = [text for text in wanted if flat(text) not in plain]
        report(f"{name}: sentences of the statement", len(wanted), lacking[:2] or len(wanted), not lacking)
        if name != "officer.html":
            check_numbers(name, page, doc, {"epsilon": epsilon})


def flat(text):
    """Return text without Markdown escapes, HTML entities and spaces."""
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'"), ("&#39;", "'"), ("&amp;", "&")):
        text = text.replace(entity, sign)
    return re.sub(r"[\s\\]+", "", text)


def numbers_in(value):
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from numbers_in(one)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)


def check_numbers(name, page, doc, more):
    """Check that each decimal number of a page is a number of the statement, a percentage of it, or e to it.

    Numbers are printed with at most six digits, some rounded up and some to the nearest.
    """
    known = set()
    for value in [*numbers_in(doc), *numbers_in(more)]:
        known |= {value, 100.0 * value} | ({math.exp(value)} if 0 < value < 700 else set())
    known = sorted(known)
    body = re.split(r"Files and hashes|## Glossary|## What was checked", page)[0]
    for text in {*map(flat, [doc["sentence"], *doc["warnings"], *(m["description"] for m in doc["mechanisms"])])}:
        body = body.replace(text, "")
    wrong = []
    for said in set(re.findall(r"(?<![\w.:+-])\d+\.\d+(?:e[+-]?\d+)?(?![\w:+-]|\.\d)", body)):
        digits = said.partition("e")
        unit = 10.0 ** (int(digits[2] or 0) - len(digits[0].partition(".")[2]))
        if not any(abs(float(said) - value) <= 1.001 * unit for value in known):
            wrong.append(said)
    report(f"{name}: numbers", "in the statement", wrong[:5] or "in the statement", not wrong)


# ---------------------------------------------------------------------- 6. ledger


def read_ledger(path):
    """Return rows (text or None, hash) of a ledger: the SQLite file, its export, or ``ledger.jsonl``."""
    data = Path(path).read_bytes()
    if data[:15] == b"SQLite format 3":
        with sqlite3.connect(f"file:{os.path.abspath(path)}?mode=ro", uri=True) as connection:
            return [tuple(row) for row in connection.execute("SELECT text, hash FROM entries ORDER BY number")]
    return [(row.get("text"), row["hash"]) for row in map(strict_json, data.splitlines()) if row]


def check_chain(rows):
    """Check hashes, numbers and links. Returns the entries; None where only a hash is given."""
    entries, hidden = [], 0
    for i, (text, stated) in enumerate(rows):
        entry = None
        if text is None:
            hidden += 1
        else:
            entry = strict_json(text.encode())
            previous = rows[i - 1][1] if i else ""
            good = (sha256(text), entry["number"], entry["previous"]) == (stated, i + 1, previous)
            if not good or canonical(entry) != text:
                report(f"ledger: entry {i + 1}", stated, sha256(text), False)
            entry["hash"] = stated
        entries.append(entry)
    report("ledger: chain of hashes", len(rows), f"{len(rows)} entries, {hidden} of them by hash only", True)
    return entries


def filtered(reservations, delta):
    """Return (epsilon, pure, mu, rho) that the ledger's filter certifies for reservations.

    The filter holds if later mechanisms depend on earlier results: sums of pure epsilon; sums of rho, with
    rho = epsilon tanh(epsilon/2) for pure epsilon; sums of mu^2 if all noise is continuous Gaussian.
    """
    records = [record for one in reservations for record in one["records"]]
    pure, rho, mu = composed(records)
    found = [] if pure is None else [pure]
    found += [zcdp_epsilon(rho, delta)] if delta and rho is not None else []
    found += [gaussian_epsilon(mu, delta)] if delta and mu is not None else []
    return min(found, default=None), pure, mu, rho


def check_ledger(doc, rows):
    """Recompute the totals of the dataset from the entries, and compare the entry of the run."""
    stated, entries = doc["ledger"], check_chain(rows)
    own = next((one for one in entries if one and one["hash"] == stated["head"]), None)
    if own is None:
        report("ledger: entry of the run", stated["head"], "not in this ledger", False)
        return
    first = entries[0] or {}
    report("ledger: identity", stated["identity"], first.get("identity"), stated["identity"] == first.get("identity"))
    pairs = {
        "number": (stated["number"], own["number"]), "kind": ("reserve", own["kind"]),
        "dataset": (stated["dataset"], own["dataset"]), "users": (doc["population"]["users"], own["users"]),
        "date": (doc["date"], own["time"]), "purpose": (doc["purpose"], own["purpose"]),
        "records": ([m["record"] for m in doc["mechanisms"]], own["records"]),
    }  # fmt: skip
    for name, (one, other) in pairs.items():
        short = name if name == "records" else one
        report(f"ledger: {name}", short, "equal" if one == other else other, one == other)
    dataset = [one for one in entries if one and one["dataset"] == own["dataset"] and one["number"] <= own["number"]]
    reserved = [one for one in dataset if one["kind"] == "reserve"]
    firsts = [one["number"] for one in entries if one and one["kind"] == "reserve"]
    whole = None not in entries
    report("ledger: new", stated["new"], firsts[0] == own["number"] if whole else "other datasets are hidden",
           stated["new"] == (firsts[0] == own["number"]) if whole else not stated["new"] or None)  # fmt: skip
    limits = [one for one in dataset if one["kind"] == "limit"]
    for one in [o for o in entries if o and o["kind"] in ("limit", "owner") and o.get("signature")]:
        signed = {key: value for key, value in one.items() if key not in ("signature", "hash")}
        good = verify_signature(one["key"], f"discreet {one['kind']}, 1", {**signed, "ledger": first["identity"]},
                                one["signature"])  # fmt: skip
        report(f"ledger: signature of entry {one['number']}", one["key"], "valid" if good else "not valid", good)
    t = stated["together"]
    report("together: releases", t["reservations"], len(reserved), t["reservations"] == len(reserved))
    epsilon, pure, mu, rho = filtered(reserved, t["delta"])
    if len(reserved) == 1 and doc["guarantee"]["epsilon"] is not None:
        epsilon = min(epsilon, doc["guarantee"]["epsilon"]) if t["delta"] == doc["guarantee"]["delta"] else epsilon
    near("together: epsilon", t["epsilon"], epsilon)
    for name, found in (("pure", pure), ("rho", rho), ("mu", mu)):
        near(f"together: {name}", t[name], found)
    for part, before in (("before", reserved[:-1]), ("after", reserved)):
        t = stated[part]
        report(f"{part}: releases", t["reservations"], len(before), t["reservations"] == len(before))
        epsilon, pure, mu, rho = filtered(before, t["delta"]) if before else (0.0, 0.0, None, 0.0)
        near(f"{part}: pure", t["pure"], pure)
        near(f"{part}: mu", t["mu"], mu)
        only_l1 = all("laplace" in r["noise"] for one in before for r in one["records"])
        near(f"{part}: rho", t["rho"], t["rho"] if only_l1 and t["rho"] is None else rho)
        if t["method"].startswith("numerical"):
            check_numerical_total(part, before, t["delta"], t["epsilon"], epsilon)
        else:
            near(f"{part}: epsilon", t["epsilon"], epsilon)
        if limits:
            near(f"{part}: limit", t["limit_epsilon"], limits[-1]["epsilon"])
            near(f"{part}: limit's delta", t["limit_delta"], limits[-1]["delta"])
            key = limits[-1].get("key") or None
            report(f"{part}: key of the limit", t["limit_key"], key, t["limit_key"] == key
                   or None if any(o and o["kind"] == "owner" for o in entries) else t["limit_key"] == key)  # fmt: skip
            if part == "after" and own.get("checked"):
                used = filtered(reserved, limits[-1]["delta"])[0] or math.inf
                used = min(used, doc["guarantee"]["epsilon"]) if len(reserved) == 1 else used
                report("within the owner's limit", limits[-1]["epsilon"], used, used <= limits[-1]["epsilon"] * (1 + 1e-6))
        else:
            near(f"{part}: limit", t["limit_epsilon"], None)
    mark = next((o for o in entries if o and o["kind"] == "mark" and o["reservation"] == own["number"]), None)
    if mark is not None and not doc["replanned"]:
        for name, digest in {**doc["files"], "statement.json": doc["fingerprint"]}.items():
            report(f"ledger: mark of {name}", digest, mark["files"].get(name), digest == mark["files"].get(name))


def check_numerical_total(part, reserved, delta, stated, closed):
    """Check a total by listed exchanges: the largest epsilon over all combinations of ways."""
    records = [record for one in reserved for record in one["records"]]
    ways = [{}]
    for record in records:
        if not record.get("exchanges"):
            ways = []
        listed = [way_of(way) for way in record.get("exchanges", ())]
        ways = [{key: one.get(key, 0) + way.get(key, 0) for key in {**one, **way}} for one in ways for way in listed]
        if len(ways) > 100:
            break
    if not ways or len(ways) > 100 or max(scale for way in ways for _, scale, _ in way) > LARGEST_SCALE:
        lower = 0.0 if closed is None else stated <= closed * (1 + 1e-9)
        report(f"{part}: epsilon, numerical", stated, f"at most {closed!r}; no list of exchanges", None if lower else False)
        return
    upper, limit, _ = exchange_epsilon(ways, delta, stated)
    ok = limit * (1.0 - 1e-5) <= stated <= limit * (1.0 + 5e-3)
    report(f"{part}: epsilon, numerical", stated, f"limit {limit!r}, upper bound {upper!r}", ok)


# ---------------------------------------------------------------------- 7. Ed25519 (RFC 8032) in integers

Q = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, Q) % Q
ROOT = pow(2, (Q - 1) // 4, Q)


def add(p, q):
    """Add two points of the twisted Edwards curve in extended coordinates (X, Y, Z, T)."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % Q, (p[1] + p[0]) * (q[1] + q[0]) % Q
    c, d = 2 * p[3] * q[3] * D % Q, 2 * p[2] * q[2] % Q
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % Q, g * h % Q, f * g % Q, e * h % Q


def multiply(n, p):
    total = (0, 1, 1, 0)
    while n:
        total, p, n = add(total, p) if n & 1 else total, add(p, p), n >> 1
    return total


def point_of(data):
    """Return the point of 32 bytes; None if y is not below 2^255 - 19 or no x exists."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= Q:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, Q) % Q
    x = pow(square, (Q + 3) // 8, Q)
    x = x if x * x % Q == square else x * ROOT % Q
    if x * x % Q != square or (x == 0 and sign):
        return None
    x = x if x & 1 == sign else Q - x
    return x, y, 1, x * y % Q


BASE = point_of((4 * pow(5, -1, Q) % Q).to_bytes(32, "little"))


def ed25519(key, message, signature):
    """Return True if the signature is valid: [S]B = R + [k]A with k = SHA-512(R, A, message), S below the order."""
    if len(key) != 32 or len(signature) != 64:
        return False
    a, r, s = point_of(key), point_of(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= ORDER:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    one, other = multiply(s, BASE), add(r, multiply(k, a))
    return (one[0] * other[2] - other[0] * one[2]) % Q == 0 and (one[1] * other[2] - other[1] * one[2]) % Q == 0


def verify_signature(key, kind, content, signature):
    try:
        return ed25519(bytes.fromhex(key), f"{kind}\n{canonical(content)}".encode(), bytes.fromhex(signature))
    except ValueError:
        return False


def check_signatures(folder, doc, keys):
    """Check every signature of ``signatures.json``, and that each of the given keys has signed."""
    path, signed = folder / "signatures.json", set()
    entries = strict_json(path.read_bytes())["signatures"] if path.exists() else []
    hashes = {name: sha256((folder / name).read_bytes()) for name in ("statement.json", *PAGES)}
    for one in entries:
        content = {key: value for key, value in one.items() if key != "signature"}
        good = verify_signature(one["key"], "discreet statement, 1", content, one["signature"])
        report(f"signature of {one['name']}", one["key"], "valid" if good else "not valid", good)
        same = one["fingerprint"] == doc["fingerprint"] and one["files"] == hashes
        report(f"signed files of {one['name']}", one["fingerprint"], doc["fingerprint"] if same else "other files", same)
        signed |= {one["key"]} if good and same else set()
    report("keys that signed once", len(entries), len({one["key"] for one in entries}),
           len(entries) == len({one["key"] for one in entries}))  # fmt: skip
    for key in keys:
        report("signed with the given key", key, key if key in signed else "no such signature", key in signed)


# ---------------------------------------------------------------------- 8. noise of the release


def gamma_lower(a, x):
    """Return the regularised lower incomplete gamma function, by its power series."""
    if x <= 0.0:
        return 0.0
    if x > a + 40.0 * math.sqrt(a) + 40.0:
        return 1.0
    term = total = 1.0 / a
    n = a
    while term > total * 1e-17:
        n += 1.0
        term *= x / n
        total += term
    return min(1.0, total * math.exp(a * math.log(x) - x - math.lgamma(a)))


def read_release(path):
    """Return (header, {family: {(step, indices): value}}) of ``release.csv``."""
    header, tables = {}, {}
    with open(path, encoding="utf-8", newline="") as stream:
        for line in stream:
            row = line.rstrip("\n").split(",")
            if line.startswith("# "):
                name, _, value = line[2:-1].partition("=")
                header[name] = value
            elif row[0] != "family":
                place = tuple(int(part) for part in row[1:-1] if part)
                table = tables.setdefault(row[0], {})
                if place in table or not math.isfinite(float(row[-1])):
                    raise ValueError(f"{path}: cell {row} twice, or not finite")
                table[place] = float(row[-1])
    return header, tables


def relations_of(query, tables):
    """Return linear relations {(family, cell): coefficient} that are 0 before noise is added."""
    found, flow = [], {}
    for place, value in tables.get(TRANSITIONS, {}).items():
        h, s, a, to = place
        flow.setdefault(("row", h, s, a), {})[TRANSITIONS, place] = -1.0
        if query["kind"] == "counts" and not query.get("absorbing"):
            flow.setdefault(("state", h + 1, to), {})[TRANSITIONS, place] = 1.0
            flow.setdefault(("state", h, s), {})[TRANSITIONS, place] = -1.0
    for key, relation in flow.items():
        if key[0] == "row" and (key[1:]) in tables.get(VISITS, {}):
            found.append({**relation, (VISITS, key[1:]): 1.0})
        elif key[0] == "state" and 0 < key[1] < query["steps"]:
            found.append(relation)
    return found


def check_noise(folder, doc, query):
    """Check header, cells and grid of ``release.csv``, the number of users, and the size of the noise."""
    header, tables = read_release(folder / "release.csv")
    g, p = doc["guarantee"], doc["population"]
    stated = {"dataset": p["dataset"], "users": p["users"], "trust": g["trust"], "randomness": g["randomness"],
              "synthetic": json.dumps(doc["synthetic"])}  # fmt: skip
    for name, value in stated.items():
        report(f"release.csv: {name}", value, header.get(name), str(value) == header.get(name))
    for family, facts in query["families"].items():
        table = tables.get(family, {})
        report(f"release.csv: cells of {family}", facts["cells"], len(table), facts["cells"] == len(table))
        if facts["grid"] is not None:
            off = sum(abs(v / facts["grid"] - round(v / facts["grid"])) > 1e-6 for v in table.values())
            report(f"release.csv: {family} on its grid", facts["grid"], f"{off} values off it", not off)
    report("release.csv: families", sorted(query["families"]), sorted(tables), sorted(query["families"]) == sorted(tables))
    records = [m["record"] for m in doc["mechanisms"]]
    if query["kind"] == "linear sums" or len(records) > 1:
        report("size of the noise", "as stated", "no relations for this query: not tested", True)
        return
    laplace = bool(records) and "laplace" in records[0]["noise"]
    variance = {name: scale**2 * (2.0 if laplace else 1.0) for r in records for name, scale in r["scales"].items()}
    sums = {}
    for place, value in tables[TRANSITIONS].items():
        start = query["kind"] == "counts" or place[1] == query["states"] - 1
        if start:
            sums.setdefault(place[0], []).append(value)
    spread = 7.0 * math.sqrt(max(map(len, sums.values())) * variance.get(TRANSITIONS, 0.0)) + 1e-6
    low, high = min(map(math.fsum, sums.values())), max(map(math.fsum, sums.values()))
    users, episodes = p["users"], p["users"] * query["episodes"]
    report("release.csv: number of users", users, f"steps count {low:.1f} to {high:.1f} episodes",
           users - spread <= low and high <= episodes + spread)  # fmt: skip
    relations = relations_of(query, tables)
    relations = relations[:: math.ceil(len(relations) / 160)] if relations else []
    if not relations or not variance:
        report("size of the noise", "as stated", "no relations: not tested", True)
        return
    square, solved = 0.0, []
    for i, relation in enumerate(relations):  # Cholesky factor of the covariance, row by row
        row = []
        for j in range(i + 1):
            shared = math.fsum(c * relations[j].get(key, 0.0) * variance[key[0]] for key, c in relation.items())
            rest = shared - math.fsum(x * y for x, y in zip(row, solved[j][0] if j < i else row, strict=False))
            row.append(math.sqrt(max(rest, 1e-12)) if i == j else rest / solved[j][0][j])
        value = math.fsum(c * tables[key[0]][key[1]] for key, c in relation.items())
        z = (value - math.fsum(x * s[1] for x, s in zip(row, solved, strict=False))) / row[i]
        solved.append((row, z))
        square += z * z
    n = len(relations)
    # The mean square of Laplace noise varies more: at most by (2 + 3)/2. Both tails are bounds on false alarms.
    shape = n / (5.0 if laplace else 2.0)
    chance = gamma_lower(shape, shape * square / n)
    report("size of the noise", "as stated", f"{n} relations: mean square {square / n:.4f}, P = {chance:.3g}",
           chance >= 1e-6 if n >= 30 or chance < 1e-6 else True)  # fmt: skip
    report("noise is not larger than stated", "as stated", f"P = {1 - chance:.3g}", 1 - chance >= 1e-9)


# ---------------------------------------------------------------------- main


def query_of(doc):
    """Return the query: that of the statement, or for version 5 that of the population and the families."""
    if "query" in doc:
        return doc["query"]
    p, families = doc["population"], [f for m in doc["mechanisms"] for f in m["families"]]
    first = doc["configuration"]["options"].get("question") == "first visits"
    if any(f["family"] not in (VISITS, TRANSITIONS, RAW, CENTRED) for f in families):
        return None
    grids = {f["family"]: {"grid": 2.0**-10 if f["family"] in (RAW, CENTRED) else 1.0, "cells": f["cells"]}
             for f in families}  # fmt: skip
    return {"kind": "first visits" if first else "counts", "steps": p["horizon"] + first, "first": first,
            "states": p["states"] + first, "actions": p["actions"], "episodes": p["episodes_per_user"],
            "families": grids}  # fmt: skip


def verify(folder, ledger=None, keys=()):
    """Run all checks on a folder. Returns the list of results."""
    RESULTS.clear()
    folder = Path(folder)
    try:
        doc = strict_json((folder / "statement.json").read_bytes())
        known = doc["format"] == "discreet privacy statement" and doc["version"] in (5, 6)
    except (OSError, ValueError, KeyError, TypeError) as error:
        report("statement.json", "JSON", repr(error), False)
        return RESULTS
    report("format and version", [doc.get("format"), doc.get("version")], "versions 5 and 6", known or None)
    if not known:
        return RESULTS
    state = {}

    def attacker():
        state["whole"] = check_attacker(doc, state["alone"])

    def words():
        whole, epsilon, delta = state["whole"]
        check_words(folder, doc, whole, state["alone"], epsilon, delta)

    query = query_of(doc)
    parts = [("files", lambda: check_files(folder, doc)), ("population", lambda: check_population(folder, doc)),
             ("guarantee", lambda: state.update(alone=check_guarantee(doc))), ("attacker", attacker), ("words", words),
             ("signatures", lambda: check_signatures(folder, doc, keys))]  # fmt: skip
    for one in doc["mechanisms"]:
        parts.append(("sensitivities", lambda one=one: check_sensitivities(query, one["record"], doc)))
    if "release.csv" in doc["files"]:
        parts.append(("release.csv", lambda: check_noise(folder, doc, query)))
    else:
        report("noise of the release", "release.parquet", "cannot be read here; version 6 has release.csv", None)
    given = ledger or (folder / "ledger.jsonl" if "ledger.jsonl" in doc["files"] else None)
    if doc["ledger"] is not None and given:
        parts.append(("ledger", lambda: check_ledger(doc, read_ledger(given))))
    elif doc["ledger"] is not None:
        report("ledger", doc["ledger"]["name"], "not given", None)
    for name, part in parts:
        try:
            part()
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
            impossible = name in ("attacker", "words") and state.get("alone", 0) is None
            report(name, "can be checked", repr(error), None if impossible else False)
    return RESULTS


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--ledger", metavar="FILE")
    parser.add_argument("--public-key", action="append", default=[], metavar="HEX")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    results = verify(given.folder, given.ledger, given.public_key)
    if given.json:
        names = ("check", "stated", "found", "result")
        print(json.dumps([dict(zip(names, result, strict=True)) for result in results], indent=1, default=str))
    else:
        for name, stated, found, result in results:
            print(f"{result:14} {name}: stated {stated}, found {found}")
    kinds = {result[3] for result in results}
    return 1 if "DIFFERS" in kinds else 2 if "not checkable" in kinds else 0


if __name__ == "__main__":
    sys.exit(main())
