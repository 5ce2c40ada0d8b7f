"""The service as an ASGI application: alone, inside another application, or several studies in one process.

An application of :func:`asgi` has no global state. If the host runs no lifespan of applications that it
contains, it must start and stop the service itself, with ``async with service.running():``. Addresses are
relative to the root path at which the host mounts the application.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from discreet.service.app import App, Door, Lane, Receive, Scope, Send, Service, application, unknown

__all__ = ["Studies", "asgi", "slugs"]

_SLUG = re.compile(r"[A-Za-z0-9_-]+")


def asgi(service: Service) -> Door:
    """Return the ASGI application of a service."""
    return Door(Lane(service, application(service)))


def slugs(files: list[Path]) -> list[str]:
    """Return the names under which studies are mounted: the names of their files without the ending.

    Raises ``ValueError`` if two names are equal, or a name is not of letters, digits, - and _. Also raised if
    two files are in the same folder, because key and database of a study are in its folder.
    """
    folders = [file.resolve().parent for file in files]
    if len(set(folders)) < len(folders):
        raise ValueError("study files: must be in folders of their own, which hold their keys and databases")
    names = [file.stem for file in files]
    for name in names:
        if not _SLUG.fullmatch(name) or names.count(name) > 1:
            raise ValueError(
                f"study file = {name!r}: must have a name of its own, of letters, digits, - and _, because "
                "the study is served at this address"
            )
    return names


class Studies:
    """ASGI application of several studies. The study ``name`` has the address ``/name``.

    - services : the service of each study, by its name.
    """

    def __init__(self, services: Mapping[str, Service]) -> None:
        self._services = dict(services)
        self._apps: dict[str, App] = {name: asgi(one) for name, one in services.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the lifespan of all studies, or one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        root = scope.get("root_path", "")
        name = scope["path"].removeprefix(root).partition("/")[2].partition("/")[0]
        if name not in self._apps or scope["type"] != "http":
            await unknown()(scope, receive, send)
            return
        await self._apps[name]({**scope, "root_path": f"{root}/{name}"}, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start all services, and stop them at the end."""
        await receive()
        try:
            async with AsyncExitStack() as stack:
                for one in self._services.values():
                    await stack.enter_async_context(one.running())
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": type(error).__name__})
            raise
        await send({"type": "lifespan.shutdown.complete"})
