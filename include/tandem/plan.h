/* From a graph to a plan: which device runs what, in which order, in which bytes. Everything that can be refused is
 * refused here, before anything is allocated for a run.
 *
 *     td_train_options options = td_train_defaults();
 *     td_add_device(&options, "cpu", NULL);
 *     td_add_device(&options, "accel", "emulated:memory=256MiB,cores=1");
 *     td_place(&options, "table.*", "cpu");
 *     td_group(&options, "table.*", td_lazy_adam(1e-3));
 *     td_group(&options, "*", td_adamw(1e-3, .weight_decay = 0.01));
 *     td_plan *plan = NULL;
 *     TD_TRY(td_plan_train(graph, loss, &options, &plan));
 *     ...
 *     td_plan_release(plan);
 *     td_train_options_deinit(&options);
 *
 * A plan is immutable, keeps its own copy of the graph, and may be used by several threads. Options belong to the caller;
 * they remember their first error, which the next td_plan_* call reports. Plans made from one options value share its opened
 * devices, which stay open until the last of them is released. */
#ifndef TANDEM_PLAN_H
#define TANDEM_PLAN_H

#include "tandem/graph.h"
#include "tandem/optimizer.h"
#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_plan td_plan;
typedef struct td_store td_store;
typedef struct td_machine td_machine;
typedef struct td_remote td_remote;

/* What layers compute in: see td_train_options. */
typedef enum td_precision { TD_FP32 = 0, TD_MIXED_BF16, TD_MIXED_FP16 } td_precision;

/* The dynamic loss scale of TD_MIXED_FP16: backward computes gradients times the scale, so that small ones do not vanish in f16,
 * and the update divides by it. A step whose gradients then overflow is left out; docs/precision.md has the rules. */
typedef struct td_loss_scale_options {
    double initial;          /* a power of two, like minimum; 2^16 */
    int64_t growth_interval; /* updates in a row after which the scale doubles; 2,000 */
    int64_t hysteresis;      /* overflows before the first halving, the one that halves included; 2 */
    double minimum;          /* a run whose gradients overflow at this scale ends with an error; 1 */
} td_loss_scale_options;

/* Where the updates of dense parameters are made, with optimizer state and the parameters themselves. */
typedef enum td_offload {
    TD_OFFLOAD_NONE = 0, /* where the parameters are read */
    TD_OFFLOAD_CPU,      /* on the host; devices keep replicas of what they read, refreshed after each update */
    TD_OFFLOAD_AUTO      /* on the host as far as they do not fit elsewhere */
} td_offload;

typedef enum td_switch { TD_AUTO = 0, TD_ON, TD_OFF } td_switch;

/* What becomes of a step whose loss is not a finite number: it never touches parameters or state. The same goes for a step whose
 * loss is finite and a gradient is not, where gradients are looked at: with TD_NAN_SKIP, with clip_norm, and in TD_MIXED_FP16,
 * whose loss scale then decides instead of this. Otherwise such a step makes its update, and the run ends at the next. */
typedef enum td_on_nan {
    TD_NAN_STOP = 0, /* the run ends with an error that names the first op which made such a number, and the step */
    TD_NAN_SKIP      /* its update is left out, counted and logged as a warning; the step counts, the update does not */
} td_on_nan;

/* What an update's gradient is, of the samples of all micro-batches of a window.
 *   TD_REDUCE_MEAN  their mean, however short the window or one of its micro-batches is
 *   TD_REDUCE_SUM   the sum of the micro-batches' mean gradients, each weighed by its samples over the configured batch */
typedef enum td_reduction { TD_REDUCE_MEAN = 0, TD_REDUCE_SUM } td_reduction;

/* From step `from` on, a replica takes `accumulate` micro-batches a window. */
typedef struct td_accumulate_change {
    int64_t from;
    int32_t accumulate;
} td_accumulate_change;

typedef struct td_accumulate_changes {
    td_accumulate_change *items; /* by ascending step */
    int64_t n, capacity;
} td_accumulate_changes;

/* How much the graph is optimised. Every level gives the same bits; see docs/plan.md for the rules of each.
 *   TD_O0  only what nothing needs is left out: every op that the model needs runs as it was written
 *   TD_O1  constants are folded, equal ops merged, ops that change nothing dropped; ops work in place
 *   TD_O2  fusion too: chains of elementwise ops, an embedding's gradient with its update (the default) */
typedef enum td_jit_level { TD_O0 = 0, TD_O1, TD_O2 } td_jit_level;

typedef struct td_option_entry {
    char *match; /* a pattern, or a device's name */
    char *value; /* a target, or a device's "backend:options" */
    char *cause; /* where it was said: "rule \"table.*\" (dlrm.yaml:14)" */
    td_optimizer optimizer;
} td_option_entry;

typedef struct td_option_list {
    td_option_entry *items;
    int64_t n, capacity;
} td_option_list;

/* Where the rows of large tables are: parameters on the host that are read by lookups alone, with their optimizer state. The
 * results do not depend on it, not by a bit. */
typedef enum td_table_storage {
    TD_TABLE_MEMORY = 0, /* all of them in memory, from the start */
    TD_TABLE_SPARSE,     /* a row takes memory once it is touched */
    TD_TABLE_FILE        /* the same, and rows that were not touched lately are in a file on a disk */
} td_table_storage;

/* `path`: the folder of the file (TD_TABLE_FILE). The file has no name and goes with the process; it is no checkpoint. */
typedef struct td_table_options {
    td_table_storage storage;
    const char *match;      /* parameters by name; NULL: all tables */
    const char *path;       /* NULL: the current folder */
    int64_t resident_bytes; /* of all such tables, at most so many are in memory; 0: half of the host's memory */
    int64_t least_bytes;    /* tables that take less, state included, stay in memory */
} td_table_options;

/* Which rows of a hash table go where it has more than its capacity. */
typedef enum td_evict {
    TD_EVICT_LEAST_RECENT = 0, /* those that no window named for longest (LRU) */
    TD_EVICT_LEAST_OFTEN /* those that the fewest windows named since they began, and of these the least recent (LFU) */
} td_evict;

/* A table whose ids are any 64-bit numbers, negative ones too: it has a row for each id that training has named, and no others. The
 * rows of its shape say nothing, save what a plan shows. Without further settings it is, bit for bit, an array of these rows. A
 * member that is 0 is not set here; where a file sets admit_probability, 0 is refused, since it would read as no row at all.
 * All rules count windows (steps) that name an id, and depend on nothing else: results are the same for any number of owners. */
typedef struct td_hash_options {
    const char *match; /* parameters by name, * for any characters */
    /* a row begins with the so manyth window that names its id, and has its initial values before; 0: 1 */
    int64_t admit_count;
    double admit_probability; /* and then by chance, drawn anew by each window from seed, id and window; 0: 1 */
    int64_t capacity;         /* rows at most, and ids that wait for admission at most; 0: any number */
    int64_t live;             /* windows without its id after which a row goes, 8388607 at most; 0: it stays */
    td_evict evict;           /* with capacity */
    int32_t reserved;
} td_hash_options;

/* Whether ids may be named without getting a row. */
static inline bool td_hash_admits_some(const td_hash_options *hash)
{
    return hash->admit_count > 1 || (hash->admit_probability > 0 && hash->admit_probability < 1);
}

typedef struct td_hash_list {
    td_hash_options *items; /* their patterns are owned */
    int64_t n, capacity;
} td_hash_list;

/* Made by td_train_defaults, changed by the calls below or by assigning the plain fields. */
typedef struct td_train_options {
    uint64_t seed;
    bool offload_embedding;       /* lookups and their tables on the host: offload.embedding = cpu */
    td_offload offload_optimizer; /* same results, less memory on the device: offload.optimizer */
    /* With TD_OFFLOAD_CPU: the share of the parameters' numbers that goes, at most a block of 1,024 more; 1: all of them. */
    double offload_ratio;
    /* Dense parameters are updated a step late, while the next step's forward and backward run on those without it: the host's
     * work hides behind the devices', and the results are others than those of exact updates. The same bits for any share that is
     * offloaded. Refused (TD_INVALID_ARGUMENT) with TD_OFFLOAD_NONE, and in a job: there is nothing to hide it behind. */
    bool offload_delayed;
    /* With clip_norm, offloaded updates are made before the norm of all gradients is known, and undone from a log where it turns out
     * to be too large: the same bits, 4 bytes more on the host for each number of an offloaded parameter and its state. True: they wait. */
    bool no_speculation;
    /* With bf16 and fp16: parameters that are read in 16 bit alone are kept in 16 bit, without an f32 master: updates widen and round them
     * (stochastic_rounding says how). Other results than with masters. docs/offload.md. */
    bool no_master;
    double clip_norm;         /* all gradients together are scaled down to this norm; 0: they are not */
    bool no_pipeline;         /* each step ends before the next begins */
    bool stochastic_rounding; /* updates of bf16 and f16 parameters round up with the probability of what is cut off */
    td_jit_level jit_level;
    td_switch early_lookup; /* row-level early lookup (see tandem/session.h); auto: where the plan shows a gain */
    td_on_nan on_nan;
    int64_t most_skipped;    /* so many steps skipped in a row end the run with an error; 0: no limit; 100 */
    bool keep_dumps;         /* for td_plan_dump: the text of each pass costs more than the pass */
    td_table_options tables; /* by td_tables: the text is owned */
    /* TD_MIXED_BF16, TD_MIXED_FP16: products, attention, convolutions and what follows them are 16 bit, but the ops that
     * td_keep_fp32 names; parameters, state, sums and losses are f32. docs/precision.md. */
    td_precision precision;
    td_loss_scale_options loss_scale; /* of TD_MIXED_FP16 */
    /* A step is one update, of a window of `replicas` x `accumulate` micro-batches, each one batch of the data: gradients are
     * added up in f32, left to right within a replica, replicas in order; then they are clipped and applied once. The bits
     * depend on the two numbers alone. Lookups run no rows early (early_lookup) where a window has several micro-batches. */
    int32_t accumulate, replicas; /* 1 and 1: a step is a batch */
    td_reduction reduction;
    td_accumulate_changes accumulate_changes; /* by td_accumulate_from */
    /* This process is a worker of a distributed job (tandem/job.h): gradients are summed over its workers, and with
     * serve_embedding the tables of all lookups live on its servers. NULL: it trains alone. Must outlive what is planned. */
    const td_remote *remote;
    bool serve_embedding; /* offload.embedding = ps */
    /* ps.shard_optimizer: in a job each worker keeps the optimizer state of its share of the dense parameters alone, updates it, and gets
     * the others' shares of the parameters from them; the bits are the same. Without a job nothing is shared. The host updates what is
     * shared: a rule that puts such an update elsewhere is refused (TD_UNSUPPORTED), and workers that may be ahead of each other are. */
    bool shard_optimizer;
    td_hash_list hashes; /* by td_hash */
    td_option_list devices, placements, groups, keep_fp32, recompute, report_gradients;
    char *default_device;
    td_machine *machine;
    td_status *error;
} td_train_options;

td_train_options td_train_defaults(void);
void td_train_options_deinit(td_train_options *options);
/* Adds a device. `what`: "backend" or "backend:key=value,..."; NULL: the backend called like the device. The host ("cpu") is
 * always there; naming it gives it options ("cpu:cores=2,lanes=1,gemm=tiles"). A backend may be a path to a .so. */
void td_add_device(td_train_options *options, const char *name, const char *what);
/* Where ops without a target, rule or other cause go (NULL: the first accelerator, or the host when there is none). Like
 * td_add_device it must come before the first plan. */
void td_default_device(td_train_options *options, const char *name);
/* A placement rule: ops and parameters whose names match the pattern run and live on `target`. The first match counts.
 * `cause` (NULL: made from the pattern) is what explanations say. */
void td_place(td_train_options *options, const char *match, const char *target);
void td_place_because(td_train_options *options, const char *match, const char *target, const char *cause);
/* An optimizer group: parameters whose names match and that no earlier group matched. */
void td_group(td_train_options *options, const char *match, td_optimizer optimizer);

/* How tables are kept; copies the text. */
void td_tables(td_train_options *options, td_table_options tables);
/* Tables whose names match, and that no earlier call matched, are hash tables (td_hash_options); copies the text. `remote` must be set:
 * a job's, or td_own_tables of tandem/job.h in a process that trains alone. */
void td_hash(td_train_options *options, td_hash_options hash);
/* Ops whose name matches stay f32 whatever the precision. */
void td_keep_fp32(td_train_options *options, const char *match);
/* Ops whose name matches are computed again in backward instead of keeping their results until then: the same bits, fewer bytes.
 * They are taken segment by segment, a segment being what agrees in the name up to where the pattern's first * ends: "h.*" makes
 * "h.0", "h.1" and so on. What one segment reads of another is kept. A pattern that matches nothing is refused (TD_INVALID_ARGUMENT). */
void td_recompute(td_train_options *options, const char *match);
/* Gradients of parameters whose names match become outputs of a plan that trains, after the td_output values: dense f32 ones, as
 * backward makes them (before clipping, times the loss scale, of the window's last micro-batch). */
void td_report_gradients(td_train_options *options, const char *match);

/* From step `step` on (at least 2, later than the change before), windows have other numbers of micro-batches. */
void td_accumulate_from(td_train_options *options, int64_t step, int32_t accumulate);

/* A plan for training: forward, backward of `loss` (one f32 number), updates. Every trainable parameter needs a group. */
td_status *td_plan_train(td_graph *graph, td_value loss, td_train_options *options, td_plan **out_plan) TD_MUST_USE;
/* A plan that computes `outputs` (and all td_output values) only; dropout is off. `store` (may be NULL): parameters stay where
 * this store has them. */
td_status *td_plan_evaluate(td_graph *graph, const td_value *outputs, int32_t n_outputs, td_train_options *options,
                            const td_store *store, td_plan **out_plan) TD_MUST_USE;
td_plan *td_plan_retain(td_plan *plan);
void td_plan_release(td_plan *plan);

/* ---- looking ------------------------------------------------------------------------------------------------------- */

typedef struct td_plan_summary {
    int32_t devices, subgraphs, cut_edges; /* cut edges: values that cross, counted per destination */
    int64_t to_device_bytes_per_step, to_host_bytes_per_step; /* at capacity */
    double plan_ms;                                           /* planning time */
    double step_bound_s;       /* critical path or busiest lane, by the devices' estimates */
    int64_t micro_batches;     /* of the longest window: what the figures per step are for */
    int64_t accumulated_bytes; /* of the sums of gradients, on all devices */
    bool early_lookup;
    bool delayed;           /* updates of dense parameters are made a step late: td_train_options.offload_delayed */
    int32_t recomputed_ops; /* that backward computes again: td_recompute */
} td_plan_summary;
td_plan_summary td_plan_summarize(const td_plan *plan);

typedef struct td_plan_device_summary {
    const char *name, *backend, *description;
    uint64_t capacity_bytes;                                             /* 0: no limit of its own */
    uint64_t peak_bytes, parameter_bytes, state_bytes, activation_bytes; /* peak = store + arena, scratch included */
    double busy_s;                                                       /* per step, estimated */
    bool is_host;
    /* Sparse tables and tables in a file, with their state: the address space they take, the most of it that is in memory (part
     * of the peak, with what keeping books takes), and the most that the file may take. Zeros where there are none. */
    uint64_t table_bytes, table_resident_bytes, table_file_bytes;
    uint64_t accumulated_bytes; /* sums of gradients over micro-batches: part of activation_bytes, and of the peak */
} td_plan_device_summary;
td_plan_device_summary td_plan_device(const td_plan *plan, int32_t index);

/* What a device's bytes are for. Bytes of the arena that serve several of these at different times of a step count for the first of
 * activations, gradients, staging and log. */
typedef enum td_ledger_class {
    TD_LEDGER_PARAMETERS = 0, /* where forward and backward read them, replicas too */
    TD_LEDGER_MASTERS,        /* of parameters that are updated here and read elsewhere */
    TD_LEDGER_MOMENTS,        /* optimizer state */
    TD_LEDGER_GRADIENTS,      /* and what backward makes besides */
    TD_LEDGER_STAGING,        /* of copies */
    TD_LEDGER_LOG,            /* what undoes an update */
    TD_LEDGER_ACTIVATIONS,
    TD_LEDGER_SCRATCH, /* of kernels, and what alignment leaves */
    TD_LEDGER_TABLES,  /* rows that are not simply in memory, at most, with the books about them */
    TD_LEDGER_CLASSES
} td_ledger_class;

typedef struct td_ledger {
    int64_t bytes[TD_LEDGER_CLASSES]; /* together: the device's peak_bytes */
} td_ledger;

/* Of a device in this plan, and in the plan without offload.optimizer; false: nothing is offloaded, so there is no other. */
td_ledger td_plan_ledger(const td_plan *plan, int32_t device);
bool td_plan_ledger_without(const td_plan *plan, int32_t device, td_ledger *out_ledger);
/* "parameters", "masters", ...: as in JSON. */
const char *td_ledger_class_name(td_ledger_class what);
/* Numbers in all parameters of the model, wherever they are. */
int64_t td_plan_parameter_count(const td_plan *plan);

/* What offloading the optimizer moves in a step, all micro-batches of the longest window, at capacity. All zeros: nothing is offloaded. */
typedef struct td_offload_traffic {
    int64_t gradient_bytes; /* to the host */
    int64_t update_bytes;   /* read and written by updates of offloaded parameters, and by what clips their gradients */
    int64_t parameter_bytes; /* back to devices */
    /* On the host, gradients that have come and 16-bit parameters that are to leave lie in this many slots of this many bytes; 0 slots:
     * there are none, or something needs all of them at a time (clipping, a look for what is not finite), and each has its own bytes. */
    int32_t gradient_slots, parameter_slots;
    int64_t gradient_slot_bytes, parameter_slot_bytes;
} td_offload_traffic;
td_offload_traffic td_plan_offload_traffic(const td_plan *plan);

/* The one parameter of which a share of offload.optimizer leaves a part on its device: the host updates the last host_elements of its
 * elements. False: there is none. The name lives as long as the plan. */
typedef struct td_plan_split {
    const char *parameter;
    int64_t elements, host_elements;
} td_plan_split;
bool td_plan_split_parameter(const td_plan *plan, td_plan_split *out_split);
/* Why the parameter where that share ends went to the host whole, though a part might have stayed; NULL: nothing to say. */
const char *td_plan_unsplit(const td_plan *plan);

/* Bytes per second of a device, measured now, with no session at work: copies to it and from it through its queues, and, of the
 * host, memory read and written by all its cores. 0: it has no such thing. */
typedef struct td_measured_rates {
    double to_device, to_host, memory;
} td_measured_rates;
td_status *td_plan_measure_rates(const td_plan *plan, int32_t device, td_measured_rates *out_rates) TD_MUST_USE;

/* A table that the servers of a job own (serve_embedding), or a hash table; bytes of one row and of its state, the most distinct ids that one worker
 * has of it in a step, and what travels for them. */
typedef struct td_plan_served_summary {
    const char *name;
    int64_t rows, dim, row_bytes, state_bytes, keys, pull_bytes, push_bytes;
    bool hashed;
    double overhead_bytes; /* of a row at most: what finding it, and its rules, take on top */
    int64_t most_rows;     /* that there may be: a hash table's capacity; 0: any number of 64-bit ids */
} td_plan_served_summary;
/* By index, in the order of names. False past the last one. */
bool td_plan_served_table(const td_plan *plan, int32_t index, td_plan_served_summary *out_table);

/* Of the optimizer state that a job's workers share (shard_optimizer): bytes that one of them has, and bytes of all. False: nothing is
 * shared, or there is no such worker. */
bool td_plan_shared_state(const td_plan *plan, int32_t worker, int64_t *out_bytes, int64_t *out_all_bytes);

/* Micro-batches of the window of a step (from 1), all replicas together. */
int64_t td_plan_window(const td_plan *plan, int64_t step);
/* Bytes that one micro-batch, which is its window's last, copies in each direction (contract c). `extents`: the actual size of every extent, in the order of the
 * plan's graph; NULL: all at capacity. */
void td_plan_copy_bytes(const td_plan *plan, const int64_t *extents, int64_t *out_to_device, int64_t *out_to_host);

/* The name of an output, in the order of td_step_report.outputs: its value's, or "<parameter>:gradient"; NULL beyond the last. */
const char *td_plan_output_name(const td_plan *plan, int32_t index);

/* All facts as JSON (stable names: see docs/plan.md), Graphviz text, the state after a pass, and why an op (one that was
 * grouped or taken away, too), a parameter or a subgraph is where it is, or all parameters of a layer ("table.3"). Text is the caller's: td_text_free.
 * Unknown names are errors that name the nearest. */
td_status *td_plan_json(const td_plan *plan, char **out_text) TD_MUST_USE;
td_status *td_plan_dot(const td_plan *plan, char **out_text) TD_MUST_USE;
td_status *td_plan_explain(const td_plan *plan, const char *op, char **out_text) TD_MUST_USE;
/* A pass by name (partition/passes.def); td_plan_passes lists them. Only of a plan made with keep_dumps. */
td_status *td_plan_dump(const td_plan *plan, const char *pass, char **out_text) TD_MUST_USE;
int32_t td_plan_passes(const char *const **out_names);

#ifdef __cplusplus
}
#endif
#endif
