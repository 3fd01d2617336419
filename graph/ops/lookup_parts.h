/* Parts of ops that stand for several lookups or updates: each as the op that it would be alone. Not an op. */
#ifndef TANDEM_GRAPH_OPS_LOOKUP_PARTS_H
#define TANDEM_GRAPH_OPS_LOOKUP_PARTS_H

#include <stdio.h>

#include "graph/ops/lookup_rules.h"

enum { LOOKUP_PART_INPUTS = 3 };
/* Numbers of the attribute "pooling". */
enum { LOOKUP_PLAIN = 0, LOOKUP_SUM, LOOKUP_MEAN, LOOKUP_POOLINGS };

typedef struct lookup_part {
    const char *op;   /* embedding or embedding_bag */
    td_attr attrs[2]; /* pooling (bags only) and offset, of that op */
    int32_t n_attrs;
    bool plain;
    char name[128]; /* for messages */
} lookup_part;

#define LOOKUP_PART_NAMES                                                                                              \
    {                                                                                                                  \
        .name = "names", .type = TD_ATTR_STRING, .help = "of the parts, for messages, with spaces between"             \
    }

static inline int64_t lookup_part_number(const td_attr *attrs, int32_t n, const char *key, int32_t part)
{
    const td_attr *attr = td_attr_find(attrs, n, key);
    return attr && part < attr->n_ints ? attr->ints[part] : 0;
}

/* The name of a part among `names`, or `fallback`. */
static inline void lookup_part_name(const char *names, int32_t part, const char *fallback, char *out, size_t bytes)
{
    for (; names && part > 0; part--)
        names = strchr(names, ' ') ? strchr(names, ' ') + 1 : NULL;
    (void)snprintf(out, bytes, "%.*s", names ? (int)strcspn(names, " ") : (int)strlen(fallback),
                   names ? names : fallback);
}

static inline void lookup_part_fill(const td_attr *attrs, int32_t n_attrs, int32_t part, lookup_part *out)
{
    int64_t pooling = lookup_part_number(attrs, n_attrs, "pooling", part);
    *out = (lookup_part){.plain = pooling == LOOKUP_PLAIN};
    out->op = out->plain ? "embedding" : "embedding_bag";
    out->attrs[out->n_attrs++] = TD_INT("offset", lookup_part_number(attrs, n_attrs, "offset", part));
    if (!out->plain)
        out->attrs[out->n_attrs++] = TD_STRING("pooling", pooling == LOOKUP_MEAN ? "mean" : "sum");
}

static inline td_status *lookup_part_rule(const td_infer *infer, int32_t part, lookup_part *out)
{
    int64_t pooling = lookup_part_number(infer->attrs, infer->n_attrs, "pooling", part);
    if (pooling < 0 || pooling >= LOOKUP_POOLINGS)
        return TD_SHAPE_ERROR(infer, "pooling of part %d is %" PRId64 "; 0 is none, 1 sum, 2 mean", part, pooling);
    lookup_part_fill(infer->attrs, infer->n_attrs, part, out);
    return NULL;
}

static inline void lookup_part_of_call(const td_kernel_call *call, int32_t part, lookup_part *out)
{
    lookup_part_fill(call->attrs, call->n_attrs, part, out);
    lookup_part_name(td_attr_string(call->attrs, call->n_attrs, "names", NULL), part, call->name, out->name,
                     sizeof out->name);
}

/* How many parts of `period` inputs there are; every list attribute must have one number for each. */
static inline td_status *lookup_parts_count(const td_infer *infer, int32_t period, int32_t *out)
{
    *out = infer->n_inputs / period;
    if (infer->n_inputs % period || *out == 0)
        return TD_SHAPE_ERROR(infer, "%d inputs; there must be %d for each part", infer->n_inputs, period);
    for (int32_t i = 0; i < infer->n_attrs; i++)
        if (infer->attrs[i].type == TD_ATTR_INTS && infer->attrs[i].n_ints != *out)
            return TD_SHAPE_ERROR(infer, "%s has %d numbers for %d parts", infer->attrs[i].key, infer->attrs[i].n_ints,
                                  *out);
    return NULL;
}

#endif
