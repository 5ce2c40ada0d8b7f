"""Privacy record of a mechanism whose loss depends on a declaration that this library has not derived.

A plug-in can declare its own noise (with its distribution and privacy cost) or its own vector (a function of
one trajectory). When the mechanism is built, the record stores the losses that follow from the declared
costs. Epsilon can therefore be recomputed from the record without the code of the plug-in.

**Price of a declared cost.** The largest shift does not always have the largest cost. (For example, integer
noise multiplied by 2 protects shifts of 2 units but reveals every shift of 1 unit.) If a cell can change by
up to x, every smaller shift is also possible. The *price* of x is therefore the largest cost of all shifts up
to x on the grid (:func:`price`). Sums over steps and episodes use the triangle inequality. For l1, this
requires cost(x + y) <= cost(x) + cost(y). For l2, it requires the same of the square root of the cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from discreet.accounting.serialization import plain_record, record_fields
from discreet.core import checks
from discreet.core.events import Fixed, Trust
from discreet.core.exchange import Cost
from discreet.core.families import RecordFamily
from discreet.core.noise.noises import AdditiveNoise, is_declared

if TYPE_CHECKING:
    from discreet.core.count_mechanism import CountMechanism

# Limit of the number of shifts at which a declared cost is evaluated, from the grid step to the largest
# shift.
_MOST_SHIFTS = 2**16
_NEAR = 1e-9  # Relative difference of two computations of one cost.
_CONTINUOUS = 1024  # for continuous noise (simulation only), shifts are examined at multiples of 1 / 1024


@dataclass(frozen=True)
class DeclaredRecord:
    """Public numbers of one mechanism, and the declarations that its privacy loss depends on.

    Parameters
    ----------
    mechanism : name of the mechanism, as text.
    noise : name of the noise.
    norm : "l1" if the losses of cells are summed, "l2" if the squares of these losses are summed.
    scales : mapping from family name to noise scale.
    losses : mapping from family name to the largest loss in this family if one user is replaced. The loss is
        epsilon for l1, and mu, the square root of 2 rho, for l2.
    joint : largest loss in all families together, in one noisy sum.
    levels : largest number of noisy sums that can contain one user.
    rests_on : declarations as text, at least one.

    Raises
    ------
    ValueError
        If a number is out of range, if ``scales`` and ``losses`` have different families, or if ``joint`` is
        outside its bounds. ``joint`` must be at least the largest loss of a family and at most the sum of the
        losses of all families (for l2: the square root of the sum of their squares).
    """

    mechanism: str
    noise: str
    norm: Literal["l1", "l2"]
    scales: Mapping[str, float] = field(hash=False)
    losses: Mapping[str, float] = field(hash=False)
    joint: float
    levels: int
    rests_on: tuple[str, ...]
    numerical: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.choice("norm", self.norm, ("l1", "l2"))
        scales = {name: checks.real(f"scales[{name!r}]", b, 1e-100, 1e100) for name, b in self.scales.items()}
        losses = {name: checks.positive(f"losses[{name!r}]", x) for name, x in self.losses.items()}
        if not losses or set(scales) != set(losses):
            raise ValueError(
                f"scales has families {sorted(scales)}: must be those of losses, {sorted(losses)}"
            )
        joint = checks.positive("joint", self.joint)
        most = math.fsum(losses.values()) if self.norm == "l1" else math.hypot(*losses.values())
        if not max(losses.values()) * (1 - 1e-9) <= joint <= most * (1 + 1e-9):
            raise ValueError(f"joint = {joint!r}: must be in [{max(losses.values()):g}, {most:g}], by losses")
        rests_on = tuple(self.rests_on)
        if not rests_on or not all(isinstance(text, str) and text for text in rests_on):
            raise ValueError(f"rests_on = {self.rests_on!r}: must hold at least one text")
        for name, value in (
            ("scales", Fixed(scales)), ("losses", Fixed(losses)), ("joint", joint), ("rests_on", rests_on),
            ("levels", checks.integer("levels", self.levels, 1)),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def loss(self) -> float:
        """Privacy loss of one user: epsilon for l1, the square root of 2 rho for l2."""
        return self.levels * self.joint if self.norm == "l1" else math.sqrt(self.levels) * self.joint

    def epsilon(self, delta: float) -> float:
        """Raise ``ValueError``, because this record has no privacy-loss distribution. Use :attr:`loss`
        instead.
        """
        raise ValueError("a declared mechanism has no privacy-loss distribution")

    def line(self, delta: float) -> str:
        """Return a line of text about the mechanism and its loss. ``delta`` is not used."""
        symbol = "epsilon" if self.norm == "l1" else "sqrt(2 rho)"
        shown = ", ".join(
            f"{name} scale {scale:.6g} (loss {self.losses[name]:.6g})" for name, scale in self.scales.items()
        )
        return (
            f"{self.mechanism}: {self.noise} noise, {shown}; joint loss {self.joint:.6g}, a user in at most "
            f"{self.levels} noisy sum{'s' if self.levels > 1 else ''}: {symbol} = {self.loss:.6g}"
        )

    def sentence(self, trust: Trust) -> str:
        """Return a sentence about the noise that protects the data."""
        return f"Noise: {self.noise} in every cell ({self.mechanism})."

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that JSON stores without loss."""
        return {**plain_record(self, "declared"), "rests_on": list(self.rests_on)}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> DeclaredRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` for a wrong key or type."""
        given = record_fields(cls, "declared", table)
        for name in ("scales", "losses"):
            if not isinstance(given[name], Mapping):
                raise ValueError(f"record: {name} = {checks.said(given[name])}: must be a table")
        if not isinstance(given["rests_on"], list | tuple):
            raise ValueError(f"record: rests_on = {checks.said(given['rests_on'])}: must be a list")
        return cls(**given)


# ------------------------------------------------------------------------------ of a mechanism


def check(mechanism: CountMechanism) -> None:
    """Raise ``ValueError`` unless the privacy loss of a mechanism follows from its declarations.

    - Noise must be drawn after the records that it protects, and a user must be in each sum with coefficient
      0 or 1. Then the cost of one sum is the total cost of one draw in each cell that the user changes.
    - A declared cost that is not homogeneous is valid only for single cells. Such a cost is not valid for
      vectors and clipped rewards, because they change many cells by small amounts. Such a cost is also not
      valid for cells that contain several records of one user.
    - A declared noise must have a standard deviation, because releases state it.
    - A declared cost that claims to be homogeneous is tested at the shifts that the query uses.
    - Declared parts cannot be combined with fixed-point sums. Fixed-point arithmetic rounds more cells than
      the bound on the records covers.
    """
    noise, query = mechanism.noise, mechanism.query
    assert noise is not None
    if mechanism.fixed_point or mechanism.release_scales.size:
        raise ValueError(
            f"strategy = {mechanism.strategy!r}, release_scales: a decaying sum under exact noise, and "
            "scales that change, are for noises and queries that this library has derived"
        )
    if not is_declared(noise):
        return
    if mechanism.stated.numerical:
        raise ValueError(
            "stated.numerical = True: must be False for a declared noise, whose costs are summed"
        )
    if not mechanism.strategy.fresh or mechanism.strategy.on_device:
        raise ValueError(
            f"strategy = {mechanism.strategy!r}: a declared noise needs draws by the server that follow "
            "the records that they hide"
        )
    if query.steered or query.stored_only or mechanism.stored:
        raise ValueError("query: group returns, clipped rewards and offline data are for derived noises only")
    for family, scale in zip(query.listed, mechanism.scales.tolist(), strict=True):
        try:  # learners read it in every release, so it must be known before the first user
            noise.std(scale, mechanism.grid(family.name))
        except NotImplementedError:
            raise ValueError(f"noise {noise.name!r}: must define log_mass or std") from None
    if not noise.homogeneous:
        for family in query.listed:
            single = isinstance(family, RecordFamily) and family.over.in_one_cell(query.layout.horizon) == 1
            if not single:
                raise ValueError(
                    f"family {family.name!r}: a user moves many cells, or one cell several times, which a "
                    f"cost that is not homogeneous ({noise.name!r}) does not price"
                )
        return
    power = 1 if noise.norm == "l1" else 2
    for family, scale in zip(query.listed, mechanism.scales.tolist(), strict=True):
        unit = mechanism.grid(family.name) or _CONTINUOUS
        steps = math.ceil(2.0 * family.most(query.layout) * unit)
        if steps > _MOST_SHIFTS:
            raise ValueError(
                f"family {family.name!r}: a cell moves by {steps} units, at most {_MOST_SHIFTS} are "
                "examined; use a coarser grid or a smaller bound"
            )
        one = noise.cost(1.0 / unit, scale)
        for k in range(2, steps + 1):
            if not math.isclose(noise.cost(k / unit, scale), k**power * one, rel_tol=1e-9):
                raise ValueError(
                    f"noise {noise.name!r}: homogeneous = True, but its cost is not at {k} units"
                )


def record_of(mechanism: CountMechanism, words: str) -> DeclaredRecord:
    """Return the privacy record of a mechanism with declared parts.

    words : name of the mechanism.
    """
    noise, query = mechanism.noise, mechanism.query
    assert noise is not None
    scales = dict(zip(query.row_families, mechanism.scales.tolist(), strict=True))
    linear = noise.norm == "l1"
    costs = {
        family.name: price(noise, scales[family.name], mechanism.grid(family.name)) for family in query.listed
    }

    def loss(held: Mapping[str, Cost]) -> float:
        found = query.price({name: held.get(name, _free) for name in costs}, squares=not linear)
        return query.episodes * (found if linear else math.sqrt(found))

    return DeclaredRecord(
        words,
        f"declared {noise.name}" if is_declared(noise) else noise.record_name(mechanism.reward_grid),
        noise.norm,
        scales,
        {name: loss({name: cost}) for name, cost in costs.items()},
        loss(costs),
        mechanism.levels,
        (*noise.rests_on, *query.rests_on),
    )


def _free(change: float) -> float:
    return 0.0


def price(noise: AdditiveNoise, scale: float, unit: int | None) -> Cost:
    """Return the price function of a noise: the largest cost of a coordinate that changes by at most x.

    For a declared noise on a grid, the price is the largest cost of all multiples of 1 / ``unit`` up to x.
    Without a grid (``unit`` None, in simulations), the price is the largest of the costs at 1 021 fractions
    of x and at multiples of 1 / 1024. For a homogeneous cost, one shift determines the price. The returned
    function raises ``ValueError`` if a cost is negative or not finite, or if there are more than 65 536
    multiples up to x.
    """
    if not is_declared(noise):
        return lambda shift: noise.cost(shift, scale)
    step, power = 1.0 / (unit or _CONTINUOUS), 1 if noise.norm == "l1" else 2

    def worst(shift: float) -> float:
        number = math.ceil(shift / step - _NEAR)
        if noise.homogeneous:
            shifts, factor = [step], (shift / step) ** power
        elif number > _MOST_SHIFTS:
            raise ValueError(f"noise {noise.name!r}: a cell moves by {number} units, at most {_MOST_SHIFTS}")
        else:
            shifts, factor = [k * step for k in range(1, number + 1)], 1.0
            shifts += [] if unit else [shift * k / 1021 for k in range(1, 1022)]
        costs = [float(noise.cost(one, scale)) for one in shifts]
        if not all(math.isfinite(cost) and cost >= 0.0 for cost in costs):
            raise ValueError(f"noise {noise.name!r}: cost must be finite and not negative at every shift")
        return max(costs, default=0.0) * factor

    return worst
