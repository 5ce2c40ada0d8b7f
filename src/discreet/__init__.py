"""Discreet: differentially private reinforcement learning.

Policies are learned from people's trajectories with a guarantee that can be checked::

    import discreet as dr

    mdp = dr.make("riverswim")
    result = dr.simulate(mdp, dr.DPUCBVI(), dr.Central(epsilon=1.0), episodes=20_000, seeds=10)
    print(result.guarantee, result.final_regret.mean())

Names are loaded when they are first used (PEP 562): importing the package imports nothing else.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.2.0"


def _declared() -> dict[str, str]:
    """Public names to their modules: the lines ``from discreet.MODULE import NAME as NAME`` of the stub."""
    stub = __spec__.loader.get_data(__file__.removesuffix("c") + "i").decode()
    words = (line.split() for line in stub.splitlines() if line.startswith("from discreet."))
    return {name: module.removeprefix("discreet.") for _, module, _, name, *_ in words}


_HOMES = _declared()
_MODULES = ("conformance",)  # that are used whole: dr.conformance.cases("my_module")

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"discreet.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'discreet' has no attribute {name!r}")
    value = getattr(import_module(f"discreet.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
