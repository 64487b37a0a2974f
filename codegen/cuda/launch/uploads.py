"""Constants on devices: each is uploaded once, for all functions that have it, and stays as long as one of them does."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from tensorexpr.codegen.cuda.launch.device import Device
from tensorexpr.ir import Constant

_uploads: weakref.WeakValueDictionary[tuple[str, bytes], Any] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def uploaded(device: Device, constant: Constant) -> Any:
    """The array of a device with the data of a constant."""
    key = (device.name, constant.content)
    with _lock:
        found = _uploads.get(key)
        if found is None:
            found = _uploads[key] = device.upload(constant.data)
        return found
