"""A picture of a report as a browser shows it.

  python -m tests.browser.screenshot --report=runs/multi30k/report.html --width=830 \
      --element='#effects figure' --output=docs/images/report.png

By default, the picture shows what the window shows at first. With --whole, it shows the page from
top to bottom; with --element, the first element that a CSS selector matches.
"""

import base64
import pathlib
import time
from typing import Any

from absl import flags

from tests.browser import chromium
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib

SETTLED = 2.0  # seconds after which all figures are drawn
BOX = """
const {x, y, width, height} = document.querySelector(arguments[0]).getBoundingClientRect();
return {x: Math.max(x - 16, 0), y: Math.max(y - 8, 0), width: width + 32, height: height + 16};
"""


def take(
    report: pathlib.Path,
    width: int,
    height: int,
    dark: bool = False,
    whole: bool = False,
    element: str = "",
) -> bytes:
    """Returns the content of a PNG file."""
    if reason := chromium.missing():
        raise errors.UserError(reason)
    with chromium.started(width, height, dark) as driver:
        driver.get(report.resolve().as_uri())
        time.sleep(SETTLED)
        options: dict[str, Any] = {"format": "png"}
        if whole or element:
            box = driver.execute_script(BOX, element or "html")
            options |= {"captureBeyondViewport": True, "clip": {**box, "scale": 1}}
        found = driver.execute_cdp_cmd("Page.captureScreenshot", options)
        return base64.b64decode(found["data"])


def main() -> None:
    """Writes the picture."""
    content = take(
        files.local_path(_REPORT.value),
        _WIDTH.value,
        _HEIGHT.value,
        _DARK.value,
        _WHOLE.value,
        _ELEMENT.value,
    )
    files.write(files.local_path(_OUTPUT.value), content)


if __name__ == "__main__":
    _REPORT = flags.DEFINE_string("report", None, "A report.html.", required=True)
    _OUTPUT = flags.DEFINE_string("output", None, "The PNG file to write.", required=True)
    _WIDTH = flags.DEFINE_integer("width", 1280, "Of the page, in CSS pixels.")
    _HEIGHT = flags.DEFINE_integer("height", 900, "Of the window, in CSS pixels.")
    _DARK = flags.DEFINE_boolean("dark", False, "In dark colours.")
    _ELEMENT = flags.DEFINE_string("element", "", "The CSS selector of an element to show.")
    _WHOLE = flags.DEFINE_boolean("whole", False, "The page from top to bottom.")
    flags_lib.run(main)
