/* A bucket: some of the gradients that a job's workers sum up, of one window. Its dense ones lie one after another in one vector, of
 * which each worker owns a stretch, a W-th; its row-sparse ones, and with the first bucket each micro-batch's loss, are a message of rows.
 *
 *     send     a replica's gradients, once it has them: to each worker the stretch that it owns, and the rows
 *     fold     once all replicas' stretches are here: they are added in the replicas' order, and the sum goes to every worker
 *     finish   once all workers' sums are here: they are unpacked, and rows are added up, here
 *
 * Where workers share optimizer state, a stretch's sum stays where it is, and what is made of it goes to every worker instead:
 *
 *     gather   once this worker has updated its stretch of the parameters: it goes to all, and theirs come
 *
 * Near ranks read all of it where it lies. Buckets do not depend on each other: those of a window are sent while backward makes the
 * next ones. */
#ifndef TANDEM_PS_BUCKET_H
#define TANDEM_PS_BUCKET_H

#include "ps/fold.h"
#include "ps/job_state.h"
#include "ps/rank_rows.h"

/* What a replica brought; without samples it is left out. */
typedef struct td_contribution {
    const char *rows;  /* n losses; then of each row-sparse gradient n, keys, rows */
    const float *mine; /* its part of this worker's stretch */
    int64_t samples;   /* micro-batches */
} td_contribution;

typedef struct td_bucket {
    int32_t index;
    int64_t window;
    bool expects, folded;                    /* in this window */
    int32_t done;                            /* of this worker's replicas */
    int64_t length;                          /* elements of all dense gradients; 0 in the first one */
    int64_t longest;                         /* stretch */
    int64_t *bounds;                         /* [workers + 1]: where they begin */
    bool shares;                             /* a sum stays with its owner */
    bool ordered;                            /* workers add up: there is something, and MPI does not */
    int64_t rows_room;                       /* bytes that a message of rows may have; 0: there is none */
    int64_t rows_bytes;                      /* of the last one */
    td_buffer shared;                        /* what others read */
    char *rows_out;                          /* [own, rows_room] */
    float *mine, *sum;                       /* [own, length]; [longest], or [length] where MPI adds up */
    void *room;                              /* everything below; NULL: nothing was sent yet */
    int64_t room_bytes;                      /* of it */
    td_contribution *of;                     /* [replicas] */
    td_parcel *rows_parcels, *dense_parcels; /* [replicas] in */
    td_parcel *sums_in, *sums_out;           /* [workers] */
    td_parcel *out;                          /* [own, workers, rows and dense] */
    td_parcel *by_mpi;                       /* where MPI adds up: the whole sum */
    int64_t n_out;
    bool spreads;         /* sums_out are under way */
    char *rows_in;        /* [replicas of others, rows_room], of far ranks */
    float *theirs, *sums; /* [replicas of others, longest], [length], likewise, where they come */
    const char **at;      /* [replicas]: where each one's message of rows is being read */
    td_fold fold;         /* of rows */
} td_bucket;

static inline bool td_is_sparse(const td_tensor *gradient)
{
    return gradient->kind == TD_ROW_SPARSE;
}

/* What a replica that has come to its end tells with its gradients. */
typedef struct td_bucket_news {
    const td_micro_loss *losses;
    int64_t n_losses; /* 0: it has no micro-batch in this window */
    bool stops;
    td_row_order *order; /* memory that is used again */
} td_bucket_news;

/* What the memory of a bucket follows from. */
typedef struct td_bucket_size {
    int64_t length, longest, rows_room;
    int32_t workers, replicas, own;
    bool ordered, shares;
} td_bucket_size;

/* ---- bucket_room.c ---- */
/* What others read; and all the rest but sums of rows. */
int64_t td_bucket_shared_bytes(const td_bucket_size *size);
int64_t td_bucket_private_bytes(const td_bucket_size *size);
/* With the first window; the others have its layout, that of one plan. */
td_status *td_bucket_make_room(const td_job *job, td_bucket *bucket, const td_tensor *gradients,
                               const td_remote_bucket *of, int32_t most_micro) TD_MUST_USE;

/* ---- bucket.c ---- */
/* A window begins: what comes from others goes to its place at once. Nothing where this bucket was never sent yet. */
td_status *td_bucket_begin(td_job *job, td_bucket *bucket, int64_t window) TD_MUST_USE;
/* The first bucket has no gradients. */
td_status *td_bucket_send(td_job *job, td_bucket *bucket, const td_remote_place *place, const td_bucket_news *news,
                          const td_tensor *gradients, const td_remote_bucket *of) TD_MUST_USE;
/* Whether td_bucket_fold need not wait. */
bool td_bucket_is_here(td_job *job, td_bucket *bucket);
td_status *td_bucket_fold(td_job *job, td_bucket *bucket) TD_MUST_USE;
/* All replicas' messages of rows, in bucket->of, until td_bucket_release_rows; *stops: one of them told that it stops. */
td_status *td_bucket_gather_rows(td_job *job, td_bucket *bucket, const td_tensor *gradients, int32_t n,
                                 bool *stops) TD_MUST_USE;
void td_bucket_release_rows(td_job *job, const td_bucket *bucket);
td_status *td_bucket_finish(td_job *job, td_bucket *bucket, const td_tensor *gradients, const td_tensor *sums,
                            int32_t n) TD_MUST_USE;
/* After td_bucket_finish, of parameters as the gradients were. */
td_status *td_bucket_gather(td_job *job, td_bucket *bucket, const td_tensor *parameters, int32_t n) TD_MUST_USE;
/* comm: NULL once that is closed. */
void td_bucket_free(td_bucket *bucket, td_comm *comm);

#endif
