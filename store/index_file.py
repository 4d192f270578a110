"""The vector index on disk, so that a start need not read every vector and divide them into cells again.

The file only ever saves time. It names the database it belongs to; what is read from it is compared with the database
number by number, a sample of the vectors bit by bit, and every block carries a checksum. Where anything is wrong with
it the index is made from the database as if there were no file.

Format: the line ``antiphon index 1``, then blocks, each its length (8 bytes, little-endian), the CRC-32 of its content
(4 bytes), and the content in MessagePack. The first block is a `Header`, then for each bucket a `Shelf` followed by its
`Cell` blocks, at the end an `End`, without which the file is torn.
"""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

__all__ = ["Block", "Cell", "End", "Header", "NotThere", "ShelfBlock", "Unusable", "read", "write"]

_MAGIC: Final = b"antiphon index 1\n"
_FRAME: Final = struct.Struct("<QI")
_LARGEST: Final = 1 << 30  # bytes of a block; anything longer is damage


class Unusable(Exception):  # noqa: N818 - it says what the file is
    """The file is missing, torn, damaged, of another database, or written by a release with another format.

    The message goes on a sentence that begins with the file's name.
    """


class NotThere(Unusable):
    """There is no such file (yet)."""


class Header(msgspec.Struct, frozen=True, tag="header", array_like=True):
    """Which database the file belongs to."""

    store: str


class ShelfBlock(msgspec.Struct, frozen=True, tag="shelf", array_like=True):
    """A bucket begins. ``centres``: float32, cell by cell; empty where every vector is compared."""

    partition: bytes
    identity: bytes
    space: str
    dimension: int
    trained_at: int
    centres: bytes


class Cell(msgspec.Struct, frozen=True, tag="cell", array_like=True):
    """Vectors of one cell: numbers (int64) and vectors (float16), both little-endian."""

    cell: int
    numbers: bytes
    vectors: bytes


class End(msgspec.Struct, frozen=True, tag="end", array_like=True):
    """The file is complete."""

    vectors: int


Block = Header | ShelfBlock | Cell | End
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Block)


def write(path: Path, blocks: Iterable[Block]) -> None:
    """Write a file beside ``path`` and put it in its place once it is complete. Raises ``OSError``."""
    # For the owner only, as the database is: vectors tell what was said.
    descriptor, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".new", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC)
            for block in blocks:
                data = _ENCODER.encode(block)
                file.write(_FRAME.pack(len(data), zlib.crc32(data)))
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path) -> Iterator[Block]:
    """Read the blocks in order, each checked; ends after an `End`. Raises `Unusable` where that does not come."""
    try:
        with path.open("rb") as file:
            if file.readline(64) != _MAGIC:
                raise Unusable("has another format")
            while True:
                block = _block(file)
                yield block
                if isinstance(block, End):
                    return
    except FileNotFoundError as error:
        raise NotThere("does not exist") from error
    except OSError as error:
        raise Unusable(f"cannot be read ({error.strerror})") from error


def _block(file: BinaryIO) -> Block:
    frame = file.read(_FRAME.size)
    if len(frame) < _FRAME.size:
        raise Unusable("is torn")
    length, checksum = _FRAME.unpack(frame)
    if length > _LARGEST:
        raise Unusable("is damaged")
    data = file.read(length)
    if len(data) < length or zlib.crc32(data) != checksum:
        raise Unusable("is damaged")
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise Unusable("is damaged") from error
