"""LinUCB on noisy sums of contexts, and LinTS: baselines for contextual bandits.

Let G be the noisy Gram matrix of n users, u their noisy response, and s the standard deviation of the noise
in G. There are p features in each of B blocks, D = B p, K users and a failure probability alpha.

    V = G + c I,    theta = V^-1 u,

    action = argmax phi theta + bonus_scale beta ||phi||_{V^-1},                                           (1)

    beta = 1/2 sqrt(2 log(2 / alpha) + log det V - D log rho_min) + sqrt(rho_max) + gamma,                 (2)

    Upsilon = sqrt(2) s (4 sqrt(p) + 2 log(2 K / alpha)),

    gamma = s (sqrt(D) + sqrt(2 log(2 K / alpha))) / sqrt(rho_min),

    rho_min = max(lam, c - Upsilon),    rho_max = c + Upsilon.

* ``ridge="bound"`` is the shifted regulariser of Shariff and Sheffet: c = lam + 2 Upsilon, where Upsilon
  bounds the norm of the noise. With a number, c = lam + ridge 2 sqrt(p) s.
* (2) is the width of Shariff and Sheffet for ||theta|| <= 1 and rewards in an interval of length 1.
* Without noise, c = lam and gamma = 0. (1) is then the algorithm of Abbasi-Yadkori et al.

Until the first release, users act at random. Unlike in the papers, responses are centred (phi (r - 1/2)).

*Privacy.* Neighbours differ in one user's whole record, which is replaced. The sensitivity is that of
:class:`~discreet.mechanisms.linear.context_query.ContextQuery`. The learner only post-processes the noisy
sums. A user's data are in one batch, in one message, or in at most ceil(log2 K) nodes of a tree. The
guarantee is joint differential privacy if only the user sees the user's own action.

Sources: Abbasi-Yadkori et al. (2011) without privacy; Shariff and Sheffet (2018, arXiv 1810.00068) for the
regulariser and for ``Central(release="tree", leaf="user")``; Zheng et al. (2020, arXiv 2006.00701) for local
privacy; Chowdhury and Zhou (2022) for batches of fixed size; Agrawal and Goyal (2013) for LinTS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.noise_distributions.linear_noise import GoeLaw, VectorLaw
from discreet.core import checks
from discreet.core.releases import Floats
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRAM, RESPONSE
from discreet.learners.online.linear_bandit import context_features
from discreet.mechanisms.interfaces import Ask, Plan, ProblemSpec, Release, Schedule
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.utils.config import Knobs


@dataclass(frozen=True, kw_only=True)
class LinUCB(Knobs):
    """LinUCB with a regulariser for noisy sums. The module docstring has formulas and sources.

    Parameters
    ----------
    bonus_scale : float
        Factor of the width (2), at least 0; 1 in the papers.
    ridge : "bound" or float
        Regulariser for the noise. "bound": the regulariser of Shariff and Sheffet. A number: this multiple of
        2 sqrt(p) s, the spectral edge of the noise.
    lam : float
        Regulariser without noise, above 0.
    failure : float
        Failure probability alpha of the width, in (0, 1).
    growth : float
        Factor by which the number of users grows from one release to the next, at least 1. With 1, there is a
        release after every user.
    preset : "default" or "paper"
        ``paper``: the published width and regulariser, and a release after every user.

    Raises
    ------
    ValueError
        If an option is out of its range. The methods also raise it if ``spec.features`` is not a FeatureMap
        or the number of users is unknown.
    """

    FEATURES: ClassVar[type[FeatureMap]] = FeatureMap
    """Required type of ``spec.features``."""
    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {
        "bonus_scale": (0.001, 1.0), "ridge": (0.05, 20.0),
    }  # fmt: skip
    """Ranges of the options in tuning. The ranges include the published width and regulariser."""
    READS: ClassVar[Literal["sums", "measurements"]] = "sums"
    """Kind of sums in a release: over all users, or over separate batches."""

    bonus_scale: float | None = None
    ridge: float | Literal["bound"] | None = None
    lam: float | None = None
    failure: float | None = None
    growth: float | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"bonus_scale": 0.02, "ridge": 1.0, "lam": 1.0, "failure": 0.05, "growth": 1.1},
        "paper": {"bonus_scale": 1.0, "ridge": "bound", "growth": 1.0},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "bonus_scale", checks.real("bonus_scale", self.bonus_scale, 0.0))
        if self.ridge != "bound":
            put(self, "ridge", checks.real("ridge", self.ridge, 0.0))
        put(self, "lam", checks.positive("lam", self.lam))
        put(self, "failure", checks.real("failure", self.failure, 0.0, 1.0, open_low=True, open_high=True))
        put(self, "growth", checks.real("growth", self.growth, 1.0))

    def query(self, spec: ProblemSpec) -> ContextQuery:
        """Return the query: Gram matrices and responses of contexts."""
        return ContextQuery(features=context_features(spec))

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the public times of release.

        Raises ``ValueError`` if the number of users is unknown.
        """
        users, times = checks.integer("spec.users", spec.users, 1), [0]
        while times[-1] < users:
            times.append(self._after(times[-1], users))
        return Schedule(users, np.array(times[:-1], np.int64), reads=self.READS, plans="any")

    def _after(self, seen: int, users: int) -> int:
        """Return the number of users at the next release, after a release at ``seen`` users."""
        return max(seen + 1, math.ceil(float(self.growth or 1.0) * seen))

    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> ProblemSpec:
        """Return the state, which is ``spec``. ``ties`` is not used."""
        context_features(spec)
        return spec

    def plan(self, state: ProblemSpec, release: Release, ask: Ask | None = None) -> tuple[Plan, ProblemSpec]:
        """Return the next plan and the state, which does not change.

        The field ``policy`` of a plan is theta. The context has the entry "random" (1,), which is 1 before
        the first release. Later, the context also has the entry "bonus" (blocks, p, p), or "root" for LinTS.
        The bonus of an action is sqrt(phi bonus phi). ``ask`` is not used. Raises ``ValueError`` if no user
        is left.
        """
        assert state.users is not None
        size = min(self._after(release.users, state.users), state.users) - release.users
        if size < 1:
            raise ValueError(f"release.users = {release.users}: no user is left for another plan")
        if not release.users:
            features = context_features(state)
            return Plan(np.zeros((features.blocks, features.dimension)), size, {"random": np.ones(1)}), state
        theta, inverse, width = self.fit(release, state.users)
        return Plan(theta, size, {"random": np.zeros(1), **self.explored(inverse, width)}), state

    def fit(self, release: Release, users: int) -> tuple[Floats, Floats, float]:
        """Return theta (blocks, p), V^-1 (blocks, p, p) and the width (2) without the factor ``bonus_scale``.

        release : noisy sums of at least one user. users : number K of users of the whole run.
        """
        gram, response = release.estimates[GRAM], release.estimates[RESPONSE]
        assert isinstance(gram.law, GoeLaw)
        assert isinstance(response.law, VectorLaw)
        (blocks, p), std = response.value.shape, gram.law.std_bound()
        lam, alpha = float(self.lam or 1.0), float(self.failure or 0.05)
        log = math.log(2 * users / alpha)
        bound = math.sqrt(2.0) * std * (4.0 * math.sqrt(p) + 2.0 * log)
        edge = 2.0 * math.sqrt(p) * std
        shift = lam + (2.0 * bound if self.ridge == "bound" else float(self.ridge or 0.0) * edge)
        values, vectors = np.linalg.eigh(np.asarray(gram.value) + shift * np.eye(p))
        values = np.maximum(values, lam)
        inverse: Floats = (vectors / values[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        theta: Floats = np.einsum("bij,bj->bi", inverse, response.value)
        low = max(lam, shift - bound)
        radius = 2.0 * math.log(2.0 / alpha) + float(np.log(values / low).sum())
        noise = response.law.std_bound() * (math.sqrt(blocks * p) + math.sqrt(2.0 * log)) / math.sqrt(low)
        return theta, inverse, 0.5 * math.sqrt(max(0.0, radius)) + math.sqrt(shift + bound) + noise

    def explored(self, inverse: Floats, width: float) -> dict[str, Floats]:
        """Return the exploration part of a plan's context.

        inverse : V^-1 (blocks, p, p). width : the width (2).
        """
        return {"bonus": (float(self.bonus_scale or 0.0) * width) ** 2 * inverse}

    def summary(self) -> str:
        """Return a string that states whether a regret theorem holds for the options."""
        printed = self.bonus_scale == 1.0 and self.ridge == "bound" and self.growth == 1.0
        return f"{type(self).__name__}: " + ("as printed" if printed else "no regret theorem holds")


@dataclass(frozen=True, kw_only=True)
class BatchedLinUCB(LinUCB):
    """LinUCB with batches of fixed size and independent noise per batch (Chowdhury and Zhou 2022).

    Parameters
    ----------
    batch : int
        Number of users in a batch. None: ceil(K^(3/5)), which gives the paper's rate of regret.

    For further options and errors, see :class:`LinUCB`. ``growth`` must be 1.
    """

    batch: int | None = None

    REFUSES: ClassVar[frozenset[str]] = frozenset({"growth"})
    READS: ClassVar[Literal["sums", "measurements"]] = "measurements"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {**LinUCB.PRESETS["default"], "growth": 1.0}, "paper": LinUCB.PRESETS["paper"],
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.growth != 1.0:
            raise ValueError(f"growth = {self.growth}: must be 1, batches have the size batch")
        if self.batch is not None:
            object.__setattr__(self, "batch", checks.integer("batch", self.batch, 1))

    def _after(self, seen: int, users: int) -> int:
        return seen + (self.batch or math.ceil(users**0.6))


@dataclass(frozen=True, kw_only=True)
class LinTS(LinUCB):
    """LinTS: each user takes the best action for coefficients drawn from N(theta, (scale / 2)^2 V^-1).

    Parameters
    ----------
    thompson_scale : float
        Scale of the draws in standard deviations of a reward (1/2), at least 0.

    For further options and errors, see :class:`LinUCB`. ``bonus_scale`` must be 0.
    """

    thompson_scale: float | None = None

    REFUSES: ClassVar[frozenset[str]] = frozenset({"bonus_scale"})
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {**LinUCB.PRESETS["default"], "bonus_scale": 0.0, "thompson_scale": 1.0}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bonus_scale:
            raise ValueError(f"bonus_scale = {self.bonus_scale}: must be 0, LinTS has no bonus")
        object.__setattr__(self, "thompson_scale", checks.real("thompson_scale", self.thompson_scale, 0.0))

    def explored(self, inverse: Floats, width: float) -> dict[str, Floats]:
        """Return the root of the covariance of users' coefficients.

        inverse : V^-1 (blocks, p, p). width : not used.
        """
        root = np.asarray(np.linalg.cholesky(inverse), np.float64)
        return {"root": 0.5 * float(self.thompson_scale or 0.0) * root}
