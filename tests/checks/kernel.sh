#!/bin/sh
# SPDX-License-Identifier: MIT
# The kernel builds, boots in QEMU, and counts what is asked of it.
exec kernel/test.py
