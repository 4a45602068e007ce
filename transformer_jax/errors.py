"""Errors that commands report in one line without a traceback."""


class UserError(Exception):
    """An error that the user can correct; the command ends with exit code 2."""


class RunError(Exception):
    """An error that ends a run; the command ends with exit code 1."""
