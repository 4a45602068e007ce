#!/bin/bash
# Runs a sweep on one NVIDIA GPU for a limited time, on a machine that keeps nothing afterwards.
#
#   launch/gpu.sh SECONDS ARCHIVE WORKDIR COMMAND...
#   launch/gpu.sh 360 saved/canada_fr runs/canada_fr python -m experiments.table3 \
#       --config=configs/canada_fr.py --workdir=runs/canada_fr --parallel=15 --seeds=3 ...
#
# COMMAND is stopped after SECONDS seconds, which can take 150 seconds more. Its finished runs in
# WORKDIR are then packed into ARCHIVE.00, ARCHIVE.01 and so on, of at most 15 MiB each, without
# checkpoints. The same line, on any machine with the checkout, the data and these files, unpacks
# them and resumes the sweep. A run that was stopped starts over, so SECONDS should be several times
# what one run takes. Rows that start from another row's weights need its checkpoints, and cannot be
# trained in pieces.
#
# Runs compute at the same time through NVIDIA's MPS, which is started if it does not run, and left
# running. With JAX_PLATFORMS=cpu it is not started.
set -euo pipefail
shopt -s nullglob
if [ $# -lt 4 ]; then
  echo "usage: launch/gpu.sh SECONDS ARCHIVE WORKDIR COMMAND..." >&2
  exit 2
fi
seconds=$1 archive=$2 workdir=$3
shift 3

mkdir -p "$workdir" "$(dirname "$archive")"
parts=("$archive".[0-9][0-9])
if [ ${#parts[@]} -gt 0 ]; then
  cat "${parts[@]}" | tar --extract --gzip --directory="$workdir"
fi

if [ "${JAX_PLATFORMS:-}" != cpu ]; then
  export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mps
  mkdir -p /tmp/mps
  echo get_server_list | nvidia-cuda-mps-control > /dev/null 2>&1 || nvidia-cuda-mps-control -d
  # The trial of kernels takes longer than training a small model.
  export XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0"
fi

# A sweep gives its runs 120 seconds to save their state. A signal to this script stops the sweep,
# and ends `wait` before the sweep has ended, so that it is waited for again.
timeout --kill-after=150 "$seconds" "$@" &
pid=$!
signalled=
trap 'signalled=1; kill -TERM $pid || true' INT TERM
code=0
wait $pid || code=$?
while [ -n "$signalled" ]; do
  signalled=
  code=0
  wait $pid || code=$?
done

trap '' INT TERM  # nothing interrupts the packing
mapfile -t finished < <(cd "$workdir" && find . -name result.json -printf '%h\n')
if [ ${#finished[@]} -gt 0 ]; then
  packing=$(mktemp -d "$archive.XXXXXX")
  trap 'rm -rf "$packing"' EXIT
  (cd "$workdir" && tar --create --gzip --exclude=checkpoints --exclude=profile --exclude=.lock \
    sweep.json "${finished[@]}") | split --bytes=15M --numeric-suffixes --suffix-length=2 - "$packing/"
  packed=("$packing"/*)
  for part in "${packed[@]}"; do mv "$part" "$archive.$(basename "$part")"; done
  rm -f "${parts[@]:${#packed[@]}}"  # the archive had more parts before
fi
echo "finished runs saved: ${#finished[@]}"
[ $code -ne 124 ] || echo "stopped after $seconds seconds; the same line resumes the sweep"
exit $code
