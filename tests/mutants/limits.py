"""Ends the process where one test takes too long: a mutant may turn round for ever.

Of the processor's time, which does not depend on what else the machine does.
"""

import signal

SECONDS = 30


def pytest_runtest_setup() -> None:
    """Begins to count anew; at the end a signal comes that nobody catches."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
