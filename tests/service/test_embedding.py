"""Two studies in one process, and a service inside another application."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import a_study, begun, central

from discreet.ledger.signatures import new_key, read_private_key
from discreet.service.app import Service
from discreet.service.embedding import Studies, asgi, slugs


def a_service(folder: Path, name: str, stack: ExitStack) -> Service:
    study = a_study(24, people={"answer_within": 500.0}, name=name)
    folder.mkdir(parents=True)
    new_key(folder / "a.key")
    store = stack.enter_context(closing(begun(study, folder / "a.db")))
    return Service(study, store, read_private_key(folder / "a.key", "key"))


def client(app: Any, at: str = "http://here") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=at)


def test_two_studies_in_one_process_do_not_meet(tmp_path: Path) -> None:
    async def run() -> None:
        with ExitStack() as stack:
            services = {one: a_service(tmp_path / one, one, stack) for one in ("ward", "clinic")}
            app = Studies(services)
            async with services["ward"].running(), services["clinic"].running(), client(app) as http:
                plans = {one: (await http.get(f"/{one}/plan")).json()["content"] for one in services}
                assert [plans[one]["study"] for one in services] == ["ward", "clinic"]
                assert plans["ward"]["identity"] != plans["clinic"]["identity"]
                (ticket,) = services["ward"].store.new_tickets(1)
                said = await http.post("/clinic/places", json={"ticket": ticket})
                assert said.status_code == 403  # a ticket of the other study
                plan = (await http.post("/ward/places", json={"ticket": ticket})).json()["plan"]
                message = central(ticket, plan)
                assert (await http.post("/clinic/messages", json=message)).status_code == 403
                assert (await http.post("/ward/messages", json=message)).status_code == 202
                token = services["ward"].store.new_token()
                mine = {"Authorization": f"Bearer {token}"}
                assert (await http.post("/clinic/operator/pause", headers=mine)).status_code == 401
                assert (await http.post("/ward/operator/pause", headers=mine)).status_code == 200
                assert services["ward"].store.standing().paused
                assert not services["clinic"].store.standing().paused
                metrics = [(await http.get(f"/{one}/metrics")).text for one in services]
                assert [text.count('outcome="counted"') for text in metrics] == [1, 0]
                for path in ("/", "/plan", "/other/plan", "/ward"):
                    assert (await http.get(path)).status_code == 404
                page = (await http.get("/ward/")).text
                assert 'href="statement"' in page
                assert 'href="/' not in page

    asyncio.run(run())


def test_the_lifespan_starts_and_stops_all_studies(tmp_path: Path) -> None:
    async def run() -> None:
        with ExitStack() as stack:
            service = a_service(tmp_path / "ward", "ward", stack)
            asked, said = asyncio.Queue[Any](), list[str]()

            async def send(event: Any) -> None:
                said.append(event["type"])
                if event["type"] == "lifespan.startup.complete":
                    assert service.shown[0]
                    await asked.put({"type": "lifespan.shutdown"})

            await asked.put({"type": "lifespan.startup"})
            await Studies({"ward": service})({"type": "lifespan"}, asked.get, send)
            assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
            assert service.writer.token is None

    asyncio.run(run())


@pytest.mark.parametrize("root", ["", "/under/a/root"])
def test_a_service_inside_another_application(tmp_path: Path, root: str) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    async def run() -> None:
        with ExitStack() as stack:
            service = a_service(tmp_path / "ward", "ward", stack)
            host = Starlette(routes=[Mount(root, asgi(service))]) if root else asgi(service)
            async with service.running(), client(host) as http:
                (ticket,) = service.store.new_tickets(1)
                plan = (await http.post(f"{root}/places", json={"ticket": ticket})).json()["plan"]
                assert (await http.post(f"{root}/messages", json=central(ticket, plan))).status_code == 202
                assert (await http.post(f"{root}/messages", json={})).status_code == 400
                assert (await http.get(f"{root}/plan")).status_code == 200
                assert (await http.head(f"{root}/health")).status_code == 200
                described = (await http.get(f"{root}/openapi.json")).json()
                assert "/plan" in described["paths"]
                assert [one["url"] for one in described.get("servers", [])] == ([root] if root else [])
                text = (await http.get(f"{root}/metrics")).text
                assert 'discreet_messages_total{outcome="malformed"} 1.0' in text

    asyncio.run(run())


def test_names_of_studies(tmp_path: Path) -> None:
    a, b = tmp_path / "one" / "ward.toml", tmp_path / "two" / "clinic.toml"
    assert slugs([a, b]) == ["ward", "clinic"]
    with pytest.raises(ValueError, match="must be in folders of their own"):
        slugs([a, a.with_name("clinic.toml")])
    for bad in (b.with_name("ward.toml"), b.with_name("a ward.toml"), b.with_name("..toml")):
        with pytest.raises(ValueError, match="must have a name of its own"):
            slugs([a, bad])
