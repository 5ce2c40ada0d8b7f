"""No request is late because the machine is busy.

Limits of seconds are for people and broken networks. Tests that are about a limit set a short one themselves.
"""

from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from waiting import LIMIT


@pytest.fixture(scope="session", autouse=True)
def _requests_are_never_late() -> Iterator[None]:
    if not (find_spec("httpx") and find_spec("fastapi")):
        yield
        return
    import httpx

    from discreet.device.http_client import Client
    from discreet.service import app

    with pytest.MonkeyPatch.context() as patch:
        for call in (httpx.Client.__init__, httpx.AsyncClient.__init__, httpx.get, httpx.post):
            patch.setitem(call.__kwdefaults__, "timeout", httpx.Timeout(LIMIT))
        patch.setitem(Client.__init__.__kwdefaults__, "timeout", LIMIT)
        patch.setattr(app, "BODY_SECONDS", LIMIT)
        yield


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
