/* Putting one op in the place of several embeddings: what partition/group.c works with. Not a pass.
 *
 * A grouping collects the parts of the op to be (inputs and one number per part and attribute), adds the node, and marks what
 * it replaces. Nodes and values are only marked; the pass takes them out at its end. */
#ifndef TANDEM_PARTITION_GROUPING_H
#define TANDEM_PARTITION_GROUPING_H

#include "base/string.h"
#include "partition/plan.h"

enum { LOOKUP_INPUTS = 3, UPDATE_STATES = 5, UPDATE_INPUTS = UPDATE_STATES + TD_MAX_SLOTS };

/* The op being put together: inputs and numbers of its parts. */
typedef struct parts {
    td_value *inputs;
    int64_t *pooling, *offset, *column, *table, *rounding;
    td_string names;
    int32_t n, n_inputs, n_tables;
} parts;

typedef struct grouping {
    td_plan *plan;
    td_graph *graph;
    int64_t n_nodes;    /* of the graph before lookups and updates are grouped */
    int32_t *uses;      /* of each value */
    bool *after_lookup; /* a lookup of its own subgraph leads to this node */
    bool *keep, *keep_value;
    int32_t *members, n_members;
    parts parts;
} grouping;

td_status *td_parts_init(parts *p, int64_t most) TD_MUST_USE;
void td_parts_deinit(parts *p);
void td_parts_clear(parts *p);
/* A lookup; or, where `node` is NULL, a value whose columns are copied. */
void td_parts_add_lookup(grouping *g, const td_node *node, int32_t value);
/* An embedding_update as one part, or an embedding_updates as its parts. */
void td_parts_add_update(grouping *g, int32_t node);

/* A node with the collected inputs in the subgraph of `like`; *out is its number, or -1 where the device cannot run it. */
td_status *td_grouping_add_named(grouping *g, const char *op, const char *name, int32_t like, const td_attr *attrs,
                                 int32_t n_attrs, int32_t n_outputs, int32_t *out) TD_MUST_USE;
/* The same for a node of the collected parts, named after `like` and how many more they are. */
td_status *td_grouping_add_node(grouping *g, const char *op, int32_t like, const td_attr *attrs, int32_t n_attrs,
                                int32_t n_outputs, int32_t *out) TD_MUST_USE;
/* Drops a node with its outputs. */
void td_grouping_drop(grouping *g, int32_t node);
/* Output `index` of the new node becomes the value that `old` was, under its name and for its readers. */
void td_grouping_take_over(grouping *g, int32_t node, int32_t index, int32_t old);
/* Drops nodes whose outputs nobody reads any more: slices that a dropped update was the last to read. */
void td_grouping_release_slices(grouping *g, int32_t update);

/* Whether a lookup may run with others of its subgraph: what it reads comes from elsewhere. */
bool td_grouping_may_join(const grouping *g, int32_t node);

/* interactions.c: the vectors of interactions side by side. The new nodes count as the graph's own from then on. */
td_status *td_group_interactions(grouping *g) TD_MUST_USE;

#endif
