"""Jobs on this machine: in their order, and again if they say so."""

import sys

from launch import local


def test_a_job_that_was_stopped_from_outside_is_started_again(tmp_path):
    marker = tmp_path / "stopped"
    stop_once = (
        f"import pathlib, sys; path = pathlib.Path({str(marker)!r}); there = path.exists(); "
        f"path.touch(); sys.exit(0 if there else {local.RUN_AGAIN})"
    )
    codes = {"stopped": stop_once, "failing": "import sys; sys.exit(3)"}
    jobs = [
        local.Job(name, [sys.executable, "-c", code], tmp_path / name / "log.txt")
        for name, code in codes.items()
    ]
    ended = []
    local.run(jobs, 1, lambda job, code: ended.append((job.name, code)), lambda running: None)
    assert ended == [("stopped", 0), ("failing", 3)]
