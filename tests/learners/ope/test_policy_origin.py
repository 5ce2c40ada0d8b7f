"""Origins of policies: kept by views, checked against the data that evaluate them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet.learners.ope.policy_origin import PolicyArray, check_origin, origin_of

ONE, OTHER = "1" * 64, "2" * 64


def of(part: str, share: float = 0.5, release: str = ONE) -> dict[str, Any]:
    return {"release": release, "part": part, "share": share}


def test_views_keep_the_origin() -> None:
    policy = PolicyArray.of(np.zeros((2, 3), int), of("train"))
    assert policy.made_from == of("train")
    assert policy[0].made_from == of("train")
    assert np.asarray(policy).__class__ is np.ndarray
    assert PolicyArray.of(np.zeros(2, int), None).made_from is None


@pytest.mark.parametrize(
    ("origin", "read", "made", "said"),
    [
        (None, of("held_out"), "train", None),
        (of("train"), of("held_out"), "train", None),
        (
            of("train", 0.7),
            of("held_out", 0.5),
            "train",
            "must be evaluated with made = 'train' and share = 0.7",
        ),
        (of("train"), of("whole", 1.0), "outside", "must be evaluated with made = 'train' and share = 0.5"),
        (of("whole", 1.0), of("held_out"), "train", "all of this release"),
        (of("whole", 1.0), of("whole", 1.0), "outside", "made = 'release'"),
        (of("whole", 1.0), of("whole", 1.0), "release", None),
        (of("train"), of("whole", 1.0), "release", "made = 'train'"),
        (of("held_out"), of("held_out"), "train", "must be made from the training part"),
        (of("held_out"), of("train"), "outside", None),
        (of("whole", 1.0, OTHER), of("whole", 1.0), "outside", None),
        (of("whole", 1.0, OTHER), of("held_out"), "train", "another release"),
    ],
)
def test_contradictions(origin: Any, read: dict[str, Any], made: str, said: str | None) -> None:
    if said is None:
        check_origin("x", origin, read, made)
    else:
        with pytest.raises(ValueError, match=said):
            check_origin("x", origin, read, made)


@pytest.mark.parametrize(
    "bad",
    [
        {}, "train", {**of("train"), "more": 1}, of("half"), of("train", 0.0), of("train", 1.5),
        of("train", release="x" * 64), of("train", release="1"),
    ],
)  # fmt: skip
def test_bad_origins_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="made_from"):
        origin_of(bad)
