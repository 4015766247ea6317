/* SPDX-License-Identifier: MIT */
/*
 * Static probes for bpftrace, perf and their like: docs/PROBES.md tells what each says.
 *
 * A probe that nobody watches is one nop and a note in the file. Its arguments must be at hand:
 * no call and no load is made for them. Without <sys/sdt.h> when mapfold is built, or with
 * MF_NO_PROBES, there are none.
 */
#ifndef MF_LINUX_PROBES_H
#define MF_LINUX_PROBES_H

#if defined(__has_include) && !defined(MF_NO_PROBES)
#if __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#endif
#endif

#ifdef STAP_PROBEV
#define PROBE(...) STAP_PROBEV(mapfold, __VA_ARGS__)
#else
#define PROBE(...) ((void)0)
#endif

#endif
