"""Chromium without a screen, as Debian packages it, driven by its own driver."""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator

from selenium import webdriver
from selenium.webdriver.chrome import options as options_lib
from selenium.webdriver.chrome import service as service_lib

BROWSER, DRIVER = pathlib.Path("/usr/bin/chromium"), pathlib.Path("/usr/bin/chromedriver")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)


def missing() -> str:
    """Why no browser can be started; "" if one can."""
    lacking = [str(path) for path in (BROWSER, DRIVER) if not path.exists()]
    return f"{' and '.join(lacking)} not there: apt-get install chromium-driver" if lacking else ""


@contextlib.contextmanager
def started(
    width: int = 1280, height: int = 900, dark: bool = False, downloads: pathlib.Path | None = None
) -> Iterator[webdriver.Chrome]:
    """A browser with an empty profile and a window whose page is of a size in CSS pixels."""
    options = options_lib.Options()
    options.binary_location = str(BROWSER)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        if downloads:
            options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        driver = webdriver.Chrome(options=options, service=service_lib.Service(str(DRIVER)))
        try:
            # The window itself has a least width; what is emulated has none.
            driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
            )
            set_scheme(driver, dark)
            yield driver
        finally:
            driver.quit()


def set_scheme(driver: webdriver.Chrome, dark: bool, media: str = "") -> None:
    """Sets the preferred colour scheme and the medium of pages: screen, or "print"."""
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
