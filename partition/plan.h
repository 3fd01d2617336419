/* The plan's own structures, and what its passes share. Engine-internal; users see tandem/plan.h.
 *
 * A plan is built by the passes of passes.def, in that order, on its own clone of the user's graph, and never changed
 * afterwards. Each pass is one file, verifies what it made, and can be dumped. After all of them:
 *   - every node has a device and a cause; every value lives on one device (copies are nodes);
 *   - clusters hold nodes of one device that run in sequence; each is convex and their quotient is acyclic;
 *   - a value in the arena has fixed offsets; two values share bytes only when happens-before orders them. */
#ifndef TANDEM_PARTITION_PLAN_H
#define TANDEM_PARTITION_PLAN_H

#include "graph/op.h"
#include "optim/loss_scale.h"
#include "optim/rule.h"
#include "tandem/plan.h"

/* A device as the planner sees it. `api` and `device` are borrowed from the plan's owner. */
typedef struct td_plan_site {
    const char *name, *backend;
    const td_backend_api *api;
    td_device *device;
    td_device_properties properties;
    int32_t lanes; /* compute queues */
    bool is_host;  /* its memory is the host's */
} td_plan_site;

typedef enum td_storage {
    TD_STORE = 0, /* parameter or state: the store has the address */
    TD_BOUND,     /* an input: bound to the batch of each step */
    TD_PREVIOUS,  /* an input of the batch before: `root` is the input */
    TD_NUMBERS,   /* a scalar: host numbers of the session */
    TD_ARENA,     /* at an offset of its device's arena */
    TD_ALIAS      /* shares the memory of `root` (a view, or an op in place) */
} td_storage;

/* TD_BLOCK: elements of a parameter that nothing takes apart (contract f). */
enum { TD_ALIGNMENT = 64, TD_BLOCK = 1024 };

typedef struct td_plan_value {
    int32_t device; /* -1: a scalar, everywhere */
    char *cause;    /* of a parameter: why it is where it is read; else NULL */
    td_storage storage;
    int32_t root;        /* of TD_ALIAS and TD_PREVIOUS */
    bool doubled;        /* one block per step parity, so the next step may fill its own while this one is read */
    int64_t bytes[3];    /* data, index, count at capacity */
    int64_t offset;      /* of the block in the arena */
    int32_t table;       /* of a table's rows and their state: in plan->tables; -1: none */
    bool by_rows;        /* read by rows alone, copies of it too: does not depend on where anything is placed */
    int64_t block_bytes; /* of one parity, aligned */
    bool offloaded;      /* a parameter that is updated on the host, though it is read elsewhere */
    bool kept;           /* a parameter that offload.optimizer could move and leaves on its device */
    int64_t split; /* a kept parameter of which only so many elements, the first, are updated there; 0: all (split.c) */
    int64_t held;  /* of a state: so many elements, from `first` on, are in its own memory; 0: all */
    /* of a replica, and of a state that a job's workers share (shard.h): it has the elements from this one on */
    int64_t first;
    int64_t begin_bytes; /* of a view: where in the memory of its root it begins (of the view before it) */
    int32_t used_at;     /* of an offloaded one: where it would live otherwise */
    bool in_slot;        /* its offset is fixed already: slots.c */
    bool lasting;        /* keeps its bytes from one micro-batch to the next: a sum of gradients, a window's rows */
} td_plan_value;

typedef enum td_early { TD_EARLY_NONE = 0, TD_EARLY_FIRST, TD_EARLY_REST } td_early;

typedef struct td_plan_node {
    int32_t device;
    td_queue_kind lane;
    char *cause;
    bool moved;                /* unmarked, but the default device cannot run it */
    bool once;                 /* in a window's last micro-batch alone: clipping, updates and what they need */
    bool before_last;          /* in all others: a sum of gradients that the update adds the last one to by itself */
    bool first;                /* in a window's first one alone: what brings the rows that all of them read */
    td_early early;            /* a lookup's part that may run before the update of the step before, or the rest */
    int32_t cluster, position; /* position within the cluster */
    td_cost cost;
    double seconds; /* estimated */
    double rank;    /* seconds to the end of the step along the longest path, itself included */
    bool prompt;    /* what it reads is to be free soon: first among those of its cluster */
    size_t scratch_bytes;
} td_plan_node;

typedef struct td_cluster {
    char *name;
    int32_t device;
    td_queue_kind lane;
    int32_t first, n; /* nodes sequence[first .. first + n) */
    bool delegated;   /* its device runs it as one kernel */
    double seconds, rank;
    int32_t *before, n_before; /* clusters that must end first, in the same step */
    int32_t *after, n_after;
    int32_t *across, n_across; /* clusters of the next micro-batch that must wait for this one, which ends a window */
    int32_t *within, n_within; /* the same where it does not end one: nothing that runs once a window has run */
} td_cluster;

/* A cluster's place among the others: in a topological order of all, and on a path of the quotient graph. */
typedef struct td_place_in_chain {
    int32_t order, chain, position;
} td_place_in_chain;

/* One optimizer group as resolved for this plan. */
typedef struct td_plan_group {
    char *match;
    const td_rule *rule; /* NULL: frozen */
    td_optimizer settings;
    int32_t coefficients; /* its scalar value, -1 if no parameter uses it */
    int32_t pending;      /* likewise, of the window before: for updates that are made late */
} td_plan_group;

/* An op of the user's graph (or of its gradient) that a rule of the optimizer, or the pass offload, took away or turned into another. */
typedef struct td_plan_rewritten {
    char *name, *into; /* into: the op or value that has its work now; its own name where it was turned */
    const td_op *op;   /* what it was */
    int32_t rule;      /* see td_rewrite_of */
} td_plan_rewritten;

typedef struct td_plan_arena {
    int64_t bytes, scratch_bytes; /* whole, and the part that is kernels' scratch (one block per lane) */
    int64_t store_bytes, parameter_bytes, state_bytes;
} td_plan_arena;

/* A parameter that is read by rows alone, and the state over the same rows. */
typedef struct td_plan_table {
    int32_t parameter, states[TD_MAX_SLOTS], n_states; /* values */
    td_table_storage storage;
    bool updated; /* this plan trains it */
} td_plan_table;

/* What tables that are not simply in memory need, all on the host. */
typedef struct td_plan_paging {
    int64_t bytes;          /* of address space: rows and state */
    int64_t resident_bytes; /* the most of it that is in memory at a time */
    int64_t needed_bytes;   /* what two steps may touch: resident_bytes must not be less where there is a file */
    int64_t overhead_bytes; /* keeping books, at most */
    int64_t file_bytes;     /* the most that the file takes */
    char *path;             /* its folder */
} td_plan_paging;

/* A lookup of served tables: which field of a batch has its ids, and which input of the plan gets their places among the keys. */
typedef struct td_plan_places {
    char *from, *to;
    int64_t offset; /* added to each id */
} td_plan_places;

/* What is looked up of one served table, or of several alike: the distinct ids of its lookups together are an input. */
typedef struct td_plan_keys {
    char *name;             /* of that input */
    int64_t rows;           /* of the tables */
    bool hashed;            /* hash tables: any id is one of theirs, and they go by key (base/key.h) */
    td_plan_places *places; /* in the order of the lookups' names */
    int32_t n_places;
    int32_t value; /* of the input, while the plan is built */
} td_plan_keys;

/* A table whose rows other ranks have; in the order of names. */
typedef struct td_plan_served {
    char *name;
    int32_t keys;      /* of plan->keys */
    int32_t parameter; /* its value, while the plan is built */
    int32_t group;     /* the optimizer; -1: it is not trained here */
    int32_t squares;   /* of its gradients, while the plan is built; -1: nobody asks */
    bool hashed;
    td_hash_options hash; /* without its pattern */
} td_plan_served;

/* Bytes of each, and how many, of what an offloaded optimizer has in flight on the host (slots.c); n 0: that is not bounded. */
typedef struct td_plan_slots {
    int32_t n;
    int64_t bytes;
} td_plan_slots;

/* What the planner is asked for. */
typedef struct td_plan_request {
    int32_t loss; /* value, or -1 */
    int32_t *outputs;
    int32_t n_outputs;
    const td_train_options *options;
    int32_t default_site, host_site;
    /* Where a parameter must live (a site), or -1; NULL: anywhere. */
    int32_t (*home)(const void *context, const char *parameter);
    /* Bytes that the store holds on a site already, whether this plan uses them or not; NULL: none. */
    int64_t (*held)(const void *context, int32_t site);
    /* Whether the store has a replica of a parameter on a site, in this dtype; NULL: it has none. */
    bool (*replicated)(const void *context, const char *parameter, int32_t site, td_dtype dtype);
    const void *home_context;
    int64_t keep;              /* how many parameters offload.optimizer: auto leaves on devices */
    int64_t keep_blocks;       /* and of the next one: how many blocks of TD_BLOCK elements */
    bool unbounded;            /* nothing is refused for want of memory: the plan is only looked at */
    int64_t host_memory_bytes; /* the most that this process may have; 0: unknown */
    int32_t replicas;          /* of the job that options->remote stands for, of all ranks; 0 without */
    bool alone;                /* options->remote stands for none: this process owns its hash tables itself */
    bool asks_ahead;           /* it asks for the rows of the next window while one ends */
    int32_t workers, worker;   /* of that job; which one plans */
} td_plan_request;

/* One more output, under a name of its own. */
td_status *td_plan_add_output(td_plan *plan, int32_t value, const char *name) TD_MUST_USE;

struct td_plan {
    int64_t references; /* atomic */
    td_graph *graph;
    td_plan_site *sites;
    int32_t n_sites, host, standard; /* host: the site of the host; standard: the default device */
    void *owner;
    void (*owner_release)(void *owner);
    char *key; /* what it was made from, for the cache; NULL: not cached */

    bool training, stochastic_rounding;
    bool delayed; /* dense parameters are updated a window late: see update.c */
    td_on_nan on_nan;
    int64_t most_skipped; /* in a row */
    uint64_t random_seed;
    int32_t loss, seed, random; /* values; -1: none */
    int32_t micro;     /* value: how far a window is (graph/ops/accumulate.c); -1: a window is one micro-batch */
    int32_t speculate; /* value: whether a window's updates are made early (speculate.c); -1: none ever is */
    double clip_norm;  /* 0: gradients are not clipped */
    int32_t divisor;   /* value: what sums of gradients are to be divided by; -1: the seed says it */
    int32_t replicas, most_accumulated; /* of a window, that this process runs; micro-batches of a replica, at most */
    int32_t all_replicas;               /* of a window: those of a job's other ranks too */
    td_reduction reduction;
    td_accumulate_changes changes; /* the first is from step 1 on */
    int32_t sample_extent;         /* the extent that counts samples, or -1 */
    int32_t *outputs, n_outputs;   /* values on the host */
    char **output_names;           /* of those that are reported as they are */
    int32_t n_output_names;
    int32_t n_recomputed;  /* ops that backward computes again */
    bool reports_norm;     /* one more output: the norm of the gradients */
    bool reports_overflow; /* and one after that: see graph/ops/overflow.c; numbers of `watched` */
    char **watched;        /* the parameters whose gradients are looked at, one for each look */
    int64_t n_watched;
    bool has_loss_scale; /* backward is seeded with a dynamic loss scale */
    td_loss_scale_options loss_scale;
    int32_t *gradients; /* during building: gradient value of each value, or -1 */
    int64_t n_gradients;
    td_plan_group *groups;
    int32_t n_groups;

    td_plan_node *nodes;   /* as graph->nodes */
    td_plan_value *values; /* as graph->values */
    int64_t nodes_capacity, values_capacity;
    td_cluster *clusters;
    int32_t n_clusters;
    int32_t *sequence;         /* all nodes, cluster by cluster */
    td_place_in_chain *chains; /* of each cluster: see reach.c */
    int32_t *reach;            /* [cluster * n_known_chains + chain]: the first position there that runs after it */
    int64_t n_chains, n_known_chains;
    td_plan_arena *arenas; /* as sites */
    td_plan_table *tables;
    int32_t n_tables;
    td_plan_paging paging;
    int32_t n_movable; /* parameters that offload.optimizer may move */
    int64_t splits;    /* blocks that may stay of the first one that does not stay whole */
    char *unsplit;     /* why that one goes whole though a part of it might stay; NULL: nothing to say */
    td_plan_slots gradient_slots, parameter_slots;
    td_ledger *ledger;       /* as sites */
    td_ledger *without;      /* of the same training with nothing of the optimizer offloaded; NULL: nothing is */
    const td_remote *remote; /* NULL: this process has all */
    bool in_job;             /* other ranks train too: `remote` is theirs */
    td_plan_keys *keys;
    int32_t n_keys;
    td_plan_served *served;
    int32_t n_served;
    bool offers; /* gradients of served tables go to their owners before it is known whether they are used */
    /* who share optimizer state, and which of them this is (shard.h); 0: nobody shares */
    int32_t shard_workers, shard_worker;
    struct td_plan_shard *shards;
    int64_t shards_capacity;
    int32_t n_shards;
    int32_t clip_factor; /* value, while the plan is built; -1: gradients are not clipped */
    bool pipelined, early_lookup;
    double plan_s, bound_s;
    char **idle_rules; /* a remark for each placement rule that matches nothing */
    int64_t n_idle_rules;
    char **dumps; /* text after each pass */
    bool dumped;  /* they are kept */
    td_jit_level jit_level;
    int64_t *rewrites; /* how often each rule of td_rewrites applied */
    td_plan_rewritten *rewritten;
    int64_t n_rewritten, rewritten_capacity;
    td_name_map rewritten_names; /* to the index of the last change of that name */
};

typedef struct td_pass {
    const char *name, *summary;
    td_status *(*run)(td_plan *plan, const td_plan_request *request);
} td_pass;

#define TD_PASS(name, summary) td_status *td_pass_##name(td_plan *plan, const td_plan_request *request) TD_MUST_USE;
#include "partition/passes.def"
#undef TD_PASS

/* Runs all passes on `graph` (taken). `sites` is copied; `owner` is released with the plan (also on failure). */
td_status *td_plan_build(td_graph *graph, const td_plan_site *sites, int32_t n_sites, const td_plan_request *request,
                         void *owner, void (*owner_release)(void *owner), td_plan **out_plan) TD_MUST_USE;

/* The arrays `nodes` and `values` follow the graph's after nodes were added; new entries are zero with device -1. */
td_status *td_plan_follow(td_plan *plan) TD_MUST_USE;
/* A site by name: case ignored; "cpu" is the host, "device" the default accelerator. -1: none. */
int32_t td_plan_find_site(const td_plan_site *sites, int32_t n_sites, int32_t host, int32_t standard, const char *name);
/* "cpu, accel" for messages. */
char *td_plan_site_names(const td_plan_site *sites, int32_t n_sites);
/* The call of a node at capacity (or actual extents), without addresses. Its arrays are *storage: td_free it. */
td_status *td_plan_call(const td_graph *graph, int32_t node, const int64_t *extents, td_kernel_call *out_call,
                        td_tensor **out_storage) TD_MUST_USE;
/* Asks a site to take a cluster over whole. *out_kernel NULL: it declines, or cannot. */
td_status *td_plan_delegate(const td_plan *plan, const td_cluster *cluster, td_kernel **out_kernel,
                            size_t *out_scratch_bytes) TD_MUST_USE;
/* offload_choice.c: which parameters live on the host, with their state, because their updates are made there. */
td_status *td_place_offloaded(td_plan *plan, const td_plan_request *request) TD_MUST_USE;
/* Why an offloaded update is on the host; NULL: no memory. */
char *td_why_offloaded(const td_plan *plan, const td_plan_request *request, const td_node *update);
/* Whether a site can run a node; if not, why. */
td_status *td_plan_supports(const td_graph *graph, const td_plan_site *site, int32_t node, bool *out_supported,
                            char *reason, size_t reason_bytes) TD_MUST_USE;
/* Estimated seconds of a call on a site. */
double td_plan_estimate(const td_plan_site *site, const td_cost *cost);
/* overflow.c: whether updates wait for something that is known of all gradients of a window together: their norm, or that they are
 * finite. */
bool td_options_wait_for_gradients(const td_train_options *options);
/* The next multiple of TD_ALIGNMENT: what a buffer takes in an arena. */
static inline int64_t td_plan_align(int64_t bytes)
{
    return (bytes + TD_ALIGNMENT - 1) & ~(int64_t)(TD_ALIGNMENT - 1);
}
/* Fills chains and reach from the clusters' edges. An error when they have a cycle. */
td_status *td_plan_find_reach(td_plan *plan) TD_MUST_USE;
/* Cluster a surely ends before cluster b begins, within a step. */
bool td_cluster_reaches(const td_plan *plan, int32_t a, int32_t b);
/* Whether the host makes updates of what other devices read. */
static inline bool td_plan_is_offloading(const td_plan *plan)
{
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        if (plan->values[v].offloaded || plan->values[v].split)
            return true;
    return false;
}
/* Whether a value of the store is optimizer state, or the part of one that is elsewhere. */
static inline bool td_plan_is_state(const td_plan *plan, int32_t value)
{
    const td_value_info *info = &plan->graph->values[value];
    return info->class == TD_CLASS_STATE ||
           (info->class == TD_CLASS_REPLICA && info->parameter >= 0 && /* of a plan that only evaluates: none */
            plan->graph->values[info->parameter].class == TD_CLASS_STATE);
}
/* A copy of a sequenced plan: copies that go as one list pay the latency of their link once. */
static inline bool td_plan_pays_latency(const td_plan *plan, const td_plan_node *copy)
{
    return !plan->sites[copy->device].api->copy_ranges || copy->position == 0;
}

/* What a copy fills: its output, or the replica that it refreshes. */
static inline int32_t td_copied_to(const td_node *node)
{
    return node->n_outputs ? node->outputs[0] : node->inputs[1];
}
/* The value whose memory this one uses. */
int32_t td_plan_root(const td_plan *plan, int32_t value);
/* Whether two roots may hold the same bytes. */
bool td_plan_overlap(const td_plan *plan, int32_t a, int32_t b);
/* serve.c: the served table of a parameter; NULL: it lives here. */
td_plan_served *td_plan_served_of(const td_plan *plan, int32_t parameter);
/* Frees what is known of served tables. */
void td_plan_drop_served(td_plan *plan);
bool td_op_is_lookup(const td_op *op);
/* tables.c: whether an op reads or writes input `port` by rows alone, and which input then holds the ids of the rows that it
 * touches first in a step (-1: rows that a lookup of the same step has touched). */
bool td_plan_reads_rows(const td_plan *plan, const td_node *node, int32_t port, int32_t *out_ids);
/* Counts a change by a rule, and keeps what became of the node under its name. */
td_status *td_plan_note_rewrite(td_plan *plan, int32_t rule, const td_node *node, const char *into) TD_MUST_USE;
/* What became of an op that is not in the plan any more, or was another one; NULL: no rule touched that name. */
const td_plan_rewritten *td_plan_find_rewritten(const td_plan *plan, const char *name);
/* The op or parameter of the model whose name is nearest to what was wanted, as td_nearest has it. */
const char *td_plan_nearest_name(const td_graph *graph, const char *wanted);
/* accumulate.c: how long windows are, before the passes. */
td_status *td_plan_settle_windows(td_plan *plan, const td_plan_request *request) TD_MUST_USE;
/* Micro-batches of a replica in the window of a step (from 1). */
int32_t td_plan_accumulate(const td_plan *plan, int64_t step);
/* cluster_names.c: names every subgraph unlike the others. */
td_status *td_plan_name_clusters(td_plan *plan) TD_MUST_USE;
/* window.c: in how many micro-batches of the longest window a node runs. */
int64_t td_plan_runs(const td_plan *plan, int32_t node);
/* As td_plan_copy_bytes, of a micro-batch that ends its window or does not. */
void td_plan_copy_bytes_of(const td_plan *plan, const int64_t *extents, bool ends_window, int64_t *out_to_device,
                           int64_t *out_to_host);
/* window.c: fills what a summary says per step, for the longest window; the compute lanes' seconds in it, all together; bytes of
 * the sums of gradients, and of the order of their rows. */
void td_plan_sum_window(const td_plan *plan, td_plan_summary *summary);
double td_plan_busy_seconds(const td_plan *plan, int32_t site);
int64_t td_plan_accumulated_bytes(const td_plan *plan, int32_t site);
/* Fills idle_rules. Of a plan for training: an evaluation has fewer ops. */
td_status *td_plan_note_idle_rules(td_plan *plan, const td_plan_request *request) TD_MUST_USE;
/* Drops what neither loss, outputs, updates nor (in training) host functions need, and nodes with gone[n]. */
td_status *td_plan_drop_unneeded(td_plan *plan, const bool *gone) TD_MUST_USE;
/* Keeps nodes with keep[n] and the values they touch; renumbers. (*out_map)[v], (*out_node_map)[n]: new
 * ids or -1; td_free them. */
td_status *td_graph_prune(td_graph *graph, const bool *keep, const bool *keep_value, int32_t **out_map,
                          int32_t **out_node_map) TD_MUST_USE;
/* The plan's own references to values after that: loss, outputs, gate, coefficients, random numbers. */
void td_plan_renumber(td_plan *plan, const int32_t *map);
/* td_graph_prune of a plan whose nodes have devices: what the plan knows of nodes, values and subgraphs follows. */
td_status *td_plan_compact(td_plan *plan, const bool *keep, const bool *keep_value) TD_MUST_USE;
/* The parameter that a node of the phase update is for, or -1: what it writes, or what it copies of it. */
int32_t td_plan_updated(const td_plan *plan, const td_node *node);

#endif
