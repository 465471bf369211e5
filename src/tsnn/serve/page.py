"""The page at `/`: one file, no build step, nothing fetched from elsewhere."""

from __future__ import annotations

from importlib.resources import files

# Inline code only, and answers of this service only: the page works offline and can send nothing away.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def page_html() -> str:
    """The page's text."""
    return files("tsnn.serve").joinpath("static", "page.html").read_text("utf-8")
