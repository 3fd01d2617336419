/* Rule: where several lookups share a table, and only its update reads the sum of their row-sparse gradients, gradients, sums
 * and update become one "embedding_updates", which takes the lookups' positions in the order of the sum. */
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "partition/rewrite.h"

/* The lookup gradient that makes `value` for one reader alone, or -1. */
static int32_t only_gradient(const td_rewriter *r, int32_t value)
{
    int32_t maker = value < 0 ? -1 : r->graph->values[value].producer;
    return maker >= 0 && r->uses[value] == 1 && td_rewrite_is_lookup_gradient(r, maker) ? maker : -1;
}

/* The gradients that `value`, a sum of row-sparse gradients from left to right, is made of: how many; 0 where one of them has
 * another reader or another maker. `terms` (NULL: only count) gets them, the leftmost first; `sums` the nodes of the sum. */
static int32_t find_terms(const td_rewriter *r, int32_t value, int32_t n_terms, int32_t *terms, int32_t *sums)
{
    for (int32_t n = 1;; n++) {
        int32_t gradient = only_gradient(r, value);
        if (gradient >= 0) {
            if (terms)
                terms[n_terms - n] = gradient;
            return n;
        }
        int32_t sum = r->graph->values[value].producer;
        if (sum < 0 || r->uses[value] != 1 || !td_rewrite_is(r, sum, "row_sparse_add"))
            return 0;
        gradient = only_gradient(r, r->graph->nodes[sum].inputs[1]);
        if (gradient < 0)
            return 0;
        if (terms) {
            terms[n_terms - n] = gradient;
            sums[n - 1] = sum;
        }
        value = r->graph->nodes[sum].inputs[0];
    }
}

enum { PART_TABLE, PART_GRADIENT, PART_IDS, PART_WEIGHTS, PART_COEFFICIENTS, PART_STATES };
enum { PART_INPUTS = PART_STATES + TD_MAX_SLOTS };

/* The arrays of an embedding_updates node in the making. */
typedef struct shared_update {
    int32_t *terms, *sums;
    td_value *inputs;
    int64_t *numbers; /* pooling, offset, column, table, rounding */
    td_string names;
    char *name, *text;
} shared_update;

static void add_part(const td_rewriter *r, const td_node *u, int32_t n, int32_t i, shared_update *s)
{
    const td_node *g = &r->graph->nodes[s->terms[i]];
    const char *pooling = td_attr_string(g->attrs, g->n_attrs, "pooling", "none");
    td_value *inputs = &s->inputs[i * PART_INPUTS];
    for (int32_t k = 0; k < PART_INPUTS; k++)
        inputs[k] = (td_value){r->graph, -1};
    inputs[PART_TABLE].id = u->inputs[0];
    inputs[PART_GRADIENT].id = g->inputs[1];
    inputs[PART_IDS].id = g->inputs[0];
    inputs[PART_WEIGHTS].id = g->n_inputs > 2 ? g->inputs[2] : -1;
    inputs[PART_COEFFICIENTS].id = u->inputs[2];
    for (int32_t k = 3; k < u->n_inputs; k++)
        inputs[PART_STATES + k - 3].id = u->inputs[k];
    s->numbers[i] = strcmp(pooling, "none") == 0 ? 0 : strcmp(pooling, "mean") == 0 ? 2 : 1;
    s->numbers[n + i] = td_attr_int(g->attrs, g->n_attrs, "offset", 0);
    s->numbers[4 * n + i] = td_attr_int(u->attrs, u->n_attrs, "rounding", 0);
    td_string_format(&s->names, "%s%s", i ? " " : "", g->forward >= 0 ? r->graph->nodes[g->forward].name : g->name);
}

static td_status *allocate(shared_update *s, int32_t n)
{
    TD_TRY(TD_NEW(s->terms, n));
    TD_TRY(TD_NEW(s->sums, n));
    TD_TRY(TD_NEW(s->inputs, n * PART_INPUTS));
    return TD_NEW(s->numbers, 5 * n);
}

static td_status *add_fused(td_rewriter *r, const td_node *u, int32_t n, shared_update *s)
{
    for (int32_t i = 0; i < n; i++)
        add_part(r, u, n, i, s);
    TD_TRY(td_string_finish(&s->names, &s->text));
    s->name = td_format("%s_rows", u->name);
    if (!s->name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a fused update");
    const td_attr attrs[] = {TD_STRING("rule", u->op->name),
                             TD_INTS("pooling", s->numbers, n),
                             TD_INTS("offset", s->numbers + n, n),
                             TD_INTS("column", s->numbers + 2 * n, n),
                             TD_INTS("table", s->numbers + 3 * n, n),
                             TD_INTS("rounding", s->numbers + 4 * n, n),
                             TD_STRING("names", s->text)};
    td_graph_add(r->graph, "embedding_updates", s->name, s->inputs, n * PART_INPUTS, attrs, 7, NULL, 0);
    return r->graph->failed ? td_graph_check(r->graph) : NULL;
}

static td_status *replace_all(td_rewriter *r, int32_t update, int32_t n, const shared_update *s)
{
    TD_TRY(td_rewriter_follow(r));
    int32_t fused = (int32_t)r->graph->n_nodes - 1;
    td_rewrite_count_inputs(r, fused);
    for (int32_t i = 0; i < n; i++)
        TD_TRY(td_rewrite_replace(r, s->terms[i], fused));
    for (int32_t i = 0; i + 1 < n; i++)
        TD_TRY(td_rewrite_replace(r, s->sums[i], fused));
    return td_rewrite_replace(r, update, fused);
}

td_status *td_rewrite_shared_table_update(td_rewriter *r, int32_t node, bool *out_changed)
{
    const td_node *u = &r->graph->nodes[node];
    /* Tables that take memory by touched rows are told which rows by each lookup on its own. */
    if (u->phase != TD_UPDATE || u->n_inputs < 3 || u->inputs[1] < 0 || u->op->flags & TD_OP_REMOTE ||
        r->request->options->tables.storage != TD_TABLE_MEMORY)
        return NULL;
    int32_t n = find_terms(r, u->inputs[1], 0, NULL, NULL);
    if (n < 2)
        return NULL;
    shared_update s = {0};
    td_status *status = allocate(&s, n);
    if (!status) {
        (void)find_terms(r, u->inputs[1], n, s.terms, s.sums);
        status = add_fused(r, u, n, &s);
    }
    if (!status)
        status = replace_all(r, node, n, &s);
    *out_changed = !status;
    td_string_deinit(&s.names);
    td_free(s.terms);
    td_free(s.sums);
    td_free(s.inputs);
    td_free(s.numbers);
    td_free(s.name);
    td_free(s.text);
    return status;
}
