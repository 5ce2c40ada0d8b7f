"""Test vectors for devices in other languages: ``python clients/js/vectors.py [--check]``.

Writes ``test/vectors.json`` beside this file: forms, trajectories, the random bytes that a device is given,
and the message that the Python device makes of them. Bytes come from a stream, block i of which is SHA-256 of
"<seed>:<i>", but for the first 8 bytes, which are zero where the seed ends with "zeros first". A uniform
integer in [0, n) is made of them as ``secrets.randbelow`` does, and a word of 64 bits of the next 8,
little-endian.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from discreet.device.context_form import ContextForm
from discreet.device.context_policy import chosen_actions
from discreet.device.count_device import CountDevice
from discreet.device.discrete_noise import ExactCoins, discrete_gaussian, discrete_laplace
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_device import LinearDevice
from discreet.device.randomized_response_device import GRID, Randomizer, ReportDevice
from discreet.device.shuffle_encoder import ShuffleEncoder
from discreet.device.shuffle_payload import COIN, Family, SessionConfig
from discreet.device.skellam_device import SkellamDevice
from discreet.device.skellam_noise import skellam

FILE = Path(__file__).parent / "test" / "vectors.json"
ROWS = ((0, 1), (2, -1), (-1, 3))  # of three states and two actions


class Stream:
    """Bytes of a seed, and how many were used."""

    def __init__(self, seed: str) -> None:
        self._seed, self.used = seed, 0

    def bytes(self, size: int) -> bytes:
        """The next ones."""
        first, last = self.used // 32, (self.used + size + 31) // 32
        blocks = (hashlib.sha256(f"{self._seed}:{i}".encode()).digest() for i in range(first, last))
        at, zeros = self.used - 32 * first, 0
        if self._seed.endswith("zeros first"):
            zeros = max(0, min(size, 8 - self.used))
        self.used += size
        return bytes(zeros) + b"".join(blocks)[at + zeros : at + size]

    def below(self, n: int) -> int:
        """A uniform integer in [0, n), of the bytes that ``secrets.randbelow`` would take."""
        bits = n.bit_length()
        size = (bits + 7) // 8
        while True:
            found = int.from_bytes(self.bytes(size), "big") >> (8 * size - bits)
            if found < n:
                return found

    def words(self, size: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Words of 64 bits."""
        return np.frombuffer(self.bytes(8 * size), "<u8").astype(np.uint64)


def _randomizer(kind: str, elements: int, epsilon: float) -> Randomizer:
    """Optimised unary encoding, or subset selection; of size 1, randomized response."""
    e = math.exp(epsilon)
    if kind == "oue":
        return Randomizer(True, elements, 0, GRID // 2, int(GRID / (e + 1)))
    size = 1 if kind == "krr" else max(1, min(elements - 1, round(elements / (e + 1))))
    own = int(GRID * size * e / (size * e + elements - size))
    return Randomizer(False, elements, size, own, 0)


def _report_forms() -> dict[str, ReportDevice]:
    found = {}
    for kind in ("subset", "krr", "oue"):
        for rows in (None, ROWS):
            pairs = 6 if rows is None else 4

            def two(times: int, kind: str = kind, pairs: int = pairs) -> tuple[Randomizer, Randomizer]:
                return _randomizer(kind, times * 3, 0.7), _randomizer(kind, times * pairs, 0.7)

            more: dict[str, Any] = {"rows": rows, "session": 2**64 - 5}
            name = f"{kind}{' masked' if rows else ''}"
            found[name] = ReportDevice(3, 2, 5, 2, GRID // 3, two(3), two(2), **more)
            found[f"{name}, one step"] = ReportDevice(3, 2, 5, 1, 0, two(3), two(2), step=3, **more)
            found[f"{name}, stochastic"] = ReportDevice(
                3, 2, 5, 4, GRID // 2, two(3), two(2), plans="stochastic", shuffled=True, **more
            )
    return found


def _count_forms() -> dict[str, CountDevice]:
    plain = (("visits", 7.3), ("transition_counts", 3.0), ("reward_sums", 1.7))
    centered = (("transition_counts", 0.4), ("centered_reward_sums", 2.5))
    pooled = (*plain, ("pooled_transition_counts", 11.0), ("pooled_reward_sums", 1e-3))
    found = {}
    for noise in ("laplace", "gaussian"):
        for name, families, more in (
            ("plain", plain, {}),
            ("masked", plain, {"rows": ROWS}),
            ("centred", centered, {"centered": True}),
            ("stationary", plain, {"stationary": True}),
            ("one step", centered, {"centered": True, "step": 2}),
            ("pooled", pooled, {"pooled": "all"}),
            ("first visits", pooled, {"pooled": "first", "rows": ROWS}),
            ("wide", (("transition_counts", 40_000.0),), {"session": 77}),
        ):
            grid = 2 if name == "wide" else 1024
            options: dict[str, Any] = more
            found[f"{noise}, {name}"] = CountDevice(3, 2, 5, families, noise, grid, **options)
    return found


def _bit_forms() -> dict[str, SessionConfig]:
    found = {}
    for flips in (1, 8, 13, 30, 64, 65, 200, 1025, 1500, 4000):
        families = (Family("transitions", flips, COIN // 2), Family("visits", flips, COIN // 2))
        found[f"{flips} fair flips"] = SessionConfig(3, 2, 4, families, ROWS, 9)
    found["1500 fair flips, zeros first"] = SessionConfig(3, 2, 4, (Family("visits", 1500, COIN // 2),))
    found["rare flips"] = SessionConfig(
        3, 2, 4, (Family("transitions", 7, COIN // 5), Family("rewards", 3, 1))
    )
    centred = (Family("visits", 2, COIN // 3), Family("centered_rewards", 6, COIN // 7, True))
    found["centred"] = SessionConfig(3, 2, 4, centred, None, 2**63)
    found["one step"] = SessionConfig(3, 2, 4, (*centred, Family("transitions", 2, COIN // 2)), ROWS, 1, 2)
    found["centred, fair"] = SessionConfig(3, 2, 4, (Family("centered_rewards", 1500, COIN // 2, True),))
    return found


def _maps() -> dict[str, FeatureMap]:
    """Ranges, forms and bases; the last has more features than NumPy adds in one run."""
    ranges = {"age": (18.0, 90.0), "pulse": (30.0, 200.5), "x": (-1e308, 1e308)}
    wide = {f"x{i}": (-1.0, 1.0) for i in range(10)}
    fourier = ("fourier", 6, 0.7, 2**40 + 1)
    return {
        "linear": FeatureMap(ranges, 3),
        "ten columns": FeatureMap(wide, 5),
        "long": FeatureMap(wide, 2, radius=0.5),
        "shared": FeatureMap(ranges, 3, "shared", intercept=False),
        "poly": FeatureMap(ranges, 2, basis=("poly", 2)),
        "tiles": FeatureMap(ranges, 2, basis=("tiles", 4, 7)),
        "fourier": FeatureMap(ranges, 2, "shared", basis=fourier, radius=0.9),
        "one feature": FeatureMap({"x": (0.0, 1.0)}, 2, intercept=False),
        "many features": FeatureMap(wide | {f"y{i}": (0.0, 1.0) for i in range(6)}, 2, basis=("poly", 2)),
    }


def _context(features: FeatureMap, dice: random.Random) -> Any:
    """A context with a number out of its range, or a missing one."""
    limits = list(features.ranges.values()) * (1 if features.form == "per_action" else features.actions)
    x: list[float | None] = [dice.uniform(low / 2, high / 2) * 2 for low, high in limits]
    x[dice.randrange(len(x))] = dice.choice([None, 1e308, -2e5])
    row = len(features.ranges)
    return x if features.form == "per_action" else [x[at : at + row] for at in range(0, len(x), row)]


def _context_cases() -> list[dict[str, Any]]:
    """Features and actions of contexts."""
    found = []
    for name, features in _maps().items():
        context, normal = _context(features, random.Random(name)), np.random.default_rng(len(name)).normal
        policy = normal(size=(features.blocks, features.dimension))
        plans = [{"random": np.zeros(1)}]
        if features.dimension < 20:
            root = normal(size=(*policy.shape, features.dimension))
            plans.append({"random": np.zeros(1), "bonus": root @ np.swapaxes(root, 1, 2)})
        given, clipped = np.array(context, np.float64), features.clipped(context)
        sent = clipped.astype(object)
        sent[np.isnan(clipped)] = None
        phi, rng = features(given[None]), np.random.default_rng(0)  # nothing is drawn
        found.append(
            {
                "name": name,
                "features": features.to_dict(),
                "x": context,
                "clipped": sent.tolist(),
                "phi": np.atleast_2d(phi[0]).tolist(),
                "exact": features.basis[0] != "fourier",
                "policy": policy.tolist(),
                "plans": [{key: one.tolist() for key, one in plan.items()} for plan in plans],
                "actions": [
                    int(chosen_actions(policy, plan, phi, features.form == "shared", rng)[0])
                    for plan in plans
                ],
            }
        )
    return found


def _context_forms() -> dict[str, LinearDevice | SkellamDevice]:
    """Noises of several scales, in units of the cells."""
    found: dict[str, LinearDevice | SkellamDevice] = {}
    for at, (name, features) in enumerate(_maps().items()):
        form = ContextForm(
            states=1, actions=features.actions, horizon=1, mask=None, names=("gram", "response"),
            features=features,
        )  # fmt: skip
        grid, family = (1024, "gaussian") if at % 2 else (2, "laplace")
        scales = [0.4, 17.123456789, 5e6][at % 3] * np.array([1.25 if one[2] else 1.0 for one in form.blocks])
        if features.dimension < 30:
            units = form.units(grid)
            found[name] = LinearDevice(form, family, form.offsets, scales, units, grid, 2**63 + at)
            least = [2, 500, 2**19 + 6][at % 3]  # the last: several Poisson variables
            variances = tuple(2 * least if one[2] else least for one in form.blocks)
            found[f"{name}, shuffled"] = SkellamDevice(form, variances, 2**63 + at)
    return found


def _context_message(name: str, device: LinearDevice | SkellamDevice, dice: random.Random) -> dict[str, Any]:
    features: FeatureMap = device.form.features  # type: ignore[attr-defined]
    states, known = [_context(features, dice)], device.guarantee
    action, reward = dice.randrange(features.actions), dice.choice([0.0, 1.0, 0.3])
    plan, stream = dice.choice([1, 2, 300, 2**40 + 1]), Stream(name)
    given = np.array(states, np.float64)
    if isinstance(device, SkellamDevice):
        message = device(plan, given, [action], [reward], stream)
    else:
        message = device(plan, {}, given, [action], [reward], ExactCoins(stream.below))
    return {
        "name": name,
        "form": base64.b64encode(device.to_bytes()).decode(),
        "guarantee": {"epsilon": None if known.epsilon == math.inf else known.epsilon, "rho": known.rho},
        "at 1e-6": known.epsilon_at(1e-6) if known.rho is not None else None,
        "plan": plan, "policy": None, "states": states, "actions": [action], "rewards": [reward],
        "message": base64.b64encode(message).decode(), "bytes": stream.used,
    }  # fmt: skip


def _life(rows: Any, horizon: int, dice: random.Random) -> tuple[list[int], list[int], list[float]]:
    states = [dice.randrange(3) for _ in range(horizon + 1)]
    actions = [dice.choice([a for a in range(2) if rows is None or rows[s][a] >= 0]) for s in states[:-1]]
    rewards = [dice.choice([0.0, 1.0, 0.5, 1.0 - 2.0**-53, 5e-324, dice.random()]) for _ in range(horizon)]
    return states, actions, rewards


def _case(
    name: str, form: Any, send: Callable[..., bytes], dice: random.Random, policy: Any
) -> dict[str, Any]:
    states, actions, rewards = _life(form.rows, form.horizon, dice)
    plan, stream = dice.choice([1, 2, 300, 2**40 + 1]), Stream(name)
    message = send(stream, plan, states, actions, rewards)
    known = form.guarantee
    epsilon = known.epsilon if known.rho is None else None
    return {
        "name": name,
        "form": base64.b64encode(form.to_bytes()).decode(),
        "guarantee": {"epsilon": None if epsilon == math.inf else epsilon, "rho": known.rho},
        "at 1e-6": known.epsilon_at(1e-6) if known.rho is not None else None,
        "plan": plan, "policy": policy, "states": states, "actions": actions, "rewards": rewards,
        "message": base64.b64encode(message).decode(), "bytes": stream.used,
    }  # fmt: skip


def _policies(form: ReportDevice, dice: random.Random) -> list[Any]:
    allowed = [[a for a in range(2) if form.rows is None or form.rows[s][a] >= 0] for s in range(3)]
    return [
        [[dice.choice(one) for one in allowed] for _ in range(form.horizon)],
        [[[0.25, 0.75] for _ in allowed] for _ in range(form.horizon)],
    ]


def _draws() -> list[dict[str, Any]]:
    found = []
    for n in (1, 2, 3, 255, 256, 257, 2**30 - 1, 2**30, 2**31, 2**32 + 1, 2**53, 2**64, 3 * 2**80 + 1):
        stream = Stream(f"below {n}")
        drawn = [str(stream.below(n)) for _ in range(20)]
        found.append({"draw": "below", "of": str(n), "drawn": drawn, "bytes": stream.used})
    for name, sampler in (("laplace", discrete_laplace), ("gaussian", discrete_gaussian)):
        for scale in (0.01, 0.3, 1.0, 2.5, 17.123456789, 3e5):
            stream = Stream(f"{name} {scale!r}")
            drawn = [str(one) for one in sampler(scale, 30, stream.below)]
            found.append({"draw": name, "of": scale, "drawn": drawn, "bytes": stream.used})
    for of in ("2", "14", "14 zeros first", "600", "262144", "262146", "3000000", "40000000"):
        stream = Stream(f"skellam {of}")
        numbers = skellam(int(of.split()[0]), 300 if of == "14" else 9, stream).tolist()
        found.append({"draw": "skellam", "of": of, "drawn": numbers, "bytes": stream.used})
    return found


def vectors() -> dict[str, Any]:
    """All of them."""
    dice, messages = random.Random(17), []
    for name, device in _report_forms().items():
        for policy in _policies(device, dice):
            kind = "any" if isinstance(policy[0][0], int) else "probabilities"

            def sends(
                stream: Stream, plan: int, *life: Any, device: Any = device, policy: Any = policy
            ) -> bytes:
                coins: Any = ExactCoins(stream.below)
                sent: bytes = device(plan, np.array(policy), *map(np.array, life), coins)
                return sent

            messages.append(_case(f"reports, {name}, {kind}", device, sends, dice, policy))
    for name, counts in _count_forms().items():

        def counted(stream: Stream, plan: int, *life: Any, device: Any = counts) -> bytes:
            sent: bytes = device(plan, *map(np.array, life), ExactCoins(stream.below))
            return sent

        messages.append(_case(f"counts, {name}", counts, counted, dice, None))
    for name, bits in _bit_forms().items():

        def shuffled(stream: Stream, plan: int, *life: Any, form: SessionConfig = bits) -> bytes:
            return ShuffleEncoder(form, plan)(*map(np.array, life), stream)

        messages.append(_case(f"bits, {name}", bits, shuffled, dice, None))
    for name, sums in _context_forms().items():
        messages.append(_context_message(f"contexts, {name}", sums, random.Random(name)))
    return {
        "about": (__doc__ or "").split("\n\n")[1].replace("\n", " "),
        "draws": _draws(),
        "messages": messages,
        "contexts": _context_cases(),
    }


def main() -> None:
    """Write the file, or say whether it is the one that would be written."""
    text = json.dumps(vectors(), indent=0, allow_nan=False).replace("\n", "") + "\n"
    text = text.replace('{"name"', '\n{"name"').replace('{"draw"', '\n{"draw"')
    if sys.argv[1:] == ["--check"]:
        if FILE.read_text() != text:
            sys.exit(f"{FILE.name}: is not what the device makes now; run this without --check")
    else:
        FILE.write_text(text)


if __name__ == "__main__":
    main()
