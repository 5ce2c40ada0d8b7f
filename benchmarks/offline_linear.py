"""Linear offline learning: seconds from records to a policy, and the speed of Gram matrices from rows.

    python benchmarks/offline_linear.py [--episodes 1000000] [--dimension 100] [--horizon 20]

The world has S = 100 and A = 10: 2 million (step, pair, next state) cells, so that counts are kept and no
question depends on the number of people; ``--records`` makes the core keep records instead. Simplex
features, uniformly random records (the worst case for caches). Seconds are of this process's CPU, medians
of three, on one core: run it with OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from discreet.core.layout import Layout
from discreet.core.rng import Randomness, Secure, Seeded
from discreet.core.trajectories import Trajectories
from discreet.learners.offline.linear_pevi import DPPEVI, DPVAPVI, Linear
from discreet.mechanisms.features import Features
from discreet.mechanisms.linear import dataset_sums as stored
from discreet.mechanisms.linear.adaptive_queries import Question, ResponseSession

S, A, CHUNK = 100, 10, 100_000


def world(horizon: int, d: int, states: int = S) -> tuple[Layout, Features]:
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.full(d, 0.2), (states, A))
    return Layout(states, A, horizon), Features(table, l1=1.0, nonneg=True)


def cohort(layout: Layout, episodes: int) -> list[Trajectories]:
    rng = np.random.default_rng(1)
    return [
        Trajectories(
            rng.integers(0, layout.states, (n, layout.horizon + 1)),
            rng.integers(0, layout.actions, (n, layout.horizon)),
            rng.integers(0, 2, (n, layout.horizon)).astype(np.float64),
        )
        for n in [CHUNK] * (episodes // CHUNK) + [episodes % CHUNK] * (episodes % CHUNK > 0)
    ]


def learn(
    learner: Linear, layout: Layout, features: Features, chunks: list[Trajectories], randomness: Randomness
) -> tuple[float, float]:
    """Median seconds to store (checks and copies included) and to ask and plan."""
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        with learner.open(layout, features, randomness) as session:
            for chunk in chunks:
                session.submit_many(chunk)
            middle = time.process_time()
            learner.ask(session)
            seconds.append((middle - begin, time.process_time() - middle))
    store, ask = np.median(seconds, axis=0)
    return float(store), float(ask)


def gflops(rows: int, d: int) -> float:
    """Gram matrix of as many different pairs as there are rows: 2 d^2 operations a row."""
    layout, features = world(1, d, states=rows // A)
    plan = [Question(kind="gram", step=0, mu=None)] * 6
    every = np.arange(rows)
    with ResponseSession(layout, features, plan, Seeded(0)) as session:
        session.submit_many(
            Trajectories(
                np.stack([every // A, every // A], axis=1), (every % A)[:, None], np.zeros((rows, 1))
            )
        )
        seconds = [_timed(lambda: session.gram(0)) for _ in plan]
    return 2 * d * d * rows / float(np.median(seconds[1:])) / 1e9


def _timed(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=100)
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--records", action="store_true", help="keep records, not counts")
    options = parser.parse_args()
    layout, features = world(options.horizon, options.dimension)
    if options.records:
        stored.MOST_CELLS = 0
    warm = cohort(layout, 10)
    chunks = cohort(layout, options.episodes)
    print(f"K = {options.episodes}, d = {options.dimension}, H = {options.horizon}, S = {S}, A = {A}")
    for learner in (DPVAPVI(rho=1.0), DPPEVI(rho=1.0), DPPEVI(rho=1.0, response="model")):
        for randomness in (Seeded(0), Secure()):
            learn(learner, layout, features, warm, randomness)
            store, ask = learn(learner, layout, features, chunks, randomness)
            name = type(learner).__name__ + (f" {learner.response}" if isinstance(learner, DPPEVI) else "")
            print(
                f"{name:16} {randomness.kind:7} store {store:6.2f} s "
                f"({options.episodes * options.horizon / store / 1e6:5.1f} million transitions a second), "
                f"ask and plan {ask:6.2f} s"
            )
    for d in (options.dimension, 2 * options.dimension):
        print(f"Gram matrix of 100 000 different pairs, d = {d}: {gflops(100_000, d):.1f} GFLOP/s")


if __name__ == "__main__":
    main()
