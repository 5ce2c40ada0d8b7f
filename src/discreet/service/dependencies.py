"""Check that the packages of the extra ``serve`` are installed. The error names missing packages."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["PACKAGES", "check_installed"]

PACKAGES = ("fastapi", "uvicorn", "sqlalchemy", "httpx", "prometheus_client", "cryptography")


def check_installed() -> None:
    """Raise ``ValueError`` if a package that the service needs is not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ValueError(
            f"the service needs {', '.join(missing).replace('_', '-')}: pip install 'discreet[serve]'"
        )
