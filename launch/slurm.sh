#!/bin/bash
# One cell of a sweep: a task of a job array, which --launcher=slurm submits. $1 is the folder of the
# sweep's cells, each a script. Copy this file, change it, and name the copy with --slurm_script.
#SBATCH --requeue
#SBATCH --open-mode=append
# Two minutes before the time limit the cell is told to save; it goes on in the next allocation.
#SBATCH --signal=TERM@120

cell=$1/$SLURM_ARRAY_TASK_ID.sh
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK  # which srun no longer inherits
[ -n "$SRUN_CPUS_PER_TASK" ] || unset SRUN_CPUS_PER_TASK
trap : TERM  # whoever takes the node away tells the cell too, and that is what has to save

# Without a limit srun would wait for ever for the peers of a process that has died; these end by
# themselves, within a minute, with a word about who has died.
srun --ntasks-per-node=1 --wait=180 --kill-on-bad-exit=0 /bin/bash "$cell"
code=$?

# 42: stopped from outside, saved. Above 128: killed by a signal, as when a node or a peer is lost.
# Not if it was cancelled, or if Slurm itself queues it again: then it no longer counts as running.
task=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
if [ $code -ne 0 ] && [ "$(squeue --noheader --job="$task" --format=%T)" != RUNNING ]; then
  exit $code
fi
if [ $code -eq 42 ] || { [ $code -gt 128 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 10 ]; }; then
  if scontrol requeue "$task"; then exit $code; fi
  echo "exit code $code, and Slurm does not queue this job again (JobRequeue in slurm.conf?)"
fi
[ $code -eq 0 ] || /bin/bash "$cell" died $code
exit $code
