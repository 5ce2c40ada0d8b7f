"""Local privacy: noise grows with the root of users, and bad options are refused."""

import numpy as np
import pytest

from discreet.mechanisms.privatizers.local import Local

from ...core.test_count_channels import noises


def test_local_noise_grows_with_the_root_of_users() -> None:
    at = [1, 4, 16, 64]
    out = noises(Local(randomizer="laplace", epsilon=1.0), 1000, at, 80)
    stds = out.std(axis=(0, 2))
    assert stds == pytest.approx(12.0 * np.sqrt(2 * np.array(at)), rel=0.06)
    slope = np.polyfit(np.log(at), np.log(stds), 1)[0]
    assert slope == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1.0, "randomizer": "hadamard"}, "'auto', 'laplace', 'gaussian', 'subset', 'oue', 'krr'"),
        ({"rho": 1.0, "randomizer": "subset"}, "pure epsilon"),
        ({"epsilon": 1.0, "randomizer": "subset", "noise": "laplace"}, "adds no noise"),
        ({"epsilon": 1.0, "randomizer": "oue", "weights": (0.5, 0.5)}, "give reward_share"),
        ({"epsilon": 1.0, "randomizer": "krr", "calibration": "published"}, "under calibration 'published'"),
        ({"epsilon": 1.0, "randomizer": "laplace", "noise": "gaussian", "delta": 0.1}, "noise = 'gaussian'"),
        ({"epsilon": 1.0, "randomizer": "laplace", "steps": 2}, "not with noise in every counter"),
        ({"epsilon": 1.0, "steps": 0}, "steps = 0"),
        ({"epsilon": 1.0, "reward_share": 1.0}, "reward_share = 1.0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        Local(**options)
