"""onnxruntime, kept from telling its maker about this machine.

Since 1.32 its Linux wheels write a device id into the user's cache folder and send usage data to Microsoft unless told
not to before the first session is made. Import it from here only.
"""

from __future__ import annotations

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime as ort

__all__ = ["ort"]
