"""Figures of attention weights: a grid of heat maps with a row per layer and a column per head."""

import io
import math
import warnings
from collections.abc import Sequence

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import font_manager, textpath

from transformer_jax.evaluation import attention_weights

# Lengths are in inches, sizes of fonts in points of 1/72 inch.
PITCH = 0.16  # from one token to the next
FONT, FAMILY = 7.5, "DejaVu Sans"  # Matplotlib includes it
HEADER, MARGIN, TITLE = 0.7, 0.3, 0.3  # above all maps; around each; above a map's labels
SMALLEST_WIDTH = 7.8  # width of the caption
# Dots per inch, reduced where the image would grow too large (a side has at most 2¹⁶).
DPI, MOST_DOTS, LONGEST_SIDE = 120, 60e6, 60_000


def png(maps: attention_weights.Maps) -> bytes:
    """Returns a PNG image with a heat map for each layer and head, with tokens along both axes."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        # Matplotlib draws a box for a character that the font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = _grid(maps)
        width, height = figure.get_size_inches()
        dpi = min(DPI, math.sqrt(MOST_DOTS / (width * height)), LONGEST_SIDE / max(width, height))
        figure.savefig(content, format="png", dpi=dpi)
    return content.getvalue()


def _grid(maps: attention_weights.Maps) -> figure_lib.Figure:
    """Draws the heat maps of all layers and heads below a caption and a colour bar.

    Weights of 0 are white, and weights of 1 are dark blue.
    """
    layers, heads, rows, columns = maps.weights.shape
    width, height = columns * PITCH, rows * PITCH  # a map's; then the space between two
    between, above = _longest(maps.rows) + MARGIN, _longest(maps.columns) + TITLE + MARGIN
    right, bottom = heads * (between + width), HEADER + layers * (above + height)
    full_width = max(MARGIN + right, SMALLEST_WIDTH)
    figure = figure_lib.Figure(figsize=(full_width, bottom))
    places = {
        "left": between / full_width, "right": right / full_width, "wspace": between / width,
        "top": 1 - (HEADER + above - MARGIN) / bottom, "bottom": MARGIN / bottom,
        "hspace": above / height,
    }  # fmt: skip
    panels = figure.subplots(layers, heads, squeeze=False, gridspec_kw=places)
    labels = {"fontsize": FONT, "fontfamily": FAMILY, "parse_math": False}
    for (layer, head), panel in np.ndenumerate(panels):
        panel.imshow(maps.weights[layer, head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_xticks(range(len(maps.columns)), maps.columns, rotation=90, **labels)
        panel.set_yticks(range(len(maps.rows)), maps.rows, **labels)
        panel.tick_params(length=0, pad=2, top=False, labeltop=True, labelbottom=False)
        panel.spines[:].set(color="0.6", linewidth=0.5)
        panel.annotate(
            f"layer {layer + 1}, head {head + 1}", (0, 1), (0, 72 * (above - TITLE - MARGIN) + 4),
            xycoords="axes fraction", textcoords="offset points", fontsize=FONT + 1, weight="bold",
        )  # fmt: skip
    title, reading = attention_weights.CAPTIONS[maps.kind]
    figure.text(MARGIN / full_width, 1 - 0.3 / bottom, title, fontsize=12, weight="bold")
    figure.text(MARGIN / full_width, 1 - 0.5 / bottom, reading, fontsize=8.5)
    scale = figure.add_axes(
        ((full_width - 1.6) / full_width, 1 - 0.4 / bottom, 1.3 / full_width, 0.1 / bottom)
    )
    bar = figure.colorbar(panels[0, 0].images[0], cax=scale, orientation="horizontal")
    bar.set_ticks([0, 0.5, 1], labels=["0", "weight", "1"], fontsize=FONT)
    bar.ax.tick_params(length=0)
    return figure


def _longest(labels: Sequence[str]) -> float:
    """Returns the width of the longest label in inches, with a margin."""
    font = font_manager.FontProperties(family=FAMILY, size=FONT)
    measure = textpath.text_to_path.get_text_width_height_descent
    return max(measure(label, font, False)[0] for label in labels) / 72 + 0.1
