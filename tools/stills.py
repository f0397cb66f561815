"""Make the stills of the explorers: what a page shows where nothing runs, of each explorer's start setting.

    make stills                    write them: picture and numbers, as explorer.js draws them in Chromium
    make stills ARGS=--check       change nothing; fail where the module draws, or says, something else now

A still is HTML with a PNG inside. Pixels differ from one Chromium to the next, so what is compared is what the module
makes: the words, the numbers, and the drawing as SVG, of which drawn.json keeps a hash.
"""

import argparse
import base64
import hashlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]

from lab import NoChromiumError, opened_browser  # noqa: E402

from lessonlib.face.widgets.explorer_data import explorer_data  # noqa: E402
from lessonlib.face.widgets.explorer_views import VIEWS  # noqa: E402

ROOM = ROOT / "lessonlib" / "face" / "widgets"
FOLDER = ROOM / "stills"
HASHES = FOLDER / "drawn.json"
COLOURS = 32  # of a PNG's palette: lines and areas of a dozen colours, and their edges
DRAW = """async ([address, data, name]) => {
  window.module ??= await import(address);
  document.body.className = "lesson-explorer";
  document.body.style.cssText = "margin:0;padding:12px;width:720px;background:#fff";
  return document.body.innerHTML = window.module.still(data, name);
}"""
DRAWN = re.compile(r'<div class="drawn">.*?</div>', re.DOTALL)
SAID = re.compile(r'aria-label="(.*?)"')


def address() -> str:
    """The module as an address that a page can import it from, without a server."""
    return "data:text/javascript;base64," + base64.b64encode((ROOM / "explorer.js").read_bytes()).decode()


def open_page(browser: Any) -> Any:
    page = browser.new_page(viewport={"width": 760, "height": 1200}, device_scale_factor=1.25)
    page.set_content("<!doctype html><html lang=en><title>stills</title><body></body></html>")
    style = "body{font-family:sans-serif}.drawn{padding:8px}"
    page.add_style_tag(content=(ROOM / "explorer.css").read_text(encoding="utf-8") + style)
    return page


def png(page: Any) -> str:
    """The picture in the page, as the address of a PNG with few colours."""
    shot = Image.open(io.BytesIO(page.locator(".drawn").screenshot())).convert("RGB")
    stored = io.BytesIO()
    shot.quantize(COLOURS, dither=Image.Dither.NONE).save(stored, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stored.getvalue()).decode()


def drawn(page: Any, data: dict[str, Any], name: str) -> tuple[str, str]:
    """(a hash of all that the module makes of that view's start setting, the still with its picture as PNG)."""
    html = page.evaluate(DRAW, [address(), data, name])
    title = html.partition("<strong>")[2].partition("</strong>")[0]
    image = f'<img src="{png(page)}" alt="{title} {SAID.search(html)[1]}" style="max-width:100%">'
    return hashlib.sha256(html.encode()).hexdigest(), DRAWN.sub(lambda _: image, html)


def without_picture(html: str) -> str:
    before, _, after = html.partition('<img src="')
    return before + after.partition('"')[2]


def problems(page: Any) -> list[str]:
    """What is stored otherwise than the module makes it now."""
    data, hashes = explorer_data(), json.loads(HASHES.read_text(encoding="utf-8"))
    found = []
    for name in VIEWS:
        digest, html = drawn(page, data, name)
        if without_picture((FOLDER / f"{name}.html").read_text(encoding="utf-8")) != without_picture(html) + "\n":
            found.append(f"{name}: other words or numbers; run make stills")
        elif hashes.get(name) != digest:
            found.append(f"{name}: another drawing; run make stills")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the stills of the explorers.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail where one would change")
    options = parser.parse_args()
    try:
        with opened_browser() as browser:
            page = open_page(browser)
            if options.check:
                wrong = problems(page)
                print("\n".join(wrong) or f"{len(VIEWS)} stills are as the module makes them")
                return int(bool(wrong))
            FOLDER.mkdir(exist_ok=True)
            hashes, data = {}, explorer_data()
            for name in VIEWS:
                hashes[name], html = drawn(page, data, name)
                (FOLDER / f"{name}.html").write_text(html + "\n", encoding="utf-8", newline="\n")
                print(f"written stills/{name}.html, {len(html):,} bytes")
            HASHES.write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8", newline="\n")
    except NoChromiumError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
