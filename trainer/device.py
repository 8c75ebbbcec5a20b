"""What a device can do, looked at before anything is claimed: a trial must not fail for want of it."""

from __future__ import annotations

from trainer.registry import ConfigError, UserError


def check_device(device: str) -> None:
    """Raise `UserError` with the devices that there are where `device` is none of them."""
    if device == "cpu":
        return
    import torch

    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    known = ["cpu", *(["cuda"] if found else []), *found]
    if device not in known:
        raise UserError(f"--device: {device!r} is not on this machine; expected one of {', '.join(known)}")


def check_precision(precision: str, device: str) -> None:
    """Raise `ConfigError` where the device does not have the precision."""
    if precision in ("float32", "float64"):
        return
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        return  # whoever asked for a GPU is told that there is none
    if precision == "bfloat16" and device == "cpu":
        has_it = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    elif precision == "bfloat16":
        has_it = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_it = device != "cpu" and torch.cuda.get_device_capability(device) >= (8, 0)
    if not has_it:
        rule = {"bfloat16": "a CPU with AVX-512 or an NVIDIA GPU since Ampere", "tf32": "an NVIDIA GPU since Ampere"}
        raise ConfigError("precision", f"{precision} needs {rule[precision]}, not this {device}; use float32")
