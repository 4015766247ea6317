/* SPDX-License-Identifier: MIT */
/* The core of the pool, compiled for the machine of a Linux process: it is included, not built. */
#define MF_MACHINE "linux/machine_linux.h"
/* NOLINTBEGIN(bugprone-suspicious-include) */
#include "core/pool.c"
#include "core/pool_evict.c"
/* NOLINTEND(bugprone-suspicious-include) */
