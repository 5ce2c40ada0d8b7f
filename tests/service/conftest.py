"""Fixtures of the service: no late requests, no waiting for the disk, a service without a server."""

from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from late_requests import requests_are_never_late  # noqa: F401 - a fixture for all tests of this folder


@pytest.fixture(autouse=True)
def _nobody_waits_for_the_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tests of whole services have the database as operators have it."""
    if find_spec("sqlalchemy") and request.node.get_closest_marker("service") is None:
        from discreet.service import database

        monkeypatch.setattr(database, "_SYNCHRONOUS", "OFF")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Any]:
    """A service that runs in no server: nothing happens until it is asked for."""
    from serving import a_key, a_study, begun

    from discreet.service.app import Service

    study = a_study(40)
    with closing(begun(study, tmp_path / "a.db")) as store:
        made = Service(study, store, a_key(tmp_path))
        made.refresh()
        yield made
