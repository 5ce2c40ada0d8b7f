"""Ranges in which the options of a learner are searched (:mod:`discreet.experiments.tuning`).

A number is searched if :data:`RANGES` or the learner's class has a range for it, such as ``SEARCH = {"rate":
(0.01, 1.0)}``. An option with a list of values (``true or false``, ``'lp' or 'raw'``) is searched over this
list. :data:`NOT_SEARCHED` lists the options that are searched only if the user names them.
"""

from __future__ import annotations

import hashlib
import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from discreet import registry


@dataclass(frozen=True)
class Range:
    """Range of an option: the values of a list, or the numbers of an interval.

    Parameters
    ----------
    values : the list, in which all values are equally likely; empty for an interval.
    low, high : the ends of the interval.
    log : if True, the logarithm of the number is uniform; if False, the number itself.
    whole : if True, the number is rounded to an integer.

    Raises
    ------
    ValueError
        If the interval is empty or not finite, or if ``log`` is True and ``low`` is not above 0.
    """

    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if self.values:
            return
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low, high = {self.low!r}, {self.high!r}: must be two numbers with low < high")
        if self.log and self.low <= 0.0:
            raise ValueError(f"low = {self.low!r}: must be above 0 if log is True")

    def __str__(self) -> str:
        if self.values:
            return ", ".join(
                str(value).lower() if value in (True, False) else str(value) for value in self.values
            )
        return f"{self.low:g} to {self.high:g}, {'log-uniform' if self.log else 'uniform'}"

    def at(self, place: float) -> Any:
        """Return the value at a position in [0, 1) of the range."""
        if self.values:
            return self.values[int(place * len(self.values))]
        if self.log:
            number = self.low * (self.high / self.low) ** place
        else:
            number = self.low + (self.high - self.low) * place
        return round(number) if self.whole else float(f"{number:.4g}")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that describe the range."""
        if self.values:
            return {"values": list(self.values)}
        return {name: value for name, value in asdict(self).items() if name != "values"}


def _scale(low: float, high: float) -> Range:
    return Range(low=low, high=high, log=True)


# Scales are log-uniform; shares and weights in [0, 1] are uniform. LEARNER.OPTION applies to only one
# learner. The intervals include the defaults and the grids of benchmarks/studies/tuning.py and
# tuning_papers.py.
RANGES: Mapping[str, Range] = {
    "bonus_scale": _scale(0.003, 3.0),  # 1 is the papers' bonus, 0.03 is usual
    "priv_scale": _scale(1e-4, 1.0),  # 1 is the papers' privacy terms, 0.003 is usual
    "noise-aware.stat_scale": _scale(0.01, 1.0),  # this learner has no bonus_scale
    "noise-aware.explore_share": Range(low=0.0, high=0.2),
    "linear-bandit.explore_share": Range(low=0.0, high=1.0),
    "thompson_scale": _scale(0.1, 3.0),  # posterior standard deviations
    "excess": Range(low=1.0, high=8.0),  # standard deviations
    "alpha": _scale(0.1, 10.0),  # 2 is the papers' factor
    "eta": _scale(0.001, 1.0),
    "floor_scale": _scale(0.01, 1.0),  # 1 is the paper's factor
    "width_scale": _scale(0.001, 1.0),  # 1 is the proven width
    "prior_visits": _scale(0.001, 10.0),
    "prior_rewards": _scale(0.01, 3.0),
    "prior_value": Range(low=0.0, high=1.0),
    "noise_const": _scale(1e-4, 1.0),
    "samples": Range(values=(1, 2, 4, 8, 16)),
    "width": _scale(0.03, 3.0),  # standard deviations
    "wide": _scale(0.1, 5.0),  # standard deviations
    "wide_share": Range(low=0.0, high=0.3),
    "rate": _scale(0.05, 1.0),
    "step": _scale(0.5, 100.0),
    "damping": _scale(0.5, 100.0),
    "dp-pg.shrink": Range(low=0.0, high=0.2),
    "dp-npg.shrink": Range(low=0.0, high=0.2),
    "lam": _scale(0.1, 10.0),  # 1 is the papers' ridge
    "ridge": _scale(0.01, 2.0),  # 1 is the edge of the noise's spectrum
}

_QUERY = "changes the sums that are released, or the shares of the budget"
_TIMES = "changes the public times of releases"
_TOLD = "tells the learner a fact about the environment"
_SAME = "acts on the same terms as another option that is searched"
NOT_SEARCHED: Mapping[str, str] = {
    **dict.fromkeys(("derive_visits", "center_rewards", "pooled", "explore", "forget", "truncate"), _QUERY),
    "bound": _QUERY,
    **dict.fromkeys(("targets", "centre", "span", "response", "over_steps", "reward_form"), _QUERY),
    **dict.fromkeys(("stages", "switching", "batches", "batch_growth", "growth", "first"), _TIMES),
    **dict.fromkeys(("known_rewards", "stationary"), _TOLD),
    **dict.fromkeys(("constants", "E_mode", "beta"), _SAME),
    **dict.fromkeys(("form", "missing_mass"), "acts on raw counts only"),
    "tie_break": "the first action must not win because of its number",
    "preset": "a preset is another learner",
}


def search_space(
    learner: str, given: Iterable[str] = (), search: Mapping[str, Any] | None = None
) -> dict[str, Range]:
    """Return the range of each option that a tuning searches, by name of the option.

    Parameters
    ----------
    learner : name in the registry.
    given : options that the user has set, which are not searched.
    search : options that are searched in addition, or in other ranges. A value is a :class:`Range`, a pair of
        numbers (log-uniform if the first is above 0), a list of values, a string such as ``0.01:1`` or
        ``lp,raw``, or None for the default range.

    Raises
    ------
    ValueError
        If an option is unknown, is both given and searched, or has no range, or if no option is left.
    """
    takes = registry.options_of(registry.entry("learner", learner).factory())
    usual, fixed = usual_space(learner), {*given}
    own: dict[str, Range] = {}
    for name, value in (search or {}).items():
        if name not in takes or name == "preset" or name in registry.entry("learner", learner).fixed:
            known = ", ".join(one for one in takes if one != "preset")
            raise ValueError(f"search = {name!r}: must be an option of {learner}: {known}")
        if name in fixed:
            raise ValueError(f"search = {name!r}: must not be an option that is given a value, too")
        annotation = takes[name].annotation
        where = _usual(learner, name, annotation) if value is None else _range(name, value, annotation)
        if where is None:
            raise ValueError(f"search = {name!r}: must have a range, such as {name}=0.01:1 or {name}=1,2")
        own[name] = where
    space = {name: own.get(name, usual.get(name)) for name in takes if name not in fixed}
    found = {name: where for name, where in space.items() if where is not None}
    if not found:
        raise ValueError(
            f"learner = {learner!r}: has no option that can be searched; name one in search, with its range"
        )
    return found


def usual_space(learner: str) -> dict[str, Range]:
    """Return the ranges of the options that are searched by default.

    learner : name in the registry.
    """
    found = registry.entry("learner", learner)
    factory = found.factory()
    hidden = {*found.fixed, *getattr(factory, "REFUSES", ()), *NOT_SEARCHED}
    space = {
        name: _usual(learner, name, option.annotation)
        for name, option in registry.options_of(factory).items()
        if name not in hidden
    }
    return {name: where for name, where in space.items() if where is not None}


def _usual(learner: str, name: str, annotation: Any) -> Range | None:
    """Return the default range of an option; None if there is none."""
    declared = getattr(registry.entry("learner", learner).factory(), "SEARCH", {})
    if name in declared:
        return _range(name, declared[name], annotation)
    known = RANGES.get(f"{learner}.{name}", RANGES.get(name))
    if known is not None:
        return known
    values: tuple[Any, ...] = ()
    for member in (annotation, *typing.get_args(annotation)):
        if member is bool:
            values = (False, True)
        elif typing.get_origin(member) is Literal:
            values = tuple(value for value in typing.get_args(member) if value is not None)
    alone = not {int, float} & {annotation, *typing.get_args(annotation)}  # a number has no list of values
    return Range(values) if len(values) > 1 and alone else None


def _range(name: str, value: Any, annotation: Any) -> Range:
    """Return the range of an option from the notation of a user or of a learner's class."""
    if isinstance(value, Range):
        return value
    members = {annotation, *typing.get_args(annotation)}
    whole = int in members and float not in members
    parts: Any = value
    if isinstance(value, str):
        low, colon, high = value.partition(":")
        parts = value.split(",")
        if colon:
            parts = tuple(registry.coerce(f"search {name}", end, float) for end in (low, high))
    pair = isinstance(parts, tuple) and len(parts) == 2 and {*map(type, parts)} <= {int, float}
    try:
        if pair:
            least, most = float(parts[0]), float(parts[1])
            return Range(low=least, high=most, log=least > 0.0, whole=whole)
        return Range(tuple(registry.coerce(f"search {name}", part, annotation) for part in parts))
    except (TypeError, ValueError) as error:
        raise ValueError(f"search = {name}={value!r}: must be a range of {name}: {error}") from None


def draw(space: Mapping[str, Range], seed: int, trial: int, attempt: int = 0) -> dict[str, Any]:
    """Return the options of one trial.

    Each option is drawn with probability 1/2, and otherwise keeps its default. If no option would be drawn,
    all options are drawn.

    Parameters
    ----------
    space : ranges by name of the option.
    seed : seed of the tuning.
    trial : number of the trial.
    attempt : number of rejected draws for this trial.
    """

    def place(name: str, what: str) -> float:
        text = f"tune {seed} {trial} {attempt} {name} {what}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2.0**48

    drawn = [name for name in space if place(name, "drawn") < 0.5] or [*space]
    return {name: space[name].at(place(name, "value")) for name in drawn}
