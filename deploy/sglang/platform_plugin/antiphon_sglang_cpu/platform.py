"""The platform class; imported by SGLang when it first asks for its platform."""

from __future__ import annotations

from typing import Any

from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

__all__ = ["PlainCpuPlatform"]


class PlainCpuPlatform(CpuDeviceMixin, SRTPlatform):  # type: ignore[misc] # SGLang is not typed
    """The CPU, using nothing but PyTorch's own operators."""

    # Not PlatformEnum.CPU: that one makes SGLang import `sgl_kernel`.
    _enum = PlatformEnum.OOT
    capabilities = PlatformCapabilities()

    def get_default_attention_backend(self) -> str:
        """Attention by ``torch.nn.functional.scaled_dot_product_attention``."""
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        """Layers run their ``forward_native``."""
        return "native"

    def is_pin_memory_available(self, device: Any = None) -> bool:
        """There is no device to pin memory for."""
        return False
