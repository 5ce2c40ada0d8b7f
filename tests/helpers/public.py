"""Public names: those of ``discreet`` and of its packages."""

from typing import Any

import discreet as dr

PACKAGES = (
    "accounting", "audit", "data", "device", "envs", "experiments", "learners", "learners.ope", "ledger",
    "mechanisms", "pipeline", "reports", "service",
)  # fmt: skip


def package(name: str) -> Any:
    """Return ``discreet``, or a package by its name without ``discreet.``."""
    found: Any = dr
    for part in name.split(".") if name else ():
        found = getattr(found, part)
    return found


def public() -> dict[str, Any]:
    """Return all public objects but packages: by ``NAME`` at top level, else by ``PACKAGE.NAME``."""
    found: dict[str, Any] = {}
    for one in ("", *PACKAGES):
        for name in package(one).__all__:
            thing = getattr(package(one), name)
            full = f"{one}.{name}".lstrip(".")
            if full not in PACKAGES and name != "__version__" and thing not in found.values():
                found[full] = thing
    return found


PUBLIC = public()
BY_NAME = {full.rpartition(".")[2]: thing for full, thing in PUBLIC.items()}
