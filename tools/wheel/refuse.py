"""What pip runs where none of hora's wheels fits: it says why in one sentence, and what to do, instead of building."""

import os
import platform
import sys


def sentence() -> str:
    system, machine = platform.system(), platform.machine()
    libc = ""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        pass
    if system != "Linux" or machine not in ("x86_64", "aarch64"):
        why = f"this is {system} on {machine}; its own repository builds it for this machine: python tools/wheel/build.py --cc native"
    elif not libc.startswith("glibc"):
        why = "this system has another C library (musl, as Alpine has); use an image with glibc, such as python:3-slim instead of python:3-alpine"
    elif tuple(map(int, libc.split()[-1].split(".")[:2])) < (2, 17):
        why = f"this system has {libc}; use a newer one"
    else:
        why = f"this Python ({platform.python_implementation()} {platform.python_version()}) or its pip does not take them; upgrade pip"
    return f"install hora: its wheels are for Linux with glibc 2.17 or newer on x86_64 and aarch64, and {why}"


def get_requires_for_build_wheel(config_settings=None):  # the first thing that pip asks of a source distribution
    sys.exit(sentence())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    sys.exit(sentence())
