"""Origin of a policy: the release, or the part of it, from which the policy was computed.

A policy must not be evaluated with the data from which it was learned. Its origin is a mapping with three
entries: the SHA-256 of the release (``release``), the part (``part``: "train", "held_out" or "whole") and the
share of the training part (``share``). Arrays and files of policies contain the origin, so that an evaluation
can reject the policy. A policy without origin is not checked. The user then states how the policy was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks

_OTHER = {"train": "held_out", "held_out": "train"}


class PolicyArray(np.ndarray):
    """Array of a policy with its origin. Views and slices keep the origin; other results can lose it.

    Attributes
    ----------
    made_from : mapping or None
        Release, part and share.
    """

    made_from: Mapping[str, Any] | None

    @classmethod
    def of(cls, policy: ArrayLike, made_from: Mapping[str, Any] | None) -> PolicyArray:
        """Return the policy as an array with an origin. policy : the array. made_from : the origin."""
        found = np.asarray(policy).view(cls)
        found.made_from = None if made_from is None else dict(made_from)
        return found

    def __array_finalize__(self, source: Any) -> None:
        self.made_from = getattr(source, "made_from", None)


def origin_of(found: object) -> dict[str, Any]:
    """Return the origin. Raises ``ValueError`` if ``found`` is not a mapping with the three entries."""
    if not isinstance(found, Mapping) or set(found) != {"release", "part", "share"}:
        raise ValueError(f"made_from = {checks.said(found)}: must have release, part and share")
    release = found["release"]
    if not isinstance(release, str) or len(release) != 64 or set(release) - set("0123456789abcdef"):
        raise ValueError(f"made_from.release = {checks.said(release)}: must be a SHA-256 in hexadecimal")
    part = checks.choice("made_from.part", found["part"], ("train", "held_out", "whole"))
    share = checks.real("made_from.share", found["share"], 0.0, 1.0, open_low=True)
    return {"release": release, "part": part, "share": share}


def check_origin(name: str, origin: Mapping[str, Any] | None, read: Mapping[str, Any], made: str) -> None:
    """Raise ``ValueError`` if a policy was computed from its evaluation data, or not as stated.

    - name : name of the policy.
    - origin : origin of the policy; None: not known.
    - read : origin of the data that evaluate the policy.
    - made : statement of the user: "train", "outside" or "release".
    """
    if origin is None:
        return
    origin = origin_of(origin)
    said = f"policies[{name!r}] was made from"
    if origin["release"] != read["release"]:
        if made == "outside":
            return
        raise ValueError(f"{said} another release: must be evaluated with made = 'outside'")
    if made == "release":
        if origin["part"] != "whole":
            raise ValueError(f"{said} the {origin['part']} part: must be evaluated with made = 'train'")
        return
    apart = _OTHER.get(origin["part"]) == read["part"] and origin["share"] == read["share"]
    if apart:
        return
    part = (
        "all of this release" if origin["part"] == "whole" else f"the {origin['part']} part of this release"
    )
    if origin["part"] == "train":
        advice = f"must be evaluated with made = 'train' and share = {origin['share']:g}"
    elif origin["part"] == "whole":
        advice = (
            "must be made from a part of it (split_release), or be evaluated with made = 'release' if a "
            "planner per step made it"
        )
    else:
        advice = "must be made from the training part"
    raise ValueError(
        f"{said} {part}, which overlaps the data that are read "
        f"({read['part']}, share {read['share']:g}): {advice}"
    )
