"""Rows out of files, one at a time: JSON Lines, one JSON document, CSV; plain or compressed.

A line longer than `MOST_BYTES` is refused without being read into memory. Byte order marks are dropped.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

import msgspec

from eval.traffic.errors import BadRow, TrafficError
from eval.traffic.problems import Problems

__all__ = ["COMPRESSED", "MOST_BYTES", "csv_rows", "json_rows", "lines", "name_of", "opened"]

MOST_BYTES: Final = 64 << 20
"""Longest row, in bytes, that is read."""

COMPRESSED: Final[Mapping[str, Callable[[Path], IO[bytes]]]] = {
    ".gz": lambda file: cast("IO[bytes]", gzip.open(file)),  # noqa: SIM115 - whoever opens a log closes it
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
"""How files are opened that are unpacked, by their last ending."""

_CHUNK: Final = 1 << 20
_HEAD: Final = 1 << 16
_DECODE: Final = msgspec.json.Decoder().decode
_SPACE: Final = " \t\r\n"
T = TypeVar("T")


def name_of(path: Path | str) -> str:
    """Return how a file is called in messages."""
    return "standard input" if str(path) == "-" else Path(path).name


class _Damaged(TrafficError):  # noqa: N818 - it says what the file is
    """A compressed file cannot be read on: it is torn, damaged, or not compressed at all; ``why`` says in what way."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} cannot be read: {why}")
        self.why = why


class _Bytes(io.RawIOBase):
    """The bytes of a log; whatever goes wrong while they are read is a `TrafficError` that names it."""

    def __init__(self, path: Path | str, inner: IO[bytes]) -> None:
        self._path = path
        self._inner = cast("io.BufferedReader", inner)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            # No more than is there: what stands before damage is read.
            data = self._inner.read1(len(buffer))
        except (EOFError, lzma.LZMAError, zlib.error) as error:
            raise _Damaged(_shown(self._path), str(error)) from None
        except OSError as error:
            if error.errno is None:  # as gzip and bz2 raise theirs
                raise _Damaged(_shown(self._path), str(error)) from None
            raise TrafficError(f"{_shown(self._path)} cannot be read: {error.strerror}") from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


def _shown(path: Path | str) -> str:
    return name_of(path) if str(path) == "-" else str(path)


def opened(path: Path | str) -> io.BufferedReader:
    """Open a log; ``-`` is standard input, ``.gz``, ``.bz2`` and ``.xz`` are decompressed.

    Raises `TrafficError` where that cannot be done; reading from it does, too.
    """
    return io.BufferedReader(_Bytes(path, _opened(path)), _CHUNK)


def _opened(path: Path | str) -> IO[bytes]:
    if str(path) == "-":
        return sys.stdin.buffer
    file = Path(path)
    try:
        if file.is_dir():
            raise TrafficError(f"{file} is a folder; name the files in it")
        unpacked = COMPRESSED.get(file.suffix)
        return file.open("rb") if unpacked is None else unpacked(file)
    except FileNotFoundError:
        raise TrafficError(f"there is no file {file}") from None
    except OSError as error:
        raise TrafficError(f"{file} cannot be read: {error.strerror or error}") from None


def lines(path: Path | str, problems: Problems) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line without its end) of every line that is not blank."""
    yield from _while_readable(_lines(path, problems), path, problems)


def _lines(path: Path | str, problems: Problems) -> Iterator[tuple[int, bytes]]:
    name = name_of(path)
    number = 0
    with opened(path) as file:
        while line := file.readline(MOST_BYTES + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if len(line) > MOST_BYTES:
                while line and not line.endswith(b"\n"):
                    line = file.readline(_CHUNK)
                problems.rows += 1
                problems.add(BadRow(f"longer than {MOST_BYTES >> 20} MiB", name, number))
            elif line := line.strip():
                yield number, line


def _while_readable(rows: Iterator[tuple[int, T]], path: Path | str, problems: Problems) -> Iterator[tuple[int, T]]:
    """Yield the rows that stand before the damage of a compressed file, which then is a problem like a bad row's.

    Where nothing stands before it the file cannot be read. An error of the disk is never passed over.
    """
    line = 0
    try:
        for line, row in rows:
            yield line, row
    except _Damaged as error:
        if not line:
            raise
        problems.add(BadRow(f"cannot be read on: {error.why}", name_of(path), line + 1))


def json_rows(path: Path | str, problems: Problems) -> Iterator[tuple[int, Any]]:
    """Yield (line, parsed value) of every row: a line each, or the items of one JSON array (or one document).

    What is not JSON goes to ``problems``. In a broken array the rows behind the fault cannot be found again; that is
    said.
    """
    name = name_of(path)
    head = _head(path)
    if str(path) != "-" and (head[:1] == b"[" or _is_document(path, head)):
        yield from _while_readable(_document(path, problems), path, problems)
        return
    for number, line in lines(path, problems):
        problems.rows += 1
        try:
            row = _DECODE(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problems.add(BadRow(f"not JSON: {error}", name, number))
            continue
        yield number, row


def _head(path: Path | str) -> bytes:
    if str(path) == "-":
        return b""
    head = b""
    with opened(path) as file, suppress(_Damaged):  # what stands before the damage says enough
        while len(head) < _HEAD and (more := file.read1(_HEAD - len(head))):
            head += more
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()


def _is_document(path: Path | str, head: bytes) -> bool:
    """Whether the file is one JSON object over several lines (its first line is no value of its own)."""
    first, feed, rest = head.partition(b"\n")
    if not feed or not rest.strip() or not head.startswith(b"{"):
        return False
    if first.strip() in (b"{", b"{ "):
        return True
    try:
        _DECODE(first)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        second = rest.lstrip()[:1]
        return second in (b'"', b"}")  # an indented member, not the next object
    return False


def _document(path: Path | str, problems: Problems) -> Iterator[tuple[int, Any]]:
    """The items of an array, or the document itself, read piece by piece."""
    name, decoder = name_of(path), JSONDecoder()
    with opened(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", errors="replace", newline="") as file:
        buffer, line, at = file.read(_CHUNK), 1, 0
        inside = buffer.lstrip(_SPACE)[:1] == "["
        ended = False
        if inside:
            at = buffer.index("[") + 1
        while True:
            while at < len(buffer) and buffer[at] in (_SPACE + "," if inside else _SPACE):
                line += buffer[at] == "\n"
                at += 1
            if inside and buffer[at : at + 1] == "]":
                return
            if at >= len(buffer):
                buffer, at = file.read(_CHUNK), 0
                if not buffer:
                    if inside:
                        problems.add(BadRow("the array does not end", name, line))
                    return
                continue
            try:
                row, end = decoder.raw_decode(buffer, at)
            except (JSONDecodeError, RecursionError) as error:
                more = "" if ended or len(buffer) - at > MOST_BYTES else file.read(max(_CHUNK, len(buffer) - at))
                if more:
                    buffer, at = buffer[at:] + more, 0
                    continue
                problems.rows += 1
                rest = "; the rows behind it are lost" if inside else ""
                problems.add(BadRow(f"not JSON: {error}{rest}", name, line))
                return
            problems.rows += 1
            yield line, row
            line += buffer.count("\n", at, end)
            at = end


def csv_rows(path: Path | str, problems: Problems) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, column → value) of a CSV or TSV file with a header; which of them is told from the header line."""
    yield from _while_readable(_csv_rows(path, problems), path, problems)


def _csv_rows(path: Path | str, problems: Problems) -> Iterator[tuple[int, dict[str, str]]]:
    name = name_of(path)
    csv.field_size_limit(MOST_BYTES)
    with opened(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", errors="replace", newline="") as file:
        header = file.readline()
        delimiter = max(",;\t", key=header.count)
        columns = [column.strip() for column in next(csv.reader([header], delimiter=delimiter), [])]
        reader = csv.reader(file, delimiter=delimiter)
        while True:
            line = reader.line_num + 2
            try:
                cells = next(reader, None)
            except csv.Error as error:
                problems.rows += 1
                problems.add(BadRow(f"not CSV: {error}", name, line))
                continue
            if cells is None:
                return
            if not any(cells):
                continue
            problems.rows += 1
            if len(cells) != len(columns):
                problems.add(BadRow(f"{len(cells)} cells under {len(columns)} columns", name, line))
                continue
            yield line, dict(zip(columns, cells, strict=True))
