"""Policy elimination: what listing all policies and a stage of SDP-PE-OM cost, and what the learners reach.

    python benchmarks/elimination.py [--part time|simulate|regret] [--seeds 16] [--learners noise-aware]

``time``: evaluating all policies and finding the best visitor of every pair, by size; one stage of SDP-PE-OM
at S = 50, A = 5, H = 20 at levels from free to tight, with where the time goes. One thread. ``simulate``:
a whole simulated run of that size, by what it spends its time on (seconds of this process). ``regret``:
SDP-PE, SDP-PE-OM and the noise-aware learner, on small random worlds and RiverSwim, by privatizer: final
regret as a share of the uniform policy's. The tables are in benchmarks/elimination.md.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import discreet as dr
from discreet import envs
from discreet.core.layout import Layout
from discreet.experiments.simulate import Setup
from discreet.learners.online.occupancy_elimination import KnownModel
from discreet.learners.online.policy_elimination import Enumeration
from discreet.utils.random_streams_kernels import open_at, run_key

SEED = 77
LEARNERS: dict[str, Any] = {
    "sdp-pe": dr.SDPPE(), "sdp-pe-om": dr.learners.SDPPEOM(), "noise-aware": dr.NoiseAwareUCBVI(),
}  # fmt: skip


def seconds(call: Callable[[], Any], repeat: int = 3) -> float:
    """The shortest of some calls, after one that compiles."""
    call()
    best = np.inf
    for _ in range(repeat):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return float(best)


def _tables(layout: Layout, spread: float) -> tuple[Any, Any]:
    g = np.random.default_rng(0)
    shape = (layout.horizon, layout.rows)
    return g.dirichlet(np.full(layout.states, spread), size=shape), g.random(shape)


def enumeration() -> None:
    """All policies: values, and the visitors of every pair of every step."""
    print("| S, A, H | policies | evaluate all | best visitors of all pairs |\n|---|---|---|---|")
    for sizes in ((2, 2, 3), (3, 2, 5), (4, 2, 4), (4, 2, 5)):
        layout = Layout(*sizes)
        p, r = _tables(layout, 1.0)
        everyone = Enumeration.of(layout, np.full(layout.states, 1.0 / layout.states))
        active, coins = np.ones(everyone.count, bool), np.full(layout.rows, 0.5)

        def visit(
            layout: Any = layout, everyone: Any = everyone, p: Any = p, a: Any = active, c: Any = coins
        ) -> None:
            for h in range(layout.horizon):
                everyone.visitors(p, h, a, c)

        values = seconds(lambda e=everyone, p=p, r=r: e.values(p, r))  # type: ignore[misc]
        print(f"| {sizes} | {everyone.count} | {1e3 * values:.3g} ms | {1e3 * seconds(visit):.3g} ms |")


def stage() -> None:
    """One stage of SDP-PE-OM: a constrained visit for each of the 5 000 pairs."""
    layout = Layout(50, 5, 20)
    p, r = _tables(layout, 0.1)
    start, coins = np.eye(50)[0], open_at(run_key(SEED), 3, 0, 0)
    induction = seconds(lambda: KnownModel.of(layout, start, p, r, coins))
    print(f"\nS = 50, A = 5, H = 20: one backward induction with its set-up {1e3 * induction:.3g} ms")
    print("| level / best value | stage | inductions a pair | microseconds an induction |\n|---|---|---|---|")
    model = KnownModel.of(layout, start, p, r, coins)
    for share in (0.0, 0.5, 0.9, 0.99, 0.999):
        begin, steps = time.perf_counter(), 0
        for h in range(layout.horizon):
            for row in range(layout.rows):
                steps += model.visit(h, row, share * model.value, coins).steps
        took = time.perf_counter() - begin
        pairs = layout.horizon * layout.rows
        print(f"| {share:g} | {took:.2f} s | {steps / pairs:.1f} | {1e6 * took / steps:.0f} |", flush=True)


def simulation() -> None:
    """A run of four stages at S = 50, A = 5, H = 20: seconds in each part of the loop, by privatizer."""
    mdp = envs.random_mdp(states=50, actions=5, horizon=20, seed=1, rewards="bernoulli")
    parts = {  # functions that do not call one another
        "solving": (("occupancy.py", "_read"),),
        "flow of users": (("simulation.py", "batch_counts"),),
        "values of plans": (("planning.py", "evaluate"),),
        "noise and releases": (("stream_session.py", "submit_sum"), ("stream_session.py", "release")),
    }
    print(
        "\n| privacy | all | " + " | ".join(parts) + " | adding up, the rest |\n|" + "---|" * (len(parts) + 3)
    )
    for name, privatizer in (
        ("none", dr.NoPrivacy()),
        ("joint (1, 1e-6)", dr.Central(epsilon=1.0, delta=1e-6)),
        ("shuffle (1, 1e-6)", dr.Shuffle(epsilon=1.0, delta=1e-6)),
    ):
        small = envs.random_mdp(states=3, actions=2, horizon=3, seed=0, rewards="bernoulli")
        Setup(small, dr.learners.SDPPEOM(), privatizer, 3_000, "batch").run(SEED, 0)  # compiles
        setup = Setup(mdp, dr.learners.SDPPEOM(), privatizer, 6_000_000, "batch")
        profile = cProfile.Profile(time.process_time)
        profile.runcall(setup.run, SEED, 0)
        stats: Any = pstats.Stats(profile)
        spent = [
            sum(
                found[3]
                for (file, _, call), found in stats.stats.items()
                if any(file.endswith("/" + f) and call == c for f, c in wanted)
            )
            for wanted in parts.values()
        ]
        row = (stats.total_tt, *spent, stats.total_tt - sum(spent))
        print(f"| {name} | " + " | ".join(f"{one:.1f}" for one in row) + " |", flush=True)


def regret(seeds: int, learners: list[str]) -> None:
    """Final regret over that of the uniform policy, in percent: mean and standard error over seeds."""
    small = {
        f"random 2, 2, 3 ({i})": envs.random_mdp(
            states=2, actions=2, horizon=3, seed=100 + i, rewards="bernoulli"
        )
        for i in (0, 1)
    }
    small["random 3, 2, 5"] = envs.random_mdp(states=3, actions=2, horizon=5, seed=100, rewards="bernoulli")
    worlds = {**small, "riverswim": envs.riverswim(rewards="bernoulli")}
    users = (10_000, 100_000, 1_000_000)
    privatizers = {
        "none": dr.NoPrivacy(),
        "joint (1, 1e-6)": dr.Central(epsilon=1.0, delta=1e-6),
        "shuffle (1, 1e-6)": dr.Shuffle(epsilon=1.0, delta=1e-6),
        "local 1": dr.Local(epsilon=1.0),
    }
    print(
        "\n| world | privacy | learner | " + " | ".join(f"K = {k:,}".replace(",", " ") for k in users) + " |"
    )
    print("|---|---|---|" + "---|" * len(users))
    for world, mdp in worlds.items():
        for privacy, privatizer in privatizers.items():
            for name in learners:
                if name == "sdp-pe" and world == "riverswim":
                    continue
                cells = []
                for k in users:
                    setup = Setup(mdp, LEARNERS[name], privatizer, k, "batch")
                    scale = 100.0 / (k * (setup.optimal_value - setup.uniform_value))
                    finals = np.array([scale * setup.run(SEED, run).regret[-1] for run in range(seeds)])
                    cells.append(f"{finals.mean():.3g} ± {finals.std(ddof=1) / seeds**0.5:.2g}")
                print(f"| {world} | {privacy} | {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("time", "simulate", "regret", "all"), default="all")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--learners", nargs="+", choices=tuple(LEARNERS), default=list(LEARNERS))
    given = parser.parse_args()
    if given.part in ("time", "all"):
        enumeration()
        stage()
    if given.part in ("simulate", "all"):
        simulation()
    if given.part in ("regret", "all"):
        regret(given.seeds, given.learners)


if __name__ == "__main__":
    main()
