/* SPDX-License-Identifier: MIT */
/* What libFuzzer calls, and replay_space.c where there is no libFuzzer. */
#ifndef TESTS_CORE_FUZZ_SPACE_H
#define TESTS_CORE_FUZZ_SPACE_H

#include <stddef.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

#endif
