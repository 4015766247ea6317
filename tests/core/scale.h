/* SPDX-License-Identifier: MIT */
/*
 * How much the long tests do. MAPFOLD_TEST_SHRINK=50 in the environment divides their counts by
 * fifty, for builds and machines on which everything is slow: sanitizers, emulators.
 */
#ifndef TESTS_CORE_SCALE_H
#define TESTS_CORE_SCALE_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t number_from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static inline uint64_t scaled(uint64_t count)
{
    const uint64_t shrink = number_from_environment("MAPFOLD_TEST_SHRINK", 1);
    const uint64_t shrunk = shrink ? count / shrink : count;
    return shrunk ? shrunk : 1;
}

#endif
