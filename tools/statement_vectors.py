"""Write the test vectors of verifiers of privacy statements: ``python tools/statement_vectors.py FILE``.

Closed forms are computed with 60 digits (mpmath) and printed with 17. Sensitivities are maxima over all paths
of two records, or over a fine search in 60 digits. Exchanges have a bracket: below, cells of the loss are merged
(E[1 - e^{epsilon - L}]+ is convex in e^-L, so a conditional mean lowers it); above, a loss is split between its
neighbours on a grid. Nothing is imported from the library.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 60
DELTAS = ("1e-3", "1e-5", "1e-6", "1e-8", "1e-10", "1e-12")


def text(value: Any) -> str:
    """Return a number with 17 digits."""
    return mp.nstr(value, 17, strip_zeros=False)


def root(function: Any, low: Any, high: Any) -> Any:
    """Return the zero of an increasing function, by bisection."""
    for _ in range(190):
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) >= 0 else (middle, high)
    return high


def gaussian_delta(mu: Any, epsilon: Any) -> Any:
    """Return delta of Gaussian privacy, from the normal distribution function."""
    a = epsilon / mu - mu / 2
    return mp.ncdf(-a) - mp.exp(epsilon) * mp.ncdf(-a - mu)


def closed_forms() -> list[dict[str, Any]]:
    """Return vectors of Gaussian, zCDP and pure losses."""
    found = []
    for mu in ("0.01", "0.05", "0.2367", "0.5", "1", "2", "3.5", "5", "8", "12"):
        for delta in DELTAS:
            exact, d = mp.mpf(float(mu)), mp.mpf(float(delta))
            epsilon = root(lambda e: d - gaussian_delta(exact, e), mp.mpf(0), mp.mpf(400))
            found.append(
                {"kind": "gaussian", "mu": float(mu), "delta": float(delta), "epsilon": text(epsilon)}
            )
    for mu, epsilon in itertools.product((0.05, 0.3, 1.0, 4.0), (0.0, 0.1, 1.0, 3.0, 8.0)):
        value = gaussian_delta(mp.mpf(mu), mp.mpf(epsilon))
        if value > mp.mpf(10) ** -200:
            found.append({"kind": "gaussian delta", "mu": mu, "epsilon": epsilon, "delta": text(value)})
    for rho in (1e-4, 1e-3, 0.0243, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0):
        for delta in DELTAS:
            r, g = mp.mpf(rho), -mp.log(mp.mpf(float(delta)))
            t = root(lambda t: r * t * t + mp.log(1 + t) - g, mp.mpf(0), mp.sqrt(g / r))
            value = max(mp.mpf(0), (1 + t) * r + mp.log(t / (1 + t)) + (g - mp.log(1 + t)) / t)
            found.append({"kind": "zcdp", "rho": rho, "delta": float(delta), "epsilon": text(value)})
    for parts in (
        (0.5,),
        (1.0,),
        (0.1, 0.2),
        (1.0, 1.0, 1.0),
        (3.0, 0.01),
        (10.0,),
        (0.001,) * 5,
        (2.5, 7.5),
    ):
        rho = mp.fsum(mp.mpf(e) * mp.tanh(mp.mpf(e) / 2) for e in parts)
        found.append(
            {"kind": "pure", "losses": parts, "epsilon": text(mp.fsum(map(mp.mpf, parts))), "rho": text(rho)}
        )
    return found


FAMILIES = ("visits", "transition_counts", "reward_sums", "centered_reward_sums")


def cost(case: str, scales: dict[str, float], p: int) -> Any:
    """Return the p-th power of the change of one step, in units of the noise."""
    total = mp.mpf(0)
    for family, scale in scales.items():
        one = 1 / mp.mpf(scale) ** p
        moved = {"visits": (2, 0, 0), "transition_counts": (2, 2, 0), "reward_sums": (2, 1, 1),
                 "centered_reward_sums": (2 * mp.mpf("0.5") ** p, 1, 1)}[family]  # fmt: skip
        total += moved["dos".index(case)] * one
    return total


def sensitivities() -> list[dict[str, Any]]:
    """Return vectors of joint sensitivities of counts and first visits: maxima over all paths of two records."""
    found = []
    sets = [("transition_counts",), ("visits", "transition_counts"), ("transition_counts", "centered_reward_sums"),
            ("visits", "transition_counts", "centered_reward_sums"), ("visits", "transition_counts", "reward_sums")]  # fmt: skip
    for names, steps, p, m in itertools.product(sets, (1, 3, 6), (1, 2), (1, 3)):
        scales = {name: 1.5 + 1.75 * FAMILIES.index(name) for name in names}
        best = mp.mpf(0)
        for path in itertools.product("dos", repeat=steps):
            if all(b == "d" for a, b in itertools.pairwise(path) if a == "o"):
                best = max(best, mp.fsum(cost(case, scales, p) for case in path))
        value = m * (best if p == 1 else mp.sqrt(best))
        found.append(
            {
                "kind": "counts",
                "steps": steps,
                "norm": f"l{p}",
                "episodes": m,
                "scales": scales,
                "joint": text(value),
            }
        )
    for names, steps, states, p in itertools.product(sets[1:4], (2, 5), (3, 4, 9), (1, 2)):
        scales = {name: 1.5 + 1.75 * FAMILIES.index(name) for name in names}
        most, both = min(states, steps), max(cost(case, scales, p) for case in "dos")
        apart = cost("d", scales, p) / 2
        best = max(c * both + (a + b) * apart for c in range(most + 1)
                   for a in range(most - c + 1) for b in range(most - c + 1))  # fmt: skip
        value = best if p == 1 else mp.sqrt(best)
        found.append({"kind": "first visits", "steps": steps, "states": states, "norm": f"l{p}", "episodes": 1,
                      "scales": scales, "joint": text(value)})  # fmt: skip
    return found


def linear() -> list[dict[str, Any]]:
    """Return vectors of questions about linear sums: a maximum over the angle of two feature vectors.

    The search uses vectors in the plane, and the outputs that are extreme: y = -1/2 or 1/2, next states equal
    or not.
    """
    found = []
    for (gram, other), bound, nonneg, states in itertools.product(
        ((2.0, 3.0), (3.0, 1.0), (5.0, 2.0)), (1.0, 0.7), (True, False), (2, 6)
    ):
        for kind in ("pair", "model"):

            def change(angle: Any, kind: str = kind) -> Any:
                x, y = (
                    (mp.mpf(bound), mp.mpf(0)),
                    (mp.mpf(bound) * mp.cos(angle), mp.mpf(bound) * mp.sin(angle)),
                )
                squares = mp.fsum((x[i] * x[j] - y[i] * y[j]) ** 2 * (1 if i != j else mp.mpf("0.5"))
                                  for i in range(2) for j in range(i, 2))  # fmt: skip
                total = squares / mp.mpf(gram) ** 2
                rewards = max(mp.fsum((a * u - b * v) ** 2 for a, b in zip(x, y, strict=True))
                              for u in (-0.5, 0.5) for v in (-0.5, 0.5))  # fmt: skip
                total += rewards / mp.mpf(other) ** 2
                if kind == "model":
                    first = [mp.mpf(s == 0) - mp.mpf(1) / states for s in range(states)]
                    second = [mp.mpf(s == 1) - mp.mpf(1) / states for s in range(states)]
                    total += max(mp.fsum((a * u - b * v) ** 2 for a, b in zip(x, y, strict=True)
                                         for u, v in zip(first, last, strict=True))
                                 for last in (first, second)) / mp.mpf(other) ** 2  # fmt: skip
                return total

            end = mp.pi / 2 if nonneg else mp.pi
            best = max(range(401), key=lambda i: float(change(end * i / 400)))
            low, high = end * max(best - 1, 0) / 400, end * min(best + 1, 400) / 400
            ratio = (mp.sqrt(5) - 1) / 2
            for _ in range(120):
                a, b = high - ratio * (high - low), low + ratio * (high - low)
                low, high = (low, b) if change(a) > change(b) else (a, high)
            value = mp.sqrt(
                max(change(low), change(high), change((low + high) / 2), change(end * best / 400))
            )
            names = {"pair": ("gram", "response"), "model": ("gram", "rewards", "successors")}[kind]
            found.append({"kind": "linear", "question": kind, "bound": bound, "nonneg": nonneg, "states": states,
                          "scales": {name: gram if name == "gram" else other for name in names}, "joint": text(value)})  # fmt: skip
    return found


# ------------------------------------------------------------------------------------ exchanges


def law(noise: str, scale: float, shift: int) -> tuple[Any, Any]:
    """Return losses and probabilities of one coordinate."""
    reach = (math.ceil(14 * scale) if noise == "discrete_gaussian" else math.ceil(60 * scale)) + shift
    x = np.arange(-reach, reach + 1, dtype=float)
    if noise == "discrete_gaussian":
        mass = np.exp(-0.5 * (x / scale) ** 2)
        return shift * (shift - 2 * x) / (2 * scale**2), mass / mass.sum()
    mass = np.exp(-np.abs(x) / scale)
    return (np.abs(x - shift) - np.abs(x)) / scale, mass / mass.sum()


def merged(loss: Any, mass: Any, h: float) -> tuple[Any, Any]:
    """Merge all outcomes in one cell of the loss: their probabilities under both records add up."""
    cell = np.floor(loss / h).astype(np.int64)
    cell -= cell.min()
    p, q = np.bincount(cell, mass), np.bincount(cell, mass * np.exp(-loss))
    kept = p > 0
    return np.log(p[kept] / q[kept]), p[kept]


def split(loss: Any, mass: Any, h: float) -> tuple[int, Any]:
    """Split each loss between its neighbours on the grid; returns the first index and the masses."""
    cell = np.floor(loss / h + 1e-9).astype(np.int64)
    up = np.clip(np.expm1(cell * h - loss) / np.expm1(-h), 0, 1) * mass
    low = int(cell.min())
    found = np.bincount(cell - low, mass - up, minlength=int(cell.max()) - low + 2)
    return low, found + np.bincount(cell - low + 1, up, minlength=found.size)


def epsilon_of(loss: Any, mass: Any, delta: float) -> float:
    """Return the smallest epsilon with this delta."""
    low, high = 0.0, float(loss.max())
    for _ in range(80):
        e = (low + high) / 2
        over = loss > e
        low, high = (low, e) if float((mass[over] * -np.expm1(e - loss[over])).sum()) <= delta else (e, high)
    return high


def exchanges() -> list[dict[str, Any]]:
    """Return vectors of exchanges with a bracket of epsilon."""
    found = []
    ways: list[tuple[float, list[list[Any]]]] = [  # with a number of which all losses are multiples, or a step
        (1 / 32, [["discrete_gaussian", 4.0, 1, 4]]), (2 / 9, [["discrete_gaussian", 3.0, 2, 2]]),
        (1 / 4096, [["discrete_gaussian", 6.5, 1, 6], ["discrete_gaussian", 30.0, 8, 2]]),
        (1 / 6, [["discrete_laplace", 6.0, 1, 6]]), (1 / 10, [["discrete_laplace", 10.0, 4, 3]]),
        (1 / 20, [["discrete_laplace", 5.0, 1, 2], ["discrete_laplace", 40.0, 10, 4]]),
        (1 / 162, [["discrete_gaussian", 9.0, 1, 8]]), (1 / 20, [["discrete_laplace", 20.0, 1, 12]]),
    ]  # fmt: skip
    for (unit, way), delta in itertools.product(ways, (1e-4, 1e-6)):
        h = unit / math.ceil(unit * 1000)
        below, (start, above) = (np.zeros(1), np.ones(1)), (0, np.ones(1))
        for noise, scale, shift, count in way:
            loss, mass = law(noise, scale, shift)
            kept = mass > 1e-22
            loss, mass = loss[kept], mass[kept]
            first, grid = split(loss, mass, h)
            for _ in range(count):
                both = (below[0][:, None] + loss).ravel(), (below[1][:, None] * mass).ravel()
                below = merged(*both, h) if both[0].size > 50000 else both
                strong = below[1] > 1e-20
                below = below[0][strong], below[1][strong]
                start, above = start + first, np.convolve(above, grid)
        lower = epsilon_of(*below, delta)
        upper = epsilon_of((start + np.arange(above.size)) * h, above, delta - 1e-16)
        found.append({"kind": "exchange", "way": way, "delta": delta, "lower": lower, "upper": upper})
    return found


# ------------------------------------------------------------------------------------ signatures, files

RFC8032 = [
    ("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
     "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
     "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
     "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
]  # fmt: skip
ORDER = 2**252 + 27742317777372353535851937790883648493


def signatures() -> list[dict[str, Any]]:
    """Return signatures of RFC 8032, and changed ones that must be refused."""
    found = []
    for key, message, signature in RFC8032:
        data = bytes.fromhex(signature)
        s = int.from_bytes(data[32:], "little")
        cases = [
            ("valid", key, message, signature), ("other message", key, message + "00", signature),
            ("S + L", key, message, (data[:32] + (s + ORDER).to_bytes(32, "little")).hex()),
            ("other R", key, message, (bytes([data[0] ^ 1]) + data[1:]).hex()),
            ("other S", key, message, (data[:32] + bytes([data[32] ^ 1]) + data[33:]).hex()),
            ("y above the prime", "ee" + "ff" * 30 + "7f", message, signature), ("short", key, message, signature[:-2]),
            ("R above the prime", key, message, "ee" + "ff" * 30 + "7f" + signature[64:]),
        ]  # fmt: skip
        found += [{"kind": "signature", "case": case, "key": k, "message": m, "signature": one, "valid": case == "valid"}
                  for case, k, m, one in cases]  # fmt: skip
    return found


def files() -> list[dict[str, Any]]:
    """Return JSON texts that must be refused, and canonical forms of others."""
    bad = ["", "{", '{"a":1,"a":1}', '{"a":NaN}', "[Infinity]", "[-Infinity]", "[1e999]", "[01]", "[+1]", "[.5]", "[1.]",
           '{"a":1,}', "[1,]", "{'a':1}", '["\\x41"]', "[tru]", "[1 2]", '{"a" 1}', '["a\nb"]', "[-0]", "nul", "[1]]"]  # fmt: skip
    good = {'{"b": 1.0, "a": 1e-06}': '{"a":1e-06,"b":1.0}', '["\u00e9", 1.50]': '["\\u00e9",1.50]', "[true, null, -1]": "[true,null,-1]",
            '{"Z": {}, "a": []}': '{"Z":{},"a":[]}', "[1E5, 0.10]": "[1E5,0.10]", '["\\u0041"]': '["A"]'}  # fmt: skip
    found: list[dict[str, Any]] = [{"kind": "refused", "text": one} for one in bad]
    return found + [{"kind": "canonical", "text": one, "canonical": other,
                     "sha256": hashlib.sha256(other.encode()).hexdigest()} for one, other in good.items()]  # fmt: skip


def main() -> None:
    """Write the file that is named on the command line."""
    vectors = [*closed_forms(), *sensitivities(), *linear(), *exchanges(), *signatures(), *files()]
    lines = ",\n".join(json.dumps(one) for one in vectors)
    Path(sys.argv[1]).write_text(f"[\n{lines}\n]\n", "utf-8")
    print(len(vectors), "vectors")


if __name__ == "__main__":
    main()
