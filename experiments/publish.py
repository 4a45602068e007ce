"""Writes the results of a sweep to a folder that can be published in a repository.

  python -m experiments.publish runs/toy --output=experiments/published/toy

The folder has no corpora, except for ten example sentences (examples.json, omitted with
--noexamples). It has the files sweep.json, runs.csv, curves.csv, lengths.csv, sentences.npz (counts
and likelihoods of each sentence, but no text), the table as Markdown and CSV, and PROVENANCE.md,
which you complete. --model=base adds the trained model of base's first run, which
`transformer_jax.load` reads. `experiments.report` reads the folder, and another sweep can use the
runs with --reuse. If --output is a published folder of the same table, the runs are added to it.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import pandas as pd
from absl import flags

from experiments.results import comparison, examples, frames, report
from experiments.sweep import store
from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax import flags as flags_lib
from transformer_jax.data import vocabulary
from transformer_jax.distributed import sharding
from transformer_jax.runs import run_folder
from transformer_jax.training import checkpoint, manifest
from transformer_jax.training import step as step_lib

_DATA_PATHS = [
    name
    for name in config_lib.flatten(config_lib.DEFAULTS)
    if name.startswith("data.") and not config_lib.is_hashed(name)
]
_FOLDERS = re.compile(r"(^|,)\s*/[^,]*/")  # folders of absolute paths separated by commas


def publish(workdir: pathlib.Path, output: pathlib.Path, with_examples: bool = True) -> None:
    """Publishes the finished runs of a sweep.

    Args:
      workdir: the sweep's folder.
      output: the folder to write. If it is a published folder, the runs are added to it.
      with_examples: whether to write examples.json.

    Raises:
      UserError: no run is finished, or the output folder holds another sweep.
    """
    if workdir.resolve() == output.resolve():
        raise errors.UserError(f"--output={output} is the sweep's folder itself: name another one")
    if (output / "sweep.json").exists() and not store.is_published(output):
        raise errors.UserError(
            f"--output={output} is the folder of a sweep, not a published one: name another folder"
        )
    sweep = frames.load(workdir)
    if sweep.runs.empty:
        raise errors.UserError(f"{workdir}: no run of the sweep is finished")
    found = examples.collect(sweep) if with_examples else examples.Examples((), {})
    sweep = dataclasses.replace(sweep, description=_publishable(sweep))
    if store.is_published(output):
        published = frames.load(output)
        sweep = merge(published, sweep)
        if with_examples:
            found = _merge_examples(examples.read(output), found)
    comparison.compare(sweep)  # raises UserError, before files are written, if runs do not compare
    frames.write(sweep, output)
    examples.write(found, output)
    store.write(output, sweep.description)
    report.write(output)
    provenance = output / "PROVENANCE.md"
    if not provenance.exists():
        files.write(provenance, _provenance(sweep).encode())
    print(f"Published {len(sweep.runs)} runs in {output}; complete {provenance}")


def publish_model(workdir: pathlib.Path, row: str, output: pathlib.Path) -> None:
    """Publishes the trained model of a row's first run, which `transformer_jax.load` reads.

    To make the checkpoint compress better, the moments of the optimiser, which only resuming
    needs, are replaced by zeros, and parameters are rounded to 16 significant bits.

    Args:
      workdir: the sweep's folder.
      row: the name of the row.
      output: the folder to write; it must not exist.

    Raises:
      UserError: the row has no finished run with a checkpoint, its checkpoints are averaged, or
        `output` exists.
    """
    sweep = frames.load(workdir)
    runs = sweep.of(row).to_dict("records")
    folder = sweep.folders[runs[0]["config_hash"]] if runs else workdir
    if not run_folder.has_checkpoints(folder):
        raise errors.UserError(
            f"--model={row}: {workdir} has no finished run with checkpoints of it"
        )
    if output.exists():
        raise errors.UserError(f"{output} exists: delete it, or leave out --model")
    config = run_folder.read_config(folder)
    if config.evaluation.average_checkpoints > 1:
        raise errors.UserError(f"--model={row}: its checkpoints are averaged; one can be published")
    tokenizer = run_folder.read_tokenizer(folder, config)
    mesh = sharding.make_mesh(config_lib.MeshConfig(), jax.devices()[:1])
    shapes = step_lib.state_shapes(
        models.build(config.model, vocabulary.size(config)), config, mesh
    )
    with contextlib.closing(
        checkpoint.Checkpoints(folder / "checkpoints", config, tokenizer.digest)
    ) as trained:
        state, wall_seconds, _ = trained.restore(shapes)
    published_state = state._replace(
        params=jax.tree.map(lambda values: jax.lax.reduce_precision(values, 8, 15), state.params),
        opt_state=jax.tree.map(jnp.zeros_like, state.opt_state),
    )
    with contextlib.closing(
        checkpoint.Checkpoints(output / "checkpoints", config, tokenizer.digest)
    ) as published:
        published.save(published_state, wall_seconds)
        published.wait()
    step = output / "checkpoints" / str(int(state.step))
    for marker in step.rglob("commit_success.txt"):
        files.write(marker, b"")  # Orbax writes the path of the folder into it
    manifest.write(step)
    for name in ("config.json", "run.json", "result.json"):
        content = _file_names(json.loads((folder / name).read_text(encoding="utf-8")))
        files.write_json(output / name, content)
    files.write(output / "tokenizer.model", tokenizer.model)


def _publishable(sweep: frames.Sweep) -> store.Description:
    """Returns the sweep's description with finished runs only, and without absolute paths."""
    done = set(sweep.runs["config_hash"])
    description = sweep.description
    rows = {row: _without_folders(changes) for row, changes in description.rows.items()}
    return dataclasses.replace(
        description,
        base=config_lib.replace(
            description.base,
            _without_folders(
                {name: config_lib.get(description.base, name) for name in _DATA_PATHS}
            ),
        ),
        rows=rows,
        runs=[run for run in description.runs if run.config_hash in done],
        reuse=[],
        data=_corpora(sweep),
        published=True,
    )


def _without_folders(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns overrides, with file names in place of absolute paths of corpora."""
    return {
        name: _FOLDERS.sub(r"\1", value) if name in _DATA_PATHS else value
        for name, value in changes.items()
    }


def _corpora(sweep: frames.Sweep) -> list[Any]:
    """Returns the files, hashes and line counts of each corpus that the runs used."""
    all_corpora: list[Any] = []
    for folder in dict.fromkeys(sweep.folders.values()):
        if store.is_published(folder):
            corpora = store.read(folder).data
        else:
            corpora = [run_folder.read_result(folder)["data"]]
        for corpus in corpora:
            named = _file_names(corpus)
            if named not in all_corpora:
                all_corpora.append(named)
    return all_corpora


def _file_names(value: Any) -> Any:
    """Returns nested mappings and lists, with file names in place of absolute paths."""
    if isinstance(value, Mapping):
        return {name: _file_names(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_file_names(each) for each in value]
    return _FOLDERS.sub(r"\1", value) if isinstance(value, str) else value


def merge(published: frames.Sweep, sweep: frames.Sweep) -> frames.Sweep:
    """Returns the results of a sweep together with the results of a published folder.

    Of runs with the same row and seed, the run of `sweep` is kept.

    Raises:
      UserError: the published folder has another table, base, --match or --tune than the sweep, or
        has runs of a row with other settings.
    """
    old, new = published.description, sweep.description
    bases = [config_lib.hashed_fields(description.base) for description in (old, new)]
    is_same = (old.table, old.match, old.tune) == (new.table, new.match, new.tune)
    if not is_same or bases[0] != bases[1]:
        raise errors.UserError(
            f"{published.folder} holds {old.table} with another base, --match or --tune than this "
            f"sweep's {new.table}: publish into another folder, or delete that one"
        )
    for row, overrides in old.rows.items():
        if any(run.row == row for run in old.runs) and new.rows.get(row) != overrides:
            raise errors.UserError(
                f"{published.folder} has runs of row {row!r} with other settings: publish into "
                "another folder, or delete that one"
            )
    new_keys = {(run.row, run.seed) for run in new.runs}
    added = [run for run in old.runs if (run.row, run.seed) not in new_keys]
    names = [name for row in new.rows for name in new.names(row)]
    runs = sorted([*new.runs, *added], key=lambda run: (names.index(run.row), run.seed))
    keys = [(run.row, run.seed) for run in runs]

    def merged(name: str) -> pd.DataFrame:
        """Returns the lines of both sweeps' frames, in the order of rows and seeds."""
        new_lines: pd.DataFrame = getattr(sweep, name)
        old_lines: pd.DataFrame = getattr(published, name)
        is_added = [
            key not in new_keys for key in zip(old_lines["row"], old_lines["seed"], strict=True)
        ]
        lines = pd.concat([new_lines, old_lines.loc[is_added]], ignore_index=True)
        order = [keys.index(key) for key in zip(lines["row"], lines["seed"], strict=True)]
        return lines.assign(order=order).sort_values("order", kind="stable").drop(columns="order")

    corpora = [*new.data, *(corpus for corpus in old.data if corpus not in new.data)]
    return dataclasses.replace(
        sweep,
        description=dataclasses.replace(
            new,
            runs=runs,
            data=corpora,
            noise_floor=max(new.noise_floor, old.noise_floor),
        ),
        runs=merged("runs"),
        curves=merged("curves"),
        lengths=merged("lengths"),
        folders={**published.folders, **sweep.folders},
    )


def _merge_examples(old: examples.Examples, new: examples.Examples) -> examples.Examples:
    if old.sentences != new.sentences:
        return new
    return examples.Examples(new.sentences, {**old.outputs, **new.outputs})


def _provenance(sweep: frames.Sweep) -> str:
    """Returns the text of PROVENANCE.md, with placeholders for the command and the date."""
    runs = sweep.runs
    hours = (runs["wall_seconds"] * runs.get("devices", 1)).sum() / 3600
    lines = [
        f"# Provenance of {sweep.description.table}",
        "",
        f"- Runs: {len(runs)}, {hours:.1f} device hours",
        f"- Commits: {', '.join(sorted(set(runs['git_commit'])))}",
        f"- Devices: {', '.join(sorted(set(runs['device_kind'])))}",
        "- Command: (add the command)",
        "- Date: (add the date)",
    ]
    return "\n".join(lines) + "\n"


def main(folder: str = "") -> None:
    """Publishes the sweep that the command line names."""
    workdir = folder or _WORKDIR.value
    if not workdir:
        raise errors.UserError("name the sweep's folder: python -m experiments.publish DIR")
    output = files.local_path(_OUTPUT.value)
    if _MODEL.value and (output / "model").exists():
        raise errors.UserError(f"{output / 'model'} exists: delete it, or leave out --model")
    publish(files.local_path(workdir), output, _EXAMPLES.value)
    if _MODEL.value:
        publish_model(files.local_path(workdir), _MODEL.value, output / "model")


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder, like the argument.")
    _OUTPUT = flags_lib.define_required("output", "The folder to write.")
    _EXAMPLES = flags.DEFINE_bool("examples", True, "Whether to include ten sentences.")
    _MODEL = flags.DEFINE_string("model", "", "Row whose trained model is published too.")
    flags_lib.run(main, "[DIR]")
