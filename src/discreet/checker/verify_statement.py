#!/usr/bin/env python3
"""Independent verifier of privacy statements: one file, Python 3.11 or later, standard library only.

    python verify_statement.py DIR [--ledger FILE] [--public-key HEX] [--json]

DIR is a folder with ``statement.json``. Every line of the output names a check, the stated and the found value.
Exit status: 0 if all checks agree, 1 if one differs, 2 if none differs but one was not possible.

Neighbours: the whole record of one user (at most m episodes of H steps) is replaced by any other record; the
number of users stays the same. L = ln(P(o) / P'(o)) is the privacy loss of an outcome o drawn from P.
This file imports nothing of the library that wrote the folder and shares no code with it. No file can prove
that noise was drawn as stated: signatures, and the check of the noise below, are the only evidence for this.
"""

import argparse
import functools
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
VISITS, TRANSITIONS, RAW, CENTRED = "visits", "transition_counts", "reward_sums", "centered_reward_sums"
NOISES = ("laplace", "discrete_laplace", "gaussian", "discrete_gaussian")


def report(name, stated, found, ok):
    """Record one check. ``ok`` is True, False, or None if the check was not possible."""
    RESULTS.append((name, stated, found, "not checkable" if ok is None else "agrees" if ok else "DIFFERS"))

class NotCheckable(Exception):
    """Fact that this program cannot check. The exit status is then 2."""

def equal(name, stated, found):
    """Record whether two values are of one type and equal."""
    report(name, stated, found, type(stated) is type(found) and stated == found)

def near(name, stated, found, tolerance=1e-9):
    """Record whether two numbers (or None) agree to a relative tolerance."""
    both = stated is not None and found is not None
    same = math.isclose(stated, found, rel_tol=tolerance, abs_tol=1e-300) if both else stated is found
    report(name, stated, found, same)

def same_tree(name, stated, found):
    """Compare two JSON values number by number."""
    if isinstance(stated, dict) and isinstance(found, dict) and set(stated) == set(found):
        for key in stated:
            same_tree(f"{name}.{key}", stated[key], found[key])
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for i, pair in enumerate(zip(stated, found, strict=True)):
            same_tree(f"{name}[{i}]", *pair)
    elif isinstance(stated, float) and isinstance(found, (int, float)):
        near(name, stated, found)
    else:
        equal(name, stated, found)


# 1. Files, strict JSON, hashes

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
    return json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=refused, parse_float=Number,
                      parse_int=lambda text: refused(text) if text == "-0" else int(text))

def canonical(value):
    """Return JSON text with sorted keys, no spaces, ASCII escapes, and each number as its text in the file."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{canonical(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return value.text if isinstance(value, Number) else json.dumps(value)

def sha256(data):
    """Return the SHA-256 hash of bytes or of a string in UTF-8, as hexadecimal digits."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()

def check_files(folder, doc):
    """Compare the hashes of all named files. Links, unnamed files and unnamed folders differ."""
    present, own = {}, {"statement.json", *PAGES}
    later = {"signatures.json", "judged.jsonl", "postprocessing.jsonl"}  # written after the statement, not signed
    for place, folders, names in os.walk(folder):
        for path in (Path(place, name) for name in [*folders, *names]):
            mode, where = path.lstat().st_mode, path.relative_to(folder).as_posix()
            if not stat.S_ISDIR(mode):
                present[where] = path if stat.S_ISREG(mode) else None
            elif not any(file.startswith(f"{where}/") for file in doc["files"]):
                report(f"folder {where}", "not named", "is in the folder", False)
    for name, digest in doc["files"].items():
        path = present.get(name)
        equal(f"SHA-256 of {name}", digest, sha256(path.read_bytes()) if path else "no such file, or a link")
    for name in sorted(own | (later & set(present))):
        equal(f"file {name}", "a file", "a file" if present.get(name) else "missing, or a link")
    for name in sorted(set(present) - set(doc["files"]) - own - later):
        report(f"file {name}", "not named", "is in the folder", False)
    kept = {key: value for key, value in doc.items() if key not in FREE}
    equal("fingerprint", doc["fingerprint"], sha256(canonical(kept)))
    conf = {key: doc["configuration"][key] for key in ("algorithm", "options")}
    equal("hash of the configuration", doc["configuration"]["hash"], sha256(canonical(conf)))


# 2. Closed forms

def _nodes():
    for u in (i / 96.0 for i in range(-384, 385)):
        s, c = 0.5 * math.pi * math.sinh(u), 0.5 * math.pi * math.cosh(u)
        yield 1.0 / (1.0 + math.exp(-2.0 * s)), 0.5 * c / math.cosh(s) ** 2 / 96.0

NODES = [(x, w) for x, w in _nodes() if w > 0.0]  # tanh-sinh rule on (0, 1)

def gaussian_delta(mu, epsilon):
    """Return delta(epsilon) of mu-Gaussian privacy.

    delta = Phi(-a) - e^epsilon Phi(-a - mu) with a = epsilon/mu - mu/2. With Phi(-a) = phi(a) times the
    integral over t > 0 of exp(-a t - t^2/2), this is phi(a) times that integral with the factor 1 - exp(-mu t).
    """
    a = epsilon / mu - mu / 2.0
    if a > 40.0:
        return 0.0
    end = max(0.0, -a) + 40.0 / max(1.0, a)
    return end / math.sqrt(2.0 * math.pi) * math.fsum(
        w * math.exp(-0.5 * (a + x * end) ** 2) * -math.expm1(-mu * x * end) for x, w in NODES)

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

    ln delta(t) = t ((1 + t) rho - epsilon) + t ln t - (1 + t) ln(1 + t) is convex in t > 0.
    """
    def rising(t):
        return (1.0 + 2.0 * t) * rho - epsilon - math.log1p(1.0 / t) >= 0.0
    high = 1.0
    while not rising(high):
        high *= 2.0
    t = bisect(rising, 0.0, high)
    return min(1.0, math.exp(t * ((1 + t) * rho - epsilon) + t * math.log(t) - (1 + t) * math.log1p(t)))


# 3. Listed exchanges

ROOTS = {}
LARGEST_SCALE = 1e5  # in units of the grid: wider noise has too many values for a sum in this file

def fft(x, sign):
    """Return the discrete Fourier transform (sign = -1) or its unscaled inverse (sign = 1) of 2^k values."""
    n = len(x)
    if n == 1:
        return x
    if (n, sign) not in ROOTS:
        angles = (sign * 2.0 * math.pi * i / n for i in range(n // 2))
        ROOTS[n, sign] = [complex(math.cos(a), math.sin(a)) for a in angles]
    even, odd = fft(x[::2], sign), fft(x[1::2], sign)
    odd = [w * b for w, b in zip(ROOTS[n, sign], odd, strict=True)]
    return [a + b for a, b in zip(even, odd, strict=True)] + [a - b for a, b in zip(even, odd, strict=True)]

def losses(noise, scale, shift):
    """Return (loss, probability) of one coordinate that a neighbour moves by ``shift`` grid units."""
    if noise == "discrete_gaussian":
        reach = math.ceil(12.0 * scale) + shift
        mass = [math.exp(-0.5 * (x / scale) ** 2) for x in range(-reach, reach + 1)]
        total = math.fsum(mass)
        return [(shift * (shift - 2 * (i - reach)) / (2.0 * scale * scale), p / total) for i, p in enumerate(mass)]
    t, lead = math.exp(-1.0 / scale), math.tanh(0.5 / scale)
    ends = [(shift / scale, 1.0 / (1.0 + t)), (-shift / scale, math.exp(-shift / scale) / (1.0 + t))]
    return ends + [((shift - 2 * x) / scale, lead * math.exp(-x / scale)) for x in range(1, shift)]

def way_of(way):
    """Return a listed way {(noise, scale, shift): count}; equal coordinates are added."""
    terms = {}
    for noise, scale, shift, count in way:
        if noise not in ("discrete_gaussian", "discrete_laplace") or shift != int(shift) or count < 1:
            raise ValueError(f"exchange {noise, scale, shift, count}: not known here")
        terms[noise, float(scale), int(shift)] = terms.get((noise, float(scale), int(shift)), 0) + count
    return terms

class Grid:
    """Laws of losses on a grid of n points, by Fourier transforms.

    Each loss is split between its two neighbours on the grid so that E[1] and E[e^-L] are kept. The split law
    dominates the true one, so every delta is an upper bound. Probabilities are tilted by e^{theta L} before
    the transform, so that rounding errors are small relative to the tail beyond epsilon.
    """

    def __init__(self, n, width, unit, theta, centre, laws):
        self.h = unit / max(1, math.floor(unit * n / width)) if unit * n > width else width / n
        self.n, self.theta, self.low = n, theta, round(centre / self.h) - n // 4
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
        """Return (loss, probability) of a way, from a quarter of the window below the centre up."""
        whole, log_mass, n = None, 0.0, self.n
        for key, count in terms.items():
            transform, log_total = self.transforms[key]
            power = [z**count for z in transform]
            whole = power if whole is None else [a * b for a, b in zip(whole, power, strict=True)]
            log_mass += count * log_total
        mass, h, theta = fft(whole, 1), self.h, self.theta
        return [(i * h, max(0.0, mass[i % n].real / n) * math.exp(log_mass - theta * i * h))
                for i in range(self.low, self.low + 3 * n // 4)]

def delta_at(points, epsilon):
    """Return delta at epsilon of a discrete law of losses, given as (loss, probability)."""
    return math.fsum(p * -math.expm1(epsilon - loss) for loss, p in points if loss > epsilon)

def exchange_epsilon(ways, delta, stated, sizes=(2**14, 2**15)):
    """Return (upper bound, Richardson limit) of the largest epsilon of the listed ways, and a bound on delta.

    The error of epsilon is proportional to h^2. All ways are compared on small grids, the worst on fine ones. The
    grid contains the widest lattice of losses, i.e. all multiples of its unit.
    """
    laws = {key: losses(*key) for key in sorted({key for way in ways for key in way})}
    means = {key: math.fsum(p * loss for loss, p in law) for key, law in laws.items()}
    squares = {key: math.fsum(p * (loss - means[key]) ** 2 for loss, p in law) for key, law in laws.items()}
    most = max(abs(loss) for law in laws.values() for loss, p in law if p > 1e-16)
    variance = max(math.fsum(count * squares[key] for key, count in way.items()) for way in ways)
    mean = max(math.fsum(count * means[key] for key, count in way.items()) for way in ways)
    width = 24.0 * math.sqrt(variance) + 2.0 * most
    units = [1.0 / scale if "laplace" in noise else 0.5 * shift / scale**2 for noise, scale, shift in laws]
    unit = min(units)  # of the finest lattice if all others are multiples, else of the widest
    unit = unit if unit * sizes[0] > 8.0 * width and all(abs(u / unit - round(u / unit)) < 1e-9 for u in units) else max(units)
    theta = min(max(0.0, (stated - mean) / variance), 500.0 / width)

    def epsilons(grids, way):
        every = [grid.points(way) for grid in grids]
        coarse, fine = (bisect(lambda e, p=p: delta_at(p, e) <= delta, p[0][0], p[-1][0], 40) for p in every)
        ratio = (grids[0].h / grids[1].h) ** 2
        return every[-1], (ratio * fine - coarse) / (ratio - 1.0), fine

    small = [Grid(n, width, unit, theta, stated, laws) for n in (2**12, 2**13)]
    rough = [epsilons(small, way) for way in ways]
    limits = sorted((limit, i) for i, (_, limit, _) in enumerate(rough))
    large, best = [Grid(n, width, unit, theta, stated, laws) for n in sizes], (-math.inf, -math.inf)
    for limit, i in reversed(limits):
        if limit > best[0] - 1e-6 * abs(best[0]):
            best = max(best, epsilons(large, ways[i])[1:])
    return best[1], best[0], lambda e: max(delta_at(points, e) for points, *_ in rough)


# 4. Sensitivity from the query

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
              False: other | {(d, o + 1, e) for d, o, e in at[True]}}
    return at[True] | at[False]

def count_sensitivity(query, p, weights):
    """Return the joint sensitivity of counts or of first visits; weights are 1/scale^p for each family.

    Counts move by 1 in each of two cells. A reward in [0, 1] moves its cell by at most 1 if both records are in
    it; otherwise two cells move by at most 1 each, or 1/2 if 1/2 is subtracted. Costs are p-th powers.
    """
    v, t, raw, centred = (weights.get(name, 0.0) for name in (VISITS, TRANSITIONS, RAW, CENTRED))
    equal_pair = raw + centred
    different, successor = 2.0 * (v + t + raw + 0.5**p * centred), 2.0 * t + equal_pair
    if (query["pooled"] and p == 2) or set(weights) - {VISITS, TRANSITIONS, RAW, CENTRED}:
        raise ValueError(f"families {sorted(weights)}, or pooled steps: not known here")
    if query["first"]:
        # At most m different states are visited by one user: both visit c of them, each visits others.
        m, both = min(query["states"], query["steps"]), max(different, successor, equal_pair)
        cost = max(c * both + (m - c) * different for c in range(m + 1))
    else:
        cost = max(d * different + o * successor + e * equal_pair for d, o, e in ways_of(query["steps"]))
    return query["episodes"] * (cost if p == 1 else math.sqrt(cost))

def question_cost(weights, features, states, centred, p):
    """Return the cost of one question about linear sums: a loss (p = 1) or a squared loss (p = 2).

    A user adds x x' (Gram), x y (response, rewards; the range of y has length 1) or x (e_s - 1/S) (next states),
    with |x| <= B and |x|_1 <= l1. Let t be the cosine of both vectors; t >= 0 if x >= 0. Squared changes, p = 2:

    - Gram, upper triangle with twice the variance on the diagonal: (1 - t^2) B^4
    - y centred: (1 + |t|)/2 B^2. y in [0, 1]: the larger of 2 (1 - t) B^2 and B^2
    - next states: 2 (1 - 1/S) (1 - t) B^2 if equal, 2 (1 - 1/S + t/S) B^2 if different
    - start states: 2

    Changes for p = 1: Gram l1^2 + B^2, y centred l1, other y 2 l1, next states 4 l1 (1 - 1/S), start states 2.
    """
    g, r, s, start = (sum(weights.get(kind, 0.0) for kind in kinds)
                      for kinds in (("gram",), ("response", "rewards"), ("successors",), ("start",)))
    b, l1, other = features["bound"], features["l1"], 1.0 - 1.0 / states
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
        one = query["questions"][number]
        cost = question_cost(parts, query["features"], query["states"], one["centre"] or one["low"] < 0, p)
        for half in (0, 1) if one["half"] is None else (one["half"],):
            totals[half] = totals.get(half, 0.0) + cost
    total = max(totals.values())
    return query["episodes"] * (total if p == 1 else math.sqrt(total))

def check_sensitivities(query, record):
    """Compare sensitivities, joint sensitivity and exchanges of one record with the query."""
    p, scales = (1 if "laplace" in record["noise"] else 2), record["scales"]
    if query is None:
        report("sensitivities", record["joint"], "the query is not described", None)
        return
    def found(scales):
        if query["kind"] == "linear sums":
            return linear_sensitivity(query, p, scales)
        return count_sensitivity(query, p, {name: 1.0 / scale**p for name, scale in scales.items()})
    for family, stated in record["sensitivities"].items():
        near(f"sensitivity of {family}", stated, found({family: 1.0}))
    near("joint sensitivity, in units of the noise", record["joint"], found(scales))
    equal("noisy sums with one user", record["levels"], 1)
    if record["exchanges"]:
        check_complete(query, record)


# 5. Exchanges are complete

def check_complete(query, record):
    """Check that each reachable way to exchange a record is dominated by a listed one.

    A way is dominated if its coordinates can be matched with coordinates of the listed way that have the same
    noise and an equal or larger shift.
    """
    if query["kind"] != "counts" or query["episodes"] != 1 or query["pooled"]:
        report("exchanges are complete", len(record["exchanges"]), f"unknown for {query['kind']}", None)
        return
    def sorted_shifts(pairs):
        shifts = {}
        for key, values in pairs:
            shifts.setdefault(key, []).extend(values)
        return {key: sorted(values, reverse=True) for key, values in shifts.items() if values}
    listed = [sorted_shifts(((noise, round(scale, 6)), [float(shift)] * count) for noise, scale, shift, count in way)
              for way in record["exchanges"]]
    wrong = []
    for d, o, e in ways_of(query["steps"]):
        pairs = []
        for family, scale in record["scales"].items():
            unit = 1.0 / query["families"][family]["grid"]
            moved = {VISITS: [unit] * 2 * d, TRANSITIONS: [unit] * 2 * (d + o)}.get(family)
            apart = unit / 2.0 if family == CENTRED else unit
            moved = [unit] * (o + e) + [apart] * 2 * d if moved is None else moved
            pairs.append(((record["noise"], round(scale * unit, 6)), moved))
        needed = sorted_shifts(pairs)
        if not any(all(len(way.get(key, ())) >= len(values) and all(a <= b for a, b in zip(values, way[key]))
                       for key, values in needed.items()) for way in listed):
            wrong.append((d, o, e))
    report("exchanges are complete", f"{len(listed)} ways", f"not covered: {wrong[:3]}", not wrong)


# 6. Guarantee, attacker, words, totals

def composed(records):
    """Return (pure epsilon or None, rho, mu or None) of mechanisms on the same users.

    A pure epsilon has rho = epsilon tanh(epsilon/2). If exchanges are listed, each coordinate has its own pure
    epsilon = shift/scale, independent noise adds its rho, and the worst way counts.
    """
    pure = rho = 0.0
    for one in records:
        if one["kind"] != "noise" or one["noise"] not in NOISES:
            return None, None, None
        if "laplace" in one["noise"]:
            pure = None if pure is None else pure + one["levels"] * one["joint"]
            ways = [[(n, shift / scale) for _, scale, shift, n in way] for way in one["exchanges"]]
            ways = ways or [[(1, one["levels"] * one["joint"])]]
            rho += max(math.fsum(n * e * math.tanh(e / 2.0) for n, e in way) for way in ways)
        else:
            pure, rho = None, rho + one["levels"] * one["joint"] ** 2 / 2.0
    gaussian = bool(records) and all(one["noise"] == "gaussian" for one in records)
    return pure, rho, math.sqrt(2.0 * rho) if gaussian else None

def phi(x):
    """Return the standard normal distribution function at x."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))

@functools.cache
def zcdp_power(rho, f=None):
    """Return the largest true positive rate at rate f of false positives (None: f = 1 - t) under rho-zCDP.

    Each Renyi divergence of order a between Bernoulli laws with means t and f is at most a rho, both ways.
    """
    def renyi(a, p, q):
        if not (0.0 < p < 1.0 and 0.0 < q < 1.0):
            return math.inf if p != q else 0.0
        x, y = ((a * math.log(u) + (1.0 - a) * math.log(v)) for u, v in ((p, q), (1.0 - p, 1.0 - q)))
        return (max(x, y) + math.log1p(math.exp(-abs(x - y)))) / (a - 1.0)
    best, low = 1.0, 0.5 if f is None else f
    for i in range(401):  # in an order in which few of them improve the best so far
        a = 1.0 + 10.0 ** (-4.0 + (i * 157 % 401) / 40.0)
        def broken(t, a=a):
            q = 1.0 - t if f is None else f
            return max(renyi(a, t, q), renyi(a, q, t)) > a * rho
        best = bisect(broken, low, best, 60) if broken(best * (1.0 - 1e-15)) else best
    return best

class Bounds:
    """Bounds on attackers: pairs (epsilon, delta), mu of Gaussian privacy, rho of zCDP; the smallest holds."""

    def __init__(self, points=(), mu=None, rho=None):
        self.points, self.mu, self.rho = [q for q in points if q[1] < 1.0], mu, rho
        self.pure = min((e for e, d in self.points if d == 0.0), default=None)

    def power(self, f):
        found = [math.exp(min(e, 700.0)) * f + d for e, d in self.points]
        found += [1.0 - math.exp(-e) * (1.0 - d - f) for e, d in self.points]
        if self.mu is not None:
            found.append(1.0 - phi(-bisect(lambda x: phi(x) >= f, -40.0, 40.0) - self.mu))
        return max(f, min([1.0, *found, *([] if self.rho is None else [zcdp_power(self.rho, f)])]))

    def excess(self, epsilon):
        """Return an upper bound on P(E) - e^epsilon P'(E) over all events E."""
        found = [1.0] + [d + (1.0 - d) * max(0.0, -math.expm1(min(0.0, epsilon - e))) / (1.0 + math.exp(-e))
                         for e, d in self.points]
        found += [] if self.mu is None else [gaussian_delta(self.mu, epsilon)]
        found += [] if self.rho is None else [zcdp_delta(self.rho, epsilon)]
        return min(found + ([2.0 * zcdp_power(self.rho) - 1.0] if self.rho is not None and epsilon == 0.0 else []))

    def table(self):
        power = {f: self.power(f) for f in (0.01, 0.05, 0.1)}
        return {"advantage": self.excess(0.0), "tests": [
            {"false_positives": f, "true_positives": t} for f, t in power.items()], "priors": [
            {"prior": p, "right_guess": 1.0 - p + p * self.excess(math.log((1.0 - p) / p)),
             "posterior_of_any_outcome": None if self.pure is None else p / (p + (1.0 - p) * math.exp(-self.pure)),
             "posteriors": [{"false_positives": f, "posterior": p * t / (p * t + (1 - p) * f)}
                            for f, t in power.items()]} for p in (0.5, 0.1, 0.01)]}

    def group(self, k):
        """Return the bounds for k records at once: (k e, delta (e^{ke} - 1)/(e^e - 1)), k mu, k^2 rho."""
        ratio = {e: k if e == 0.0 else math.inf if k * e > 700.0 else math.expm1(k * e) / math.expm1(e)
                 for e, _ in self.points}
        points = [(k * e, d * ratio[e] if d else 0.0) for e, d in self.points]
        return Bounds(points, self.mu and k * self.mu, self.rho and k**2 * self.rho)

    def epsilon(self, delta):
        found = [e for e, d in self.points if d <= delta]
        found += [gaussian_epsilon(self.mu, delta)] if self.mu is not None and delta else []
        return min(found + ([zcdp_epsilon(self.rho, delta)] if self.rho is not None and delta else []), default=None)

def exceedance(curve, epsilon):
    """Return the minimum over t < epsilon of curve(t) / (1 - e^(t - epsilon)), a bound on P(L > epsilon).

    It holds since delta(t) = E[(1 - e^(t - L))+] >= (1 - e^(t - epsilon)) P(L > epsilon).
    """
    ratio, steps = (lambda t: curve(t) / -math.expm1(t - epsilon)), [epsilon * i / 40.0 for i in range(40)]
    i = min(range(40), key=lambda i: ratio(steps[i]))
    low, high = steps[max(i - 1, 0)], steps[i + 1] if i < 39 else epsilon * (1.0 - 1e-6)
    for _ in range(40):  # golden section
        a, b = high - 0.618 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if ratio(a) < ratio(b) else (a, high)
    return min(ratio(low), ratio(high))

def check_second_group(doc):
    """Check that the loss of the second group is at most that of the release."""
    if not (other := doc.get("second_group")):
        return
    (family,), loss = other["mechanism"]["families"], other["mechanism"]["loss"]
    near("second group: sensitivity", family["sensitivity"], 2.0)
    known = len(doc["mechanisms"]) == 1 and family["family"] == "clipped_answers"
    near("second group: loss", loss, 2.0 / family["scale"] if known else None)
    if known and abs(loss * family["scale"] - 2.0) < 1e-8:
        most = doc["mechanisms"][0]["loss"]
        report("second group: loss", loss, f"at most {most}", loss <= most * (1 + 1e-9))
    near("users of both groups", doc["population"]["users"], other["users"] + other["users_of_release"])

def check_guarantee(doc):
    """Recompute epsilon, rho, mu and ``exceeds`` from the records. Returns bounds on attackers of this release."""
    g, records = doc["guarantee"], [one["record"] for one in doc["mechanisms"]]
    equal("records, stated twice", g["mechanisms"], records)
    if g["epsilon"] is None:
        equal("records of an exact release", records, [])
        return Bounds()
    (pure, rho, mu), epsilon, delta = composed(records), g["epsilon"], g["delta"]
    if not records or rho is None:
        raise NotCheckable("a record of a kind that is not known here")
    check_second_group(doc)
    for one in doc["mechanisms"]:
        levels = one["record"]["levels"] if "laplace" in one["record"]["noise"] else one["record"]["levels"] ** 0.5
        near("loss of a mechanism", one["loss"], levels * one["record"]["joint"])
    rho = None if any("laplace" in one["noise"] for one in records) else rho
    near("mu", g["mu"], mu)
    near("rho", g["rho"], rho)
    low = high = 0.0
    if delta and any(one["exchanges"] for one in records):
        low, high = check_numerical("epsilon", records, delta, epsilon)
    elif mu is not None:
        near("epsilon, Gaussian", epsilon, gaussian_epsilon(mu, delta))
        low = high = exceedance(lambda t: gaussian_delta(mu, t), epsilon)
    elif rho is not None:
        near("epsilon, zCDP", epsilon, zcdp_epsilon(rho, delta))
        low, high = (exceedance(curve, epsilon) for curve in (
            lambda t: gaussian_delta(math.sqrt(2.0 * rho), t), lambda t: zcdp_delta(rho, t)))
    else:
        near("epsilon, sum of pure losses", epsilon, pure)
    stated = g["exceeds"]["at_most"]
    near("exceeds: epsilon", g["exceeds"]["epsilon"], epsilon)
    report("exceeds: at most", stated, f"{low} to {high}", low * (1 - 1e-3) <= stated <= high * 1.011)
    return Bounds([(epsilon, delta)] + ([(pure, 0.0)] if delta and pure is not None else []), mu, rho)

def check_numerical(name, records, delta, stated):
    """Compare epsilon with the listed exchanges, in all combinations. Returns bounds on P(L > epsilon)."""
    ways = [{}]
    for record in records:
        listed = [way_of(way) for way in record["exchanges"]]
        ways = [{key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}} for a in ways for b in listed][:101]
    if not 0 < len(ways) <= 100 or delta < 1e-13 or max(key[1] for way in ways for key in way) > LARGEST_SCALE:
        report(f"{name}, numerical", stated, "no list of exchanges, many, wide noise, or tiny delta", None)
        return 0.0, 1.0
    upper, limit, curve = exchange_epsilon(ways, delta, stated)
    ok = limit * (1.0 - 2e-6) <= stated <= limit * (1.0 + 5e-3)
    report(f"{name}, numerical", stated, f"limit {limit!r}, upper bound {upper!r}", ok)
    low = exceedance(curve, stated) if name == "epsilon" else 0.0
    return low, 2.0 * low

def check_attacker(doc, alone):
    """Recompute the attacker's tables and the groups. Returns (bounds, epsilon, delta) of all releases together."""
    g, t, delta, whole = doc["guarantee"], (doc["ledger"] or {}).get("together"), doc["guarantee"]["delta"], alone
    epsilon, several = g["epsilon"], bool(t) and t["reservations"] > 1
    if several:
        epsilon, delta = t["epsilon"], t["delta"]
        points = ([] if epsilon is None else [(epsilon, delta)]) + ([(t["pure"], 0.0)] if t["pure"] and delta else [])
        whole = Bounds(points, t["mu"], t["rho"])
    same_tree("alone", doc["alone"], alone.table() if several else None)
    same_tree("attacker", doc["attacker"], whole.table())
    for group, k in zip(doc["groups"], (2, 5, 10), strict=True):
        many = whole.group(k)
        same_tree(f"group of {k}", group, {"people": k, "epsilon": many.epsilon(delta), "delta": delta,
                                           "rho": many.rho, "mu": many.mu, "advantage": many.excess(0.0)})
    return whole, epsilon, delta

def check_population(folder, doc):
    """Compare population and data with ``schema.toml``, and facts that the statement gives twice."""
    schema = tomllib.loads((folder / "schema.toml").read_text("utf-8"))
    p, g, d = doc["population"], doc["guarantee"], doc["delta"]
    for name in ("dataset", "unit", "horizon", "episodes_per_user", "contribute"):
        equal(f"schema.toml: {name}", p[name], schema.get(name, p[name]))
    for name in ("states", "actions"):
        table = schema.get(name) if isinstance(schema.get(name), dict) else {}
        equal(f"schema.toml: {name}", p[name], len(table.get("labels", [])) or table.get("count", p[name]))
    equal("schema.toml: provenance", p["provenance"], schema.get("provenance", {}))
    reward = schema.get("reward") if isinstance(schema.get("reward"), dict) else {}
    for name in ("low", "high"):
        near(f"schema.toml: reward {name}", doc["data"]["reward"][name], float(reward.get(name, doc["data"]["reward"][name])))
    equal("users are public", p["users_public"], g["users_public"])
    equal("episodes", p["episodes_per_user"], g["episodes"])
    for name, value in (("delta", g["delta"]), ("per_user", 1 / p["users"]), ("ratio", g["delta"] * p["users"])):
        near(f"delta: {name}", d[name], value)
    size, secure = g["delta"] * p["users"], g["randomness"] == "secure"
    equal("delta: verdict", d["verdict"], "none" if g["epsilon"] is None else "warn" if size > 0.1 else "small" if size
          else "pure")
    equal("holds if the seed is guessed", g["holds_if_seed_is_guessed"], secure and g["epsilon"] is not None)
    for one, record in ((one, one["record"]) for one in doc["mechanisms"]):
        equal("randomness", secure, str(record.get("noise")).startswith("discrete"))
        equal("source of randomness", one["source_of_randomness"].startswith("operating system"), secure)
        equal("families", [f["family"] for f in one["families"]], list(record.get("scales", {})))
        for f in one["families"]:
            spread = 2.0 ** (0.5 * ("laplace" in record["noise"]))
            same_tree(f"family {f['family']}", [f["scale"], f["sensitivity"], f["std"]], [record["scales"][
                f["family"]], record["sensitivities"][f["family"]], spread * record["scales"][f["family"]]])

NOT_COVERED = (
    "The raw data where they are stored", "Messages about invalid rows", "Whether a person is in the data set",
    "Conclusions about people in general", "Side channels:", "More than one person at once")

COVERED = ("One ", "Everything that is computed from release.parquet", "The group of the ", "If a person has more than ")

def check_words(folder, doc, whole, alone, epsilon, delta):
    """Compare numbers in the sentence, required warnings and limits, and the pages with the statement."""
    g, p, ledger, sentence = doc["guarantee"], doc["population"], doc["ledger"], doc["sentence"]
    several = bool(ledger) and ledger["together"]["reservations"] > 1
    exact = g["epsilon"] is None
    def in_text(pattern, text, value, slack=1.011, needed=True):
        for said in re.findall(pattern, text) or ([""] if needed else []):
            number = said.replace(",", "").rstrip(".")
            number = math.exp(float(number[2:])) if number[:2] == "e^" else float(number or "nan")
            report(f"numbers in words: {pattern}", said, value, value * (1 - 1e-9) <= number <= value * slack + 1e-300)
    if exact or doc["synthetic"]:
        words = "No person's data" if doc["synthetic"] else "NOT PROTECTED"
        report("sentence", sentence[:60], words, words in sentence)
    else:
        main, _, own = sentence.partition("For this release alone:")
        parts = [(main, epsilon, delta, whole), (own, g["epsilon"], g["delta"], alone)][: 1 + several]
        for text, e, d, bounds in parts:
            in_text(r"at most ([e^\d.,]+) times(?: what|, plus|; a)", text, math.exp(min(700.0, math.inf if e is None else e)))
            in_text(r"right at most ([\d.]+) times in 100", text, 100 * bounds.table()["priors"][0]["right_guess"], 1.002)
            one_in = [1 / int(n.replace(",", "")) for n in re.findall(r"plus 1 in ([\d,]+)", text)]
            report("numbers in words: plus", one_in, d, len(one_in) == (d > 0) and all(d <= n <= 1.5 * d for n in one_in))
        for sign, value in (("ε", g["epsilon"]), ("δ", g["delta"]), ("ρ", g["rho"])):
            in_text(rf"{sign} = (\d[\d.e+-]*\d|\d)", g["statement"], value or 0.0, needed=False)
    warned = {"SYNTHETIC DATA": doc["synthetic"], "SEEDED NOISE": g["randomness"] == "seeded", "NO LEDGER": not ledger,
              "NO PRIVACY GUARANTEE": exact, "NEW LEDGER": bool(ledger and ledger["new"]), "times 1/users": doc["delta"]["verdict"] == "warn",
              "NO LIMIT": bool(ledger and ledger["after"]["limit_epsilon"] is None),
              "RELEASES of the same": several and not exact, "THIS DATA": "this data" in p["provenance"].values()}
    for words, needed in warned.items():
        equal(f"warning {words}", any(words in one for one in doc["warnings"]), needed)
    needed = [*NOT_COVERED, f"after entry {ledger['number']} of this ledger" if ledger else "NO LEDGER was kept"]
    needed += [f"The number of people, {p['users']}"] if p["users_public"] and not exact else []
    for words in needed + ([repr(ledger["dataset"])] if ledger else []):
        equal(f"not covered: {words}", any(words in one for one in doc["not_covered"]), True)
    known = (*COVERED, "People are in two groups: ") if doc.get("second_group") else COVERED
    report("covered: known lines", len(doc["covered"]), known, all(one.startswith(known) for one in doc["covered"]))
    sites = "sites" in doc["configuration"]["options"]
    trust = "none" if exact else "central"
    report("trust", g["trust"], trust, g["trust"] == trust or (None if sites else False))
    flat = lambda text: re.sub(r"[\s\\]+|<[^>]*>", "", text)  # noqa: E731
    for name in PAGES:
        plain = flat((folder / name).read_text("utf-8"))
        for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'"), ("&#39;", "'"), ("&amp;", "&")):
            plain = plain.replace(entity, sign)
        texts = [sentence, *doc["warnings"], *(doc["covered"] + doc["not_covered"] if name == "statement.md" else [])]
        lacking = [text for text in texts if flat(text) not in plain]
        report(f"{name}: sentences of the statement", len(texts), lacking[:2], not lacking)
        if not name.endswith("html"):
            check_numbers(name, (folder / name).read_text("utf-8"), doc)

def check_numbers(name, page, doc):
    """Check that each decimal number of a page is one of the statement, 100 times one, or e to one, when rounded."""
    def numbers(value):
        if isinstance(value, (dict, list)):
            for one in value.values() if isinstance(value, dict) else value:
                yield from numbers(one)
        elif isinstance(value, (int, float)):
            yield from (value, 100.0 * value, math.exp(value) if 0 < value < 700 else value)
    known, wrong = list(numbers(doc)), []
    body = re.split(r"Files and hashes|## Glossary", page)[0]
    for said in set(re.findall(r"(?<![\w.:+^-])\d+\.\d+(?:e[+-]?\d+)?(?![\w:+-]|\.\d)", body)):
        digits, _, power = said.partition("e")
        unit = 1.001 * 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
        wrong += [] if any(abs(float(said) - value) <= unit for value in known) else [said]
    report(f"{name}: numbers", "in the statement", wrong[:5], not wrong)

def read_ledger(path):
    """Return rows (text or None, hash) of a ledger: the SQLite file, its export, or ``ledger.jsonl``."""
    data = Path(path).read_bytes()
    if data[:15] == b"SQLite format 3":
        with sqlite3.connect(f"file:{os.path.abspath(path)}?mode=ro", uri=True) as connection:
            return [tuple(row) for row in connection.execute("SELECT text, hash FROM entries ORDER BY number")]
    return [(row.get("text"), row["hash"]) for row in map(strict_json, data.splitlines())]

def check_ledger(doc, rows):
    """Check the chain, recompute the totals of the dataset from its entries, and compare the entry of the run.

    An entry without text is known by its hash only: the next entry with text confirms the hash, not its content.
    """
    stated, entries = doc["ledger"], []
    for i, (text, digest) in enumerate(rows):
        entry = None if text is None else strict_json(text.encode())
        if entry is not None:
            good = (sha256(text), entry["number"], entry["previous"]) == (digest, i + 1, rows[i - 1][1] if i else "")
            good = good and canonical(entry) == text and entry["time"] >= (entries[-1]["time"] if entries else "")
            report(f"ledger: entry {i + 1}", digest, sha256(text), good)
            entries.append({**entry, "hash": digest})
    own = next((one for one in entries if one["hash"] == stated["head"]), None)
    if own is None or not entries or entries[0]["kind"] != "begin":
        report("ledger: entry of the run, after its beginning", stated["head"], "not in this ledger", False)
        return
    equal("ledger: entry", [stated["identity"], stated["number"], "reserve", stated["dataset"], doc["population"]["users"],
                            doc["date"], doc["purpose"], [m["record"] for m in doc["mechanisms"]]],
          [entries[0]["identity"], *(own[key] for key in ("number", "kind", "dataset", "users", "time", "purpose", "records"))])
    first = min(one["number"] for one in entries if one["kind"] == "reserve")
    hidden = any(text is None for text, _ in rows[: own["number"]])
    report("ledger: new", stated["new"], first == own["number"], stated["new"] == (first == own["number"]) or (hidden and not stated["new"]))
    mine = [one for one in entries if one["dataset"] == own["dataset"] and one["number"] <= own["number"]]
    limit = next((one for one in reversed(mine) if one["kind"] == "limit"), {})
    for one in (o for o in entries if o["kind"] in ("limit", "owner") and o.get("signature")):
        signed = {**{key: v for key, v in one.items() if key not in ("signature", "hash")}, "ledger": stated["identity"]}
        equal(f"ledger: signature of entry {one['number']}", verified(one["key"], f"discreet {one['kind']}, 1", signed, one["signature"]), True)
    reserved = [one for one in mine if one["kind"] == "reserve"]
    for part, some in (("before", reserved[:-1]), ("after", reserved), ("together", reserved)):
        t, records = stated[part], [record for one in some for record in one["records"]]
        (pure, rho, mu), delta = composed(records), t["delta"]
        found = ([] if pure is None else [pure]) + ([zcdp_epsilon(rho, delta)] if delta and rho is not None else [])
        found += [gaussian_epsilon(mu, delta)] if delta and mu is not None else []
        equal(f"{part}: releases", t["reservations"], len(some))
        for name, value in (("pure", pure), ("rho", rho), ("mu", mu)):
            near(f"{part}: {name}", t[name], value)
        own_total = len(some) == 1 and t["epsilon"] == doc["guarantee"]["epsilon"] and part != "before"
        if str(t.get("method", t.get("rule"))).startswith("numerical") and not own_total:
            check_numerical(part, records, delta, t["epsilon"])
        else:
            near(f"{part}: epsilon", t["epsilon"], t["epsilon"] if own_total else min(found, default=None))
        if part != "together":
            equal(f"{part}: limit", [t["limit_epsilon"], t["limit_delta"]], [limit.get("epsilon"), limit.get("delta")])
            heirs = {limit.get("key") or None, *(one.get("to") for one in mine if one["kind"] == "owner")}
            report(f"{part}: key of the limit", t["limit_key"], sorted(map(str, heirs)), t["limit_key"] in heirs)
    if limit and own["checked"]:
        used = min([pure or math.inf, zcdp_epsilon(rho, limit["delta"]) if limit["delta"] else math.inf,
                    gaussian_epsilon(mu, limit["delta"]) if mu and limit["delta"] else math.inf, *([own["epsilon"]] if len(reserved) == 1 else [])])
        report("within the owner's limit", limit["epsilon"], used, used <= limit["epsilon"] * (1 + 1e-6))
    mark = next((one["files"] for one in entries if one["kind"] == "mark" and one["reservation"] == own["number"]), None)
    if mark is not None and not doc["replanned"]:
        same_tree("ledger: mark", {**mark, **dict.fromkeys(PAGES)}, {**doc["files"], "statement.json": doc["fingerprint"], **dict.fromkeys(PAGES)})


# 7. Ed25519 (RFC 8032) in integers, on the curve -x^2 + y^2 = 1 + d x^2 y^2

Q, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT = -121665 * pow(121666, -1, Q) % Q, pow(2, (Q - 1) // 4, Q)

def add(p, q):
    """Add two points in extended coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % Q, (p[1] + p[0]) * (q[1] + q[0]) % Q
    c, d = 2 * p[3] * q[3] * D % Q, 2 * p[2] * q[2] % Q
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % Q, g * h % Q, f * g % Q, e * h % Q

def multiply(n, p):
    """Return n times a point p of the curve Ed25519, in extended coordinates."""
    total = (0, 1, 1, 0)
    while n:
        total, p, n = add(total, p) if n & 1 else total, add(p, p), n >> 1
    return total

def point_of(data):
    """Return the point of 32 bytes; None if y is not below 2^255 - 19 or no x exists."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, -1, Q) % Q
    x = pow(square, (Q + 3) // 8, Q)
    x = x if x * x % Q == square else x * ROOT % Q
    if y >= Q or x * x % Q != square or (x == 0 and sign):
        return None
    x = x if x & 1 == sign else Q - x
    return x, y, 1, x * y % Q

BASE = point_of((4 * pow(5, -1, Q) % Q).to_bytes(32, "little"))

def ed25519(key, message, signature):
    """Return True if [S]B = R + [k]A with k = SHA-512(R, A, message), S below the order, and canonical points."""
    if len(key) != 32 or len(signature) != 64:
        return False
    a, r, s = point_of(key), point_of(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= ORDER:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    one, other = multiply(s, BASE), add(r, multiply(k, a))
    return all((one[i] * other[2] - other[i] * one[2]) % Q == 0 for i in (0, 1))

def verified(key, kind, content, signature):
    """Return True if the signature of a document of this kind is valid. Keys and signatures are hexadecimal."""
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
        good = verified(one["key"], "discreet statement, 1", content, one["signature"])
        same = one["fingerprint"] == doc["fingerprint"] and one["files"] == hashes
        report(f"signature of {one['name']}", one["key"], f"valid: {good}, of these files: {same}", good and same)
        signed |= {one["key"]} if good and same else set()
    equal("keys that signed once", len(entries), len({one["key"] for one in entries}))
    for key in keys:
        report("signed with the given key", key, sorted(signed), key in signed)


# 8. Noise of the release

def gamma_lower(a, x):
    """Return the regularised lower incomplete gamma function, by its power series."""
    if x <= 0.0 or x > a + 40.0 * math.sqrt(a) + 40.0:
        return float(x > 0.0)
    term, total, n = 1.0 / a, 1.0 / a, a
    while term > total * 1e-17:
        n += 1.0
        term *= x / n
        total += term
    return min(1.0, total * math.exp(a * math.log(x) - x - math.lgamma(a)))

def read_release(path):
    """Return (header, {family: {(step, indices): value}}) of ``release.csv``."""
    header, tables = {}, {}
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("# "):
            name, _, header_value = line[2:].partition("=")
            header[name] = header_value
        elif not line.startswith("family,"):
            family, *place, value = line.split(",")
            place, table = tuple(int(part) for part in place if part), tables.setdefault(family, {})
            if place in table or not math.isfinite(float(value)):
                raise ValueError(f"{path}: cell {line} twice, or not finite")
            table[place] = float(value)
    return header, tables

def relations_of(query, tables):
    """Return linear relations {(family, cell): coefficient} that are 0 before noise is added.

    Visits of a pair are the sum of its transitions. Transitions into a state are those out of it a step later.
    """
    found = {}
    for place in tables.get(TRANSITIONS, {}):
        h, s, a, to = place
        if (h, s, a) in tables.get(VISITS, {}):
            found.setdefault((h, s, a), {(VISITS, (h, s, a)): 1.0})[TRANSITIONS, place] = -1.0
        if query["kind"] == "counts":
            for key, sign in (((h + 1, to), 1.0), ((h, s), -1.0)):
                if 0 < key[0] < query["steps"]:
                    relation = found.setdefault(key, {})
                    relation[TRANSITIONS, place] = relation.get((TRANSITIONS, place), 0.0) + sign
    return list(found.values())

def check_noise(folder, doc, query):
    """Check header, cells and grid of ``release.csv``, the number of users, and the size of the noise."""
    header, tables = read_release(folder / "release.csv")
    g, p, records = doc["guarantee"], doc["population"], [m["record"] for m in doc["mechanisms"]]
    users = p["users"] - (doc["second_group"]["users"] if doc.get("second_group") else 0)
    equal("release.csv: facts", {"dataset": p["dataset"], "users": str(users), "trust": g["trust"],
          "randomness": g["randomness"], "synthetic": json.dumps(doc["synthetic"])}, header)
    equal("release.csv: cells", {name: one["cells"] for name, one in query["families"].items()}, {k: len(v) for k, v in tables.items()})
    for family, one in query["families"].items():
        units = [v / one["grid"] for v in tables[family].values()] if one["grid"] else []
        equal(f"release.csv: {family} off its grid", 0, sum(abs(v - round(v)) > 1e-6 for v in units))
    if query["kind"] == "linear sums" or len(records) > 1:
        return report("size of the noise", "as stated", "no relations for this query: not tested", True)
    laplace = bool(records) and "laplace" in records[0]["noise"]
    variance = {name: scale**2 * (1.0 + laplace) for r in records for name, scale in r["scales"].items()}
    sums = {}
    for place, value in tables[TRANSITIONS].items():
        if query["kind"] == "counts" or place[1] == query["states"] - 1:
            sums.setdefault(place[0], []).append(value)
    cells, mean = sum(map(len, sums.values())), math.fsum(map(math.fsum, sums.values())) / len(sums)
    spread = 6.0 * math.sqrt(cells * variance.get(TRANSITIONS, 0.0)) / len(sums) + 1e-6
    report("release.csv: users", users, f"{mean:.1f} episodes in a step, +- {spread:.1f}",
           users - spread <= mean <= users * query["episodes"] + spread)
    relations, square, solved = relations_of(query, tables), 0.0, []
    relations = relations[:: math.ceil(len(relations) / 160)] if relations and variance else []
    for i, relation in enumerate(relations):  # Cholesky factor of the covariance, row by row
        row = []
        for j in range(i + 1):
            shared = math.fsum(c * relations[j].get(key, 0.0) * variance[key[0]] for key, c in relation.items())
            rest = shared - math.fsum(x * y for x, y in zip(row, solved[j][0] if j < i else row))
            row.append(math.sqrt(max(rest, 1e-12)) if i == j else rest / solved[j][0][j])
        value = math.fsum(c * tables[key[0]][key[1]] for key, c in relation.items())
        solved.append((row, (value - math.fsum(x * s[1] for x, s in zip(row, solved))) / row[i]))
        square += solved[-1][1] ** 2
    # The mean square of Laplace noise varies by at most (2 + 3)/2 times that of Gaussian noise.
    n, shape = len(relations), len(relations) / (5.0 if laplace else 2.0)
    chance = gamma_lower(shape, shape * square / n) if n else 1.0
    report("size of the noise", "as stated", f"{n} relations: mean square {square / max(n, 1):.4g}, P = {chance:.3g}",
           chance >= 1e-6 and 1.0 - chance >= 1e-12 * (n > 0))


def query_of(doc):
    """Return the query: that of the statement, or for version 5 that of the population and the families."""
    p, families = doc["population"], [f for m in doc["mechanisms"] for f in m["families"]]
    first = doc["configuration"]["options"].get("question") == "first visits"
    if "query" in doc or any(f["family"] not in (VISITS, TRANSITIONS, RAW, CENTRED) for f in families):
        return doc.get("query")
    return {"kind": "first visits" if first else "counts", "steps": p["horizon"] + first, "states": p["states"] + first,
            "first": first, "pooled": False, "episodes": p["episodes_per_user"], "families": {f["family"]: {
                "grid": 2.0**-10 if f["family"] in (RAW, CENTRED) else 1.0, "cells": f["cells"]} for f in families}}

def verify(folder, ledger=None, keys=()):
    """Run all checks on a folder. Returns the list of results."""
    RESULTS.clear()
    folder, state = Path(folder), {}
    try:
        doc = strict_json((folder / "statement.json").read_bytes())
        known = doc["format"] == "discreet privacy statement" and doc["version"] in (5, 6)
        report("format and version", [doc["format"], doc["version"]], "versions 5 and 6", known or None)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        known = report("statement.json", "JSON", repr(error), False)
    if not known:
        return RESULTS
    def guarantee():
        state["alone"] = check_guarantee(doc)
    def attacker():
        state["whole"] = check_attacker(doc, state["alone"])
    def words():
        check_words(folder, doc, state["whole"][0], state["alone"], *state["whole"][1:])
    def sensitivities():
        for one in doc["mechanisms"]:
            check_sensitivities(query_of(doc), one["record"])
    def noise():
        if "release.csv" not in doc["files"]:
            if "query" in doc and sum(one["cells"] for one in doc["query"]["families"].values()) <= 10**6:
                raise ValueError("there is no release.csv")
            raise NotCheckable("release.parquet cannot be read here, and there is no release.csv")
        check_noise(folder, doc, query_of(doc))
    def book():
        given = ledger or (folder / "ledger.jsonl" if "ledger.jsonl" in doc["files"] else None)
        if doc["ledger"] is not None and not given:
            if "query" in doc and not doc["replanned"]:
                raise ValueError("there is no ledger.jsonl")
            raise NotCheckable("no ledger is given")
        if doc["ledger"] is not None:
            check_ledger(doc, read_ledger(given))
    for part in (lambda: check_files(folder, doc), lambda: check_population(folder, doc), guarantee, attacker, words,
                 sensitivities, noise, book, lambda: check_signatures(folder, doc, keys)):
        try:
            part()
        except NotCheckable as error:
            report(part.__name__, "can be checked", str(error), None)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
            missing = part in (attacker, words) and "alone" not in state
            report(part.__name__, "can be checked", repr(error), None if missing else False)
    return RESULTS

def main(arguments=None):
    """Check a folder, print each check, and return the exit status: 0, 1 or 2."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--ledger", metavar="FILE")
    parser.add_argument("--public-key", action="append", default=[], metavar="HEX")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    results = verify(given.folder, given.ledger, given.public_key)
    if given.json:
        print(json.dumps([dict(zip(("check", "stated", "found", "result"), one)) for one in results], indent=1, default=str))
    else:
        for name, stated, found, result in results:
            print(f"{result:14} {name}: stated {stated}, found {found}")
    kinds = {one[3] for one in results}
    return 1 if "DIFFERS" in kinds else 2 if "not checkable" in kinds else 0

if __name__ == "__main__":
    sys.exit(main())
