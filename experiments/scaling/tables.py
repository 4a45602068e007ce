"""The tables of docs/scaling.md."""

from collections.abc import Mapping, Sequence

from experiments import tables
from experiments.scaling import layouts, partitioned, predictions
from transformer_jax import config as config_lib

# By model and kind of device.
Found = Mapping[tuple[str, str], Sequence[predictions.Prediction]]


def answer(found: Found) -> tables.Table:
    """A line for each model and kind of device."""
    lines = []
    for (model, kind), each in found.items():
        half, last = predictions.half_efficient(each), predictions.worth_having(each)
        lines.append(
            [
                model,
                kind,
                *(cell for one in (half, last) for cell in _size(model, one)),
            ]
        )
    heads = ["model", "device", "half efficient up to", "as", "efficiency", "hours for the run"]
    return tables.Table([*heads, "doubling pays up to", *heads[3:]], lines)


def predicted(model: str, kind: str, found: Sequence[predictions.Prediction]) -> tables.Table:
    """A line for each layout."""
    config, *_ = predictions.one_device(model, 256)
    lines = []
    for one in found:
        time = one.time
        speeds = [config.train.batch_tokens / seconds / 1e6 for seconds in _both(one)]
        lines.append(
            [
                f"{one.layout.devices}",
                _mesh(one.layout),
                _rows(one.layout),
                *(f"{1e3 * part:.2f}" for part in (time.products, time.update, time.sending)),
                f"{one.hidden:.0%}",
                f"{one.exposed:.0%}",
                _range(speeds, "{:.2f}"),
                _range([_hours(model, seconds) for seconds in _both(one)], "{:.2f}"),
            ]
        )
    heads = "devices|layout|rows each|products ms|update ms|sending ms|hidden|exposed"
    heads += f"|million positions/s|hours for {config.train.num_steps:,} steps"
    return tables.Table(heads.split("|"), lines, f"{model} on {kind}")


def compiled(programs: Sequence[layouts.Program]) -> tables.Table:
    """A line for each layout."""
    kinds = [
        kind
        for kind in partitioned.COLLECTIVES
        if any(partitioned.total_bytes(program.sent, kind) for program in programs)
    ]
    lines = []
    for program in programs:
        sizes = [partitioned.total_bytes(program.sent, kind) / 1e6 for kind in kinds]
        lines.append(
            [
                program.layout.model,
                _mesh(program.layout),
                _rows(program.layout),
                f"{program.flops / 1e9:,.1f}",
                *(f"{size:,.1f}" if size else "" for size in sizes),
                *(f"{sent_megabytes(sent):,.1f}" for sent in (program.sent, program.launched)),
                f"{sum(one.times for one in program.sent)}",
                f"{sum(one.times for one in program.launched)}",
                f"{program.seconds:.0f}",
            ]
        )
    heads = ["model", "layout", "rows each", "GFLOP each", *(f"{kind} MB" for kind in kinds)]
    heads += ["sent MB", "in float32", "collectives", "combined", "compiled in s"]
    return tables.Table(heads, lines)


def divisibility(config: config_lib.Config) -> tables.Table:
    """Over how many devices, a power of two, rows of each length can be shared out."""
    lines = []
    for row in (256, 128, 64, 32):
        rows = config.train.batch_tokens // row
        lines.append([f"{row}", f"{rows}", f"{power_of_two(rows)}"])
    return tables.Table(["positions in a row", "rows in the batch", "devices at most"], lines)


def power_of_two(number: int) -> int:
    """The largest that divides a number."""
    return number & -number


def sent_megabytes(collectives: Sequence[partitioned.Collective]) -> float:
    """What a device sends in a step."""
    return sum(one.sent_bytes for one in collectives) / 1e6


def _size(model: str, one: predictions.Prediction) -> list[str]:
    """Number of devices, layout, efficiency and hours."""
    rows = f", rows of {one.layout.row}" if one.layout.row != 256 else ""
    return [
        f"{one.layout.devices}",
        _mesh(one.layout) + rows,
        _range([one.hidden, one.exposed], "{:.0%}"),
        _range([_hours(model, seconds) for seconds in _both(one)], "{:.2f}"),
    ]


def _both(one: predictions.Prediction) -> tuple[float, float]:
    """Seconds of a step, the rest hidden and exposed."""
    return one.time.hidden, one.time.exposed


def _hours(model: str, seconds: float) -> float:
    config, *_ = predictions.one_device(model, 256)
    return seconds * config.train.num_steps / 3600


def _mesh(layout: layouts.Layout) -> str:
    sizes = {name: getattr(layout, name) for name in ("data", "fsdp", "tensor")}
    return " × ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "alone"


def _rows(layout: layouts.Layout) -> str:
    rows = layout.config().train.batch_tokens // layout.row
    return f"{rows // (layout.data * layout.fsdp)} × {layout.row}"


def _range(pair: Sequence[float], form: str) -> str:
    texts = [form.format(number) for number in pair]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)
