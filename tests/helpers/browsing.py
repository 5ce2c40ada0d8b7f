"""Chromium, driven by Playwright: what a page asks for, and what axe finds in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parents[2] / "clients" / "js" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = os.environ.get("DISCREET_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")

_FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  return {
    name: one.getAttribute("aria-label") ?? one.textContent.trim(), tag: one.tagName,
    outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight,
  };
}"""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of this machine; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium (DISCREET_CHROMIUM names one)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def violations(page: Any) -> list[str]:
    """What axe finds: the rule, and where."""
    if not AXE.exists():
        pytest.skip("no axe-core: npm ci in clients/js")
    page.evaluate(AXE.read_text())
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]


def tabbed(page: Any, most: int = 40) -> list[dict[str, Any]]:
    """What has the focus after each press of Tab, from the top to the end of the page."""
    page.evaluate("() => { document.activeElement.blur(); window.scrollTo(0, 0); }")
    found: list[dict[str, Any]] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        one = page.evaluate(_FOCUSED)
        if one["tag"] == "BODY":
            break
        found.append(one)
    return found


def widths(page: Any) -> tuple[int, int]:
    """Of what is shown, and of the window."""
    found = page.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
    return found[0], found[1]
