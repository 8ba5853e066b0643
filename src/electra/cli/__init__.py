"""The `electra` command: the list of commands, the way in, exit codes. No logic of its own."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

from electra import __version__
from electra.cli.arguments import read
from electra.cli.commands import COMMANDS
from electra.config_files import unknown_setting
from electra.errors import UserError


def overview() -> str:
    lines = [f"  {name:<12}{summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            f"electra {__version__}: from raw text to a small, strong text encoder",
            "",
            "usage: electra COMMAND [options]      electra COMMAND --help lists the options",
            "",
            *lines,
            "",
            "On your own text:",
            "  electra prepare my-text/ --out store --vocab-size 8192",
            "  electra pretrain --preset tiny --data.store store --run-dir run --train.num-minutes 30",
            '  electra detect run "one sentence to look at"',
        ]
    )


def parse(name: str, arguments: Sequence[str]) -> Any:
    """The command's dataclass, filled from the words after its name. Raises UserError in one line for any mistake."""
    command = COMMANDS[name][0]
    if hasattr(command, "variant"):
        command = command.variant(arguments)
    return read(name, command, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 2 for something the user can mend, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not words or words[0] in ("-h", "--help"):
            print(overview())
        elif words[0] == "--version":
            print(__version__)
        elif words[0] not in COMMANDS:
            raise UserError(unknown_setting(words[0], list(COMMANDS)).replace("unknown setting", "unknown command"))
        else:
            parse(words[0], words[1:]).run()
    except UserError as error:
        return complain(str(error))
    except KeyboardInterrupt:
        print("electra: stopped; the same command goes on from what is saved", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `electra ... | head` is no mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno not in (
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EACCES,
            errno.ENOENT,
            errno.EISDIR,
            errno.ENOTDIR,
            errno.EROFS,
        ):
            raise
        return complain(f"{error.filename or 'file'}: {error.strerror}")
    return 0


def complain(message: str) -> int:
    print(f"electra: error: {' '.join(message.split())}", file=sys.stderr)
    return 2
