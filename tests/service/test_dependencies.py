"""Packages of the service: a missing one is named as it is installed."""

import pytest

from discreet.service import dependencies


def test_missing_packages_are_named_as_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "find_spec", lambda name: None if "prom" in name else object())
    with pytest.raises(ValueError, match=r"needs prometheus-client: pip install 'discreet\[serve\]'"):
        dependencies.check_installed()
    monkeypatch.setattr(dependencies, "find_spec", lambda name: object())
    dependencies.check_installed()
