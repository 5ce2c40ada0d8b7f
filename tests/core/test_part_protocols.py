"""The interfaces of optional parts name the parts that there are."""

from discreet.core import part_protocols
from discreet.wiring import WiredParts


def test_every_part_has_an_interface() -> None:
    named = {name for name in vars(part_protocols.Parts) if not name.startswith("_")}
    assert named == {name for name in vars(WiredParts) if not name.startswith("_")}
    assert {name for name in part_protocols.__all__ if not hasattr(part_protocols, name)} == set()
