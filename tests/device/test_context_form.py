"""Contributions of contexts on a device: published form, messages, refusals."""

import random

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.core.releases import Message, Plan, Schedule
from discreet.core.rng import Seeded
from discreet.device.context_form import ContextForm, checked_contexts
from discreet.device.discrete_noise import ExactCoins
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_device import LinearDevice
from discreet.device.linear_forms import GRAM, GRID, RESPONSE
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.mechanisms.seeded_rng import SeededRng

MAPS = {
    "per action": FeatureMap({"a": (-1, 1), "b": (0, 2)}, 3),
    "shared": FeatureMap({"a": (-1, 1), "b": (0, 2)}, 3, form="shared", basis=("fourier", 3, 1.0, 5)),
}


def opened(features, privatizer=None, users=4):
    query = ContextQuery(features=features)
    schedule = Schedule(users, times=np.array([0, users]), final=True, reads="measurements")
    return (privatizer or dr.Local(epsilon=4.0, delta=1e-6)).start(query, schedule, dr.Secure())


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("budget", [{"epsilon": 4.0, "delta": 1e-6}, {"epsilon": 4.0}, {"mu": 1.0}])
def test_a_published_form_makes_messages_that_the_session_adds(name, budget):
    """The device states the session's guarantee from its own bytes; the sums hold what it sent."""
    features = MAPS[name]
    with opened(features, dr.Local(**budget)) as session:
        device = LinearDevice.from_bytes(session.device.to_bytes())
        assert device.to_bytes() == session.device.to_bytes()
        assert isinstance(device.form, ContextForm)
        own, all_users = device.guarantee, session.guarantee
        for said in ("epsilon", "rho", "mu"):
            if getattr(own, said) is not None and getattr(all_users, said) is not None:
                assert getattr(own, said) == pytest.approx(getattr(all_users, said), rel=1e-9)
        session.release()
        plan = Plan(np.zeros((features.blocks, features.dimension)), 4)
        session.begin(plan)
        x, cells = np.random.default_rng(0).normal(size=(4, 1, *features.shape)), 0.0
        for i in range(4):
            sent = device(session.open_plan.number, {}, x[i], [i % 3], [0.25])
            cells = cells + device.read(session.open_plan.number, sent)[1]
            session.submit(Message(session.open_plan.number, message=sent))
        release = session.release().estimates
        units = np.repeat(device.units, np.diff(device.offsets))
        assert release[RESPONSE].value.ravel() == pytest.approx(
            (cells * units)[-release[RESPONSE].value.size :]
        )


def test_exact_contributions_are_integers_within_the_bound():
    form = ContextQuery(features=MAPS["per action"]).form
    x = np.array([[1e300, -np.inf]])
    tables = form.tables(form.prepared({}), x, np.array([2]), np.array([1.0]), grid=1024)
    assert all(np.array_equal(table, np.rint(table)) for table in tables.values())
    assert tables[GRAM][2, :3].sum() <= round(1 / GRID) ** 2
    assert not tables[GRAM][:2].any()
    assert not tables[RESPONSE][:2].any()
    assert np.abs(tables[RESPONSE]).max() <= 512 / GRID


@pytest.mark.parametrize(
    ("contexts", "actions", "rewards", "message"),
    [
        ([1.0, 2.0], [0], [0.5], r"record\.contexts has shape \(2,\): must be \(1, 2\)"),
        ([[1.0, 2.0]], [3], [0.5], r"record\.actions\[0\] = 3: must be an integer in \[0, 2\]"),
        ([[1.0, 2.0]], [0.0], [0.5], r"record\.actions has shape \(1,\) and dtype float64"),
        ([[1.0, 2.0]], [0], [1.5], r"record\.rewards\[0\] = 1\.5: must be in \[0, 1\]"),
        ([[1.0, 2.0]], [0], [float("nan")], r"record\.rewards\[0\] = nan"),
        ([[1.0, 2.0]], [0], 0.5, r"record\.rewards has shape \(\)"),
    ],
)
def test_other_records_are_refused_before_anything_is_sent(contexts, actions, rewards, message):
    with opened(MAPS["per action"]) as session, pytest.raises(ValueError, match=message):
        session.device(1, {}, contexts, actions, rewards)


def test_no_value_of_a_context_is_refused():
    found = checked_contexts(MAPS["per action"], [[np.nan, 1e308]], [0], [1], (1,), "record")
    assert np.isnan(found[0][0, 0])


def test_a_form_with_other_scales_states_another_loss():
    """The least scale of any block counts."""
    with opened(MAPS["per action"]) as session:
        device = session.device
    scales = device.scales.copy()
    scales[-1] /= 2
    weaker = LinearDevice(
        device.form, device.family, device.offsets, scales, device.units, device.grid, device.session
    )
    assert weaker.guarantee.rho > 1.2 * device.guarantee.rho


@pytest.mark.parametrize(
    ("more", "message"),
    [
        # with rewards 0 and 1, r - 1/2 would be -2/3 and 2/3, and the stated loss too small
        ({"grid": 3}, "grid = 3: must be a power of two"),
        # rewards above 2^-8 would raise on the device before noise is added
        ({"grid": 2**60}, r"grid = 1152921504606846976: must be an integer in \[2, 1048576\]"),
        ({"grid": 2.5}, "grid = 2.5: must be an integer"),
        ({"family": "Laplace"}, "family = 'Laplace': must be 'gaussian' or 'laplace'"),
    ],
)
def test_a_published_form_cannot_state_less_than_it_loses(more, message):
    """The server that publishes a form is not trusted: from its bytes, no device is made."""
    with opened(MAPS["per action"]) as session:
        device = session.device
    grid = more.get("grid", device.grid)
    forged = LinearDevice(
        device.form, device.family, device.offsets, device.scales, device.form.units(grid), device.grid, 7
    )
    for name, value in more.items():
        object.__setattr__(forged, name, value)
    with pytest.raises(ValueError, match=message):
        LinearDevice.from_bytes(forged.to_bytes())


@pytest.mark.parametrize("source", ["secure", "seeded"])
@pytest.mark.parametrize("budget", [{"epsilon": 4.0, "delta": 1e-6}, {"epsilon": 4.0}])
def test_every_block_of_a_message_has_noise_of_its_law(source, budget):
    """Noise of 60 messages, less the record: Kolmogorov's test by block, 1e-9 each, for 18 blocks of four.

    Scales are above 4 000 units, so that the discrete law is the continuous one to 1e-4 in its distribution.
    """
    randomness = dr.Secure() if source == "secure" else Seeded(5, 0)
    query = ContextQuery(features=MAPS["per action"])
    schedule = Schedule(60, times=np.array([0, 60]), final=True, reads="measurements")
    session = dr.Local(**budget).start(query, schedule, randomness)
    device, below = session.device, random.Random(6).randrange
    record = np.array([[0.3, 1.5]]), np.array([1]), np.array([0.5])
    prepared = device.form.prepared({})
    plain = device.form.to_cells(device.form.tables(prepared, *record, device.grid))
    coins = ExactCoins(below)
    drawn = [
        device.cells(prepared, *record, coins if source == "secure" else SeededRng(randomness.keys.noise, i))
        for i in range(60)
    ]
    noise = np.array(drawn) - plain
    law = stats.norm if device.family == "gaussian" else stats.laplace
    assert source == "seeded" or device.scales.min() > 4000
    for block, scale in zip(np.split(noise, device.offsets[1:-1], axis=1), device.scales, strict=True):
        assert stats.kstest(block.ravel() / scale, law.cdf).pvalue > 1e-9
    correlation = np.corrcoef(noise.T) - np.eye(noise.shape[1])
    assert np.abs(correlation).max() < 0.8  # of 60 pairs; independent ones are beyond with probability 1e-13
    wanted = query.block_scales(session.mechanism.scales, session.mechanism.noise) / device.units
    assert np.array_equal(device.scales, wanted)
