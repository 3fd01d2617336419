/* What the runtime asks of the ranks of a distributed job, as a table of functions; ps/ fills it in. The runtime knows no MPI.
 *
 * Calls come from lanes, one at a time per function. Every rank of a job makes the same calls in the same order of steps; who
 * waits for whom is the job's business. An error ends the job.
 *
 * A window of the job has so many replicas, each of so many micro-batches; a rank runs one or more of the replicas, one after
 * another in ascending order. */
#ifndef TANDEM_RUNTIME_REMOTE_H
#define TANDEM_RUNTIME_REMOTE_H

#include "base/exact.h"
#include "optim/rule.h"
#include "tandem/graph.h"
#include "tandem/plan.h"

/* A table as its owners need to know it. Everything is borrowed for the call. */
typedef struct td_remote_table {
    const char *name;
    int64_t rows, dim;
    td_dtype dtype;
    uint64_t seed;
    td_initializer initial;
    const char *rule; /* NULL: it is not trained */
    const char *state_names[TD_MAX_SLOTS];
    bool state_per_row[TD_MAX_SLOTS];
    double state_initial[TD_MAX_SLOTS];
    int32_t n_states;
    bool hashed;
    td_hash_options hash;
} td_remote_table;

/* One table's part of a pull or a push: `keys` ascend and are distinct. Of a hash table they are those of its ids (base/key.h). */
typedef struct td_remote_part {
    int32_t table;
    int64_t n;              /* pull: keys; push: rows of the gradient */
    const int64_t *keys;    /* of the window */
    void *rows;             /* pull: [n, dim] out */
    const int64_t *places;  /* push: of each row, its key's place among keys; ascend */
    const float *gradients; /* push: [n, dim] */
    const float *coefficients;
} td_remote_part;

/* Where a micro-batch is in its window. */
typedef struct td_remote_place {
    int32_t replica, micro;         /* which of the job's replicas; which of that replica's micro-batches, from 0 */
    int32_t most_micro;             /* micro-batches that a replica may have in any window */
    bool ends_replica, ends_window; /* the last of its replica; of this rank's part of the window */
    int64_t samples, weight;        /* of this micro-batch; 0: the replica has none in this window */
    int64_t window_weight;          /* of all of the window's */
} td_remote_place;

/* An owner's file of a checkpoint. */
typedef struct td_remote_file {
    char name[32];
    int64_t bytes;
    uint64_t xxh64;
} td_remote_file;

/* Beyond the arrays of rows, what `write` takes of hash tables (ps/shard.h). */
enum {
    TD_REMOTE_USED = -1,
    TD_REMOTE_COUNTS = -2,
    TD_REMOTE_WAITING = -3,
    TD_REMOTE_GONE = -4,
    TD_REMOTE_WINDOWS = -5 /* one number, for all owners */
};

/* Where tables' pulls wait for nobody, sums come so many windows late: workers are no further ahead of each other. */
enum { TD_REMOTE_ASYNC_LATE = 4 };

/* Some of the gradients that the replicas sum up; the first bucket has the loss alone. */
typedef struct td_remote_bucket {
    int32_t index, n;   /* n gradients */
    int64_t rows_bytes; /* that counts, keys and rows of the row-sparse ones may have, each a multiple of 8 */
    /* [workers + 1]: where the workers' stretches of the dense ones begin, if each is to have the sums of its own
     * alone; NULL: all have all */
    const int64_t *bounds;
} td_remote_bucket;

struct td_remote {
    void *self;
    int32_t replicas, own;   /* of a window; those that this rank runs */
    int32_t first;           /* the first of its own */
    int32_t workers, worker; /* which of them this rank is */
    int32_t windows;         /* whose sums are under way at a time; 0: one */
    bool leads;              /* this rank loads tables for all */
    bool may_be_stale;       /* pulls need not have all updates, and sums come windows late */
    bool asks_ahead;         /* the next window's rows are asked for while this one ends */
    bool is_local;           /* there is no job: the process is alone and owns its hash tables itself; sum is NULL */
    /* Makes a table known, or finds it by its name; it must be the same one then. */
    td_status *(*add_table)(void *self, const td_remote_table *table, int32_t *out_table);
    /* Rows as they are after all updates so far. `begin`: for training. */
    td_status *(*pull)(void *self, const td_remote_part *parts, int32_t n, bool begin);
    /* Asks for the rows of the next pull for training, as they will be after all updates so far, and does not wait; their `rows` are
     * NULL. It may be of other keys than the pull that comes. Where asks_ahead is set. */
    td_status *(*ask_ahead)(void *self, const td_remote_part *parts, int32_t n);
    /* A replica's gradients of a window; owners fold the replicas' in their order and update when all are there. Once per window
     * and replica, at its last micro-batch. */
    td_status *(*push)(void *self, const td_remote_part *parts, int32_t n, const td_remote_place *place);
    /* The same, but owners only sum, until they are told what for. *out_squares[i]: of the sum of part i, all its squares, there
     * after the window's last micro-batch. */
    td_status *(*offer)(void *self, const td_remote_part *parts, int32_t n, const td_remote_place *place,
                        td_exact *const *out_squares);
    /* Owners update by what a window has offered, times the factor: parts have tables and coefficients. */
    td_status *(*apply)(void *self, const td_remote_part *parts, int32_t n, float factor);
    /* Or they forget it. */
    td_status *(*forget)(void *self);
    /* A bucket of gradients leaves: called in every micro-batch, in the order of the buckets, and reads in a replica's last one. Bucket 0
     * is the loss, f32 [1], and is read in each. Waits for no gradient of other ranks, but with bucket 0 until they have read the
     * window before that used the same memory. */
    td_status *(*send)(void *self, const td_remote_bucket *bucket, const td_tensor *values,
                       const td_remote_place *place);
    /* After all buckets have left; bucket 0 first. sums[i] = the sum of values[i] over the replicas, in their order; those without samples
     * are left out. Of the loss it is the mean over all micro-batches, by weight. The sums are there after a window's last
     * micro-batch. */
    td_status *(*sum)(void *self, const td_remote_bucket *bucket, const td_tensor *values, td_tensor *sums,
                      const td_remote_place *place);
    /* Of each worker's flags or sums of squares, those of all of them: flags are raised where any is. n tensors of 64-bit words. */
    td_status *(*combine)(void *self, const td_tensor *values, td_tensor *combined, int32_t n);
    /* After a bucket's updates: each dense parameter's elements in this worker's stretch go to the others, whose come in place. */
    td_status *(*gather)(void *self, const td_remote_bucket *bucket, const td_tensor *parameters);
    /* For a checkpoint: elements [first, first + n) of a shared state, by its number, from the worker that has them. That one waits
     * until it is asked, and lends what it is asked for; it knows how often that will be. */
    td_status *(*borrow)(void *self, int32_t worker, int32_t state, int64_t first, int64_t n, float *out);
    td_status *(*asked)(void *self, int32_t *out_state, int64_t *out_first, int64_t *out_n);
    td_status *(*lend)(void *self, int64_t n, const float *data);
    /* Rows go by id. Up to `most` that have begun, from *cursor on (0: the first); array 0 is the rows, then states. *cursor -1: no more. */
    td_status *(*read)(void *self, int32_t table, int32_t array, int64_t *cursor, int64_t most, int64_t *out_ids,
                       void *out_rows, int64_t *out_n);
    td_status *(*write)(void *self, int32_t table, int32_t array, const int64_t *ids, int64_t n, const void *rows);
    /* Every owner writes all it has, or with `changes` what changed since it was told to `track`, as <directory>/owner-<i>.safetensors
     * (docs/checkpoints.md); which files those are. */
    int32_t owners;
    td_status *(*save)(void *self, const char *directory, int64_t steps, bool changes, bool track,
                       td_remote_file *out_files);
    td_status *(*tracks)(void *self, bool *out_all);
    /* Rows may have changed otherwise than by this process's pushes; NULL: nothing is kept. */
    void (*forget_rows)(void *self);
    td_status *(*clear)(void *self, int32_t table);
    td_status *(*count)(void *self, int32_t table, int64_t *out_rows);
    td_status *(*checksum)(void *self, int32_t table, uint64_t *out_sum);
};

#endif
