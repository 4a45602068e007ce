"""docs/scaling.md: what was compiled, and what published rates make of it."""

import datetime
import os
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import jax

from experiments import tables
from experiments.scaling import layouts, network, predictions
from experiments.scaling import tables as our_tables

SIZES = {"v5e": (8, 256), "H100": (1, 64)}  # of each kind of device, the fewest and the most

_TEXT = """# How far does the paper's batch scale?

On how many chips does it pay to train base and big with the paper's batch, {tokens:,} target
positions? Nothing here was measured on an accelerator: the training step was compiled for virtual
devices, what each of them sends and multiplies was counted, and published rates made times of
that.

## Answer

The batch has stopped scaling for {stops}.

{answer}

*Half efficient up to*: with twice as many devices the batch has stopped scaling, in that the best
layout compiled has less than half of one device's efficiency if nothing is hidden, that is if
products, collectives and the update follow one another. *Doubling pays up to*: twice as many would
make such a step less than {worth} times as fast, or were not asked for. A range begins with what
holds if products hide as much of the sending as they can. The paper trained base for 12 hours and
big for 3.5 days on 8 P100s.

What ends it is what does not shrink. By data alone each device sends the gradients of all
parameters and updates all of them, however few rows it has. On {most} v5e:

{fixed}

### Where the rows no longer divide

{divisibility}

With rows of 256, as in `configs/base.py`, data and fsdp together take {most} devices at most, and
a run on more is refused. Shorter rows share out further, but a pair longer than a row is dropped
from training. mesh.fsdp shares out rows as mesh.data does, and so does not help; mesh.tensor
divides heads, d_ff and the vocabulary instead, by at most 8, since 37,000 pieces are no multiple
of 16 (40,960 are). train.batch_tokens=32768 would do for 128 devices, and is another recipe.

## Predicted

{predicted}

*Hidden* and *exposed*: efficiency, one device's time over the number of devices and their time, if
products hide as much of the sending as they can, and if nothing is hidden. One device is given
rows of the same length, and may lack the memory. *Update*: Adam's, which waits for the sending.
Positions are those of the target, padding included. *Alone* is the formula's; all other lines were
compiled.

## What was compiled

{programs}

MB are of whole arrays, in the types in which XLA's partitioner leaves them: bfloat16 for most
gradients. *Sent*: what a device sends by ring algorithms, of n devices 2 (n − 1)/n of what is
all-reduced and (n − 1)/n of what is gathered, scattered or exchanged. *In float32*: the same of
the finished program, in which a CPU's compiler has widened bfloat16 and combined collectives.
*Combined*: how many are left then, each of which is charged one latency.

- {loops} With train.accumulation_steps gradients are all-reduced in every part, not once a step.
- The products of all devices together are {low:.3f} to {high:.3f} times those of the formula in
  `experiments/cost.py`.
- The matrix that both embeddings and the logits share is all-reduced {uses} times a step, once for
  each use: {shared:.0f} of base's {all_reduced:.0f} MB. Added up on each device first, it would be
  sent once.
- {fsdp}

## What this leaves out

- Small products: {utilisation:.0%} of the peak (`utilisation` in `experiments/devices.json`) is
  taken at every size, though at {positions} positions a device products reach less. A lower share
  throughout makes training slower and efficiency higher; one that falls as devices are added makes
  both worse. At 20% throughout the batch stops scaling for {stops_20}; at 60% for {stops_60}.
- Softmax, norms, dropout and casts, but for what `utilisation` allows for them.
- Rings that share links on the torus, and all-to-all, which burdens more of them than a ring does;
  stragglers, the input, checkpoints and evaluation.
- What an accelerator's compiler does otherwise: combine fewer collectives, widen gradients before
  they are summed, or share out the update.

## How it was made

`python -m experiments.scaling --workdir=runs/scaling --output=docs/scaling.md` on {machine}, which
compiles what the work folder lacks: {number} programs at their full depth, each for as many
virtual devices as it has. Nothing is extrapolated. A step takes its products ÷ (peak ×
{utilisation:.0%}), plus {update} bytes for each parameter that a device updates ÷ the rate of its
memory, plus bytes sent ÷ the rate of the links and a latency for each combined collective.

Rates, of {date}: {note} Assumed: on the torus a group of two has one link of each chip, a larger
one two, a whole pod four, and a collective waits for the hops along both sides of its group;
members of a group within a node use their ports together.
"""


def document(programs: Sequence[layouts.Program]) -> str:
    """The whole page, of all layouts, in the order in which they should stand."""
    found = {
        (model, kind): _predict(programs, model, kind)
        for model in ("base", "big")
        for kind in SIZES
    }
    config, *_ = predictions.one_device("base", 256)
    most = our_tables.power_of_two(config.train.batch_tokens // config.data.target_length)
    by_name = {program.layout.name: program for program in programs}
    data = by_name[f"base-{most}x1x1-256"]
    ratios = [_ratio(program) for program in programs]
    shared = _shared(data)
    published = network.read_data()
    text = _TEXT.format(
        tokens=config.train.batch_tokens,
        stops=_stops(programs),
        stops_20=_stops(programs, 0.2),
        stops_60=_stops(programs, 0.6),
        answer=_markdown(our_tables.answer(found)),
        worth=predictions.WORTH,
        most=most,
        fixed="\n".join(_fixed(by_name[f"{model}-{most}x1x1-256"]) for model in ("base", "big")),
        divisibility=_markdown(our_tables.divisibility(config)),
        predicted=_markdown(*(our_tables.predicted(*key, each) for key, each in found.items())),
        programs=_markdown(our_tables.compiled(programs)),
        loops=_loops(programs),
        low=min(ratios),
        high=max(ratios),
        uses=len(shared),
        shared=sum(shared) / 1e6,
        all_reduced=sum(one.array_bytes for one in data.sent) / 1e6,
        fsdp=_fsdp(by_name["base-8x1x1-256"], by_name["base-1x8x1-256"]),
        utilisation=published["utilisation"],
        positions=min(config.train.batch_tokens // one.layout.devices for one in programs),
        machine=f"{os.cpu_count()} CPU cores, JAX {jax.__version__}, {datetime.date.today()}",
        number=len(programs),
        update=network.UPDATE_BYTES,
        date=published["date"],
        note=published["networks"]["note"],
    )
    return "\n\n".join(map(_wrapped, text.strip().split("\n\n"))) + "\n"


def _predict(
    programs: Sequence[layouts.Program], model: str, kind: str, utilisation: float = 0.0
) -> list[predictions.Prediction]:
    """All layouts that a kind of device is asked for, ascending in devices, from one on."""
    least, most = SIZES[kind]
    found = [
        predictions.predict(program, kind, utilisation)
        for program in programs
        if program.layout.model == model and least <= program.layout.devices <= most
    ]
    one_device = predictions.alone(model, kind, utilisation)
    return [one_device, *sorted(found, key=lambda one: one.layout.devices)]


def _stops(programs: Sequence[layouts.Program], utilisation: float = 0.0) -> str:
    """The sizes at which the batch has stopped scaling, in words."""
    words = []
    for model in ("base", "big"):
        sizes = []
        for kind in SIZES:
            found = _predict(programs, model, kind, utilisation)
            half = predictions.half_efficient(found).layout.devices
            larger = [one.layout.devices for one in found if one.layout.devices > half]
            sizes.append(f"{min(larger)} {kind}" if larger else f"more than {half} {kind}")
        words.append(f"{model} at {' or '.join(sizes)}")
    return ", ".join(words)


def _fixed(program: layouts.Program) -> str:
    time = predictions.predict(program, "v5e").time
    return (
        f"- {program.layout.model}: products {1e3 * time.products:.1f} ms, sending "
        f"{our_tables.sent_megabytes(program.sent):,.0f} MB {1e3 * time.sending:.1f} ms, the "
        f"update {1e3 * time.update:.1f} ms."
    )


def _ratio(program: layouts.Program) -> float:
    """Operations of the products of all devices, over the formula's."""
    layout = program.layout
    return program.flops * layout.devices / predictions.one_device(layout.model, layout.row)[2]


def _shared(program: layouts.Program) -> list[int]:
    """Bytes of each array of the shared matrix's size that is all-reduced."""
    config = program.layout.config()
    values = config.data.vocab_size * config.model.d_model
    return [one.array_bytes for one in program.sent if one.array_bytes in (2 * values, 4 * values)]


def _loops(programs: Sequence[layouts.Program]) -> str:
    turns = max(one.times for program in programs for one in program.sent)
    if turns > 1:
        return f"Collectives run {turns} times a step at most."
    return "No collective stands in a loop here; one that did would count once for each turn."


def _fsdp(data: layouts.Program, fsdp: layouts.Program) -> str:
    sent = [our_tables.sent_megabytes(program.sent) for program in (data, fsdp)]
    text = f"With fsdp 8 a device sends {sent[1]:,.0f} MB a step, with data 8 {sent[0]:,.0f}"
    if sent[1] < 2 * sent[0]:
        return f"{text} (base)."
    return (
        f"{text} (base): what travels is not parameters but activations of the whole batch, which "
        "the compiler shares out by d_model as the parameters are."
    )


def _wrapped(paragraph: str) -> str:
    """Lines of a paragraph, or of each point of a list, that are not too long."""
    if paragraph.startswith(("|", "#")):
        return paragraph
    points = re.split(r"\n(?=- )", paragraph)
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    indent = "  " if paragraph.startswith("- ") else ""
    return "\n".join(
        textwrap.fill(" ".join(point.split()), 104, subsequent_indent=indent, **options)
        for point in points
    )


def _markdown(*shown: tables.Table) -> str:
    return tables.markdown(shown, []).strip().replace("## ", "### ")
