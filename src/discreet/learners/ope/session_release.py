"""Release of counts from a session, which can be read step by step like a release of offline data.

A :class:`~discreet.core.releases.Release` holds sums over users for all steps. Online sessions and
:func:`~discreet.experiments.offline_runs.make_release` produce such releases. In an online session, the
behaviour policy is the mixture of the policies that users followed. These policies depend on earlier
releases, so the counts of different users are not independent. Given the visited pairs, next states and
rewards are independent. The sampling variances of an evaluation use only this independence.
tests/learners/ope/test_session_release.py measures the coverage of intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Release
from discreet.core.short_repr import brief
from discreet.learners.estimation.tabular_model import release_rows
from discreet.mechanisms.interfaces import NoiseDistribution, StepSums, StepwiseRelease

_READ = (VISITS, TRANSITIONS, CENTERED_REWARDS)


@dataclass(frozen=True, eq=False)
class SessionRelease:
    """Release of a session with the interface :class:`~discreet.mechanisms.interfaces.StepwiseRelease`.

    Parameters
    ----------
    release : Release
        Release with transition counts of every step.
    layout : Layout
        Layout of the environment. A session's release does not contain it.
    episodes : int
        Largest number of episodes per user.

    Raises
    ------
    ValueError
        If the release covers no user, its counts are pooled over steps or weighted, its rewards are not
        centred, or a shape does not fit the layout.
    """

    __repr__ = brief

    release: Release
    layout: Layout
    episodes: int = 1

    def __post_init__(self) -> None:
        checks.exactly("release", self.release, Release)
        checks.exactly("layout", self.layout, Layout)
        checks.integer("episodes", self.episodes, 1)
        checks.integer("release.users", self.release.users, 1)
        held = self.release.estimates
        if REWARDS in held and CENTERED_REWARDS not in held:
            raise ValueError(
                f"release holds {REWARDS}: must hold {CENTERED_REWARDS} (center_rewards = True in the "
                "query), because their noise must not be correlated with that of visits"
            )
        visits, transitions, sums = release_rows(self.release, self.layout)
        if len(transitions) != self.layout.horizon:
            raise ValueError(
                f"release holds {len(transitions)} table for H = {self.layout.horizon} steps: must hold one "
                "a step (stationary = False in the query)"
            )
        tables = {VISITS: visits, TRANSITIONS: transitions, CENTERED_REWARDS: sums - 0.5 * visits}
        for table in tables.values():
            table.flags.writeable = False
        object.__setattr__(self, "_tables", {name: tables[name] for name in self.laws})

    @property
    def users(self) -> int:
        """Return the number of users in the sums."""
        return self.release.users

    @property
    def slots(self) -> int:
        """Return the number of steps."""
        return self.layout.horizon

    @property
    def laws(self) -> Mapping[str, NoiseDistribution]:
        """Return the noise distribution of each family."""
        held = self.release.estimates
        return {name: held[name].law for name in _READ if name in held}

    @property
    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee of the session."""
        return self.release.guarantee

    def step(self, h: int) -> StepSums:
        """Return the sums of step ``h``. Raises ``ValueError`` if h is not in [0, H)."""
        h = checks.integer("h", h, 0, self.layout.horizon - 1)
        tables = {name: table[h] for name, table in self._tables.items()}  # type: ignore[attr-defined]
        return StepSums(h, tables[TRANSITIONS], tables.get(VISITS), tables.get(CENTERED_REWARDS))


def by_step(release: StepwiseRelease | Release, layout: Layout) -> StepwiseRelease:
    """Return the release in a form that can be read step by step.

    release : any release of counts. layout : layout of the environment, which a session's release does not
    contain.
    """
    return SessionRelease(release, layout) if isinstance(release, Release) else release
