"""TensorFlow's checkpoint format, written independently of the reader: as simple as the format allows.

Small blocks (so that the index of blocks has several entries), keys that share prefixes, a checksum bit by bit.
"""

import struct
from pathlib import Path

import numpy as np


def checksum(content: bytes) -> int:
    """CRC-32C one bit at a time, masked as the format stores it."""
    remainder = 0xFFFFFFFF
    for byte in content:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0x82F63B78 if remainder & 1 else 0)
    remainder ^= 0xFFFFFFFF
    return (((remainder >> 15) | (remainder << 17)) + 0xA282EAD8) % 2**32


def varint(number: int) -> bytes:
    groups = []
    while number > 127:
        groups.append(number % 128 + 128)
        number //= 128
    return bytes([*groups, number])


def block(entries: list[tuple[bytes, bytes]], compression: int = 0) -> bytes:
    body, last = b"", b""
    for key, value in entries:
        shared = 0
        while shared < min(len(key), len(last)) and key[shared] == last[shared]:
            shared += 1
        body += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    body += struct.pack("<II", 0, 1)  # one restart, at 0
    body += bytes([compression])
    return body + struct.pack("<I", checksum(body))


def write_bundle(prefix: Path, tensors: dict[str, np.ndarray], *, block_size: int = 5, compression: int = 0) -> None:
    """Write prefix.index and two data files, in which the tensors take turns."""
    kinds = {"float32": 1, "int64": 9, "float64": 2}
    shards = [b"\0" * 3, b""]  # an offset that is not 0 from the start
    entries = [(b"", b"\x08\x02" + b"\x1a\x02\x08\x01")]  # BundleHeaderProto: two shards, version 1
    for number, name in enumerate(sorted(tensors)):
        array = tensors[name]
        content, shard = array.tobytes(), number % 2
        shape = b"".join(b"\x12" + varint(len(dim)) + dim for size in array.shape for dim in [b"\x08" + varint(size)])
        entry = b"\x08" + varint(kinds[str(array.dtype)]) + b"\x12" + varint(len(shape)) + shape
        entry += b"\x18" + varint(shard) + b"\x20" + varint(len(shards[shard])) + b"\x28" + varint(len(content))
        entry += b"\x35" + struct.pack("<I", checksum(content))
        shards[shard] += content
        entries.append((name.encode(), entry))
    file, handles = b"", []
    for start in range(0, len(entries), block_size):
        part = entries[start : start + block_size]
        written = block(part, compression)
        handles.append((part[-1][0], varint(len(file)) + varint(len(written) - 5)))
        file += written
    footer = b""
    for written in (block([]), block(handles)):
        footer += varint(len(file)) + varint(len(written) - 5)
        file += written
    file += footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    prefix.with_name(f"{prefix.name}.index").write_bytes(file)
    for number, content in enumerate(shards):
        prefix.with_name(f"{prefix.name}.data-{number:05d}-of-00002").write_bytes(content)
