"""What compiled steps say of how far the paper's batch scales: the tables of docs/scaling.md."""

import collections
import itertools
from collections.abc import Mapping, Sequence

from experiments.benchmarks import layouts
from transformer_jax import errors
from transformer_jax.drawing import tables

HALF = 0.5  # a batch has stopped scaling where efficiency is below this
GIB = 2**30


def of(results: Sequence[layouts.Result]) -> tuple[list[tables.Printed], str]:
    """The answer, each model's steps and what they send; and what made the programs.

    Raises:
      UserError: of some model none fits.
    """
    models = dict.fromkeys(one.layout.model for one in results)
    found = {model: [one for one in results if one.layout.model == model] for model in models}
    for model, each in found.items():
        if not best(each):
            raise errors.UserError(f"{model} fits in no layout of --layouts: {each[-1].refusal}")
    steps = [_steps(model, each) for model, each in found.items()]
    named = zip(*(one.made for one in results), strict=True)
    days, jax, libtpu = (" and ".join(sorted(set(each))) for each in named)
    made = f"Compiled on {days} with JAX {jax} and libtpu {libtpu}."
    return [_answers(found), *steps, _sent(results)], made


def best(results: Sequence[layouts.Result]) -> list[layouts.Result]:
    """For each number of chips the fastest layout, ascending."""
    fitting = [one for one in results if one.program]
    slowest_first = sorted(fitting, key=lambda one: one.step.seconds, reverse=True)
    fastest = {one.layout.chips: one for one in slowest_first}
    return [fastest[chips] for chips in sorted(fastest)]


def smallest(results: Sequence[layouts.Result]) -> layouts.Result:
    """The fastest layout on the fewest chips that a step fits on."""
    return best(results)[0]


def efficiency(one: layouts.Result, results: Sequence[layouts.Result]) -> float:
    """Positions a second and chip, over those of the smallest slice."""
    least = smallest(results)
    return (least.step.seconds * least.layout.chips) / (one.step.seconds * one.layout.chips)


def pays(results: Sequence[layouts.Result]) -> layouts.Result:
    """The fastest layout of the number of chips up to which a batch scales."""
    *_, last = itertools.takewhile(lambda one: efficiency(one, results) >= HALF, best(results))
    return last


def hours(one: layouts.Result) -> float:
    """Of the paper's number of steps."""
    return one.step.seconds * one.layout.config().train.num_steps / 3600


def _answers(found: Mapping[str, Sequence[layouts.Result]]) -> tables.Printed:
    lines = []
    for model, results in found.items():
        fastest = min(best(results), key=lambda one: one.step.seconds)
        lines.append([model])
        for one in (smallest(results), pays(results), fastest):
            place = f"{one.layout.chips}: {_mesh(one.layout)}"
            lines[-1] += [place, f"{efficiency(one, results):.0%}", f"{hours(one):.2f}"]
    heads = "model|smallest that fits|efficiency|hours|pays up to|efficiency|hours"
    return tables.Printed(f"{heads}|fastest|efficiency|hours".split("|"), lines, "Answer")


def _steps(model: str, results: Sequence[layouts.Result]) -> tables.Printed:
    config = results[0].layout.config()
    lines = []
    for one in results:
        layout, positions = one.layout, config.train.batch_tokens
        rows = positions // layout.row // (layout.data * layout.fsdp)
        lines.append([f"{layout.chips}", _mesh(layout), f"{rows} × {layout.row}"])
        if not one.program:
            lines[-1] += ["does not fit", *[""] * 7]
            continue
        step = one.program
        times = (step.products, step.computing, step.sending, step.seconds)
        lines[-1] += [f"{step.memory_bytes / GIB:.2f}", *map(_milliseconds, times)]
        lines[-1] += [f"{positions / step.seconds / 1e6:.2f}"]
        lines[-1] += [f"{efficiency(one, results):.0%}", f"{hours(one):.2f}"]
    heads = "chips|layout|rows each|GiB a chip|products ms|computing ms|sending ms|step ms"
    heads += "|million positions/s|efficiency|hours"
    return tables.Printed(heads.split("|"), lines, f"{model}, {config.train.num_steps:,} steps")


def _sent(results: Sequence[layouts.Result]) -> tables.Printed:
    """A line for each layout that sends anything."""
    lines = []
    for one in results:
        if not one.program or not one.program.collectives:
            continue
        step, kinds = one.program, collections.Counter[str]()
        for each in step.collectives:
            kinds[each.kind] += each.times
        written = ", ".join(f"{times:,} {kind}" for kind, times in kinds.items())
        times = map(_milliseconds, (step.links, step.hidden))
        sent = [f"{step.sent_bytes / 1e6:,.0f}", *times]
        lines.append([one.layout.model, _mesh(one.layout), written, *sent])
    heads = ["model", "layout", "collectives", "MB", "ms", "hidden ms"]
    return tables.Printed(heads, lines, "What is sent")


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def _mesh(layout: layouts.Layout) -> str:
    sizes = {name: getattr(layout, name) for name in ("data", "fsdp", "tensor")}
    return " × ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "alone"
