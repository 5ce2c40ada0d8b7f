"""Reader of published forms of every kind that a service uses.

A form has the layout of :mod:`discreet.device.session_config`, and its head states the kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from discreet.device.context_form import ContextForm
from discreet.device.count_device import CountDevice
from discreet.device.linear_device import LinearDevice
from discreet.device.randomized_response_device import ReportDevice
from discreet.device.session_config import taken_apart
from discreet.device.shuffle_payload import SessionConfig
from discreet.device.skellam_device import SkellamDevice

__all__ = ["PublishedDevice", "device_from_bytes"]

PublishedDevice = CountDevice | ReportDevice | LinearDevice | SessionConfig | SkellamDevice

_KINDS: Mapping[str, Any] = {
    CountDevice.KIND: CountDevice,
    ReportDevice.KIND: ReportDevice,
    ContextForm.KIND: LinearDevice,
    SessionConfig.KIND: SessionConfig,
    SkellamDevice.KIND: SkellamDevice,
}


@lru_cache(maxsize=4)
def device_from_bytes(published: bytes) -> PublishedDevice:
    """Return the device object that a published form describes.

    Raises ``ValueError`` if the bytes are not a form of counts, reports, bits or sums over contexts.
    """
    kind, _ = taken_apart(published, tuple(_KINDS))
    found: PublishedDevice = _KINDS[kind].from_bytes(published)
    return found
