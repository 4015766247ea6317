/* SPDX-License-Identifier: MIT */
/* cmocka with the headers it wants before it. */
#ifndef MAPFOLD_TESTS_UNIT_H
#define MAPFOLD_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
