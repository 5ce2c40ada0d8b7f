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

import argparse, cmath, collections, decimal, functools, hashlib, html, itertools
import json, math, pathlib, re, sqlite3, statistics, sys, tomllib

RESULTS = []
PAGES = ("statement.md", "officer.md", "officer.html")
NEEDED = {"statement.json", *PAGES}  # without a stated hash
OPTIONAL = {*NEEDED, "signatures.json", "judged.jsonl", "postprocessing.jsonl"}
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

def same(name, stated, found, tolerance=1e-9):
    """Compare JSON values entry by entry. Numbers that are not both integers have a relative tolerance."""
    kinds = {type(stated), type(found)}
    if kinds == {list} and len(stated) == len(found):
        same(name, dict(enumerate(stated)), dict(enumerate(found)), tolerance)
    elif kinds == {dict} and set(stated) == set(found):
        for key in stated:
            same(f"{name}.{key}", stated[key], found[key], tolerance)
    elif kinds <= {int, float, Number} and kinds != {int}:
        # an advantage is about sqrt(rho/2), and rounding errors are relative to rho
        more = min(1e-3, 1e-12 / max(found, 1e-12) ** 2) if name.endswith("advantage") else 0.0
        report(name, stated, found, math.isclose(stated, found, rel_tol=tolerance + more, abs_tol=1e-300))
    else:
        report(name, stated, found, len(kinds) == 1 and stated == found)

def same_parts(name, stated, found):
    """Compare those entries of a table that ``found`` has."""
    same(name, {key: stated[key] for key in found}, found)


# 1. Files, strict JSON, hashes

class Number(float):
    """Float of a JSON file that keeps its text."""

    def __init__(self, text):
        self.text = need(math.isfinite(self), f"{text} is too large for a number", text)

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

def regular(path):
    """Return whether a path is a file, and not a link, folder, pipe or device."""
    return path.is_file() and not path.is_symlink()

def read(path):
    """Return the bytes of a regular file of at most a gigabyte. Refuses links, folders, pipes and devices."""
    need(regular(path), f"{path.name}: no such file, or a link, pipe or device")
    need(path.stat().st_size <= 2**30, NotCheckable(f"{path.name} has more than a gigabyte"))
    return path.read_bytes()

def check_format(run):
    """Read the statement, if it has a version that this file knows."""
    need((run.folder / "statement.json").exists(), NotCheckable("there is no statement.json in this folder"))
    doc = strict_json(read(run.folder / "statement.json"))
    known = doc["format"] == "discreet privacy statement" and doc["version"] in (5, 6)
    report("format and version", [doc["format"], doc["version"]], "versions 5 and 6", known or None)
    if known:
        run.doc, run.records = doc, [one["record"] for one in doc["mechanisms"]]
        run.users = doc["population"]["users"] - (doc.get("second_group") or {"users": 0})["users"]

def check_files(run):
    """Compare the hashes of all named files. Links and unnamed files differ."""
    files, conf, paths = run.doc["files"], run.doc["configuration"], run.folder.rglob("*")
    present = {p.relative_to(run.folder).as_posix() for p in paths if p.is_symlink() or not p.is_dir()}
    for name in sorted({*present, *NEEDED, *files}):
        stated, good = files.get(name, "a file" if name in OPTIONAL else "not named"), name in present
        good = good and regular(run.folder / name)
        found = sha256(read(run.folder / name)) if good else "no such file, or not a regular one"
        report(f"file {name}", stated, found, found == stated or (stated == "a file" and good))
    kept = without(run.doc, "operator", "approval", "fingerprint")
    same("fingerprint", run.doc["fingerprint"], sha256(canonical(kept)))
    found = canonical({name: conf[name] for name in ("algorithm", "options")})
    same("hash of the configuration", conf["hash"], sha256(found))


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
    r(k - 1). Up to N/2, this recursion forgets where it began; beyond, r(k) = 1 / r(N - 1 - k).
    Outcomes that the other record cannot have are left out: their probability is added to delta. So are
    those beyond 16 standard deviations, whose probability is negligible.
    """
    number, p, paired = scale
    need(number <= 10**6, NotCheckable("more than a million flips"))
    q, steps, ratio, middle = 1.0 - p, {}, math.inf, number * (0.5 if paired else p)
    width = 16.0 * math.sqrt(number * p * q) + 40.0
    low, high = max(0, int(middle - width)), min(number, int(middle + width))
    for k in range(low, high):
        if paired and 2 * k >= number:
            steps[k] = -steps[number - 1 - k]
        else:
            ratio = ((p * p + q * q) * (middle - k) / (p * q) + (number - k + 1) / ratio if paired else
                     (number - k) * p / q) / (k + 1)
            steps[k] = math.log(ratio)
    logs = dict(enumerate(itertools.accumulate(steps.values(), initial=0.0), low))
    return [(logs[x] - logs[x - shift], mass) for x, mass in normalised(logs).items() if x - shift in logs]

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
    low, size, down = round(centre / h) - n // 4, 3 * n // 4, math.expm1(-h)
    roots = [cmath.exp(-2j * math.pi * i / n) for i in range(n // 2)]
    @functools.cache
    def transform(key):
        """Return the transform of a tilted law divided by its sum, and the sum's logarithm."""
        cells = [0j] * n
        for loss, p in laws[key]:
            i = math.floor(loss / h)
            up = min(1.0, max(0.0, math.expm1(i * h - loss) / down)) * p
            cells[i % n] += (p - up) * math.exp(theta * i * h)
            cells[(i + 1) % n] += up * math.exp(theta * (i + 1) * h)
        total = math.fsum(z.real for z in cells)
        return fft([z / total for z in cells], roots), math.log(total)
    def curve_of(way):
        """Return delta(epsilon): P(L > epsilon) - e^epsilon E[e^-L; L > epsilon], by sums from above; ends.

        Probability that is missing in the distributions is added, because its loss is infinite.
        """
        whole, log_mass, over, under = [1.0] * n, 0.0, [0.0], [0.0]
        for key, count in way.items():
            waves, log_total = transform(key)
            whole, log_mass = [a * z**count for a, z in zip(whole, waves)], log_mass + count * log_total
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
    ends = sorted({low, 0.0, 0.5, 1.0})  # of pieces on which the cost is a parabola with curvature -2 g
    tops = [min(b, max(a, 0.5 * (a + b) + (cost(b) - cost(a)) / (b - a) / (2.0 * g)))
            for a, b in itertools.pairwise(ends)] if g else []
    return max(map(cost, (*ends, *tops)))

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
    p, first, families = doc["population"], query["kind"] == "first visits", query["families"]
    need(query["kind"] in ("counts", "first visits", "linear sums"), f"kind {query['kind']}: not known here")
    contexts, visits = "gram 0" in families, doc["configuration"]["options"].get("learner", {}).get("visits")
    found = {"steps": p["horizon"] + first, "states": p["states"] + first, "first": first,
             "episodes": visits if contexts else p["episodes_per_user"]}
    if contexts or one_hot(query):
        l1 = families["gram 0"]["cells"] ** 0.25 if contexts else 1.0  # root of the dimension
        found["features"] = {**query["features"], "bound": 1.0, "l1": l1, "nonneg": not contexts}
    same_parts("query", query, found)
    for one in records:
        names = [*one["scales"]], [*one["sensitivities"]]
        report("sums with noise, and with a sensitivity", *names, names[0] == names[1])
    stated = sorted(name.partition("[")[0] for one in records for name in one["scales"])
    needed = sorted({sum_of(query, family) for family in families} - {None}) if records else []
    report("sums with noise", stated, needed, stated == needed)

def check_sensitivities(run):
    """Compare sensitivities, joint sensitivities and exchanges of all records with the query."""
    query = run.doc.get("query")
    known = query is not None and kinds_of(run.records) == ["noise"]
    need(known or not run.records, NotCheckable("the query or this kind of record is not described"))
    if query is not None:
        check_query(run.doc, query, run.records)
    for record in run.records:
        find = linear_sensitivity if query["kind"] == "linear sums" else count_sensitivity
        find = functools.partial(find, query, 1 if "laplace" in record["noise"] else 2)
        found = {name: find({name: 1.0}) for name in record["sensitivities"]}
        same_parts("record", record, {"sensitivities": found, "joint": find(record["scales"]), "levels": 1})
        if record["exchanges"]:
            check_complete(query, record)


# 5. Exchanges are complete

def check_complete(query, record):
    """Check that each reachable way to exchange a record is dominated by a listed one.

    A way is dominated if its coordinates can be matched with coordinates of the listed way that have the same
    noise and an equal or larger shift. So for each shift, the listed way needs as many that are as large.
    """
    if query["kind"] != "counts" or query["episodes"] != 1 or query["pooled"]:
        return report("exchanges are complete", "ways are listed", f"unknown for {query['kind']}", None)
    def number(way, noise, scale, shift, _):
        """Return how many coordinates of a way have this noise and at least this shift."""
        return sum(n for kind, width, by, n in way
                   if kind == noise and by >= shift and math.isclose(width, scale, rel_tol=1e-9))
    units, wrong = {name: 1.0 / query["families"][name]["grid"] for name in record["scales"]}, []
    for d, o, e in ways_of(query["steps"]):
        moved = {VISITS: [(1.0, 2 * d)], TRANSITIONS: [(1.0, 2 * (d + o))], RAW: [(1.0, 2 * d + o + e)],
                 CENTRED: [(1.0, o + e), (0.5, 2 * d)]}
        needed = [(record["noise"], units[name] * scale, units[name] * x, n)
                  for name, scale in record["scales"].items() for x, n in moved[name]]
        wrong += [] if any(all(number(way, *one) >= number(needed, *one) for one in needed if one[3])
                           for way in record["exchanges"]) else [(d, o, e)]
    report("exchanges are complete", len(record["exchanges"]), f"not covered: {wrong[:3]}", not wrong)


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
    def smallest(low, high):  # not at 0: another bound holds there only
        points = [low + (i + 1e-6) * (high - low) / 60.0 for i in range(60)]
        return min((curve(t) / -math.expm1(t - epsilon), t) for t in points)
    middle, step = smallest(0.0, epsilon)[1], epsilon / 60.0
    return smallest(max(0.0, middle - step), min(middle + step, epsilon))[0]

def check_second_group(doc):
    """Check noise and users of a second group.

    Each of its users gives a vector of length 1, and its loss is at most that of the release.
    """
    first, other, name = doc["mechanisms"][0], doc["second_group"], "clipped_answers"
    one, both = other["mechanism"], (other["users_of_release"], other["users"])
    record, scale = one["record"], one["record"]["scales"][name]
    found = {"kind": "noise", "noise": first["record"]["noise"], "sensitivities": {name: 2.0}, "levels": 1,
             "joint": 2.0 / scale, "exchanges": [], "scales": {name: scale}, "loss": record["joint"],
             "share": doc["configuration"]["options"].get("judge_share", other["share"])}
    same("second group", {**record, "loss": one["loss"], "share": other["share"]}, {**record, **found})
    same("second group: loss, and that of the release", record["joint"], first["loss"], 1e-3)
    check_families(one, doc["guarantee"]["randomness"] == "secure")
    same("users of both groups", doc["population"]["users"], sum(both))
    same("covered: both groups", "{} in the release, and {} whose".format(*both) in str(doc["covered"]), True)

def kinds_of(records):
    """Return the kinds of records: noise, flips or amplified; others are not known here."""
    return sorted({one["kind"] for one in records})

def proven(records):
    """Return bounds that follow from all records on the same users, and whether they are of a shuffler."""
    (pure, rho, mu), shuffled = composed(records), kinds_of(records) in (["flips"], ["amplified"])
    need(rho is not None or shuffled, NotCheckable(f"records of kind {kinds_of(records)}"))
    return Bounds([] if pure is None else [(pure, 0.0)], mu, rho), shuffled

def check_guarantee(run):
    """Recompute epsilon, rho, mu and ``exceeds`` from the records. Sets bounds on its attackers."""
    g, records = run.doc["guarantee"], run.records
    same("records, stated twice", g["mechanisms"], records)
    lines = [one["description"] for one in (() if g.get("kinds") else run.doc["mechanisms"])]
    report("composition: descriptions", lines, g["composition"], g["composition"][: len(lines)] == lines)
    if g["epsilon"] is None:
        run.alone = Bounds()
        return same("number of records of an exact release", len(records), 0)
    need(records, NotCheckable("no records"))
    (bounds, shuffled), epsilon, delta, low, high = proven(records), g["epsilon"], g["delta"], 0.0, 0.0
    if run.doc.get("second_group"):
        check_second_group(run.doc)
    for one, record in () if shuffled else zip(run.doc["mechanisms"], records):
        power = 1.0 if "laplace" in record["noise"] else 0.5
        same("loss of a mechanism", one["loss"], record["joint"] * record["levels"] ** power)
        bounds.rho = bounds.rho if power == 0.5 else None  # pure losses are added
    same_parts("guarantee", g, {"mu": bounds.mu, "rho": bounds.rho})
    if shuffled or (delta and any(one["exchanges"] for one in records)):
        low, high = check_numerical("epsilon", records, delta, epsilon)
    else:
        same("epsilon, closed form", epsilon, bounds.epsilon(delta))
        low = high = exceedance(bounds.excess, epsilon) if bounds.rho is not None else 0.0
    asked = (run.doc["configuration"]["options"].get("privatizer") or {}).get("epsilon")
    if not run.doc["replanned"]:
        same("epsilon that was asked for", g["epsilon_nominal"], asked)
    same("exceeds: epsilon", g["exceeds"]["epsilon"], epsilon)
    most = g["exceeds"]["at_most"]
    report("exceeds: at most", most, f"{low} to {high}", most == 1 or low * 0.999 <= most <= high * 1.011)
    run.alone = Bounds([(epsilon, delta), *bounds.points], bounds.mu, bounds.rho)

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
    doc, t = run.doc, (run.doc["ledger"] or {}).get("together")
    run.several = bool(t) and t["reservations"] > 1
    run.epsilon, run.delta = map((t if run.several else doc["guarantee"]).get, ("epsilon", "delta"))
    points = [one for one in ((run.epsilon, run.delta), (t["pure"], 0.0)) if one[0] is not None] if t else []
    run.whole = Bounds(points, t["mu"], t["rho"]) if run.several else run.alone
    same("alone", doc["alone"], run.alone.table() if run.several else None)
    same("attacker", doc["attacker"], run.whole.table())
    for group, k in zip(doc["groups"], (2, 5, 10), strict=True):
        many = run.whole.group(k)
        same(f"group of {k}", group, {
            "people": k, "epsilon": many.epsilon(run.delta), "delta": run.delta, "rho": many.rho,
            "mu": many.mu, "advantage": many.excess(0.0)})

PLAIN = ("dataset", "unit", "horizon", "episodes_per_user", "contribute")
ONE = ("one episode, the whole trajectory", "one user's whole trajectory is replaced by any other one")
MANY = ("up to {} episodes, the whole trajectories",
        "all of one user's episodes, up to {}, are replaced by any others, more or fewer")

def check_population(run):
    """Compare population and data with ``schema.toml``, and facts that the statement gives twice."""
    doc, schema = run.doc, tomllib.loads(read(run.folder / "schema.toml").decode())
    p, g, reward = doc["population"], doc["guarantee"], doc["data"]["reward"]
    tables = {k: one for k, one in schema.items() if isinstance(one, dict)}
    found = {k: schema.get(k, p[k]) for k in PLAIN} | {"provenance": tables.get("provenance", {})}
    for name in ("states", "actions"):
        table = tables.get(name, {})
        found[name] = len(table.get("labels", [])) or table.get("count", p[name])
    same_parts("schema.toml", p, found | {"pairs": found["states"] * found["actions"]})
    ends = {name: float(tables.get("reward", {}).get(name, reward[name])) for name in ("low", "high")}
    same_parts("schema.toml: reward", reward, ends)
    size, secure, m = g["delta"] * p["users"], g["randomness"] == "secure", p["episodes_per_user"]
    unit, change = (words.format(m) for words in (ONE if m == 1 else MANY))
    same_parts("guarantee", g, {
        "users_public": p["users_public"], "unit": f"one user: {unit} of states, actions and rewards",
        "episodes": m, "neighbours": f"{change}; the number of users stays the same",
        "holds_if_seed_is_guessed": secure and g["epsilon"] is not None})
    verdict = "none" if g["epsilon"] is None else "warn" if size > 0.1 else "small" if size else "pure"
    found = {"delta": g["delta"], "per_user": 1 / p["users"], "ratio": size, "verdict": verdict}
    same("delta", doc["delta"], found)
    for one in doc["mechanisms"]:
        check_families(one, secure)

def check_families(one, secure):
    """Compare the families of a mechanism with its record, and the source of its noise with the stated."""
    record, system = one["record"], one["source_of_randomness"].startswith("operating system")
    noise = record.get("noise", "discrete")  # flips have no other noise
    same("secure: noise and source", [noise.startswith("discrete"), system], [secure, secure])
    same("families", [f["family"] for f in one["families"]], list(record.get("scales", {})))
    for f in one["families"]:
        scale, root = record["scales"][f["family"]], math.sqrt(2.0) if "laplace" in noise else 1.0
        found = {"scale": scale, "sensitivity": record["sensitivities"][f["family"]], "std": root * scale}
        same_parts(f"family {f['family']}", f, found)

NOT_COVERED = (
    "The raw data where they are stored", "Messages about invalid rows",
    "Whether a person is in the data set", "Conclusions about people in general", "Side channels:",
    "More than one person at once")
REPORTS = ("report.json", "report.md", "report.html")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
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
    sentence, g = run.doc["sentence"], run.doc["guarantee"]
    whole, alone = (run.epsilon, run.delta, run.whole), (g["epsilon"], g["delta"], run.alone)
    same("sentence: its parts", sentence.count("For this release alone:"), int(run.several))
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
    exact, warnings, covered = g["epsilon"] is None, doc["warnings"], doc["covered"]
    words = "No person's data" if doc["synthetic"] else "NOT PROTECTED" if exact else ""
    report("sentence", doc["sentence"][:60], words, words in doc["sentence"])
    if not words:
        check_sentence(run)
    warned = {"SYNTHETIC ": doc["synthetic"], "SEEDED NOISE": g["randomness"] == "seeded",
              "NO LEDGER": not ledger, "NO PRIVACY GUARANTEE": exact,
              "NEW LEDGER": bool(ledger) and ledger["new"],
              "times 1/users": doc["delta"]["verdict"] == "warn",
              "RELEASES of the same": run.several and not exact,
              "NO LIMIT": bool(ledger) and ledger["after"]["limit_epsilon"] is None,
              "THIS DATA": "this data" in p["provenance"].values()}
    same("warning", {words: any(words in one for one in warnings) for words in warned}, warned)
    needed = [*NOT_COVERED, *([f"after entry {ledger['number']} of this ledger", repr(ledger["dataset"])]
                              if ledger else ["NO LEDGER was kept"])]
    needed += [f"The number of people, {p['users']}"] if p["users_public"] and not exact else []
    lacking = [words for words in needed if not any(words in one for one in doc["not_covered"])]
    report("not covered: needed lines", needed, lacking, not lacking)
    others = [one for one in covered if not one.startswith(COVERED[: 5 if doc.get("second_group") else 4])]
    report("covered: known lines", "known", others, not others)
    other = "sites" in doc["configuration"]["options"] or kinds_of(run.records) not in ([], ["noise"])
    trust = g["trust"] == ("none" if exact else "central")
    report("trust", g["trust"], "central", None if other and not trust else trust)
    flat = functools.partial(re.sub, r"[\s\\]+|<[^<>]*>", "")
    for name in PAGES:
        plain = flat(html.unescape(flat(read(run.folder / name).decode())))
        texts = [doc["sentence"], *warnings, *(covered + doc["not_covered"] if name == PAGES[0] else ())]
        lacking = [text for text in texts if flat(text) not in plain]
        report(f"{name}: sentences of the statement", len(texts), lacking[:2], not lacking)

def check_report(run):
    """Compare the report with the statement, its first line with its verdict, and numbers in all texts."""
    doc, names = run.doc, run.doc["files"]
    text = {name: read(run.folder / name).decode() for name in (*PAGES, *REPORTS) if name in {*names, *PAGES}}
    said = strict_json(text.pop("report.json", "{}").encode())
    found = {"users": run.users, "level": doc["configuration"]["options"].get("level"),
             "guarantee": doc["guarantee"]["statement"]}
    same("report.json", {key: said.get(key, value) for key, value in found.items()}, found)
    if "guarantee" in said and "report.md" in text:
        top, end = text["report.md"].split("\n")[0], f"**{said['verdict']}**"
        # if no user is real, other words are before the verdict
        report("report.md: first line", top, end, top == end or (doc["synthetic"] and top.endswith(end[2:])))
    strings = " ".join(STRING.findall(canonical(without(doc, "versions", "data"))))
    free = [doc["operator"], doc["approval"], doc["purpose"], read(run.folder / "schema.toml").decode()]
    free = str([free, [[one["rule"], one["differences"]] for one in said.get("compared", [])]])  # by people
    own = [*numbers_of(doc), *map(float, re.findall(r"\d+\.\d+(?:e[+-]?\d+)?", free))]
    for name, body in {"statement.json": strings, **text}.items():
        check_numbers(name, body, own + numbers_of(said) if name in REPORTS else own)

def numbers_of(value):
    """Return all numbers of a JSON value, 100 times them, and e to them."""
    texts = re.findall(r"[-+.eE\d]+", re.sub(r"true|false", "", STRING.sub("", canonical(value))))
    return [x for v in map(float, texts) for x in (v, 100.0 * v, math.exp(v) if 0 < v < 700 else v)]

def check_numbers(name, text, known):
    """Check that each decimal number of a text is a known one, rounded."""
    body = re.split(r"Files and hashes|(?:## |>)Glossary", text)[0]
    body, wrong = html.unescape(re.sub(r"<style>[^<]*|</?[a-z][^<>]*>", " ", body)), []
    for said in set(re.findall(r"(?<![\w.:+^-])\d+\.\d+(?:e[+-]?\d+)?(?![\w:+-]|\.\d)", body)):
        unit = 1.001 * 10.0 ** decimal.Decimal(said).as_tuple().exponent
        wrong += [] if any(abs(float(said) - value) <= unit for value in known) else [said]
    report(f"{name}: numbers", "in the statement", wrong[:5], not wrong)

def read_ledger(path):
    """Return rows (text or None, hash) of a ledger: the SQLite file, its export, or ``ledger.jsonl``."""
    data = read(path)
    if data[:15] == b"SQLite format 3":
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT text, hash FROM entries ORDER BY number").fetchall()
    return [(row.get("text"), row["hash"]) for row in map(strict_json, data.splitlines())]

def check_entries(rows, identity):
    """Check hashes, numbers, order and signatures of a ledger. Returns its entries with text.

    An entry without text is known by its hash only: the next entry with text confirms the hash, not the text.
    """
    entries, time = [], ""
    for number, ((_, previous), (text, digest)) in enumerate(itertools.pairwise([("", ""), *rows]), 1):
        if text is not None:
            entry = strict_json(text.encode())
            escaped = re.sub("[^ -~]", lambda one: json.dumps(one[0])[1:-1], text)  # texts are not in ASCII
            chain = [canonical(entry), sha256(text), entry["number"], entry["previous"]]
            good = chain == [escaped, digest, number, previous] and entry["time"] >= time
            report(f"ledger: entry {number}", digest, sha256(text), good)
            if entry["kind"] in ("limit", "owner") and entry.get("signature"):
                signed = {**without(entry, "signature"), "ledger": identity}
                good = verified(entry["key"], f"discreet {entry['kind']}, 1", signed, entry["signature"])
                same(f"ledger: signature of entry {number}", good, True)
            entries, time = [*entries, {**entry, "hash": digest}], entry["time"]
    return entries

def check_ledger(run):
    """Check the chain of entries, recompute the totals of the dataset, and compare the entry of the run."""
    doc, stated, second = run.doc, run.doc["ledger"], run.doc.get("second_group")
    if stated is None:
        return
    path = run.ledger or (run.folder / "ledger.jsonl" if "ledger.jsonl" in doc["files"] else None)
    needed = "query" in doc and not doc["replanned"]
    need(path, "no ledger.jsonl" if needed else NotCheckable("no ledger is given"))
    rows = read_ledger(pathlib.Path(path).resolve())
    entries = check_entries(rows, stated["identity"])
    own = next((one for one in entries if one["hash"] == stated["head"]), None)
    need(own and entries[0]["kind"] == "begin", "the entry of the run, or the beginning, is not here")
    same_parts("ledger: entry", {"parallel": None, **own, "identity": entries[0]["identity"]}, {
        "kind": "reserve", "users": doc["population"]["users"], "time": doc["date"],
        "purpose": doc["purpose"], "records": run.records,
        "parallel": [second["mechanism"]["record"]] if second else None,
        **{name: stated[name] for name in ("number", "dataset", "identity")}})
    hidden = [text for text, _ in rows[: own["number"]]].count(None)  # of these data, or of others
    report("ledger: entries without text", 0, hidden, not hidden or None)
    new = own is next(one for one in entries if one["kind"] == "reserve")
    report("ledger: new", stated["new"], new, stated["new"] == new or (hidden and not stated["new"]))
    marks = [one["files"] for one in entries if one["kind"] == "mark" and one["reservation"] == own["number"]]
    for mark in marks[:1]:
        tables = mark, {**doc["files"], "statement.json": doc["fingerprint"]}
        same("ledger: mark", *({name: one[name] for name in (KEPT if doc["replanned"] else one)
                                if name in one and name not in PAGES} for one in tables))
    past = [one for one in entries if one["dataset"] == own["dataset"] and one["number"] <= own["number"]]
    limit = next((one for one in reversed(past) if one["kind"] == "limit"), {})
    keys = [limit.get("key") or None, *(one.get("to") for one in past if one["kind"] == "owner")]
    reserved = [one for one in past if one["kind"] == "reserve"]
    for part, some in (("before", reserved[:-1]), ("after", reserved), ("together", reserved)):
        total, t = check_total(doc, part, some), stated[part]
        if part != "together":
            same_parts(part, t, {f"limit_{name}": limit.get(name) for name in ("epsilon", "delta")})
            report(f"{part}: key of the limit", t["limit_key"], keys, t["limit_key"] in keys)
    if limit and own["checked"]:
        alone = own["epsilon"] if len(reserved) == 1 else math.inf
        used = min(total.epsilon(limit["delta"]) or math.inf, alone)
        report("within the owner's limit", limit["epsilon"], used, used <= limit["epsilon"] * (1 + 1e-6))

def check_total(doc, part, reserved):
    """Compare a total of the ledger with the records of its reservations. Returns bounds on attackers."""
    t, records = doc["ledger"][part], [record for one in reserved for record in one["records"]]
    (total, shuffled), epsilon, g = proven(records), t["epsilon"], doc["guarantee"]
    need(len(reserved) == 1 or not shuffled, NotCheckable(f"totals {part}: of several shuffled records"))
    if [records, epsilon, t["delta"]] != [g["mechanisms"], g["epsilon"], g["delta"]]:
        if shuffled or str(t.get("method", t.get("rule"))).startswith("numerical"):
            check_numerical(part, records, t["delta"], epsilon)
        else:
            epsilon = total.epsilon(t["delta"])
    same_parts(part, t, {**without(vars(total), "points"), "reservations": len(reserved), "epsilon": epsilon})
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
        mine = one["fingerprint"] == run.doc["fingerprint"] and one["files"] == hashes
        report(f"signature of {one['name']}", one["key"], f"valid: {good}, same files: {mine}", good and mine)
        signed.update([one["key"]] if good and mine else [])
    same("keys that signed once", len(entries), len({one["key"] for one in entries}))
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
    """Return variance and kurtosis of noise. ``scale`` is in units of the grid.

    Discrete noise with a large scale has the variance and the kurtosis of continuous noise.
    """
    laplace = "laplace" in noise
    if "discrete" not in noise or scale > 10.0:
        return (1.0 + laplace) * scale**2, 3.0 + 3.0 * laplace
    mass = normalised({x: -abs(x / scale) if laplace else -0.5 * (x / scale) ** 2 for x in range(-999, 1000)})
    second, fourth = (math.fsum(p * x**k for x, p in mass.items()) for k in (2, 4))
    return second, fourth / max(second**2, 1e-300)

ALARM = 5e-8  # chance of a false alarm of one test of noise
Noise = collections.namedtuple("Noise", "scale variance kurtosis unit")  # of a family; unit of its grid

def check_users(query, tables, users, noises):
    """Compare the number of users with the cells to which each of their episodes adds 1 in a step."""
    start = query["states"] - 1  # first visits have this state, in which each episode begins
    grams = [one for one in tables if one.endswith(".gram") and one.replace("gram", "weights") not in tables]
    for family in [*(grams if one_hot(query) else ()), *tables.keys() & {TRANSITIONS}]:
        gram, table, heavy = family != TRANSITIONS, tables[family], noises[family].kurtosis > 5.0
        half = gram and query["questions"][int(family[:-5])]["half"] is not None
        part, steps = users / 2 if half else users, len({place[0] for place in table})
        cells = [value for place, value in table.items()
                 if (place[1] == place[2] if gram else query["kind"] == "counts" or place[1] == start)]
        variance = (1 + gram) * (1 + heavy) * len(cells) * noises[family].scale ** 2 / steps**2
        # a half of the users is drawn: its size varies
        spread = (12 if heavy else 6) * math.sqrt(variance + half * users) + 1e-6
        mean = math.fsum(cells) / steps
        good = part - spread <= mean <= part * query["episodes"] + spread
        report(f"users in {family}", part, f"{mean:.1f} episodes in a step, +- {spread:.1f}", good)

def check_noise(run):
    """Check header, cells and grid of ``release.csv``, the number of users, and the size of the noise."""
    doc, query, g = run.doc, run.doc.get("query"), run.doc["guarantee"]
    cells = {name: one["cells"] for name, one in query["families"].items()} if query else {"": math.inf}
    absent = NotCheckable("release.parquet cannot be read here")
    need("release.csv" in doc["files"], absent if sum(cells.values()) > 10**6 else "there is no release.csv")
    header, tables = read_release(run.folder / "release.csv")
    same("release.csv: facts", header, {
        "dataset": doc["population"]["dataset"], "users": str(run.users), "trust": g["trust"],
        "randomness": g["randomness"], "synthetic": json.dumps(doc["synthetic"])})
    same("release.csv: cells", {name: len(table) for name, table in tables.items()}, cells)
    for family, one in query["families"].items():
        units = [value / one["grid"] for value in tables[family].values()] if one["grid"] else []
        same(f"release.csv: {family} off its grid", sum(abs(unit - round(unit)) > 1e-6 for unit in units), 0)
    if query["kind"] != "linear sums":
        sizes = [1 + max(column) for column in zip(*tables[TRANSITIONS])]
        stated = {"steps": 1 if query["first"] else query["steps"], "states": query["states"]}
        same("release.csv", stated, {"steps": sizes[0], "states": sizes[-1]})
    if run.records:
        need(kinds_of(run.records) == ["noise"], NotCheckable("records of another kind"))
        check_size(query, tables, run.users, run.records)

def check_size(query, tables, users, records):
    """Test that no family has less noise than stated, and that the number of users fits."""
    scales = [pair for record in records for pair in record["scales"].items()]
    stated, noises = {name.partition("[")[0]: scale for name, scale in scales}, {}
    for family, one in query["families"].items():
        scale, unit = stated.get(sum_of(query, family), 0.0), one["grid"] or 1e-9
        variance, kurtosis = moments(records[0]["noise"], scale / unit) if scale else (0.0, 3.0)
        noises[family] = Noise(scale, variance * unit**2, kurtosis, unit)
        if scale >= unit and not family.endswith((".vector", ".rewards")):
            # |value| is least, in distribution, if the sum is 0 without noise. Gram matrices are symmetric.
            half = (kurtosis - 1.0) * (2.0 if "gram" in family else 1.0)
            squares = math.fsum((abs(v) / unit + 0.5) ** 2 for v in tables[family].values()) / variance
            below = gamma_lower(one["cells"] / half, squares / half)
            report(f"values not below the noise: {family}", "as stated", f"P = {below:.3g}", below >= 1e-9)
    check_users(query, tables, users, noises)
    check_relations([one for one in relations_of(query, tables) if len(records) == 1], tables, noises)

def check_relations(relations, tables, noises):
    """Test the noise of sums that are 0 without it, in all of them and in each kind of them.

    The squares of standardised sums are compared with a gamma law: their variance is at most kurtosis - 1.
    Sums are on the grid: one with variance v units is 0 with a chance of about 1 / sqrt(1 + 2 v) for discrete
    Laplace noise, less for other noise. Where all can be 0 with a chance of ALARM, too little noise is not
    tested. No sum of Laplace variables has heavier tails than one of them, which exceeds 20 deviations with a
    chance of 5e-13.
    """
    relations = [one for one in relations if all(noises[family].variance for family, _ in one)]
    relations, solved = relations[:: max(1, math.ceil(len(relations) / 160))], []
    share = max((noises[family].kurtosis for one in relations for family, _ in one), default=3.0) - 1.0
    groups, empty = {"all": []}, collections.Counter()
    for i, relation in enumerate(relations):  # Cholesky factor of the covariance, row by row
        row = []
        for j in range(i + 1):
            both = (c * relations[j].get(k, 0.0) * noises[k[0]].variance for k, c in relation.items())
            rest = math.fsum(both) - math.fsum(x * y for x, y in zip(row, solved[j][0] if j < i else row))
            row.append(math.sqrt(max(rest, 1e-12)) if i == j else rest / solved[j][0][j])
        value = math.fsum(c * tables[family][place] for (family, place), c in relation.items())
        solved.append((row, (value - math.fsum(x * s[1] for x, s in zip(row, solved))) / row[i]))
        for name in ("all", " and ".join(sorted({key[0].rpartition(".")[2] for key in relation}))):
            groups.setdefault(name, []).append(solved[i][1] ** 2)
            unit = max(noises[family].unit for family, _ in relation)
            empty[name] += 0.5 * math.log1p(2.0 * (row[i] / unit) ** 2)
    tested = [name for name, some in groups.items() if empty[name] > -math.log(ALARM)]
    chances = {name: gamma_lower(len(some) / share, math.fsum(some) / share) for name, some in groups.items()}
    found = [f"{name}: {len(some)} relations, mean square {math.fsum(some) / max(1, len(some)):.4g}, P = "
             f"{chances[name] if name in tested else math.nan:.3g}" for name, some in groups.items()]
    small = any(chances[name] < ALARM for name in tested)
    large = chances["all"] > 1.0 - 1e-12 and (share < 2.1 or max(groups["all"]) > 400.0)
    good = not small and not large
    report("size of the noise", "as stated", "; ".join(found), None if good and "all" not in tested else good)

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
