"""Records: public numbers that describe what mechanisms did to one user.

:class:`~discreet.core.protocols.Record` is the interface that guarantees use. This module defines
:class:`MechanismRecord`, for noise in sums; :mod:`discreet.core.lazy` lists the modules of the other kinds.
The only text here is the names of mechanisms; :mod:`discreet.accounting.text.guarantee_sentences` makes the
sentences.
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
"""(noise family, scale, absolute shift, number of such coordinates); discrete ones in units of their grid.

``"pure"`` stands for any mechanism that is (shift / scale)-DP: randomized response dominates them all.
"""


class Fixed(dict[str, Any]):
    """Immutable mapping: a release exposes its guarantee's records to every reader."""

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a record is fixed: its mappings cannot be changed")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refused

    def __reduce__(self) -> tuple[type[Fixed], tuple[dict[str, Any]]]:
        return Fixed, (dict(self),)


# ------------------------------------------------------------------------------ records of noise


@dataclass(frozen=True)
class MechanismRecord:
    """Public numbers that describe one mechanism.

    Parameters
    ----------
    mechanism : str
        Its name as text, e.g. ``"binary tree over users"``.
    noise : str
        ``laplace``, ``gaussian``, ``discrete_laplace`` or ``discrete_gaussian``.
    scales : mapping
        Laplace scale b, or standard deviation sigma, of one draw, per family of the query, in the units of
        its values.
    sensitivities : mapping
        Each family's own replace-one sensitivity, l1 for Laplace and l2 for Gaussian noise.
    joint : float
        Joint sensitivity of all families in units of their noise, same norm.
    levels : int
        Number of noisy sums (tree nodes, messages, batches) that the records of one user can be in.
    exchanges : tuple
        If epsilon comes from privacy-loss distributions: the coordinates that each way to replace a user
        moves, ``levels`` included (:func:`discreet.accounting.pld_calibration.exchanges`).
        Only valid for noise that is drawn after the user's record is in. Empty: closed forms.

    Raises
    ------
    ValueError
        If a value is out of range, the families differ, or a joint sensitivity is impossible: below the
        largest family's own, or above what the families' own allow together (their sum for l1, the root of
        the sum of their squares for l2). Also for exchanges that do not match this noise, these scales and
        that joint sensitivity
        (:func:`discreet.accounting.pld_calibration.check_listed`).
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
        # Outside this range, squares of the losses would leave the range of floats, and their sum would be
        # too small.
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
        """Return the record of a mechanism on ``query``, with the query's own and joint sensitivities.

        ``rounding`` : what fixed-point arithmetic adds to every family's own sensitivity.
        """
        norm: Literal["l1", "l2"] = "l1" if noise.endswith("laplace") else "l2"
        own = {name: query.sensitivity(norm, {name: 1.0}) + rounding for name in scales}
        joint = joint_loss(query, norm, scales, rounding)
        return cls(mechanism, noise, scales, own, joint, levels, exchanges)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without loss: JSON writes each float with all the digits that identify it."""
        return parts.module("plain").of_noise(self)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> MechanismRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` on a wrong key or type."""
        return cls(**parts.module("plain").noise_fields(table))

    @property
    def norm(self) -> Literal["l1", "l2"]:
        """Norm of the sensitivities."""
        return "l1" if self.noise.endswith("laplace") else "l2"

    @property
    def numerical(self) -> bool:
        """True if epsilon comes from privacy-loss distributions of the exchanges."""
        return bool(self.exchanges)

    @property
    def loss(self) -> float:
        """levels * joint (Laplace: its epsilon), or sqrt(levels) * joint (Gaussian: its mu)."""
        return self.levels * self.joint if self.norm == "l1" else math.sqrt(self.levels) * self.joint

    def epsilon(self, delta: float) -> float:
        """Return epsilon of the worst listed exchange, by privacy-loss distributions. Raises without any."""
        found: float = parts.module("accounting").worst_epsilon(self.exchanges, delta)
        return found

    def sentence(self, trust: Trust) -> str:
        """Describe what protects the data, and in how many sums."""
        return parts.module("sentences").of_noise(self)

    def line(self, delta: float) -> str:
        """Describe the mechanism with its loss in the norm of its noise; ``delta`` is not used."""
        return parts.module("sentences").noise_line(self)


def joint_loss(
    query: Sensitive, norm: Literal["l1", "l2"], scales: Mapping[str, float], rounding: float = 0.0
) -> float:
    """Return the joint sensitivity of all families in units of their noise; rounding adds to each change.

    ``rounding`` is added to each family's change. The result is then the smaller of two bounds by the
    triangle inequality: over (change, rounding), and over families. Doubling all scales halves it, with
    rounding too.
    """
    joint = query.sensitivity(norm, {name: 1.0 / scale for name, scale in scales.items()})
    if not rounding:
        return joint
    add = math.fsum if norm == "l1" else lambda parts: math.hypot(*parts)
    apart = add([(query.sensitivity(norm, {name: 1.0}) + rounding) / scale for name, scale in scales.items()])
    return min(joint + add([rounding / scale for scale in scales.values()]), apart)
