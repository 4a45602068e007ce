"""How a sweep is handed over in tests, and scripts in place of the engines' own programs.

Each writes down how it is called, in the file CALLS.
"""

FLAGS = ["--rows=base,E", "--bucket=gs://bucket/sweep", "--accelerator=v5litepod-8"]
SIZES = {
    "train.num_steps": 4,
    "model.num_layers": 3,
    "model.num_heads": 8,
    "model.d_k": 8,
    "model.d_v": 8,
    "model.d_model": 64,
}
# Fails when asked to for the CELLth time.
RECORD = """#!/bin/bash
printf '%s\\n' "$(basename "$0") $*" >> "$CALLS"
case "$*" in
  *queue*) echo "${QUEUE:-[]}" ;;
  *"$FAILS"*) [ -z "$FAILS" ] || { echo "no $FAILS today" >&2; exit 3; } ;;
esac
"""
SLURM = """#!/bin/bash
printf '%s\\n' "$(basename "$0") $*" >> "$CALLS"
case $(basename "$0") in
  sbatch) cat "$CALLS" | grep -c sbatch ;;
  squeue) printf "$SQUEUE" ;;
esac
case " $FAILS " in *" $(basename "$0") "*) echo "Socket timed out" >&2; exit 1 ;; esac
"""
