"""Cloud TPU by gcloud alone: the lines that make a slice, run a sweep on it and delete it.

They are printed and written, not run: a queue for a slice may take hours, and who types them sees
what they cost. Cells run one after another, each on all hosts of the slice.
"""

import shlex
from collections.abc import Sequence
from typing import final

from launch import engine

FOLDER = "transformer_jax"  # of the checkout's copy

_SCRIPT = """#!/bin/bash
# The sweep {name} on one Cloud TPU slice. Read it, then run it: bash tpu_vm.sh
set -euo pipefail
where=({where})
slice={name}

# 1. Pack the code as it is now.
archive=$(mktemp)
git ls-files -z --cached --others --exclude-standard \\
  | while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\\0' "$file"; done \\
  | tar --null --files-from=- -czf "$archive"

# 2. Ask for the slice, and wait until it is there: minutes, or hours.
# However this ends, the slice goes back: it costs money until then.
trap {trap} EXIT
gcloud compute tpus queued-resources create "$slice" --node-id="$slice" "${{where[@]}}" \\
  {created}
state=
while [ "$state" != ACTIVE ]; do
  state=$(gcloud compute tpus queued-resources describe "$slice" "${{where[@]}}" \\
    --format='value(state.state)')
  case $state in FAILED | SUSPENDED) echo "the slice is $state" >&2; exit 1 ;; esac
  [ "$state" = ACTIVE ] || sleep 30
done

# 3. Copy the code to all its hosts, and install what it needs.
gcloud compute tpus tpu-vm scp "$archive" "$slice":transformer_jax.tar.gz "${{where[@]}}" \\
  --worker=all
gcloud compute tpus tpu-vm ssh "$slice" "${{where[@]}}" --worker=all --command={install}

# 4. Run the cells, one after another, each on all hosts; 42 means that one is to be run again.
run() {{
  local code=42
  while [ $code -eq 42 ]; do
    code=0
    gcloud compute tpus tpu-vm ssh "$slice" "${{where[@]}}" --worker=all --command="$1" || code=$?
  done
  [ $code -eq 0 ] || echo "failed, exit code $code: $1" >&2
}}
{cells}
# If this machine is lost before the end, the slice stays, and costs money. From another:
# {delete}
"""


@final
class TpuVm(engine.Queue):
    """The lines for one slice."""

    name = "tpu-vm"
    takes = frozenset({"launcher_options", "bucket", "accelerator", "spot"})
    location = ("--zone=", "--project=")

    def check(self) -> None:
        super().check()
        for name, example in (("zone", "us-west4-a"), ("runtime-version", "v2-alpha-tpuv5-lite")):
            if not any(option.startswith(f"--{name}=") for option in self.settings.options):
                raise engine.EngineError(
                    f"--launcher=tpu-vm needs --{name}: add it to --launcher_options, as in "
                    f"--{name}={example}"
                )

    def script(self, submission: engine.Submission) -> str:
        """The commands of gcloud, from the slice's making to its deletion."""
        unpack = f"mkdir -p {FOLDER} && tar -xzf transformer_jax.tar.gz -C {FOLDER} && cd {FOLDER}"
        cells = "\n".join(
            f"# {' '.join(job.name.split())}\nrun "
            + shlex.quote(f"cd {FOLDER} && exec {shlex.join([*job.command, '--distributed'])}")
            for job in submission.jobs
        )
        others = [option for option in self.settings.options if option not in self.where]
        made = [f"--accelerator-type={self.settings.accelerator}", *others]
        delete = shlex.join(self.cancelling(submission.name))
        return _SCRIPT.format(
            delete=delete,
            trap=shlex.quote(delete),
            name=shlex.quote(submission.name),
            where=shlex.join(self.where),
            created=shlex.join([*made, *["--spot"] * self.settings.spot]),
            install=shlex.quote(f"{unpack} && {engine.environment('tpu')}"),
            cells=cells,
        )

    def submit(self, submission: engine.Submission, remember: engine.Remember) -> str:
        script, path = self.script(submission), submission.folder / "tpu_vm.sh"
        path.write_text(script, encoding="utf-8")
        remember([job.label for job in submission.jobs])
        print(script)
        return f"nothing was run; these lines are {path} too"

    def queue(self, names: Sequence[str]) -> None:
        return None

    def cancelling(self, *names: str) -> list[str]:
        """The command that deletes slices, with all jobs that they have."""
        delete = ["gcloud", "compute", "tpus", "queued-resources", "delete"]
        return [*delete, *names, *self.where, "--force", "--quiet"]
