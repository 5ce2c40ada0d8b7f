"""Wherever noise leaves, it is of the size that the record says, from which the guarantee is computed.

A case is a place where noise leaves. It gives what was released less the exact sums of people, whose rewards
lie on no grid of a session (multiples of 2^-20), and the scale of the mechanism's record. Mean, mean square
and neighbours' products must be those of the record's law (``noise_laws``), and secure values on their public
grid. The bytes of secure noise are fixed, so that no test fails by chance; were they fresh, one figure would
fail with probability 4e-8.

Faults are then planted: noise of 0.9 and of 0.5 times its size must be noticed at every place.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixed_bytes import fixed_bytes
from noise_laws import LEAST, Law, Piece, flips_law, law_of, off

import discreet as dr
from discreet.audit.noise_matrix import noise_matrix
from discreet.audit.noise_model import expected, expected_answer, readings, summand
from discreet.core import count_channels
from discreet.core.correlated_noise.matrix_factorization import MatrixFactorization
from discreet.core.count_query import CountQuery
from discreet.core.families import COUNTS, rewards, visits
from discreet.core.layout import Layout
from discreet.core.noise import discrete_samplers as exact
from discreet.core.query import FamilyQuery
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.core.vectors import BoundedVector
from discreet.data.schema import Schema
from discreet.device import count_device as device_counts
from discreet.device import discrete_noise as device_noise
from discreet.device import linear_device as device_linear
from discreet.device import randomized_response_device as device_reports
from discreet.device import shuffle_encoder as device_encoders
from discreet.device import skellam_device
from discreet.device.feature_map import FeatureMap
from discreet.device.shuffle_payload import read as read_bits
from discreet.mechanisms import seeded_noise_kernels as seeded_kernels
from discreet.mechanisms.dataset import clipped_sum as clipped_sums
from discreet.mechanisms.dataset import dataset_release as one_shot
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Plan, Response, Schedule
from discreet.mechanisms.linear import adaptive_queries as responses
from discreet.mechanisms.linear import context_sums, linear_session
from discreet.mechanisms.linear import per_user_means as person_sums
from discreet.mechanisms.linear.adaptive_queries import Question, ResponseSession
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecord
from discreet.mechanisms.linear.context_sums import GRAM_FAMILY, RESPONSE_FAMILY, ContextSums, Visits
from discreet.mechanisms.linear.linear_queries import GramQuery, LinearQuery, MixtureQuery
from discreet.mechanisms.open_session import mechanism_reused
from discreet.mechanisms.privatizers.shuffle import Shuffle
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.pipeline import federated as sites
from discreet.pipeline import state_codebook as codebook
from discreet.pipeline.federated import FederatedSite, FederationPlan

SOURCE = Path(dr.__file__).parent
LAYOUT = Layout(2, 300, 2)  # most cells where fewest are: 1200 visits, 2400 moves
SMALL = Layout(8, 5, 3)
GRID = 1024

Start = Callable[[int], Any]
"""The source of the i-th session."""


def seeded(run: int) -> Seeded:
    return Seeded(35, run)


def secure(run: int) -> Secure:
    return Secure(GRID)


def life(layout: Layout, rng: np.random.Generator) -> Trajectory:
    """Somebody whose rewards are multiples of 2^-20, and hardly ever of 1 / 1024."""
    rewards = rng.integers(0, 2**20 + 1, layout.horizon) / 2**20
    rewards[0] = 2.0**-20
    return Trajectory(
        rng.integers(0, layout.states, layout.horizon + 1),
        rng.integers(0, layout.actions, layout.horizon),
        rewards,
    )


def lives(layout: Layout, n: int, seed: int) -> list[Trajectory]:
    rng = np.random.default_rng(seed)
    return [life(layout, rng) for _ in range(n)]


def stacked(people: list[Trajectory]) -> Trajectories:
    return Trajectories(
        *(np.stack([getattr(one, name) for one in people]) for name in ("states", "actions", "rewards"))
    )


def coins_of(source: Any, user: int) -> Any:
    return SeededRng(source.keys.noise, user) if isinstance(source, Seeded) else SecureRng()


# ------------------------------------------------------------------------------ streams of releases


@dataclass(frozen=True)
class Blocks:
    """Of each run of cells with one scale: name, part of the flat vector, scale of the record, unit."""

    name: str
    part: slice
    scale: float
    unit: float | None


def blocks_of(session: Any, source: Any) -> list[Blocks]:
    """As the record says it: scales are read nowhere else."""
    query, record = session.query, session.guarantee.records[0]
    is_secure = isinstance(source, Secure)
    assert record.noise.startswith("discrete_") == is_secure
    out = []
    if isinstance(query, LinearQuery):
        goe = record.noise.endswith("gaussian")  # the diagonal has twice the variance
        for (name, step, diagonal), begin, end in zip(
            query.blocks, query.offsets, query.offsets[1:], strict=False
        ):
            scale = record.scales[f"{name}[{step}]"] * (math.sqrt(2.0) if diagonal and goe else 1.0)
            out.append(Blocks(f"{name}{' diagonal' if diagonal else ''}", slice(begin, end), scale, None))
        return out
    for name, begin, end in zip(query.row_families, query.offsets, query.offsets[1:], strict=False):
        unit = (1.0 if name in COUNTS else 1.0 / GRID) if is_secure else None
        out.append(Blocks(name, slice(begin, end), record.scales[name], unit))
    return out


def stream(
    privatizer: Any,
    query: Any,
    sizes: list[int],
    runs: int,
    source: Start,
    plans: Callable[[int], dict[str, Any]] | None = None,
    on_grid: bool = True,
) -> list[Piece]:
    """Runs of a session that releases after batches of these sizes.

    Sums: a piece is a family in a release, whose noise is the walk's combination of draws. Measurements, and
    batches with noise of their own: a piece is a family over all releases.
    """
    layout, times = query.layout, np.concatenate([[0], np.cumsum(sizes)])
    reads: Any = "measurements" if plans else "sums"
    noises: dict[tuple[str, int], list[Any]] = {}
    laws: dict[tuple[str, int], Law] = {}
    released: dict[tuple[str, int], list[Any]] = {}
    grids: dict[tuple[str, int], float | None] = {}
    start = mechanism_reused(privatizer.start)
    schedule = Schedule(int(times[-1]), times=times, final=True, reads=reads)
    for run in range(runs):
        rng = np.random.default_rng([1, run])
        with start(query, schedule, source(run)) as session:
            blocks, made, batches = blocks_of(session, source(run)), [], []
            session.release()
            for i, size in enumerate(sizes):
                policy: Any = rng.integers(0, layout.actions, (layout.horizon, layout.states))
                context = context_of(query)
                plan = Plan(policy, size, context, **(plans(i) if plans else {}))
                session.begin(plan)
                batch = np.zeros(query.cells)
                for _ in range(size):
                    one = life(layout, rng)
                    if policy.ndim == 2:
                        one = replace(one, actions=policy[np.arange(layout.horizon), one.states[:-1]])
                    session.submit(one)
                    batch += own(query, one, context, session)
                batches.append(batch)
                made.append(session.release())
            read = readings(query, made)
            residual = read.values - expected(read, np.array(batches))
            mixing = None if read.measured else weights_of(session, len(sizes))
            values = read.values
            if (
                mixing is not None
                and session.mechanism.walk is None
                and not getattr(session.mechanism, "decay", 0.0)
            ):
                mixing = None  # each batch has noise of its own, which differences of sums have
                residual, values = (np.diff(one, axis=0, prepend=0.0) for one in (residual, values))
        for block in blocks:
            for i in range(len(sizes)):
                due = read.due[i, block.part]
                if not due.any():
                    continue
                key = (block.name, -1 if mixing is None else i)
                one_law = law_of(
                    session.guarantee.records[0].noise.endswith("laplace"),
                    block.scale,
                    block.unit if on_grid else None,
                )
                weights = np.ones(1) if mixing is None else mixing[i]
                scaled = residual[i, block.part][due] / block.scale  # blocks of one name may differ in scale
                law = one_law.mixed(weights)
                laws[key] = Law(law.variance / block.scale**2, law.kurtosis)
                noises.setdefault(key, []).append(scaled)
                released.setdefault(key, []).append(values[i, block.part][due])
                grids[key] = None if block.unit is None or not on_grid else 1.0 / block.unit
    return [
        Piece(
            f"{name} {i}",
            np.concatenate(noises[name, i]),
            laws[name, i],
            np.concatenate(released[name, i]),
            grids[name, i],
        )
        for name, i in noises
    ]


def weights_of(session: Any, releases: int) -> Any:
    """(releases, draws) of the noise in sums, from the strategy's own program."""
    mechanism = session.mechanism
    if mechanism.walk is None:
        if getattr(mechanism, "decay", 0.0):
            decay = mechanism.decay
            return (np.tril(np.full((releases, releases), 1.0 - decay), -1) + np.eye(releases)) / math.sqrt(
                1 - decay**2
            )
        return np.tril(np.ones((releases, releases)))
    return noise_matrix(mechanism.walk)[0][:releases]


def context_of(query: Any) -> dict[str, Any]:
    return dict(CONTEXT) if isinstance(query, MixtureQuery) else {}


def own(query: Any, one: Trajectory, context: dict[str, Any], session: Any) -> Any:
    if isinstance(query, LinearQuery):
        return summand(query, one, context)
    group = getattr(session, "open_group", 0)
    cut = session.cut if query.cut else None
    more = {} if isinstance(query, FamilyQuery) else {"group": group, "cut": cut}
    return query.to_cells(query.contribution(one, **more))


COUNTED = CountQuery(LAYOUT)
CENTRED = CountQuery(LAYOUT, visits=False, center_rewards=True)
MOVES = CountQuery(LAYOUT, visits=False, known_rewards=True, stationary=True)
GAUSSIAN, LAPLACE = {"mu": 0.3}, {"epsilon": 0.5}
BANDED = [[2.0, 0.0, 0.0], [0.7, 1.0, 0.0], [0.0, 0.3, 0.5]]
WHOLE = [[1, 0, 0], [-1, 1, 0], [2, -1, 1]]
ONE_HOT = Features(np.eye(40).reshape(8, 5, 40), 1.0, l1=1.0, nonneg=True)
MODEL = GramQuery(layout=SMALL, features=ONE_HOT)
_RNG = np.random.default_rng(5)
MIXED = MixtureQuery(layout=SMALL, features=MixtureFeatures(_RNG.uniform(-1, 1, (8, 5, 8, 40)) / 8, 10.0))
CONTEXT = {"values": np.array([_RNG.uniform(0, 3 - h, 8) for h in range(4)])}


def batches(of: Any, budget: dict[str, float], releases: int, **how: Any) -> Callable[[Start], list[Piece]]:
    return lambda source: stream(
        dr.Central(**budget, release="batches"), of, [2] * releases, 1, source, **how
    )


def summed(
    release: Any, of: Any, budget: dict[str, float], runs: int, **how: Any
) -> Callable[[Start], list[Piece]]:
    """Sums after each of three batches, which share noise."""
    on_grid = release != "square-root"  # post-processed: the measurements are integers
    return lambda source: stream(
        dr.Central(**budget, release=release, **how), of, [2, 1, 2], runs, source, on_grid=on_grid
    )


def cut_then_centred(source: Start) -> list[Piece]:
    query = replace(CENTRED, cut=1.0)
    plans = lambda i: {"cut": math.inf if i == 14 else None}  # noqa: E731
    return stream(dr.Central(**GAUSSIAN, release="batches"), query, [2] * 21, 1, source, plans)


def grouped(source: Start) -> list[Piece]:
    query = replace(CENTRED, groups=300, clip=2.0)
    return stream(
        dr.Central(**GAUSSIAN, release="batches"), query, [2] * 28, 1, source, lambda i: {"group": i % 300}
    )


# ------------------------------------------------------------------------------ stored people


def stored(
    query: CountQuery, budget: dict[str, float], runs: int, tally: bool = False
) -> Callable[[Start], list[Piece]]:
    """One release of all people, by steps; ``tally`` : people were counted elsewhere."""

    def found(source: Start) -> list[Piece]:
        noises: dict[str, list[Any]] = {}
        values: dict[str, list[Any]] = {}
        for run in range(runs):
            people = lives(query.layout, 3, run)
            whole = sum(query.to_cells(query.contribution(one)) for one in people)
            with dr.Central(**budget).stored(query, source(run)) as session:
                if tally:
                    here = dr.mechanisms.PartialAggregate(
                        query, GRID if isinstance(source(run), Secure) else None
                    )
                    here.add(stacked(people), np.arange(3))
                    session.submit_tally(here)
                else:
                    session.submit_many(stacked(people), np.arange(3))
                blocks = blocks_of(session, source(run))
                steps = list(session.release())
            tables = {"visits": "visits", "transition_counts": "transitions"}
            for block in blocks:
                released = np.concatenate(
                    [getattr(one, tables.get(block.name, "rewards")).ravel() for one in steps]
                )
                noises.setdefault(block.name, []).append(released - whole[block.part])
                values.setdefault(block.name, []).append(released)
        laplace = "epsilon" in budget
        return [
            Piece(
                block.name,
                np.concatenate(noises[block.name]),
                law_of(laplace, block.scale, block.unit),
                np.concatenate(values[block.name]),
                block.unit and 1.0 / block.unit,
            )
            for block in blocks
        ]

    return found


def two_groups(budget: dict[str, float]) -> Callable[[Start], list[Piece]]:
    """A release of some people, and a clipped sum of others whose noise matches its record."""

    def found(source: Start) -> list[Piece]:
        vectors = np.random.default_rng(12).standard_normal((40, 1200))
        query, laplace = CENTRED, "epsilon" in budget
        noises, values, others, scale = [], [], [], 0.0
        for run in range(7):
            people = lives(query.layout, 3, run)
            whole = sum(query.to_cells(query.contribution(one)) for one in people)
            with dr.Central(**budget).stored(query, source(run)) as session:
                session.submit_many(stacked(people), np.arange(3))
                (record,) = session.records
                block = blocks_of(session, source(run))[0]
                first = next(iter(session.release())).transitions.ravel()[: vectors.shape[1]]
            asked = clipped_sums.ClippedSum.matching(record, vectors.shape[1])
            assert asked.record.loss <= record.loss * (1 + 1e-15)
            released = asked.release(vectors, 3.0, source(run))
            exact_sum = asked.clipped(vectors, 3.0).sum(axis=0) / clipped_sums.GRID
            scale = asked.record.scales[asked.FAMILY]
            noises.append(released - exact_sum)
            values.append(released)
            others.append((first - whole[block.part][: vectors.shape[1]]) / block.scale)
        noise, unit = np.concatenate(noises), 1.0 if laplace else 0.5
        together = np.concatenate(others) * noise / scale
        released = np.concatenate(values)
        grid = clipped_sums.GRID if isinstance(source(0), Secure) else None
        return [
            Piece("sums", noise, law_of(laplace, scale), released, grid),
            Piece("both groups", together, Law(4.0 * unit**2, 36.0 if laplace else 9.0)),
        ]

    return found


def stored_contexts(budget: dict[str, float]) -> Callable[[Start], list[Piece]]:
    """Sums of stored visits, off the diagonal of the Gram matrices, and of responses."""

    def found(source: Start) -> list[Piece]:
        features, laplace = FeatureMap({f"x{i}": (-1.0, 1.0) for i in range(40)}, 3), "epsilon" in budget
        visits = Visits(
            np.arange(4), np.random.default_rng(3).normal(size=(4, 40)), np.arange(4) % 3, np.full(4, 0.5)
        )  # fmt: skip
        released: list[list[Any]] = [[], []]
        noises: list[list[Any]] = [[], []]
        for run in range(70):
            sums = []
            for privatizer in (dr.Central(**budget), dr.NoPrivacy()):
                session = ContextSums(features, 2, privatizer, source(run))
                session.submit_many(visits)
                if privatizer.trust == "joint":
                    scales = [session.records[0].scales[name] for name in (GRAM_FAMILY, RESPONSE_FAMILY)]
                answer = session.release()
                off = np.triu_indices(features.dimension, 1)
                sums.append([answer.gram[:, off[0], off[1]].ravel(), answer.response.ravel()])
            for kept, noise, noisy, plain in zip(released, noises, *sums, strict=True):
                kept.append(noisy)
                noise.append(noisy - plain)
        return [
            Piece(name, np.concatenate(noise), law_of(laplace, scale), np.concatenate(kept), None)
            for name, noise, kept, scale in zip(
                ("Gram matrices", "responses"), noises, released, scales, strict=True
            )
        ]

    return found


def split_sites(source: Start) -> list[Piece]:
    """The sum of as many shares as are surely honest: the record is of these together."""
    schema = Schema("ward", "patient", LAYOUT, stationary=True)
    plan = FederationPlan(schema, dr.DecisionPoints(), dr.Central(epsilon=1.0, delta=1e-6), 3, noise="sites")
    tally = dr.mechanisms.PartialAggregate(plan.query, sites._GRID)
    # nobody is in the last state, where a record has ended
    people = [replace(one, states=one.states % 2) for one in lives(plan.query.layout, 4, 3)]
    tally.add(stacked(people), np.arange(4))
    site = object.__new__(FederatedSite)  # of these people, without files
    for name, value in (
        ("plan", plan),
        ("part", type("Part", (), {"tally": tally, "rules": {}})()),
        ("ledger", None),
    ):
        object.__setattr__(site, name, value)
    whole = tally.cells()
    (record,) = plan.records
    sums = np.array([sum(site.send()[1:] for _ in range(plan.honest)) for _ in range(60)])
    out = []
    for name, begin, end in zip(
        plan.query.row_families, plan.query.offsets, plan.query.offsets[1:], strict=False
    ):
        grid = 1 if name in COUNTS else sites._GRID
        noise = sums[:, begin:end] / grid - plan.honest * whole[begin:end]
        out.append(
            Piece(
                name, noise, law_of(False, record.scales[name], 1.0 / grid), sums[:, begin:end] / grid, grid
            )
        )
        out.append(products(f"{name} of two sums", noise / record.scales[name]))
    return out


def products(name: str, z: Any) -> Piece:
    """Of each row, of scale 1, with the next one: rows that share Gaussian noise have another mean."""
    return Piece(name, (z[1:] * z[:-1]).ravel(), Law(1.0, 9.0))


def questions(budget: dict[str, float]) -> tuple[list[Question], list[dict[str, Any]]]:
    """Of every kind, centred and raw, with and without rewards and weights."""
    rng = np.random.default_rng(2)
    (unit,) = budget
    values, weights = rng.uniform(0, 2, (5, 8)), rng.uniform(0.2, 1.0, (8, 5))
    base: dict[str, Any] = {"mu": None, "epsilon": None, unit: budget[unit]}
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"kind": "gram", "step": 2}, {"weights": weights}),
        ({"kind": "response", "step": 2, "high": 3.0}, {"values": values[0]}),
        (
            {"kind": "response", "step": 1, "high": 3.0, "reward": False, "centre": False},
            {"values": values[1], "weights": weights},
        ),
        ({"kind": "pair", "step": 1, "high": 3.0}, {"values": values[2]}),
        ({"kind": "model", "step": 0}, {}),
        *[({"kind": "start", "step": 0, "reward": False}, {})] * 8,
    ]
    return [Question(**base, **one) for one, _ in asked], [how for _, how in asked]


def answers(budget: dict[str, float]) -> Callable[[Start], list[Piece]]:
    def found(source: Start) -> list[Piece]:
        plan, asked = questions(budget)
        laplace = "epsilon" in budget
        noises: dict[str, list[Any]] = {}
        for run in range(130):
            both = []
            for one, randomness in (
                (plan, source(run)),
                ([replace(q, mu=None, epsilon=None) for q in plan], Seeded(0)),
            ):
                session = ResponseSession(SMALL, ONE_HOT, one, randomness)
                session.submit_many(stacked(lives(SMALL, 5, run)))
                both.append([ask(session, q, how) for q, how in zip(one, asked, strict=True)])
                if one is plan:
                    (record,) = session.records
            for i, (noisy, plain) in enumerate(zip(*both, strict=True)):
                kind, step = plan[i].kind, plan[i].step
                scale = {
                    name: record.scales.get(f"{i}.{name}[{step}]", 0.0)
                    for name in ("gram", "response", "successors", "rewards", "start")
                }
                vector = scale["start"] if kind == "start" else scale["response"] * noisy.span
                for name, size in (
                    ("vector", vector),
                    ("successors", scale["successors"]),
                    ("rewards", scale["rewards"]),
                ):
                    if getattr(noisy, name) is not None:
                        noises.setdefault(f"{kind} {name}", []).append(
                            (getattr(noisy, name) - getattr(plain, name)).ravel() / size
                        )
                if noisy.gram is not None:
                    noise = (noisy.gram - plain.gram) / scale["gram"]
                    assert np.array_equal(noise, noise.T)
                    noises.setdefault(f"{kind} gram", []).append(noise[np.triu_indices(40, 1)])
                    noises.setdefault("diagonal", []).append(
                        noise.diagonal() / (1.0 if laplace else math.sqrt(2.0))
                    )
        # "pair vector" and the like have 40 cells a run; those that are too few stand together
        kept = {name: np.concatenate(parts) for name, parts in noises.items()}
        few = [name for name, one in kept.items() if one.size < LEAST]
        together = {"vectors": np.concatenate([kept.pop(name) for name in few])} if few else {}
        if (
            "start vector" in kept and not laplace
        ):  # the one of few units, which discrete Gaussian noise does not feel
            assert record.scales["5.start[0]"] > 3
        return [Piece(name, one, law_of(laplace, 1.0)) for name, one in (kept | together).items()]

    return found


def ask(session: Any, question: Question, how: dict[str, Any]) -> Any:
    given = {name: how[name] for name in ("values", "weights") if name in how}
    if question.kind == "start":
        return session.start()
    return getattr(session, question.kind)(question.step, **given)


def asked_again(source: Start) -> list[Piece]:
    """Answers about people of a stream, between its releases."""
    query = GramQuery(layout=SMALL, features=ONE_HOT, model=False)
    schedule = Schedule(6, times=np.array([0, 2, 4, 6]), final=True)
    noises, rng = [], np.random.default_rng(4)
    for run in range(24):
        with dr.Central(**GAUSSIAN, release="batches").start(query, schedule, source(run)) as session:
            record, came = session.guarantee.records[1], []
            session.release()
            at = 0
            for batch in range(3):
                session.begin(Plan(np.zeros((3, 8), np.int64), 2))
                for one in lives(SMALL, 2, 100 * run + batch):
                    one = replace(one, actions=np.zeros(3, np.int64))
                    session.submit(one)
                    came.append(one)
                session.release()
                for h in reversed(range(query.steps)):
                    values = rng.uniform(0, 2 - h, 8)
                    question = Response(h, values, (0.0, 3.0 - h))
                    answer = session.answer(question)
                    own_range = float(np.ptp(values)) + 1.0
                    scale = record.scales[f"{at}.response[{h}]"] * own_range
                    noises.append((answer.value - expected_answer(query, question, came)) / scale)
                    at += 1
    return [Piece("answers", np.concatenate(noises), law_of(False, 1.0))]


# ------------------------------------------------------------------------------ devices


def devices(
    privatizer: Any, query: Any, users: int, coins: Callable[[Any, int], Any] = coins_of
) -> Callable[[Start], list[Piece]]:
    """Messages of one person each, less their own records."""

    def found(source: Start) -> list[Piece]:
        rng, rows, messages = np.random.default_rng(6), [], []
        with privatizer.start(query, Schedule(users), source(0)) as session:
            blocks = blocks_of(session, source(0))
            session.release()
            context = context_of(query)
            encoder = session.begin(
                Plan(np.zeros((query.layout.horizon, query.layout.states), np.int64), users, context)
            )
            for user in range(users):
                one = replace(life(query.layout, rng), actions=np.zeros(query.layout.horizon, np.int64))
                message = np.asarray(
                    encoder(one, session.open_plan, coins(source(0), user)).message, np.float64
                )
                units = np.ones(1)
                if isinstance(query, LinearQuery) and session.mechanism.grid is not None:
                    units = np.repeat(query.block_units(session.mechanism.grid), np.diff(query.offsets))
                    assert np.array_equal(message, np.rint(message))
                messages.append(message * units)
                rows.append(messages[-1] - own(query, one, context, session))
        return by_name(
            blocks, np.array(rows), np.array(messages), session.guarantee.records[0].noise.endswith("laplace")
        )

    return found


CONTEXTS = ContextQuery(features=FeatureMap({f"x{i}": (-1.0, 1.0) for i in range(39)}, 3))


def person_in_context(rng: np.random.Generator) -> ContextRecord:
    rewards = rng.integers(0, 2**20 + 1, 1) / 2**20
    return ContextRecord(rng.normal(size=(1, 39)), rng.integers(0, 3, 1), rewards)


def contexts(privatizer: Any, releases: int) -> Callable[[Start], list[Piece]]:
    """Batches of two people each with real-valued contexts, less their own records."""

    def found(source: Start) -> list[Piece]:
        rng, rows, values = np.random.default_rng(7), [], []
        times = 2 * np.arange(releases + 1)
        schedule = Schedule(2 * releases, times=times, final=True, reads="measurements")
        with privatizer.start(CONTEXTS, schedule, source(0)) as session:
            blocks, before = blocks_of(session, source(0)), np.zeros(CONTEXTS.cells)
            session.release()
            for _ in range(releases):
                session.begin(Plan(np.zeros((3, 40)), 2))
                batch = np.zeros(CONTEXTS.cells)
                for _ in range(2):
                    one = person_in_context(rng)
                    session.submit(one)
                    batch += cells_of_context(one)
                estimates = session.release().estimates
                now = np.concatenate([flat(estimates[name].value) for name in CONTEXTS.families])
                values.append(now - before)
                rows.append(values[-1] - batch)
                before = now
        return by_name(
            blocks, np.array(rows), np.array(values), session.guarantee.records[0].noise.endswith("laplace")
        )

    return found


def context_devices(privatizer: Any, users: int) -> Callable[[Start], list[Piece]]:
    """Messages of one person each with a real-valued context, less their own records."""

    def found(source: Start) -> list[Piece]:
        rng, rows, messages = np.random.default_rng(8), [], []
        with privatizer.start(CONTEXTS, Schedule(users, reads="measurements"), source(0)) as session:
            blocks = blocks_of(session, source(0))
            session.release()
            encoder = session.begin(Plan(np.zeros((3, 40)), users))
            grid = session.mechanism.grid
            units = 1.0 if grid is None else np.repeat(CONTEXTS.block_units(grid), np.diff(CONTEXTS.offsets))
            for user in range(users):
                one = person_in_context(rng)
                message = encoder(one, session.open_plan, coins_of(source(0), user)).message
                messages.append(np.asarray(message, np.float64) * units)
                rows.append(messages[-1] - cells_of_context(one))
        return by_name(
            blocks, np.array(rows), np.array(messages), session.guarantee.records[0].noise.endswith("laplace")
        )

    return found


def shuffled_contexts(source: Start) -> list[Piece]:
    """Messages to a shuffler of one person each with a real-valued context, less their own records."""
    query = ContextQuery(features=FeatureMap({"x": (-1.0, 1.0)}, 300))
    users, rng, noises = 200_000, np.random.default_rng(10), []
    schedule = Schedule(users, np.array([0, users]), reads="measurements", final=True)
    with Shuffle(epsilon=1.0, delta=1e-6).start(query, schedule, source(0)) as session:
        (record,) = session.guarantee.records
        session.release()
        encoder = session.begin(Plan(np.zeros((300, 2)), users))
        device = encoder.device
        for user in range(30):
            level = rng.integers(0, 65, 1)
            one = ContextRecord(rng.normal(size=(1, 1)), rng.integers(0, 300, 1), level / 64)
            message = encoder(one, session.open_plan, coins_of(source(0), user)).message
            cells = device.read(session.open_plan.number, message)[1]
            noises.append(cells - device.contributions(one.contexts, one.actions, level))
    ((honest, *numbers),) = record.batches
    assert min(device.variances) * honest == numbers[-1] > 0.0
    by_cell, found = np.repeat(device.variances, np.diff(device.form.offsets)), np.array(noises, np.float64)
    return [
        Piece(f"variance {v}", found[:, by_cell == v].ravel(), Law(float(v), 3.0 + 1.0 / v))
        for v in sorted(set(device.variances))
    ]


def cells_of_context(one: ContextRecord) -> Any:
    return np.concatenate([flat(table) for table in CONTEXTS.contribution(one).values()])


def flat(table: Any) -> Any:
    """Cells of a released family, as in the flat vector: of matrices the diagonal, then what is above it."""
    if table.ndim < 3:
        return table.ravel()
    above = np.triu_indices(table.shape[1], 1)
    return np.concatenate([np.concatenate([np.diag(one), one[above]]) for one in table])


def by_name(blocks: list[Blocks], noises: Any, values: Any, laplace: bool) -> list[Piece]:
    names: dict[str, list[Blocks]] = {}
    for block in blocks:
        names.setdefault(block.name, []).append(block)
    out = []
    for name, those in names.items():
        noise = np.concatenate([noises[:, one.part].ravel() / one.scale for one in those])
        law, unit = law_of(laplace, those[0].scale, those[0].unit), those[0].unit
        released = np.concatenate([values[:, one.part].ravel() for one in those])
        law = Law(law.variance / those[0].scale ** 2, law.kurtosis)
        out.append(Piece(name, noise, law, released, None if unit is None else 1.0 / unit))
    return out


def reported(privatizer: Any, local: bool) -> Callable[[Start], list[Piece]]:
    """How often reports name the own element, and one of the others, of a record that is always the same."""
    layout, users = Layout(3, 2, 2), 8_000
    query = CountQuery(layout, visits=False, known_rewards=True)

    def found(source: Start) -> list[Piece]:
        one = Trajectory(np.array([0, 1, 2]), np.zeros(2, np.int64), np.array([0.0, 1.0]))
        moves, bits = [], []
        with privatizer.start(query, Schedule(users, plans="deterministic"), source(0)) as session:
            (record,) = session.guarantee.records
            session.release()
            encoder = session.begin(Plan(np.zeros((2, 3), np.int64), users))
            encoder = encoder if local else session.open_randomizer
            for user in range(users):
                message = encoder(one, session.open_plan, coins_of(source(0), user)).message
                for h, _, marks in device_reports.decoded(
                    session.reports, False, np.asarray(message, np.int64)
                ):
                    own_one = 3 * int(one.states[h]) + int(one.states[h + 1])
                    moves.append((marks[own_one], marks[(own_one + 1 + user % 8) % 9]))
        pieces = frequencies("moves", moves, record)
        with privatizer.start(
            replace(query, known_rewards=False, center_rewards=True),
            Schedule(9, plans="deterministic"),
            source(0),
        ) as session:
            (record,) = session.guarantee.records
            randomizer = session.reports.randomizer(1, False)
            for user in range(users):
                named = randomizer.draw(2, coins_of(source(0), user))
                bits.append((2 in named, (3 + user % 5) % 6 in named))
        return pieces + frequencies("rewards", bits, record)

    return found


def frequencies(about: str, seen: list[Any], record: Any) -> list[Piece]:
    """Of the own element and another one, by the chances of the record."""
    kind, elements, size, own_chance, other = next(
        one for name, one in record.alphabets.items() if about in name
    )
    p = own_chance / 2**53
    q = other / 2**53 if kind == "unary" else (size - p) / (elements - 1)
    table = np.array(seen, np.float64)
    return [
        Piece(f"{about}: {name}", column - chance, flips_law([(1, chance)]))
        for name, column, chance in (("own", table[:, 0], p), ("other", table[:, 1], q))
    ]


def shuffled(source: Start) -> list[Piece]:
    """Coin flips in messages to a shuffler. A person's own bits are taken off, or her counters left out."""
    layout, users = Layout(6, 2, 3), 40
    query = CountQuery(layout, visits=False, center_rewards=True)
    noises: dict[str, list[Any]] = {}
    rng = np.random.default_rng(8)
    for run in range(8):
        schedule = Schedule(users, times=np.array([0, users]), final=True)
        with Shuffle(epsilon=1.0, delta=1e-4).start(query, schedule, source(run)) as session:
            (record,) = session.guarantee.records
            session.release()
            encoder = session.begin(Plan(np.zeros((3, 6), np.int64), users))
            form = encoder.device.form
            for user in range(users):
                one = replace(life(layout, rng), actions=np.zeros(3, np.int64))
                message = encoder(one, session.open_plan, coins_of(source(run), user)).message
                ones = read_bits(form, session.open_plan.number, message)[1]
                cells = np.arange(3) * form.pairs + form.row_table[one.states[:-1], one.actions]
                for i, family in enumerate(form.families):
                    part = ones[form.begins[i] : form.begins[i + 1]].astype(np.float64)
                    if family.kind == "transitions":
                        part[cells * form.states + one.states[1:]] -= 1.0
                    else:  # two bits of her own, of which one is 1 where she was not
                        part = np.delete(part - 1.0, cells)
                    noises.setdefault(family.kind, []).append(part)
    out = []
    for name, flips in record.batches[0]:
        kind = "transitions" if name == "transition_counts" else "centered_rewards"
        p = flips.coin / 2**32
        mean = flips.each / 2 if flips.paired else flips.each * p
        out.append(Piece(kind, np.concatenate(noises[kind]) - mean, flips_law([(flips.each, p)])))
    return out


# ------------------------------------------------------------------------------ codebooks


WARD = """
dataset = "ward"
unit = "patient"
horizon = 6
reward = { low = 0.0, high = 1.0 }
[prepare]
user = "who"
time = { column = "when", numbers = "hours" }
step = "1 hour"
long = "cut"
[prepare.values.x]
column = "x"
within = "last"
range = [-10, 10]
[prepare.values.a]
column = "x"
within = "last"
range = [-10, 10]
cuts = [0]
[prepare.states.codebook]
file = "fitted/codebook.csv"
scale = { x = 2.0 }
[prepare.actions]
product = ["a"]
[prepare.end]
column = "who"
states = { "nobody" = "end" }
unreadable = "missing"
missing = "end"
[prepare.reward]
on = { end = 1.0 }
"""


def fitted(folder: Path, **what: Any) -> Callable[[Start], list[Piece]]:
    """Every noisy sum that a fit draws, beside the exact sum of its people."""

    def found(source: Start) -> list[Piece]:
        import pandas as pd

        declared = folder / "ward.toml"
        declared.write_text(WARD)
        rng = np.random.default_rng(9)
        frame = pd.DataFrame(
            {
                "who": [f"P{i}" for i in range(200)],
                "when": 0,
                "x": rng.integers(-10 * 2**20, 10 * 2**20, 200) / 2**20,
            }
        )
        right, seen = codebook.noisy, []

        def watched(sums: Any, sigma: int, draw: Any) -> Any:
            noisy = right(sums, sigma, draw)
            values = noisy / person_sums.GRID if noisy.dtype.kind == "i" else noisy
            seen.append((values - sums / person_sums.GRID, values))
            return noisy

        out = folder / f"fitted-{source(0).kind}-{len(list(folder.iterdir()))}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(codebook, "noisy", watched)
            codebook.fit_codebook(
                frame,
                declared,
                out,
                epsilon=1.0,
                delta=1e-6,
                ledger=None,
                randomness=source(0),
                anyway=True,
                **what,
            )
        record = dr.Guarantee.from_dict(codebook.read_facts(out)["guarantee"]).records[0]
        noises = np.concatenate([noise.ravel() for noise, _ in seen])
        values = np.concatenate([value.ravel() for _, value in seen])
        out = [Piece("sums", noises, law_of(False, record.scales["sums"]), values, person_sums.GRID)]
        if len(seen) > 1:
            rounds = np.array([noise.ravel() for noise, _ in seen])
            out.append(products("rounds", rounds / record.scales["sums"]))
        return out

    return found


# ------------------------------------------------------------------------------ all of them


@dataclass(frozen=True)
class Case:
    """One place where noise leaves.

    run : what is released. drawn_in : modules that draw it, or hand on who does, of those that name a secure
    source. plants : by source, (object, name) of what draws: a fault makes its noise smaller.
    """

    run: Callable[[Start], list[Piece]]
    drawn_in: tuple[str, ...]
    plants: dict[str, tuple[Any, str]]


SEEDED = (seeded_kernels, "fill_noise")
CORE = {"seeded": SEEDED, "secure": (count_channels, "SecureRng")}
STORED = {"seeded": (one_shot.seeded_kernels, "fill_noise"), "secure": (one_shot, "SecureRng")}
LINEAR = {"seeded": SEEDED, "secure": (linear_session, "SecureRng")}
LINEAR_STORED = {"seeded": SEEDED, "secure": (context_sums, "SecureRng")}
ANSWERS = {"seeded": (responses, "SeededRng"), "secure": (responses, "SecureRng")}
CLIPPED = {"seeded": (clipped_sums, "SeededRng"), "secure": (clipped_sums, "SecureRng")}
ON_DEVICE = {"seeded": (device_counts, "drawn"), "secure": (device_counts, "drawn")}
LINEAR_DEVICE = {"seeded": (device_linear, "drawn"), "secure": (device_linear, "drawn")}
CODEBOOK = {"seeded": (person_sums, "discrete_gaussian"), "secure": (person_sums, "discrete_gaussian")}
REPORTS = {"seeded": (device_reports.Randomizer, "draw"), "secure": (device_reports.Randomizer, "draw")}
FLIPS = {"seeded": (device_encoders, "noise_ones"), "secure": (device_encoders, "noise_ones")}
SKELLAM = {"seeded": (skellam_device, "skellam"), "secure": (skellam_device, "skellam")}
IN_CORE = ("core.count_channels", "core.rng", "core.noise.discrete_samplers")
IN_LINEAR = ("mechanisms.linear.linear_session", "device.discrete_noise")


def only(source: str, plants: dict[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    return {source: plants[source]}


FAMILIES = FamilyQuery(
    LAYOUT,
    (visits(), rewards(0.5), BoundedVector("x", 600, 2.0, lambda record, _: np.eye(600)[record.states[0]])),
)

CASES: dict[str, Case] = {
    "counts, Gaussian": Case(batches(COUNTED, GAUSSIAN, 7), IN_CORE, CORE),
    "counts, Laplace": Case(batches(COUNTED, LAPLACE, 7), IN_CORE, CORE),
    "families and a vector, Gaussian": Case(batches(FAMILIES, GAUSSIAN, 14), IN_CORE, CORE),
    "families and a vector, Laplace": Case(batches(FAMILIES, LAPLACE, 14), IN_CORE, CORE),
    "centred counts": Case(batches(CENTRED, LAPLACE, 7), IN_CORE, CORE),
    "counts pooled beside": Case(batches(replace(CENTRED, pooled="all"), GAUSSIAN, 14), IN_CORE, CORE),
    "first visits pooled beside": Case(
        batches(replace(CENTRED, pooled="first"), GAUSSIAN, 14), IN_CORE, CORE
    ),
    "counts of all steps": Case(batches(replace(COUNTED, stationary=True), GAUSSIAN, 14), IN_CORE, CORE),
    "cut rewards, then centred": Case(cut_then_centred, IN_CORE, CORE),
    "group returns": Case(grouped, IN_CORE, only("seeded", CORE)),
    "decaying": Case(
        lambda source: stream(
            dr.Central(**GAUSSIAN, release="decaying"), COUNTED, [2, 1, 2], 7, source, on_grid=False
        ),
        IN_CORE,
        CORE,
    ),
    "tree, Laplace": Case(summed("tree", COUNTED, LAPLACE, 7, tree_estimate="plain"), IN_CORE, CORE),
    "tree, Gaussian": Case(summed("tree", COUNTED, GAUSSIAN, 7, tree_estimate="plain"), IN_CORE, CORE),
    "optimal tree": Case(
        summed("tree", COUNTED, GAUSSIAN, 7, tree_estimate="optimal"), IN_CORE, only("seeded", CORE)
    ),
    "signed digits": Case(summed("signed-digits", COUNTED, LAPLACE, 7, arity=3), IN_CORE, CORE),
    "matrix, Gaussian": Case(
        summed(MatrixFactorization(BANDED), COUNTED, GAUSSIAN, 7), IN_CORE, only("seeded", CORE)
    ),
    "matrix, Laplace": Case(
        summed(MatrixFactorization(BANDED), COUNTED, LAPLACE, 7), IN_CORE, only("seeded", CORE)
    ),
    "matrix of integers, Gaussian": Case(
        summed(MatrixFactorization(WHOLE), COUNTED, GAUSSIAN, 7), IN_CORE, CORE
    ),
    "matrix of integers, Laplace": Case(
        summed(MatrixFactorization(WHOLE), COUNTED, LAPLACE, 7), IN_CORE, CORE
    ),
    "square root": Case(summed("square-root", COUNTED, GAUSSIAN, 7), IN_CORE, only("seeded", CORE)),
    "stored people": Case(
        stored(replace(COUNTED, center_rewards=True), GAUSSIAN, 7),
        ("mechanisms.dataset.dataset_release",),
        STORED,
    ),
    "stored people, Laplace": Case(
        stored(CENTRED, LAPLACE, 7), ("mechanisms.dataset.dataset_release",), STORED
    ),
    "first visits": Case(
        stored(CountQuery(LAYOUT, center_rewards=True, stationary=True, first=True), GAUSSIAN, 14),
        ("mechanisms.dataset.dataset_release",),
        STORED,
    ),
    "a tally's people": Case(
        stored(CENTRED, GAUSSIAN, 7, tally=True),
        ("mechanisms.dataset.dataset_release", "mechanisms.dataset.partial_aggregate"),
        STORED,
    ),
    "two groups": Case(two_groups(GAUSSIAN), ("mechanisms.dataset.clipped_sum",), CLIPPED),
    "two groups, Laplace": Case(two_groups(LAPLACE), ("mechanisms.dataset.clipped_sum",), CLIPPED),
    "stored contexts": Case(stored_contexts(GAUSSIAN), ("mechanisms.linear.context_sums",), LINEAR_STORED),
    "sites": Case(split_sites, ("pipeline.federated",), {"secure": (sites, "SecureRng")}),
    "linear sums in batches": Case(batches(MODEL, GAUSSIAN, 67), IN_LINEAR, LINEAR),
    "linear sums in batches, Laplace": Case(batches(MODEL, LAPLACE, 67), IN_LINEAR, LINEAR),
    "mixtures in batches": Case(batches(MIXED, GAUSSIAN, 101), IN_LINEAR, LINEAR),
    "linear sums, tree": Case(summed("tree", MODEL, GAUSSIAN, 67, tree_estimate="plain"), IN_LINEAR, LINEAR),
    "linear sums, square root": Case(summed("square-root", MODEL, GAUSSIAN, 67), IN_LINEAR, LINEAR),
    "answers": Case(answers({"mu": 0.3}), ("mechanisms.linear.adaptive_queries",), ANSWERS),
    "answers, Laplace": Case(answers({"epsilon": 0.3}), ("mechanisms.linear.adaptive_queries",), ANSWERS),
    "answers of a stream": Case(
        asked_again, ("mechanisms.linear.adaptive_queries", "mechanisms.linear.linear_session"), ANSWERS
    ),
    "devices' counts": Case(
        devices(dr.Local(**GAUSSIAN), COUNTED, 14),
        ("device.discrete_noise", "device.count_device"),
        ON_DEVICE,
    ),
    "devices' counts, Laplace": Case(
        devices(dr.Local(epsilon=0.5, randomizer="laplace"), COUNTED, 14),
        ("device.discrete_noise", "device.count_device"),
        ON_DEVICE,
    ),
    "devices' counts, by NumPy alone": Case(
        devices(dr.Local(**GAUSSIAN), MOVES, 7, lambda source, user: device_noise.ExactCoins()),
        ("device.discrete_noise",),
        only("secure", ON_DEVICE),
    ),
    "contexts in batches": Case(contexts(dr.Central(**GAUSSIAN), 67), IN_LINEAR, LINEAR),
    "contexts in batches, Laplace": Case(contexts(dr.Central(**LAPLACE), 67), IN_LINEAR, LINEAR),
    "devices' contexts": Case(
        context_devices(dr.Local(**GAUSSIAN), 67), ("device.linear_device",), LINEAR_DEVICE
    ),
    "devices' linear sums": Case(
        devices(dr.Local(**GAUSSIAN), MODEL, 67), ("device.linear_device",), LINEAR_DEVICE
    ),
    "devices' reports": Case(
        reported(dr.Local(epsilon=1.0), True), ("device.randomized_response_device",), REPORTS
    ),
    "a server's reports": Case(
        reported(dr.Central(epsilon=1.0, release="reports"), False),
        ("mechanisms.local.randomized_response_session", "device.randomized_response_device"),
        REPORTS,
    ),
    "flips for a shuffler": Case(shuffled, ("device.shuffle_encoder",), FLIPS),
    "contexts for a shuffler": Case(shuffled_contexts, ("device.skellam_device",), SKELLAM),
}
FITS: dict[str, dict[str, Any]] = {
    "centres of a codebook": {"centres": 2100, "rounds": 3},
    "cuts of a codebook": {"quantiles": ("x", 4), "bins": 8192},
}
STARTS: dict[str, Start] = {"seeded": seeded, "secure": secure}
BOTH = [
    *((name, kind) for name, case in CASES.items() for kind in case.plants),
    *((name, kind) for name in FITS for kind in CODEBOOK),
]


def case_of(name: str, folder: Path) -> Case:
    if name in FITS:
        return Case(
            fitted(folder, **FITS[name]),
            ("mechanisms.linear.per_user_means", "pipeline.state_codebook"),
            CODEBOOK,
        )
    return CASES[name]


def found(name: str, source: str, folder: Path, seen: set[str] | None = None) -> list[str]:
    with fixed_bytes(35, seen):
        pieces = case_of(name, folder).run(STARTS[source])
    assert pieces
    return [one for piece in pieces for one in off(piece)]


@pytest.mark.parametrize(("name", "source"), BOTH)
def test_noise_is_of_the_size_that_its_record_says(name: str, source: str, tmp_path: Path) -> None:
    """And secure noise is drawn in the modules that the case names."""
    drew: set[str] = set()
    assert found(name, source, tmp_path, drew) == []
    if source == "secure":
        assert set(case_of(name, tmp_path).drawn_in) <= drew


# ------------------------------------------------------------------------------ every cell has its own noise

LARGE = 2**27  # units: beside it the rounding of rewards, and what people add up to, are nothing
EVERY_CELL = (
    "counts, Gaussian", "counts, Laplace", "centred counts", "counts pooled beside", "two groups",
    "tree, Gaussian", "stored people", "stored people, Laplace", "first visits", "a tally's people", "sites",
    "linear sums in batches", "linear sums in batches, Laplace", "mixtures in batches", "answers",
    "contexts in batches", "devices' contexts", "answers, Laplace", "devices' counts", "devices' linear sums",
)  # fmt: skip


class SameCoins(SecureRng):
    """Noise that is the same in every cell, so that a cell without any stands out."""

    def laplace(self, scale: float, size: int, grid: int | None = None) -> Any:
        assert grid
        return np.full(size, LARGE / grid)

    normal = laplace


@pytest.mark.parametrize("name", EVERY_CELL)
def test_no_cell_is_without_noise(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cell in thousands moves no mean square, and shows a person as she is."""
    homes = count_channels, one_shot, clipped_sums, responses, linear_session, sites, sys.modules[__name__]
    for home in homes:
        monkeypatch.setattr(home, "SecureRng", SameCoins)
    with fixed_bytes(35):
        pieces = case_of(name, tmp_path).run(secure)
    assert pieces
    for piece in pieces:
        sizes = np.abs(piece.values)
        assert sizes.min() > 1e-4 * sizes.max() > 0.0, piece.name


# ------------------------------------------------------------------------------ faults


def weaker(right: Any, factor: float) -> Any:
    """What draws, with noise of ``factor`` times its size."""
    if right is SecureRng or right is SeededRng:

        class Weaker(right):  # type: ignore[misc, valid-type]
            def laplace(self, scale: float, size: int, grid: int | None = None) -> Any:
                return super().laplace(factor * scale, size, grid)

            def normal(self, scale: float, size: int, grid: int | None = None) -> Any:
                return super().normal(factor * scale, size, grid)

        return Weaker
    if right is exact.discrete_gaussian:
        return lambda sigma, *rest: right(factor * sigma, *rest)
    if right is seeded_kernels.fill_noise:
        return lambda *given: (right(*given), np.multiply(given[-1], factor, out=given[-1]))[0]
    if right is device_noise.drawn:
        return lambda family, scales, *rest: right(family, factor * np.asarray(scales), *rest)
    if right is skellam_device.skellam:
        return lambda variance, *rest: right(2 * int(factor**2 * variance / 2), *rest)
    if right is device_encoders.noise_ones:
        return lambda family, *rest: right(replace(family, flips=2 * int(factor * family.flips / 2)), *rest)
    assert right is device_reports.Randomizer.draw

    def draw(self: Any, element: int, coins: Any) -> Any:
        kept = self.own + int((1.0 - factor) * (2**53 - self.own))
        return right(replace(self, own=kept, other=int(factor * self.other)), element, coins)

    return draw


@pytest.mark.parametrize("factor", [0.9, pytest.param(0.5, marks=pytest.mark.statistics)])
@pytest.mark.parametrize(("name", "source"), BOTH)
def test_less_noise_is_noticed(
    name: str, source: str, factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, attribute = case_of(name, tmp_path).plants[source]
    monkeypatch.setattr(home, attribute, weaker(getattr(home, attribute), factor))
    assert found(name, source, tmp_path)


def less_of_one_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first family of a site has 0.97 of its noise."""

    class First(SecureRng):
        def __init__(self) -> None:
            self.calls = 0

        def normal(self, scale: float, size: int, grid: int | None = None) -> Any:
            self.calls += 1
            return super().normal((0.97 if self.calls == 1 else 1.0) * scale, size, grid)

    monkeypatch.setattr(sites, "SecureRng", First)


def of_gram(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """One kind of noise in answers has 0.9 of its size."""
    right = getattr(responses.gram, name)

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(responses.gram, name, lambda scale, *rest: right(0.9 * scale, *rest))

    return plant


def diagonal_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Gram matrix whose diagonal has the noise of its other entries."""

    def goe(scale: float, dimension: int, coins: Any, grid: int | None = None) -> Any:
        matrix = right(scale, dimension, coins, grid)
        matrix[np.diag_indices(dimension)] = coins.normal(scale, dimension, grid)
        return matrix

    right = responses.gram.goe
    monkeypatch.setattr(responses.gram, "goe", goe)


def one_noise_for_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    right, kept = person_sums.discrete_gaussian, []

    def again(sigma: Any, shape: Any, source: Any) -> Any:
        kept.append(right(sigma, shape, source))
        return kept[0]

    monkeypatch.setattr(person_sums, "discrete_gaussian", again)


FAULTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "a site's first family": ("sites", less_of_one_family),
    "Gram matrices of answers": ("answers", of_gram("goe")),
    "vectors of answers": ("answers", of_gram("vector_noise")),
    "Laplace matrices of answers": ("answers, Laplace", of_gram("symmetric_laplace")),
    "the diagonal of answers": ("answers", diagonal_of_one),
    "rounds of a fit": ("centres of a codebook", one_noise_for_two_rounds),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_one_place_are_noticed(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, plant = FAULTS[fault]
    plant(monkeypatch)
    assert found(name, "secure", tmp_path)


# ------------------------------------------------------------------------------ scales that are no integers


def rounded_down(right: Any) -> Any:
    """The samplers, with scales above 64 units cut to integers."""

    def draw(scale: Any, sigma: Any, *rest: Any) -> Any:
        cut = scale if sigma is None else sigma
        cut = Fraction(math.floor(cut)) if cut > 64 else cut
        return right(cut, None, *rest) if sigma is None else right(Fraction(math.floor(cut) + 1), cut, *rest)

    return draw


def sampled(laplace: bool, scale: float) -> list[str]:
    """At 2 million draws, where 5.5 standard errors of the mean square are 0.6 % and 0.9 %."""
    draw = exact.discrete_laplace if laplace else exact.discrete_gaussian
    with fixed_bytes(7):
        values = draw(scale, 2_000_000).astype(np.float64)
    return off(Piece(f"{scale}", values, law_of(laplace, scale, 1.0)))


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("scale", [3.5, 64.98, 66.9, 100.9])
def test_samplers_keep_fractions_of_their_scale(
    laplace: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scales above 64 that are cut to integers are noticed."""
    assert sampled(laplace, scale) == []
    monkeypatch.setattr(exact, "_draw", rounded_down(exact._draw))
    assert bool(sampled(laplace, scale)) == (scale > 64)


@pytest.mark.parametrize("scale", [0.3, 1.0, 64.98, 1234.5678, 2.0**20 + 1 / 3])
@pytest.mark.parametrize("grid", [1, 1024])
def test_coins_ask_for_exactly_their_scale(scale: float, grid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A float is a rational number: no digit of it is lost on the way to the sampler, at any size."""
    asked = []

    def spied(scale: Fraction, sigma: Fraction | None, size: Any, source: Any) -> Any:
        asked.append(scale if sigma is None else sigma)
        return np.zeros(size, np.int64)

    monkeypatch.setattr(exact, "_draw", spied)
    SecureRng().laplace(scale, 3, grid)
    SecureRng().normal(scale, 3, grid)
    assert asked == [Fraction(scale) * grid] * 2


# ------------------------------------------------------------------------------ no place is forgotten

REACHED = {
    "ExactCoins", "Secure", "SecureRng", "SystemCoins", "discrete_gaussian", "discrete_laplace",
    "getrandom", "noise_ones", "randbelow", "randbits", "round_to_grid", "token_bytes", "urandom",
}  # fmt: skip
NO_NOISE_LEAVES = {
    "asks which source there is, or hands it on": (
        "cli.judge", "cli.learn", "core.count_mechanism", "learners.offline.linear_pevi",
        "mechanisms.privatizers.base", "mechanisms.privatizers.central",
        "mechanisms.privatizers.linear_sums", "mechanisms.privatizers.local", "service.study_config",
        "mechanisms.query_checks", "data.context_visits",
        "pipeline.learn", "pipeline.log_judgement", "pipeline.power_analysis",
    ),
    "draws for an audit, a test of conformance or a forecast of time, which release nothing": (
        "audit.secure_noise", "audit.conformance", "audit.declared", "pipeline.estimate",
    ),
    "rounds rewards to the grid of the noise": ("mechanisms.linear.context_session",),
    "hands coins to a device's code": ("experiments.offline_runs",),
    "draws names, keys, nonces and waiting times": (
        "device.http_client", "data.validate", "mechanisms.local.message_inbox",
        "service.system_io",
        "pipeline.partial_aggregates", "data.user_groups",
    ),
    "draws the seed of a simulation": ("envs.world_env",),
    "lists the classes of values in files": ("mechanisms.saved_state.save",),
    "bounds e^-x in integers": ("mechanisms.local.randomized_response",),
}  # fmt: skip


def reaches(tree: ast.AST) -> bool:
    """Whether a module names a source of secure noise, or something that draws from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            home = getattr(node, "module", None)
            names = {alias.name for alias in node.names} | {home or ""}
            names |= {f"{home}.{alias.name}" for alias in node.names}
            if names & REACHED or any(
                name.endswith(("noise.discrete_samplers", "device.discrete_noise")) for name in names
            ):
                return True
        elif isinstance(node, ast.Attribute | ast.Name):
            if (node.attr if isinstance(node, ast.Attribute) else node.id) in REACHED:
                return True
    return False


def modules_that_reach() -> set[str]:
    found = set()
    for path in SOURCE.rglob("*.py"):
        if reaches(ast.parse(path.read_text("utf-8"))):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def test_every_module_that_reaches_secure_noise_is_named() -> None:
    """A new place where noise leaves needs a case; a module that draws none, a line that says why."""
    cases = {name for case in CASES.values() for name in case.drawn_in} | {
        "mechanisms.linear.per_user_means",
        "pipeline.state_codebook",
    }
    others = {name for names in NO_NOISE_LEAVES.values() for name in names}
    assert not cases & others
    reach = modules_that_reach()
    assert reach - cases - others == set(), "names a source of secure noise, and no case names it"
    assert others <= reach, "names no source any more"


def test_a_new_place_is_seen() -> None:
    for text in (
        "from discreet.core.rng import SecureRng",
        "from discreet.core import rng as randomness\nrandomness.SecureRng().normal(1.0, 3, 1)",
        "from discreet.core.noise import discrete_samplers as exact",
        "import discreet.core.noise.discrete_samplers as noise",
        "import os\nos.urandom(8)",
        "def f():\n    from discreet.device.discrete_noise import drawn",
        "import discreet as dr\ndr.Secure()",
    ):
        assert reaches(ast.parse(text)), text
    assert not reaches(ast.parse("from discreet.core.rng import Randomness, Seeded"))
