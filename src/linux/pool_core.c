/* SPDX-License-Identifier: MIT */
/* The core of the pool, compiled for the machine of a Linux process. */
#define MF_MACHINE "linux/machine_linux.h"
#include "core/pool.c"
#include "core/pool_evict.c"
