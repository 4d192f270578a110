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
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import IO, Any, Final, cast

import msgspec

from eval.traffic.errors import BadRow, TrafficError
from eval.traffic.problems import Problems

__all__ = ["MOST_BYTES", "csv_rows", "json_rows", "lines", "name_of", "opened"]

MOST_BYTES: Final = 64 << 20
"""Longest row, in bytes, that is read."""

_CHUNK: Final = 1 << 20
_DECODE: Final = msgspec.json.Decoder().decode
_SPACE: Final = " \t\r\n"


def name_of(path: Path | str) -> str:
    """Return how a file is called in messages."""
    return "standard input" if str(path) == "-" else Path(path).name


def opened(path: Path | str) -> IO[bytes]:
    """Open a log; ``-`` is standard input, ``.gz``, ``.bz2`` and ``.xz`` are decompressed.

    Raises `TrafficError` where that cannot be done.
    """
    if str(path) == "-":
        return sys.stdin.buffer
    file = Path(path)
    try:
        if file.is_dir():
            raise TrafficError(f"{file} is a folder; name the files in it")
        if file.suffix == ".gz":
            return cast("IO[bytes]", gzip.open(file, "rb"))
        if file.suffix == ".bz2":
            return bz2.open(file, "rb")
        if file.suffix == ".xz":
            return lzma.open(file, "rb")
        return file.open("rb")
    except FileNotFoundError:
        raise TrafficError(f"there is no file {file}") from None
    except OSError as error:
        raise TrafficError(f"{file} cannot be read: {error.strerror or error}") from None


def lines(path: Path | str, problems: Problems) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line without its end) of every line that is not blank."""
    name = name_of(path)
    number = 0
    with opened(path) as file:
        try:
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
        except (OSError, EOFError, lzma.LZMAError) as error:  # a damaged archive
            problems.add(BadRow(f"cannot be read on: {error}", name, number + 1))


def json_rows(path: Path | str, problems: Problems) -> Iterator[tuple[int, Any]]:
    """Yield (line, parsed value) of every row: a line each, or the items of one JSON array (or one document).

    What is not JSON goes to ``problems``. In a broken array the rows behind the fault cannot be found again; that is
    said.
    """
    name = name_of(path)
    head = _head(path)
    if str(path) != "-" and (head[:1] == b"[" or _is_document(path, head)):
        yield from _document(path, problems)
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
    with opened(path) as file:
        try:
            return file.read(64 * 1024).removeprefix(b"\xef\xbb\xbf").lstrip()
        except (OSError, EOFError, lzma.LZMAError):
            return b""


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
