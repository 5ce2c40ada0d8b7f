"""No request is late because the machine is busy.

Limits of seconds are for people and broken networks. Tests that are about a limit set a short one themselves.
"""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from waiting import LIMIT


@pytest.fixture(scope="session", autouse=True)
def requests_are_never_late() -> Iterator[None]:
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
