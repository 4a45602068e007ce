"""A short run reproduces recorded digits, so that all runs of a table are one experiment.

To record them again after a deliberate change:

  python -m tests.recorded_test
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import jax
import pytest

from experiments.benchmarks import measuring
from tests import compiling

pytestmark = pytest.mark.slow

# Of the sizes of configs/multi30k.py, so that it is that table whose digits are held.
OVERRIDES = {
    "data.corpus": "toy",
    "data.toy_pairs": 400,
    "data.toy_held_out_pairs": 16,
    "data.vocab_size": 400,
    "evaluation.score_test": False,
    "train.num_steps": 6,
    "log.every": 1,
    "log.dev_every": 0,
    "decode.extra_tokens": 1,
}
RECORDED = pathlib.Path(__file__).with_name("recorded.json")
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2}  # elsewhere than where it was recorded


def machine():
    """Returns the properties of the machine that digits depend on."""
    vectors = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}
    return [jax.__version__, *sorted(vectors & measuring.processor_flags())]


def losses(dtype):
    """Returns the loss of each step and the final perplexity of a run by command."""
    with tempfile.TemporaryDirectory() as folder:
        values = {**OVERRIDES, "model.compute_dtype": dtype}
        # One core: where several share out a sum, they share it out by their number.
        command = [
            *("python", "-c", "import os, sys, runpy; os.sched_setaffinity(0, {min("
              "os.sched_getaffinity(0))}); sys.argv = sys.argv[1:]; "
              "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"),
            "transformer_jax.train",
            "--config=configs/multi30k.py",
            f"--workdir={folder}/run",
            f"--cache_dir={folder}/cache",
            *(f"--config.{name}={value}" for name, value in values.items()),
        ]  # fmt: skip
        subprocess.run(
            [sys.executable, *command[1:]],
            check=True,
            capture_output=True,
            env={**compiling.as_for_users(), "JAX_PLATFORMS": "cpu"},
        )
        run = pathlib.Path(folder, "run")
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    found = [record["loss"] for record in map(json.loads, lines) if "loss" in record]
    return [*found, result["ppl"]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_short_run_reproduces_its_digits(dtype):
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    found = losses(dtype)
    if recorded["machine"] == machine():
        assert found == recorded[dtype]
    assert found == pytest.approx(recorded[dtype], rel=TOLERANCE[dtype])


if __name__ == "__main__":
    found = {"machine": machine(), **{dtype: losses(dtype) for dtype in TOLERANCE}}
    RECORDED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
