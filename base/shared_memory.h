/* Memory that several processes of one host map: made by one of them, without a name anywhere, so nothing is left behind however
 * they end. Another process finds it by the maker's process and file number.
 *
 * Counted as the maker's (base/memory.h); who maps it takes address space alone. */
#ifndef TANDEM_BASE_SHARED_MEMORY_H
#define TANDEM_BASE_SHARED_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct td_shared_memory {
    void *base; /* NULL: none */
    size_t bytes;
    int file; /* -1: another process' */
} td_shared_memory;

/* Zeroed. Errors: TD_OUT_OF_MEMORY; TD_UNSUPPORTED: a kernel without memfd_create. */
td_status *td_shared_memory_create(size_t bytes, td_shared_memory *out_memory) TD_MUST_USE;
/* What process `pid` of this host has made as its file number `file`, of at least `bytes`. TD_IO: it may not be opened, or is
 * shorter. */
td_status *td_shared_memory_map(int64_t pid, int file, size_t bytes, td_shared_memory *out_memory) TD_MUST_USE;
/* What memory for so many takes: whole large pages, once it is that long. */
size_t td_shared_memory_bytes(size_t bytes);
/* Either kind; none is fine. Others that map it keep it. */
void td_shared_memory_close(td_shared_memory *memory);

#endif
