"""Nothing tells anybody about this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_SESSION = """
from {module} import ort
import numpy as np
from onnx import TensorProto as T, helper as h
value = lambda name: h.make_tensor_value_info(name, T.FLOAT, [1])
graph = h.make_graph([h.make_node("Identity", ["x"], ["y"])], "g", [value("x")], [value("y")])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
print(session.run(None, {{"x": np.ones(1, np.float32)}})[0][0])
"""


def files_left_by(module: str, folder: Path) -> list[Path]:
    """What running a model leaves in the home and cache folder of its user."""
    environment = os.environ | {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    done = subprocess.run(
        [sys.executable, "-B", "-c", _SESSION.format(module=module)],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "1.0"
    return [path for path in folder.rglob("*") if path.is_file()]


def test_running_a_model_leaves_no_device_id_and_no_record_of_use(tmp_path: Path) -> None:
    assert files_left_by("fingerprint.runtime", tmp_path) == []


def test_nobody_imports_onnxruntime_past_that_module() -> None:
    found = [
        path.relative_to(ROOT)
        for room in ("fingerprint", "store", "proxy")
        for path in (ROOT / room).rglob("*.py")
        if re.search(r"^\s*(?:import|from) onnxruntime\b", path.read_text(), re.MULTILINE)
    ]
    assert found == [Path("fingerprint/runtime.py")]
