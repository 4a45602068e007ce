"""A sweep's page: one file that asks nothing of a network, from page.html and its parts."""

import base64
import hashlib
import html
import json
import pathlib
import string
from typing import Any

from plotly import offline

_FOLDER = pathlib.Path(__file__).parent
# What stands before Plotly draws the table; the rest draws figures.
_BEFORE = ("elements", "theme", "table")
_AFTER = ("figures", "plots", "translations", "attention", "downloads")


def html_of(content: Any, translations: Any, attention: Any) -> str:
    """The page.

    Args:
      content: of `content.of_table`.
      translations: of `translations.gather`.
      attention: of `attention.gather`, with its captions.
    """
    content = {
        **content,  # what there is to draw, before it is parsed
        "translated": bool(translations["rows"]),
        "attended": bool(attention["sentences"]),
    }
    before, after = (_scripts(names) for names in (_BEFORE, _AFTER))
    plotly = offline.get_plotlyjs()
    # Only these three scripts run, whatever text the results hold.
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in (before, plotly, after))
    return string.Template((_FOLDER / "page.html").read_text(encoding="utf-8")).substitute(
        allowed=allowed,
        title=html.escape(content["title"]),
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        content=_json(content),
        translations=_json(translations),
        attention=_json(attention),
        before=before,
        plotly=plotly,
        after=after,
    )


def _scripts(names: tuple[str, ...]) -> str:
    parts = [(_FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in names]
    return "\n".join(['"use strict";', *parts])


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(value: Any) -> str:
    """JSON in which nothing ends the script element that holds it: "<" may be an escape."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c")
