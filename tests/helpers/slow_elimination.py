"""SDP-PE and APEVE as the specification prints them (7.10, 7.11): loops over policies that are dictionaries.

Nothing here is shared with the library. A policy maps (h, s) to an action, a model maps (h, s, a) to the law
of the next state over S + 1 states, the last being the end state. It is told the releases, it says which
policies each batch may play (all maximisers, up to rounding), who is left, and what was rare.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field


def bisected(low, high, above):
    """The smallest x of [low, high] at which the increasing condition ``above`` holds, to rounding."""
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


def projected(v, w, c):
    """Section 5.2 by bisection instead of its formula: x, the canonical solution for one row."""
    v = [float(one) for one in v]
    if w + c < 0.0:
        return [0.0] * len(v)

    def feasible(t):
        lowest, highest = (sum(max(0.0, one + sign * t) for one in v) for sign in (-1, 1))
        return t >= -min(v) and lowest <= w + c and highest >= w - c

    most = max(map(abs, v)) + abs(w) + c + 1.0
    t = bisected(0.0, most, feasible) if not feasible(0.0) else 0.0
    lowest, highest = sum(max(0.0, one - t) for one in v), sum(one + t for one in v)
    total = min(max(max(w, 0.0), lowest), highest)
    mu = bisected(-most - total, most + total, lambda m: sum(max(0.0, one + m) for one in v) >= total)
    return [max(0.0, one + mu) for one in v]


@dataclass
class Batch:
    """What the specification wants of one batch: (h, s, a) -> numbers of its policies, users each."""

    layers: tuple[int, ...]
    wanted: dict
    size: int


@dataclass
class Slow:
    """One run. ``step`` is told the counts of the newest batch and gives the next one."""

    states: int
    actions: int
    horizon: int
    initial: list
    users: int
    sizes: list  # L_0 of each stage
    failure: float = 0.05
    C: float = 1.0
    C_1: float = 6.0
    scale: float = 1.0
    elimination: str = "data"
    known: dict | None = None  # (h, s, a) -> reward
    allowed: list | None = None  # admissible actions of every state; None: all
    policies: list = field(default_factory=list)
    active: list = field(default_factory=list)
    rare: set = field(default_factory=set)
    crude: dict = field(default_factory=dict)
    widths: list = field(default_factory=list)  # E of this stage's batches
    best: list = field(default_factory=list)  # those that may be played at the end

    def __post_init__(self):
        self.allowed = self.allowed or [list(range(self.actions))] * self.states
        cells = list(itertools.product(range(self.horizon), range(self.states)))
        free = [self.allowed[s] if h > 0 or self.initial[s] > 0 else self.allowed[s][:1] for h, s in cells]
        for digits in itertools.product(*reversed(free)):  # the digit of (0, 0) varies fastest
            self.policies.append(dict(zip(cells, reversed(digits), strict=True)))
        self.active = list(range(len(self.policies)))

    def pairs(self, layers):
        return [(h, s, a) for h in layers for s in range(self.states) for a in self.allowed[s]]

    def value(self, policy, reward, model):
        """V^pi(reward, model), backward; the end state is worth 0."""
        after = [0.0] * (self.states + 1)
        for h in range(self.horizon - 1, -1, -1):
            now = [0.0] * (self.states + 1)
            for s in range(self.states):
                a = policy[h, s]
                now[s] = reward.get((h, s, a), 0.0)
                if (h, s, a) in model:
                    now[s] += sum(p * v for p, v in zip(model[h, s, a], after, strict=True))
            after = now
        return sum(self.initial[s] * after[s] for s in range(self.states))

    def iota(self):
        return math.log(2 * self.horizon * self.actions * self.users / self.failure)

    def estimated(self, counts, rare):
        """EstimateTransition, and a check that rows are laws."""
        model = {}
        for (h, s, a), row in counts.items():
            total = sum(row)
            law = [0.0 if (h, s, a, k) in rare or total == 0 else n / total for k, n in enumerate(row)]
            law.append(1.0 - sum(law))
            assert min(law) >= -1e-12
            assert abs(sum(law) - 1.0) < 1e-12
            model[h, s, a] = law
        return model

    def batch(self, layers, size):
        wanted = {}
        for h, s, a in self.pairs(layers):
            model = {key: law for key, law in self.crude.items() if key[0] < h}
            plays = [i for i in self.active if self.policies[i][h, s] == a]
            visits = {i: self.value(self.policies[i], {(h, s, a): 1.0}, model) for i in self.active}
            most = max(visits.values())
            among = plays or self.active  # among equals those that play the pair come first
            wanted[h, s, a] = [i for i in among if visits[i] >= most - 1e-12]
        return Batch(layers, wanted, size)

    def private(self, counts, visits, width):
        """N~ of a batch: section 5.2 with E, or the counts themselves where nothing is noisy."""
        if width == 0.0:
            return {key: [max(0.0, float(n)) for n in row] for key, row in counts.items()}
        plus = width / (2 * self.states)
        return {
            key: [x + plus for x in projected(row, visits[key], width / 4)] for key, row in counts.items()
        }

    def run(self):
        """Yield batches; is sent (counts, visits, rewards, E, Lambda of rewards) of each; ends with None."""
        for b, size in enumerate(self.sizes):
            self.rare, self.crude, self.widths = set(), {}, []
            for h in range(self.horizon):
                counts, visits, _, width, _ = yield self.batch((h,), size)
                counts = self.private(counts, visits, width)
                self.widths.append(width)
                threshold = self.C_1 * max(2.0 if width else 1.0, width) * self.horizon**2 * self.iota()
                for key, row in counts.items():
                    assert key[0] == h
                    self.rare |= {(*key, k) for k, n in enumerate(row) if n < threshold}
                self.crude.update(self.estimated(counts, self.rare))
            counts, visits, sums, width, slack = yield self.batch(tuple(range(self.horizon)), size)
            self.widths.append(width)
            self.eliminate(self.private(counts, visits, width), sums, width, slack, size, len(self.sizes))
            assert b < len(self.sizes)

    def eliminate(self, counts, sums, width, slack, size, stages):
        h_, s_, a_ = self.horizon, self.states, self.actions
        rows = sum(map(len, self.allowed))
        total = {key: sum(row) for key, row in counts.items()}
        reward = {
            key: min(1.0, max(0.0, sums[key] / max(total[key], 1.0 if not width else 0.0))) for key in counts
        }
        reward = self.known or reward
        if self.elimination == "theory":
            length = h_ * rows * size
            e = max([2.0, *self.widths]) if any(self.widths) else 1.0
            xi = self.C * (
                math.sqrt(h_**5 * s_**2 * a_ * self.iota() / length)
                + s_**3 * a_**2 * h_**5 * e * self.iota() / length
            )
            model = self.estimated(counts, self.rare)
            values = {i: self.value(self.policies[i], reward, model) for i in self.active}
            most = max(values.values())
            self.active = [i for i in self.active if values[i] > most - 2 * xi or values[i] == most]
        else:
            log = math.log(2 * h_ * rows * self.users / (self.failure / stages / 2))
            w, model = {}, self.estimated(counts, set())
            for (h, s, a), n in total.items():
                later = h_ - 1 - h
                d = n if width else max(1.0, n)
                beta_p = math.sqrt(2 * s_ * log / d) + (s_ + 3) * width / 2 / d
                beta_r = 0.0 if self.known else max(1.0, math.sqrt(log / 2)) / math.sqrt(d) + slack / d
                cap = later if self.known else later + 1
                w[h, s, a] = min(cap, self.scale * (beta_r + later / 2 * beta_p))
                if (n <= width) if width else n == 0:
                    w[h, s, a] = cap
                if n == 0:  # nothing known: any law serves, the limit of the projection's
                    model[h, s, a] = [1 / s_] * s_ + [0.0]
            bounds = [
                {
                    i: self.value(self.policies[i], {k: reward[k] + sign * w[k] for k in w}, model)
                    for i in self.active
                }
                for sign in (1, -1)
            ]
            level = max(bounds[1].values())
            self.active = [i for i in self.active if bounds[0][i] >= level]
            values = {i: (bounds[0][i] + bounds[1][i]) / 2 for i in self.active}
        most = max(values[i] for i in self.active)
        self.best = [i for i in self.active if values[i] >= most - 1e-12]
