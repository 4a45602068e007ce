"""A picture of a report as a browser shows it.

  python -m tests.browser.screenshot --report=runs/toy/report.html --output=docs/images/report.png

--whole: the page from top to bottom; by default what the window shows at first.
"""

import base64
import pathlib
import time
from typing import Any

from absl import flags

from tests.browser import chromium
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib

SETTLED = 1.0  # seconds after which figures that came near the screen are drawn


def take(
    report: pathlib.Path, width: int, height: int, dark: bool = False, whole: bool = False
) -> bytes:
    """The content of a PNG file."""
    if reason := chromium.missing():
        raise errors.UserError(reason)
    with chromium.started(width, height, dark) as driver:
        driver.get(report.resolve().as_uri())
        time.sleep(SETTLED)
        options: dict[str, Any] = {"format": "png"}
        if whole:
            bottom = driver.execute_script("return document.documentElement.scrollHeight")
            for top in range(0, bottom, height // 2):  # figures are drawn as they come near
                driver.execute_script("scrollTo(0, arguments[0])", top)
                time.sleep(SETTLED / 4)
            driver.execute_script("scrollTo(0, 0)")
            bottom = driver.execute_script("return document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": width, "height": bottom, "scale": 1}
            options |= {"captureBeyondViewport": True, "clip": clip}
        found = driver.execute_cdp_cmd("Page.captureScreenshot", options)
        return base64.b64decode(found["data"])


def main() -> None:
    """Writes the picture."""
    content = take(
        files.local_path(_REPORT.value), _WIDTH.value, _HEIGHT.value, _DARK.value, _WHOLE.value
    )
    files.write(files.local_path(_OUTPUT.value), content)


if __name__ == "__main__":
    _REPORT = flags.DEFINE_string("report", None, "A report.html.", required=True)
    _OUTPUT = flags.DEFINE_string("output", None, "The PNG file to write.", required=True)
    _WIDTH = flags.DEFINE_integer("width", 1280, "Of the page, in CSS pixels.")
    _HEIGHT = flags.DEFINE_integer("height", 900, "Of the window, in CSS pixels.")
    _DARK = flags.DEFINE_boolean("dark", False, "In dark colours.")
    _WHOLE = flags.DEFINE_boolean("whole", False, "The page from top to bottom.")
    flags_lib.run(main)
