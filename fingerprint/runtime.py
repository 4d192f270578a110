"""onnxruntime, kept from telling its maker about this machine.

Since 1.32 its Linux wheels write a device id into the user's cache folder and send usage data to Microsoft unless told
not to before the first session is made. Import it from here only.
"""

from __future__ import annotations

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime as ort

__all__ = ["one_thread_options", "ort"]


def one_thread_options() -> ort.SessionOptions:
    """Options of a session that runs in the thread that asks, and reports errors only."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options
