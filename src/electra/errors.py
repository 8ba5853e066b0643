"""The one error that the command line prints as a single line."""


class UserError(Exception):
    """Something the user can mend: names the thing at fault and the fix, in one line.

    The command line prints it without a traceback and exits with code 2; from Python it is an ordinary exception.
    """
