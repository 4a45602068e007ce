"""docs/scaling.md: what compiled steps say of how far the paper's batch scales."""

import collections
import dataclasses
import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence

from experiments.benchmarks import layouts, network
from transformer_jax import errors
from transformer_jax.drawing import tables

HALF = 0.5  # a batch has stopped scaling where efficiency is below this
NOTHING = 1e-6  # seconds, of what rounding leaves
GIB = 2**30

_TEXT = """# How far does the paper's batch scale?

On how many TPU {kind} does it pay to train base and big with the paper's batch of {tokens:,} target
positions, in bfloat16? Nothing here was run on a TPU, and nothing is a measurement: XLA's own
compiler for TPUs compiled the whole training step for each slice, and every figure is read from
its programs.

## Answer

{answer}

{answers}

*Efficiency*: positions a second and chip, against the smallest slice below that the step fits on
({smallest}). It pays up to the last number of chips at which the fastest layout has at least
{half:.0%}. The paper trained base for 12 hours and big for 3.5 days on 8 P100s.

{steps}

*Computing*: the compiler's estimate of the cycles of all operations, at {gigahertz} GHz;
*products*: of those that hold a matrix product. *Sending*: by how much collectives make the step
longer; they follow one another at published rates, beside such operations as the program has
between a collective's beginning and its end. Positions are those of the target, padding included.

## What ends it

{ends}

With rows of {row}, data and fsdp together take {most} chips at most, since the batch has {rows}
rows, and more are refused. Rows of 128 go on to 64 chips, but pairs longer than a row are dropped
from training. mesh.tensor divides heads, d_ff and the vocabulary instead, by at most 8, since
37,000 pieces are no multiple of 16.

## What is sent

{sent}

MB are what a chip sends by ring algorithms: of n chips 2 (n − 1)/n of what is all-reduced,
(n − 1)/n of what is gathered or scattered. *Hidden*: how much of their time passes beside
operations.

{findings}

## What this leaves out

The estimate has no cycles for scatters and sorts. Rings that share links of the torus, stragglers,
the input, checkpoints and evaluation are left out. Only a run on TPUs can say how far the
compiler's estimate and the published rates hold.

## How it was made

`{command}`, from {number} programs, compiled {date} with JAX {jax} and
libtpu {libtpu}, each in one to three minutes of a CPU core; no TPU is needed. Rates of links, of
{published}: {note} Assumed: a group of two has one link of each chip, a larger one two, a whole pod
four, and a collective waits for the hops along both sides of its group.
"""


def document(results: Sequence[layouts.Result], command: str) -> str:
    """The whole page: results in this order, and the command that makes it.

    Raises:
      UserError: of some model none fits.
    """
    models = dict.fromkeys(one.layout.model for one in results)
    found = {model: [one for one in results if one.layout.model == model] for model in models}
    for model, each in found.items():
        if not best(each):
            raise errors.UserError(f"{model} fits in no layout of --layouts: {each[-1].refusal}")
    data, config = network.read_data(), results[0].layout.config()
    days, jax, libtpu = (
        sorted(set(each)) for each in zip(*(one.made for one in results), strict=True)
    )
    rows = config.train.batch_tokens // config.data.target_length
    least = ", ".join(f"{smallest(each).layout.chips} for {model}" for model, each in found.items())
    text = _TEXT.format(
        kind=layouts.KIND,
        tokens=config.train.batch_tokens,
        answer="\n".join(_answer(model, each) for model, each in found.items()),
        answers=_markdown(_answers(found)),
        smallest=least,
        half=HALF,
        steps=_markdown(*(_steps(model, each) for model, each in found.items())),
        gigahertz=data["compilers"][layouts.KIND]["gigahertz"],
        ends="\n".join(line for model, each in found.items() for line in _ends(model, each)),
        row=config.data.target_length,
        most=rows & -rows,
        rows=rows,
        sent=_markdown(_sent(results)),
        findings="\n".join(_findings(results)),
        date=f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}",
        jax=" and ".join(jax),
        libtpu=" and ".join(libtpu),
        number=sum(one.program is not None for one in results),
        command=command,
        published=data["date"],
        note=data["networks"]["note"],
    )
    return "\n\n".join(map(_wrapped, text.strip().split("\n\n"))) + "\n"


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


def _answer(model: str, results: Sequence[layouts.Result]) -> str:
    last = pays(results)
    chips, larger = last.layout.chips, best(results)[best(results).index(last) + 1 :]
    if last is smallest(results) and not larger:
        return (
            f"- {model}: not known, since no more than {chips} chips were compiled for, on which "
            f"the run takes {hours(last):.2g} hours."
        )
    then = "no larger slice was compiled."
    if larger:
        then = (
            f"on {larger[0].layout.chips}, the next that was compiled for, it would be "
            f"{efficiency(larger[0], results):.0%} and {hours(larger[0]):.2g} hours."
        )
    return (
        f"- **{model}: up to {chips} chips**, where each does {efficiency(last, results):.0%} of "
        f"what it does on the smallest slice, and the run takes {hours(last):.2g} hours; {then}"
    )


def _answers(found: Mapping[str, Sequence[layouts.Result]]) -> tables.Printed:
    lines = []
    for model, results in found.items():
        fastest = min(best(results), key=lambda one: one.step.seconds)
        lines.append([model])
        for one in (smallest(results), pays(results), fastest):
            place = f"{one.layout.chips}: {_mesh(one.layout)}"
            lines[-1] += [place, f"{efficiency(one, results):.0%}", f"{hours(one):.2f}"]
    heads = "model|smallest that fits|efficiency|hours|pays up to|efficiency|hours"
    return tables.Printed(f"{heads}|fastest|efficiency|hours".split("|"), lines)


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
    return tables.Printed(["model", "layout", "collectives", "MB", "ms", "hidden ms"], lines)


def _ends(model: str, results: Sequence[layouts.Result]) -> list[str]:
    """What does not shrink, from the least and the greatest of a model's data meshes."""
    row = results[0].layout.row
    meshes = [one for one in results if _by_data_alone(one) and one.layout.row == row]
    if len(meshes) < 2:
        return []
    few, many = meshes[0].layout.chips, meshes[-1].layout.chips
    before, after = meshes[0].step, meshes[-1].step
    # Computing is what each row takes, and what is there however few rows there are.
    fixed = (many * after.computing - few * before.computing) / (many - few)
    return [
        f"- {model}: from {few} chips to {many} by data alone computing falls from "
        f"{_milliseconds(before.computing)} to {_milliseconds(after.computing)} ms, as if "
        f"{_milliseconds(fixed)} ms did not depend on a chip's rows, and sending goes from "
        f"{_milliseconds(before.sending)} to {_milliseconds(after.sending)} ms: each chip sends "
        f"the gradients of all parameters ({after.sent_bytes / 1e6:,.0f} MB) and updates all of "
        "them, however few rows it has."
    ]


def _findings(results: Sequence[layouts.Result]) -> list[str]:
    alone = [one.step for one in results if _by_data_alone(one)]
    found = []
    if alone and all(step.hidden < NOTHING for step in alone):
        found += [
            "- By data alone nothing is hidden: all gradients are summed by collectives that the "
            "program awaits where they begin."
        ]
    by_layout = {one.layout: one.program for one in results if one.program}
    for layout, fsdp in by_layout.items():
        data = by_layout.get(dataclasses.replace(layout, data=layout.fsdp, fsdp=layout.data))
        if layout.fsdp == 1 or not data:
            continue
        found += [
            f"- {layout.model}: {_mesh(layout)} takes {fsdp.memory_bytes / GIB:.2f} GiB a chip "
            f"where data {layout.fsdp} takes {data.memory_bytes / GIB:.2f}, and hides "
            f"{fsdp.hidden / fsdp.links:.0%} of {_milliseconds(fsdp.links)} ms of sending, but "
            f"computes for {_milliseconds(fsdp.computing)} ms in place of "
            f"{_milliseconds(data.computing)}, {_milliseconds(fsdp.products)} in place of "
            f"{_milliseconds(data.products)} in products and the rest in what is no product, as "
            f"copies and casts: a step of {_milliseconds(fsdp.seconds)} ms in place of "
            f"{_milliseconds(data.seconds)}."
        ]
        permutes = sum(one.times for one in fsdp.collectives if one.kind == "collective-permute")
        if permutes:
            found[-1] += (
                f" Large products are loops over pieces there, which {permutes:,} "
                "collective-permutes pass along the ring of chips while the piece before is "
                "multiplied."
            )
    return found


def _by_data_alone(one: layouts.Result) -> bool:
    """Whether it fits on several chips that share out nothing but the batch."""
    return one.program is not None and one.layout.data == one.layout.chips > 1


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def _mesh(layout: layouts.Layout) -> str:
    sizes = {name: getattr(layout, name) for name in ("data", "fsdp", "tensor")}
    return " × ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "alone"


def _wrapped(paragraph: str) -> str:
    """Lines of a paragraph, or of each point of a list, that are not too long."""
    if paragraph.startswith(("|", "#")):
        return paragraph
    points = re.split(r"\n(?=- )", paragraph)
    indent = "  " if paragraph.startswith("- ") else ""
    wrapper = textwrap.TextWrapper(
        104, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapper.fill(" ".join(point.split())) for point in points)


def _markdown(*shown: tables.Printed) -> str:
    return tables.markdown(shown, []).strip().replace("## ", "### ")
