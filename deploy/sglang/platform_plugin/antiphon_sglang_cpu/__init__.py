"""A platform of SGLang for machines without an accelerator.

SGLang's own CPU platform expects its compiled CPU kernels, which are not on PyPI. Declared as an out-of-tree platform,
it runs the plain PyTorch implementation of every layer instead.
"""

__all__ = ["activate"]


def activate() -> str:
    """Name the platform class; SGLang calls this through the entry point ``sglang.srt.platforms``."""
    return "antiphon_sglang_cpu.platform.PlainCpuPlatform"
