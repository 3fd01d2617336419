/* Batches and where they come from: data sets, the loader, metrics.
 *
 * A source hands out batches of named host tensors; the session asks for the next one while steps run, which is what
 * makes look-ahead possible. A batch stays valid until it is released, so no copy is made of it.
 *
 *     td_dataset_options options = td_dataset_defaults("criteo");
 *     options.train = "train.tsv";
 *     options.table_rows = (int64_t[]){100000};              // each of the 26 columns hashed into so many rows
 *     options.n_table_rows = 1;
 *     td_dataset *dataset = NULL;
 *     TD_TRY(td_dataset_open(&options, &dataset));
 *     const td_schema *schema = td_dataset_schema(dataset);  // what a model builder needs: names, widths, table sizes
 *
 *     td_loader_options loading = td_loader_defaults();
 *     loading.batch = 2048;
 *     td_loader *loader = NULL;
 *     TD_TRY(td_loader_create(dataset, &loading, &loader));
 *     TD_TRY(td_session_run(session, td_loader_source(loader), steps, on_step));
 *     td_loader_destroy(loader);
 *     td_dataset_destroy(dataset);                           // after all its loaders
 *
 * A data set is immutable once open and may be read by any number of threads and loaders at once. */
#ifndef TANDEM_DATA_H
#define TANDEM_DATA_H

#include "tandem/backend.h"
#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- batches ------------------------------------------------------------------------------------------------------ */

/* One input of the graph: its name there, and a host tensor at actual extents (dense or ragged). */
typedef struct td_field {
    const char *name;
    td_tensor tensor;
} td_field;

typedef struct td_batch {
    int64_t samples; /* rows of this batch; the last one of an epoch may be short */
    int64_t epoch;   /* from 0 */
    int64_t index;   /* of the batch within the epoch, from 0 */
    int32_t n_fields;
    const td_field *fields;
    void *owner; /* the source's own */
    /* In a distributed job, of the window that this batch is a part of: samples and batches of all replicas, and the samples of
     * the batches before this one. Zeros: the batch stands alone. A replica for which a window has no batch gets one of 0
     * samples. */
    int64_t window_samples, window_batches, window_before;
    /* And which part it is: of which of the job's replicas, which of that replica's, from 0; whether it is that replica's last. */
    int32_t replica, micro;
    bool ends_replica;
    /* In a job, and with hash tables in one process, whose rows come once for a whole window: all batches of the window that are this
     * process's, which one of those this is, and how many they are. `window` is read until the first of them has begun. 0: the
     * batch is a window. */
    const struct td_batch *window;
    int32_t window_at, n_window;
    bool unused; /* of a released batch: a run only looked at it, to see where a window ends */
} td_batch;

/* `next` and `release` are called from one thread at a time, but perhaps not always the same one; several batches may
 * be out at once (at most three). A batch that is released unused is the last one that came out; a source that another run
 * will go on with gives it again at the next `next`, as loaders do. */
typedef struct td_source {
    void *self;
    /* The next batch; *out_end = true, and no batch, when there is none left. */
    td_status *(*next)(void *self, td_batch *out_batch, bool *out_end);
    void (*release)(void *self, td_batch *batch);
} td_source;

/* ---- data sets ---------------------------------------------------------------------------------------------------- */

typedef struct td_dataset td_dataset;

typedef enum td_part { TD_PART_TRAIN = 0, TD_PART_TEST } td_part;

/* What becomes of a number x; a missing one is always 0. Means and population standard deviations are of the training
 * part, of the values that are present, after log1p where both apply; a column that is constant there becomes 0. */
typedef enum td_transform {
    TD_TRANSFORM_DEFAULT = 0, /* the format's own: criteo log1p, csv standardise */
    TD_TRANSFORM_NONE,
    TD_TRANSFORM_LOG1P,            /* log(1 + max(x, 0)), as the DLRM reference does for Criteo */
    TD_TRANSFORM_STANDARDISE,      /* (x - mean) / deviation */
    TD_TRANSFORM_LOG1P_STANDARDISE /* both, in this order */
} td_transform;

/* A cross of two categorical columns: the id is FNV-1a (32 bit) of "<value of a>_x_<value of b>" modulo `buckets`. */
typedef struct td_cross {
    const char *a, *b;
    int64_t buckets;
} td_cross;

/* The synthetic click log: data/click_model.h tells the model that is planted. Row i is a function of (seed, i). */
typedef struct td_synthetic_options {
    int64_t train_rows, test_rows;
    int32_t n_dense; /* columns of "dense" */
    int64_t bag;     /* 1: one id per table and row; more: 0 to `bag` ids, a ragged field */
    double skew;     /* Zipf exponent of the ids, >= 0; 0: uniform */
    uint64_t seed;
} td_synthetic_options;

/* Told now and then while a text file is read: bytes of it that were read, of how many (compressed ones where it is gzip), and
 * rows so far. From the thread that opens the data set. */
typedef void (*td_on_reading)(void *context, const char *path, int64_t bytes, int64_t of_bytes, int64_t rows);

/* One step of what becomes of an image (idx): bilinear to height x width; times factor plus shift, f32; channels first; f32 or u8
 * by cutting off. */
typedef enum td_image_step_kind {
    TD_IMAGE_RESIZE = 0,
    TD_IMAGE_RESCALE,
    TD_IMAGE_HWC_TO_CHW,
    TD_IMAGE_TYPE_CAST
} td_image_step_kind;
typedef struct td_image_step {
    td_image_step_kind kind;
    int64_t height, width; /* resize */
    double factor, shift;  /* rescale */
    td_dtype dtype;        /* type_cast */
} td_image_step;

/* What to open. Start from td_dataset_defaults; all pointers are borrowed for the call only. Settings that a format
 * does not have are ignored by it; they are listed per format below. */
typedef struct td_dataset_options {
    const char *format; /* one of td_dataset_format_name */
    /* Paths, plain or gzip. test NULL: the training part is the first floor(train_share * rows) rows of `train` and the
     * test part the rest (ratings: in order of time). */
    const char *train, *test;
    double train_share; /* above 0, up to 1 */
    int64_t most_rows;  /* rows read of each file; 0: all */
    /* The share of malformed rows, counted and left out, above which opening fails: [0, 1]. Judged over at least 1,000
     * rows while reading, and over all at the end. */
    double bad_rows;
    bool skip_bad_ids;   /* rows with an id outside its stated table are counted and left out; false: an error */
    bool count_distinct; /* td_column_counts.distinct for hashed columns too (takes memory for each distinct value) */
    /* A folder for the binary cache of parsed rows, created if absent; NULL: none. */
    const char *cache;

    /* csv: names of the columns. criteo: ignored (I1..I13, C1..C26). */
    const char *const *numeric;
    int32_t n_numeric;
    const char *const *categorical;
    int32_t n_categorical;
    const td_cross *crosses;
    int32_t n_crosses;
    const char *label;    /* csv: column */
    const char *positive; /* csv: the value of `label` that counts as 1; any other is 0 */
    char delimiter;       /* csv */

    /* criteo, csv: one for all numeric columns, or one each; none: TD_TRANSFORM_DEFAULT. */
    const td_transform *transforms;
    int32_t n_transforms;
    /* criteo, csv: one for all categorical columns, or one each; none: 0. 0: by vocabulary, of the training part's
     * values in byte order with at least min_count rows, ids from 1; 0 = unknown ("" is a value like any other).
     * Otherwise the rows of the column's table, at least 2: id 0 = missing, else 1 + xxh64(value) modulo (rows - 1).
     * ratings: users, movies; none or 0: the largest id of the file.
     * synthetic: one per table, at least one, each up to 2^32. */
    const int64_t *table_rows;
    int32_t n_table_rows;
    int64_t min_count;

    double least_positive; /* ratings: label 1 from this rating on */
    td_synthetic_options synthetic;

    td_on_reading on_reading; /* NULL: nobody is told */
    void *on_reading_context;

    /* idx: none: over 255, channels first. */
    const td_image_step *image_steps;
    int32_t n_image_steps;

    int64_t context;      /* text: characters read of a window; it has one more */
    int64_t test_windows; /* text: spread evenly over the test part; 0: all that lie side by side */
} td_dataset_options;

/* Format by format:
 *   criteo     TSV without header: label 0/1, 13 integers, 26 categories of hex digits; any of those 39 may be empty.
 *              Fields "dense" f32 [B, 13], "ids_t0".."ids_t25" i64 [B], "label" f32 [B, 1].
 *   csv        RFC 4180 with a header line. Fields "numeric" f32 [B, n_numeric]; "ids" i64 [B, n_categorical];
 *              "ids_t<i>" i64 [B], the same column by column; "wide_ids" i64 [B, n_categorical + n_crosses], each column
 *              shifted into its own range of one table; "label" f32 [B, 1]. A field without columns is left out.
 *   ratings    TSV without header: user, movie (from 1), rating, time; put in order of time, then user, then movie.
 *              Fields "ids_t0" (user - 1) and "ids_t1" (movie - 1) i64 [B], "label" f32 [B, 1], "seen_user" u8 [B]: 1
 *              where the user has rows in the training part.
 *   synthetic  fields "dense" f32 [B, n_dense], "ids_t<i>" i64 ([B], or ragged if bag > 1), "label" f32 [B, 1].
 *   idx        images and classes as MNIST comes: `train` and `test` are files of images (bytes [N, height, width], or [N,
 *              height, width, channels]), named ..images-idx3.. (4); labels are beside them, ..labels-idx1... Fields "image"
 *              [B, channels, height, width] as image_steps leave it, "label" i64 [B]. Without `test` there is no test part.
 *   text       a file of characters (bytes). Rows are windows: of the training part at every character, of the rest as
 *              test_windows says. Field "ids" i64 [B, context + 1]: places among the bytes that occur, in order. */
td_dataset_options td_dataset_defaults(const char *format);
int32_t td_dataset_format_count(void);
const char *td_dataset_format_name(int32_t index);
const char *td_dataset_format_summary(int32_t index);

/* Reads everything that there is to read (or finds it in the cache). Errors: TD_INVALID_ARGUMENT for options, TD_IO and
 * TD_NOT_FOUND for files, TD_DATA_ERROR for what is in them: "train.tsv:10482:7: "12a" is not an integer in column I6;
 * 1 bad row of 10482 so far, data.bad_rows allows 0". */
td_status *td_dataset_open(const td_dataset_options *options, td_dataset **out_dataset) TD_MUST_USE;
void td_dataset_destroy(td_dataset *dataset);

typedef enum td_field_role { TD_FIELD_NUMBERS = 0, TD_FIELD_IDS, TD_FIELD_LABEL, TD_FIELD_MASK } td_field_role;

/* One field of the batches: the input of a graph that has this name, dtype, kind and shape. */
typedef struct td_schema_field {
    const char *name;
    td_field_role role;
    td_kind kind;       /* dense or ragged */
    td_dtype dtype;     /* numbers, label: f32 (idx: u8 too, i64); ids: i64; mask: u8 */
    int32_t rank;       /* dense: 1 for [B], 2 for [B, width], 4 for [B, dims] */
    int64_t width;      /* elements per row; ragged: the longest bag, so a batch of B rows has at most B * width ids */
    int64_t dims[3];    /* rank 4: channels, height, width */
    int64_t table_rows; /* ids, classes: every id is in [0, table_rows), after column shifts; else 0 */
    const unsigned char *symbols; /* text: the byte that each id stands for; else NULL */
    /* Per element of `width`: the name of its column, and for ids how many different ids that column has. Ragged and
     * rank 1: one. */
    const char *const *columns;
    const int64_t *column_rows;
} td_schema_field;

typedef struct td_schema {
    const char *format;
    int32_t n_fields;
    const td_schema_field *fields;
    int64_t train_rows, test_rows;
    const char *label; /* the name of the label's field */
    int32_t n_tables;  /* fields "ids_t0" .. "ids_t<n_tables - 1>" */
} td_schema;

/* Lives as long as the data set. */
const td_schema *td_dataset_schema(const td_dataset *dataset);
/* NULL when there is none of this name. */
const td_schema_field *td_schema_find(const td_schema *schema, const char *name);

/* Counts over all good rows of a column, before any transform. Numeric: present, missing, sum, least, most, and mean
 * and deviation where it is standardised. Categorical: present, missing, distinct (values that occur, "" left out; -1:
 * not counted), table_rows. */
typedef struct td_column_counts {
    char name[64]; /* cut off where longer */
    bool numeric;
    int64_t present, missing, distinct, table_rows;
    double sum, least, most;
    double mean, deviation;
} td_column_counts;

/* *out_n columns; none for synthetic. Lives as long as the data set. */
const td_column_counts *td_dataset_describe(const td_dataset *dataset, int32_t *out_n);

typedef struct td_dataset_counts {
    int64_t rows, positive_rows; /* of both parts; synthetic: positive_rows is -1, not known without generating them */
    int64_t bad_rows;            /* malformed, left out */
    int64_t bad_id_rows;         /* with an id outside its table, left out */
    bool from_cache;
} td_dataset_counts;
td_dataset_counts td_dataset_count(const td_dataset *dataset);

/* Things worth telling: the first malformed rows, a cache that was rebuilt and why. NULL past the last one. */
const char *td_dataset_note(const td_dataset *dataset, int32_t index);

/* The AUC that the generator's own model reaches on a part: what no model can beat but by luck. TD_UNSUPPORTED for data
 * that was not generated here. Generates the part (about a microsecond per row). */
td_status *td_dataset_true_auc(const td_dataset *dataset, td_part part, double *out_auc) TD_MUST_USE;

/* ---- the loader --------------------------------------------------------------------------------------------------- */

typedef struct td_loader td_loader;

typedef struct td_loader_options {
    td_part part;
    int64_t batch;  /* rows */
    int64_t epochs; /* 0: without end */
    /* A fresh permutation of the part for each epoch, a function of (seed, epoch) alone; false: in order. */
    bool shuffle;
    int64_t shuffle_buffer; /* above 0: rows are permuted within consecutive runs of so many only */
    uint64_t seed;
    bool drop_remainder;              /* leave out an epoch's short last batch */
    int32_t depth;                    /* batches made ahead, those handed out included; at least 4 */
    int32_t workers;                  /* threads; the batches do not depend on how many */
    int64_t start_epoch, start_batch; /* where to begin: what td_batch said of the last batch used, plus one */
    /* The fields wanted, by name; n_fields 0: all of the schema. Borrowed for the call of td_loader_create. */
    const char *const *fields;
    int32_t n_fields;
    /* Whether a batch of an epoch is made; one that is not comes in its turn with its samples, and fields without data. Asked of all batches in
     * order, from the workers, one at a time, and must not call the loader. NULL: all are. */
    bool (*wants)(void *context, int64_t epoch, int64_t index);
    void *wants_context;
} td_loader_options;

/* part train, batch 256, one epoch, shuffled with seed 0, short last batch kept, depth 8, one worker. */
td_loader_options td_loader_defaults(void);
/* Starts the workers; they stop when `depth` batches are ready. All batches live in memory allocated here. `dataset`
 * must outlive the loader. Errors: TD_INVALID_ARGUMENT for options, or a part without a whole batch to give. */
td_status *td_loader_create(const td_dataset *dataset, const td_loader_options *options,
                            td_loader **out_loader) TD_MUST_USE;
/* Batches in an epoch. */
int64_t td_loader_batches(const td_loader *loader);
/* The loader as a source. An error of a worker comes out of `next` in its batch's turn and then again; after the end,
 * `next` says the end again. Batches may be released in any order. */
td_source td_loader_source(td_loader *loader);
/* Stops the workers wherever they are and frees all batches, those still out too. NULL is fine. */
void td_loader_destroy(td_loader *loader);

/* ---- metrics ------------------------------------------------------------------------------------------------------ */

/* A number over all samples of an evaluation, added batch by batch, in double precision or exactly:
 *   auc       area under the ROC curve (Mann-Whitney U over positives * negatives); tied scores count one half. Exact.
 *             Keeps eight bytes per sample.
 *   logloss   mean of log(1 + exp(logit)) - label * logit, in nats
 *   accuracy  share of samples with (logit > 0) == (label > 0.5) */
typedef struct td_metric td_metric;

int32_t td_metric_count(void);
const char *td_metric_name(int32_t index);
const char *td_metric_summary(int32_t index);
td_status *td_metric_create(const char *name, td_metric **out_metric) TD_MUST_USE;
/* n logits and their labels (0 or 1 for auc and accuracy). mask NULL: all; else only samples with a non-zero byte. A
 * logit that is not a number is an error. */
td_status *td_metric_add(td_metric *metric, const float *logits, const float *labels, const uint8_t *mask,
                         int64_t n) TD_MUST_USE;
/* The number over what was added so far; more may be added after. TD_DATA_ERROR where it is not defined: no sample, or
 * for auc no positive or no negative one. */
td_status *td_metric_finish(td_metric *metric, double *out_value) TD_MUST_USE;
/* Forgets what was added. */
void td_metric_reset(td_metric *metric);
void td_metric_destroy(td_metric *metric);

#ifdef __cplusplus
}
#endif
#endif
