"""What the commands end with in one line: a user's mistake, or a run that cannot go on."""


class UserError(Exception):
    """A mistake of the user's: shown as one line, without traceback; exit code 2."""


class RunError(Exception):
    """A run that cannot go on: shown as one line, without traceback; exit code 1."""
