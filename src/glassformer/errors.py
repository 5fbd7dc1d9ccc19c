"""The one exception for mistakes a person can mend."""


class UserError(Exception):
    """What was wrong, what was found, what is allowed, what to do: shown without a traceback, exit code 2."""
