#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What many kernel maps cost a fork: maps pages of a file, then forks, and tells the best of 100.

    python3 examples/forkcost.py 60000
    mapfold run -- python3 examples/forkcost.py 60000
"""

import ctypes
import mmap
import os
import sys
import tempfile
import time

PAGE = mmap.PAGESIZE


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal():
        print("usage: forkcost.py MAPS", file=sys.stderr)
        sys.exit(2)
    count = int(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                          ctypes.c_long]
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        file.truncate(2 * PAGE * max(count, 1))
        for i in range(count):  # every second page: neighbours would merge
            if libc.mmap(None, PAGE, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(),
                         2 * PAGE * i) == ctypes.c_void_p(-1).value:
                sys.exit(f"forkcost: map {i}: {os.strerror(ctypes.get_errno())}")
        best = float("inf")
        for _ in range(100):
            begun = time.monotonic()
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            best = min(best, time.monotonic() - begun)
    print(f"{count} maps: fork, exit and wait {best * 1000:.2f} ms")


if __name__ == "__main__":
    main()
