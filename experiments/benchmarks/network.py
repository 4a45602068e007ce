"""How long collectives take on chips that are not here, by their makers' published rates."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmarks import partitioned


@dataclasses.dataclass(frozen=True)
class Torus:
    """Chips in a rectangle, each linked with its neighbours; a whole pod's edges are linked too.

    Two neighbours share one link. A ring through more passes two links of each chip, in both
    directions at once, and of collective-permutes two, one in each; a whole torus has two such
    rings. Steps of latency are hops along one side of the nearest to a square that the group can
    form, then along the other; a collective-permute's is one.
    """

    link_gb_per_s: float  # each way
    whole: int  # chips in a pod
    hop_us: float  # latency between neighbours

    def seconds(self, one: partitioned.Collective) -> float:
        """What a collective takes, run once."""
        sending = one.sent_bytes / one.times / self.rate(one.group)
        return sending + self.latency(one.kind, one.group)

    def rate(self, group: Sequence[int]) -> float:
        """Bytes a second that each chip of a group sends, all groups sending at once."""
        links = 1 if len(group) == 2 else 4 if len(group) == self.whole else 2
        return 1e9 * self.link_gb_per_s * links

    def latency(self, kind: str, group: Sequence[int]) -> float:
        """Seconds that a collective of no bytes takes."""
        if kind == "collective-permute":
            return 1e-6 * self.hop_us
        side = next(n for n in range(math.isqrt(len(group)), 0, -1) if len(group) % n == 0)
        hops = side + len(group) // side - 2
        return 1e-6 * self.hop_us * hops * (2 if kind == "all-reduce" else 1)


def torus(kind: str) -> Torus:
    """That of a kind of devices.json."""
    return Torus(**read_data()["networks"][kind])


def read_data() -> Mapping[str, Any]:
    """All of devices.json."""
    return json.loads(pathlib.Path(__file__).with_name("devices.json").read_text(encoding="utf-8"))
