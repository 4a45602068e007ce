#!/bin/bash
# Runs one task of the job array that --launcher=slurm submits. $1 is the folder of the scripts of the
# runs. To use another script, change a copy of this file and give its path with --slurm_script.
#SBATCH --requeue
#SBATCH --open-mode=append
# Two minutes before the time limit, Slurm sends SIGTERM. The run saves its state, to resume later.
#SBATCH --signal=TERM@120

run=$1/$SLURM_ARRAY_TASK_ID.sh
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK  # srun does not inherit --cpus-per-task
[ -n "$SRUN_CPUS_PER_TASK" ] || unset SRUN_CPUS_PER_TASK
trap : TERM  # on preemption Slurm signals this script too, but the run has to save first

# If one process of a run dies, the others exit within a minute, with an error that names the dead
# process. srun waits three minutes for them.
srun --ntasks-per-node=1 --wait=180 --kill-on-bad-exit=0 /bin/bash "$run"
code=$?

# A task that is not RUNNING any more was cancelled, or Slurm has requeued it.
task=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
if [ $code -ne 0 ] && [ "$(squeue --noheader --job="$task" --format=%T)" != RUNNING ]; then
  exit $code
fi
# 42: stopped from outside, state saved. Above 128: killed by a signal, as when a node is lost.
if [ $code -eq 42 ] || { [ $code -gt 128 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 10 ]; }; then
  if scontrol requeue "$task"; then exit $code; fi
  echo "exit code $code, but Slurm does not requeue this job (JobRequeue in slurm.conf?)"
fi
[ $code -eq 0 ] || /bin/bash "$run" died $code
exit $code
