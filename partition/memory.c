/* Pass: where every value lives. One arena per device, offsets fixed here.
 *
 * Parameters and state belong to the store, inputs to the batch, scalars to the session. Everything else gets a block of its
 * device's arena. Two blocks may overlap only when happens-before orders all users of one before the maker of the other,
 * over all lanes, never because a list does. An op works in place only when all other readers of that memory end before it.
 *
 * A plan whose steps overlap keeps two copies (one per step parity) of what the next step may make while this one still runs:
 * copies to a device, lookups' results, and what the caller reads. Those never share. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"

/* Who uses the memory of each root value: nodes, in lists. */
typedef struct users {
    int32_t *first; /* n_values + 1 */
    int32_t *nodes;
} users;

static bool happens_before(const td_plan *plan, int32_t a, int32_t b)
{
    const td_plan_node *p = &plan->nodes[a], *q = &plan->nodes[b];
    return p->cluster == q->cluster ? p->position < q->position : td_cluster_reaches(plan, p->cluster, q->cluster);
}

/* ---- storage ------------------------------------------------------------------------------------------------------------------- */

static bool is_made_early(const td_plan *plan, int32_t value)
{
    int32_t producer = plan->graph->values[value].producer;
    if (producer < 0 || plan->graph->nodes[producer].phase != TD_FORWARD)
        return false;
    return plan->nodes[producer].lane == TD_QUEUE_TO_DEVICE || td_op_is_lookup(plan->graph->nodes[producer].op) ||
           plan->nodes[producer].early != TD_EARLY_NONE;
}

static void choose_storage(td_plan *plan, int32_t value)
{
    const td_value_info *info = &plan->graph->values[value];
    td_plan_value *v = &plan->values[value];
    if (v->storage == TD_PREVIOUS)
        return;
    td_value_bytes(plan->graph, value, NULL, v->bytes);
    v->block_bytes = td_plan_align(v->bytes[0]) + td_plan_align(v->bytes[1]) + td_plan_align(v->bytes[2]);
    switch (info->class) {
    case TD_CLASS_PARAMETER:
    case TD_CLASS_STATE:
        v->storage = TD_STORE;
        return;
    case TD_CLASS_INPUT:
        v->storage = TD_BOUND;
        return;
    case TD_CLASS_SCALAR:
        v->storage = TD_NUMBERS;
        return;
    default:
        v->storage = TD_ARENA;
        v->doubled = plan->pipelined && is_made_early(plan, value);
    }
}

static void choose_views(td_plan *plan)
{
    for (int64_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        if (!(node->op->flags & TD_OP_VIEW))
            continue;
        td_plan_value *v = &plan->values[node->outputs[0]];
        v->storage = TD_ALIAS;
        v->root = node->inputs[0];
        v->doubled = false;
    }
}

/* What the caller reads of a step, behind its views: the next step may be under way by then. */
static void double_outputs(td_plan *plan)
{
    for (int32_t i = 0; i <= plan->n_outputs; i++) {
        int32_t value = i < plan->n_outputs ? plan->outputs[i] : plan->loss;
        td_plan_value *v = value >= 0 ? &plan->values[td_plan_root(plan, value)] : NULL;
        if (v && v->storage == TD_ARENA)
            v->doubled = plan->pipelined;
    }
}

/* ---- users ------------------------------------------------------------------------------------------------------------------------ */

static void users_deinit(users *u)
{
    td_free(u->first);
    td_free(u->nodes);
    *u = (users){0};
}

static void each_user(const td_plan *plan, users *u, int32_t *fill)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        for (int32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
            int32_t value = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
            if (value < 0)
                continue;
            int32_t root = td_plan_root(plan, value);
            if (fill)
                u->nodes[fill[root]++] = n;
            else
                u->first[root + 1]++;
        }
    }
}

static td_status *find_users(const td_plan *plan, users *u)
{
    int64_t n = plan->graph->n_values;
    int32_t *fill = NULL;
    users_deinit(u);
    TD_TRY(TD_NEW(u->first, n + 2));
    each_user(plan, u, NULL);
    for (int64_t v = 0; v < n; v++)
        u->first[v + 1] += u->first[v];
    TD_TRY(TD_NEW(u->nodes, u->first[n] + 1));
    TD_TRY(TD_NEW(fill, n + 1));
    memcpy(fill, u->first, (size_t)n * sizeof *fill);
    each_user(plan, u, fill);
    td_free(fill);
    return NULL;
}

/* ---- in place ------------------------------------------------------------------------------------------------------------------- */

/* Views among the aliases of a root are kept by the caller too if one of them is an output. */
static bool root_is_read_by_caller(const td_plan *plan, int32_t root)
{
    for (int32_t i = 0; i < plan->n_outputs; i++)
        if (td_plan_root(plan, plan->outputs[i]) == root)
            return true;
    return plan->loss >= 0 && td_plan_root(plan, plan->loss) == root;
}

/* Users of each root as linked lists, so that merging two roots is one step. */
typedef struct use_lists {
    int32_t *head, *tail, *next, *node; /* head, tail by value; next, node by entry */
} use_lists;

static td_status *lists_init(const td_plan *plan, const users *u, use_lists *l)
{
    int64_t n = plan->graph->n_values;
    TD_TRY(TD_NEW(l->head, n + 1));
    TD_TRY(TD_NEW(l->tail, n + 1));
    TD_TRY(TD_NEW(l->next, u->first[n] + 1));
    l->node = u->nodes;
    for (int64_t v = 0; v < n; v++) {
        l->head[v] = l->tail[v] = -1;
        for (int32_t k = u->first[v]; k < u->first[v + 1]; k++) {
            l->next[k] = l->head[v];
            if (l->head[v] < 0)
                l->tail[v] = k;
            l->head[v] = k;
        }
    }
    return NULL;
}

static void lists_deinit(use_lists *l)
{
    td_free(l->head);
    td_free(l->tail);
    td_free(l->next);
}

static void lists_merge(use_lists *l, int32_t from, int32_t into)
{
    if (l->head[from] < 0)
        return;
    l->next[l->tail[from]] = l->head[into];
    if (l->head[into] < 0)
        l->tail[into] = l->tail[from];
    l->head[into] = l->head[from];
}

static bool may_work_in_place(const td_plan *plan, const use_lists *l, int32_t node, int32_t input, int32_t output)
{
    int32_t root = td_plan_root(plan, input);
    const td_plan_value *from = &plan->values[root], *to = &plan->values[output];
    if (from->storage != TD_ARENA || to->storage != TD_ARENA || from->doubled != to->doubled ||
        from->device != to->device)
        return false;
    if (plan->graph->values[input].kind != TD_DENSE || plan->graph->values[output].kind != TD_DENSE ||
        plan->values[input].bytes[0] != to->bytes[0] || from->bytes[0] != to->bytes[0] ||
        root_is_read_by_caller(plan, root))
        return false;
    for (int32_t k = l->head[root]; k >= 0; k = l->next[k])
        if (l->node[k] != node && !happens_before(plan, l->node[k], node))
            return false;
    return true;
}

static void try_in_place(td_plan *plan, use_lists *l, int32_t n)
{
    const td_node *node = &plan->graph->nodes[n];
    for (size_t k = 0; k < 3 && node->op->in_place[k].output; k++) {
        int32_t out = node->op->in_place[k].output - 1, in = node->op->in_place[k].input - 1;
        if (out >= node->n_outputs || in >= node->n_inputs || node->inputs[in] < 0)
            continue;
        int32_t output = node->outputs[out], root = td_plan_root(plan, node->inputs[in]);
        if (!may_work_in_place(plan, l, n, node->inputs[in], output))
            continue;
        plan->values[output].storage = TD_ALIAS;
        plan->values[output].root = root;
        lists_merge(l, output, root);
        return;
    }
}

/* In sequence, which is topological: when a node is looked at, all makers of its inputs have been. */
static td_status *choose_in_place(td_plan *plan, const users *u)
{
    use_lists l = {0};
    td_status *status = lists_init(plan, u, &l);
    for (int64_t i = 0; i < plan->graph->n_nodes && !status; i++)
        if (plan->nodes[plan->sequence[i]].lane == TD_QUEUE_COMPUTE)
            try_in_place(plan, &l, plan->sequence[i]);
    lists_deinit(&l);
    return status;
}

/* ---- offsets --------------------------------------------------------------------------------------------------------------------- */

typedef struct block {
    int32_t value, producer, first_user, n_users;
    int64_t bytes, offset;
    const char *name;
    bool kept; /* doubled, or read by the caller after the step */
} block;

static int compare_blocks(const void *a, const void *b)
{
    const block *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool ends_before(const td_plan *plan, const users *u, const block *a, const block *b)
{
    if (a->kept)
        return false;
    for (int32_t k = 0; k < a->n_users; k++)
        if (!happens_before(plan, u->nodes[a->first_user + k], b->producer))
            return false;
    return true;
}

static bool may_share(const td_plan *plan, const users *u, const block *a, const block *b)
{
    if (plan->values[a->value].doubled || plan->values[b->value].doubled)
        return false;
    return ends_before(plan, u, a, b) || ends_before(plan, u, b, a);
}

/* The lowest offset at which `b` keeps off every placed block that it may not share with. `placed`: by offset. */
static int64_t first_fit(const td_plan *plan, const users *u, const block *b, block *const *placed, int64_t n)
{
    int64_t offset = 0;
    for (int64_t i = 0; i < n && placed[i]->offset < offset + b->bytes; i++) {
        int64_t end = placed[i]->offset + placed[i]->bytes;
        if (end > offset && !may_share(plan, u, b, placed[i]))
            offset = end;
    }
    return offset;
}

/* Keeps `placed` in the order of offsets. */
static void insert_block(block **placed, int64_t n, block *b)
{
    int64_t at = n;
    for (; at > 0 && placed[at - 1]->offset > b->offset; at--)
        placed[at] = placed[at - 1];
    placed[at] = b;
}

static int64_t collect_blocks(const td_plan *plan, const users *u, int32_t site, block *blocks)
{
    int64_t n = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_plan_value *value = &plan->values[v];
        if (value->storage != TD_ARENA || value->device != site)
            continue;
        blocks[n++] = (block){.value = v,
                              .producer = plan->graph->values[v].producer,
                              .first_user = u->first[v],
                              .n_users = u->first[v + 1] - u->first[v],
                              .bytes = value->block_bytes * (value->doubled ? 2 : 1),
                              .name = plan->graph->values[v].name,
                              .kept = value->doubled || root_is_read_by_caller(plan, v)};
    }
    return n;
}

static td_status *place_blocks(td_plan *plan, const users *u, int32_t site)
{
    block *blocks = NULL, **placed = NULL;
    td_status *status = NULL;
    int64_t end = 0;
    TD_TRY_OR(status, done, TD_NEW(blocks, plan->graph->n_values + 1));
    TD_TRY_OR(status, done, TD_NEW(placed, plan->graph->n_values + 1));
    int64_t n = collect_blocks(plan, u, site, blocks);
    qsort(blocks, (size_t)n, sizeof *blocks, compare_blocks);
    for (int64_t i = 0; i < n; i++) {
        blocks[i].offset = first_fit(plan, u, &blocks[i], placed, i);
        insert_block(placed, i, &blocks[i]);
        plan->values[blocks[i].value].offset = blocks[i].offset;
        end = blocks[i].offset + blocks[i].bytes > end ? blocks[i].offset + blocks[i].bytes : end;
    }
    plan->arenas[site].bytes = end;
done:
    td_free(blocks);
    td_free(placed);
    return status;
}

/* ---- the pass -------------------------------------------------------------------------------------------------------------------------- */

/* Overlapping blocks whose users are not ordered would be silent corruption: looked for once more, independently. */
static td_status *verify(const td_plan *plan, const users *u)
{
    for (int32_t a = 0; a < plan->graph->n_values && plan->graph->n_values <= 2000; a++)
        for (int32_t b = a + 1; b < plan->graph->n_values; b++) {
            const td_plan_value *x = &plan->values[a], *y = &plan->values[b];
            if (x->storage != TD_ARENA || y->storage != TD_ARENA || !x->block_bytes || !y->block_bytes ||
                !td_plan_overlap(plan, a, b))
                continue;
            bool a_first = true, b_first = true;
            for (int32_t i = u->first[a]; i < u->first[a + 1]; i++)
                for (int32_t k = u->first[b]; k < u->first[b + 1]; k++) {
                    a_first = a_first && happens_before(plan, u->nodes[i], u->nodes[k]);
                    b_first = b_first && happens_before(plan, u->nodes[k], u->nodes[i]);
                }
            if (!a_first && !b_first)
                return TD_ERROR(TD_INTERNAL, "memory: \"%s\" and \"%s\" share bytes but are not ordered",
                                plan->graph->values[a].name, plan->graph->values[b].name);
        }
    return NULL;
}

/* No sum of the blocks of a plan, the store's included, may leave 64 bits: a wrapped one would seem to fit. */
static td_status *check_total(const td_plan *plan)
{
    int64_t total = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        for (int32_t copies = plan->values[v].doubled ? 2 : 1; copies > 0; copies--)
            if (!td_add_checked(total, plan->values[v].block_bytes, &total))
                return TD_ERROR(TD_DOES_NOT_FIT,
                                "does not fit: the values up to \"%s\" take more than 2^63 bytes together",
                                plan->graph->values[v].name);
    return NULL;
}

static bool uses_several_lanes(const td_plan *plan)
{
    for (int32_t c = 1; c < plan->n_clusters; c++)
        if (plan->clusters[c].device != plan->clusters[0].device || plan->clusters[c].lane != plan->clusters[0].lane ||
            plan->sites[plan->clusters[c].device].lanes > 1)
            return true;
    return false;
}

td_status *td_pass_memory(td_plan *plan, const td_plan_request *request)
{
    users u = {0};
    td_status *status = NULL;
    plan->pipelined = !request->options->no_pipeline && uses_several_lanes(plan);
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        choose_storage(plan, v);
    choose_views(plan);
    double_outputs(plan);
    TD_TRY_OR(status, done, check_total(plan));
    TD_TRY_OR(status, done, find_users(plan, &u));
    TD_TRY_OR(status, done, choose_in_place(plan, &u));
    TD_TRY_OR(status, done, find_users(plan, &u));
    for (int32_t s = 0; s < plan->n_sites; s++)
        TD_TRY_OR(status, done, place_blocks(plan, &u, s));
    TD_TRY_OR(status, done, verify(plan, &u));
done:
    users_deinit(&u);
    return status;
}
