"""Reads TensorFlow's checkpoint files (`NAME.index` and `NAME.data-00000-of-00001`, "tensor bundle") without TensorFlow.

The index is a sorted string table (LevelDB's format): blocks of entries whose keys share prefixes, each block with a
CRC-32C, and at the end an index of the blocks. Its values are small protocol buffers that say where a tensor lies in the
data files. No package for it on PyPI is kept up but TensorFlow itself. Sources: tensorflow/core/util/tensor_bundle and
core/lib/io/{format,block}.cc, core/protobuf/tensor_bundle.proto. Every checksum is checked.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.errors import UserError

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TYPES = {
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    9: torch.int64,
    14: torch.bfloat16,
    19: torch.float16,
}  # of types.proto


@dataclasses.dataclass(frozen=True)
class _Entry:
    """Where a tensor lies."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


class TensorBundle:
    """The tensors of one checkpoint, by name; each is read when asked for.

    `prefix` is the path without `.index`. Raises UserError for files that are missing, damaged or of a kind that
    checkpoints of this size never are (compressed index, big endian).
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        index = prefix.with_name(f"{prefix.name}.index")
        if not index.is_file():
            raise UserError(
                f"{index}: no such file; a TensorFlow checkpoint is NAME.index with NAME.data-00000-of-00001"
            )
        try:
            table = dict(_read_table(index.read_bytes()))
            header = _fields(table.pop(b""))
            self.num_shards = int(header.get(1, [1])[0])
            if header.get(2, [0])[0] != 0:
                raise _Damaged("it is big endian")
            self._entries = {key.decode(): _entry(value) for key, value in table.items()}
        except (_Damaged, IndexError, KeyError, ValueError, struct.error) as error:
            reason = str(error) if isinstance(error, _Damaged) else "its table does not add up"
            raise UserError(f"{index}: cannot be read as a TensorFlow checkpoint ({reason}); copy it again") from None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor, by name."""
        return {name: entry.shape for name, entry in self._entries.items()}

    def read(self, name: str) -> Tensor:
        """A tensor in its own type. Raises UserError when its bytes are missing or not those that were written."""
        entry = self._entries[name]
        path = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard:05d}-of-{self.num_shards:05d}")
        dtype = _TYPES.get(entry.dtype)
        if dtype is None or entry.sliced:
            raise UserError(f"{path}: {name} is of a type, or cut into slices, that no ELECTRA variable has")
        try:
            with path.open("rb") as file:
                file.seek(entry.offset)
                content = file.read(entry.size)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; copy all files of the checkpoint") from None
        whole = len(content) == entry.size == math.prod(entry.shape) * dtype.itemsize
        if not whole or _masked(crc32c(content)) != entry.checksum:
            raise UserError(f"{path}: {name} is damaged (its checksum does not fit); copy the checkpoint again")
        return torch.frombuffer(bytearray(content), dtype=dtype).reshape(entry.shape)


class _Damaged(Exception):
    """The bytes are not what the format says."""


# --------------------------------------------------------------------------------------------------- sorted string table


def _read_table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(content) < _FOOTER or struct.unpack("<Q", content[-8:])[0] != _MAGIC:
        raise _Damaged("its last bytes are not a table's")
    at = len(content) - _FOOTER
    blocks = []
    for _ in range(2):  # a block that is not used, and the index of the others
        offset, at = _varint(content, at)
        size, at = _varint(content, at)
        blocks.append(dict(_read_block(content, offset, size)))
    for handle in blocks[1].values():
        offset, at = _varint(handle, 0)
        size, _ = _varint(handle, at)
        yield from _read_block(content, offset, size)


def _read_block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Entries of a block: a key is what it shares with the one before, then its own bytes."""
    block, kind = content[offset : offset + size], content[offset + size]
    [checksum] = struct.unpack_from("<I", content, offset + size + 1)
    if _masked(crc32c(content[offset : offset + size + 1])) != checksum:
        raise _Damaged("a checksum does not fit")
    if kind != 0:
        raise _Damaged("it is compressed; save it again with TensorFlow 1.2 or later")
    [num_restarts] = struct.unpack("<I", block[-4:])
    end, at, key = size - 4 - 4 * num_restarts, 0, b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


# ------------------------------------------------------------------------------------------------------ protocol buffers


def _fields(message: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a protocol buffer by number; nested messages as bytes."""
    fields: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value: int | bytes
        if tag & 7 == 0:
            value, at = _varint(message, at)
        elif tag & 7 == 2:
            length, at = _varint(message, at)
            value, at = message[at : at + length], at + length
        elif tag & 7 == 5:
            [value] = struct.unpack_from("<I", message, at)
            at += 4
        elif tag & 7 == 1:
            [value] = struct.unpack_from("<Q", message, at)
            at += 8
        else:
            raise _Damaged("an entry is no protocol buffer")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _entry(message: bytes) -> _Entry:
    """BundleEntryProto: 1 type, 2 shape, 3 shard, 4 offset, 5 size, 6 checksum, 7 slices."""
    fields = _fields(message)

    def number(field: int) -> int:
        value = fields.get(field, [0])[0]
        assert isinstance(value, int)
        return value

    [shape] = fields.get(2, [b""])
    assert isinstance(shape, bytes)
    sizes = [
        _fields(dimension).get(1, [0])[0] for dimension in _fields(shape).get(2, []) if isinstance(dimension, bytes)
    ]
    return _Entry(
        dtype=number(1),
        shape=tuple(size for size in sizes if isinstance(size, int)),
        shard=number(3),
        offset=number(4),
        size=number(5),
        checksum=number(6),
        sliced=7 in fields,
    )


# ---------------------------------------------------------------------------------------------------------------- CRC-32C

_LANES = 1 << 14


@functools.cache
def _byte_table() -> NDArray[np.uint32]:
    """What a byte does to the remainder (Castagnoli's polynomial, bits reversed)."""
    table: NDArray[np.uint32] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & 1, np.uint32(0x82F63B78), np.uint32(0))
    return table


def crc32c(content: bytes) -> int:
    """The checksum of RFC 3720. Long content is cut into lanes that are run side by side and then put together."""
    table = _byte_table()
    length = len(content) // _LANES
    state = 0xFFFFFFFF
    if length:
        lanes = np.frombuffer(content, dtype=np.uint8, count=length * _LANES).reshape(_LANES, length).T
        states = np.zeros(_LANES, dtype=np.uint32)
        states[0] = state
        for byte in np.ascontiguousarray(lanes):
            states = table[(states ^ byte) & 0xFF] ^ (states >> 8)
        zeros = _after_zeros(length)
        while len(states) > 1:  # a remainder, moved on over the bytes of the lane behind it, adds to that lane's own
            states = _apply(zeros, states[0::2]) ^ states[1::2]
            zeros = _apply(zeros, zeros)
        state = int(states[0])
    rows = table.tolist()
    for value in content[length * _LANES :]:
        state = rows[(state ^ value) & 0xFF] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def _after_zeros(count: int) -> NDArray[np.uint32]:
    """The linear map that `count` zero bytes are: what becomes of each of the 32 bits of a remainder."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    power: NDArray[np.uint32] = _byte_table()[bits & 0xFF] ^ (bits >> np.uint32(8))
    result: NDArray[np.uint32] = bits
    while count:
        if count & 1:
            result = _apply(power, result)
        power, count = _apply(power, power), count >> 1
    return result


def _apply(matrix: NDArray[np.uint32], states: NDArray[np.uint32]) -> NDArray[np.uint32]:
    result = np.zeros_like(states)
    for bit in range(32):
        result ^= np.where((states >> np.uint32(bit)) & 1, matrix[bit], np.uint32(0))
    return result


def _masked(checksum: int) -> int:
    """As checksums are stored: turned by 15 bits and moved on, so that a checksum of checksums is no trivial one."""
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF
