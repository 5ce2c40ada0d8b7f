"""Records: what mechanisms did to one user, in public numbers.

:class:`~discreet.core.protocols.Record` says what a guarantee asks of any of them. :class:`MechanismRecord`,
of noise in sums, stands here; the other kinds stand in files of their own, which :mod:`discreet.core.lazy`
lists. Nothing here is text but the names of mechanisms: sentences are
:mod:`discreet.accounting.text.guarantee_sentences`'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from discreet.core import checks
from discreet.core import lazy as parts
from discreet.core.short_repr import brief

if TYPE_CHECKING:
    from discreet.core.protocols import Sensitive

__all__ = [
    "Coordinate", "Fixed", "MechanismRecord", "NoiseFamily", "Source", "Trust", "joint_loss",
]  # fmt: skip

NoiseFamily = Literal["laplace", "gaussian", "discrete_laplace", "discrete_gaussian"]
Trust = Literal["none", "joint", "central", "local", "shuffle"]
Source = Literal["secure", "seeded"]
Coordinate = tuple[str, float, float, int]
"""(noise family, scale, absolute shift, how many such coordinates), discrete ones in units of their grid.

``"pure"`` stands for any mechanism that is (shift / scale)-DP: randomized response dominates them all.
"""


class Fixed(dict[str, Any]):
    """A mapping that no one changes: a release shows its guarantee's records to whoever reads it."""

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a record is fixed: its mappings cannot be changed")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refused

    def __reduce__(self) -> tuple[type[Fixed], tuple[dict[str, Any]]]:
        return Fixed, (dict(self),)


# ------------------------------------------------------------------------------ what was done


@dataclass(frozen=True)
class MechanismRecord:
    """What one mechanism did, in public numbers.

    Parameters
    ----------
    mechanism : str
        Its name in words, e.g. ``"binary tree over users"``.
    noise : str
        ``laplace``, ``gaussian``, ``discrete_laplace`` or ``discrete_gaussian``.
    scales : mapping
        Laplace scale b, or standard deviation sigma, of one draw, per family of the query, in the
        units of its values.
    sensitivities : mapping
        Each family's own replace-one sensitivity, l1 for Laplace and l2 for Gaussian noise.
    joint : float
        Joint sensitivity of all families in units of their noise, same norm.
    levels : int
        In how many noisy sums (tree nodes, messages, batches) the records of one user can be.
    exchanges : tuple
        Where epsilon is to be had from privacy-loss distributions: the coordinates that each way to
        exchange a user moves, ``levels`` included (:func:`discreet.accounting.pld_calibration.exchanges`).
        Only valid for noise that is drawn after the user's record is in. Empty: closed forms.

    Raises
    ------
    ValueError
        On a value out of range, families that differ, or a joint sensitivity that cannot be: below
        the largest family's own, or above all families' together; on exchanges that are not of this noise, at
        these scales, with that joint sensitivity (:func:`discreet.accounting.pld_calibration.check_listed`).
    """

    __repr__ = brief

    mechanism: str
    noise: NoiseFamily
    scales: Mapping[str, float] = field(hash=False)
    sensitivities: Mapping[str, float] = field(hash=False)
    joint: float
    levels: int = 1
    exchanges: tuple[tuple[Coordinate, ...], ...] = ()

    def __post_init__(self) -> None:
        checks.choice("noise", self.noise, get_args(NoiseFamily))
        # beyond, squares of the losses would leave the range of floats, and a sum of them come out too small
        scales = {name: checks.real(f"scales[{name!r}]", b, 1e-100, 1e100) for name, b in self.scales.items()}
        own = {name: checks.positive(f"sensitivities[{name!r}]", d) for name, d in self.sensitivities.items()}
        if not scales or set(scales) != set(own):
            raise ValueError(
                f"scales has families {sorted(scales)}: must be those of sensitivities, {sorted(own)}"
            )
        joint = checks.positive("joint", self.joint)
        apart = [own[name] / scales[name] for name in scales]
        most = sum(apart) if self.norm == "l1" else math.hypot(*apart)
        if not max(apart) * (1 - 1e-9) <= joint <= most * (1 + 1e-9):
            raise ValueError(
                f"joint = {joint!r}: must be in [{max(apart):g}, {most:g}], by the families' own"
            )
        object.__setattr__(self, "scales", Fixed(scales))
        object.__setattr__(self, "sensitivities", Fixed(own))
        object.__setattr__(self, "joint", joint)
        object.__setattr__(self, "levels", checks.integer("levels", self.levels, 1))
        if self.exchanges:
            parts.module("calibration").check_listed(self)

    @classmethod
    def of(
        cls,
        query: Sensitive,
        mechanism: str,
        noise: NoiseFamily,
        scales: Mapping[str, float],
        levels: int = 1,
        exchanges: tuple[tuple[Coordinate, ...], ...] = (),
        rounding: float = 0.0,
    ) -> MechanismRecord:
        """The record of a mechanism on ``query``: sensitivities, own and joint, are the query's.

        ``rounding`` : what arithmetic in fixed point adds to every family's own.
        """
        norm: Literal["l1", "l2"] = "l1" if noise.endswith("laplace") else "l2"
        own = {name: query.sensitivity(norm, {name: 1.0}) + rounding for name in scales}
        joint = joint_loss(query, norm, scales, rounding)
        return cls(mechanism, noise, scales, own, joint, levels, exchanges)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without loss: JSON writes a float with all digits that tell it from any other."""
        return parts.module("plain").of_noise(self)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> MechanismRecord:
        """The record that :meth:`to_dict` wrote. Raises ``ValueError`` on a wrong key or type."""
        return cls(**parts.module("plain").noise_fields(table))

    @property
    def norm(self) -> Literal["l1", "l2"]:
        """The norm in which the sensitivities are."""
        return "l1" if self.noise.endswith("laplace") else "l2"

    @property
    def numerical(self) -> bool:
        """Is epsilon to be had from privacy-loss distributions of its exchanges?"""
        return bool(self.exchanges)

    @property
    def loss(self) -> float:
        """levels * joint (Laplace: its epsilon), or sqrt(levels) * joint (Gaussian: its mu)."""
        return self.levels * self.joint if self.norm == "l1" else math.sqrt(self.levels) * self.joint

    def epsilon(self, delta: float) -> float:
        """Of listed exchanges: the worst one's, by privacy-loss distributions. ``ValueError`` without any."""
        found: float = parts.module("accounting").worst_epsilon(self.exchanges, delta)
        return found

    def sentence(self, trust: Trust) -> str:
        """What hides the data, and in how many sums."""
        return parts.module("sentences").of_noise(self)

    def line(self, delta: float) -> str:
        """What was done, with its loss (at no delta: in the norm of the noise)."""
        return parts.module("sentences").noise_line(self)


def joint_loss(
    query: Sensitive, norm: Literal["l1", "l2"], scales: Mapping[str, float], rounding: float = 0.0
) -> float:
    """Joint sensitivity of all families in units of their noise; ``rounding`` adds to each family's change.

    With rounding the smaller of two bounds by the triangle inequality: over (change, rounding), and over
    families. Halved when all scales are doubled, with rounding too.
    """
    joint = query.sensitivity(norm, {name: 1.0 / scale for name, scale in scales.items()})
    if not rounding:
        return joint
    add = math.fsum if norm == "l1" else lambda parts: math.hypot(*parts)
    apart = add([(query.sensitivity(norm, {name: 1.0}) + rounding) / scale for name, scale in scales.items()])
    return min(joint + add([rounding / scale for scale in scales.values()]), apart)
