"""Empirical privacy at H = 1, end to end through real sessions (spec 10.28; privacy-mechanisms, section 7).

User k has two response trees that differ in every touched cell; the others answer as a fixed function of
the action that is asked for; policies (and, in an open-ended session, the times of release) are functions of
what was released. The transcript is everything released, or the reports.

White box: the exact log-likelihood ratio of the transcript under the two worlds, from the known
law of the noise; that the noise has this law is checked by E_1[exp(-loss)] = 1. Black box: the
frequencies of one event in the two worlds, with Clopper-Pearson limits. Each has to find noise of
half the scale. False alarms are stated beside each test; all are below 1e-6.
"""

import math

import numpy as np
import pytest
from scipy import stats

from discreet.audit.black_box import bounds_of
from discreet.core.count_kernels import LAPLACE, tree_parent
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.seeded_rng import SeededRng

LAYOUT = Layout(2, 2, 1)
QUERY = CountQuery(LAYOUT)
SIZES = np.diff(QUERY.offsets)
USERS = 16
SE = 5.2  # two-sided 2e-7
OTHERS = np.random.default_rng(8)
STARTS = OTHERS.integers(2, size=USERS)
REWARDS = OTHERS.random((USERS, 2, 2))
AFTERS = OTHERS.integers(2, size=(USERS, 2, 2))

pytestmark = pytest.mark.statistics


def answer(user, k, world, policy, soft=False):
    """The trajectory of a user (counted from 1) under a policy, by her tree; user k's depends on the world.

    ``soft``: her reward depends on the action asked for, so that the shift depends on the past.
    """
    if user == k:
        s, reward = world, 1.0
        if soft:
            reward = 0.3 + 0.7 * float(policy[0, s] == world)
        after = world
    else:
        s = int(STARTS[user - 1])
        a = int(policy[0, s])
        reward, after = float(REWARDS[user - 1, s, a]), int(AFTERS[user - 1, s, a])
    return Trajectory(np.array([s, after]), policy[0, s : s + 1].copy(), np.array([reward]))


def cells_of(trajectory):
    return QUERY.to_cells(QUERY.contribution(trajectory))


def react(values):
    """A policy from noisy cells: which action looks better by visits and by rewards."""
    visits, rewards = values[:4].reshape(2, 2), values[-4:].reshape(2, 2)
    return (visits + rewards).argmin(axis=1)[None].astype(np.int64)


def flat(release):
    return np.concatenate([e.value.ravel() for e in release.estimates.values()])


def halve(session):
    """What the power checks break: the session draws noise of half the scale that it claims."""
    draw = session.channel.node_noise
    session.channel.node_noise = lambda end, factor, *how: draw(end, factor / 2, *how)
    return session


# ------------------------------------------------------------------- central, release after each user


def central_transcript(session, k, world, soft):
    """Releases (USERS, cells) and the policy of each user."""
    releases, policies = np.zeros((USERS, QUERY.cells)), []
    for user in range(1, USERS + 1):
        releases[user - 1] = flat(session.release())
        policy = react(releases[user - 1])
        policies.append(policy)
        encoder = session.begin(Plan(policy))
        session.submit(encoder(answer(user, k, world, policy, soft), session.open_plan, None))
    return releases, policies


def noises_of(releases, policies, k, soft, mechanism):
    """The independent noises that the transcript implies in world 0 and in world 1: (2, USERS - 1, cells).

    Of a tree: release n less the release whose last node it has lost. Otherwise release i holds
    (z_i + (1 - d) (z_1 + ... + z_{i-1})) / a with d the decay (0: batches) and a^2 = 1 - d^2.
    """
    out = []
    decay = mechanism.decay
    for world in (0, 1):
        people = [cells_of(answer(u, k, world, policies[u - 1], soft)) for u in range(1, USERS)]
        noise = releases - np.vstack([np.zeros(QUERY.cells), np.cumsum(people, axis=0)])
        if mechanism.stream == "walk":
            out.append([noise[n] - noise[tree_parent(n, False)] for n in range(1, USERS)])
            continue
        fresh, total = [], np.zeros(QUERY.cells)
        for n in range(1, USERS):
            fresh.append(math.sqrt(1 - decay**2) * noise[n] - (1 - decay) * total)
            total = total + fresh[-1]
        out.append(fresh)
    return np.array(out)


def central_losses(privatizer, k, world, runs, claimed, broken=False, soft=False):
    """ln P_1 / P_0 of each run's transcript, and the squared shift in units of the noise."""
    losses, shifts = np.empty(runs), np.empty(runs)
    for run in range(runs):
        session = privatizer.start(QUERY, Schedule(USERS), Seeded(31 + world, run))
        transcript = central_transcript(halve(session) if broken else session, k, world, soft)
        zero, one = noises_of(*transcript, k, soft, session.mechanism) / np.repeat(claimed, SIZES)
        if session.mechanism.family == LAPLACE:
            losses[run] = (np.abs(zero) - np.abs(one)).sum()
        else:
            losses[run] = 0.5 * (zero**2 - one**2).sum()
        shifts[run] = ((zero - one) ** 2).sum()
    return losses, shifts


def scales_of(privatizer, schedule):
    with privatizer.start(QUERY, schedule, Seeded(0)) as session:
        return session.mechanism.scales


@pytest.mark.parametrize(("release", "k"), [("tree", 1), ("tree", 6), ("batches", 6)])
def test_central_laplace_loss_of_the_transcript_never_exceeds_epsilon(release, k):
    """False alarm: none for the loss, 4e-7 for the two means of exp(-loss), exp(loss), both bounded."""
    epsilon, runs = 1.0, 250
    privatizer = Central(epsilon=epsilon, release=release)
    scales = scales_of(privatizer, Schedule(USERS))
    for world, sign in ((1, -1.0), (0, 1.0)):
        losses, _ = central_losses(privatizer, k, world, runs, scales)
        assert np.abs(losses).max() <= epsilon * (1 + 1e-9)
        ratio = np.exp(sign * losses)
        assert abs(ratio.mean() - 1) < SE * ratio.std() / math.sqrt(runs)
        assert losses.std() > 0.1  # the transcript does depend on user k
    if release == "batches" or k == 1:  # she bears the full loss: at half the noise it is seen above epsilon
        losses, _ = central_losses(privatizer, k, 1, 150, scales / 2, broken=True)
        assert losses.max() > 1.1 * epsilon


@pytest.mark.parametrize(
    ("options", "k"),
    [
        ({"release": "tree"}, 1),
        ({"release": "tree"}, 6),
        ({"release": "batches"}, 6),
        ({"release": "decaying", "decay": 0.7}, 6),
    ],
    ids=["tree-first", "tree", "batches", "decaying"],
)
def test_central_gaussian_loss_padded_to_the_sensitivity_is_exactly_gaussian(options, k):
    """mu-GDP: loss ~ N(mu^2/2, mu^2) once the shift is padded to its bound. Two KS tests at 1e-7 each."""
    mu, runs, soft = 1.0, 500, k > 1
    privatizer = Central(mu=mu, **options)
    scales = scales_of(privatizer, Schedule(USERS))
    pad = np.random.default_rng(77)

    def padded(world, broken=False):
        losses, shifts = central_losses(privatizer, k, world, runs, scales, broken, soft)
        assert shifts.max() <= mu**2 * (1 + 1e-9)
        rest = np.maximum(0.0, mu**2 - shifts)
        sign = 1 if world else -1
        return losses + sign * rest / 2 + np.sqrt(rest) * pad.standard_normal(runs), shifts

    for world, centre in ((1, mu**2 / 2), (0, -(mu**2) / 2)):
        losses, shifts = padded(world)
        assert stats.kstest(losses, stats.norm(centre, mu).cdf).pvalue > 1e-7
        if soft:
            assert np.ptp(shifts) > 0.01  # the shift itself depends on what was released before
        else:
            assert shifts == pytest.approx(mu**2)  # the first user attains the bound: nothing is padded
    if not soft:
        assert stats.kstest(padded(1, broken=True)[0], stats.norm(mu**2 / 2, mu).cdf).pvalue < 1e-9


# --------------------------------------------------------- central, open-ended, times of release adaptive


def public_clock(values, came, raw):
    """A release is due after 1 to 3 users, as the last release says."""
    return came >= 1 + int(abs(values[0])) % 3


def raw_clock(values, came, raw):
    """A release is due when somebody stood in state 1: a clock that ticks on private counts."""
    return raw[2:4].any() or came >= 3


def clocked_loss(privatizer, k, clock, run):
    """Exact loss of the transcript with its times, world 1 against 0; infinite if world 0 cannot have it."""
    session = privatizer.start(QUERY, Schedule(None), Seeded(51, run))
    nodes, draw = {}, session.channel.node_noise

    def recorded(end, factor, *how):
        nodes[end] = (draw(end, factor, *how), factor)
        return nodes[end][0]

    session.channel.node_noise = recorded
    user, came, ticked, one, zero = 0, 0, True, [], []
    while user < USERS:
        if ticked:
            values = flat(session.release())
            policy, came, raws = react(values), 0, np.zeros((2, QUERY.cells))
        user, came = user + 1, came + 1
        life = answer(user, k, 1, policy)
        encoder = session.begin(Plan(policy))
        session.submit(encoder(life, session.open_plan, None))
        for world, past in ((0, zero), (1, one)):
            past.append(cells_of(answer(user, k, world, policy)))
            raws[world] += past[-1]
        ticked = clock(values, came, raws[1])
        if ticked != clock(values, came, raws[0]):
            return math.inf
    change = np.array(one) - np.array(zero)
    loss, scales = 0.0, np.repeat(session.mechanism.scales, SIZES)
    for end, (noise, factor) in nodes.items():
        shift = change[tree_parent(end, True) : end].sum(axis=0)
        loss += float(((np.abs(noise + shift) - np.abs(noise)) / (factor * scales)).sum())
    return loss


@pytest.mark.parametrize("k", [1, 2, 5])
def test_release_times_may_depend_on_releases_but_not_on_raw_counts(k):
    """Loss of every node's noisy sum and of the times. False alarm: 2e-7, of the mean of exp(-loss)."""
    epsilon, runs = 1.0, 300
    privatizer = Central(epsilon=epsilon, release="tree")
    losses = np.array([clocked_loss(privatizer, k, public_clock, run) for run in range(runs)])
    assert np.abs(losses).max() <= epsilon * (1 + 1e-9)
    ratio = np.exp(-losses)
    assert abs(ratio.mean() - 1) < SE * ratio.std() / math.sqrt(runs)
    leaky = np.array([clocked_loss(privatizer, k, raw_clock, run) for run in range(40)])
    assert np.isinf(leaky).mean() > 0.3


# ------------------------------------------------------------------------------------------- local


class HalfCoins(SeededRng):
    """A device that adds half the noise that it promised."""

    def laplace(self, scale, size, grid=None):
        return super().laplace(scale / 2, size, grid)


def local_losses(epsilon, k, runs, factor, coins):
    """Exact loss of all messages of an adaptive session: policies depend on the noisy sums so far."""
    privatizer, losses = Local(epsilon=epsilon, noise="laplace"), np.empty(runs)
    for run in range(runs):
        source = Seeded(61, run)
        session, loss = privatizer.start(QUERY, Schedule(USERS), source), 0.0
        scales = factor * np.repeat(session.mechanism.scales, SIZES)
        for user in range(1, 7):
            policy = react(flat(session.release()))
            encoder = session.begin(Plan(policy))
            life = answer(user, k, 1, policy)
            report = encoder(life, session.open_plan, coins(source.keys.noise, user))
            other = cells_of(answer(user, k, 0, policy))
            message = report.message
            loss += float(((np.abs(message - other) - np.abs(message - cells_of(life))) / scales).sum())
            session.submit(report)
        losses[run] = loss
    return losses


def test_local_loss_of_all_messages_never_exceeds_epsilon():
    """False alarm: none for the loss, 4e-7 for the two means of exp(-loss)."""
    for epsilon, k in ((1.0, 1), (3.0, 4)):
        losses = local_losses(epsilon, k, 700, 1.0, SeededRng)
        assert np.abs(losses).max() <= epsilon * (1 + 1e-9)
        ratio = np.exp(-losses)
        assert abs(ratio.mean() - 1) < SE * ratio.std() / math.sqrt(losses.size)
        assert (losses > 0.9 * epsilon).any()
        assert local_losses(epsilon, k, 300, 0.5, HalfCoins).max() > 1.2 * epsilon


# -------------------------------------------------------------------------------- black box


def audited(first, second, alarm):
    """Bound from two samples of a statistic (worlds one, zero): the event chosen on a quarter of each."""
    cut = len(first) // 4
    worlds = (second, first)
    return bounds_of("", [w[:cut] for w in worlds], [w[cut:] for w in worlds], 0.0, alarm).epsilon


def central_statistic(world, runs, broken):
    """One released node of the transitions alone (2 changed cells): the claimed log-likelihood ratio."""
    query = CountQuery(LAYOUT, visits=False, known_rewards=True)
    policy = np.zeros((1, 2), np.int64)
    worlds = [query.to_cells(query.contribution(answer(1, 1, w, policy))) for w in (0, 1)]
    life, out = answer(1, 1, world, policy), np.empty(runs)
    for run in range(runs):
        session = Central(epsilon=1.0, release="tree").start(query, Schedule(2), Seeded(71 + world, run))
        scale = session.mechanism.scales[0]
        session.release()
        encoder = (halve(session) if broken else session).begin(Plan(policy))
        session.submit(encoder(life, session.open_plan, None))
        cells = flat(session.release())
        out[run] = (np.abs(cells - worlds[0]) - np.abs(cells - worlds[1])).sum() / scale
    return out


def local_statistic(world, runs, coins):
    """One message of the transitions alone."""
    query = CountQuery(LAYOUT, visits=False, known_rewards=True)
    policy = np.zeros((1, 2), np.int64)
    worlds = [query.to_cells(query.contribution(answer(1, 1, w, policy))) for w in (0, 1)]
    source, life, out = Seeded(81, world), answer(1, 1, world, policy), np.empty(runs)
    session = Local(epsilon=1.0, noise="laplace").start(query, Schedule(runs), source)
    encoder = session.begin(Plan(policy, users=runs))
    scales = session.mechanism.scales[0]
    for run in range(runs):
        message = encoder(life, session.open_plan, coins(source.keys.noise, run)).message
        out[run] = ((np.abs(message - worlds[0]) - np.abs(message - worlds[1])) / scales).sum()
    return out


def test_black_box_bounds_stay_below_epsilon_and_find_half_the_noise():
    """Events chosen on a quarter of the runs. False alarm: 1e-7 a bound, two bounds."""
    for statistic, runs, right, wrong in (
        (central_statistic, 3000, False, True),
        (local_statistic, 5000, SeededRng, HalfCoins),
    ):
        honest = audited(statistic(1, runs, right), statistic(0, runs, right), 1e-7)
        assert 0.3 < honest <= 1.0
        assert audited(statistic(1, runs, wrong), statistic(0, runs, wrong), 1e-7) > 1.0
