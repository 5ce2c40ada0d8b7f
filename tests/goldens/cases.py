"""The cases: a table of names, each built from public constructors.

Groups, by the word before the colon:

``run``         regret curves of every learner, by users, by batches, and step by step
``loop``        the policies and releases of learners in the loop of the protocol
``session``     what privatizers release of fixed people: arrays, noise laws, guarantee
``exact``       sums with exact noise of the people's devices, from fixed coins
``guarantee``   what is printed and stored of a guarantee, before anybody comes
``forecast``    what is said of a run before it
``stored``      one release of a data set, policies from it, and all files of a folder
``continued``   runs that are saved and restored on the way
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import discreet as dr
from discreet.core.noise import discrete_samplers as exact
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.device.shuffle_encoder import ShuffleEncoder
from discreet.device.shuffle_payload import Family, SessionConfig
from discreet.experiments.estimate import estimate_run
from discreet.experiments.simulate import Setup
from discreet.learners.offline.linear_pevi import DPPEVI, DPVAPVI, PEVI, VAPVI, learn_linear
from discreet.learners.online.ucrl_vtr import UCRLVTR, UCRLVTRPlus
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Response
from discreet.mechanisms.linear.adaptive_queries import Question, ResponseSession
from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.pipeline.estimate import estimate_release
from discreet.pipeline.learn import learn, replan

# Names that `discreet` itself does not export yet: all of them are here, in one place.
from discreet.pipeline.synthetic_data import write_made_up
from discreet.pipeline.verify import verify
from papers.price_of_privacy.noise_aware_sums import NoiseAwareOnSums
from tests.helpers.rounding import stochastic_round

from .recording import LONG

Case = Callable[[], Any]
CASES: dict[str, Case] = {}


def _add(group: str, name: str, case: Case) -> None:
    key = f"{group}: {name}"
    if key in CASES:
        raise ValueError(f"two cases are named {key!r}")
    CASES[key] = case


# --------------------------------------------------------------------------------------- runs
def _small(stationary: bool = False) -> dr.TabularMDP:
    """Three states, two actions (one of them inadmissible once), three steps."""
    steps = np.array(
        [
            [[0.7, 0.3, 0.0], [0.1, 0.2, 0.7]],
            [[0.0, 0.5, 0.5], [0.4, 0.4, 0.2]],
            [[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]],
        ]
    )
    rewards = np.array([[0.1, 0.0], [0.2, 0.6], [1.0, 1.0]])
    mask = np.array([[True, True], [True, True], [True, False]])
    table = steps if stationary else np.stack([steps, steps[:, ::-1], steps])
    return dr.TabularMDP(
        table, rewards, [0.5, 0.5, 0.0], horizon=3, mask=mask, reward_law="bernoulli", name="small"
    )


WORLDS: Mapping[str, Callable[[], dr.TabularMDP]] = {
    "small": _small,
    "alike": partial(_small, True),
    "swim": partial(dr.make, "riverswim", states=4, horizon=6),
    "random": partial(dr.make, "random", states=4, actions=3, horizon=5, seed=2, stationary=False),
    "lock": partial(dr.make, "combination-lock", states=4, horizon=5, seed=1),
    "mixture": partial(dr.make, "linear-mixture", states=4, actions=2, horizon=4, models=3, seed=1),
    "linear": partial(dr.make, "linear-mdp", states=4, actions=2, horizon=3, dimension=3, seed=1),
}
_PURE, _GAUSS = dr.Central(epsilon=2.0), dr.Central(epsilon=2.0, delta=1e-4)
_DECAYING = dr.Central(epsilon=2.0, delta=1e-4, release="decaying", decay=0.8)
_AWARE = dr.NoiseAwareUCBVI
_EACH = {"replan_every": 1}
# world, learner, privatizer, users
RUNS: Mapping[str, tuple[Any, ...]] = {
    # each learner without privacy
    "ucb-vi": ("random", dr.learners.UCBVI(**_EACH), dr.NoPrivacy(), 200),
    "ucb-vi bernstein": ("random", dr.learners.UCBVI(bonus="bernstein", **_EACH), dr.NoPrivacy(), 200),
    "ucb-vi paper": ("swim", dr.learners.UCBVI(preset="paper"), dr.NoPrivacy(), 100),
    "oppo": ("random", dr.learners.OPPO(**_EACH), dr.NoPrivacy(), 200),
    "psrl": ("alike", dr.learners.PSRL(), dr.NoPrivacy(), 200),
    "psrl steps": ("random", dr.learners.PSRL(stationary=False, samples=3), dr.NoPrivacy(), 120),
    "rlsvi": ("alike", dr.learners.RLSVI(), dr.NoPrivacy(), 200),
    "joint none": ("alike", dr.JointPosterior(samples=4), dr.NoPrivacy(), 150),
    # private ones, by every release of Central
    "private-ucb-vi auto": ("small", dr.learners.PrivateUCBVI(**_EACH), _PURE, 200),
    "private-ucb-vi tree": ("small", dr.learners.PrivateUCBVI(**_EACH), dr.Central(epsilon=2.0, release="tree"), 200),
    "private-ucb-vi optimal tree": (
        "small", dr.learners.PrivateUCBVI(**_EACH), dr.Central(epsilon=2.0, release="tree", tree_estimate="optimal"),
        200,
    ),
    "private-ucb-vi tree of users": (
        "small", dr.learners.PrivateUCBVI(replan_growth=1.2), dr.Central(rho=0.2, release="tree", leaf="user"), 200,
    ),
    "private-ucb-vi paper": (
        "small", dr.learners.PrivateUCBVI(preset="paper"), dr.Central(epsilon=2.0, preset="paper"), 100,
    ),
    "private-ucb-vi digits": (
        "small", dr.learners.PrivateUCBVI(**_EACH), dr.Central(epsilon=2.0, release="signed-digits", arity=3), 200,
    ),
    "private-ucb-vi square root": (
        "small", dr.learners.PrivateUCBVI(**_EACH), dr.Central(mu=0.5, release="square-root"), 200,
    ),
    "private-ucb-vi batches": (
        "small", dr.learners.PrivateUCBVI(**_EACH), dr.Central(rho=0.2, release="batches", noise="gaussian"), 200,
    ),
    "private-ucb-vi reports": (
        "small", dr.learners.PrivateUCBVI(**_EACH), dr.Central(epsilon=4.0, release="reports"), 200,
    ),
    "private-ucb-vi weights": (
        "small", dr.learners.PrivateUCBVI(derive_visits=False, **_EACH),
        dr.Central(epsilon=2.0, weights=(0.2, 0.3, 0.5)), 200,
    ),
    "private-ucb-vi raw cost": (
        "small", dr.learners.PrivateUCBVI(post="raw", form="cost", missing_mass="optimistic", **_EACH), _PURE, 150,
    ),
    "private-ucb-vi lp": ("small", dr.learners.PrivateUCBVI(post="lp", **_EACH), _PURE, 60),
    "dp-ucbvi auto": ("small", dr.DPUCBVI(**_EACH), _GAUSS, 200),
    "dp-ucbvi known rewards": ("small", dr.DPUCBVI(known_rewards=True, **_EACH), _GAUSS, 200),
    "dp-ucbvi pooled steps": ("alike", dr.DPUCBVI(stationary=True, **_EACH), _GAUSS, 200),
    "dp-ucbvi raw rewards": (
        "small", dr.DPUCBVI(center_rewards=False, derive_visits=False, **_EACH), _GAUSS, 200,
    ),
    "private-ucb-po": ("small", dr.learners.PrivateUCBPO(**_EACH), _GAUSS, 200),
    "pucb": ("small", dr.learners.PUCB(**_EACH), dr.Central(epsilon=8.0, release="tree"), 200),
    "ldp-obi central": ("small", dr.learners.LDPOBI(**_EACH), _GAUSS, 200),
    # local and shuffle
    "ldp-obi local laplace": ("small", dr.learners.LDPOBI(**_EACH), dr.Local(epsilon=4.0, randomizer="laplace"), 150),
    "ldp-obi local paper": ("small", dr.learners.LDPOBI(**_EACH), dr.Local(epsilon=4.0, preset="paper"), 150),
    "dp-ucbvi local gaussian": (
        "small", dr.DPUCBVI(**_EACH), dr.Local(epsilon=4.0, delta=1e-4, noise="gaussian"), 150,
    ),
    "noise-aware local auto": ("small", _AWARE(), dr.Local(epsilon=4.0), 150),
    "noise-aware local subset": ("small", _AWARE(), dr.Local(epsilon=4.0, randomizer="subset", steps=2), 150),
    "noise-aware local oue": ("small", _AWARE(), dr.Local(epsilon=4.0, randomizer="oue"), 150),
    "noise-aware local krr": (
        "small", _AWARE(), dr.Local(epsilon=4.0, randomizer="krr", reward_share=0.3), 150,
    ),
    "private-ucb-po local": ("small", dr.learners.PrivateUCBPO(**_EACH), dr.Local(epsilon=4.0), 100),
    "noise-aware shuffle": ("small", _AWARE(), dr.Shuffle(epsilon=4.0, delta=1e-2), 150),
    "noise-aware shuffle composed": (
        "small", _AWARE(), dr.Shuffle(epsilon=4.0, delta=1e-2, calibration="composed"), 150,
    ),
    "noise-aware shuffle amplified": (
        "small", _AWARE(), dr.Shuffle(epsilon=4.0, delta=1e-2, randomizer="amplified"), 150,
    ),
    # the default learner in its kinds
    "noise-aware": ("random", _AWARE(), dr.Central(epsilon=4.0, delta=1e-4), 300),
    "noise-aware decaying": ("random", _AWARE(), _DECAYING, 300),
    "noise-aware pure": ("random", _AWARE(), dr.Central(epsilon=8.0), 300),
    "noise-aware exact": ("random", _AWARE(), dr.NoPrivacy(), 300),
    "noise-aware unpooled": ("random", _AWARE(pooled="none"), _GAUSS, 300),
    "noise-aware pool of all": ("lock", _AWARE(pooled="all"), _PURE, 300),
    "noise-aware pool of first": ("lock", _AWARE(pooled="first", pooled_share=0.6), _GAUSS, 300),
    "noise-aware pool that ends": (
        "random", _AWARE(pooled="all", pooled_share=0.6, pooled_share_end=0.2, pooled_until=100), _PURE, 300,
    ),
    "noise-aware returns": ("lock", _AWARE(explore="returns"), dr.Central(epsilon=4.0, delta=1e-4), 400),
    "noise-aware plain": ("random", _AWARE(flow=False, consistent=False, shrink=False), _GAUSS, 300),
    "noise-aware-sums": ("small", NoiseAwareOnSums(), dr.Central(epsilon=2.0, release="tree"), 150),
    # rewards up to a cut
    "joint cut": ("alike", dr.JointPosterior(samples=4), dr.Central(epsilon=4.0, delta=1e-4), 300),
    "joint cut pure": ("swim", dr.JointPosterior(samples=4, wide_share=0.5), dr.Central(epsilon=4.0), 150),
    "joint cut that moves": ("swim", dr.JointPosterior(samples=4), dr.Central(mu=20.0), 1500),
    "joint cut exact": ("swim", dr.JointPosterior(samples=4), dr.NoPrivacy(), 1500),
    # elimination, each batch with its own question
    "sdp-pe": ("small", dr.SDPPE(), dr.Central(epsilon=4.0), 400),
    "sdp-pe gaussian": ("small", dr.SDPPE(elimination="theory"), _GAUSS, 400),
    "sdp-pe shuffle": ("small", dr.SDPPE(), dr.Shuffle(epsilon=4.0, delta=1e-2), 400),
    "sdp-pe local": ("small", dr.SDPPE(), dr.Local(epsilon=4.0), 400),
    "sdp-pe none": ("small", dr.SDPPE(), dr.NoPrivacy(), 400),
    "apeve": ("small", dr.learners.APEVE(), dr.NoPrivacy(), 400),
    "sdp-pe-om": ("small", dr.learners.SDPPEOM(), dr.Central(epsilon=4.0), 400),
    "sdp-pe-om forget": ("small", dr.learners.SDPPEOM(forget=True), dr.NoPrivacy(), 400),
    # features
    "ucrl-vtr none": ("mixture", UCRLVTR(), dr.NoPrivacy(), 100),
    "ucrl-vtr": ("mixture", UCRLVTR(), _GAUSS, 100),
    "ucrl-vtr tree": ("mixture", UCRLVTR(targets="centred"), dr.Central(mu=1.0, release="tree"), 100),
    "ucrl-vtr published": (
        "mixture", UCRLVTR(preset="paper"), dr.Central(epsilon=10.0, delta=1e-4, calibration="published"), 30,
    ),
    "lsvi-ucb published": (
        "linear", dr.LSVIUCB(preset="paper"),
        dr.Central(epsilon=9.0, delta=1e-4, calibration="published"), 30,
    ),
    "ucrl-vtr tabular rewards": ("mixture", UCRLVTR(reward_form="tabular"), dr.Central(mu=1.0), 100),
    "ucrl-vtr local": ("mixture", UCRLVTR(), dr.Local(epsilon=4.0, delta=1e-4), 100),
    "ucrl-vtr determinant": ("mixture", UCRLVTR(switching="determinant", switches=6), dr.Central(mu=1.0), 60),
    "ucrl-vtr-plus": ("mixture", UCRLVTRPlus(), _GAUSS, 100),
    "ucrl-vtr-plus paper": ("mixture", UCRLVTRPlus(preset="paper"), dr.Central(mu=1.0), 30),
    "lsvi-ucb none": ("linear", dr.LSVIUCB(), dr.NoPrivacy(), 100),
    "lsvi-ucb": ("linear", dr.LSVIUCB(), _GAUSS, 100),
    "lsvi-ucb square root": ("linear", dr.LSVIUCB(), dr.Central(mu=1.0, release="square-root"), 100),
    "lsvi-ucb requery": ("linear", dr.LSVIUCB(response="requery"), dr.Central(mu=1.0), 60),
    "lsvi-ucb local": ("linear", dr.LSVIUCB(), dr.Local(epsilon=4.0, delta=1e-4), 100),
}  # fmt: skip


def _run(name: str, **how: Any) -> Any:
    world, learner, privatizer, users = RUNS[name]
    found = dr.simulate(WORLDS[world](), learner, privatizer, users, seeds=2, seed=7, workers=1, **how)
    return {
        "users": found.episodes, "regret": found.regret, "gaps": found.gap_regret,
        "final": found.final_regret.tolist(), "best": found.optimal_value, "uniform": found.uniform_value,
        "epsilon": found.guarantee.epsilon,
    }  # fmt: skip


for _name in RUNS:
    _add("run", _name, partial(_run, _name, by="episode"))
for _name in (  # by batches, equal in law only
    "private-ucb-vi tree", "private-ucb-vi reports", "dp-ucbvi auto", "private-ucb-po", "noise-aware",
    "noise-aware decaying", "noise-aware pool of all", "noise-aware pool of first", "noise-aware returns",
    "dp-ucbvi local gaussian", "noise-aware local oue", "noise-aware shuffle",
    "noise-aware shuffle amplified", "joint cut", "sdp-pe", "sdp-pe shuffle", "sdp-pe-om", "ucrl-vtr",
    "lsvi-ucb", "psrl",
):  # fmt: skip
    _add("run", f"{_name}, by batches", partial(_run, _name, by="batch"))
for _name in (  # step by step: the same goldens as fused, but computed by the other loop
    "private-ucb-vi tree", "private-ucb-vi digits", "private-ucb-vi square root", "private-ucb-vi reports",
    "private-ucb-po", "dp-ucbvi auto", "noise-aware decaying", "noise-aware pool of all",
    "noise-aware local oue", "joint cut",
):  # fmt: skip
    _add("run", f"{_name}, stepwise", partial(_run, _name, by="episode", stepwise=True))


def _loop(name: str, pause: Callable[[Any, str], Any] = lambda session, moment: session) -> Any:
    """The policies that were deployed, and the releases, in the loop of the protocol."""
    world, learner, privatizer, users = RUNS[name]
    mdp, source = WORLDS[world](), dr.Seeded(7, 0)
    spec = Setup(mdp, learner, privatizer, users).spec
    schedule, state = learner.schedule(spec), learner.begin(spec, source.keys.ties)
    session = privatizer.start(learner.query(spec), schedule, source)
    policies, releases, sizes, at = [], [], [], 0
    half = len(schedule.release_times) // 2
    while at < users:
        if len(policies) == half:
            session = pause(session, "halfway")
        releases.append(session.release())
        plan, state = learner.plan(state, releases[-1], session.answer)
        encoder = session.begin(plan)
        for _ in range(plan.users):
            one = dr.envs.rollout(mdp, plan.policy, source.keys.environment, at)
            session.submit(encoder(one, plan, SeededRng(source.keys.noise, at)))
            at += 1
        policies.append(np.asarray(plan.policy).ravel())
        sizes.append(plan.users)
    session.close()
    return {"policies": np.concatenate(policies), "sizes": np.array(sizes), **_released(releases, False)}


_LOOPS = (
    "private-ucb-vi tree", "dp-ucbvi auto", "private-ucb-po", "pucb", "psrl", "rlsvi", "noise-aware decaying",
    "noise-aware pool of all", "noise-aware local oue", "noise-aware shuffle", "joint cut", "ucrl-vtr",
    "ucrl-vtr-plus", "lsvi-ucb",
)  # fmt: skip
for _name in _LOOPS:
    _add("loop", _name, partial(_loop, _name))


# ----------------------------------------------------------------------------------- sessions
_S, _A, _H, _D = 3, 2, 3, 2
_MASK = np.array([[True, True], [True, True], [True, False]])
_LAYOUT = dr.Layout(_S, _A, _H, _MASK)
_OPEN = dr.Layout(_S, _A, _H)  # linear queries take no mask here
_POLICY = np.zeros((_H, _S), np.int64)


def _weyl(*shape: int, step: float = math.sqrt(2.0)) -> np.ndarray:
    """Fixed numbers in [0, 1), the same on every machine and with every NumPy."""
    return np.mod(np.arange(1, math.prod(shape) + 1) * step, 1.0).reshape(shape)


def _simplex(*shape: int, step: float = math.sqrt(3.0)) -> np.ndarray:
    table = 0.1 + _weyl(*shape, step=step)
    return table / table.sum(axis=-1, keepdims=True)


_MIXED = MixtureFeatures((_weyl(_S, _A, _S, _D) - 0.5) / 2, 2.0)
_PHI = Features(_simplex(_S, _A, _D), 1.0, l1=1.0, nonneg=True)
_PSI = Features(_simplex(_S, _A, 2, step=math.sqrt(5.0)), 1.0, l1=1.0)
_VALUES = np.array([(_H - h) * _weyl(_S, step=math.sqrt(7.0 + h)) for h in range(_H + 1)])
_CONTEXT = {"values": _VALUES, "weights": np.full((_H - 1, _S, _A), 1.5)}

_QUERIES: Mapping[str, Any] = {
    "raw": dr.mechanisms.CountQuery(_LAYOUT),
    "lean": dr.mechanisms.CountQuery(_LAYOUT, visits=False, center_rewards=True, reward_share=0.3),
    "known": dr.mechanisms.CountQuery(_LAYOUT, known_rewards=True),
    "alike": dr.mechanisms.CountQuery(_LAYOUT, stationary=True, visits=False, center_rewards=True),
    "step": dr.mechanisms.CountQuery(_LAYOUT, step=1),
    "pool": dr.mechanisms.CountQuery(_LAYOUT, visits=False, center_rewards=True, pooled="all", pooled_share=0.6),
    "first": dr.mechanisms.CountQuery(_LAYOUT, visits=False, center_rewards=True, pooled="first"),
    "groups": dr.mechanisms.CountQuery(_LAYOUT, visits=False, center_rewards=True, groups=3, clip=1.5),
    "cut": dr.mechanisms.CountQuery(_LAYOUT, visits=False, center_rewards=True, reward_share=0.3, cut=1.5),
    "mixture": MixtureQuery(layout=_OPEN, features=_MIXED),
    "mixture full": MixtureQuery(
        layout=_OPEN, features=_MIXED, second=True, rewards="tabular", largest_weight=2.0
    ),
    "mixture paid": MixtureQuery(
        layout=_OPEN, features=MixtureFeatures(_MIXED.table, 2.0, rewards=_PSI), rewards=_PSI,
        targets="centred",
    ),
    "gram": GramQuery(layout=_OPEN, features=_PHI),
    "requery": GramQuery(layout=_OPEN, features=_PHI, model=False),
}  # fmt: skip
_TIMES = np.array([0, 2, 4, 9])
_SHARES = np.array([0.5, 0.8, 0.6, 0.3])
_STEPS = tuple(dr.mechanisms.CountQuery(_LAYOUT, step=h, known_rewards=True) for h in range(2))
_SCHEDULES: Mapping[str, dr.Schedule] = {
    "some": dr.Schedule(12, times=_TIMES),
    "read": dr.Schedule(12, times=_TIMES, reads="measurements"),
    "each": dr.Schedule(8),
    "each read": dr.Schedule(8, reads="measurements"),
    "open": dr.Schedule(None),
    "once": dr.Schedule.one_shot(9),
    "shares": dr.Schedule(12, times=_TIMES, reads="measurements", pooled_shares=_SHARES),
    "questions": dr.Schedule(12, times=_TIMES, queries=(*_STEPS, dr.mechanisms.CountQuery(_LAYOUT))),
    "fixed": dr.Schedule(12, times=_TIMES, plans="deterministic"),
    "large": dr.Schedule(5000, growth=1.3),
    "large read": dr.Schedule(5000, growth=1.3, reads="measurements"),
    "uneven": dr.Schedule(3000, times=np.array([0, 300, 1000, 2500])),
    "large once": dr.Schedule.one_shot(5000),
    "answers": dr.Schedule(12, times=_TIMES),
}
_PRIVATIZERS: Mapping[str, Any] = {
    "none": dr.NoPrivacy(),
    "central": dr.Central(epsilon=1.0),
    "central delta": dr.Central(epsilon=1.0, delta=1e-6),
    "central rho": dr.Central(rho=0.1),
    "central mu": dr.Central(mu=0.5),
    "central paper": dr.Central(epsilon=1.0, preset="paper"),
    "central paper e": dr.Central(epsilon=1.0, preset="paper", log_base="e"),
    "central tree": dr.Central(epsilon=1.0, release="tree"),
    "central tree mu": dr.Central(mu=0.5, release="tree"),
    "central tree optimal": dr.Central(epsilon=1.0, release="tree", tree_estimate="optimal"),
    "central tree of users": dr.Central(epsilon=1.0, release="tree", leaf="user"),
    "central digits": dr.Central(epsilon=1.0, release="signed-digits"),
    "central digits 3": dr.Central(epsilon=1.0, release="signed-digits", arity=3),
    "central square root": dr.Central(epsilon=1.0, delta=1e-6, release="square-root"),
    "central batches": dr.Central(epsilon=1.0, release="batches"),
    "central batches delta": dr.Central(epsilon=1.0, delta=1e-6, noise="laplace", release="batches"),
    "central batches mu": dr.Central(mu=0.5, release="batches"),
    "central decaying": dr.Central(epsilon=1.0, delta=1e-6, release="decaying", decay=0.7),
    "central decaying best": dr.Central(mu=0.5, release="decaying"),
    "central reports": dr.Central(epsilon=3.0, release="reports"),
    "central weights": dr.Central(epsilon=1.0, weights=(0.2, 0.3, 0.5)),
    "local": dr.Local(epsilon=1.0),
    "local laplace": dr.Local(epsilon=1.0, randomizer="laplace"),
    "local gaussian": dr.Local(epsilon=1.0, delta=1e-6, noise="gaussian"),
    "local paper": dr.Local(epsilon=1.0, preset="paper"),
    "local subset": dr.Local(epsilon=3.0, randomizer="subset"),
    "local oue": dr.Local(epsilon=3.0, randomizer="oue", steps=2),
    "local krr": dr.Local(epsilon=3.0, randomizer="krr", reward_share=0.25),
    "shuffle": dr.Shuffle(epsilon=1.0, delta=1e-2),
    "shuffle composed": dr.Shuffle(epsilon=1.0, delta=1e-2, calibration="composed"),
    "shuffle amplified": dr.Shuffle(epsilon=1.0, delta=1e-2, randomizer="amplified"),
}


def _life(i: int, layout: dr.Layout) -> dr.Trajectory:
    """A fixed user who follows the policy; rewards in quarters."""
    draw = (_weyl(3 * layout.horizon + 1, step=math.sqrt(2.0) * (i + 1)) * 1e6).astype(np.int64)
    h = layout.horizon
    return dr.Trajectory(
        draw[: h + 1] % layout.states, np.zeros(h, np.int64), (draw[h + 1 : 2 * h + 1] % 5) / 4
    )


def _law(law: Any) -> dict[str, Any]:
    """Everything that a learner reads off a noise law."""
    return {
        "family": law.family, "exact": law.exact, "std": law.std(), "std_bound": law.std_bound(),
        "bound .05": law.bound(0.05), "bound 1e-7": law.bound(1e-7), "of rows": law.bound(0.05, rows=True),
    }  # fmt: skip


def _estimates(series: list[Mapping[str, Any]], laws_too: bool = True) -> dict[str, Any]:
    """Of several releases, by family: all values; the numbers of all laws, and the last law in full."""
    found = {}
    for name in sorted({name for estimates in series for name in estimates}):
        estimates = [each[name] for each in series if name in each]
        found[name] = {"values": np.concatenate([e.value.ravel() for e in estimates])}
        if not laws_too:
            continue
        laws = [list(_law(e.law).values()) for e in estimates]
        found[name] |= {
            "shapes": sorted({e.value.shape for e in estimates}),
            "law": _law(estimates[-1].law),
            "laws": np.array([numbers[2:] for numbers in laws], np.float64),
            "kinds": sorted({f"{e.estimand} {family} {e.law.exact}"
                             for e, (family, *_) in zip(estimates, laws, strict=True)}),
            "covers": np.array([e.covers for e in estimates]),
            "effective": np.array([e.effective for e in estimates], np.float64),
        }  # fmt: skip
    return found


def _released(releases: list[Any], laws: bool = True) -> dict[str, Any]:
    """Everything in a run's releases, or their values only."""
    newest = [release.measurement for release in releases if release.measurement is not None]
    return {
        "users": np.array([release.users for release in releases]),
        "numbers": np.array([release.number for release in releases]),
        "sums": _estimates([release.estimates for release in releases], laws),
        "measured": _estimates([m.estimates for m in newest], laws),
        "stream": np.array([[m.decay, m.gain] for m in newest], np.float64),
        "fresh": None,
    }


def _played(
    session: Any,
    query: Any,
    sizes: list[int],
    coins: Callable[[int], Any],
    plan: Callable[[int], Mapping[str, Any]] = lambda k: {},
    pause: Callable[[Any, str], Any] = lambda session, moment: session,
    answers: bool = False,
    laws: bool = True,
) -> dict[str, Any]:
    """Release, plan, people, release, ...; one of the people of the second plan does not come."""
    linear = not isinstance(query, dr.mechanisms.CountQuery)
    layout, users = query.layout, 0
    releases, answered = [], []
    for k, size in enumerate([*sizes, 0]):
        session = pause(session, f"{k} before")
        releases.append(session.release())
        if answers and k:
            for h in reversed(range(layout.horizon)):
                asked = session.answer(
                    Response(
                        h,
                        np.minimum(_VALUES[h + 1], layout.horizon - h - 1),
                        (0.0, float(layout.horizon - h)),
                    )
                )
                answered.append({f"answer {h}": asked})
        if not size:
            break
        made = dr.Plan(
            np.zeros((layout.horizon, layout.states), np.int64), size, _CONTEXT if linear else {}, **plan(k)
        )
        encoder = session.begin(made)
        for i in range(size):
            if i == 1:
                before, session = session, pause(session, f"{k} midway")
                encoder = encoder if session is before else session.open_encoder
            if (k, i) == (1, 1) and size > 1 and session.guarantee.trust != "shuffle":
                session.absent()
            else:
                session.submit(encoder(_life(users, layout), session.open_plan, coins(users)))
            users += 1
    session.close()
    return {**_released(releases, laws), "answers": _estimates(answered, laws)}


def _guaranteed(guarantee: Any) -> dict[str, Any]:
    """The printed sentence, and the stored numbers."""
    table = dict(guarantee.to_dict())
    sentence = str(guarantee)
    if table.get("statement") == sentence:
        del table["statement"]
    return {"printed": sentence, **table}


def _in_short(guarantee: Any) -> dict[str, Any]:
    """The numbers, and a hash of the sentences less long numbers; cases of ``guarantee`` have them whole."""
    sentences = LONG.sub("#", "\n".join([str(guarantee), *guarantee.composition]))
    numbers = {name: getattr(guarantee, name) for name in ("epsilon", "delta", "rho", "mu")}
    return {**numbers, "sentences": hashlib.sha256(sentences.encode()).hexdigest()[:16]}


def _sizes(schedule: dr.Schedule) -> list[int]:
    if schedule.users is None:
        return [1, 1, 1, 1, 1]
    return np.diff(schedule.release_times).tolist()


def _session(privatizer: Any, query: Any, schedule: dr.Schedule, **how: Any) -> Any:
    source = dr.Seeded(5, 1)
    session = privatizer.start(query, schedule, source)
    guarantee = _in_short(session.guarantee)
    played = _played(session, query, _sizes(schedule), partial(SeededRng, source.keys.noise), **how)
    return {"guarantee": guarantee, "released": played}


def _groups(k: int) -> Mapping[str, Any]:
    return {"group": k % 3, "return_share": (0.0, 0.4, None)[k % 3], "forget": k == 1}


def _cuts(k: int) -> Mapping[str, Any]:
    return {"cut": (None, 2.0, math.inf)[k % 3]}


_COUNTED = [
    *((p, "raw", "some") for p in _PRIVATIZERS),
    *((p, "lean", "read") for p in (
        "none", "central", "central delta", "central mu", "central batches", "central decaying",
        "central decaying best", "central reports", "local",
        "local gaussian", "shuffle", "shuffle amplified",
    )),
    *((p, "lean", "each") for p in (
        "central", "central delta", "central paper", "central tree", "central tree optimal", "central digits",
        "central square root", "central decaying", "local subset",
    )),
    *((p, "raw", "open") for p in ("none", "central tree", "central tree mu", "local laplace", "local oue")),
    *((p, "alike", "some") for p in ("central", "central square root", "local laplace", "local")),
    *((p, "alike", "read") for p in ("central decaying",)),
    *((p, "known", "once") for p in ("central", "central mu", "shuffle", "local krr")),
    *((p, "step", "some") for p in ("central", "central delta", "local subset", "shuffle")),
    *((p, q, "read") for p in ("central", "central decaying", "none") for q in ("pool", "first")),
    *((p, q, "shares") for p in ("central batches", "central decaying") for q in ("pool", "first")),
    *((p, "groups", "read") for p in ("none", "central", "central decaying", "central batches mu")),
    *((p, "cut", "read") for p in ("none", "central", "central decaying", "central batches delta")),
    *((p, "raw", "questions") for p in (
        "none", "central", "central delta", "central paper", "local laplace", "local subset", "shuffle",
        "shuffle composed",
    )),
    *((p, "raw", "fixed") for p in ("local", "local subset", "central reports")),
]  # fmt: skip
_SUMMED = [
    *((p, "mixture full", "some") for p in (
        "none", "central mu", "central tree mu", "central square root", "central batches", "central delta",
        "local gaussian", "local laplace",
    )),
    *((p, "mixture", "each") for p in ("central delta", "central tree of users", "central square root")),
    *((p, "mixture paid", "some") for p in ("none", "central", "central batches mu", "local gaussian")),
    *((p, "gram", "some") for p in ("none", "central", "central mu", "central tree mu", "local laplace")),
    *((p, "gram", "once") for p in ("central mu", "central batches")),
    *((p, "requery", "some") for p in ("none", "central mu", "central delta")),
]  # fmt: skip
for _p, _q, _s in (*_COUNTED, *_SUMMED):
    _how: dict[str, Any] = {}
    if _q == "groups":
        _how["plan"] = _groups
    if _q == "cut":
        _how["plan"] = _cuts
    if _q == "requery":
        _how["answers"] = True
    _add(
        "session", f"{_p}, {_q}, {_s}",
        partial(_session, _PRIVATIZERS[_p], _QUERIES[_q], _SCHEDULES[_s], **_how),
    )  # fmt: skip


def _many(privatizer: Any, query: Any) -> Any:
    """People who are submitted together."""
    schedule, layout = dr.Schedule(40, times=np.array([0, 20])), query.layout
    columns = ("states", "actions", "rewards")
    lives = [_life(i, layout) for i in range(20)]
    with privatizer.start(query, schedule, dr.Seeded(5, 1)) as session:
        releases = [session.release()]
        session.begin(dr.Plan(np.zeros((layout.horizon, layout.states), np.int64), 20))
        session.submit_many(
            dr.Trajectories(*(np.array([getattr(one, n) for one in lives]) for n in columns)),
            session.open_plan.number,
        )
        releases.append(session.release())
    return _released(releases)


for _p, _q in (
    ("none", "raw"),
    ("central tree", "lean"),
    ("central reports", "lean"),
    ("central delta", "pool"),
):
    _add("session", f"{_p}, {_q}, many at once", partial(_many, _PRIVATIZERS[_p], _QUERIES[_q]))


# ---------------------------------------------------------------- exact noise, from fixed coins
class _Bytes:
    """A source of bytes that repeats itself: counters, hashed."""

    def __init__(self, name: str) -> None:
        self._name, self._count, self._left = name, 0, b""

    def __call__(self, n: int) -> bytes:
        while len(self._left) < n:
            self._left += hashlib.sha256(f"{self._name}/{self._count}".encode()).digest()
            self._count += 1
        found, self._left = self._left[:n], self._left[n:]
        return found


class _FixedCoins:
    """Exact coins (as of secure sessions) of a person's device, from fixed bytes."""

    exact = True

    def __init__(self, user: int) -> None:
        self._bytes = _Bytes(f"user {user}")

    def laplace(self, scale: float, size: int, grid: int | None = None) -> np.ndarray:
        return exact.discrete_laplace(scale * grid, size, self._bytes) / float(grid)  # type: ignore[operator, arg-type]

    def normal(self, scale: float, size: int, grid: int | None = None) -> np.ndarray:
        return exact.discrete_gaussian(scale * grid, size, self._bytes) / float(grid)  # type: ignore[operator, arg-type]

    def rounded(self, rewards: np.ndarray, grid: int | None) -> np.ndarray:
        return exact.round_to_grid(rewards, grid, self._bytes)  # type: ignore[arg-type]

    def below(self, n: int) -> int:
        return int.from_bytes(self._bytes(32), "little") % n

    def flip(self, numerator: int) -> bool:
        return int.from_bytes(self._bytes(7), "little") >> 3 < numerator

    def words(self, size: int) -> np.ndarray:
        return np.frombuffer(self._bytes(8 * size), np.uint64)


def _secure(privatizer: Any, query: Any, schedule: dr.Schedule) -> Any:
    """Everything random is the device's: the server adds no noise of its own."""
    session = privatizer.start(query, schedule, dr.Secure(reward_grid=64))
    return {
        "guarantee": _in_short(session.guarantee),
        "released": _played(session, query, _sizes(schedule), _FixedCoins),
    }


for _p in ("local", "local laplace", "local gaussian", "local subset", "local oue", "local krr", "shuffle",
           "shuffle amplified", "none"):  # fmt: skip
    _add("exact", f"{_p}, lean", partial(_secure, _PRIVATIZERS[_p], _QUERIES["lean"], _SCHEDULES["some"]))


def _samplers() -> Any:
    found: dict[str, Any] = {}
    for scale in (0.3, 1.0, 2.5, 1000.25):
        found[f"laplace {scale}"] = exact.discrete_laplace(scale, 50, _Bytes("laplace"))
        found[f"gaussian {scale}"] = exact.discrete_gaussian(scale, 50, _Bytes("gaussian"))
    found["rounded"] = exact.round_to_grid(_weyl(50), 8, _Bytes("rounded"))
    found["counted"] = stochastic_round(_weyl(20), 10, _Bytes("counted"))
    return found


_add("exact", "samplers", _samplers)


def _message() -> Any:
    form = SessionConfig(
        _S, _A, _H, (Family("visits", 3, 2**31), Family("transitions", 9, 2**28), Family("rewards", 1, 2**30),
                     Family("centered_rewards", 4, 2**31, True)), None, 99,
    )  # fmt: skip
    who = _life(0, _OPEN)
    sent = ShuffleEncoder(form, 7)(who.states, who.actions, who.rewards, _FixedCoins(0))
    return {"size": len(sent), "content": np.frombuffer(sent, np.uint8)}


_add("exact", "message of a device", _message)


# --------------------------------------------------------------------------------- guarantees
def _stated(privatizer: Any, query: Any, schedule: dr.Schedule, source: Any) -> Any:
    """What is public before anybody comes."""
    with privatizer.start(query, schedule, source) as session:
        first = session.release()
        return {
            **_guaranteed(session.guarantee),
            "laws": {name: _law(e.law) for name, e in first.estimates.items()},
        }


_SOURCES: Mapping[str, Any] = {"seeded": dr.Seeded(0, 0), "secure": dr.Secure(reward_grid=64)}
_MATRIX: list[tuple[str, str, str, str]] = [
    *((p, "lean", "large", "seeded") for p in _PRIVATIZERS if "weights" not in p),
    *((p, "raw", "large once", "seeded") for p in (
        "central", "central delta", "central rho", "central mu", "central weights", "local", "local paper",
        "shuffle", "shuffle composed", "shuffle amplified",
    )),
    *((p, q, "large read", "seeded") for p in ("central", "central delta") for q in (
        "lean", "pool", "first", "groups", "cut", "alike",
    )),
    *((p, "lean", "some", "secure") for p in (
        "central", "central delta", "central rho", "central mu", "central paper", "central tree",
        "central tree mu", "central digits", "central batches", "central decaying", "central reports",
        "local", "local laplace", "local gaussian", "local paper",
        "shuffle", "shuffle amplified",
    )),
    *((p, "raw", "large once", "secure") for p in ("central", "central delta", "central mu")),
    *((p, "lean", "uneven", "seeded") for p in (
        "shuffle", "shuffle composed", "shuffle amplified", "central batches", "central square root",
    )),
    *((p, q, "large", "seeded") for p in (
        "none", "central", "central delta", "central tree mu", "central square root", "local gaussian",
    ) for q in ("mixture full", "gram")),
    *((p, q, "some", "secure") for p in ("central mu", "central", "local gaussian") for q in (
        "mixture", "gram",
    )),
    ("central mu", "requery", "some", "secure"),
    *((p, "raw", "questions", "secure") for p in ("central", "central delta", "local", "shuffle")),
]  # fmt: skip
for _p, _q, _s, _source in _MATRIX:
    _add(
        "guarantee", f"{_p}, {_q}, {_s}, {_source}",
        partial(_stated, _PRIVATIZERS[_p], _QUERIES[_q], _SCHEDULES[_s], _SOURCES[_source]),
    )  # fmt: skip


def _of_stored(privatizer: Any, episodes: int, source: Any) -> Any:
    query = dr.mechanisms.CountQuery(_LAYOUT, visits=False, center_rewards=True, episodes=episodes)
    with privatizer.stored(query, source) as session:
        return _guaranteed(session.guarantee)


for _p, _m, _source in itertools.product(
    ("none", "central", "central delta", "central mu", "central rho"), (1, 3), ("seeded", "secure")
):
    _add(
        "guarantee", f"stored, {_p}, {_m} episodes, {_source}",
        partial(_of_stored, _PRIVATIZERS[_p], _m, _SOURCES[_source]),
    )  # fmt: skip


# ----------------------------------------------------------------------------------- forecasts
def _forecast(world: str, learner: Any, privatizer: Any) -> Any:
    return estimate_run(Setup(WORLDS[world](), learner, privatizer, 3000)).to_json()


for _name, _parts in {
    "noise-aware central": ("small", _AWARE(), dr.Central(epsilon=1.0, delta=1e-6)),
    "noise-aware pure": ("small", _AWARE(), dr.Central(epsilon=1.0)),
    "dp-ucbvi central": ("small", dr.DPUCBVI(**_EACH), dr.Central(epsilon=1.0)),
    "dp-ucbvi local": ("small", dr.DPUCBVI(**_EACH), dr.Local(epsilon=2.0)),
    "dp-ucbvi shuffle": ("small", dr.DPUCBVI(**_EACH), dr.Shuffle(epsilon=1.0, delta=1e-3)),
    "joint central": ("alike", dr.JointPosterior(), dr.Central(epsilon=1.0, delta=1e-6)),
    "sdp-pe central": ("small", dr.SDPPE(), dr.Central(epsilon=1.0)),
    "ucrl-vtr central": ("mixture", UCRLVTR(), dr.Central(epsilon=1.0, delta=1e-6)),
    "lsvi-ucb local": ("linear", dr.LSVIUCB(), dr.Local(epsilon=1.0, delta=1e-6)),
}.items():
    _add("forecast", _name, partial(_forecast, *_parts))


def _words() -> Any:
    """What learners say of themselves."""
    learners = {name: parts[1] for name, parts in RUNS.items()}
    return {name: one.summary() for name, one in learners.items() if hasattr(one, "summary")}


_add("forecast", "words of learners", _words)

_SCHEMA = Schema(
    "ward", "patient", dr.Layout(4, 2, 3, np.array([[1, 1], [1, 0], [0, 1], [1, 1]], bool)),
    terminal=(3,), low=-1.0, high=1.0,
)  # fmt: skip
_LINEAR_SCHEMA = Schema(
    "ward", "patient", dr.Layout(4, 2, 3), terminal=(3,), low=-1.0, high=1.0,
    features=_simplex(4, 2, 3), feature_bound=1.0,
)  # fmt: skip


def _schema_forecast(privatizer: Any) -> Any:
    return estimate_release(_SCHEMA, 10_000, privatizer, measure=False).to_dict()


_add("forecast", "schema", partial(_schema_forecast, dr.Central(epsilon=1.0, delta=1e-6)))
_add("forecast", "schema pure", partial(_schema_forecast, dr.Central(epsilon=3.0)))


# ---------------------------------------------------------------------------------- stored data
def _people(world: str, users: int) -> dr.learners.SimulatedDataset:
    mdp = WORLDS[world]()
    return dr.learners.SimulatedDataset(mdp, dr.envs.uniform_policy(mdp), users, seed=3)


def _offline(learner: Any, privatizer: Any, world: str = "random", users: int = 400) -> Any:
    data = _people(world, users)
    spec = dr.mechanisms.ProblemSpec(data.mdp.layout, stationary=data.mdp.stationary)
    release = dr.learners.make_release(
        data, learner.query(spec), learner.schedule(users), privatizer, dr.Seeded(2)
    )
    learned = learner.learn(release, spec)
    return {
        "released": _released([release]), "guarantee": str(release.guarantee),
        "policy": np.asarray(learned.policy), "values": np.asarray(learned.values),
    }  # fmt: skip


for _name, _parts in {
    "apvi": (dr.learners.APVI(), dr.NoPrivacy()),
    "dp-apvi": (dr.DPAPVI(), dr.Central(epsilon=2.0, delta=1e-4)),
    "dp-apvi pure": (dr.DPAPVI(), dr.Central(epsilon=8.0)),
    "dp-apvi paper": (dr.DPAPVI(preset="paper"), dr.Central(rho=1.0)),
    "dp-apvi stationary": (dr.DPAPVI(stationary=True), dr.Central(mu=1.0), "alike"),
    "dp-apvi local": (dr.DPAPVI(), dr.Local(epsilon=4.0)),
    "dp-apvi hoeffding": (dr.DPAPVI(pessimism="hoeffding", visits="released"), dr.Central(mu=2.0)),
}.items():
    _add("stored", _name, partial(_offline, *_parts))


def _offline_linear(learner: Any) -> Any:
    mdp = WORLDS["linear"]()
    data = dr.envs.rollout_batch(mdp, dr.envs.uniform_policy(mdp), 300, 4)
    learned = learn_linear(learner, mdp.layout, mdp.features, data, dr.Seeded(2))
    return {
        "guarantee": _guaranteed(learned.guarantee), "policy": learned.policy, "values": learned.values,
        "q": learned.q, "supported": learned.supported, "effective": learned.effective,
    }  # fmt: skip


for _name, _learner in {
    "pevi": PEVI(),
    "vapvi": VAPVI(),
    "dp-pevi": DPPEVI(epsilon=4.0, delta=1e-4),
    "dp-pevi model": DPPEVI(rho=1.0, response="model"),
    "dp-pevi laplace": DPPEVI(epsilon=8.0, noise="laplace"),
    "dp-vapvi": DPVAPVI(mu=2.0),
    "dp-vapvi paper": DPVAPVI(rho=1.0, preset="figure-1"),
}.items():
    _add("stored", _name, partial(_offline_linear, _learner))


def _responses(pause: Callable[[Any, str], Any] = lambda session, moment: session) -> Any:
    """Every kind of question to one stored data set, Gaussian, Laplace and exact."""
    mdp = WORLDS["linear"]()
    data = dr.envs.rollout_batch(mdp, dr.envs.uniform_policy(mdp), 200, 4)
    weights = 0.2 + 0.8 * _weyl(mdp.states, mdp.actions)
    values = 2.0 * _weyl(mdp.states, step=math.sqrt(11.0))
    found: dict[str, Any] = {}
    for budget in ({"mu": 0.3}, {"mu": None, "epsilon": 0.5}, {"mu": None}):
        plan = [
            Question(kind="gram", step=2, **budget),
            Question(kind="response", step=2, low=0, high=3, **budget),
            Question(kind="pair", step=1, low=0, high=3, **budget),
            Question(kind="pair", step=1, low=0, high=3, centre=False, **budget),
            Question(kind="response", step=0, low=0, high=9, reward=False, span="declared", **budget),
            Question(kind="model", step=0, **budget),
        ]
        try:
            session = ResponseSession(mdp.layout, mdp.features, plan, dr.Seeded(3), delta=1e-5)
        except ValueError as refused:
            if budget["mu"] is not None or "epsilon" not in budget:
                raise
            found[str(budget)] = type(refused).__name__
            continue
        session.submit_many(data)
        answers = [session.gram(2, weights), session.response(2, values), session.pair(1, values, weights)]
        session = pause(session, "halfway")
        answers += [session.pair(1, values), session.response(0, values), session.model(0)]
        parts = ("gram", "vector", "successors", "rewards", "centre", "gram_scale", "vector_scale")
        found[str(budget)] = [
            _guaranteed(session.guarantee),
            *({name: getattr(a, name) for name in parts} for a in answers),
        ]
    return found


_add("stored", "responses", _responses)


_VOLATILE = (
    "date",
    "made_by",
    "library",
    "libraries",
    "software",
    "versions",
    "version_of",
    "files",
    "platform",
)


def _steady(document: Any) -> Any:
    """A document without dates, versions, names of our modules, and hashes of the files beside it."""
    if isinstance(document, dict):
        return {k: _steady(v) for k, v in document.items() if k not in _VOLATILE}
    if isinstance(document, list):
        return [_steady(v) for v in document]
    if isinstance(document, str):
        return _text(document)
    return document


def _text(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d(T[\d:+.]*Z?)?", "DATE", text)
    text = re.sub(r"\bdiscreet(\.(\\?[a-z_])+)+", "MODULE", text)  # Markdown writes \\_
    text = re.sub(r"\b(sha256:)?[0-9a-f]{64}\b", "HASH", text)
    return re.sub(
        r"(?i)\b(discreet|python|numpy|matplotlib|scipy|numba|pyarrow|dp[-_]accounting)([ =]+)\d+(\.\d+)+",
        r"\1\2VERSION",
        text,
    )


def _column(column: Any) -> Any:
    values = column.to_pylist()
    if isinstance(values[0], str):
        return [len(values), sorted(set(values)), hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]]
    numbers = [np.nan if value is None else value for value in values]
    return np.asarray(numbers if isinstance(values[0], float) else [-1 if v is None else v for v in values])


def _file(path: Path) -> Any:
    """The content of a file, parsed as far as it can be."""
    if path.suffix == ".json":
        return _steady(json.loads(path.read_text("utf-8")))
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        with pq.ParquetFile(path) as file:
            facts = {k: v for k, v in (file.metadata.metadata or {}).items() if k != b"ARROW:schema"}
        return {
            **{name: _column(table[name]) for name in table.column_names},
            "facts": {k.decode(): _steady(json.loads(v)) for k, v in facts.items()},
        }
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        return {"columns": rows[0], "rows": [[_cell(x) for x in row] for row in rows[1:]]}
    if path.suffix == ".npy":
        return np.load(path)
    return _text(path.read_text("utf-8")).splitlines()


def _cell(text: str) -> Any:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


_FIGURES = (".png", ".svg")  # drawn by Matplotlib: their names are kept


def _folder(folder: Path) -> Any:
    drawn = (*_FIGURES, ".html")  # the look of officer.md and report.md
    return {path.name: None if path.suffix in drawn else _file(path) for path in sorted(folder.iterdir())}


def _files(schema: Schema, learner: Any, again: Any = None, **how: Any) -> Any:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_made_up(schema, 60, place / "people.parquet", seed=1)
        source = open_source(place / "people.parquet", schema)
        learn(source, learner, place / "out", ledger=None, randomness=dr.Seeded(3), **how)
        if again is not None:
            replan(place / "out" / "release.parquet", again, place / "again")
        folder = place / ("out" if again is None else "again")
        return {**_folder(folder), "refuted": [c.name for c in verify(folder) if not c.ok]}


_BUDGET = dr.Central(epsilon=8.0, delta=1e-4)
_add("stored", "files of counts", partial(_files, _SCHEMA, dr.DPAPVI(), privatizer=_BUDGET))
_add("stored", "files of exact counts", partial(_files, _SCHEMA, dr.learners.APVI()))
_add(
    "stored", "files of counts planned again",
    partial(_files, _SCHEMA, dr.DPAPVI(), dr.DPAPVI(c1=0.5), privatizer=_BUDGET),
)  # fmt: skip
_LINEAR = DPPEVI(epsilon=8.0, delta=1e-4)
_add("stored", "files of linear sums", partial(_files, _LINEAR_SCHEMA, _LINEAR))
_add(
    "stored",
    "files of linear sums planned again",
    partial(_files, _LINEAR_SCHEMA, _LINEAR, replace(_LINEAR, C=0.1)),
)


# ---------------------------------------------------------------- saved and restored on the way
def _continued(play: Callable[..., Any]) -> Any:
    """A run that is saved and restored before its releases and amid its plans."""
    with tempfile.TemporaryDirectory() as name:
        count = itertools.count()

        def pause(session: Any, moment: str) -> Any:
            if moment not in ("1 before", "1 midway", "2 midway", "3 before", "halfway"):
                return session
            path = Path(name) / f"{next(count)}.state"
            session.save(path)
            return dr.mechanisms.restore(path, folder=Path(name) / "restored")

        return play(pause=pause)


for _p, _q, _s in (
    ("none", "raw", "some"), ("central tree", "raw", "some"), ("central tree optimal", "raw", "some"),
    ("central paper", "raw", "some"), ("central digits", "raw", "some"),
    ("central square root", "raw", "some"), ("central batches", "lean", "read"),
    ("central decaying", "lean", "read"),
    ("central reports", "raw", "some"),
    ("central decaying", "pool", "shares"), ("central decaying", "groups", "read"),
    ("central decaying", "cut", "read"), ("local laplace", "raw", "some"), ("local oue", "raw", "some"),
    ("shuffle", "lean", "some"), ("shuffle amplified", "lean", "some"), ("central tree mu", "raw", "open"),
    ("none", "mixture full", "some"), ("central tree mu", "mixture full", "some"),
    ("central square root", "gram", "some"), ("central batches mu", "mixture paid", "some"),
    ("central mu", "requery", "some"), ("local gaussian", "mixture paid", "some"),
    ("none", "requery", "some"), ("none", "raw", "questions"), ("central delta", "raw", "questions"),
    ("local subset", "raw", "questions"), ("shuffle", "raw", "questions"),
    ("shuffle amplified", "raw", "questions"),
):  # fmt: skip
    _how = {"groups": {"plan": _groups}, "cut": {"plan": _cuts}, "requery": {"answers": True}}.get(_q, {})
    _play = partial(_session, _PRIVATIZERS[_p], _QUERIES[_q], _SCHEDULES[_s], laws=False, **_how)
    _add("continued", f"{_p}, {_q}, {_s}", partial(_continued, _play))
for _name in (
    "private-ucb-vi tree", "noise-aware decaying", "noise-aware shuffle", "joint cut", "ucrl-vtr",
    "lsvi-ucb none", "lsvi-ucb requery", "sdp-pe", "sdp-pe shuffle", "sdp-pe local", "sdp-pe none", "apeve",
    "sdp-pe-om", "sdp-pe-om forget",
):  # fmt: skip
    _add("continued", f"loop of {_name}", partial(_continued, partial(_loop, _name)))
_add("continued", "responses", partial(_continued, _responses))


def groups() -> Iterator[tuple[str, int]]:
    """Number of cases by group."""
    names = [name.partition(":")[0] for name in CASES]
    return ((group, names.count(group)) for group in dict.fromkeys(names))
