/* SPDX-License-Identifier: MIT */
/* All of mapfold: each layer has a header of its own, and this one includes them. */
#ifndef MAPFOLD_MAPFOLD_H
#define MAPFOLD_MAPFOLD_H

#include <mapfold/base.h>
#include <mapfold/mmap.h>
#include <mapfold/space.h>
#include <mapfold/window.h>

#endif
