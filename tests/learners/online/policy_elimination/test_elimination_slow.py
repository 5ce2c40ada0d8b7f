"""SDP-PE and APEVE against a reference in plain loops (helpers/slow_elimination.py), on forced releases."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow
from slow_elimination import Slow

from discreet.accounting.noise_distributions.distributions import NoNoise
from discreet.core.layout import Layout
from discreet.learners.online.policy_elimination import APEVE, SDPPE
from discreet.mechanisms.interfaces import Estimate, ProblemSpec, Release
from discreet.utils.random_streams_kernels import run_key


@dataclass(frozen=True)
class Within:
    """A law whose noise, and that of a row's sum, is at most ``most``."""

    most: float

    def std(self):
        return self.most / 2

    def std_bound(self):
        return self.most / 2

    def bound(self, failure, rows=False):
        return self.most


class World:
    """Expected counts of the users of some plans, with uniform noise in [-e, e]: what a test releases."""

    def __init__(self, layout, start, noise, seed):
        g = self.g = np.random.default_rng(seed)
        self.layout, self.start, self.noise = layout, start, noise
        self.p = g.dirichlet(np.full(layout.states, 0.4), (layout.horizon, layout.states, layout.actions))
        self.p[0, 0, :, -1] = 0.0  # a step that never happens: unreachable, or rare at least
        self.p[0] /= self.p[0].sum(-1, keepdims=True)
        self.r = g.random(self.p.shape[:3])

    def release(self, plans, query, users, number):
        layout, e = self.layout, self.noise
        n3, allowed = np.zeros(self.p.shape), layout.row_index >= 0
        for policy, many in plans:
            mass = many * self.start
            for h in range(layout.horizon):
                for s in range(layout.states):
                    n3[h, s, policy[h, s]] += mass[s] * self.p[h, s, policy[h, s]]
                mass = np.einsum("s,sk->k", mass, self.p[h, np.arange(layout.states), policy[h]])
        tables = {"visits": n3.sum(-1), "transition_counts": n3, "reward_sums": n3.sum(-1) * self.r}
        tables["centered_reward_sums"] = tables["reward_sums"] - 0.5 * tables["visits"]
        found = {}
        for name in query.families:
            table = tables[name] + self.g.uniform(-e, e, tables[name].shape)
            table = table * (allowed if table.ndim == 3 else allowed[..., None])
            found[name] = Estimate(table[query.counted], Within(e) if e else NoNoise())
        return Release(found, users, number, SimpleNamespace())


def told(release, query, layout, noise, ignored):
    """Counts, visits and reward sums by (h, s, a), with E and the slack of rewards, by hand."""
    value = {name: one.value for name, one in release.estimates.items()}
    n3 = value["transition_counts"]
    visits = value.get("visits", n3.sum(-1))
    rewards = value.get("reward_sums", np.zeros_like(visits))
    slack = noise
    if "centered_reward_sums" in value:
        rewards, slack = value["centered_reward_sums"] + 0.5 * visits, 1.5 * noise
    first = query.step or 0
    where = [
        (h, int(layout.row_state[r]), int(layout.row_action[r]))
        for h in range(len(n3))
        for r in range(layout.rows)
    ]
    parts = [{(h + first, s, a): part[h, s, a] for h, s, a in where} for part in (n3, visits, rewards)]
    width = 0.0 if ignored else 4.0 * noise
    return *parts, width, 0.0 if ignored else width + slack


SIZES = [(2, 2, 2), (2, 2, 3), (3, 2, 2)]
CASES = [
    (SDPPE, {"preset": "theory", "C_1": 0.02}, 0.0),
    (SDPPE, {"width_scale": 0.1, "C_1": 0.002}, 1.5),
    (SDPPE, {"width_scale": 0.02, "C_1": 0.001, "derive_visits": False, "center_rewards": False}, 0.2),
    (SDPPE, {"elimination": "theory", "C": 0.002, "C_1": 0.05, "truncate": True, "explore_share": 1.0}, 0.0),
    (SDPPE, {"preset": "paper", "C": 1e-5, "C_1": 0.003, "initial": 9}, 2.0),
    (SDPPE, {"known_rewards": True, "C_1": 0.01, "tie_break": "first"}, 1.0),
    (APEVE, {"C_1": 0.01}, 0.0),
    (APEVE, {"C_1": 0.01, "known_rewards": False, "stages": "doubling"}, 0.0),
    (APEVE, {"preset": "paper", "C": 0.001, "C_1": 0.01}, 0.0),
]


def assignable(wanted, taken, size):
    """Can every pair have had ``size`` users of one of its maximisers, given the users of each policy?"""
    pairs, units = len(wanted), {i: many // size for i, many in taken.items()}
    assert all(units[i] * size == many for i, many in taken.items())
    place = {i: pairs + 1 + j for j, i in enumerate(units)}
    edges = [(0, 1 + k, 1) for k in range(pairs)] + [
        (place[i], pairs + len(units) + 1, n) for i, n in units.items()
    ]
    edges += [(1 + k, place[i], 1) for k, among in enumerate(wanted) for i in among if i in place]
    start, end, many = np.array(edges, np.int32).T
    graph = csr_matrix((many, (start, end)), dtype=np.int32, shape=(pairs + len(units) + 2,) * 2)
    return maximum_flow(graph, 0, pairs + len(units) + 1).flow_value == pairs


def cells(policy):
    return {(h, s): int(policy[h, s]) for h in range(policy.shape[0]) for s in range(policy.shape[1])}


@pytest.mark.parametrize(("make", "options", "noise"), CASES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", ["fixed", "random", "mask"])
def test_whole_runs_equal_the_reference(make, options, noise, sizes, kind):
    """Every batch: the same plans (of equally good ones: one of them), W, crude model, active set."""
    mask = None
    if kind == "mask":
        mask = np.ones(sizes[:2], bool)
        mask[0, 1] = False
    layout = Layout(*sizes, mask)
    start = (
        np.eye(sizes[0])[0]
        if kind == "fixed"
        else np.linspace(1, 2, sizes[0]) / np.linspace(1, 2, sizes[0]).sum()
    )
    world = World(layout, start, noise, seed=sum(map(ord, kind)) + 10 * sizes[0] + sizes[2])
    learner, users = make(**options), 30_000
    known = np.where(layout.row_index >= 0, world.r, 0.0)
    spec = ProblemSpec(layout, users, known_rewards=known, initial=start)
    schedule, times = learner.schedule(spec), learner.schedule(spec).release_times
    ignored, first = make is APEVE, learner.tie_break == "first"
    slow = Slow(
        *sizes, start.tolist(), users, list(learner.sizes(spec)), float(learner.failure), float(learner.C),
        float(learner.C_1), float(learner.width_scale), learner.elimination,
        dict(np.ndenumerate(world.r)) if learner.known_rewards else None,
        [np.flatnonzero(row).tolist() for row in layout.row_index >= 0],
    )  # fmt: skip
    assert learner.enumeration(spec).count == len(slow.policies)
    state, release = learner.begin(spec, run_key(3)), Release({}, 0, 0, SimpleNamespace())
    course = slow.run()
    wanted, played, shrank = next(course), 0, False
    for number in range(len(schedule.queries) + 1):
        plans = []
        while not plans or not plans[-1].last:
            plan, state = learner.plan(state, release)
            plans.append(plan)
        memory = state.memory
        assert np.flatnonzero(memory.active).tolist() == slow.active
        shrank |= len(slow.active) < len(slow.policies)
        if number == len(schedule.queries):
            assert wanted is None
            (plan,) = plans
            assert plan.users == users - played == users - times[-1]
            assert memory.best in slow.best
            assert memory.best == slow.best[0] or not first
            assert cells(plan.policy) == slow.policies[memory.best]
            break
        batch = number % (layout.horizon + 1)
        if batch > 0:  # W and the crude model of the layers so far
            for h in range(batch):
                for r in range(layout.rows):
                    key = (h, int(layout.row_state[r]), int(layout.row_action[r]))
                    assert [(*key, k) in slow.rare for k in range(sizes[0])] == memory.rare[h, r].tolist()
                    np.testing.assert_allclose(memory.crude[h, r], slow.crude[key][:-1], atol=1e-9)
            assert memory.width == max(slow.widths)
        # every pair's users follow one of its maximisers: a flow from pairs to plans exists
        numbers = dict(enumerate(slow.policies))
        taken = {i: plan.users for plan in plans for i, one in numbers.items() if one == cells(plan.policy)}
        assert len(taken) == len(plans)
        assert sum(taken.values()) == wanted.size * len(wanted.wanted) == times[number + 1] - played
        if first:
            for among in wanted.wanted.values():
                taken[among[0]] -= wanted.size
            assert not any(taken.values())
        else:
            assert assignable(list(wanted.wanted.values()), taken, wanted.size)
        played += sum(plan.users for plan in plans)
        query = schedule.queries[number]
        release = world.release([(plan.policy, plan.users) for plan in plans], query, played, number + 1)
        try:
            wanted = course.send(told(release, query, layout, noise, ignored))
        except StopIteration:
            wanted = None
    assert shrank or options.get("preset") == "theory"  # bounds that hold need more people
