/* SPDX-License-Identifier: MIT */
/* The URI parameters of a database. A wrong one is refused, since what it asks for would be missed. */
#include "sqlite/vfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET_MIN (UINT64_C(16) << 10)
#define BUDGET_MAX (UINT64_C(1) << 46)

/* Bytes, with K, M, G or T for powers of 1024; 0 if it is none, or out of bounds. */
static uint64_t parse_bytes(const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    if (*text < '0' || *text > '9')
        return 0;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    if (errno || (*end && (!unit || end[1])))
        return 0;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (value > BUDGET_MAX >> shift)
        return 0;
    value <<= shift;
    return value >= BUDGET_MIN ? value : 0;
}

int options_read(const char *name, struct options *options)
{
    const char *budget = sqlite3_uri_parameter(name, "mapfold_budget");
    options->faults = sqlite3_uri_boolean(name, "mapfold_faults", 0);
    options->budget = budget ? parse_bytes(budget) : 0;
    if (!budget || options->budget)
        return SQLITE_OK;
    sqlite3_log(SQLITE_CANTOPEN,
                "mapfold: cannot open %s: mapfold_budget wants a number of bytes from 16K to 64T, "
                "as in 256M, not '%s'",
                name, budget);
    return SQLITE_CANTOPEN;
}
