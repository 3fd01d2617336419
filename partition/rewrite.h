/* Rewriting a plan's graph: rules that make it smaller without changing a bit of what it computes.
 *
 * One sweep visits the nodes in the topological order of td_graph_order, so that the outcome does not depend on the order of
 * building. At each node the rules of rewrites/rewrites.def are tried until none applies; a rule is one file there, one
 * function, and looks at a node whose inputs have been rewritten already. It may
 *   - say that the node's value is another one's (td_rewrite_as): its readers read that from now on, the node goes;
 *   - turn the node into another op with the same output (td_rewrite_turn);
 *   - put a new node in the place of old ones (td_rewrite_replace).
 * What a rule took away stays known by name (td_plan.rewritten), so that explanations can say where it went.
 *
 * Always holds: a rule never skips or adds a rounding, never touches an op that acts (updates of state, host functions) but
 * to fuse it with its neighbours, and never merges what the user placed apart (td_rewrite_same_place). */
#ifndef TANDEM_PARTITION_REWRITE_H
#define TANDEM_PARTITION_REWRITE_H

#include "partition/plan.h"

typedef struct td_rewriter {
    td_plan *plan;
    td_graph *graph;
    const td_plan_request *request;
    int32_t *same; /* of each value: itself, or the value that stands for it */
    int32_t *uses; /* of each value: inputs of live nodes that it is */
    bool *gone;    /* of each node */
    int32_t *into; /* of a node that is gone: the node that has its work, or -1 */
    int64_t values_room, nodes_room;
    struct td_rewrite_seen *seen; /* rewrites/common_subexpression.c */
    int32_t rule;                 /* being tried */
} td_rewriter;

/* *out_changed: the rule applied to this node. */
typedef td_status *(*td_rewrite_fn)(td_rewriter *r, int32_t node, bool *out_changed);

typedef struct td_rewrite {
    const char *name;
    td_jit_level level; /* from this level on */
    const char *summary;
    td_rewrite_fn apply; /* NULL: a pass of its own does it */
} td_rewrite;

#define TD_REWRITE(name, level, summary)                                                                               \
    td_status *td_rewrite_##name(td_rewriter *r, int32_t node, bool *out_changed) TD_MUST_USE;
#define TD_REWRITE_PLACED(name, level, summary)
#include "partition/rewrites/rewrites.def"
#undef TD_REWRITE
#undef TD_REWRITE_PLACED

/* Their numbers in the table. */
enum {
#define TD_REWRITE(name, level, summary) TD_RULE_##name,
#define TD_REWRITE_PLACED(name, level, summary) TD_RULE_##name,
#include "partition/rewrites/rewrites.def"
#undef TD_REWRITE
#undef TD_REWRITE_PLACED
};

/* The table; *out_n rules. */
const td_rewrite *td_rewrites(int32_t *out_n);
/* A rule by its number. TD_BY_OFFLOAD: what the pass offload makes part of an update, at any level and uncounted. */
enum { TD_BY_OFFLOAD = -1 };
const td_rewrite *td_rewrite_of(int32_t rule);

/* `value` takes the place of the node's one output. *out_changed stays false where their types differ. */
td_status *td_rewrite_as(td_rewriter *r, int32_t node, int32_t value, bool *out_changed) TD_MUST_USE;
/* The node becomes an op with these inputs and attributes; its outputs, their names and types stay. */
td_status *td_rewrite_turn(td_rewriter *r, int32_t node, const char *op, const int32_t *inputs, int32_t n_inputs,
                           const td_attr *attrs, int32_t n_attrs) TD_MUST_USE;
/* `node` does the work of `old` from now on; the values of `old` must have no other readers. */
td_status *td_rewrite_replace(td_rewriter *r, int32_t old, int32_t node) TD_MUST_USE;
/* After nodes were added to the graph. */
td_status *td_rewriter_follow(td_rewriter *r) TD_MUST_USE;
/* Of a node that was added: it reads its inputs. */
void td_rewrite_count_inputs(td_rewriter *r, int32_t node);

/* Whether the user's targets and rules put both nodes in one place, wherever that is. */
bool td_rewrite_same_place(const td_rewriter *r, int32_t a, int32_t b);
/* The op of a node; of the node that makes a value (NULL: a source). */
bool td_rewrite_is(const td_rewriter *r, int32_t node, const char *op);
/* Whether it makes the row-sparse gradient of one lookup. */
bool td_rewrite_is_lookup_gradient(const td_rewriter *r, int32_t node);
const td_node *td_rewrite_maker(const td_rewriter *r, int32_t value);
/* Whether every element of a value is one number that the graph fixes; which. */
bool td_rewrite_constant(const td_rewriter *r, int32_t value, float *out_number);
bool td_rewrite_same_type(const td_rewriter *r, int32_t a, int32_t b);

/* Frees what common_subexpression keeps between nodes. */
void td_rewrite_seen_destroy(struct td_rewrite_seen *seen);

#endif
