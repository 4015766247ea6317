/* SPDX-License-Identifier: MIT */
#include <mapfold/space.h>
