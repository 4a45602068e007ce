"""How long a step takes on accelerators that are not here, by their makers' published rates."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, final

from experiments.scaling import partitioned

_DEVICES = pathlib.Path(__file__).parents[1] / "devices.json"
# Adam reads parameters, two moments and a gradient, and writes parameters and moments: in float32.
UPDATE_BYTES = 7 * 4


class Network:
    """What connects the devices of one kind."""

    def rate(self, group: Sequence[int]) -> float:
        """Bytes a second that each device of a group sends, all groups sending at once."""
        raise NotImplementedError

    def latency(self, kind: str, group: Sequence[int]) -> float:
        """Seconds that a collective of no bytes takes."""
        raise NotImplementedError


@final
@dataclasses.dataclass(frozen=True)
class Torus(Network):
    """Chips in a rectangle, each linked with its neighbours; a whole pod's edges are linked too.

    Two neighbours share one link. A ring through more passes two links of each chip, in both
    directions at once; a whole torus has two such rings. Steps of latency are hops along one side
    of the nearest to a square that the group can form, then along the other.

    Attributes:
      link_gb_per_s: each way.
      whole: chips in a pod.
      hop_us: latency between neighbours.
    """

    link_gb_per_s: float
    whole: int
    hop_us: float

    def rate(self, group: Sequence[int]) -> float:
        links = 1 if len(group) == 2 else 4 if len(group) == self.whole else 2
        return 1e9 * self.link_gb_per_s * links

    def latency(self, kind: str, group: Sequence[int]) -> float:
        side = next(n for n in range(math.isqrt(len(group)), 0, -1) if len(group) % n == 0)
        hops = side + len(group) // side - 2
        return 1e-6 * self.hop_us * hops * (2 if kind == "all-reduce" else 1)


@final
@dataclasses.dataclass(frozen=True)
class Nodes(Network):
    """Devices that are all connected within a node, each with a port to the other nodes.

    A group's members within a node share out what leaves it, as NCCL's rings do: their ports
    together carry what one ring needs. Latency is that of NCCL's model of its tree algorithm.

    Attributes:
      node: devices in a node.
      inside_gb_per_s: of a device, each way, within its node.
      port_gb_per_s: of a device, each way, out of its node.
      start_us: of any collective.
      inside_us: between devices of a node.
      between_us: between nodes.
    """

    node: int
    inside_gb_per_s: float
    port_gb_per_s: float
    start_us: float
    inside_us: float
    between_us: float

    def rate(self, group: Sequence[int]) -> float:
        together = self._together(group)
        if together == len(group):
            return 1e9 * self.inside_gb_per_s
        return 1e9 * min(self.inside_gb_per_s, together * self.port_gb_per_s)

    def latency(self, kind: str, group: Sequence[int]) -> float:
        together = self._together(group)
        steps = (together - 1) * self.inside_us
        steps += math.ceil(math.log2(len(group) / together)) * self.between_us
        return 1e-6 * (self.start_us + steps * (2 if kind == "all-reduce" else 1))

    def _together(self, group: Sequence[int]) -> int:
        """Members in one node."""
        return sum(device // self.node == group[0] // self.node for device in group)


KINDS: dict[str, type[Network]] = {"torus": Torus, "nodes": Nodes}


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """One kind of device, in numbers.

    Attributes:
      flops: operations a second of dense bfloat16 products that training reaches.
      memory_bytes_per_s: peak rate of its memory.
      network: what connects it with others.
    """

    flops: float
    memory_bytes_per_s: float
    network: Network


def accelerator(name: str, utilisation: float = 0.0) -> Accelerator:
    """A kind of devices.json that has a network there.

    Args:
      name: of the kind.
      utilisation: share of the peak that products reach; 0 for the data file's.
    """
    data = read_data()
    fields: dict[str, Any] = dict(data["networks"][name])
    network, memory = KINDS[fields.pop("kind")], fields.pop("memory_gb_per_s")
    share = utilisation or data["utilisation"]
    flops = 1e12 * data["devices"][name]["tflops"] * share
    return Accelerator(flops, 1e9 * memory, network(**fields))


def read_data() -> Mapping[str, Any]:
    """All of devices.json."""
    return json.loads(_DEVICES.read_text(encoding="utf-8"))


@dataclasses.dataclass(frozen=True)
class StepTime:
    """Seconds of one step, by what it does.

    Attributes:
      products: its matrix products.
      update: Adam's.
      sending: its collectives.
    """

    products: float
    update: float
    sending: float

    @property
    def hidden(self) -> float:
        """If products hide as much of sending as they can; no update begins before it has ended."""
        return max(self.products, self.sending) + self.update

    @property
    def exposed(self) -> float:
        """If nothing is hidden."""
        return self.products + self.sending + self.update


def step_time(
    device: Accelerator,
    flops: float,
    values: float,
    sent: Sequence[partitioned.Collective],
    launched: Sequence[partitioned.Collective],
) -> StepTime:
    """What a step takes.

    Args:
      device: each of them.
      flops: of each one's matrix products.
      values: parameters that each one updates.
      sent: collectives, which take time by their bytes.
      launched: those that are left once they are combined, which take time by their number.
    """
    network = device.network
    wire = sum(one.sent_bytes / network.rate(one.group) for one in sent)
    wire += sum(one.times * network.latency(one.kind, one.group) for one in launched)
    return StepTime(flops / device.flops, values * UPDATE_BYTES / device.memory_bytes_per_s, wire)
