/* One owner's part of a table: rows by id with their optimizer state, in memory as they are touched.
 *
 * Two kinds. An array shard owns a range of ids and finds a row by its distance from the first; a hash shard owns a stretch of the
 * keys of any 64-bit ids (base/key.h) and finds a row through an index. Both keep rows (FP32, bf16 or fp16) and the state of row i
 * at place i of arrays of address space, memory taken page by page, so the kernels that update local tables update these too,
 * with the same bits.
 *
 * Initial values follow from seed, table name and id alone: no order of arrival changes them. A row of an array begins when it is
 * first pulled for training. A row of a hash table begins with its first update that is admitted (admission.c), and goes again by
 * the rules of its table (key_set.h); without one it has its initial values, whatever is pushed to it.
 *
 * One thread at a time. Not here: who owns what, and when a push may be applied (ps/server_windows.c). */
#ifndef TANDEM_PS_SHARD_H
#define TANDEM_PS_SHARD_H

#include "optim/rule.h"
#include "ps/key_set.h"
#include "ps/shard_pages.h"
#include "runtime/initial.h"
#include "runtime/remote.h"
#include "tandem/plan.h"

enum { TD_SHARD_ARRAYS = 1 + TD_MAX_SLOTS, TD_SHARD_NAME = 128 };

/* What a shard has besides arrays of rows, where reading and writing name an array. */
enum {
    TD_SHARD_USED = TD_REMOTE_USED,       /* u32 of each row of a hash table: the last window that named its id */
    TD_SHARD_COUNTS = TD_REMOTE_COUNTS,   /* u32: how many windows did since it began */
    TD_SHARD_WAITING = TD_REMOTE_WAITING, /* u32 [2] of each id that waits for admission: the same two */
    TD_SHARD_GONE = TD_REMOTE_GONE,       /* nothing: ids whose rows went; writing them forgets their rows */
    TD_SHARD_WINDOWS = TD_REMOTE_WINDOWS  /* i64, of no id: windows so far */
};

typedef enum td_shard_kind { TD_SHARD_ARRAY = 0, TD_SHARD_HASH } td_shard_kind;

/* Plain data: it travels between ranks as it is. */
typedef struct td_shard_definition {
    char name[TD_SHARD_NAME]; /* of the parameter */
    int32_t kind, dtype;
    int64_t first, rows; /* array: ids [first, first + rows); hash: any */
    int64_t dim;
    td_hash_options hash; /* of a hash table; its match is NULL */
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
    td_shard_pages pages;
} td_shard_array;

typedef struct td_updater td_updater;

typedef struct td_shard {
    td_shard_definition definition;
    td_shard_array arrays[TD_SHARD_ARRAYS]; /* rows, then states */
    int32_t n_arrays;
    int64_t most_slots, n; /* n: rows that have begun */
    uint64_t *begun;       /* array: a bit per row */
    td_key_set keys;       /* hash */
    td_key_set waiting;    /* hash: keys that were named too seldom to be admitted */
    uint32_t windows;      /* hash: that were pushed */
    td_philox_key draws;   /* hash: of admission by chance */
    td_updater *updater;   /* NULL without a rule */
    int64_t *slots;        /* of one push */
    int64_t slots_capacity;
    float *kept; /* gradients of the admitted rows of one push */
    int64_t kept_capacity;
    bool tracks;       /* what changes is noted: */
    uint64_t *changed; /* a bit per slot; NULL: never tracked */
    int64_t *gone;     /* ids */
    int64_t n_gone, gone_capacity;
} td_shard;

/* Equal stretches of keys, a power of two, each of which belongs to one owner and holds its share of a bounded table. Keeping each costs
 * up to 184 bytes, so there are more than a few only where that is less than a fifth of a byte for each row. */
int32_t td_shard_parts(const td_shard_definition *definition);

/* Errors: no address space, a rule that takes no row-sparse gradient, an unknown one. */
td_status *td_shard_create(const td_shard_definition *definition, td_shard **out_shard) TD_MUST_USE;
void td_shard_destroy(td_shard *shard);

/* Rows of n keys (of an array: ids), in the table's dtype, into out [n, dim]. `begin`: an array's rows that have not begun do.
 * TD_DATA_ERROR: an id outside the range. */
td_status *td_shard_pull(td_shard *shard, const int64_t *keys, int64_t n, bool begin, void *out_rows) TD_MUST_USE;
/* A window's update, by the rule, of n distinct rows by their summed gradients [n, dim] f32: they begin if they have not and are
 * admitted. Then rows go whose time is over, or which are too many. Once per window, with n 0 where it names none. */
td_status *td_shard_push(td_shard *shard, const int64_t *keys, int64_t n, const float *gradients,
                         const float coefficients[TD_COEFFICIENTS]) TD_MUST_USE;
/* Forgets rows by id: they have their initial values again. */
td_status *td_shard_remove(td_shard *shard, const int64_t *ids, int64_t n) TD_MUST_USE;

/* Up to `most` begun rows of one array from place *cursor on (0: the first), ids into out_ids, rows into out_rows; *cursor goes
 * on, -1 after the last. Array shards: ids ascend. Bounded memory: what checkpoints are written from. */
int64_t td_shard_read(const td_shard *shard, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                      void *out_rows);
/* The same of the rows that changed since td_shard_track. */
int64_t td_shard_read_changed(const td_shard *shard, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                              void *out_rows);
/* n rows of one array; rows that begin get initial values in the other arrays. */
td_status *td_shard_write(td_shard *shard, int32_t array, const int64_t *ids, int64_t n, const void *rows) TD_MUST_USE;

/* As when it was made; after an error it is as it was, but keys may wait no more. */
td_status *td_shard_clear(td_shard *shard) TD_MUST_USE;
/* Its part of td_store_checksum. */
td_status *td_shard_checksum(const td_shard *shard, uint64_t *out_sum) TD_MUST_USE;
/* Memory that is taken by rows and states, and what finding them takes on top. */
void td_shard_bytes(const td_shard *shard, int64_t *out_row_bytes, int64_t *out_overhead_bytes);

/* ---- marks.c ---- */
/* Bytes of a row of an array, TD_SHARD_USED and so on too; -1: there is no such. */
int64_t td_shard_array_bytes(const td_shard_definition *definition, int32_t array);
/* td_shard_read and td_shard_write of the arrays below 0; whether a shard has one. */
bool td_shard_has_mark(const td_shard *shard, int32_t array);
int64_t td_shard_read_mark(const td_shard *shard, int32_t array, bool changed, int64_t *cursor, int64_t most,
                           int64_t *out_ids, void *out_rows);
td_status *td_shard_write_mark(td_shard *shard, int32_t array, const int64_t *ids, int64_t n,
                               const void *rows) TD_MUST_USE;
/* From now on changes are noted, until td_shard_clear, or until more rows went than noting them is worth or there
 * is memory for (`tracks`). */
td_status *td_shard_track(td_shard *shard) TD_MUST_USE;
int64_t td_shard_count_changed(const td_shard *shard);
void td_shard_note_change(td_shard *shard, int64_t slot);
td_status *td_shard_note_gone(td_shard *shard, int64_t id) TD_MUST_USE;

/* ---- admission.c ---- */
td_status *td_shard_init_admission(td_shard *shard) TD_MUST_USE;
/* Whether the row of a key that this window names, and that has not begun, begins now. */
td_status *td_shard_admit(td_shard *shard, int64_t key, bool *out_admitted) TD_MUST_USE;
/* The window is over: what must go, goes. */
td_status *td_shard_end_window(td_shard *shard) TD_MUST_USE;

/* ---- updater.c: a rule's kernel over rows in place ---- */
td_status *td_updater_create(td_shard *shard, td_updater **out_updater) TD_MUST_USE;
void td_updater_destroy(td_updater *updater);
td_status *td_updater_run(td_updater *updater, const int64_t *slots, int64_t n, const float *gradients,
                          const float *coefficients) TD_MUST_USE;

#endif
