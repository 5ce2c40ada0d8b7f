"""How long a run will take: recorded profiles, an injected clock, and where runs are played."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.experiments import simulate, timing
from discreet.experiments.timing import Moments, moments

EACH = np.arange(1001)  # a release before each of 1 000 users
GROWING = np.append(np.unique(np.geomspace(1, 90_000, 100).astype(int)) - 1, 100_000)


def cost(users: int, times: Any, release: float, user: float, start: float) -> float:
    """Seconds that a made-up run takes for its first users."""
    return start + release * int(np.searchsorted(times[:-1], users)) + user * users


@pytest.mark.parametrize(
    ("times", "batched", "release", "user", "reports"),
    [
        (EACH, False, 5e-3, 0.0, 120),  # lsvi-ucb --set preset=paper: a plan for each user
        (EACH, False, 5e-3, 2e-3, 80),
        (GROWING, True, 0.05, 0.0, 12),  # a default learner: plans on a schedule, users by batches
        (GROWING, False, 0.02, 1e-3, 400),
        (GROWING, False, 0.02, 0.0, 60),
    ],
)
def test_recorded_profiles(times: Any, batched: bool, release: float, user: float, reports: int) -> None:
    """The estimate from the first moments is exact to 10 % where costs are what is assumed."""
    users = times[1 : reports + 1] if batched else np.arange(1, reports + 1)
    seen = Moments(tuple(cost(u, times, release, user, 1.5) for u in users.tolist()), tuple(users.tolist()))
    truth = cost(int(times[-1]), times, release, user, 1.5)
    assert seen.estimate(times, batched) == pytest.approx(truth, rel=0.1)


def test_moments_that_disagree_give_no_estimate() -> None:
    users = tuple(range(1, 101))
    uneven = tuple(np.cumsum(np.where(np.arange(100) % 10 == 0, 1e-2, 1e-3)).tolist())
    assert Moments(uneven, users).estimate(EACH, False) == pytest.approx(1.9, rel=0.1)  # plans now and then
    first = tuple(np.concatenate([np.linspace(0, 1, 20), 1 + np.linspace(0.01, 1, 80)]).tolist())
    assert Moments(first, users).estimate(EACH, False) is None
    assert Moments((0.1, 0.2), (1, 2)).estimate(EACH, False) is None


class Clock:
    """A clock that only the run moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made_up_run(clock: Clock, loading: Iterator[float], user: float, users: int) -> Callable[..., int]:
    """A run whose first beginning loads compiled code, before and after its first user."""

    def run(watch: Callable[[int, int], None]) -> int:
        load = next(loading)
        clock.now += load
        for done in range(1, users + 1):
            clock.now += user + (load if done == 3 else 0.0)
            watch(0, done)
        return users

    return run


def test_loading_is_no_part_of_the_estimate() -> None:
    """Fifty seconds of compilation, twice, in a run of five seconds: the estimate is five seconds."""
    clock = Clock()
    seen = moments(made_up_run(clock, iter([50.0, 0.0]), 5e-3, 1000), clock)
    assert seen is not None
    assert seen.estimate(EACH, False) == pytest.approx(5.0, rel=1e-6)
    assert moments(made_up_run(clock, iter([50.0, 0.0]), 5e-3, 40), clock) is None  # over at once


def test_no_warning_where_a_run_is_not_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors in tests: a run that is expected to take 19 seconds gets none, one of 40 does."""
    setup = dr.experiments.Setup(dr.make("riverswim"), dr.DPUCBVI(replan_every=1), dr.NoPrivacy(), 2_000)
    for seconds, words in ((19.0, None), (40.0, "about 40 seconds"), (600.0, "about 10 minutes")):
        users = np.arange(1, 201)
        seen = Moments(tuple((users * seconds / 2_000).tolist()), tuple(users.tolist()))
        monkeypatch.setattr(timing, "moments", lambda run, seen=seen: seen)
        if words is None:
            simulate._warn_of_time(setup, 0, 1)
            continue
        with pytest.warns(UserWarning, match=f"this is slow: {words}, since the learner plans 2,000 times"):
            simulate._warn_of_time(setup, 0, 1)


# ------------------------------------------------------------------------------ where runs are played
@pytest.mark.parametrize(("second", "here"), [(0.0, 3), (1.1, 1), (30.0, 0)])
def test_processes_start_once_runs_here_have_taken_as_long(
    second: float, here: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quick runs stay in this process; longer ones move. The results are the same bits."""
    setup = dr.experiments.Setup(
        dr.make("riverswim", horizon=4), dr.DPUCBVI(), dr.NoPrivacy(), 40, stepwise=True
    )
    ticks = itertools.count()
    users = [0]

    def clock() -> float:
        next(ticks)
        return users[0] * second / setup.episodes

    told: list[tuple[int, int]] = []

    def progress(run: int, done: int) -> None:
        told.append((run, done))

    own = simulate.Setup.run

    def counted(self: Any, seed: int, run: int, report: Any = None, stop: Any = None) -> Any:
        def step(run: int, done: int) -> None:
            users[0] += 1
            report(run, done)

        return own(self, seed, run, step, stop)

    sent: list[int] = []

    def elsewhere(setup: Any, seed: int, runs: Any, *_: Any) -> Iterator[Any]:
        sent.extend(runs)
        yield from (own(setup, seed, run) for run in runs)

    monkeypatch.setattr(simulate, "_clock", clock)
    monkeypatch.setattr(simulate.Setup, "run", counted)
    monkeypatch.setattr(simulate, "_in_processes", elsewhere)
    monkeypatch.setattr(simulate, "processors", lambda: 2)
    found = {one.run: one for one in simulate.iterate_runs(setup, 5, range(3), None, progress)}
    assert sorted(found) == [0, 1, 2]
    assert 3 - len(sent) == here
    assert all(found[run].agrees(own(setup, 5, run)) for run in range(3))
    sent.clear()
    list(simulate.iterate_runs(setup, 5, range(3), 2))  # workers were asked for
    assert sent == [0, 1, 2]
