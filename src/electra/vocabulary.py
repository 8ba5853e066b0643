"""A vocabulary file (BERT's vocab.txt) as everybody here reads it: one word piece a line, its id the number of the line."""

from __future__ import annotations

from pathlib import Path

from electra.errors import UserError


def read_vocabulary(path: Path) -> list[str]:
    """The word pieces in order of their ids. Only a line feed ends a line: U+0085 and U+2028 are pieces of some vocabularies.

    Raises UserError when the file is not UTF-8.
    """
    try:
        pieces = [line.removesuffix("\r") for line in path.read_bytes().decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.start}); a vocabulary is one word piece a line") from None
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces
