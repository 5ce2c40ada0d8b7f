"""The example page in a real browser: its visitors are learned from, and nothing but the message leaves."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsing import chromium, tabbed, violations, widths
from serving import a_key
from waiting import wait_until

from discreet.device.randomized_response_device import ReportDevice
from discreet.service.encoding import policy_of
from discreet.service.server import in_background
from discreet.service.study_config import read_study

pytestmark = pytest.mark.service
EXAMPLE = Path(__file__).parents[2] / "clients" / "js" / "example"


def demo() -> Any:
    spec = importlib.util.spec_from_file_location("js_demo", EXAMPLE / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any, list[str], str]]:
    """(the service's address, it, addresses of visits, the page's origin)."""
    folder, example = tmp_path_factory.mktemp("example"), demo()
    with example.files(0) as page:
        study = replace(read_study(EXAMPLE / "study.toml"), folder=folder, origins=(page,))
        key = a_key(folder)
        with in_background(study, folder / "a.db", key) as (url, service):
            tickets = service.store.new_tickets(20)
            yield url, service, example.addresses(page, url, key.public, study, tickets), page


def visited(page: Any, address: str, answers: str = "yyny") -> None:
    page.goto(address)
    for number, one in enumerate(answers, 1):
        page.get_by_role("heading", name=f"{number} of {len(answers)}").wait_for()
        page.get_by_role("button", name="I like it" if one == "y" else "Rather not").click()
    page.get_by_text("Your message was taken").wait_for()


def test_nothing_but_the_message_leaves(browser: Any, visits: tuple[str, Any, list[str], str]) -> None:
    url, service, addresses, origin = visits
    context = browser.new_context()
    page, asked, wrong = context.new_page(), list[Any](), list[str]()
    page.on("request", lambda one: None if one.url == "data:," else asked.append(one))
    page.on("websocket", lambda one: wrong.append(one.url))
    page.on("console", lambda one: wrong.append(one.text) if one.type == "error" else None)
    visited(page, addresses[0])
    page.wait_for_timeout(300)  # what a page might send late
    assert wrong == []
    ticket = addresses[0].rpartition("ticket=")[2]
    files = [one for one in asked if one.url.startswith(origin) and one.method == "GET"]
    assert all(one.post_data is None and "?" not in one.url for one in files)
    assert all(ticket not in one.url for one in files if one.resource_type != "document")
    to_service = [(one.method, one.url.removeprefix(url), one.post_data) for one in asked if one not in files]
    gets = [path for method, path, content in to_service if method == "GET" and content is None]
    assert set(gets) == {"/plan"}
    posts = [(path, json.loads(content)) for method, path, content in to_service if method == "POST"]
    assert len(gets) + len(posts) == len(to_service)
    assert [path for path, _ in posts] == ["/places", "/messages"]
    assert posts[0][1] == {"ticket": ticket}
    assert posts[1][1].keys() == {"ticket", "message"}
    device = service.admission._device
    assert isinstance(device, ReportDevice)
    message = base64.b64decode(posts[1][1]["message"])
    nonce, reports = device.read(1, message, device.policy_rows(policy_of(json.loads(
        service.store.policies(0)[0]["policy"]))) is None)  # fmt: skip
    assert len(nonce) == 16
    assert (
        len(reports) == device.form.steps < device.form.horizon
    )  # some steps, randomized; of the others nothing
    for one in asked:
        headers = one.all_headers()
        assert not {"cookie", "referer", "authorization"} & set(headers)
    assert context.cookies() == []
    assert page.evaluate("async () => [localStorage.length, (await caches.keys()).length]") == [0, 0]
    assert json.dumps(posts[1][1], indent=1) == page.inner_text("#sent")
    context.close()


def test_visitors_are_learned_from(browser: Any, visits: tuple[str, Any, list[str], str]) -> None:
    _, service, addresses, _ = visits
    context = browser.new_context()
    page = context.new_page()
    turn = int(service.store.about()["turn"])
    for address in addresses[1:7]:
        visited(page, address, "nynn")
        page.goto("about:blank")
    wait_until(lambda: int(service.store.about()["turn"]) > turn + 1, lambda: service.failed)
    newest = json.loads(service.store.release(int(service.store.about()["turn"]))[0])
    assert newest["users"] >= 4
    assert service.writer.refused == 0
    context.close()


def test_a_ticket_that_was_used_a_wrong_promise_and_a_bare_address(
    browser: Any, visits: tuple[str, Any, list[str], str]
) -> None:
    _, _, addresses, _ = visits
    context = browser.new_context()
    page, sent = context.new_page(), list[str]()
    page.on("request", lambda one: sent.append(one.url) if one.method == "POST" else None)
    for address, words in (
        (addresses[8].replace("epsilon=4.0", "epsilon=3.9"), "but epsilon = 3.9 was promised"),
        (addresses[8].replace("identity=", "identity=0"), "another study"),
        (addresses[8].partition("&key")[0], "key is missing"),
    ):
        page.goto("about:blank")
        page.goto(address)
        page.get_by_text(words).wait_for()
    assert sent == []
    context.close()


def test_only_declared_origins_may_ask(browser: Any, visits: tuple[str, Any, list[str], str]) -> None:
    url, _, addresses, origin = visits
    context = browser.new_context()
    page = context.new_page()
    answer = page.request.get(url + "/plan", headers={"Origin": origin})
    assert answer.headers["access-control-allow-origin"] == origin
    assert "access-control-allow-credentials" not in answer.headers
    for other in ("http://other.example", "null", origin + "0"):
        assert (
            "access-control-allow-origin"
            not in page.request.get(url + "/plan", headers={"Origin": other}).headers
        )
    asks = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    allowed = page.request.fetch(
        url + "/messages",
        method="OPTIONS",
        headers={**asks, "Access-Control-Request-Headers": "content-type"},
    )
    assert allowed.status == 200
    token = page.request.fetch(
        url + "/tickets",
        method="OPTIONS",
        headers={**asks, "Access-Control-Request-Headers": "authorization"},
    )
    assert token.status == 400  # no page of a browser is an operator
    with (
        demo().files(0) as elsewhere,
        page.expect_console_message(lambda one: "blocked by CORS policy" in one.text),
    ):
        page.goto(addresses[9].replace(origin, elsewhere))
    context.close()


@pytest.mark.parametrize("width", [1280, 375])
def test_keyboard_phone_and_screen_reader(
    browser: Any, visits: tuple[str, Any, list[str], str], width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 720})
    page = context.new_page()
    page.goto(visits[2][10 + (width == 375)])
    page.get_by_role("heading", name="1 of 4").wait_for()
    assert violations(page) == []
    assert page.evaluate("() => document.activeElement.id") == "question"  # each new question is read out
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="2 of 4").wait_for()
    names = [one["name"] for one in tabbed(page)]
    assert names == ["I like it", "Rather not", "The message"]
    assert all(one["outline"] >= 2 and one["seen"] for one in tabbed(page))
    for number in (2, 3, 4):
        page.get_by_role("heading", name=f"{number} of 4").wait_for()
        page.get_by_role("button", name="Rather not").press("Enter")
    page.get_by_role("status").filter(has_text="was taken").wait_for()
    assert violations(page) == []
    shown, window = widths(page)
    assert shown <= window
    context.close()
