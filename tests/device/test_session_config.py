"""Published parameters of devices: plain values and arrays come back, and no other bytes are read."""

import numpy as np
import pytest

from discreet.device.session_config import HEADER, published, taken_apart


def test_values_and_arrays_come_back_and_arrays_are_read_only() -> None:
    fields = {
        "a": 1,
        "b": None,
        "c": (("x", 0.5), ("y", 2.0)),
        "d": np.arange(6).reshape(2, 3),
        "e": np.ones(2),
    }
    kind, found = taken_apart(published("one", fields), ("one", "two"))
    assert kind == "one"
    assert (found["a"], found["b"], found["c"]) == (1, None, (("x", 0.5), ("y", 2.0)))
    np.testing.assert_array_equal(found["d"], fields["d"])
    with pytest.raises(ValueError, match="read-only"):
        found["e"][0] = 2.0
    assert published("one", dict(reversed(fields.items()))) != b""
    assert published("one", {"b": 2, "a": 1}) == published("one", {"a": 1, "b": 2})


def test_other_bytes_are_refused() -> None:
    good = published("one", {"a": np.arange(3)})
    for bad in (
        b"",
        good[:-1],
        good + b"\0",
        b"x" + good[1:],
        good[:HEADER],
        good[:8] + b"\xff" * 4 + good[12:],
    ):
        with pytest.raises(ValueError, match="must be the bytes of a form of one"):
            taken_apart(bad, ("one",))
    with pytest.raises(ValueError, match="its head is another one"):
        taken_apart(good, ("two",))
    with pytest.raises(ValueError, match="JSON"):
        published("one", {"a": float("nan")})
