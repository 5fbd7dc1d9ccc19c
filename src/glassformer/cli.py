"""The command `glassformer`. Answers go to standard output, one line for each input line; remarks go to standard error.

The commands are in commands/. Imports that need torch stand inside them, so that `--help` answers at once.
"""

import os
import sys

from glassformer.commands import (  # noqa: F401 (each adds its commands)
    data,
    evaluate,
    explore,
    language,
    models,
    race,
    reading,
    translate,
    vectors,
)
from glassformer.commands.common import app
from glassformer.errors import UserError


def main() -> None:
    """Runs the command; a mistake of the user's is a sentence and exit code 2, never a traceback."""
    try:
        try:
            app(prog_name="glassformer")
        finally:
            if sys.stdout:
                sys.stdout.flush()  # here, where an error of it can still be told
    except UserError as error:
        print(f"glassformer: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nglassformer: interrupted.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        print(f"glassformer: {error}", file=sys.stderr)
        sys.exit(2)
