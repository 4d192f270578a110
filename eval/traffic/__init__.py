"""Traffic in: logs in whatever form people have them, read into one."""

from eval.traffic.errors import BadRow, TrafficError, UnknownFormat
from eval.traffic.problems import Problems
from eval.traffic.readers import FORMATS, read_records
from eval.traffic.turns import LoggedTurn, read_turns, turns_of
from fingerprint.traffic import Record, encode_record

__all__ = [
    "FORMATS",
    "BadRow",
    "LoggedTurn",
    "Problems",
    "Record",
    "TrafficError",
    "UnknownFormat",
    "encode_record",
    "read_records",
    "read_turns",
    "turns_of",
]
