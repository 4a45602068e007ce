"""Where a sweep's numbers come from: what all runs share, then each run, and what it cost."""

from collections.abc import Mapping
from typing import Any

from experiments.benchmarks import cost
from experiments.sweep import results
from transformer_jax.training import metrics

_HASH = 12  # characters of a hash that are shown


def of(sweep: results.Sweep) -> dict[str, Any]:
    """What all runs share, as pairs, and a table of the runs with what they do not."""
    found = [(row, seed, result) for row in sweep.rows for seed, result in row.results.items()]
    facts = [_facts(result) for _, _, result in found]
    shared = {
        name: value
        for name, value in (facts[0].items() if facts else ())
        if value and all(other.get(name) == value for other in facts)
    }
    names = dict.fromkeys(name for each in facts for name in each if name not in shared)
    varied = [name for name in names if any(each.get(name) for each in facts)]
    flops = {row.name: cost.training_flops(sweep.config(row)) for row, _, _ in found}
    lines = [
        [
            row.name,
            str(seed),
            *(each.get(name, "") for name in varied),
            str(result.get("config_hash", ""))[:_HASH],
            metrics.duration(result["wall_seconds"]),
            f"{_device_hours(result):.2f}",
            f"{flops[row.name]:.2e}",
            f"{speed:,.0f}" if isinstance(speed, int | float) else "",
        ]
        for (row, seed, result), each in zip(found, facts, strict=True)
        for speed in [result.get("tokens_per_second")]
    ]
    heads = ["row", "seed", *varied, "config", "wall time", "device hours", "training FLOPs"]
    hours = sum(_device_hours(result) for _, _, result in found)
    total = sum(flops[row.name] for row, _, _ in found)
    return {
        "shared": [[name, value] for name, value in shared.items()],
        "heads": [*heads, "tokens/s"],
        "lines": lines,
        "total": f"{len(found)} runs took {hours:.2f} device hours and {total:.2e} FLOPs of "
        "training (matrix products of the traced step, padding included, × steps)."
        if found
        else "",
    }


def _facts(result: Mapping[str, Any]) -> dict[str, str]:
    """What may be the same in all runs, by what it is called; "" where a run does not say."""
    devices = result.get("devices") or []
    versions = result.get("versions") or {}
    decode = ", ".join(f"{name}={value}" for name, value in result["decode"].items())
    return {
        "commit": str(result.get("git_commit", "")),
        "corpus (SHA-256)": result["data_sha256"],
        "tokenizer (SHA-256)": result["tokenizer_sha256"],
        "test set (SHA-256)": result["test_sha256"],
        "direction": " to ".join(result["data"]["languages"]),
        "decoding": decode,
        **{f"BLEU, {variant}": score["signature"] for variant, score in result["bleu"].items()},
        "devices": f"{len(devices)} × {devices[0]}" if devices else "",
        "JAX": str(versions.get("jax", "")),
    }


def _device_hours(result: Mapping[str, Any]) -> float:
    """Wall time × devices."""
    return result["wall_seconds"] * len(result.get("devices") or [0]) / 3600
