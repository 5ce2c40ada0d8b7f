r"""Policy elimination with crude and fine exploration: SDP-PE (Bai et al. 2024) and APEVE (Qiao et al. 2022).

Stage b starts with the set phi_b of deterministic policies that can still be optimal. Each stage has three
parts.

1. *Crude exploration* proceeds step by step, for h = 1..H. For every triple (h, s, a), L_0 users follow the
   policy of phi_b that visits the triple most often in the crude model of the steps before h. Only the counts
   of step h are released, and they are projected. Let iota = log(2 H A K / failure). Transitions with
   projected counts N3~ < C_1 E H^2 iota form the set W. In the *absorbing* model, transitions in W lead to a
   terminal state with value 0. With C_1 = 6 and E >= 2, all other transitions are known to a relative error
   of 1 / H. Without noise, E = 1 as in APEVE.
2. *Fine exploration*. For every triple (h, s, a), L_0 users follow the policy of phi_b that visits the triple
   most often in the whole crude model. All counts and rewards of this batch are released.
3. *Elimination*. Two rules are available.

   - ``elimination="theory"``: a policy pi stays if and only if its value V^pi(r^, P-ref) in the absorbing
     model of the fine batch exceeds the largest value minus 2 xi_b. Here xi_b = C (sqrt(H^5 S^2 A iota / L) +
     S^3 A^2 H^5 E iota / L) with L = H S A L_0. The paper does not state the constant C.
   - ``elimination="data"``: pi stays if and only if V^pi(r~ + w, P~) >= max over phi_b of V^pi(r~ - w, P~).
     The widths w are those of :func:`discreet.learners.online.elimination_schedule.value_widths`.

With ``elimination="data"`` and ``width_scale`` >= 1, an optimal policy stays in every phi_b with probability
at least 1 - ``failure`` - ``noise_failure``. Proof: the widths bound the error of every policy's value in
both directions. ``failure`` is divided equally among the B stages, and ``noise_failure`` equally among the
B (H + 1) batches. According to the paper, regret is O~(sqrt(S^2 A H^5 K) + S^3 A^2 H^6 / epsilon).

**Privacy.** Each user is in one batch, and a batch answers one query with the full budget. The query of a
crude batch counts one step (:class:`~discreet.core.count_query.CountQuery`, ``step``), so its sensitivity has
no factor H. The distribution of the first state must be public (``spec.initial``).

There are A^(S H) deterministic policies, or A^(1 + S (H - 1)) if the first state is fixed. Unlike in the
papers, stage b has ``initial`` * H S A 2^(b-1) users in each of its crude and fine parts.

Source: Bai, Talebi, Zhao, Cheng and Chen 2024.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.learners.online import policy_elimination_kernels as kernels
from discreet.learners.online.elimination_schedule import (
    SHARED,
    Plans,
    StagedLearner,
    StageModel,
    StageState,
    value_widths,
)
from discreet.mechanisms.interfaces import ProblemSpec, Release, Schedule
from discreet.utils.random_streams_kernels import ROLE_TIES, draw_uniforms, open_at

Rules = NDArray[np.int32]
Flags = NDArray[np.bool_]

MAX_POLICIES = 2**20  # default of the option max_policies
_EXPLOIT = 2**20  # index of the random stream that selects the best policy; exploration of step h has index h


@dataclass(frozen=True, eq=False)
class Enumeration:
    """Numbered list of all deterministic policies of a problem.

    Attributes
    ----------
    layout : Layout
        Sizes and admissible actions.
    initial : (S,)
        Distribution of the first state.
    first, rules : (n_0, S) and (n, S)
        Rules for step 0 and for each later step. A rule chooses one row (an admissible pair) for each state.
    """

    layout: Layout
    initial: Floats
    first: Rules
    rules: Rules

    @classmethod
    def of(cls, layout: Layout, initial: Floats, most: int = MAX_POLICIES) -> Enumeration:
        """Build the enumeration of all policies. Raises ``ValueError`` if there are more than ``most``.

        ``initial`` (S,) : distribution of the first state.
        """
        choices = np.diff(layout.state_ptr)
        starts = np.where(initial > 0.0, choices, 1)
        first, later = math.prod(starts.tolist()), math.prod(choices.tolist())
        count = first * later ** (layout.horizon - 1)
        if count > most:
            size = f"{count}" if count < 10**15 else f"about 1e{len(str(count)) - 1}"
            raise ValueError(
                f"max_policies = {most}: this problem has {size} deterministic policies "
                f"(H = {layout.horizon}, S = {layout.states}, A = {layout.actions}), which are too many to "
                "enumerate; use sdp-pe-om"
            )
        rules = _rules(layout, choices) if layout.horizon > 1 else np.zeros((0, layout.states), np.int32)
        return cls(layout, initial, _rules(layout, starts), rules)

    @property
    def count(self) -> int:
        """Return the number of policies."""
        return int(self.first.shape[0]) * int(self.rules.shape[0]) ** (self.layout.horizon - 1)

    def rows(self, policy: int) -> Ints:
        """Return the (H, S) rows that the policy with number ``policy`` chooses."""
        policy, digit = divmod(int(policy), self.first.shape[0])
        rows = [self.first[digit]]
        for _ in range(1, self.layout.horizon):
            policy, digit = divmod(policy, self.rules.shape[0])
            rows.append(self.rules[digit])
        return np.array(rows, np.int64)

    def policy(self, policy: int) -> Ints:
        """Return the (H, S) actions of the policy with number ``policy``."""
        return self.layout.row_action[self.rows(policy)]

    def values(self, transitions: Floats, rewards: Floats) -> Floats:
        """Return the values of all policies in a model, (count,).

        The model is transitions (H, R, S) and rewards (H, R). If the transition probabilities of a pair sum
        to less than 1, the missing probability mass has value 0.
        """
        out = np.empty(self.count)
        # a read-only array would be of another type, for which the kernel is compiled again
        moves, paid = (np.require(array, requirements=("C", "W")) for array in (transitions, rewards))
        kernels.evaluate_all(moves, paid, self.initial, self.first, self.rules, out)
        return out

    def visitors(
        self, transitions: Floats, h: int, active: Flags, coins: Floats | None = None
    ) -> tuple[Ints, Floats]:
        """Return, for each pair, the active policy that visits it at step h with the largest probability.

        Returns the (R,) numbers of these policies and their (R,) visit probabilities. The number is -1 if no
        active policy takes the action of the pair. Entries of ``transitions`` (H, R, S) for steps h and later
        are not read. Uniform ``coins`` (R,) in [0, 1) choose among policies with equal probability. None
        chooses the lowest number.
        """
        rows = self.layout.rows
        mass = kernels.occupancies(np.ascontiguousarray(transitions), self.initial, self.first, self.rules, h)
        found, visits = np.empty(rows, np.int64), np.empty(rows)
        kernels.best_visitors(
            mass, self.first if h == 0 else self.rules, active, np.zeros(rows) if coins is None else coins,
            coins is not None, found, visits,
        )  # fmt: skip
        return found, visits


def _rules(layout: Layout, choices: Ints) -> Rules:
    """Return all rules, (n, S), that use only the first ``choices[s]`` rows of each state s."""
    count = math.prod(choices.tolist())
    number, rules = np.arange(count), np.empty((count, layout.states), np.int32)
    for s, many in enumerate(choices.tolist()):
        number, digit = np.divmod(number, many)
        rules[:, s] = layout.state_ptr[s] + digit
    return rules


@lru_cache(maxsize=4)
def _enumerated(layout: Layout, initial: tuple[float, ...], most: int) -> Enumeration:
    return Enumeration.of(layout, np.array(initial), most)


def absorbing(transitions: Floats, rare: Flags) -> Floats:
    """Return the transition probabilities with all entries in W set to 0 (EstimateTransition in the paper).

    ``transitions`` (..., S) are probabilities, and ``rare`` (..., S) is True for entries in W.
    """
    return np.where(rare, 0.0, transitions)


@dataclass(frozen=True, eq=False)
class EliminationMemory:
    """Memory of the learner between releases.

    Attributes
    ----------
    active : (policies,)
        True for the policies in phi_b.
    crude : (H, R, S)
        Absorbing model of the steps for which crude exploration is finished.
    rare : (H, R, S)
        True for the transitions in W.
    width : float
        Largest noise bound E among the crude batches of this stage.
    best : int
        Number of the best remaining policy; -1 before the first elimination.
    """

    active: Flags
    crude: Floats
    rare: Flags
    width: float = 0.0
    best: int = -1


@dataclass(frozen=True, kw_only=True)
class SDPPE(StagedLearner):
    """SDP-PE (Bai et al. 2024), corrected, with any privatizer. The paper uses the shuffle model.

    Parameters
    ----------
    preset : "default", "theory" or "paper"
        ``default``: elimination by data, with smaller widths (heuristic). ``theory``: elimination by data,
        with valid bounds. ``paper``: elimination by the paper's xi_b with C = 1; all users explore.
    elimination : "data" or "theory"
        Rule that eliminates policies; see :mod:`discreet.learners.online.policy_elimination`.
    C : float
        Constant of xi_b, for ``elimination="theory"``.
    C_1 : float
        Constant of the threshold. It defines the set W. The theory needs 6.
    max_policies : int
        Largest number of deterministic policies. ``ValueError`` is raised if the problem has more.

    For further options see :class:`~discreet.learners.online.elimination_schedule.StagedLearner`.
    """

    elimination: Literal["data", "theory"] | None = None
    C: float | None = None
    C_1: float | None = None
    max_policies: int | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            **SHARED, "elimination": "data", "C": 1.0, "C_1": 6.0, "max_policies": MAX_POLICIES,
        },
        "theory": {"width_scale": 1.0, "explore_share": 1.0},
        "paper": {
            "elimination": "theory", "width_scale": 1.0, "explore_share": 1.0, "truncate": True,
            "tie_break": "first", "derive_visits": False, "center_rewards": False,
        },
    }  # fmt: skip
    PARTS: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        checks.choice("elimination", self.elimination, ("data", "theory"))
        for name in ("C", "C_1"):
            put(self, name, checks.real(name, getattr(self, name), 0.0))
        most = checks.integer("max_policies", self.max_policies, 1, 2**26)
        put(self, "max_policies", most)

    # ------------------------------------------------------------------ policies and schedule
    def enumeration(self, spec: ProblemSpec) -> Enumeration:
        """Return the enumeration of all deterministic policies of the problem ``spec``.

        Raises ``ValueError`` if there are more than ``max_policies`` policies, or if ``spec.initial`` is
        None.
        """
        if spec.initial is None:
            raise ValueError("spec.initial = None: must be the public law of the first state")
        return _enumerated(spec.layout, tuple(spec.initial.tolist()), int(self.max_policies or MAX_POLICIES))

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the schedule. Each stage has H crude batches and one fine batch."""
        self.enumeration(spec)
        sizes, horizon, rows = self.sizes(spec), spec.horizon, spec.layout.rows
        batches = [
            size * rows * (1 if h < horizon else horizon) for size in sizes for h in range(horizon + 1)
        ]
        crude = [
            CountQuery(spec.layout, visits=not self.derive_visits, known_rewards=True, step=h)
            for h in range(horizon)
        ]
        queries = (*crude, self.query(spec)) * len(sizes)
        times = np.concatenate([[0], np.cumsum(batches)]).astype(np.int64)
        return Schedule(spec.users, times=times, queries=queries, plans="deterministic")

    # -------------------------------------------------------------- planning from a release
    def _memory(self, spec: ProblemSpec) -> EliminationMemory:
        shape = (spec.horizon, spec.layout.rows, spec.states)
        active = np.ones(self.enumeration(spec).count, bool)
        return EliminationMemory(active, np.zeros(shape), np.ones(shape, bool))

    def _read(self, state: StageState, release: Release) -> tuple[EliminationMemory, Plans]:
        spec, memory = state.spec, state.memory
        sizes, horizon = self.sizes(spec), spec.horizon
        stage, batch = divmod(release.number, horizon + 1)  # indices of the next batch
        if release.number > 0:
            # The noise distribution of a batch already includes its share of the failure probability.
            model = StageModel.of(release, spec, float(self.noise_failure or 0.05), self.ignores_noise)
            if batch > 0:
                memory = self._crude(spec, memory, model, batch - 1)
            else:
                memory = self._eliminate(state, memory, model, sizes[stage - 1], len(sizes), release.number)
        if stage == len(sizes):
            left = int(spec.users or 0) - release.users
            return memory, ((self.enumeration(spec).policy(memory.best), left),)
        layers = (batch,) if batch < horizon else tuple(range(horizon))
        return memory, self._explore(state, memory, layers, sizes[stage], release.number)

    def _threshold(self, spec: ProblemSpec, width: float) -> float:
        """Return the threshold C_1 E H^2 iota. E is max(2, ``width``), or 1 if ``width`` is 0 (no noise)."""
        floored = max(2.0, width) if width > 0.0 else 1.0
        return float(self.C_1 or 0.0) * floored * spec.horizon**2 * self._iota(spec)

    def _iota(self, spec: ProblemSpec) -> float:
        return math.log(
            2.0 * spec.horizon * spec.actions * int(spec.users or 1) / float(self.failure or 0.05)
        )

    def _crude(
        self, spec: ProblemSpec, memory: EliminationMemory, model: StageModel, h: int
    ) -> EliminationMemory:
        """Return the memory in which the absorbing model includes step h."""
        crude, rare = memory.crude.copy(), memory.rare.copy()
        rare[h] = model.counts[0] < self._threshold(spec, model.width)
        crude[h] = absorbing(model.transitions[0], rare[h])
        width = model.width if h == 0 else max(memory.width, model.width)
        return replace(memory, crude=crude, rare=rare, width=width)

    def _eliminate(
        self,
        state: StageState,
        memory: EliminationMemory,
        model: StageModel,
        size: int,
        stages: int,
        number: int,
    ) -> EliminationMemory:
        """Return the memory with the next set phi_{b+1} and its best policy."""
        spec, everyone = state.spec, self.enumeration(state.spec)
        rewards = model.rewards
        if self.known_rewards and spec.known_rewards is not None:
            rewards = spec.layout.to_rows(spec.known_rewards)
        if self.elimination == "theory":
            values = everyone.values(absorbing(model.transitions, memory.rare), rewards)
            best = values[memory.active].max()
            radius = 2.0 * self._radius(spec, max(memory.width, model.width), size)
            active = memory.active & ((values > best - radius) | (values == best))
        else:
            transitions = model.completed()
            failure = float(self.failure or 0.05) / stages
            w = value_widths(model, spec, failure, bool(self.known_rewards), float(self.width_scale or 0.0))
            above, below = (everyone.values(transitions, rewards + sign * w) for sign in (1.0, -1.0))
            active = memory.active & (above >= below[memory.active].max())
            values = 0.5 * (above + below)  # the values for r~, because V is linear in the rewards
        equals = np.flatnonzero(active & (values == values[active].max()))
        chosen = 0
        if self.tie_break == "random":
            coin = draw_uniforms(open_at(state.ties, ROLE_TIES, number, _EXPLOIT), 1)[0]
            chosen = min(equals.size - 1, int(coin * equals.size))
        return replace(memory, active=active, best=int(equals[chosen]))

    def _radius(self, spec: ProblemSpec, width: float, size: int) -> float:
        """Return xi_b, half of the elimination margin of the theory."""
        s, a, h = spec.states, spec.actions, spec.horizon
        length = spec.layout.rows * h * size
        floored = max(2.0, width) if width > 0.0 else 1.0
        rate = self._iota(spec) / length
        return float(self.C or 0.0) * (
            math.sqrt(h**5 * s**2 * a * rate) + s**3 * a**2 * h**5 * floored * rate
        )

    def _explore(
        self, state: StageState, memory: EliminationMemory, layers: tuple[int, ...], size: int, number: int
    ) -> Plans:
        """Return the plans of one batch.

        For each pair at each of the steps ``layers``, ``size`` users follow the remaining policy that visits
        the pair most often in the crude model.
        """
        spec, everyone = state.spec, self.enumeration(state.spec)
        rows = spec.layout.rows
        users: dict[int, int] = {}
        anybody = np.flatnonzero(memory.active)
        for h in layers:
            coins = None
            if self.tie_break == "random":
                coins = draw_uniforms(open_at(state.ties, ROLE_TIES, number, h), rows)
            found, _ = everyone.visitors(memory.crude, h, memory.active, coins)
            for r in range(rows):
                policy = int(found[r])
                if policy < 0:  # no remaining policy takes the action of this pair, so all policies are equal
                    policy = int(anybody[0 if coins is None else int(coins[r] * anybody.size)])
                users[policy] = users.get(policy, 0) + size
        return tuple((everyone.policy(policy), many) for policy, many in users.items())

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.elimination == "data":
            yield "elimination = 'data' keeps an optimal policy, but the theorem is about xi_b"
        else:
            yield f"C = {self.C:g}: the theorem holds for a constant that the paper does not name"
        if self.C_1 is not None and self.C_1 < 6.0:
            yield f"C_1 = {self.C_1:g} is below 6"
        if not self.truncate:
            yield "truncate = False lets the last users exploit"


@dataclass(frozen=True, kw_only=True)
class APEVE(SDPPE):
    """APEVE (Qiao, Yin, Min and Wang 2022): SDP-PE without noise and with known rewards; not private.

    The learner treats the sums as exact and ignores noise. Crude and fine exploration of stage b each have
    about K^(1 - 2^-b) users, so there are about log log K stages.

    The options and presets are those of :class:`SDPPE`.
    """

    ignores_noise: ClassVar[bool] = True
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            **SDPPE.PRESETS["default"], "stages": "squaring", "known_rewards": True, "center_rewards": False,
        },
        "theory": SDPPE.PRESETS["theory"],
        "paper": SDPPE.PRESETS["paper"],
    }  # fmt: skip
