"""The page in a real browser: it shows what the service answers, fetches nothing from elsewhere, and fits a phone."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import playwright.sync_api as playwright
import pytest
import uvicorn

from tests.serve.runs import as_event, some_events
from tsnn.serve.http import PAGE, build_application
from tsnn.serve.service import Service

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser is installed; apt-get install chromium")


class Site:
    """A service with its page on a port of this machine, with or without a token."""

    def __init__(self, run: Any, token: str | None = None) -> None:
        self.service = Service(run)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        application = build_application(self.service, token=token)
        self._server = uvicorn.Server(uvicorn.Config(application, log_config=None, lifespan="off", ws="none"))
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))
        self._thread.start()

    def observe(self, events: list[dict[str, Any]]) -> None:
        self.service.submit([as_event(event) for event in events]).result(timeout=30)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self.service.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def site(run) -> Iterator[Site]:
    opened = Site(run)
    events = [{**event, "src": "node 4"} for event in some_events(25)]
    opened.observe(events[:15])
    opened.observe(events[15:])  # a second group: the drift of a frame is sampled once for each
    yield opened
    opened.close()


@pytest.fixture
def page(browser) -> Iterator[Any]:
    tab = browser.new_page(viewport={"width": 1160, "height": 820})
    tab.faults, tab.fetched = [], []
    tab.on("pageerror", lambda error: tab.faults.append(str(error)))
    tab.on("request", lambda request: tab.fetched.append(request.url))
    yield tab
    tab.close()


def look_up(page: Any, src: str) -> None:
    page.fill("#src", src)
    page.click("#go")
    page.wait_for_selector("#ranking li", timeout=15_000)
    page.wait_for_selector("#recent tr td", timeout=15_000)


@pytest.mark.slow
def test_a_source_is_looked_up(site, page):
    page.goto(site.url)
    page.wait_for_selector("#status.ok", timeout=15_000)
    look_up(page, "node 4")
    predictor = site.service.predictor
    expected = predictor.recommend("node 4", predictor.question_time(None), 10, edge_type=0)
    assert page.locator("#ranking .name").all_inner_texts() == [str(entry.dst) for entry in expected]
    assert page.locator("#ranking .bar.total:visible").count() == len(expected)
    assert page.locator("#ranking .bar:not(.total):visible").count() == 0
    page.check("#numbers")
    for part in ("geometric", "residual", "edgebank"):
        bars = page.locator(f"#ranking .bar i.{part}").evaluate_all(
            "bars => bars.map(b => [Number(b.dataset.value), b.getBoundingClientRect().width])"
        )
        assert [value for value, _ in bars] == [getattr(entry, part) for entry in expected]
        longest = max(bars, key=lambda bar: abs(bar[0]))
        assert longest[1] == max(width for _, width in bars)
    first_times = page.locator("#recent tbody td:first-child").all_inner_texts()
    assert first_times[0] == str(predictor.clock)
    assert page.locator("#recent tbody tr").count() == len(predictor.recent("node 4", 12))
    assert page.locator("#drift polyline").get_attribute("points").count(",") == 2
    due = predictor.forecast(None, 5, pairs=False).sources
    assert page.locator("#due tbody .link").all_inner_texts() == [str(one.src) for one in due]
    assert page.faults == []
    assert all(url.startswith((site.url, "data:")) for url in page.fetched)


@pytest.mark.slow
def test_a_row_opens_to_its_reasons(site, page):
    page.goto(site.url)
    page.wait_for_selector("#status.ok", timeout=15_000)
    look_up(page, "node 4")
    page.click("#ranking li:first-child .row")
    page.wait_for_selector("#ranking .why li", timeout=15_000)
    predictor = site.service.predictor
    best = predictor.recommend("node 4", predictor.question_time(None), 1, edge_type=0)[0]
    e = predictor.explain("node 4", best.dst, predictor.question_time(None), 0)
    said = page.locator(".why").inner_text()
    assert e.baseline.says in said
    assert page.locator(".why li").count() == len(e.telling)
    for reason in e.telling:
        assert f"{reason.title}: {reason.sentence}" in said
    assert "Distance" not in said
    page.click(".why summary")
    numbers = page.locator(".why").inner_text()
    assert "Distance" in numbers
    for reason in e.reasons:
        assert all(fact.says in numbers and fact.shown in numbers for fact in reason.facts)
    page.click("#ranking li:first-child .row")
    assert page.locator(".why").count() == 0


@pytest.mark.slow
def test_reasons_are_those_of_the_time_of_the_ranking(site, page):
    """An event that comes in between moves the clock, and with it what "now" would be."""
    page.goto(site.url)
    page.wait_for_selector("#status.ok", timeout=15_000)
    look_up(page, "node 4")
    asked = site.service.predictor.question_time(None)
    site.observe(some_events(1, start=site.service.predictor.clock + 1, seed=5))
    assert asked >= site.service.predictor.clock
    page.click("#ranking li:first-child .row")
    page.wait_for_selector("#ranking .why li", timeout=15_000)
    assert f"at {asked:,}" in page.locator(".why").inner_text()


@pytest.mark.slow
def test_a_single_sample_of_drift_is_a_number_not_a_line(run, page):
    site = Site(run)
    try:
        page.goto(site.url)
        page.wait_for_selector("#status.ok", timeout=15_000)
        look_up(page, "node 4")
        playwright.expect(page.locator("#drift-empty")).to_contain_text("so far", timeout=15_000)
        assert page.locator("#drift svg").count() == 0
    finally:
        site.close()


@pytest.mark.slow
def test_figures_follow_the_stream(site, page):
    page.goto(site.url)
    page.wait_for_selector("#status.ok", timeout=15_000)
    before = int(page.locator("#events").inner_text().replace(",", ""))
    site.observe(some_events(40, start=site.service.predictor.clock + 1, seed=9))
    playwright.expect(page.locator("#events")).to_have_text(f"{before + 40:,}", timeout=15_000)
    assert float(page.locator("#rate").inner_text()) > 0


@pytest.mark.slow
def test_an_error_is_shown_as_its_sentence(site, page):
    page.goto(site.url)
    page.wait_for_selector("#status.ok", timeout=15_000)
    page.fill("#src", "node 4")
    page.fill("#at", "1")
    page.click("#go")
    playwright.expect(page.locator("#error")).to_contain_text("before the clock", timeout=15_000)


@pytest.mark.slow
def test_a_phone_shows_all_of_it_without_scrolling_sideways(site, page):
    page.set_viewport_size({"width": 375, "height": 740})
    page.goto(site.url)
    page.wait_for_selector("#status.ok", timeout=15_000)
    look_up(page, "node 4")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    small = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => e.childElementCount === 0 && e.textContent.trim()"
        " && !e.closest('script, style, title, svg') && parseFloat(getComputedStyle(e).fontSize) < 12).length"
    )
    assert small == 0


@pytest.mark.slow
def test_long_names_and_times_stand_apart(site, page):
    """Nothing of a row runs into what is beside it, on a phone either."""
    name = "https://example.org/" + 8 * "a-very-long-path/" + "end"
    site.observe([{**some_events(1, start=site.service.predictor.clock + 1)[0], "src": "node 4", "dst": name}])
    for width in (400, 800, 1600):
        page.set_viewport_size({"width": width, "height": 740})
        page.goto(site.url)
        page.wait_for_selector("#status.ok", timeout=15_000)
        look_up(page, "node 4")
        assert page.locator("#recent tbody tr:first-child").inner_text().split()[2] == "https://…y-long-path/end"
        page.click("#ranking li:first-child .row")
        page.wait_for_selector("#ranking .why li", timeout=15_000)
        page.check("#numbers")
        collisions = page.evaluate(COLLISIONS)
        assert collisions == [], width
        assert page.evaluate("document.documentElement.scrollWidth") <= width


COLLISIONS = """
[...document.querySelectorAll("#recent tr, .row, .why li, .why dl div, .head")].flatMap(row => {
  const cells = [...row.children].map(e => { const r = document.createRange(); r.selectNodeContents(e);
    return [e.textContent, r.getBoundingClientRect()]; }).filter(([text, box]) => text.trim() && box.width);
  return cells.flatMap(([a, x], i) => cells.slice(i + 1).filter(([b, y]) =>
    x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 1 && y.top < x.bottom - 1)
    .map(([b]) => a + " | " + b));
})
"""


@pytest.mark.slow
def test_with_a_token_the_page_asks_for_it(run, page):
    site = Site(run, token="secret")
    try:
        page.goto(site.url)
        page.wait_for_selector("#token", state="visible", timeout=15_000)
        page.fill("#token", "secret")
        page.fill("#src", "node 4")
        page.click("#go")
        page.wait_for_selector("#ranking li", timeout=15_000)
        page.wait_for_selector("#status.ok", timeout=15_000)
    finally:
        site.close()


@pytest.mark.slow
def test_names_are_shown_as_text_never_as_markup(site, page):
    name = "<img src=x onerror=f()>"
    site.observe([{**some_events(1, start=site.service.predictor.clock + 1)[0], "src": "node 4", "dst": name}])
    page.goto(site.url)
    page.wait_for_selector("#status.ok", timeout=15_000)
    look_up(page, "node 4")
    assert name in page.locator("#recent").inner_text()
    time.sleep(0.2)
    assert page.locator("img").count() == 0
    assert page.faults == []


def test_the_page_names_no_other_place():
    text = PAGE.read_text("utf-8")
    assert "http://www.w3.org/2000/svg" in text  # a name, not an address that is fetched
    assert text.count("http://") + text.count("https://") == 1
    assert len(text) < 40_000
