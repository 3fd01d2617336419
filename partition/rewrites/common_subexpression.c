/* Rule: two ops of one kind with the same inputs, attributes and place compute the same bits, so the second is the first. The
 * first is the one that comes first in the topological order of names. Ops that act are never merged, nor those whose result
 * depends on their name (dropout's mask), nor one that is to be computed again with the one before (recompute.c). */
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "partition/rewrite.h"

/* Open addressing, at most half full; -1: empty. */
struct td_rewrite_seen {
    int32_t *nodes;
    int64_t capacity;
};

void td_rewrite_seen_destroy(struct td_rewrite_seen *seen)
{
    if (seen)
        td_free(seen->nodes);
    td_free(seen);
}

static td_status *seen_create(td_rewriter *r)
{
    TD_TRY(TD_NEW(r->seen, 1));
    int64_t capacity = 64;
    while (capacity < 2 * r->graph->n_nodes)
        capacity *= 2;
    TD_TRY(TD_NEW(r->seen->nodes, capacity));
    memset(r->seen->nodes, 0xff, (size_t)capacity * sizeof *r->seen->nodes);
    r->seen->capacity = capacity;
    return NULL;
}

static uint64_t hash_attr(const td_attr *attr, uint64_t hash)
{
    hash = td_hash_string(attr->key, hash);
    if (attr->type == TD_ATTR_STRING)
        return td_hash_string(attr->s ? attr->s : "", hash);
    if (attr->type == TD_ATTR_FLOAT)
        return td_hash_bytes(&attr->f, sizeof attr->f, hash);
    if (attr->type == TD_ATTR_INTS)
        return td_hash_bytes(attr->ints, (size_t)attr->n_ints * sizeof *attr->ints, hash);
    return td_hash_number((uint64_t)attr->i, hash);
}

static bool same_attr(const td_attr *a, const td_attr *b)
{
    if (a->type != b->type || strcmp(a->key, b->key) != 0)
        return false;
    if (a->type == TD_ATTR_STRING)
        return strcmp(a->s ? a->s : "", b->s ? b->s : "") == 0;
    if (a->type == TD_ATTR_FLOAT)
        return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    if (a->type == TD_ATTR_INTS)
        return a->n_ints == b->n_ints && memcmp(a->ints, b->ints, (size_t)a->n_ints * sizeof *a->ints) == 0;
    return a->i == b->i;
}

static uint64_t hash_node(const td_node *node)
{
    uint64_t hash = td_hash_string(node->op->name, 0);
    hash = td_hash_bytes(node->inputs, (size_t)node->n_inputs * sizeof *node->inputs, hash);
    for (int32_t i = 0; i < node->n_attrs; i++)
        hash = hash_attr(&node->attrs[i], hash);
    return hash;
}

static bool same_node(const td_rewriter *r, int32_t a, int32_t b)
{
    const td_node *x = &r->graph->nodes[a], *y = &r->graph->nodes[b];
    if (x->op != y->op || x->after != y->after || x->n_inputs != y->n_inputs || x->n_attrs != y->n_attrs ||
        x->n_outputs != y->n_outputs || memcmp(x->inputs, y->inputs, (size_t)x->n_inputs * sizeof *x->inputs) != 0)
        return false;
    for (int32_t i = 0; i < x->n_attrs; i++)
        if (!same_attr(&x->attrs[i], &y->attrs[i]))
            return false;
    return td_rewrite_same_type(r, x->outputs[0], y->outputs[0]) && td_rewrite_same_place(r, a, b);
}

static bool may_merge(const td_node *node)
{
    return node->n_outputs == 1 && node->phase != TD_UPDATE && !node->host_function && !(node->op->flags & TD_OP_NAMED);
}

td_status *td_rewrite_common_subexpression(td_rewriter *r, int32_t node, bool *out_changed)
{
    const td_node *n = &r->graph->nodes[node];
    if (!may_merge(n))
        return NULL;
    if (!r->seen)
        TD_TRY(seen_create(r));
    uint64_t mask = (uint64_t)r->seen->capacity - 1;
    for (uint64_t i = hash_node(n) & mask;; i = (i + 1) & mask) {
        int32_t *known = &r->seen->nodes[i];
        if (*known < 0)
            *known = node;
        if (*known == node)
            return NULL;
        if (!r->gone[*known] && same_node(r, *known, node))
            return td_rewrite_as(r, node, r->graph->nodes[*known].outputs[0], out_changed);
    }
}
