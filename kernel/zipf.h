/* SPDX-License-Identifier: MIT */
/* zipf: ranks drawn with the probabilities of Zipf's law, weight(rank) = 1 / rank^0.99. */
#ifndef MF_KERNEL_ZIPF_H
#define MF_KERNEL_ZIPF_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the table for ranks 1 to n; false: no memory. */
bool zipf_start(uint32_t n);

/* A rank, 0 up; the state is random32's. */
uint32_t zipf_draw(uint32_t *state);

#endif
