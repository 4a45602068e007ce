"""The tour's pictures, and the numbers that it names."""

import itertools

import numpy as np
import pytest

from configs import toy as toy_config
from experiments import figures
from tests import pages
from transformer_jax import config as config_lib
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib

PROSE = pages.prose(pages.ROOT / "docs/tutorial/tour.md")


def test_the_pair_stands_where_the_tour_says(cache_dir):
    config = config_lib.from_mapping(toy_config.get_config().to_dict())
    dataset = dataset_lib.load(config.data, cache_dir)
    number = figures.row_of(dataset, config, figures.SENTENCE)
    batch = figures.planned(dataset, config)[number]
    rows = config.train.batch_tokens // config.data.target_length
    assert f"row {number:,} of the first epoch" in PROSE
    assert f"read at step {number // rows + 1}" in PROSE
    assert figures.SENTENCE in PROSE
    german = "Anna holt einen Tisch ab."
    mine = (batch.source.segments[0] == 2).sum(), (batch.target.segments[0] == 2).sum()
    encoded = dataset.tokenizer.encode([figures.SENTENCE, german])
    assert list(map(len, encoded)) == [5, 6]  # and an EOS each
    assert mine == (6, 7)
    assert set(batch.source.segments[0].tolist()) - {0} == {1, 2, 3}


def test_a_masks_picture_shows_who_sees_whom():
    pairs = [([7, 8], [9]), ([10], [11, 12, 13])]
    allowed = figures.visible(batching.fill([pairs], 8, 9))
    source = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]  # sentence and position, EOS included
    target = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    for kind, rows, columns in (
        ("encoder", source, source),
        ("decoder", target, target),
        ("cross", target, source),
    ):
        expected = np.zeros((len(rows), len(columns)), bool)
        for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
            expected[i, j] = row[0] == column[0] and (kind != "decoder" or column[1] <= row[1])
        np.testing.assert_array_equal(allowed[kind], expected)


def test_position_kinds_are_drawn(make_config):
    figure = figures.of_positions(make_config().model)
    titles = [axes.get_title().split(":")[0] for axes in figure.axes if axes.get_title()]
    assert titles == ["sinusoidal", "alibi", "rotary"]


def test_the_learning_rate_peaks_where_the_warm_up_ends():
    (panel,) = figures.of_learning_rate().axes
    for line in panel.lines[::2]:  # each is followed by its peak's mark
        steps, rates = np.asarray(line.get_xydata()).T
        assert abs(steps[rates.argmax()] - 4000) <= 50
    heights = [np.asarray(line.get_ydata())[0] for line in panel.lines[1::2]]
    assert heights[0] / heights[1] == pytest.approx(2**0.5)  # half the width
