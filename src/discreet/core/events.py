"""Privacy records: public numbers that describe the effect of mechanisms on one user.

:class:`~discreet.core.protocols.Record` is the interface that guarantees use. This module defines
:class:`MechanismRecord`, which describes noise in sums. :mod:`discreet.wiring` lists the other classes of
records. The only text in a record is the name of its mechanism. The sentences are built by
:mod:`discreet.accounting.text.guarantee_sentences`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from discreet.core import checks
from discreet.core.registry import parts
from discreet.core.short_repr import brief

if TYPE_CHECKING:
    from discreet.core.protocols import Sensitive

NoiseFamily = Literal["laplace", "gaussian", "discrete_laplace", "discrete_gaussian"]
Trust = Literal["none", "joint", "central", "local", "shuffle"]
Source = Literal["secure", "seeded"]
Coordinate = tuple[str, float, float, int]
"""One kind of coordinate: (noise family, scale, absolute shift, number of such coordinates).

For discrete noise, scale and shift are in units of its grid. The family ``"pure"`` is any mechanism that is
(shift / scale)-DP. Its loss is computed as that of randomized response, which dominates all such mechanisms.
"""


class Fixed(dict[str, Any]):
    """Immutable mapping for records.

    Any code that reads a release can access the records of its guarantee.
    """

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
        Name of the mechanism as text, e.g. ``"binary tree over users"``.
    noise : str
        ``laplace``, ``gaussian``, ``discrete_laplace`` or ``discrete_gaussian``.
    scales : mapping
        Scale of one draw for each family of the query: Laplace scale b or standard deviation sigma, in the
        units of the family's values.
    sensitivities : mapping
        Replace-one sensitivity of each family: l1 for Laplace noise, l2 for Gaussian noise. If records of a
        user reach the same noisy sums, the factor of this overlap is included.
    joint : float
        Joint sensitivity of all families in units of their noise, in the same norm.
    levels : int
        Number of noisy sums (tree nodes, messages, batches) that can contain the records of one user.
    exchanges : tuple
        One entry for each way to replace a user: the coordinates that change, in all ``levels`` sums
        (:func:`discreet.accounting.pld_calibration.exchanges`). Entries are listed only if epsilon is
        computed from privacy-loss distributions. They are valid only for noise that is drawn after the user's
        record was added. If the tuple is empty, epsilon is computed in closed form.

    Raises
    ------
    ValueError
        If a value is out of range, or if ``scales`` and ``sensitivities`` have different families. If the
        joint sensitivity is below the largest sensitivity of a family in units of its noise. If it is above
        the sum of these sensitivities (for l2: the square root of the sum of their squares). If the exchanges
        do not match the noise, the scales and the joint sensitivity
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
        # Outside this range, squares of the losses would overflow or underflow, and their sum would be too
        # small.
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
            parts().calibration.check_listed(self)

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
        overlap: float = 1.0,
    ) -> MechanismRecord:
        """Return the record of a mechanism on ``query``, with the sensitivities of the query.

        ``rounding`` : the amount that fixed-point arithmetic adds to the sensitivity of every family.
        ``overlap`` : factor of all sensitivities, above 1 if records of a user reach the same noisy sums.
        """
        norm: Literal["l1", "l2"] = "l1" if noise.endswith("laplace") else "l2"
        own = {name: overlap * query.sensitivity(norm, {name: 1.0}) + rounding for name in scales}
        joint = overlap * joint_loss(query, norm, scales, rounding / overlap)
        return cls(mechanism, noise, scales, own, joint, levels, exchanges)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that JSON stores without loss."""
        return parts().plain.of_noise(self)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> MechanismRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` on a wrong key or type."""
        return cls(**parts().plain.noise_fields(table))

    @property
    def norm(self) -> Literal["l1", "l2"]:
        """Norm of the sensitivities: l1 for Laplace noise, l2 for Gaussian noise."""
        return "l1" if self.noise.endswith("laplace") else "l2"

    @property
    def numerical(self) -> bool:
        """True if epsilon is computed from privacy-loss distributions of the exchanges."""
        return bool(self.exchanges)

    @property
    def loss(self) -> float:
        """Privacy loss: levels * joint (Laplace: epsilon) or sqrt(levels) * joint (Gaussian: mu)."""
        return self.levels * self.joint if self.norm == "l1" else math.sqrt(self.levels) * self.joint

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the worst listed exchange, computed from privacy-loss distributions.

        Raises ``ValueError`` if no exchange is listed.
        """
        return parts().accountant.worst_epsilon(self.exchanges, delta)

    def sentence(self, trust: Trust) -> str:
        """Return text about the noise that protects the data and the number of sums that contain a user."""
        return parts().sentences.of_noise(self)

    def line(self, delta: float) -> str:
        """Return one line of text about the mechanism and its loss, in the norm that its noise requires.

        ``delta`` is not used.
        """
        return parts().sentences.noise_line(self)


def joint_loss(
    query: Sensitive, norm: Literal["l1", "l2"], scales: Mapping[str, float], rounding: float = 0.0
) -> float:
    """Return the joint sensitivity of all families in units of their noise.

    rounding : additional change of each family. If it is not 0, the result is the smaller of two bounds that
        follow from the triangle inequality. The first bound adds the norm of the rounding to the joint
        sensitivity. The second bound combines the families, each with its own sensitivity plus rounding. If
        all scales are doubled, the result is halved, also with ``rounding``.
    """
    joint = query.sensitivity(norm, {name: 1.0 / scale for name, scale in scales.items()})
    if not rounding:
        return joint
    add = math.fsum if norm == "l1" else lambda parts: math.hypot(*parts)
    apart = add([(query.sensitivity(norm, {name: 1.0}) + rounding) / scale for name, scale in scales.items()])
    return min(joint + add([rounding / scale for scale in scales.values()]), apart)
