"""The operator's page in a real browser: content, updates, a phone, the keyboard, a screen reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from browsing import chromium, tabbed, violations, widths
from serving import a_key, a_study, central
from waiting import wait_until

from discreet.service.server import in_background

pytestmark = pytest.mark.service
TABLES = ["People for whom the next release waits", "The budget of the whole study", "The plan"]
RELEASES = "The newest releases, and the noise in one number of each (standard deviation)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    folder = tmp_path_factory.mktemp("served")
    wide = {"states": 25, "actions": 3, "horizon": 4, "users": 5000}  # wider than a phone
    study = a_study(5000, world=wide, name="a walking programme with a name that is long enough to be broken")
    with in_background(study, folder / "a.db", a_key(folder)) as found:
        yield found


@pytest.fixture(params=[1280, 375], ids=["desk", "phone"])
def page(browser: Any, served: tuple[str, Any], request: pytest.FixtureRequest) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": request.param, "height": 720})
    found = context.new_page()
    found.wrong = []
    found.on("console", lambda one: found.wrong.append(one.text) if one.type == "error" else None)
    found.on("pageerror", lambda error: found.wrong.append(str(error)))
    found.clock.install()
    found.goto(served[0])
    yield found
    context.close()


def a_person(service: Any, http: Any) -> None:
    """One more takes part, and the release after her is made."""
    ticket = service.store.new_tickets(1)[0]
    answers = list[Any]()
    wait_until(
        lambda: answers.append(http.post("/places", data={"ticket": ticket})) or answers[-1].status == 201,
        lambda: answers[-1].text(),
    )
    answer = answers[-1]
    message = central(ticket, answer.json()["plan"], int(ticket.encode().hex(), 16) % 2**128)
    assert http.post("/messages", data=message).status == 202


def test_what_it_says(page: Any, served: tuple[str, Any]) -> None:
    headings = page.get_by_role("heading").all_inner_texts()
    assert headings[1:] == [
        "People", "What is promised", "Who sees what", "What the policy does now", "Releases",
        "What no noise hides",
    ]  # fmt: skip
    assert page.title() == f"{headings[0]}: study"
    text = page.inner_text("main")
    assert "of 5,000 people have taken part" in text
    assert served[1].study.guarantee.statement in text
    assert page.get_by_role("status").first.inner_text() == ""
    assert page.locator("#state").inner_text() == "Working. People can take part."
    for link in page.get_by_role("link").all():
        assert page.request.get(served[0] + link.get_attribute("href")).status == 200
    assert page.wrong == []


def test_a_phone_needs_no_sideways_scrolling(page: Any) -> None:
    shown, window = widths(page)
    assert shown <= window
    scrolled = (
        "() => [...document.querySelectorAll('.table')].some((one) => one.scrollWidth > one.clientWidth)"
    )
    assert page.evaluate(scrolled)  # the wide tables scroll by themselves
    button = page.get_by_role("button", name="Stop updates").bounding_box()
    assert button["height"] >= 24  # WCAG 2.2, 2.5.8


def test_the_keyboard_reaches_all_in_order_and_focus_is_seen(page: Any) -> None:
    found = tabbed(page)
    assert [one["name"] for one in found] == [
        "Stop updates", *TABLES, RELEASES, "The statement", "the plan", "the interface",
    ]  # fmt: skip
    assert all(one["outline"] >= 2 and one["seen"] for one in found), found
    wide = page.get_by_role("region", name="The plan")
    wide.focus()
    page.keyboard.press("ArrowRight")
    page.clock.run_for(1000)
    page.wait_for_function("() => document.activeElement.scrollLeft > 0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Any, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    assert violations(page) == []


def test_what_a_screen_reader_is_told(page: Any) -> None:
    assert page.locator("html").get_attribute("lang") == "en"
    assert [page.get_by_role(one).count() for one in ("banner", "main", "contentinfo")] == [1, 1, 1]
    for name in (*TABLES, RELEASES):
        table = page.get_by_role("region", name=name).get_by_role("table")
        heads = table.get_by_role("columnheader").all_inner_texts()
        assert len(heads) > 1
        assert all(heads)
        rows = table.get_by_role("row").all()[1:]
        assert rows
        assert all(row.get_by_role("rowheader").count() == 1 for row in rows)
    assert page.get_by_role("progressbar", name="people who have taken part").count() == 1


def test_it_is_live_keeps_focus_and_can_be_stopped(page: Any, served: tuple[str, Any]) -> None:
    url, service = served
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    http = page.context.browser.new_context(base_url=url).request
    wide = page.get_by_role("region", name="The plan")
    wide.focus()
    people = page.locator("#people > p")
    before = people.inner_text()
    a_person(service, http)
    page.clock.run_for(10_000)
    page.wait_for_function("(old) => document.querySelector('#people > p').innerText !== old", arg=before)
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "The plan"
    page.get_by_role("button", name="Stop updates").click()
    count = len(asked)
    page.clock.run_for(60_000)
    assert len(asked) == count
    page.get_by_role("button", name="Update again").click()
    page.wait_for_function("() => document.getElementById('live').textContent === 'Stop updates'")
    until = time.monotonic() + 10
    while len(asked) == count:
        assert time.monotonic() < until
        page.wait_for_timeout(20)
    assert set(asked) == {url + "/"}
    page.route("**/*", lambda route: route.abort())
    page.clock.run_for(10_000)
    page.get_by_text("The service does not answer").wait_for()
    page.wrong.clear()


def test_without_scripts_it_says_the_same(browser: Any, served: tuple[str, Any]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(served[0])
    assert "people have taken part" in page.inner_text("main")
    assert page.get_by_role("button").count() == 0
    context.close()
