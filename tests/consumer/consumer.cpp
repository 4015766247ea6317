/* SPDX-License-Identifier: MIT */
/* A C++ program of somebody who installed mapfold. */
#include <mapfold/mapfold.h>

int main()
{
    const struct mf_alloc *alloc = mf_alloc_system();
    void *memory = alloc->alloc(alloc->context, 4096, 4096);
    if (!memory)
        return 1;
    alloc->free(alloc->context, memory, 4096);
    return 0;
}
