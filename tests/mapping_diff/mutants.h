/* SPDX-License-Identifier: MIT */
#ifndef MAPPING_DIFF_MUTANTS_H
#define MAPPING_DIFF_MUTANTS_H

/* The calls of the mutant that was chosen. */
extern const struct calls mutant_calls;
void mutant_choose(int number);

#endif
