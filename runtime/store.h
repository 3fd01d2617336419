/* Stores, as the runtime sees them: one entry per parameter or state, each a block of its device's memory. */
#ifndef TANDEM_RUNTIME_STORE_H
#define TANDEM_RUNTIME_STORE_H

#include <stdatomic.h>

#include "runtime/machine.h"
#include "tandem/session.h"

typedef struct td_store_entry {
    char *name;
    td_tensor tensor; /* shape and dtype; data: address in the device's memory */
    int64_t bytes;
    int32_t site;
    bool is_parameter;
} td_store_entry;

struct td_store {
    int64_t references; /* atomic */
    td_machine *machine;
    td_store_entry *entries;
    int32_t n_entries;
    td_name_map names;
    uint64_t seed;
    int64_t steps, updates;
    atomic_bool in_use; /* a session runs on it */
};

/* The site where the store has a parameter, or -1: td_plan_request.home. */
int32_t td_store_home(const void *store, const char *parameter);
/* Bytes of its entries on a site: td_plan_request.held. */
int64_t td_store_held(const void *store, int32_t site);

#endif
