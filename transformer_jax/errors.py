"""Errors that commands report in one line without a traceback."""


class UserError(Exception):
    """A user's mistake; exit code 2."""


class RunError(Exception):
    """A run that cannot continue; exit code 1."""
