#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mapfold from Python by ctypes: its interface is plain C, and needs no binding.

    python3 examples/windows.py FILE [LIBRARY]

Counts the lines of a file through windows, one MiB at a time, and keeps in a space where they were.
Structures are written down as the headers have them; every function returns 0 or a count, or a
negative errno.
"""

import ctypes
import errno
import os
import sys
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

MF_CHECK_SIZE = 1 << 3
MF_FOREVER = 2**64 - 1
MF_TAG_MERGE = 1 << 63
PIECE = 1 << 20


class PoolLimits(ctypes.Structure):
    _fields_ = [("bytes", c_uint64), ("maps", c_uint32), ("files", c_uint32)]


class Window(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t), ("flags", c_uint32),
                ("opaque", c_uint64 * 4)]


class Area(ctypes.Structure):
    _fields_ = [("start", c_uint64), ("length", c_uint64), ("tag", c_uint64), ("delta", c_uint64)]


FUNCTIONS = {  # name: result, arguments
    "mf_fault_install": (c_int, []),
    "mf_pool_create": (c_int, [POINTER(PoolLimits), c_size_t, c_uint32, POINTER(c_void_p)]),
    "mf_pool_destroy": (c_int, [c_void_p]),
    "mf_file_open": (c_int, [c_void_p, ctypes.c_char_p, c_uint32, POINTER(c_void_p)]),
    "mf_file_size": (c_int64, [c_void_p]),
    "mf_file_close": (c_int, [c_void_p]),
    "mf_window_pin": (c_int, [c_void_p, c_uint64, c_size_t, c_uint32, c_uint64, POINTER(Window)]),
    "mf_window_unpin": (c_int, [POINTER(Window)]),
    "mf_alloc_system": (c_void_p, []),
    "mf_space_create": (c_int, [c_uint64, c_uint64, c_uint64, c_void_p, POINTER(c_void_p)]),
    "mf_space_insert": (c_int, [c_void_p, POINTER(Area)]),
    "mf_space_next": (c_int, [c_void_p, c_uint64, POINTER(Area)]),
    "mf_space_destroy": (None, [c_void_p]),
}


def load(path):
    library = ctypes.CDLL(path)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def checked(result):
    """What a function returned, if that is no error."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def count_lines(mf, file, seen):
    """Lines in the file; what was read of it becomes one area of the space."""
    lines, size = 0, checked(mf.mf_file_size(file))
    for offset in range(0, size, PIECE):
        window = Window()  # all zeros, as it must be
        length = min(PIECE, size - offset)
        checked(mf.mf_window_pin(file, offset, length, MF_CHECK_SIZE, MF_FOREVER, byref(window)))
        here = ctypes.string_at(window.data, window.length).count(b"\n")
        checked(mf.mf_window_unpin(byref(window)))  # EIO: the file was cut while it was read
        lines += here
        checked(mf.mf_space_insert(seen, byref(Area(offset, length, MF_TAG_MERGE, 0))))
    return lines, size


def main():
    if len(sys.argv) not in (2, 3):
        print("usage: windows.py FILE [LIBRARY]", file=sys.stderr)
        sys.exit(2)
    mf = load(sys.argv[2] if len(sys.argv) == 3 else "libmapfold.so.0")
    pool, file, seen, area = c_void_p(), c_void_p(), c_void_p(), Area()
    checked(mf.mf_fault_install())
    checked(mf.mf_pool_create(byref(PoolLimits(16 << 20, 16, 4)), 0, 0, byref(pool)))
    checked(mf.mf_file_open(pool, os.fsencode(sys.argv[1]), 0, byref(file)))
    checked(mf.mf_space_create(0, MF_FOREVER, 1, mf.mf_alloc_system(), byref(seen)))
    lines, size = count_lines(mf, file, seen)
    print(f"{lines} lines in {size} bytes")
    if mf.mf_space_next(seen, 0, byref(area)) != -errno.ENOENT:
        print(f"read: {area.start} to {area.start + area.length}")
    mf.mf_space_destroy(seen)
    checked(mf.mf_file_close(file))
    checked(mf.mf_pool_destroy(pool))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"windows.py: {error.strerror or error}")
