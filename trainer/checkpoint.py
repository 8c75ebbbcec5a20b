"""A checkpoint as bytes: what `torch.load(weights_only=True)` reads, with a checksum of its content inside."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

CHECKPOINT_FORMAT: Final = 2


class DamagedError(ValueError):
    """A checkpoint that must not be used."""


class NewerError(Exception):
    """A checkpoint of a newer version of polysweep; its format is the argument."""


def dumps(checkpoint: Mapping[str, Any]) -> bytes:
    """The checkpoint with its checksum."""
    buffer = io.BytesIO()
    torch.save({**checkpoint, "sha256": _checksum(checkpoint)}, buffer)
    return buffer.getvalue()


def loads(content: bytes) -> dict[str, Any]:
    """The checkpoint.

    Raises `DamagedError` if it cannot be read, has an older format, or if its content is not what was saved;
    `NewerError` if its format is newer.
    """
    try:
        checkpoint = torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:  # whatever torch, zipfile or pickle say of a damaged file
        reason = str(error).strip().partition("\n")[0]
        raise DamagedError(f"it cannot be read: {type(error).__name__}: {reason}") from None
    if not isinstance(checkpoint, dict) or "format" not in checkpoint:
        raise DamagedError("it is not a checkpoint of polysweep: it has no format")
    format_ = checkpoint["format"]
    if isinstance(format_, int) and format_ > CHECKPOINT_FORMAT:
        raise NewerError(format_)
    if format_ != CHECKPOINT_FORMAT:
        raise DamagedError(f"it has format {format_!r}, this version reads {CHECKPOINT_FORMAT}")
    expected = checkpoint.pop("sha256", None)
    checksum = _checksum(checkpoint)
    if checksum != expected:
        raise DamagedError(f"its content has the SHA-256 {checksum[:16]}..., it says {str(expected)[:16]}...")
    return dict(checkpoint)


def _checksum(value: Any) -> str:
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Add a value: names in order, types, and the bytes of tensors."""
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.contiguous().view(-1).view(torch.uint8).numpy())
    elif isinstance(value, Mapping):
        for key in sorted(value):
            digest.update(f"{key}:".encode())
            _feed(digest, value[key])
    elif isinstance(value, list | tuple):
        digest.update(f"[{len(value)}]".encode())
        for item in value:
            _feed(digest, item)
    else:
        digest.update(f"{value!r};".encode())
