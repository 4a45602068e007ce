"""Attention as a figure: a heat map for each layer, from top to bottom, and head, left to right."""

import io
import math
import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import font_manager, textpath
from matplotlib import image as image_lib

from transformer_jax.evaluation import attention_weights

# Sizes are inches, those of fonts points of 1/72 inch.
PITCH = 0.16  # from one token to the next
FONT, FAMILY = 7.5, "DejaVu Sans"  # which comes with Matplotlib
HEADER, MARGIN, TITLE = 0.7, 0.3, 0.3  # above all maps; around each; above a map's labels
SMALLEST_WIDTH = 7.8  # holds the caption
# Dots to the inch; fewer where the image would grow too large (a side has at most 2¹⁶).
DPI, MOST_DOTS, LONGEST_SIDE = 120, 60e6, 60_000


def png(maps: attention_weights.Maps) -> bytes:
    """The content of a PNG file: all layers and heads, each map with its tokens at both axes."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = _grid(maps)
        width, height = figure.get_size_inches()
        dpi = min(DPI, math.sqrt(MOST_DOTS / (width * height)), LONGEST_SIDE / max(width, height))
        figure.savefig(content, format="png", dpi=dpi)
    return content.getvalue()


def _grid(maps: attention_weights.Maps) -> figure_lib.Figure:
    """All maps in their places, under a caption and the scale of colours."""
    layers, heads, rows, columns = maps.weights.shape
    left, top = _longest(maps.rows), _longest(maps.columns) + TITLE
    width, height = columns * PITCH, rows * PITCH
    step_x, step_y = left + width + MARGIN, top + height + MARGIN
    full_width = max(MARGIN + heads * step_x, SMALLEST_WIDTH)
    full_height = HEADER + layers * step_y
    figure = figure_lib.Figure(figsize=(full_width, full_height))

    def place(x: float, y: float, width: float, height: float) -> axes_lib.Axes:
        """Axes x inches from the left and y from the top."""
        bottom = 1 - (y + height) / full_height
        return figure.add_axes((x / full_width, bottom, width / full_width, height / full_height))

    images = [
        _draw(
            place(MARGIN + head * step_x + left, HEADER + layer * step_y + top, width, height),
            f"layer {layer + 1}, head {head + 1}",
            top - TITLE,
            maps,
            maps.weights[layer, head],
        )
        for layer in range(layers)
        for head in range(heads)
    ]
    title, reading = attention_weights.CAPTIONS[maps.kind]
    figure.text(MARGIN / full_width, 1 - 0.3 / full_height, title, fontsize=12, weight="bold")
    figure.text(MARGIN / full_width, 1 - 0.5 / full_height, reading, fontsize=8.5)
    bar = figure.colorbar(
        images[0], cax=place(full_width - 1.6, 0.3, 1.3, 0.1), orientation="horizontal"
    )
    bar.set_ticks([0, 0.5, 1], labels=["0", "weight", "1"], fontsize=FONT)
    bar.ax.tick_params(length=0)
    return figure


def _draw(
    axes: axes_lib.Axes,
    name: str,
    label_height: float,
    maps: attention_weights.Maps,
    weights: Float[np.ndarray, "T S"],
) -> image_lib.AxesImage:
    """One head's map, white for 0 and dark for 1, so that maps compare."""
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    text = {"fontsize": FONT, "fontfamily": FAMILY, "parse_math": False}
    axes.set_xticks(range(len(maps.columns)), maps.columns, rotation=90, **text)
    axes.set_yticks(range(len(maps.rows)), maps.rows, **text)
    axes.tick_params(length=0, pad=2, top=False, labeltop=True, labelbottom=False)
    axes.spines[:].set(color="0.6", linewidth=0.5)
    axes.annotate(
        name,
        (0, 1),
        (0, 72 * label_height + 4),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=FONT + 1,
        weight="bold",
    )
    return image


def _longest(labels: Sequence[str]) -> float:
    """Inches that the longest label takes, with some space around it."""
    font = font_manager.FontProperties(family=FAMILY, size=FONT)
    measure = textpath.text_to_path.get_text_width_height_descent
    return max(measure(label, font, False)[0] for label in labels) / 72 + 0.1
