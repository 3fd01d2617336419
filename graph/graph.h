/* The graph's own structures: values, nodes, extents. Engine-internal; users see tandem/graph.h.
 *
 * Always holds: a node's inputs exist before it; every value has one producer node or is a source (input, parameter,
 * state, scalar); names are unique among nodes and among values; types are inferred when a node is added. The order of
 * nodes means nothing but that. */
#ifndef TANDEM_GRAPH_GRAPH_H
#define TANDEM_GRAPH_GRAPH_H

#include "tandem/graph.h"
#include "tandem/ops.h"

#include "graph/names.h"

typedef struct td_op td_op;

typedef enum td_phase { TD_FORWARD = 0, TD_BACKWARD, TD_UPDATE } td_phase;

typedef struct td_extent_info {
    char *name;
    int64_t capacity;
} td_extent_info;

typedef struct td_value_info {
    char *name;
    td_kind kind;
    td_dtype dtype;
    td_class class;
    td_shape shape;
    td_dim entries;
    int32_t producer; /* node, or -1 for a source */
    int32_t output;   /* which output of the producer */
    bool frozen;
    bool is_output; /* td_output */
    bool served;    /* of a plan: a table whose rows other ranks have */
    td_initializer initial;
    int32_t n_scalars; /* TD_CLASS_SCALAR */
    double *scalars;   /* initial numbers, owned */
    int32_t parameter; /* of a state: the parameter it belongs to; of a gradient: likewise; else -1 */
    bool delayed; /* of a parameter: its update is made a window later; of a state: the gradient that waits for that */
} td_value_info;

typedef struct td_node {
    char *name;
    /* an automatic name that was taken already; an error when the graph is checked unless td_name mends it */
    bool tied;
    const td_op *op;
    int32_t n_inputs, n_outputs, n_attrs;
    int32_t *inputs, *outputs; /* value ids; inputs -1 where absent */
    td_attr *attrs;            /* owned, strings and ints too; defaults filled in */
    char *target;              /* primitive_target or NULL */
    td_phase phase;
    /* part of the update of the window before: waits for no gate, runs in a window that is left out too */
    bool delayed;
    bool speculates; /* an update that may have to be undone: waits for no gate */
    bool settles;    /* what undoes it, or not: it looks itself at what others wait for the gate for */
    int32_t forward; /* of a backward node: the node it differentiates, or computes again; else -1 */
    int32_t after;   /* a value that must be there before this node begins, though it does not read it; else -1 */
    td_host_function host_function;
    void *host_context;
} td_node;

struct td_graph {
    td_extent_info *extents;
    int64_t n_extents, extents_capacity;
    td_value_info *values;
    int64_t n_values, values_capacity;
    td_node *nodes;
    int64_t n_nodes, nodes_capacity;
    char *scope; /* "a/b/" or "" */
    td_status *error;
    bool failed;
    td_phase phase;          /* of nodes being added */
    int32_t differentiating; /* the forward node while a gradient is being built, else -1 */
    td_name_map node_names, value_names;
    bool gated;             /* of a plan: no update may begin before `gate`, a value, is there */
    int32_t gate, sum_gate; /* see td_pass_copies; sum_gate: likewise for sums over micro-batches */
};

/* Numbers of a dim or shape at capacity, and at actual extents (one number per extent). */
int64_t td_dim_capacity(const td_graph *graph, td_dim dim);
int64_t td_dim_actual(td_dim dim, const int64_t *extents);
/* A tensor header for a value: at capacity (extents NULL) or at actual extents; data NULL. */
void td_value_tensor(const td_graph *graph, int32_t value, const int64_t *extents, td_tensor *out_tensor);
/* Bytes of each buffer of a value: data, index, count. */
void td_value_bytes(const td_graph *graph, int32_t value, const int64_t *extents, int64_t out_bytes[3]);

/* A whole copy (plans keep one). */
td_status *td_graph_clone(const td_graph *graph, td_graph **out_graph) TD_MUST_USE;

/* A source value. */
td_value td_graph_add_source(td_graph *graph, td_class class, td_kind kind, const char *name, td_dtype dtype,
                             td_shape shape, td_dim entries);
/* Node ids in a deterministic topological order: by data edges and state order, ties by name. Independent of creation
 * order. *out_order has n_nodes entries, td_free it. */
td_status *td_graph_order(const td_graph *graph, int32_t **out_order) TD_MUST_USE;

/* All edges between nodes: data, state order (whoever reads a state before its writer), td_node.after, and the gate of a plan. Successors of node n are
 * to[first[n] .. first[n + 1]); a pair may occur more than once. */
typedef struct td_edges {
    int32_t *first, *to, *indegree;
} td_edges;
td_status *td_graph_edges(const td_graph *graph, td_edges *out_edges) TD_MUST_USE;
void td_edges_deinit(td_edges *edges);
/* The rank of each node in the order of names. *out_rank has n_nodes entries, td_free it. */
td_status *td_graph_name_ranks(const td_graph *graph, int32_t **out_rank) TD_MUST_USE;
/* The value whose memory this one is, as far as view ops tell. */
int32_t td_graph_behind_views(const td_graph *graph, int32_t value);
/* The port that input `input` of a node belongs to (the last one repeats), and whether the op writes it. */
const struct td_port *td_node_port(const td_node *node, int32_t input);
bool td_node_writes(const td_node *node, int32_t input);

/* Gradients of `loss` with respect to every trainable parameter it depends on: adds the backward nodes. out_gradients[v]
 * (n_values of the graph before the call) is the gradient value of parameter v, or -1. A trainable parameter without a
 * path to the loss is an error. `seed` is the scalar that backward starts from (gradient of the loss: one number). */
td_status *td_graph_differentiate(td_graph *graph, td_value loss, td_value seed, int32_t **out_gradients) TD_MUST_USE;

#endif
