#!/usr/bin/env python3
"""Independent verifier of privacy statements: one file, Python 3.11 or later, standard library only.

    python verify_statement.py DIR [--ledger FILE] [--public-key HEX] [--json]

DIR is a folder with ``statement.json``. Every line of the output names a check, the stated and the found
value. Exit status: 0 if all checks agree, 1 if one differs, 2 if none differs but one was not possible.

Neighbours: the whole record of one user (at most m episodes of H steps) is replaced by any other record; the
number of users stays the same. L = ln(P(o) / P'(o)) is the privacy loss of an outcome o drawn from P.
Epsilon is computed for Laplace and Gaussian noise, for binomial flips of a shuffler, and for amplification by
shuffling. Not checkable: what one user can change in flips, as no query of this version describes it, and
records of randomized reports. The size of the noise is tested in sums that are 0 without noise. Noise of
other sums (rewards, contexts) is compared with the values only.
This file imports nothing of the library that wrote the folder and shares no code with it. No file can prove
that noise was drawn as stated: signatures, and the check of the noise below, are the only evidence for this.
"""

import argparse, cmath, collections, functools, hashlib, html, itertools
import json, math, pathlib, re, sqlite3, statistics, sys, tomllib

RESULTS = []
PAGES = ("statement.md", "officer.md", "officer.html")
KEPT = {"release.parquet", "release.csv", "schema.toml"}  # the same after planning again
VISITS, TRANSITIONS, RAW, CENTRED = "visits", "transition_counts", "reward_sums", "centered_reward_sums"
FAMILIES = (VISITS, TRANSITIONS, RAW, CENTRED)


def report(name, stated, found, ok):
    """Record one check. ``ok`` is True, False, or None if the check was not possible."""
    RESULTS.append((name, stated, found, "not checkable" if ok is None else "agrees" if ok else "DIFFERS"))

class NotCheckable(ValueError):
    """Fact that this program cannot check. The exit status is then 2."""

def need(condition, error, value=None):
    """Return a value, but raise an error, or a ``ValueError`` with a text, unless the condition holds."""
    if not condition:
        raise error if isinstance(error, Exception) else ValueError(error)
    return value

def equal(name, stated, found):
    """Record whether two values are of one type and equal."""
    report(name, stated, found, type(stated) is type(found) and stated == found)

def near(name, stated, found, tolerance=1e-9):
    """Record whether two numbers (or None) agree to a relative tolerance."""
    close = None not in (stated, found) and math.isclose(stated, found, rel_tol=tolerance, abs_tol=1e-300)
    report(name, stated, found, close or stated is found)

def same_tree(name, stated, found):
    """Compare two JSON values number by number."""
    if type(stated) is type(found) is dict and set(stated) == set(found):
        for key in stated:
            same_tree(f"{name}.{key}", stated[key], found[key])
    elif type(stated) is type(found) is list and len(stated) == len(found):
        same_tree(name, dict(enumerate(stated)), dict(enumerate(found)))
    elif {type(stated), type(found)} <= {int, float, Number} and type(stated) is not type(found):
        # an advantage is about sqrt(rho/2), and rounding errors are relative to rho
        more = min(1e-3, 1e-12 / max(found, 1e-12) ** 2) if name.endswith("advantage") else 0.0
        near(name, stated, found, 1e-9 + more)
    else:
        equal(name, stated, found)

def same_parts(name, stated, found):
    """Compare those entries of a table that ``found`` has."""
    same_tree(name, {key: stated[key] for key in found}, found)


# 1. Files, strict JSON, hashes

class Number(float):
    """Float of a JSON file that keeps its text."""

    def __init__(self, text):
        self.text = text
        need(math.isfinite(self), f"{text} is too large for a number")

def strict_json(data):
    """Parse JSON. Refuses repeated names, NaN, infinity, -0 as an integer, and text that is not UTF-8."""
    def integer(text):  # int refuses NaN and Infinity
        return need(text != "-0", "-0 is not a number of JSON", int(text))
    return json.loads(data.decode(), parse_constant=integer, parse_float=Number, parse_int=integer,
        object_pairs_hook=lambda one: need(len(dict(one)) == len(one), "a name occurs twice", dict(one)))

def canonical(value):
    """Return JSON text with sorted keys, no spaces, ASCII escapes, and numbers as their text in the file."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{canonical(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return value.text if isinstance(value, Number) else json.dumps(value)

def without(table, *names):
    """Return a table without some names."""
    return {name: value for name, value in table.items() if name not in names}

def sha256(data):
    """Return the SHA-256 hash of bytes or of a string in UTF-8, as hexadecimal digits."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()

def read(path):
    """Return the bytes of a regular file of at most a gigabyte. Refuses links, folders, pipes and devices."""
    need(path.is_file() and not path.is_symlink(), f"{path.name}: no such file, or a link, pipe or device")
    need(path.stat().st_size <= 2**30, NotCheckable(f"{path.name} has more than a gigabyte"))
    return path.read_bytes()

def check_format(run):
    """Read the statement, if it has a version that this file knows."""
    need((run.folder / "statement.json").exists(), NotCheckable("there is no statement.json in this folder"))
    doc = strict_json(read(run.folder / "statement.json"))
    known = doc["format"] == "discreet privacy statement" and doc["version"] in (5, 6)
    report("format and version", [doc["format"], doc["version"]], "versions 5 and 6", known or None)
    run.doc = doc if known else None

def check_files(run):
    """Compare the hashes of all named files. Links, unnamed files and unnamed folders differ."""
    files, conf, present = run.doc["files"], run.doc["configuration"], {}
    free = {"statement.json", *PAGES}  # files without a stated hash, and files that may be missing
    for path in run.folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            present[path.relative_to(run.folder).as_posix()] = path.is_file() and not path.is_symlink()
    for name in sorted({*present, *free, *files}):
        optional = name in free or name in ("signatures.json", "judged.jsonl", "postprocessing.jsonl")
        stated = files.get(name, "a file" if optional else "not named")
        found = sha256(read(run.folder / name)) if present.get(name) else "no such file, or not a regular one"
        report(f"file {name}", stated, found, found == stated or (stated == "a file" and name in present))
    kept = without(run.doc, "operator", "approval", "fingerprint")
    equal("fingerprint", run.doc["fingerprint"], sha256(canonical(kept)))
    found = sha256(canonical({name: conf[name] for name in ("algorithm", "options")}))
    equal("hash of the configuration", conf["hash"], found)


# 2. Closed forms

# Tanh-sinh rule on (0, 1): nodes (1 + tanh s)/2 with s = pi/2 sinh u, for which ds/du = sqrt(s^2 + pi^2/4).
NODES = [(1.0 / (1.0 + math.exp(-2.0 * s)), math.hypot(s, math.pi / 2.0) / math.cosh(s) ** 2 / 192.0)
         for s in (math.pi / 2.0 * math.sinh(i / 96.0) for i in range(-384, 385))]

def gaussian_delta(mu, epsilon):
    """Return delta(epsilon) of mu-Gaussian privacy.

    delta = Phi(-a) - e^epsilon Phi(-a - mu) with a = epsilon/mu - mu/2. Phi(-a) is phi(a) times the integral
    over t > 0 of exp(-a t - t^2/2). So delta is phi(a) times that of exp(-a t - t^2/2) (1 - exp(-mu t)).
    """
    a = epsilon / mu - mu / 2.0
    end = max(0.0, -a) + 40.0 / max(1.0, a)
    return 0.0 if a > 40.0 else end / math.sqrt(2.0 * math.pi) * math.fsum(
        w * math.exp(-0.5 * (a + x * end) ** 2) * -math.expm1(-mu * x * end) for x, w in NODES)

def bisect(good, low, high, steps=64):
    """Return the end of the interval at which ``good`` holds, where it fails at low and holds at high."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if good(middle) else (middle, high)
    return high

def gaussian_epsilon(mu, delta):
    """Return the smallest epsilon >= 0 at which mu-Gaussian privacy has this delta."""
    high = mu * mu / 2.0 + mu * math.sqrt(2.0 * math.log(1.0 / delta))  # Chernoff bound of P(L > epsilon)
    return bisect(lambda e: gaussian_delta(mu, e) <= delta, 0, high) if gaussian_delta(mu, 0) > delta else 0.0

def zcdp_epsilon(rho, delta):
    """Return the smallest epsilon of rho-zCDP at delta > 0: the best Renyi order is 1 + t.

    epsilon(t) = (1 + t) rho + ln(t / (1 + t)) + (g - ln(1 + t)) / t with g = ln(1/delta). Its derivative
    vanishes where rho t^2 + ln(1 + t) = g.
    """
    g = -math.log(delta)
    t = bisect(lambda t: rho * t * t + math.log1p(t) >= g, 0.0, math.sqrt(g / max(rho, 1e-300)))
    return max(0.0, (2.0 * t + 1.0) * rho - math.log1p(1.0 / t))

def zcdp_delta(rho, epsilon):
    """Return the smallest delta of rho-zCDP at epsilon.

    ln delta(t) = t ((1 + t) rho - epsilon) + t ln t - (1 + t) ln(1 + t) is convex in t > 0.
    """
    top = (epsilon + 1.0) / rho
    t = bisect(lambda t: (1.0 + 2.0 * t) * rho - epsilon - math.log1p(1.0 / t) >= 0.0, 0.0, top)
    return min(1.0, math.exp(t * ((1 + t) * rho - epsilon) + t * math.log(t) - (1 + t) * math.log1p(t)))


# 3. Listed exchanges

def fft(x, roots):
    """Return the Fourier transform of n = 2^k values; ``roots`` are the first n/2 powers of e^(-2 pi i/n)."""
    if len(x) == 1:
        return x
    even, odd = fft(x[::2], roots[::2]), [w * b for w, b in zip(roots, fft(x[1::2], roots[::2]))]
    return [a + b for a, b in zip(even, odd)] + [a - b for a, b in zip(even, odd)]

def normalised(logs):
    """Return {value: probability} from {value: logarithm of a multiple}, without negligible values."""
    top = max(logs.values())
    mass = {x: math.exp(log - top) for x, log in logs.items() if log > top - 90.0}
    total = math.fsum(mass.values())
    return {x: p / total for x, p in mass.items()}

def binomial(n, p, points):
    """Return {value: probability} of successes in n trials, on a lattice with that many points a deviation.

    A sum of smooth values over such a lattice agrees with the whole sum, with an error of e^(-20 points^2).
    """
    deviation = math.sqrt(n * p * (1.0 - p))
    ends = max(0, int(n * p - 12 * deviation - 20)), min(n, int(n * p + 12 * deviation + 40))
    odds = math.log(p) - math.log1p(-p)
    return normalised({k: k * odds - math.lgamma(k + 1) - math.lgamma(n - k + 1)
                       for k in range(ends[0], ends[1] + 1, max(1, int(deviation / points)))})

def clones(users, own):
    """Return (loss, probability) of n shuffled responses, each locally private with epsilon ``own``.

    Each other user sends a clone with probability e^-own (arXiv 2012.12803, theorem 3.1): C ~ Bin(n - 1,
    e^-own). A ~ Bin(C, 1/2) of them are of the first kind. The outcome is (A + D, C - A + 1 - D), where D = 1
    has odds e^own : 1 for one record, and 1 : e^own for the other. So P / P' at (a, b) is (q a + r b) /
    (r a + q b), with q = e^own / (e^own + 1) and r = 1 - q.
    """
    q, law = 1.0 / (1.0 + math.exp(-own)), []
    for c, weight in binomial(users - 1, math.exp(-own), 8).items():
        for k, p in binomial(c, 0.5, 200).items():
            law += [(math.log((q * a + (1 - q) * b) / ((1 - q) * a + q * b)), weight * p * odds)
                    for a, b, odds in ((k + 1, c - k, q), (k, c - k + 1, 1 - q))]
    return law

def flips(scale, shift):
    """Return (loss, probability) of a counter with binomial noise that moves by ``shift`` flips.

    N flips are 1 with probability p; if they are paired, half of them with q = 1 - p instead. The ratio r(k)
    = P(k + 1) / P(k) is (N - k) p / ((k + 1) q). The generating function of paired flips is ((q + p z)(p + q
    z))^(N/2). Its logarithmic derivative gives p q (k + 1) r(k) = (p^2 + q^2)(N/2 - k) + p q (N - k + 1) /
    r(k - 1).
    Outcomes that the other record cannot have are left out: their probability is added to delta.
    """
    number, p, paired = scale
    need(number <= 10**6, NotCheckable("more than a million flips"))
    q, ratio, steps = 1.0 - p, math.inf, []
    for k in range(number // 2 if paired else number):
        ratio = ((p * p + q * q) * (number / 2 - k) / (p * q) + (number - k + 1) / ratio if paired else
                 (number - k) * p / q) / (k + 1)
        steps.append(math.log(ratio))
    steps += [-one for one in reversed(steps)] if paired else []
    logs = [*itertools.accumulate(steps, initial=0.0)]
    return [(logs[x] - logs[x - shift], mass) for x, mass in normalised(dict(enumerate(logs))).items()
            if 0 <= x - shift <= number]

@functools.cache
def losses(noise, scale, shift):
    """Return (loss, probability) of one coordinate that a neighbour moves by ``shift`` grid units.

    Laplace noise with shift 1 has the worst law of a pure epsilon = 1/scale: loss +-epsilon, odds e^epsilon.
    Wide Gaussian noise on every n-th point has the same losses, to 1e-8: its sums are smooth.
    """
    if noise in ("flips", "clones"):
        return flips(scale, shift) if noise == "flips" else clones(scale, shift)
    if noise == "discrete_gaussian":
        step, most = max(1, int(scale / 4000.0)), math.ceil(12.0 * scale) + shift
        mass = normalised({x: -0.5 * (x / scale) ** 2 for x in range(-most // step * step, most + 1, step)})
        return [(shift * (shift - 2 * x) / (2.0 * scale * scale), p) for x, p in mass.items()]
    t, lead = math.exp(-1.0 / scale), -math.expm1(-1.0 / scale)
    mass = [(0, 1.0), (shift, t**shift)] + [(x, lead * t**x) for x in range(1, shift)]
    return [((shift - 2 * x) / scale, p / (1.0 + t)) for x, p in mass]

def way_of(way):
    """Return a listed way {(noise, scale, shift): count}; equal coordinates are added."""
    terms = collections.Counter()
    for noise, scale, shift, count in way:
        known = noise in ("discrete_gaussian", "discrete_laplace", "flips") and shift == int(shift)
        need(known and count >= 1, f"exchange {noise, scale, shift, count}: not known here")
        terms[noise, scale, int(shift)] += count
    return terms

def listed_ways(record):
    """Return all listed ways to exchange a record, for randomness of a shuffler too."""
    if record["kind"] == "amplified":
        return [collections.Counter({("clones", *batch): 1}) for batch in record["batches"]]
    if record["kind"] == "flips":  # exchanged the other way round, a record moves counters the other way
        noises = [{name: (users * each, coin / 2**32, paired) for name, users, each, coin, paired in batch}
                  for batch in record["batches"]]
        return [way_of(("flips", noise[name], sign * by, count) for name, by, count in way)
                for noise in noises for way in record["ways"] for sign in (1, -1)]
    pure = [[("discrete_laplace", 1.0 / record["joint"], 1, record["levels"])]]  # no law is worse
    return [way_of(way) for way in record["exchanges"] or (pure if "laplace" in record["noise"] else [])]

def on_grid(laws, n, h, theta, centre):
    """Put laws of losses on a grid of n points i h. Returns a function of a way.

    Each loss is split between its two neighbours on the grid so that E[1] and E[e^-L] are kept. The split law
    dominates the true one, so every delta is an upper bound. Probabilities are tilted by e^{theta L} before
    the transform, so that rounding errors are small relative to the tail beyond epsilon.
    """
    low, size, down, transforms = round(centre / h) - n // 4, 3 * n // 4, math.expm1(-h), {}
    roots = [cmath.exp(-2j * math.pi * i / n) for i in range(n // 2)]
    for key, law in laws.items():
        cells = [0j] * n
        for loss, p in law:
            i = math.floor(loss / h)
            up = min(1.0, max(0.0, math.expm1(i * h - loss) / down)) * p
            cells[i % n] += (p - up) * math.exp(theta * i * h)
            cells[(i + 1) % n] += up * math.exp(theta * (i + 1) * h)
        total = math.fsum(z.real for z in cells)
        transforms[key] = fft([z / total for z in cells], roots), math.log(total)
    def curve_of(way):
        """Return delta(epsilon): P(L > epsilon) - e^epsilon E[e^-L; L > epsilon], by sums from above; ends.

        Probability that is missing in the distributions is added, because its loss is infinite.
        """
        whole, log_mass, over, under = [1.0] * n, 0.0, [0.0], [0.0]
        for key, count in way.items():
            transform, log_total = transforms[key]
            whole, log_mass = [a * z**count for a, z in zip(whole, transform)], log_mass + count * log_total
        lost = math.fsum(count * (1.0 - math.fsum(p for _, p in laws[key])) for key, count in way.items())
        mass = fft(whole, roots)  # in reverse order
        for i in range(low + size - 1, low - 1, -1):
            p = max(0.0, mass[-i % n].real / n) * math.exp(log_mass - theta * i * h)
            over.append(over[-1] + p)
            under.append(under[-1] + p * math.exp(min(700.0, centre - i * h)))
        def delta(epsilon):
            k = min(size, max(0, low + size - 1 - math.floor(epsilon / h)))
            return over[k] - math.exp(min(700.0, epsilon - centre)) * under[k] + max(0.0, lost - 1e-15)
        return delta, low * h, (low + size) * h
    return curve_of

def exchange_epsilon(ways, delta, stated, sizes=(2**14, 2**15)):
    """Return (upper bound, Richardson limit) of the largest epsilon of the listed ways, and a bound on delta.

    The error of epsilon is proportional to h^2. All ways are compared on small grids, the worst on fine ones.
    The grid contains the widest lattice of losses, i.e. all multiples of its unit.
    """
    laws = {key: losses(*key) for key in sorted({key for way in ways for key in way})}
    means = {key: math.fsum(p * loss for loss, p in law) for key, law in laws.items()}
    squares = {key: math.fsum(p * (loss - means[key]) ** 2 for loss, p in law) for key, law in laws.items()}
    mean, variance = (max(math.fsum(n * part[key] for key, n in way.items()) for way in ways)
                      for part in (means, squares))
    most = (abs(loss) for law in laws.values() for loss, p in law if p > 1e-16)
    width = 24.0 * math.sqrt(variance) + 2.0 * max(most)
    units = [0.5 * shift / scale**2 if noise == "discrete_gaussian" else "laplace" in noise and 1.0 / scale
             for noise, scale, shift in laws]  # 0 for flips and clones: their losses are on no lattice
    unit = min(units)  # of the finest lattice if all others are multiples, else of the widest
    fits = unit * sizes[0] > 8.0 * width and all(abs(u / unit - round(u / unit)) < 1e-9 for u in units)
    theta = min(max(0.0, (stated - mean) / variance), 500.0 / width)
    unit, sizes = unit if fits else max(units), (2**12, 2**13, *sizes)
    steps = [unit / max(1, math.floor(unit * n / width)) if unit * n > width else width / n for n in sizes]
    grids = [on_grid(laws, n, h, theta, stated) for n, h in zip(sizes, steps)]
    def limit_of(way, first):
        law = laws[min(way)]
        if sum(way.values()) == 1 and len(law) <= 30_000:  # one coordinate: its losses need no grid
            def curve(e):
                return 1.0 - 1e-15 - math.fsum(p * math.exp(min(0.0, e - loss)) for loss, p in law)
            return *[bisect(lambda e: curve(e) <= delta, 0.0, max(law)[0] + stated + 1.0)] * 2, curve
        curves = [grid(way) for grid in grids[first : first + 2]]
        coarse, fine = (bisect(lambda e: curve(e) <= delta, low, high, 60) for curve, low, high in curves)
        ratio = (steps[first] / steps[first + 1]) ** 2
        return (ratio * fine - coarse) / (ratio - 1.0), fine, curves[1][0]
    rough = [limit_of(way, 0) for way in ways]
    best = max(one[0] for one in rough)
    near_best = [way for way, one in zip(ways, rough) if one[0] >= best - 1e-4 * abs(best)]
    limit, upper = max(limit_of(way, 2)[:2] for way in near_best)
    return upper, limit, lambda e: max(one[2](e) for one in rough)


# 4. Sensitivity from the query

def ways_of(steps):
    """Return the reachable triples (different pairs, same pair and other successor, all equal) over H steps.

    The automaton has two states: both records are in one state, or in two. From one state, a step is a
    different action (then one or two states), an equal action with another successor (then two), or equal.
    From two states, the pairs differ. So different pairs lie between any two changes of the successor only.
    """
    return {(d, o, steps - d - o) for d in range(steps + 1) for o in range(min(steps - d, d + 1) + 1)}

def count_sensitivity(query, p, scales):
    """Return the joint sensitivity of counts or of first visits, in units of the scales; p is 1 or 2.

    Counts move by 1 in each of two cells. A reward in [0, 1] moves its cell by at most 1 if both records are
    in it; otherwise two cells move by at most 1 each, or 1/2 if 1/2 is subtracted. Costs are p-th powers.
    First visits: a user visits at most m different states; the costliest difference may occur in each.
    """
    v, t, raw, centred = (scales.get(name, math.inf) ** -p for name in FAMILIES)
    costs = 2.0 * (v + t + raw + 0.5**p * centred), 2.0 * t + raw + centred, raw + centred
    known = set(scales) <= {*FAMILIES} and not (query["pooled"] and p == 2)
    need(known, f"families {sorted(scales)}, or pooled steps: not known")
    most = min(query["states"], query["steps"]) * max(costs) if query["first"] else max(
        sum(n * cost for n, cost in zip(way, costs)) for way in ways_of(query["steps"]))
    return query["episodes"] * most ** (1.0 / p)

def question_cost(weights, features, states, centred, p):
    """Return the cost of one question about linear sums: a loss (p = 1) or a squared loss (p = 2).

    A user adds x x' (Gram), x y (response, rewards; the range of y has length 1) or x (e_s - 1/S) (next
    states), with |x| <= B and |x|_1 <= l1. Let t be the cosine of both vectors; t >= 0 if x >= 0.
    Squared changes, p = 2:

    - Gram, upper triangle with twice the variance on the diagonal: (1 - t^2) B^4
    - y centred: (1 + |t|)/2 B^2. y in [0, 1]: the larger of 2 (1 - t) B^2 and B^2
    - next states: 2 (1 - 1/S) (1 - t) B^2 if equal, 2 (1 - 1/S + t/S) B^2 if different
    - start states: 2

    Changes for p = 1:

    - Gram: l1^2 + B^2
    - y centred: l1. Other y: 2 l1
    - next states: 4 l1 (1 - 1/S)
    - start states: 2
    """
    kinds = ("gram", "successors", "start", "response", "rewards")
    g, s, start, *rest = (weights.get(kind, 0.0) for kind in kinds)
    r, b, l1, other = sum(rest), features["bound"], features["l1"], 1.0 - 1.0 / states
    need(set(weights) <= {*kinds}, f"sums {sorted(weights)}: not known here")
    if p == 1:
        return g * (l1**2 + b**2) + r * l1 * (1.0 if centred else 2.0) + 4.0 * s * l1 * other + 2.0 * start
    g, r, s, low = g * b**4, r * b**2, 2.0 * s * b**2, 0.0 if features["nonneg"] else -1.0
    def cost(t):
        y = 0.5 * (1.0 + abs(t)) if centred else max(2.0 * (1.0 - t), 1.0)
        return g * (1.0 - t * t) + r * y + s * max(other * (1.0 - t), other + t / states) + 2.0 * start
    slopes = [y + z for y in (-2.0 * r, -0.5 * r, 0.0, 0.5 * r) for z in (-s * other, s / states)]
    tops = [min(1.0, max(low, slope / (2.0 * g))) for slope in slopes] if g else []
    # a maximum is at an end, a kink, or a stationary point
    return max(map(cost, (low, 0.0, 0.5, 1.0, *tops)))

def linear_sensitivity(query, p, scales):
    """Return the joint sensitivity of linear sums: costs of questions add up over each half of the users."""
    weights, totals = collections.defaultdict(dict), collections.Counter()
    for name, scale in scales.items():
        number, _, part = name.partition(".")
        weights[int(number)][part.partition("[")[0]] = 1.0 / scale**p
    for number, parts in weights.items():
        one = query["questions"][number]
        cost = question_cost(parts, query["features"], query["states"], one["centre"] or one["low"] < 0, p)
        totals.update(dict.fromkeys((0, 1) if one["half"] is None else (one["half"],), cost))
    return query["episodes"] * max(totals.values()) ** (1.0 / p)

def sensitivity(query, record, scales):
    """Return the joint sensitivity of a record's kind of noise, in units of the scales."""
    find = linear_sensitivity if query["kind"] == "linear sums" else count_sensitivity
    return find(query, 1 if "laplace" in record["noise"] else 2, scales)

def sum_of(query, family):
    """Return the noisy sum, as records name it, of a released family; None if it follows from others."""
    number, _, part = family.partition(".")
    if query["kind"] != "linear sums" or not part:  # contexts: a table for each action, a visit adds to one
        return family if query["kind"] != "linear sums" else f"0.{family.partition(' ')[0]}"
    if part == "vector":
        part = "start" if query["questions"][int(number)]["kind"] == "start" else "response"
    return None if part in ("values", "weights") else f"{int(number)}.{part}"

def check_query(doc, query, records):
    """Compare the query with the population, and the noisy sums of all records with the released families."""
    p, first, contexts = doc["population"], query["kind"] == "first visits", "gram 0" in query["families"]
    need(query["kind"] in ("counts", "first visits", "linear sums"), f"kind {query['kind']}: not known here")
    visits = doc["configuration"]["options"].get("learner", {}).get("visits")
    found = {"steps": p["horizon"] + first, "states": p["states"] + first,
             "episodes": visits if contexts else p["episodes_per_user"], "first": first}
    if contexts or one_hot(query):
        l1 = query["families"]["gram 0"]["cells"] ** 0.25 if contexts else 1.0  # root of the dimension
        found["features"] = {**query["features"], "bound": 1.0, "l1": l1, "nonneg": not contexts}
    same_parts("query", query, found)
    for one in records:
        equal("sums with noise, and with a sensitivity", [*one["scales"]], [*one["sensitivities"]])
    stated = sorted(name.partition("[")[0] for one in records for name in one["scales"])
    needed = {sum_of(query, family) for family in query["families"]} - {None} if records else ()
    equal("sums with noise", stated, sorted(needed))

def check_sensitivities(run):
    """Compare sensitivities, joint sensitivities and exchanges of all records with the query."""
    query, records = run.doc.get("query"), [one["record"] for one in run.doc["mechanisms"]]
    known = query is not None and all(one["kind"] == "noise" for one in records)
    need(known or not records, NotCheckable("the query or this kind of record is not described"))
    if query is not None:
        check_query(run.doc, query, records)
    for record in records:
        for family, stated in record["sensitivities"].items():
            near(f"sensitivity of {family}", stated, sensitivity(query, record, {family: 1.0}))
        joint = sensitivity(query, record, record["scales"])
        near("joint sensitivity, in units of the noise", record["joint"], joint)
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
        return report("exchanges are complete", "ways are listed", f"unknown for {query['kind']}", None)
    def shifts_of(way):
        shifts = collections.defaultdict(list)
        for noise, scale, shift, n in way:
            shifts[noise, round(scale, 6)] += [shift] * n
        return {key: sorted(values, reverse=True) for key, values in shifts.items()}
    def dominated(needed, way):
        return all(a >= b for key, values in needed.items()
                   for a, b in itertools.zip_longest(way.get(key, ()), values, fillvalue=0.0))
    listed, wrong = [shifts_of(way) for way in record["exchanges"]], []
    units = {name: 1.0 / query["families"][name]["grid"] for name in record["scales"]}
    for d, o, e in ways_of(query["steps"]):
        moved = {VISITS: {1.0: 2 * d}, TRANSITIONS: {1.0: 2 * (d + o)}, RAW: {1.0: 2 * d + o + e},
                 CENTRED: {1.0: o + e, 0.5: 2 * d}}
        needed = shifts_of((record["noise"], units[name] * scale, units[name] * x, n)
                           for name, scale in record["scales"].items() for x, n in moved[name].items())
        wrong += [] if any(dominated(needed, way) for way in listed) else [(d, o, e)]
    report("exchanges are complete", f"{len(listed)} ways", f"not covered: {wrong[:3]}", not wrong)


# 6. Guarantee, attacker, words, totals

def composed(records):
    """Return (pure epsilon or None, rho, mu or None) of mechanisms on the same users.

    A pure epsilon has rho = epsilon tanh(epsilon/2). If exchanges are listed, each coordinate has its own
    pure epsilon = shift/scale, independent noise adds its rho, and the worst way counts.
    """
    rho, noises = 0.0, {one["noise"] if one["kind"] == "noise" else None for one in records}
    if not noises <= {"laplace", "discrete_laplace", "gaussian", "discrete_gaussian"}:
        return None, None, None
    for one in records:
        ways = one["exchanges"] or [[(None, 1.0, one["levels"] * one["joint"], 1)]]
        rho += one["levels"] * one["joint"] ** 2 / 2.0 if "gaussian" in one["noise"] else max(math.fsum(
            n * shift / scale * math.tanh(shift / scale / 2.0) for _, scale, shift, n in way) for way in ways)
    pure = math.fsum(one["levels"] * one["joint"] for one in records)
    mu = math.sqrt(2.0 * rho) if noises == {"gaussian"} else None
    return pure if noises <= {"laplace", "discrete_laplace"} else None, rho, mu

NORMAL = statistics.NormalDist()

@functools.cache
def zcdp_power(rho, f=None):
    """Return the largest true positive rate at rate f of false positives (None: f = 1 - t) under rho-zCDP.

    Each Renyi divergence of order a between Bernoulli laws with means t and f is at most a rho, both ways.
    """
    def divergence(a, t):
        q = 1.0 - t if f is None else f
        if not (0.0 < t < 1.0 and 0.0 < q < 1.0):
            return math.inf if t != q else 0.0
        logs = (sorted(a * math.log(x / y) + math.log(y) for x, y in ((p, r), (1.0 - p, 1.0 - r)))
                for p, r in ((t, q), (q, t)))
        return max(high + math.log1p(math.exp(low - high)) for low, high in logs) / (a - 1.0)
    best, low = 1.0, 0.5 if f is None else f
    for i in range(401):  # in an order in which few improve the best
        a = 1.0 + 10.0 ** (-4.0 + (i * 157 % 401) / 40.0)
        if divergence(a, best * (1.0 - 1e-15)) > a * rho:
            best = bisect(lambda t: divergence(a, t) > a * rho, low, best, 60)
    return best

class Bounds:
    """Bounds on attackers by pairs (epsilon, delta), mu of Gaussian privacy, rho of zCDP; the least holds."""

    def __init__(self, points=(), mu=None, rho=None):
        self.points, self.mu, self.rho = [q for q in points if q[1] < 1.0], mu, rho
        self.pure = min((e for e, d in self.points if d == 0.0), default=None)

    def power(self, f):
        found = [1.0, *(math.exp(min(e, 700.0)) * f + d for e, d in self.points)]
        found += [1.0 - math.exp(-e) * (1.0 - d - f) for e, d in self.points]
        found += [] if self.mu is None else [NORMAL.cdf(NORMAL.inv_cdf(f) + self.mu)]
        return max(f, min(found if self.rho is None else [*found, zcdp_power(self.rho, f)]))

    def excess(self, epsilon):
        """Return an upper bound on P(E) - e^epsilon P'(E) over all events E."""
        found = [1.0] + [d + (1.0 - d) * max(0.0, -math.expm1(min(0.0, epsilon - e))) / (1.0 + math.exp(-e))
                         for e, d in self.points]
        found += [] if self.mu is None else [gaussian_delta(self.mu, epsilon)]
        found += [] if self.rho is None else [zcdp_delta(self.rho, epsilon)]
        found += [2.0 * zcdp_power(self.rho) - 1.0] if self.rho is not None and epsilon == 0.0 else []
        return min(found)

    def table(self):
        power, pure = {f: self.power(f) for f in (0.01, 0.05, 0.1)}, self.pure
        return {"advantage": self.excess(0.0), "tests": [
            {"false_positives": f, "true_positives": t} for f, t in power.items()], "priors": [
            {"prior": p, "right_guess": 1.0 - p + p * self.excess(math.log((1.0 - p) / p)),
             "posterior_of_any_outcome": None if pure is None else p / (p + (1 - p) * math.exp(-pure)),
             "posteriors": [{"false_positives": f, "posterior": p * t / (p * t + (1 - p) * f)}
                            for f, t in power.items()]} for p in (0.5, 0.1, 0.01)]}

    def group(self, k):
        """Return the bounds for k records at once: (k e, delta (e^{ke} - 1)/(e^e - 1)), k mu, k^2 rho."""
        points = [(k * e, d * sum(math.exp(min(700.0, i * e)) for i in range(k))) for e, d in self.points]
        return Bounds(points, self.mu and k * self.mu, self.rho and k**2 * self.rho)

    def epsilon(self, delta):
        found = [e for e, d in self.points if d <= delta]
        for value, find in ((self.mu, gaussian_epsilon), (self.rho, zcdp_epsilon)):
            found += [find(value, delta)] if value is not None and delta else []
        return min(found, default=None)

def exceedance(curve, epsilon):
    """Return the minimum over t < epsilon of curve(t) / (1 - e^(t - epsilon)), a bound on P(L > epsilon).

    It holds since delta(t) = E[(1 - e^(t - L))+] >= (1 - e^(t - epsilon)) P(L > epsilon).
    """
    def smallest(low, high):
        points = [low + i * (high - low) / 60.0 for i in range(60)]
        return min((curve(t) / -math.expm1(t - epsilon), t) for t in points)
    middle, step = smallest(0.0, epsilon)[1], epsilon / 60.0
    return smallest(max(0.0, middle - step), min(middle + step, epsilon))[0]

def check_second_group(doc):
    """Check noise and users of a second group.

    Each of its users gives a vector of length 1, and its loss is at most that of the release.
    """
    first, other, name = doc["mechanisms"][0], doc["second_group"], "clipped_answers"
    one, mine = other["mechanism"], f"{other['users_of_release']} in the release, and {other['users']} whose"
    record, share = one["record"], doc["configuration"]["options"].get("judge_share", other["share"])
    found = {"kind": "noise", "noise": first["record"]["noise"], "sensitivities": {name: 2.0}, "levels": 1,
             "joint": 2.0 / record["scales"][name], "exchanges": [], "scales": {name: record["scales"][name]},
             "loss": record["joint"], "share": share}
    same_tree("second group", {**record, "loss": one["loss"], "share": other["share"]}, {**record, **found})
    near("second group: loss, and that of the release", record["joint"], first["loss"], 1e-3)
    check_families(one, doc["guarantee"]["randomness"] == "secure")
    equal("users of both groups", doc["population"]["users"], other["users"] + other["users_of_release"])
    equal("covered: both groups", mine in str(doc["covered"]), True)

def check_guarantee(run):
    """Recompute epsilon, rho, mu and ``exceeds`` from the records. Sets bounds on its attackers."""
    g, records = run.doc["guarantee"], [one["record"] for one in run.doc["mechanisms"]]
    equal("records, stated twice", g["mechanisms"], records)
    if g["epsilon"] is None:
        run.alone = Bounds()
        return equal("records of an exact release", records, [])
    (pure, rho, mu), epsilon, delta, low, high = composed(records), g["epsilon"], g["delta"], 0.0, 0.0
    shuffled = kinds_of(records) in (["flips"], ["amplified"])
    need(records and (shuffled or rho is not None), NotCheckable(f"records of kind {kinds_of(records)}"))
    if run.doc.get("second_group"):
        check_second_group(run.doc)
    for one, record in () if shuffled else zip(run.doc["mechanisms"], records):
        power = 1.0 if "laplace" in record["noise"] else 0.5
        near("loss of a mechanism", one["loss"], record["joint"] * record["levels"] ** power)
        rho = rho if power == 0.5 else None
    same_parts("guarantee", g, {"mu": mu, "rho": rho})
    if shuffled or (delta and any(one["exchanges"] for one in records)):
        low, high = check_numerical("epsilon", records, delta, epsilon)
    elif rho is not None:
        law = (zcdp_epsilon, zcdp_delta, rho) if mu is None else (gaussian_epsilon, gaussian_delta, mu)
        near("epsilon, closed form", epsilon, law[0](law[2], delta))
        low = high = exceedance(functools.partial(law[1], law[2]), epsilon)
    else:
        near("epsilon, sum of pure losses", epsilon, pure)
    near("exceeds: epsilon", g["exceeds"]["epsilon"], epsilon)
    most = g["exceeds"]["at_most"]
    report("exceeds: at most", most, f"{low} to {high}", most == 1 or low * 0.999 <= most <= high * 1.011)
    run.alone = Bounds([(epsilon, delta)] + ([(pure, 0.0)] if delta and pure is not None else []), mu, rho)

def kinds_of(records):
    """Return the kinds of records: noise, flips or amplified; others are not known here."""
    return sorted({one["kind"] for one in records})

def check_numerical(name, records, delta, stated):
    """Compare epsilon with the listed exchanges, in all combinations. Returns bounds on P(L > epsilon)."""
    ways = [collections.Counter()]
    for record in records:
        sums = [a + b for a in ways for b in listed_ways(record)]
        ways = [*{frozenset(one.items()): one for one in sums}.values()][:101]
    if not 0 < len(ways) <= 100 or delta < 1e-13:
        report(f"{name}, numerical", stated, "no list of exchanges, more than 100, or a tiny delta", None)
        return 0.0, 1.0
    upper, limit, curve = exchange_epsilon(ways, delta, stated)
    pure, rho, _ = composed(records)
    limit = limit if pure is None else min(limit, pure)  # the grid is too coarse for a large pure epsilon
    by_rho = 0.0 if name == "epsilon" or rho is None else zcdp_epsilon(rho, delta)  # for totals
    good = limit * (1.0 - 2e-6) <= stated <= max(limit, by_rho) * 1.005
    report(f"{name}, numerical", stated, f"limit {limit!r}, upper bound {upper!r}", good)
    low = exceedance(curve, stated) if name == "epsilon" else 0.0
    return low, 2.0 * low

def check_attacker(run):
    """Recompute the attacker's tables and the groups. Sets bounds, epsilon and delta of all releases."""
    doc, alone, t = run.doc, run.alone, (run.doc["ledger"] or {}).get("together")
    several = bool(t) and t["reservations"] > 1
    run.epsilon, run.delta = map((t if several else doc["guarantee"]).get, ("epsilon", "delta"))
    points = [(run.epsilon, run.delta), (t["pure"], 0.0)] if several else []
    run.whole = Bounds([one for one in points if one[0] is not None], t["mu"], t["rho"]) if several else alone
    same_tree("alone", doc["alone"], alone.table() if several else None)
    same_tree("attacker", doc["attacker"], run.whole.table())
    for group, k in zip(doc["groups"], (2, 5, 10), strict=True):
        many = run.whole.group(k)
        found = {"people": k, "epsilon": many.epsilon(run.delta), "delta": run.delta,
                 "rho": many.rho, "mu": many.mu, "advantage": many.excess(0.0)}
        same_tree(f"group of {k}", group, found)

UNITS = (("one episode, the whole trajectory", "one user's whole trajectory is replaced by any other one"), (
    "up to {} episodes, the whole trajectories",
    "all of one user's episodes, up to {}, are replaced by any others, more or fewer"))

def check_population(run):
    """Compare population and data with ``schema.toml``, and facts that the statement gives twice."""
    doc, schema = run.doc, {"provenance": {}, **tomllib.loads(read(run.folder / "schema.toml").decode())}
    p, g, reward = doc["population"], doc["guarantee"], doc["data"]["reward"]
    parts = {k: schema[k] if isinstance(schema.get(k), dict) else {} for k in ("states", "actions", "reward")}
    names = ("dataset", "unit", "horizon", "episodes_per_user", "contribute", "provenance")
    same_parts("schema.toml", p, {name: schema.get(name, p[name]) for name in names} | {
        k: len(parts[k].get("labels", [])) or parts[k].get("count", p[k]) for k in ("states", "actions")})
    ends = {name: float(parts["reward"].get(name, reward[name])) for name in ("low", "high")}
    same_parts("schema.toml: reward", reward, ends)
    m = p["episodes_per_user"]
    equal("users are public, episodes", [p["users_public"], m], [g["users_public"], g["episodes"]])
    unit, change = (words.format(m) for words in UNITS[m != 1])
    same_parts("guarantee", g, {"unit": f"one user: {unit} of states, actions and rewards",
                                "neighbours": f"{change}; the number of users stays the same"})
    size, secure = g["delta"] * p["users"], g["randomness"] == "secure"
    verdict = "none" if g["epsilon"] is None else "warn" if size > 0.1 else "small" if size else "pure"
    found = {"delta": g["delta"], "per_user": 1 / p["users"], "ratio": size, "verdict": verdict}
    same_tree("delta", doc["delta"], found)
    equal("holds if the seed is guessed", g["holds_if_seed_is_guessed"], secure and g["epsilon"] is not None)
    for one in doc["mechanisms"]:
        check_families(one, secure)

def check_families(one, secure):
    """Compare the families of a mechanism with its record, and the source of its noise with the stated."""
    record, system = one["record"], one["source_of_randomness"].startswith("operating system")
    discrete = str(record.get("noise", "discrete")).startswith("discrete")  # flips have no other noise
    equal("secure: noise and source", [discrete, system], [secure, secure])
    equal("families", [f["family"] for f in one["families"]], list(record.get("scales", {})))
    for f in one["families"]:
        name, root = f["family"], math.sqrt(2.0) if "laplace" in record["noise"] else 1.0
        found = record["scales"][name], record["sensitivities"][name], root * record["scales"][name]
        same_tree(f"family {name}", [f["scale"], f["sensitivity"], f["std"]], [*found])

NOT_COVERED = (
    "The raw data where they are stored", "Messages about invalid rows",
    "Whether a person is in the data set", "Conclusions about people in general", "Side channels:",
    "More than one person at once")
COVERED = (
    "One ", "Everything that is computed from release.parquet", "The group of the ",
    "If a person has more than ", "People are in two groups: ")

def in_words(what, pattern, text, value, slack=1.011, needed=True):
    """Check that each number that a pattern finds is a value, rounded up by at most a factor ``slack``."""
    for said in re.findall(pattern, text) or ([""] if needed else []):
        power, digits = re.fullmatch(r"(e\^)?(.*?)\.*", said.replace(",", "")).groups()
        least, number = math.log(value) if power else value, float(digits or "nan")  # e^x is rounded up
        good = least * (1 - 1e-9) <= number and (power or number <= value * slack + 1e-300)
        report(f"in words: {what}", said, value, good)

def check_sentence(run):
    """Compare numbers in the sentence with the bounds of all releases together, and of this one alone."""
    sentence, g, several = run.doc["sentence"], run.doc["guarantee"], run.whole is not run.alone
    whole, alone = (run.epsilon, run.delta, run.whole), (g["epsilon"], g["delta"], run.alone)
    equal("sentence: its parts", sentence.count("For this release alone:"), int(several))
    for text, (e, d, bounds) in zip(sentence.split("For this release alone:"), (whole, alone)):
        factor = math.exp(700.0 if e is None else min(700.0, e))
        in_words("how many times as likely", r"at most ([e^\d.,]+) times(?: what|, plus|; a)", text, factor)
        right = 100.0 * bounds.table()["priors"][0]["right_guess"]
        in_words("right guesses in 100", r"right at most ([\d.]+) times in 100", text, right, 1.002)
        one_in = [1 / int(n.replace(",", "")) for n in re.findall(r"plus 1 in ([\d,]+)", text)]
        good = len(one_in) == (d > 0) and all(d <= n <= 1.5 * d for n in one_in)
        report("in words: plus 1 in ...", one_in, d, good)
    for sign, value in (("ε", g["epsilon"]), ("δ", g["delta"]), ("ρ", g["rho"])):
        in_words(sign, rf"{sign} = (\d[\d.e+-]*\d|\d)", g["statement"], value or 0.0, needed=False)

def check_words(run):
    """Compare numbers in the sentence, required warnings and limits, and the pages with the statement."""
    doc, g, p, ledger = run.doc, run.doc["guarantee"], run.doc["population"], run.doc["ledger"]
    exact, several, warnings = g["epsilon"] is None, run.whole is not run.alone, doc["warnings"]
    if exact or doc["synthetic"]:
        words = "No person's data" if doc["synthetic"] else "NOT PROTECTED"
        report("sentence", doc["sentence"][:60], words, words in doc["sentence"])
    else:
        check_sentence(run)
    warned = {"SYNTHETIC DATA": doc["synthetic"], "SEEDED NOISE": g["randomness"] == "seeded",
              "NO LEDGER": not ledger, "NO PRIVACY GUARANTEE": exact,
              "NEW LEDGER": bool(ledger) and ledger["new"],
              "times 1/users": doc["delta"]["verdict"] == "warn",
              "RELEASES of the same": several and not exact,
              "NO LIMIT": bool(ledger) and ledger["after"]["limit_epsilon"] is None,
              "THIS DATA": "this data" in p["provenance"].values()}
    same_tree("warning", {words: any(words in one for one in warnings) for words in warned}, warned)
    later = f"after entry {ledger['number']} of this ledger" if ledger else "NO LEDGER was kept"
    needed = [*NOT_COVERED, later]
    needed += [f"The number of people, {p['users']}"] if p["users_public"] and not exact else []
    for words in needed + ([repr(ledger["dataset"])] if ledger else []):
        equal(f"not covered: {words}", any(words in one for one in doc["not_covered"]), True)
    known = COVERED if doc.get("second_group") else COVERED[:-1]
    others = [one for one in doc["covered"] if not one.startswith(known)]
    report("covered: known lines", known, others, not others)
    kinds = kinds_of([one["record"] for one in doc["mechanisms"]])
    other = "sites" in doc["configuration"]["options"] or kinds not in ([], ["noise"])
    trust = g["trust"] == ("none" if exact else "central")
    report("trust", g["trust"], "central", None if other and not trust else trust)
    flat = functools.partial(re.sub, r"[\s\\]+|<[^<>]*>", "")
    for name in PAGES:
        page = read(run.folder / name).decode()
        plain, texts = html.unescape(flat(page)), [doc["sentence"], *warnings]
        texts += doc["covered"] + doc["not_covered"] if name == PAGES[0] else []
        lacking = [text for text in texts if flat(text) not in plain]
        report(f"{name}: sentences of the statement", len(texts), lacking[:2], not lacking)
        check_numbers(name, page, doc)

def check_report(run):
    """Compare users, level, guarantee of the report with the statement; its first line with its verdict."""
    doc, (text, page) = run.doc, (read(run.folder / name).decode() if name in run.doc["files"] else ""
                                  for name in ("report.json", "report.md"))
    users = doc["population"]["users"] - (doc["second_group"]["users"] if doc.get("second_group") else 0)
    level, said = doc["configuration"]["options"].get("level"), strict_json((text or "{}").encode())
    found = {"users": users, "level": level, "guarantee": doc["guarantee"]["statement"]}
    same_tree("report.json", {key: said.get(key, value) for key, value in found.items()}, found)
    if "guarantee" in said and page:
        equal("report.md: first line", page.splitlines()[0], f"**{said['verdict']}**")

def check_numbers(name, page, doc):
    """Check that each decimal number of a page is one of the statement, 100 times it, or e to it, rounded."""
    numbers = re.sub(r'"(?:[^"\\]|\\.)*"|true|false', "", canonical(doc))
    values = map(float, re.findall(r"[-+.eE\d]+", numbers))
    known, wrong = [x for v in values for x in (v, 100.0 * v, math.exp(v) if 0 < v < 700 else v)], []
    body = re.split(r"Files and hashes|(?:## |>)Glossary", page)[0]
    body = html.unescape(re.sub(r"<style>[^<]*|</?[a-z][^<>]*>", " ", body))
    for said in set(re.findall(r"(?<![\w.:+^-])\d+\.\d+(?:e[+-]?\d+)?(?![\w:+-]|\.\d)", body)):
        digits, _, power = said.partition("e")
        unit = 1.001 * 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
        wrong += [] if any(abs(float(said) - value) <= unit for value in known) else [said]
    report(f"{name}: numbers", "in the statement", wrong[:5], not wrong)

def read_ledger(path):
    """Return rows (text or None, hash) of a ledger: the SQLite file, its export, or ``ledger.jsonl``."""
    data = read(path)
    if data[:15] == b"SQLite format 3":
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT text, hash FROM entries ORDER BY number").fetchall()
    return [(row.get("text"), row["hash"]) for row in map(strict_json, data.splitlines())]

def check_entries(rows):
    """Check hashes, numbers, order and signatures of a ledger. Returns its entries with text.

    An entry without text is known by its hash only: the next entry with text confirms the hash, not the text.
    """
    entries, previous, time = [], "", ""
    for number, (text, digest) in enumerate(rows, 1):
        if text is not None:
            entry = strict_json(text.encode())
            chain = [canonical(entry), sha256(text), entry["number"], entry["previous"]]
            good = chain == [text, digest, number, previous] and entry["time"] >= time
            report(f"ledger: entry {number}", digest, sha256(text), good)
            entries, time = [*entries, {**entry, "hash": digest}], entry["time"]
        previous = digest
    return entries

def check_ledger(run):
    """Check the chain of entries, recompute the totals of the dataset, and compare the entry of the run."""
    doc, stated, users = run.doc, run.doc["ledger"], run.doc["population"]["users"]
    path = run.ledger or (run.folder / "ledger.jsonl" if "ledger.jsonl" in doc["files"] else None)
    if stated is None:
        return
    needed = "query" in doc and not doc["replanned"]
    need(path, "no ledger.jsonl" if needed else NotCheckable("no ledger is given"))
    rows = read_ledger(pathlib.Path(path).resolve())
    entries = check_entries(rows)
    own = next((one for one in entries if one["hash"] == stated["head"]), None)
    if own is None or entries[0]["kind"] != "begin":
        return report("ledger: entry of the run, after its beginning", stated["head"], "not here", False)
    mine = {"kind": "reserve", "users": users, "time": doc["date"], "purpose": doc["purpose"],
            "records": [one["record"] for one in doc["mechanisms"]], "number": stated["number"],
            "dataset": stated["dataset"], "identity": stated["identity"],
            "parallel": [doc["second_group"]["mechanism"]["record"]] if doc.get("second_group") else None}
    found = {name: own.get(name) for name in mine} | {"identity": entries[0]["identity"]}
    equal("ledger: entry", mine, found)
    hidden = [text for text, _ in rows[: own["number"]]].count(None)  # of these data, or of others
    report("ledger: entries without text", 0, hidden, not hidden or None)
    new = own["number"] == min(one["number"] for one in entries if one["kind"] == "reserve")
    report("ledger: new", stated["new"], new, stated["new"] == new or (hidden and not stated["new"]))
    for one in entries:
        if one["kind"] in ("limit", "owner") and one.get("signature"):
            signed = {**without(one, "signature", "hash"), "ledger": stated["identity"]}
            good = verified(one["key"], f"discreet {one['kind']}, 1", signed, one["signature"])
            equal(f"ledger: signature of entry {one['number']}", good, True)
    marks = [one["files"] for one in entries if one["kind"] == "mark" and one["reservation"] == own["number"]]
    for mark in marks[:1]:
        found = doc["files"] | {"statement.json": doc["fingerprint"]} | dict.fromkeys(PAGES)
        names = KEPT if doc["replanned"] else {*mark, *found}
        tables = mark | dict.fromkeys(PAGES), found
        same_tree("ledger: mark", *({name: one[name] for name in names & {*one}} for one in tables))
    past = [one for one in entries if one["dataset"] == own["dataset"] and one["number"] <= own["number"]]
    limit = next((one for one in reversed(past) if one["kind"] == "limit"), {})
    keys = [limit.get("key") or None, *(one.get("to") for one in past if one["kind"] == "owner")]
    reserved = [one for one in past if one["kind"] == "reserve"]
    for part in ("before", "after", "together"):
        t, total = stated[part], check_total(doc, part, reserved[:-1] if part == "before" else reserved)
        if part != "together":
            ends = [limit.get("epsilon"), limit.get("delta")]
            equal(f"{part}: limit", [t["limit_epsilon"], t["limit_delta"]], ends)
            report(f"{part}: key of the limit", t["limit_key"], keys, t["limit_key"] in keys)
    if limit and own["checked"]:
        used = total.epsilon(limit["delta"]) or math.inf
        used = min(used, own["epsilon"]) if len(reserved) == 1 else used
        report("within the owner's limit", limit["epsilon"], used, used <= limit["epsilon"] * (1 + 1e-6))

def check_total(doc, part, reserved):
    """Compare a total of the ledger with the records of its reservations. Returns bounds on attackers."""
    t, records = doc["ledger"][part], [record for one in reserved for record in one["records"]]
    (pure, rho, mu), delta = composed(records), t["delta"]
    shuffled = len(reserved) == 1 and kinds_of(records) in (["flips"], ["amplified"])
    need(rho is not None or shuffled, NotCheckable(f"totals {part}: records of kind {kinds_of(records)}"))
    total, epsilon = Bounds([] if pure is None else [(pure, 0.0)], mu, rho), t["epsilon"]
    if [records, epsilon, delta] != [doc["guarantee"][key] for key in ("mechanisms", "epsilon", "delta")]:
        if shuffled or str(t.get("method", t.get("rule"))).startswith("numerical"):
            check_numerical(part, records, delta, epsilon)
        else:
            epsilon = total.epsilon(delta)
    found = {"reservations": len(reserved), "pure": pure, "rho": rho, "mu": mu, "epsilon": epsilon}
    same_parts(part, t, found)
    return total


# 7. Ed25519 (RFC 8032) in integers, on the curve -x^2 + y^2 = 1 + d x^2 y^2

Q, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT = -121665 * pow(121666, -1, Q) % Q, pow(2, (Q - 1) // 4, Q)

def add(p, q):
    """Add two points (x, y)."""
    (a, b), (c, d) = p, q
    t = D * a * b * c * d  # neither 1 nor -1: no number has the square D
    return (a * d + b * c) * pow(1 + t, -1, Q) % Q, (b * d + a * c) * pow(1 - t, -1, Q) % Q

def multiply(n, p):
    """Return n times a point p."""
    return add(multiply(n >> 1, add(p, p)), p if n & 1 else (0, 1)) if n else (0, 1)

def point_of(data):
    """Return the point of 32 bytes; None if y is not below 2^255 - 19 or no x exists."""
    odd, y = divmod(int.from_bytes(data, "little"), 2**255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, Q) % Q
    root = pow(square, (Q + 3) // 8, Q)  # of square or of -square
    roots = [x for z in (root, root * ROOT) for x in (z % Q, -z % Q) if x * x % Q == square and x & 1 == odd]
    return (roots[0], y) if roots and y < Q else None

BASE = point_of((4 * pow(5, -1, Q) % Q).to_bytes(32, "little"))

def ed25519(key, message, signature):
    """Return whether [S]B = R + [k]A with k = SHA-512(R, A, message), S below the order, canonical points."""
    a, r, s = point_of(key), point_of(signature[:32]), int.from_bytes(signature[32:], "little")
    if (len(key), len(signature)) != (32, 64) or None in (a, r) or s >= ORDER:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    return multiply(s, BASE) == add(r, multiply(k, a))

def verified(key, kind, content, signature):
    """Return whether the signature of a document is valid. Key and signature are hexadecimal digits."""
    return ed25519(bytes.fromhex(key), f"{kind}\n{canonical(content)}".encode(), bytes.fromhex(signature))

def check_signatures(run):
    """Check every signature of ``signatures.json``, and that each of the given keys has signed."""
    path, signed = run.folder / "signatures.json", set()
    entries = strict_json(read(path))["signatures"] if path.exists() else []
    hashes = {name: sha256(read(run.folder / name)) for name in ("statement.json", *PAGES)}
    for one in entries:
        good = verified(one["key"], "discreet statement, 1", without(one, "signature"), one["signature"])
        same = one["fingerprint"] == run.doc["fingerprint"] and one["files"] == hashes
        found = f"valid: {good}, of these files: {same}"
        report(f"signature of {one['name']}", one["key"], found, good and same)
        signed.update([one["key"]] if good and same else [])
    equal("keys that signed once", len(entries), len({one["key"] for one in entries}))
    for key in run.keys:
        report("signed with the given key", key, sorted(signed), key in signed)


# 8. Noise of the release

def gamma_lower(a, x):
    """Return the regularised lower incomplete gamma function, by its power series."""
    if x <= 0.0 or x > a + 40.0 * math.sqrt(a) + 40.0:
        return float(x > 0.0)
    terms = itertools.accumulate(range(1, 3000), lambda term, n: term * x / (a + n), initial=1.0 / a)
    return min(1.0, math.fsum(terms) * math.exp(a * math.log(x) - x - math.lgamma(a)))

def read_release(path):
    """Return (header, {family: {(step, indices): value}}) of ``release.csv``."""
    lines, tables = read(path).decode().splitlines(), {}
    for line in (one for one in lines if not one.startswith(("# ", "family,"))):
        family, *place, value = line.split(",")
        place, table = tuple(int(part) for part in place if part), tables.setdefault(family, {})
        need(place not in table and math.isfinite(float(value)), f"{path}: cell {line} twice, or not finite")
        table[place] = float(value)
    return dict(line[2:].partition("=")[::2] for line in lines if line.startswith("# ")), tables

def relations_of(query, tables):
    """Return linear relations {(family, cell): coefficient} that are 0 before noise is added.

    Visits of a pair are the sum of its transitions. Transitions into a state are those out of it a step
    later.
    If features are one-hot, a Gram matrix is diagonal, and the sums of e_s - 1/S over next states s are 0.
    """
    found = collections.defaultdict(collections.Counter)
    for place in tables.get(TRANSITIONS, {}):
        h, s, a, to = place
        if (h, s, a) in tables.get(VISITS, {}):
            found[h, s, a][VISITS, (h, s, a)], found[h, s, a][TRANSITIONS, place] = 1.0, -1.0
        for key, sign in (((h + 1, to), 1.0), ((h, s), -1.0)):
            if 0 < key[0] < query["steps"] and query["kind"] == "counts":
                found[key][TRANSITIONS, place] += sign
    for family in tables if one_hot(query) else ():  # one feature of a pair is 1; successors are e_s - 1/S
        size = {"gram": 4, "successors": 3}.get(family.rpartition(".")[2], 0)
        for place in tables[family] if size else ():
            if size == 3 or place[1] < place[2]:
                found[(family, *place)[:size]][family, place] = 1.0
    return [found[key] for key in sorted(found, key=len)]  # relations of transitions alone come first

def one_hot(query):
    """Return whether the hash of the features is that of a table (states, actions, pairs) with a 1 a pair."""
    n = query["states"] * query["actions"] if query["kind"] == "linear sums" else 0
    if not 0 < n <= 1000:
        return False
    table = (b"\0\0\0\0\0\0\xf0?" + bytes(8 * n)) * n  # 1.0 in 8 bytes, then n zeros
    shape = f"({query['states']}, {query['actions']}, {n})".encode()
    return query["features"].get("sha256") == sha256(shape + table[: 8 * n * n])

@functools.cache
def moments(noise, scale):
    """Return variance and kurtosis of noise, and its chance to be 0. ``scale`` is in units of the grid.

    Discrete noise with a large scale has the variance and the kurtosis of continuous noise.
    """
    laplace = "laplace" in noise
    if "discrete" not in noise or scale > 10.0:
        return (1.0 + laplace) * scale**2, 3.0 + 3.0 * laplace, 0.0
    mass = normalised({x: -abs(x / scale) if laplace else -0.5 * (x / scale) ** 2 for x in range(-999, 1000)})
    second, fourth = (math.fsum(p * x**k for x, p in mass.items()) for k in (2, 4))
    return second, fourth / max(second**2, 1e-300), mass[0]

def check_users(query, tables, users, noise, scales):
    """Compare the number of users with the cells to which each of their episodes adds 1 in a step."""
    start = query["states"] - 1  # first visits have this state, in which each episode begins
    grams = [one for one in tables if one.endswith(".gram") and one.replace("gram", "weights") not in tables]
    for family in [*(grams if one_hot(query) else ()), *tables.keys() & {TRANSITIONS}]:
        gram, table, laplace = family != TRANSITIONS, tables[family], "laplace" in noise
        half = gram and query["questions"][int(family[:-5])]["half"] is not None
        part, steps = users / 2 if half else users, len({place[0] for place in table})
        cells = [value for place, value in table.items()
                 if (place[1] == place[2] if gram else query["kind"] == "counts" or place[1] == start)]
        variance = (1 + gram) * (1 + laplace) * len(cells) * scales[family] ** 2 / steps**2
        # a half of the users is drawn: its size varies
        spread = (12 if laplace else 6) * math.sqrt(variance + half * users) + 1e-6
        mean = math.fsum(cells) / steps
        good = part - spread <= mean <= part * query["episodes"] + spread
        report(f"users in {family}", part, f"{mean:.1f} episodes in a step, +- {spread:.1f}", good)

def check_noise(run):
    """Check header, cells and grid of ``release.csv``, the number of users, and the size of the noise."""
    doc, query = run.doc, run.doc.get("query")
    small = query is not None and sum(one["cells"] for one in query["families"].values()) <= 10**6
    absent = "there is no release.csv" if small else NotCheckable("release.parquet cannot be read here")
    need("release.csv" in doc["files"], absent)
    header, tables = read_release(run.folder / "release.csv")
    g, p, records = doc["guarantee"], doc["population"], [one["record"] for one in doc["mechanisms"]]
    users = p["users"] - (doc["second_group"]["users"] if doc.get("second_group") else 0)
    equal("release.csv: facts", {"dataset": p["dataset"], "users": str(users), "trust": g["trust"],
          "randomness": g["randomness"], "synthetic": json.dumps(doc["synthetic"])}, header)
    cells = {name: one["cells"] for name, one in query["families"].items()}
    equal("release.csv: cells", cells, {name: len(table) for name, table in tables.items()})
    for family, one in query["families"].items():
        units = [value / one["grid"] for value in tables[family].values()] if one["grid"] else []
        equal(f"release.csv: {family} off its grid", 0, sum(abs(unit - round(unit)) > 1e-6 for unit in units))
    if query["kind"] != "linear sums":
        sizes = [1 + max(place[i] for place in tables[TRANSITIONS]) for i in (0, -1)]
        equal("release.csv: steps, states", [1 if query["first"] else query["steps"], query["states"]], sizes)
    if records:
        need(all(one["kind"] == "noise" for one in records), NotCheckable("records of another kind"))
        check_size(query, tables, users, records)

def check_size(query, tables, users, records):
    """Test that no family has less noise than stated, and that the number of users fits."""
    noise, scales, noises = records[0]["noise"], {}, {}
    stated = {name.partition("[")[0]: scale for one in records for name, scale in one["scales"].items()}
    for family, one in query["families"].items():
        scale, unit = stated.get(sum_of(query, family), 0.0), one["grid"] or 1e-9
        variance, kurtosis, zero = moments(noise, scale / unit) if scale else (0.0, 3.0, 1.0)
        scales[family], noises[family] = scale, (variance * unit**2, kurtosis, zero)
        if scale >= unit and not family.endswith((".vector", ".rewards")):
            # |value| is least, in distribution, if the sum is 0 without noise. Gram matrices are symmetric.
            half = (kurtosis - 1.0) * (2.0 if "gram" in family else 1.0)
            squares = math.fsum((abs(v) + 0.5 * unit) ** 2 for v in tables[family].values())
            below = gamma_lower(one["cells"] / half, squares / (variance * unit**2) / half)
            report(f"values not below the noise: {family}", "as stated", f"P = {below:.3g}", below >= 1e-9)
    check_users(query, tables, users, noise, scales)
    check_relations([one for one in relations_of(query, tables) if len(records) == 1], tables, noises)

def check_relations(relations, tables, noises):
    """Test the noise of sums that are 0 without it. ``noises`` has variance, kurtosis, chance of 0 by family.

    The squares of standardised sums are compared with a gamma law: their variance is at most kurtosis - 1.
    """
    relations = [one for one in relations if all(noises[family][0] for family, _ in one)]
    relations, groups, solved = relations[:: max(1, math.ceil(len(relations) / 160))], {"all": []}, []
    cells = {key for one in relations for key in one}
    if math.prod(noises[family][2] for family, _ in cells) > 5e-7:  # 1 without relations
        found = "no sum is 0 without noise, or even no noise would be likely: not tested"
        return report("size of the noise", "as stated", found, None)
    share = max(noises[family][1] for family, _ in cells) - 1.0
    for i, relation in enumerate(relations):  # Cholesky factor of the covariance, row by row
        row = []
        for j in range(i + 1):
            shared = math.fsum(c * relations[j].get(k, 0.0) * noises[k[0]][0] for k, c in relation.items())
            rest = shared - math.fsum(x * y for x, y in zip(row, solved[j][0] if j < i else row))
            row.append(math.sqrt(max(rest, 1e-12)) if i == j else rest / solved[j][0][j])
        value = math.fsum(c * tables[family][place] for (family, place), c in relation.items())
        solved.append((row, (value - math.fsum(x * s[1] for x, s in zip(row, solved))) / row[i]))
        for name in ("all", " and ".join(sorted({key[0].rpartition(".")[2] for key in relation}))):
            groups.setdefault(name, []).append(solved[i][1] ** 2)
    chances = {name: gamma_lower(len(some) / share, math.fsum(some) / share) for name, some in groups.items()}
    found = [f"{name}: {len(some)} relations, mean square {statistics.fmean(some):.4g}, P = {p:.3g}"
             for (name, some), p in zip(groups.items(), chances.values())]
    good = min(chances.values()) >= 5e-7 and 1.0 - chances["all"] >= 1e-12
    report("size of the noise", "as stated", "; ".join(found), good)

PARTS = (check_format, check_files, check_population, check_guarantee, check_attacker, check_words,
         check_report, check_sensitivities, check_noise, check_ledger, check_signatures)

def verify(folder, ledger=None, keys=()):
    """Run all checks on a folder. Returns the list of results."""
    RESULTS.clear()
    run = argparse.Namespace(folder=pathlib.Path(folder), ledger=ledger, keys=keys, doc=None, alone=None)
    for part in itertools.takewhile(lambda part: run.doc is not None or part is check_format, PARTS):
        try:
            part(run)
        except Exception as error:  # a forged folder may raise any
            able = type(error) is not NotCheckable
            unable = not able or (part in (check_attacker, check_words) and run.alone is None)
            found = str(error) if isinstance(error, ValueError) else repr(error)
            stated = "can be read and checked" if able else "can be checked"
            report(part.__name__[6:], stated, found, None if unable else False)
    return RESULTS

def summary(results):
    """Return what agrees, what was not checked and what is wrong, in plain words, and the exit status."""
    good, unable, wrong = ([one[0] for one in results if one[3] == kind]
                           for kind in ("agrees", "not checkable", "DIFFERS"))
    lines = [f"{len(good)} of {len(results)} checks agree, {len(unable)} were not possible, "
             f"{len(wrong)} differ."]
    for words, names in (("Not checked", [*dict.fromkeys(unable)]), ("Wrong", [*dict.fromkeys(wrong)])):
        names[8:] = [f"and {len(names) - 8} more"] if len(names) > 8 else []
        lines += [f"{words}: {'; '.join(names)}."] if names else []
    status = 1 if wrong else 2 if unable else 0
    verdict = ("All agree. No file can prove that noise was drawn as stated.",
               "Do not rely on this statement.", "Nothing differs, but not everything was checked.")[status]
    return "\n".join([*lines, verdict]), status

def main(arguments=None):
    """Check a folder, print each check and a summary, and return the exit status: 0, 1 or 2."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--ledger", metavar="FILE")
    parser.add_argument("--public-key", action="append", default=[], metavar="HEX")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    results = verify(given.folder, given.ledger, given.public_key)
    plain = (f"{one[3]:14} {one[0]}: stated {one[1]}, found {one[2]}" for one in results)
    rows = (dict(zip(("check", "stated", "found", "result"), one)) for one in results)
    words, status = summary(results)
    print(json.dumps([*rows], indent=1, default=str) if given.json else "\n".join([*plain, "", words]))
    return status

if __name__ == "__main__":
    sys.exit(main())
