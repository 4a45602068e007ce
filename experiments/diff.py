"""What two rows of a sweep differ in: fields of the configuration, parameters and their shapes.

  python -m experiments.diff runs/small base 'A h=1'

Nothing is run: shapes are those of the model that each row's configuration describes.
"""

import math
import pathlib
import re

import flax.linen as nn
import jax

from experiments.sweep import results
from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax import flags as flags_lib
from transformer_jax.data import vocabulary
from transformer_jax.drawing import tables

_LAYER = re.compile(r"_(\d+)$")  # of a path's part


def diff(workdir: pathlib.Path, first: str, second: str) -> tuple[list[tables.Printed], list[str]]:
    """Tables of fields and of parameters that differ, and both totals.

    Raises:
      UserError: the folder holds no sweep, or the sweep has no such row.
    """
    sweep = results.read(workdir)
    configs = [sweep.config(_row(sweep, name)) for name in (first, second)]
    ours, theirs = map(shapes, configs)
    other = [[name, str(a), str(b)] for name, a, b in fields(*configs) if a != b]
    changed = [
        [path, _written(ours.get(path)), _written(theirs.get(path))]
        for path in dict.fromkeys([*ours, *theirs])
        if ours.get(path) != theirs.get(path)
    ]
    counts = [sum(map(math.prod, each.values())) for each in (ours, theirs)]
    shown = [
        tables.Printed(["field", first, second], other, "Configuration"),
        tables.Printed(["parameters", first, second], _folded(changed), "Parameters"),
    ]
    alike = [f"{table.title}: the same." for table in shown if not table.lines]
    share = counts[1] / counts[0] - 1
    return [table for table in shown if table.lines], [
        *alike,
        f"Parameters: {counts[0]:,} in {first}, {counts[1]:,} in {second} "
        f"({tables.signed(share, '+.1%')}), in {len(ours):,} and {len(theirs):,} arrays; "
        f"{len(ours.items() & theirs.items()):,} have one path and shape in both.",
    ]


def _row(sweep: results.Sweep, name: str) -> results.Row:
    known = {each.name: each for row in sweep.rows for each in (row, *row.tuned.values())}
    if name not in known:
        raise errors.UserError(
            f"{sweep.workdir} has no row {name!r}; it has {', '.join(map(repr, known))}"
        )
    return known[name]


def shapes(config: config_lib.Config) -> dict[str, tuple[int, ...]]:
    """Of each parameter array, by its path, encoder_0/attention/key/kernel; none is made."""
    model = models.build(config.model, vocabulary.size(config), "cpu")
    params = jax.eval_shape(lambda: nn.unbox(models.init(model, jax.random.key(0))))
    leaves = jax.tree.leaves_with_path(params)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/").removeprefix("params/"): leaf.shape
        for path, leaf in leaves
    }


def fields(a: config_lib.Config, b: config_lib.Config) -> list[tuple[str, object, object]]:
    """Each field's dotted name, and its value in both."""
    ours, theirs = config_lib.to_dict(a), config_lib.to_dict(b)
    return [
        (f"{section}.{name}", value, theirs[section][name])
        for section, values in ours.items()
        for name, value in values.items()
    ]


def _written(shape: tuple[int, ...] | None) -> str:
    return "—" if shape is None else " × ".join(map(str, shape)) or "scalar"


def _folded(lines: list[list[str]]) -> list[list[str]]:
    """Layers that differ alike as one line: encoder_0…5/attention/key/kernel."""
    layers: dict[tuple[str, ...], list[int]] = {}
    for path, *both in lines:
        top, slash, rest = path.partition("/")
        number = _LAYER.search(top)
        key = (_LAYER.sub("", top) if number else top, slash + rest, *both)
        layers.setdefault(key, []).extend([int(number[1])] if number else [])
    return [
        [f"{top}{_numbers(found)}{rest}", *both] for (top, rest, *both), found in layers.items()
    ]


def _numbers(layers: list[int]) -> str:
    """_0…5 of 0 to 5, which follow each other; _1,4 of others; nothing where there are none."""
    if len(layers) > 2 and layers == [*range(layers[0], layers[-1] + 1)]:
        return f"_{layers[0]}…{layers[-1]}"
    return "_" * bool(layers) + ",".join(map(str, layers))


def main(workdir: str, first: str, second: str) -> None:
    """Prints what two rows differ in."""
    jax.config.update("jax_platforms", "cpu")  # nothing is computed
    tables.show(*diff(files.local_path(workdir), first, second))


if __name__ == "__main__":
    flags_lib.run(main, "WORKDIR", "ROW", "ROW")
