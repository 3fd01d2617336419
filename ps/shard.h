/* One owner's part of a table: rows by id with their optimizer state, in memory as they are touched.
 *
 * Two kinds. An array shard owns a range of ids and finds a row by its distance from the first; a hash shard owns any 64-bit
 * keys and finds a row through an index. Both keep rows (FP32, bf16 or fp16) and the state of row i at place i of arrays of
 * address space, memory taken page by page, so the kernels that update local tables update these too, with the same bits.
 *
 * A row begins when it is first touched, with initial values that follow from seed, table name and id alone: no order of
 * arrival changes it. Asking for a row that has not begun gives its initial values, and begins it only if told to.
 *
 * One thread at a time. Not here: who owns what, and when a push may be applied (ps/server.c). */
#ifndef TANDEM_PS_SHARD_H
#define TANDEM_PS_SHARD_H

#include "optim/rule.h"
#include "ps/key_index.h"
#include "runtime/initial.h"

enum { TD_SHARD_ARRAYS = 1 + TD_MAX_SLOTS, TD_SHARD_NAME = 128 };

typedef enum td_shard_kind { TD_SHARD_ARRAY = 0, TD_SHARD_HASH } td_shard_kind;

/* Plain data: it travels between ranks as it is. */
typedef struct td_shard_definition {
    char name[TD_SHARD_NAME]; /* of the parameter */
    int32_t kind, dtype;
    int64_t first,
        rows; /* array: ids [first, first + rows); hash: any, `rows` only bounds how many begin (0: 2^32 - 2) */
    int64_t dim;
    uint64_t seed;
    td_initializer initial;
    char rule[32]; /* of the optimizer; "": rows are read only */
    int32_t n_states, reserved;
    char state_names[TD_MAX_SLOTS][16];
    int32_t state_per_row[TD_MAX_SLOTS];
    double state_initial[TD_MAX_SLOTS];
} td_shard_definition;

typedef struct td_shard_array {
    char *base;
    int64_t row_elements, row_bytes;
    td_initial initial;
} td_shard_array;

typedef struct td_updater td_updater;

typedef struct td_shard {
    td_shard_definition definition;
    td_shard_array arrays[TD_SHARD_ARRAYS]; /* rows, then states */
    int32_t n_arrays;
    int64_t most_slots, n; /* n: rows that have begun */
    td_key_index index;    /* hash */
    uint64_t *begun;       /* array: a bit per row */
    td_updater *updater;   /* NULL without a rule */
    int64_t *slots;        /* of one push */
    int64_t slots_capacity;
} td_shard;

/* Errors: no address space, a rule that takes no row-sparse gradient, an unknown one. */
td_status *td_shard_create(const td_shard_definition *definition, td_shard **out_shard) TD_MUST_USE;
void td_shard_destroy(td_shard *shard);

/* Rows of n ids, in the table's dtype, into out [n, dim]. `begin`: rows that have not begun do. TD_DATA_ERROR: an id outside the
 * range. */
td_status *td_shard_pull(td_shard *shard, const int64_t *ids, int64_t n, bool begin, void *out_rows) TD_MUST_USE;
/* The rule's update of n distinct rows by their summed gradients [n, dim] f32; they begin if they have not. */
td_status *td_shard_push(td_shard *shard, const int64_t *ids, int64_t n, const float *gradients,
                         const float coefficients[TD_COEFFICIENTS]) TD_MUST_USE;
/* Forgets rows: they have their initial values again. */
td_status *td_shard_remove(td_shard *shard, const int64_t *ids, int64_t n) TD_MUST_USE;

/* Up to `most` begun rows of one array from place *cursor on (0: the first), ids into out_ids, rows into out_rows; *cursor goes
 * on, -1 after the last. Array shards: ids ascend. Bounded memory: what checkpoints are written from. */
int64_t td_shard_read(const td_shard *shard, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                      void *out_rows);
/* n rows of one array; rows that begin get initial values in the other arrays. */
td_status *td_shard_write(td_shard *shard, int32_t array, const int64_t *ids, int64_t n, const void *rows) TD_MUST_USE;
void td_shard_clear(td_shard *shard);
/* Its part of td_store_checksum. */
td_status *td_shard_checksum(const td_shard *shard, uint64_t *out_sum) TD_MUST_USE;
/* Memory that is taken by rows and states, and what finding them takes on top. */
void td_shard_bytes(const td_shard *shard, int64_t *out_row_bytes, int64_t *out_overhead_bytes);

/* ---- updater.c: a rule's kernel over rows in place ---- */
td_status *td_updater_create(td_shard *shard, td_updater **out_updater) TD_MUST_USE;
void td_updater_destroy(td_updater *updater);
td_status *td_updater_run(td_updater *updater, const int64_t *slots, int64_t n, const float *gradients,
                          const float *coefficients) TD_MUST_USE;

#endif
