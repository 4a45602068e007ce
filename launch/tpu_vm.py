"""Cloud TPU by gcloud alone: the lines that make a slice, run a sweep on it and delete it.

They are printed and written, not run: a queue for a slice may take hours, and who types them sees
what they cost. Cells run one after another, each on all hosts of the slice.
"""

import shlex
from collections.abc import Sequence

from launch import jobs as jobs_lib

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
gcloud compute tpus queued-resources create "$slice" --node-id="$slice" "${{where[@]}}" \\
  --accelerator-type={accelerator}{options}
# However this ends, the slice goes back: it costs money until then.
trap {trap} EXIT
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


def render(
    jobs: Sequence[jobs_lib.Remote],
    *,
    name: str,
    setup: str,
    accelerator: str,
    spot: bool,
    options: Sequence[str],
) -> str:
    """A script of gcloud's commands, from the slice's making to its deletion.

    Args:
      jobs: the cells.
      name: the slice's.
      setup: a shell command that installs what cells need, in the checkout.
      accelerator: the slice's type, v5litepod-8.
      spot: whether it may be taken away.
      options: of gcloud's: --zone and --project, --runtime-version and what else a slice needs.

    Raises:
      EngineError: --zone or --runtime-version is missing.
    """
    for option_name, example in (
        ("zone", "us-west4-a"),
        ("runtime-version", "v2-alpha-tpuv5-lite"),
    ):
        if not any(option.startswith(f"--{option_name}=") for option in options):
            raise jobs_lib.EngineError(
                f"--launcher=tpu-vm needs --{option_name}: add it to --launcher_options, as in "
                f"--{option_name}={example}"
            )
    where = [option for option in options if option.startswith(("--zone=", "--project="))]
    others = [option for option in options if option not in where] + ["--spot"] * spot
    folder = "transformer_jax"
    unpack = f"mkdir -p {folder} && tar -xzf transformer_jax.tar.gz -C {folder} && cd {folder}"
    cells = "\n".join(
        f"# {' '.join(job.name.split())}\nrun "
        + shlex.quote(f"cd {folder} && exec {shlex.join([*job.command, '--distributed'])}")
        for job in jobs
    )
    delete = shlex.join(
        ["gcloud", "compute", "tpus", "queued-resources", "delete", name, *where, "--force",
         "--quiet"]
    )  # fmt: skip
    return _SCRIPT.format(
        delete=delete,
        trap=shlex.quote(delete),
        name=shlex.quote(name),
        where=shlex.join(where),
        accelerator=shlex.quote(accelerator),
        options="".join(f" {shlex.quote(option)}" for option in others),
        install=shlex.quote(f"{unpack} && {setup}"),
        cells=cells,
    )
