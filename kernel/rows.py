#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the kernel's rows of `mapfold bench kmap_lock`: one JSON object for each part and system.

usage: kernel/rows.py [CPUS]      16 processors without a number

Figures are counts for one map and its unmap, never times. Exit status 1 if a boot went wrong,
3 if qemu-system-i386 is not installed, 4 if the kernel cannot be built.
"""

import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BOOTS = (  # part, words, and which of the kernel's lines
    ("kernel-same", "run=read1 ops=5000", {"workload": "read1", "kind": "same"}),
    ("kernel-different", "run=read1 ops=5000", {"workload": "read1", "kind": "different"}),
    *((f"kernel-zipf{'-held' if held else ''}",
       f"run=zipf ops=3000 pages=16384 slots={slots} held={held}", {"workload": "zipf"})
      for held in (0, 50) for slots in (64, 512, 4096)),
)


def boot(words, cpus):
    done = subprocess.run([f"{HERE}/run", "-i", "-c", cpus, *words.split()], check=True, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def row(part, line):
    ops = line["ops"]
    system = "local" if line["map"] == "local" else f"pool-{line['pool']}"
    ipis = line["flush_ipis"] + line["barrier_ipis"] + line["wake_ipis"]
    return {
        "workload": f"kmap_lock.{part}", "system": system, "n": line["slots"],
        "threads": line["cpus"], "ops": ops,
        "misses_per_op": round((line["misses"] + line["revived"]) / ops, 6),
        "locks_per_op": round(line["locks"] / ops, 6),
        "lock_steps_mean": round(line["lock_steps"] / line["pool_locks"], 3)
                           if line["pool_locks"] else 0,
        "lock_steps_max": line["lock_steps_max"],
        "flush_rounds_per_op": round(line["flush_rounds"] / ops, 6),
        "ipis_per_op": round(ipis / ops, 6),
        "instructions_per_op": round(line["instructions"] / ops, 1),
    }


def main(arguments):
    if len(arguments) > 1 or not all(word.isdigit() for word in arguments):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    if not shutil.which("qemu-system-i386"):
        return 3
    try:
        subprocess.run(["make", "-s", "-C", HERE], check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError):
        return 4
    cpus = arguments[0] if arguments else "16"
    booted = {}
    for part, words, members in BOOTS:
        for pool in "core", "2002":
            words_of_pool = f"{words} pool={pool}"
            try:
                if words_of_pool not in booted:
                    booted[words_of_pool] = boot(words_of_pool, cpus)
            except (OSError, ValueError, subprocess.CalledProcessError) as error:
                print(f"kernel/rows.py: {words_of_pool}: {error}", file=sys.stderr)
                return 1
            for line in booted[words_of_pool]:
                if members.items() <= line.items() and not (line["map"] == "local"
                                                            and pool == "2002"):
                    print(json.dumps(row(part, line)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
