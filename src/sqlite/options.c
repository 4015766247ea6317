/* SPDX-License-Identifier: MIT */
/* The URI parameters of a database. A wrong one is refused, since what it asks for would be missed.
 */
#include "sqlite/vfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET_KEY "mapfold_budget"
#define FAULTS_KEY "mapfold_faults"

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

/* 0 or 1, or -1 if it is neither: what SQLite's own parameters take, but not what they pass over.
 */
static int parse_switch(const char *text)
{
    static const char *const words[][4] = {{"0", "off", "no", "false"}, {"1", "on", "yes", "true"}};
    for (int value = 0; value < 2; value++) {
        for (int i = 0; i < 4; i++) {
            if (sqlite3_stricmp(text, words[value][i]) == 0)
                return value;
        }
    }
    return -1;
}

/* A parameter of ours that there is not is most likely one that was misspelt. */
static void note_unknown(const char *name)
{
    static const char prefix[] = "mapfold_";
    const char *key;
    for (int i = 0; (key = sqlite3_uri_key(name, i)) != NULL; i++) {
        if (strncmp(key, prefix, sizeof(prefix) - 1) == 0 && strcmp(key, BUDGET_KEY) != 0 &&
            strcmp(key, FAULTS_KEY) != 0)
            sqlite3_log(SQLITE_NOTICE,
                        "mapfold: %s: there is no parameter %s; there are " FAULTS_KEY
                        " and " BUDGET_KEY,
                        name, key);
    }
}

static int refuse(const char *name, const char *wants, const char *value)
{
    sqlite3_log(SQLITE_CANTOPEN, "mapfold: cannot open %s: %s, not '%s'", name, wants, value);
    return SQLITE_CANTOPEN;
}

int options_read(const char *name, struct options *options)
{
    const char *budget = sqlite3_uri_parameter(name, BUDGET_KEY);
    const char *faults = sqlite3_uri_parameter(name, FAULTS_KEY);
    const int chosen = faults ? parse_switch(faults) : 0;
    note_unknown(name);
    options->faults = chosen == 1;
    options->budget = budget ? parse_bytes(budget) : 0;
    if (chosen < 0)
        return refuse(name, FAULTS_KEY " wants 1 or 0 (on, off, yes, no, true, false)", faults);
    if (budget && !options->budget)
        return refuse(name, BUDGET_KEY " wants a number of bytes from 16K to 64T, as in 256M",
                      budget);
    return SQLITE_OK;
}
