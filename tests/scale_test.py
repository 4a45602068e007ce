"""Scale: what it writes is real text, what it measures is there, what it foretells is a line."""

import pathlib
import subprocess
import sys

import pytest

from experiments import scale
from tests import tiny
from transformer_jax.data import text
from transformer_jax.data.toy import generator


def _measurement(pairs, **quantities):
    names = [column.key for column in scale.COLUMNS]
    return {**dict.fromkeys(names, 1.0), "pairs": pairs, **quantities}


def test_a_prediction_goes_on_in_a_straight_line():
    measured = [
        _measurement(1, prepare_seconds=100.0),
        _measurement(10, prepare_seconds=5.0, prepare_peak_bytes=2.0),
        _measurement(20, prepare_seconds=7.0, prepare_peak_bytes=2.0, pairs_a_second=3.0),
    ]
    predicted = scale.predict(measured, 100)
    assert (predicted["pairs"], predicted["pairs_a_second"]) == (100, 3.0)
    assert predicted["prepare_seconds"] == pytest.approx(7.0 + 0.2 * 80)
    assert predicted["prepare_peak_bytes"] == pytest.approx(2.0)


def test_pairs_join_pairs_of_the_corpus(tmp_path):
    train, _ = generator.sentences(50, 1, 0)
    pairs = [(pair.english, pair.german) for pair in train]
    scale.write_corpus(pairs, tmp_path / "corpus", ("en", "de"), 200)
    english, german = (text.read_lines(tmp_path / f"corpus.{end}") for end in ("en", "de"))
    assert len(english) == len(german) == 200
    words = sum(len(line.split()) for line in english) / 200
    assert 0.7 * scale.WORDS < words < 1.4 * scale.WORDS
    translations = dict(pairs)
    for one, other in zip(english, german, strict=True):
        assert other.startswith(
            tuple(german for english, german in translations.items() if one.startswith(english))
        )


@pytest.mark.slow
def test_the_whole_command(tmp_path):
    train, dev = generator.sentences(50, 8, 0)
    for name, pairs in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.en").write_text("".join(f"{pair.english}\n" for pair in pairs))
        (tmp_path / f"{name}.de").write_text("".join(f"{pair.german}\n" for pair in pairs))
    values = {name: value for name, value in tiny.OVERRIDES.items() if "toy" not in name} | {
        "data.corpus": "text",
        "data.train": tmp_path / "train",
        "data.dev": tmp_path / "dev",
        "data.source_length": 128,
        "data.target_length": 128,
        "train.batch_tokens": 512,
    }
    done = subprocess.run(
        [sys.executable, "-m", "experiments.scale", "--config=configs/small.py"]
        + [f"--workdir={tmp_path / 'scale'}", "--pairs=300,600", "--predict=6000"]
        + [f"--config.{name}={value}" for name, value in values.items()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "scale" / "scale.md").read_text()
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")]
    assert rows[2:] == ["| 300", "| 600", "| 6,000 (predicted)"]
    for size in (300, 600):
        cache = pathlib.Path(tmp_path / "scale" / f"cache-{size}")
        assert len(list(cache.glob("tokens-*[0-9a-f]"))) == 1
