"""What published rates make of a compiled step: its efficiency, and where adding devices ends."""

import dataclasses
import functools
from collections.abc import Sequence

from experiments import cost
from experiments.scaling import layouts, network
from transformer_jax import config as config_lib

HALF = 0.5  # a batch has stopped scaling where efficiency, with nothing hidden, is below this
WORTH = 1.1  # and doubling devices is worth it where a step is at least so many times as fast


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A layout on devices of one kind.

    Attributes:
      layout: it.
      time: of its step.
      alone: of the same step, with rows of the same length, on one device.
    """

    layout: layouts.Layout
    time: network.StepTime
    alone: network.StepTime

    @property
    def hidden(self) -> float:
        """Efficiency if products hide what they can of sending."""
        return self.alone.hidden / self.time.hidden / self.layout.devices

    @property
    def exposed(self) -> float:
        """Efficiency if nothing is hidden."""
        return self.alone.exposed / self.time.exposed / self.layout.devices


@functools.cache
def one_device(model: str, row: int) -> tuple[config_lib.Config, int, float]:
    """The config, its parameters, and operations of the matrix products of a step, by formula."""
    config = layouts.Layout(model, 1, 1, 1, row).config()
    return config, cost.parameters(config), cost.training_flops(config) / config.train.num_steps


def predict(program: layouts.Program, kind: str, utilisation: float = 0.0) -> Prediction:
    """What a layout's step takes on devices of a kind; see `network.accelerator`."""
    layout, device = program.layout, network.accelerator(kind, utilisation)
    _, parameters, flops = one_device(layout.model, layout.row)
    share = parameters / (layout.fsdp * layout.tensor)
    time = network.step_time(device, program.flops, share, program.sent, program.launched)
    return Prediction(layout, time, network.step_time(device, flops, parameters, [], []))


def alone(model: str, kind: str, utilisation: float = 0.0) -> Prediction:
    """One device, which sends nothing."""
    layout = layouts.Layout(model, 1, 1, 1, 256)
    _, parameters, flops = one_device(model, layout.row)
    time = network.step_time(network.accelerator(kind, utilisation), flops, parameters, [], [])
    return Prediction(layout, time, time)


def best(predictions: Sequence[Prediction]) -> list[Prediction]:
    """For each number of devices the layout that is fastest with nothing hidden, ascending."""
    fastest: dict[int, Prediction] = {}
    for one in sorted(predictions, key=lambda one: one.time.exposed, reverse=True):
        fastest[one.layout.devices] = one
    return [fastest[number] for number in sorted(fastest)]


def half_efficient(predictions: Sequence[Prediction]) -> Prediction:
    """The best layout of the number of devices up to which a batch scales, from the least on."""
    last, *others = best(predictions)
    for one in others:
        if one.exposed < HALF:
            break
        last = one
    return last


def worth_having(predictions: Sequence[Prediction]) -> Prediction:
    """The best layout of the number of devices up to which doubling is worth it, from the least."""
    last, *others = best(predictions)
    for one in others:
        if last.time.exposed < WORTH * one.time.exposed:
            break
        last = one
    return last
