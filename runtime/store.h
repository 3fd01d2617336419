/* Stores, as the runtime sees them: one entry per parameter or state, each a block of its device's memory. */
#ifndef TANDEM_RUNTIME_STORE_H
#define TANDEM_RUNTIME_STORE_H

#include <stdatomic.h>

#include "optim/loss_scale.h"
#include "runtime/machine.h"
#include "runtime/paged_table.h"
#include "runtime/remote.h"
#include "tandem/session.h"

/* Who of a job's workers has which elements of a state that they share. */
typedef struct td_store_shard {
    int64_t *bounds; /* [workers + 1]: worker w has the elements [bounds[w], bounds[w + 1]) */
    int32_t workers, worker, index;
} td_store_shard;

/* Bytes of an entry that a checkpoint reads and writes at a time. */
enum { TD_CHECKPOINT_PIECE = 4 << 20 };

typedef struct td_store_entry {
    char *name;
    td_tensor tensor; /* shape and dtype; data: address in the device's memory */
    int64_t bytes;
    /* so many elements, the first, are here; the others are in the replica that begins with them. 0: all are here */
    int64_t held;
    int64_t first;         /* of a replica, and of a state that workers share: the element that it begins with */
    td_store_shard *shard; /* NULL: this worker has all of it */
    int32_t site;
    bool is_parameter;
    bool by_rows;          /* a table: lookups read it, or copies of it, row by row */
    td_initial initial;    /* what it began with */
    td_paged_table *table; /* NULL: all of it is in memory; else `bytes` is 0 and data its address space */
    int32_t array;         /* of the table, or of the served one */
    int32_t replica;       /* the first of its copies on devices that read it, in td_store.replicas; -1: none */
    bool is_pending;       /* a gradient that waits for its update */
    bool is_remote;        /* other ranks have its rows: bytes are 0, there is no address */
    int32_t remote_table;  /* the job's number of it */
    bool is_hashed;        /* a remote one is a hash table */
} td_store_entry;

/* How many of the elements [first, first + count) an entry holds itself: the first ones of them. */
static inline int64_t td_store_here(const td_store_entry *entry, int64_t first, int64_t count)
{
    if (!entry->held || first + count <= entry->held)
        return count;
    return first < entry->held ? entry->held - first : 0;
}

/* A copy of a parameter on a device that reads it while it is updated on the host: partition/offload.c. No checkpoint has it, and
 * no public call names it; between runs it equals the parameter, rounded to its own dtype. Where the host updates a part of a parameter
 * (partition/split.c) it has a copy of that part, and the one memory of that part of the state. */
typedef struct td_store_replica {
    td_store_entry entry;
    int32_t next; /* of the same parameter; -1: none */
} td_store_replica;

/* What a device lends to the session that runs; as large as the largest plan so far. */
typedef struct td_store_arena {
    void *memory;
    int64_t bytes;
} td_store_arena;

/* A window's gradients that the next window's updates are to apply (offload.delayed), and what goes with them. */
typedef struct td_pending {
    bool waits; /* there are some */
    int64_t update;
    double divisor;
} td_pending;

struct td_store {
    int64_t references; /* atomic */
    td_machine *machine;
    td_store_entry *entries;
    int32_t n_entries;
    td_store_replica *replicas;
    int32_t n_replicas;
    td_name_map names, replica_names;
    td_store_shard *shards;
    int32_t n_shards;
    uint64_t seed;
    int64_t steps, updates;
    td_loss_scale loss_scale; /* all zero until a plan with one runs */
    td_pending pending;       /* since the last window that ended */
    double last_loss;         /* of the last update; NaN: none yet */
    char whole
        [17]; /* checksum of the manifest of the last whole checkpoint of a series, from which on changes are noted */
    const td_remote *remote; /* of the plan it was made for; NULL: this process has all */
    td_page_pool pool;       /* of the tables that are not simply in memory */
    td_paged_table *tables;
    int32_t n_tables;
    int64_t paging_bytes;   /* what they may hold, their books included */
    pthread_mutex_t mutex;  /* of what follows */
    td_store_arena *arenas; /* as the machine's sites */
    int32_t n_sessions;
    atomic_bool in_use; /* a session runs on it; may be read without the mutex */
};

/* The site where the store has a parameter, or -1: td_plan_request.home. */
int32_t td_store_home(const void *store, const char *parameter);
/* Bytes of its entries on a site: td_plan_request.held. */
int64_t td_store_held(const void *store, int32_t site);

/* An entry or replica by the name that plans have for it; NULL: there is none. */
td_store_entry *td_store_entry_of(const td_store *store, const char *name);
/* Copies bytes between host memory and the memory of a site. */
td_status *td_store_transfer(const td_plan_site *site, bool to_device, void *device_memory, void *host_memory,
                             size_t bytes) TD_MUST_USE;
/* Allocates an entry and fills it with its initial values. */
td_status *td_store_allocate(td_store *store, td_store_entry *entry) TD_MUST_USE;

/* ---- store_replicas.c: copies on devices that read what the host updates ---- */
td_status *td_store_add_replica(td_store *store, const td_plan *plan, int32_t value) TD_MUST_USE;
void td_store_drop_replicas(td_store *store);
/* The elements [first, first + count) of an entry that it does not hold itself. */
td_status *td_store_read_rest(const td_store *store, const td_store_entry *entry, int64_t first, int64_t count,
                              void *out) TD_MUST_USE;
/* What was written to an entry is written to its replicas too. */
td_status *td_store_write_replicas(td_store *store, int32_t index, int64_t first, int64_t count,
                                   const void *data) TD_MUST_USE;
/* td_plan_request.replicated. */
bool td_store_replicated(const void *store, const char *parameter, int32_t site, td_dtype dtype);

/* ---- store_shards.c: state that the workers of a job share ---- */
/* Before the entries of the state of parameter `end`: those of what this worker has nothing of, of parameters from *from on, which moves
 * on. So entries are in one order on all workers, which is that of a process that is alone. */
td_status *td_store_add_elsewhere(td_store *store, const td_plan *plan, int32_t *from, int32_t end) TD_MUST_USE;
/* After all of them: notes who has what. */
td_status *td_store_add_shards(td_store *store, const td_plan *plan) TD_MUST_USE;
void td_store_drop_shards(td_store *store);
td_status *td_store_write_shard(const td_store_entry *entry, int64_t first, int64_t n, const float *data) TD_MUST_USE;
/* The others' stretches come from them, who lend them (td_store_lend); without `borrow` they are refused. */
td_status *td_store_read_shard(const td_store *store, const td_store_entry *entry, int64_t first, int64_t n,
                               bool borrow, float *out) TD_MUST_USE;

/* ---- store_tables.c: entries whose rows are not simply in memory ---- */
/* The plan's tables that are sparse or in a file, empty. */
td_status *td_store_add_tables(td_store *store, const td_plan *plan) TD_MUST_USE;
void td_store_drop_tables(td_store *store);
/* No row is there any more: all have their initial values. */
void td_store_clear_tables(td_store *store);
/* Points the entry of a table's parameter or state at it. */
void td_store_join_table(td_store *store, const td_plan *plan, int32_t value, td_store_entry *entry);
/* A step begins: what was touched for it and the one before stays in memory. */
static inline void td_store_advance(td_store *store)
{
    if (store->n_tables)
        td_page_pool_advance(&store->pool);
}

/* ---- store_remote.c: entries whose rows other ranks have ---- */
/* Makes the served table of `value` known to its owners, and points its entry at it. */
td_status *td_store_join_remote(td_store *store, const td_plan *plan, int32_t value, td_store_entry *entry) TD_MUST_USE;
/* Entries for the state of the plan's served tables. */
td_status *td_store_add_remote_states(td_store *store, const td_plan *plan) TD_MUST_USE;
/* Elements [first, first + n), whole rows only. */
td_status *td_store_read_remote(const td_store *store, const td_store_entry *entry, int64_t first, int64_t n,
                                void *out) TD_MUST_USE;
td_status *td_store_write_remote(td_store *store, const td_store_entry *entry, int64_t first, int64_t n,
                                 const void *data) TD_MUST_USE;
/* Before one is loaded: no row has begun. */
td_status *td_store_clear_remote(td_store *store) TD_MUST_USE;
/* Makes a number of elements one that an entry can be read and written by: whole rows of a served table, anything elsewhere. */
td_status *td_store_whole_rows(const td_store_entry *entry, int64_t *elements) TD_MUST_USE;

/* ---- arenas.c: memory for the session that runs ---- */
/* A session of this plan begins. The arenas are made large enough for it, or, while another session runs, that is left to
 * the session's first run. On failure too the session must leave. */
td_status *td_store_join(td_store *store, const td_plan *plan) TD_MUST_USE;
/* The last one to leave gives the arenas back. */
void td_store_leave(td_store *store);
/* The arenas are this plan's until td_store_end_run; they may have moved. Refused while another session runs. */
td_status *td_store_begin_run(td_store *store, const td_plan *plan) TD_MUST_USE;
void td_store_end_run(td_store *store);

#endif
