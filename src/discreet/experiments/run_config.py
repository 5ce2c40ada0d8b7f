"""Configuration of a run as TOML: all settings that are needed to repeat the run.

A configuration contains only names and options; :mod:`discreet.experiments.build_run` builds objects from
them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from discreet.core import checks
from discreet.utils.toml_file import OptionValue, flat_options, read_toml

By = Literal["auto", "episode", "batch"]

MADE_BY = "made_by"
TUNING = "tuning"
_NOT_IDENTITY = ("seeds", "label", "note")
_BUDGET: Mapping[str, Callable[[str, Any], float]] = {
    "epsilon": checks.positive,
    "delta": partial(checks.real, low=0.0, high=1.0, open_high=True),
}


@dataclass(frozen=True)
class RunConfig:
    """Configuration of one learner with one privatizer on one environment, over several seeds.

    Parameters
    ----------
    env, learner, privatizer : str
        Names in the registry (``discreet list``).
    episodes : int
        Number of users K, at least 1.
    seeds, seed : int
        Number of repetitions, and seed of the run. Repetition i derives its random numbers from (seed, i).
    epsilon, delta : float or None
        Privacy budget, for privatizers that need a budget.
    preset : str or None
        Name of a preset, for example "paper" or "code:cz22". A preset is a set of options of the learner and
        the privatizer.
    options, env_options : mapping of str to bool, int, float, str, tuple
        Options of the learner and the privatizer, and options of the environment. If both the learner and the
        privatizer have an option X, its name must be ``learner.X`` or ``privatizer.X``.
    by : "auto", "episode" or "batch"
        Mode of simulation. Batch simulation is much faster than user-by-user simulation, and its results have
        the same distribution.
    plugins : tuple of str
        Modules that are imported first because they register additional names.
    label : str or None
        Name of the run in figures and tables. None: learner, preset and options. The label is not part of the
        identity of the run.
    """

    env: str = "riverswim"
    learner: str = "noise-aware"
    privatizer: str = "none"
    episodes: int = 20_000
    seeds: int = 1
    seed: int = 0
    epsilon: float | None = None
    delta: float | None = None
    preset: str | None = None
    by: By = "auto"
    plugins: tuple[str, ...] = ()
    label: str | None = field(default=None, compare=False)
    env_options: Mapping[str, OptionValue] = field(default_factory=dict)
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("env", "learner", "privatizer"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name} = {value!r}: must be a name (see `discreet list`)")
        if self.preset is not None and not isinstance(self.preset, str):
            raise ValueError(f"preset = {self.preset!r}: must be the name of a preset")
        if self.label is not None:
            check_label(self.label)
        for name in ("episodes", "seeds"):
            object.__setattr__(self, name, checks.integer(name, getattr(self, name), 1))
        object.__setattr__(self, "seed", checks.integer("seed", self.seed, 0))
        for name in ("epsilon", "delta"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _BUDGET[name](name, getattr(self, name)))
        checks.choice("by", self.by, ("auto", "episode", "batch"))
        object.__setattr__(self, "plugins", _names("plugins", self.plugins))
        for name in ("env_options", "options"):
            object.__setattr__(self, name, MappingProxyType(flat_options(name, getattr(self, name))))

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return RunConfig.from_table, (self.to_table(),)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> RunConfig:
        """Build a configuration from a TOML table.

        Raises ``ValueError`` for unknown keys, and for a list where a single value is expected.
        """
        known = {f.name for f in fields(cls)}
        if "form" in table:
            own = list(table.get("own", ()))
            raise ValueError(f"form = {table['form']!r}: must be a run of names: {cannot_repeat(own)}")
        values = {k.replace("-", "_"): value for k, value in table.items() if k not in (MADE_BY, TUNING)}
        for key, value in values.items():
            if key not in known:
                raise ValueError(
                    f"{key!r} is not a setting of a run: must be one of {', '.join(sorted(known))}"
                )
            if isinstance(value, list) and key != "plugins":
                raise ValueError(
                    f"{key} = {value!r}: must be one value (lists are grids, for `discreet sweep`)"
                )
        return cls(**values)

    @classmethod
    def from_toml(cls, path: Path) -> RunConfig:
        """Read a configuration from a file. Raises ``ValueError`` if the file is missing, is not TOML, or is
        not a configuration.
        """
        return cls.from_table(tuned(read_toml(path), path.parent))

    def to_table(self) -> dict[str, Any]:
        """Return the settings as TOML values. Settings that are None or empty are omitted."""
        table: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Mapping):
                value = dict(sorted(value.items()))
            if value is None or (f.name in ("plugins", "options", "env_options") and not value):
                continue
            table[f.name] = value
        return table

    def with_seeds(self, seeds: int) -> RunConfig:
        """Return a copy of this configuration with another number of repetitions."""
        return replace(self, seeds=seeds)

    @property
    def key(self) -> str:
        """Hash of all settings except the number of seeds and the label, as eight hexadecimal digits."""
        return table_key(self.to_table())

    @property
    def name(self) -> str:
        """Name of the run's folder, which ends with :attr:`key`."""
        parts = [self.env, self.learner, self.privatizer]
        if self.epsilon is not None:
            parts.append(f"eps{self.epsilon:g}")
        if self.preset is not None:
            parts.append(self.preset)
        return "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in (*parts, self.key))


def tuned(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a table of settings in which a tuning is replaced by the learner and options of the tuning.

    ``tuning = "FILE"`` in ``table`` names a file of ``discreet tune``. The learner, preset, plug-ins and
    options of this file apply, except for settings that ``table`` has.

    folder : folder in which a relative path begins.

    Raises ``ValueError`` if the file does not describe a tuning, or if the table names another learner.
    """
    own = {key: value for key, value in table.items() if key != TUNING}
    name = table.get(TUNING)
    if name is None or isinstance(name, Mapping):
        return own
    if not isinstance(name, str):
        raise ValueError(f"tuning = {name!r}: must be the path of a file of `discreet tune`")
    there = read_toml(folder / name)
    if not isinstance(there.get(TUNING), Mapping):
        raise ValueError(f"tuning = {name!r}: must be a file of `discreet tune`, with a table tuning")
    if own.get("learner", there["learner"]) != there["learner"]:
        raise ValueError(f"learner = {own['learner']!r}: must be {there['learner']!r}, as in {name}")
    taken: dict[str, Any] = {key: there[key] for key in ("learner", "preset", "plugins") if key in there}
    options = {
        **flat_options("options", there.get("options", {})), **flat_options("options", own.get("options", {}))
    }  # fmt: skip
    return {**taken, **own, "options": options}


def cannot_repeat(own: list[str]) -> str:
    """Return an error text for a run that a file cannot repeat, because parts of it have no registered name.

    - own : names of the parts.
    """
    whose = " and ".join(own) or "a part"
    has = "has" if len(own) < 2 else "have"
    return (
        f"its {whose} {has} no name that a file could hold. Run the script that made it again. Or make the "
        "parts from names: environments by discreet.make(NAME, ...), learners and privatizers of one's own "
        "after discreet.register, from a module that is given as plugin."
    )


def check_label(label: Any) -> str:
    """Return the label unchanged. Raises ``ValueError`` unless the label is one line of text."""
    if not isinstance(label, str) or not label.strip() or "\n" in label:
        raise ValueError(f"label = {label!r}: must be a text of one line, the name in figures and tables")
    return label


def _names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{name} = {value!r}: must be a list of names")
    return tuple(value)


def table_key(table: Mapping[str, Any]) -> str:
    """Return a hash of the identity of a configuration table, as eight hexadecimal digits."""
    text = json.dumps(identity(table), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def identity(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a configuration table on which the result of each seed depends.

    The result is a flat table with dotted keys. It includes the hash of the compiled code if ``table`` has
    it.
    """
    flat = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in _flat(table).items()
        if key not in _NOT_IDENTITY and not key.startswith(f"{MADE_BY}.")
    }
    kernels = table.get(MADE_BY, {}).get("kernels")
    return flat if kernels is None else {**flat, f"{MADE_BY}.kernels": kernels}


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def flattened(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a stored table with flat option names (``learner.X``) instead of nested tables."""
    return {
        key: flat_options(key, value) if key in ("options", "env_options") else value
        for key, value in table.items()
    }


# Reading the metadata of a package takes as long as several releases of a small environment.
_version = cache(version)


def made_by() -> dict[str, str]:
    """Return the versions of this library, Python, NumPy and Numba.

    ``kernels`` is a hash of all compiled sources.
    """
    from discreet.core.compile import kernel_hash
    from discreet.names import __version__

    return {
        "discreet": __version__,
        "kernels": kernel_hash(),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "numba": _version("numba"),
    }


# ------------------------------------------------------------------------------------- TOML
