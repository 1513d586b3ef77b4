"""Say on what, with what and when something was measured."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import re

import jax

_PACKAGES = ("rlaxlib", "rlax", "jax", "jaxlib", "numpy")


def describe() -> dict[str, str]:
    """Return the device, the machine, the versions and the date."""
    return {
        "device": device(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def device() -> str:
    """Return the kind of the device on which JAX runs, such as `cpu`."""
    return jax.devices()[0].device_kind


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Return the name of the processor, which Python knows on few systems only."""
    information = pathlib.Path("/proc/cpuinfo")
    if information.exists():
        found = re.search(r"model name\s*:\s*(.+)", information.read_text())
        if found:
            return found[1]
    return platform.processor() or platform.machine()
