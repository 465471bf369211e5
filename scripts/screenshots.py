"""The two pictures of the README, from a run of the demo: `make demo`, then `python scripts/screenshots.py`."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import playwright.sync_api as playwright

import tsnn
from tsnn.bench.serve import running_server

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
SOURCE, EVENTS_A_SECOND = "5", 40


def report(browser: playwright.Browser, run: Path) -> None:
    """The first part of the report: figures, card, learning, what the score is made of, slices."""
    page = browser.new_page(viewport={"width": 1120, "height": 900})
    page.goto((run / "report.html").resolve().as_uri())
    end = page.locator("section", has=page.locator("h2", has_text="Results by slice")).bounding_box()
    whole = {"x": 0, "y": 0, "width": 1120, "height": end["y"] + end["height"] + 18}  # no section is cut through
    page.screenshot(path=IMAGES / "report.png", full_page=True, clip=whole)


def live(browser: playwright.Browser, run: Path) -> None:
    """The page while events come in, a source looked up and one destination opened."""
    with service(run) as url:
        page = browser.new_page(viewport={"width": 1160, "height": 1040})
        page.goto(url)
        clock = tsnn.Predictor.load(run).clock
        stop = threading.Event()
        sender = threading.Thread(target=send, args=(url, clock, stop), daemon=True)
        sender.start()
        page.wait_for_timeout(15_000)  # a stretch of the rate's curve, and of the frame's drift
        stop.set()  # the reasons shall be those of the ranking
        sender.join()
        for _ in range(20):  # the first answer loads the kernels; the tile shows a median
            urllib.request.urlopen(f"{url}/recommend?src={SOURCE}").read()
        page.fill("#src", SOURCE)
        page.click("#go")
        page.click("#ranking li:nth-child(2) .row")
        page.wait_for_selector("#ranking .why li")
        playwright.expect(page.locator("#tail")).not_to_be_empty()  # the tile of the time that the ranking took
        page.locator("h1").click()  # takes the focus ring away
        page.mouse.move(0, 0)
        page.screenshot(path=IMAGES / "page.png", full_page=True)


@contextmanager
def service(run: Path) -> Iterator[str]:
    """`tsnn serve` on a copy of the run, so that the run itself stays as it was trained."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(run, Path(folder) / run.name)
        with running_server(copy) as server:
            yield f"http://127.0.0.1:{server.port}"


def send(url: str, clock: float, stop: threading.Event) -> None:
    """Events of the same generator, later than the run's own, one request each; every eighth is of the source shown."""
    later = tsnn.load("synthetic:roles:seed=1")
    for row in range(later.num_events):
        if stop.wait(1 / EVENTS_A_SECOND):
            return
        clock += 1
        src = int(SOURCE) if row % 8 == 0 else int(later.src[row])
        event = {"src": src, "dst": int(later.dst[row]), "t": clock, "msg": later.msg[row].tolist()}
        body = json.dumps(event).encode()
        request = urllib.request.Request(f"{url}/events", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request).read()


def main() -> None:
    """Draw both, from `runs/demo` or the folder named."""
    run = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "runs" / "demo"
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        report(browser, run)
        live(browser, run)
        browser.close()


if __name__ == "__main__":
    main()
