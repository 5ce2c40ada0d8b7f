"""Forms of every kind are read back as their devices, and other bytes are refused."""

import pytest

from discreet.device.context_form import ContextForm
from discreet.device.count_device import CountDevice
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_device import LinearDevice
from discreet.device.published_device import device_from_bytes
from discreet.device.session_config import published
from discreet.device.shuffle_payload import COIN, Family, SessionConfig
from discreet.device.skellam_device import SkellamDevice

FORM = ContextForm(
    states=1, actions=2, horizon=1, mask=None, names=("gram", "response"),
    features=FeatureMap({'"kind":"bits"': (0.0, 1.0)}, 2),
)  # fmt: skip


def test_each_form_is_read_as_the_device_that_wrote_it():
    units = FORM.units(2)
    devices = (
        CountDevice(3, 2, 5, (("transition_counts", 7.3),), "laplace", 1024),
        SessionConfig(3, 2, 4, (Family("visits", 30, COIN // 2),)),
        LinearDevice(FORM, "gaussian", FORM.offsets, 2.0 + 0.0 * units, units, 2, 5),
        SkellamDevice(FORM, (4,) * len(FORM.blocks), 9),
    )
    for device in devices:
        found = device_from_bytes(device.to_bytes())
        assert type(found) is type(device)
        assert found.digest == device.digest


@pytest.mark.parametrize("wrong", [b"", b"dscf", published("gram", {"session": "0" * 16})])
def test_other_bytes_are_refused(wrong: bytes):
    with pytest.raises(ValueError, match="must be the bytes of a form of counts or reports or contexts or"):
        device_from_bytes(wrong)
