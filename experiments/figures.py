"""Draws the figures of docs/tutorial/tour.md with the library's own functions.

  python -m experiments.figures --output=docs/images
  python -m experiments.figures --output=docs/images --workdir=runs/toy

The first command draws the figures that need no training: position kinds, the masks of a packed
row, and the learning rate. The second command also draws the figures that need a finished sweep of
configs/toy.py: learning curves, and the attention weights of the row base.
"""

import functools
import io
import pathlib
import tempfile
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from jaxtyping import Bool
from matplotlib import axes as axes_lib
from matplotlib import colors, ticker
from matplotlib import figure as figure_lib

from configs import base as base_config
from configs import toy as toy_config
from experiments.results import frames
from transformer_jax import config as config_lib
from transformer_jax import errors, files, sequences
from transformer_jax import flags as flags_lib
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import examples as examples_lib
from transformer_jax.evaluation import attention_weights
from transformer_jax.models import masks, positions
from transformer_jax.runs import run_folder
from transformer_jax.training import step as step_lib

SENTENCE = "Anna fetches a table."  # from the toy's training set; the tour follows it
SHOWN_POSITIONS = 64
HEAD = 0  # the head whose ALiBi bias is drawn: the one with the steepest slope
# Okabe and Ito's colours, which people with colour blindness can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
DPI = 110


def of_positions(config: config_lib.ModelConfig) -> figure_lib.Figure:
    """Draws the position kinds without parameters: sinusoidal, ALiBi and rotary.

    Each panel shows what the kind does: values added to embeddings, values added to attention
    logits, and the dot products of one vector rotated to each pair of positions.
    """
    places = np.arange(SHOWN_POSITIONS, dtype=np.int32)[None]
    nothing = np.zeros((1, SHOWN_POSITIONS, config.d_model), np.float32)
    heads = (1, config.num_heads, SHOWN_POSITIONS, config.d_k)
    same = np.full(heads, config.d_k**-0.5, np.float32)
    of_embedding = {"xlabel": "feature", "ylabel": "position"}
    of_pair = {"xlabel": "key's position", "ylabel": "query's position"}

    def applied(name: str, hook: str, *arguments: np.ndarray) -> np.ndarray:
        kind = positions.KINDS[name](config)
        # Compiled as a whole, since op-by-op dispatch takes longer.
        hooked = jax.jit(functools.partial(kind.apply, {}, method=hook))
        return np.asarray(hooked(*arguments))

    embedded = applied("sinusoidal", "embed", nothing, places)[0]
    bias = applied("alibi", "bias", same, places[:, None] - places[..., None])[0, HEAD]
    # Dot products of one vector with itself, rotated to each pair of positions.
    turned = applied("rotary", "rotate", same, places)[0, 0]
    shown = (
        ("sinusoidal: added to embeddings", embedded, of_embedding),
        (f"alibi: added to logits, head {HEAD + 1}", bias, of_pair),
        ("rotary: cosine of equal vectors", turned @ turned.T, of_pair),
    )
    figure = figure_lib.Figure(figsize=(4.2 * len(shown), 3.9), layout="constrained")
    for panel, (title, values, labels) in zip(figure.subplots(1, len(shown)), shown, strict=True):
        image = panel.imshow(values, cmap="viridis", aspect="auto")
        panel.set(title=title, **labels)
        figure.colorbar(image, ax=panel, shrink=0.9)
    return figure


def visible(batch: sequences.Batch) -> dict[str, Bool[np.ndarray, "_ _"]]:
    """Returns the attention masks of the first row of a batch, without padding.

    Returns:
      Masks "encoder", "decoder" and "cross", each [queries, keys] and True where a query may attend
      to a key.
    """
    rows = [_first_row(batch.source), _first_row(batch.target)]
    source, target = jax.tree.map(jnp.asarray, rows)
    found = {
        "encoder": masks.same_segment(source.segments, source.segments),
        "decoder": masks.same_segment(target.segments, target.segments)
        & masks.causal(target.positions, target.positions),
        "cross": masks.same_segment(target.segments, source.segments),
    }
    return {kind: np.asarray(mask)[0, 0] for kind, mask in found.items()}


def _first_row(side: sequences.Sequences) -> sequences.Sequences:
    """Returns the first row of a batch's source or target, without padding."""
    real = int((side.segments[0] > 0).sum())
    return sequences.Sequences(*(array[:1, :real] for array in side))


def planned(dataset: dataset_lib.Dataset, config: config_lib.Config) -> batching.PackedBatches:
    """Returns the training batches of a run, with one packed row per batch."""
    pairs = examples_lib.TranslationExamples(dataset)
    return batching.PackedBatches(pairs, config, batch_rows=1, num_steps=config.train.num_steps)


def row_of(dataset: dataset_lib.Dataset, config: config_lib.Config, sentence: str) -> int:
    """Returns the index of the first packed row that contains a training sentence."""
    plan, ids = planned(dataset, config).plan, dataset.tokenizer.encode([sentence])[0]
    for number, row in enumerate(plan.rows(0, plan.epoch_end(0))):
        if any(dataset.source[pair].tolist() == ids for pair in dataset.usable[row].tolist()):
            return number
    raise errors.UserError(f"no row of the training set holds {sentence!r}")


def of_masks() -> figure_lib.Figure:
    """Draws the attention masks of the packed row that contains SENTENCE, on the toy corpus.

    Each sentence pair of the row has a colour.
    """
    config = config_lib.from_mapping(toy_config.get_config().to_dict())
    with tempfile.TemporaryDirectory() as cache:
        dataset = dataset_lib.load(config.data, pathlib.Path(cache))
        batch = planned(dataset, config)[row_of(dataset, config, SENTENCE)]
    source = (_first_row(batch.source), "the source")
    target = (_first_row(batch.target), "the decoder's input")
    sides = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    palette = colors.ListedColormap(["white", *COLOURS])
    figure = figure_lib.Figure(figsize=(15, 5.2), layout="constrained")
    for panel, (kind, allowed) in zip(figure.subplots(1, 3), visible(batch).items(), strict=True):
        (rows, of_rows), (columns, of_columns) = sides[kind]
        colour = 1 + (rows.segments[0] - 1) % len(COLOURS)
        image = np.where(allowed, colour[:, None], 0)
        panel.imshow(image, cmap=palette, vmin=0, vmax=len(COLOURS))
        panel.set(title=kind, ylabel=f"from: {of_rows}", xlabel=f"to: {of_columns}")
        words = (  # without the mark of the space that precedes most words
            [piece.replace("\u2581", "") for piece in dataset.tokenizer.pieces(side.tokens[0])]
            for side in (rows, columns)
        )
        _label(panel, *words)
    return figure


def of_learning_rate() -> figure_lib.Figure:
    """Draws the learning rate, equation 3 of the paper, for the values of d_model in Table 3."""
    config = config_lib.from_mapping(base_config.get_config().to_dict())
    figure = figure_lib.Figure(figsize=(6.4, 3.6), layout="constrained")
    panel = figure.subplots()
    steps, warmup = np.arange(1, config.train.num_steps + 1, 50), config.train.warmup_steps
    for width, colour in zip((256, 512, 1024), COLOURS, strict=False):
        peak = float(step_lib.learning_rate(warmup, config.train, width))
        rates = jax.vmap(lambda step, d=width: step_lib.learning_rate(step, config.train, d))(steps)
        panel.plot(steps, rates, color=colour, label=f"d_model={width}: {1e4 * peak:.2f} × 10⁻⁴")
        panel.plot(warmup, peak, "o", color=colour)
    panel.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
    panel.legend(title=f"peak, at step {warmup:,}", frameon=False)
    return figure


def of_curves(sweep: frames.Sweep) -> figure_lib.Figure:
    """Draws the development perplexity of each row's first seed; base and the worst row stand out.

    Args:
      sweep: the results of a sweep.

    Raises:
      UserError: no development perplexity was logged.
    """
    if "dev_ppl" not in sweep.curves:
        raise errors.UserError("there are no learning curves: --config.log.dev_every was 0")
    logged = sweep.curves.dropna(subset=["dev_ppl"])
    curves = {}
    for row in sweep.description.rows:
        own = logged[logged["row"] == row]
        first = own[own["seed"] == own["seed"].min()]
        if len(first):
            curves[row] = first["step"].tolist(), first["dev_ppl"].tolist()
    base = sweep.description.base_row
    worst = max(curves, key=lambda row: curves[row][1][-1])
    figure = figure_lib.Figure(figsize=(6.4, 3.8), layout="constrained")
    panel = figure.subplots()
    panel.plot([], [], color="0.65", linewidth=0.9, label="other rows")
    for points in curves.values():
        panel.plot(*points, color="0.65", linewidth=0.9)
    for name, colour in zip((base, worst), COLOURS, strict=False):
        panel.plot(*curves[name], color=colour, linewidth=2.2, label=name)
    panel.set(xlabel="step", ylabel="development perplexity", yscale="log")
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.2, 1.5, 2, 3, 5)))
    panel.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    panel.yaxis.set_minor_locator(ticker.NullLocator())
    panel.legend(frameon=False)
    return figure


def of_attention(workdir: pathlib.Path) -> figure_lib.Figure:
    """Draws the cross-attention of the last layer for SENTENCE: one head, and the heads' mean.

    Args:
      workdir: the folder of a trained run.
    """
    maps = attention_weights.collect(run_folder.load(workdir), SENTENCE)[-1]
    heads = maps.weights[-1]
    surest = int(heads.max(axis=-1).mean(axis=-1).argmax())
    shown = {f"head {surest + 1}, the surest": heads[surest], "mean of all heads": heads.mean(0)}
    figure = figure_lib.Figure(figsize=(8.4, 4.2), layout="constrained")
    panels = figure.subplots(1, len(shown))
    for panel, (title, weights) in zip(panels, shown.items(), strict=True):
        panel.imshow(weights, cmap="Blues", vmin=0, vmax=1)
        panel.set(title=title, ylabel="the token being written", xlabel="the source token read")
        _label(panel, *([t.replace("_", "") for t in side] for side in (maps.rows, maps.columns)))
    figure.colorbar(panels[0].images[0], ax=panels, shrink=0.8, label="attention weight")
    return figure


def _label(panel: axes_lib.Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Labels both axes with tokens."""
    panel.set_xticks(range(len(columns)), columns, rotation=90, fontsize=8, parse_math=False)
    panel.set_yticks(range(len(rows)), rows, fontsize=8, parse_math=False)
    panel.tick_params(length=0)


def main() -> None:
    """Draws the figures and prints the path of each."""
    output = files.local_path(_OUTPUT.value)
    base = config_lib.from_mapping(base_config.get_config().to_dict())
    narrow = config_lib.replace(base, {"model.d_model": base.model.d_k})  # few enough to be seen
    drawn: dict[str, Callable[[], figure_lib.Figure]] = {
        "positions.png": lambda: of_positions(narrow.model),
        "masks.png": of_masks,
        "learning_rate.png": of_learning_rate,
    }
    if _WORKDIR.value:
        workdir = files.local_path(_WORKDIR.value)
        sweep = frames.load(workdir)
        base = sweep.of(sweep.description.base_row)
        if not len(base):
            raise errors.UserError(f"{workdir} has no result of base yet: run it first")
        run = sweep.folders[base["config_hash"].iloc[0]]
        drawn["curves.png"] = lambda: of_curves(sweep)
        drawn["attention.png"] = lambda: of_attention(run)
    for name, draw in drawn.items():
        content = io.BytesIO()
        draw().savefig(content, format="png", dpi=DPI)
        files.write(output / name, content.getvalue())
        print(output / name)


if __name__ == "__main__":
    _OUTPUT = flags.DEFINE_string("output", "docs/images", "Where to write.")
    _WORKDIR = flags.DEFINE_string("workdir", None, "A finished sweep of configs/toy.py.")
    flags_lib.run(main)
