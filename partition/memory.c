/* Pass: where every value lives. One arena per device, offsets fixed here.
 *
 * Parameters and state belong to the store, inputs to the batch, scalars to the session. Everything else gets a block of its
 * device's arena. Two blocks may overlap only when happens-before orders all users of one before the maker of the other,
 * over all lanes, never because a list does. An op works in place only when all other readers of that memory end before it.
 *
 * A plan whose steps overlap keeps two copies (one per step parity) of what the next step may make while this one still runs:
 * copies to a device, lookups' results, and what the caller reads. Those never share, nor do sums over micro-batches. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/memory.h"

bool td_happens_before(const td_plan *plan, int32_t a, int32_t b)
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
    if (v->held)
        v->bytes[0] = v->held * (int64_t)td_dtype_bytes(info->dtype);
    if (info->served)
        memset(v->bytes, 0, sizeof v->bytes); /* the owners have it */
    v->block_bytes = td_plan_align(v->bytes[0]) + td_plan_align(v->bytes[1]) + td_plan_align(v->bytes[2]);
    switch (info->class) {
    case TD_CLASS_PARAMETER:
    case TD_CLASS_STATE:
    case TD_CLASS_REPLICA:
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
        v->lasting =
            info->producer >= 0 && (plan->graph->nodes[info->producer].op->flags & (TD_OP_KEEPS | TD_OP_HOLDS) ||
                                    plan->nodes[info->producer].first);
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
        const int64_t before = plan->values[v->root].held ? plan->values[v->root].first : 0;
        v->begin_bytes = (td_attr_int(node->attrs, node->n_attrs, "begin", 0) - before) *
                         (int64_t)td_dtype_bytes(plan->graph->values[node->outputs[0]].dtype);
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

static void users_deinit(td_users *u)
{
    td_free(u->first);
    td_free(u->nodes);
    *u = (td_users){0};
}

static void each_user(const td_plan *plan, td_users *u, int32_t *fill)
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

static td_status *find_users(const td_plan *plan, td_users *u)
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

/* Of each root: the caller reads it after the step, itself or a view of it. */
static void mark_kept(const td_plan *plan, bool *kept)
{
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        kept[v] = plan->values[v].lasting;
    for (int32_t i = 0; i < plan->n_outputs; i++)
        kept[td_plan_root(plan, plan->outputs[i])] = true;
    if (plan->loss >= 0)
        kept[td_plan_root(plan, plan->loss)] = true;
}

/* ---- in place ------------------------------------------------------------------------------------------------------------------- */

/* Who may still use the memory of each root: users of the values that live in it, but for those that an op in place has been
 * found to come after; that op is one of the users, so whoever comes after it comes after them. */
typedef struct use_lists {
    int32_t *first, *last; /* of each root: entries of users.nodes */
    int32_t *latest; /* of each root: the place in the sequence of its latest user; only that one may be in place */
    const int32_t *node;
} use_lists;

static int32_t place_of(const td_plan *plan, int32_t node)
{
    return plan->clusters[plan->nodes[node].cluster].first + plan->nodes[node].position;
}

static td_status *lists_init(const td_plan *plan, const td_users *u, use_lists *l)
{
    int64_t n = plan->graph->n_values;
    TD_TRY(TD_NEW(l->first, n + 1));
    TD_TRY(TD_NEW(l->last, n + 1));
    TD_TRY(TD_NEW(l->latest, n + 1));
    l->node = u->nodes;
    for (int64_t v = 0; v < n; v++) {
        l->first[v] = u->first[v];
        l->last[v] = u->first[v + 1];
        for (int32_t k = l->first[v]; k < l->last[v]; k++)
            if (place_of(plan, u->nodes[k]) > l->latest[v])
                l->latest[v] = place_of(plan, u->nodes[k]);
    }
    return NULL;
}

static void lists_deinit(use_lists *l)
{
    td_free(l->first);
    td_free(l->last);
    td_free(l->latest);
}

static bool may_work_in_place(const td_plan *plan, const use_lists *l, const bool *kept, int32_t node, int32_t input,
                              int32_t output)
{
    int32_t root = td_plan_root(plan, input);
    const td_plan_value *from = &plan->values[root], *to = &plan->values[output];
    if (l->latest[root] != place_of(plan, node) || from->storage != TD_ARENA || to->storage != TD_ARENA ||
        from->doubled != to->doubled || from->device != to->device)
        return false;
    if (plan->graph->values[input].kind != TD_DENSE || plan->graph->values[output].kind != TD_DENSE ||
        plan->values[input].bytes[0] != to->bytes[0] || from->bytes[0] != to->bytes[0] || kept[root])
        return false;
    for (int32_t k = l->first[root]; k < l->last[root]; k++)
        if (l->node[k] != node && !td_happens_before(plan, l->node[k], node))
            return false;
    return true;
}

static void try_in_place(td_plan *plan, use_lists *l, bool *kept, int32_t n)
{
    const td_node *node = &plan->graph->nodes[n];
    for (size_t k = 0; k < 3 && node->op->in_place[k].output; k++) {
        int32_t out = node->op->in_place[k].output - 1, in = node->op->in_place[k].input - 1;
        if (out >= node->n_outputs || in >= node->n_inputs || node->inputs[in] < 0)
            continue;
        int32_t output = node->outputs[out], root = td_plan_root(plan, node->inputs[in]);
        if (!may_work_in_place(plan, l, kept, n, node->inputs[in], output))
            continue;
        plan->values[output].storage = TD_ALIAS;
        plan->values[output].root = root;
        l->first[root] = l->first[output];
        l->last[root] = l->last[output];
        l->latest[root] = l->latest[output];
        kept[root] = kept[root] || kept[output];
        return;
    }
}

/* In sequence, which is topological: when a node is looked at, all makers of its inputs have been. */
static td_status *choose_in_place(td_plan *plan, const td_users *u, bool *kept)
{
    use_lists l = {0};
    td_status *status = lists_init(plan, u, &l);
    for (int64_t i = 0; i < plan->graph->n_nodes && !status; i++)
        if (plan->nodes[plan->sequence[i]].lane == TD_QUEUE_COMPUTE)
            try_in_place(plan, &l, kept, plan->sequence[i]);
    lists_deinit(&l);
    return status;
}

/* ---- offsets --------------------------------------------------------------------------------------------------------------------- */

static int64_t collect_blocks(const td_plan *plan, const td_users *u, const bool *kept, int32_t site, td_block *blocks)
{
    int64_t n = 0;
    for (int32_t v = 0; v < plan->graph->n_values; v++) {
        const td_plan_value *value = &plan->values[v];
        if (value->storage != TD_ARENA || value->device != site)
            continue;
        blocks[n++] = (td_block){.value = v,
                                 .producer = plan->graph->values[v].producer,
                                 .first_user = u->first[v],
                                 .n_users = u->first[v + 1] - u->first[v],
                                 .bytes = value->block_bytes * (value->doubled ? 2 : 1),
                                 .name = plan->graph->values[v].name,
                                 .kept = value->doubled || value->lasting || kept[v],
                                 .doubled = value->doubled || value->lasting};
    }
    return n;
}

/* Those whose place is fixed come first; returns how many they are. */
static int64_t put_fixed_first(const td_plan *plan, td_block *blocks, int64_t n)
{
    int64_t fixed = 0;
    for (int64_t i = 0; i < n; i++) {
        td_block block = blocks[i];
        if (!plan->values[block.value].in_slot)
            continue;
        block.offset = plan->values[block.value].offset;
        blocks[i] = blocks[fixed];
        blocks[fixed++] = block;
    }
    return fixed;
}

static td_status *place_blocks(td_plan *plan, const td_users *u, const bool *kept, int32_t site)
{
    enum { MOST_BY_SIZE = 2000 };
    td_block *blocks = NULL;
    TD_TRY(TD_NEW(blocks, plan->graph->n_values + 1));
    int64_t n = collect_blocks(plan, u, kept, site, blocks), *end = &plan->arenas[site].bytes;
    int64_t fixed = put_fixed_first(plan, blocks, n);
    td_status *status = n <= MOST_BY_SIZE ? td_place_blocks_by_size(plan, u, blocks, n, fixed, end)
                                          : td_place_blocks_in_slots(plan, u, blocks, n, fixed, end);
    for (int64_t i = 0; i < n && !status; i++)
        plan->values[blocks[i].value].offset = blocks[i].offset;
    td_free(blocks);
    return status;
}

/* ---- the pass -------------------------------------------------------------------------------------------------------------------------- */

/* Overlapping blocks whose users are not ordered would be silent corruption: looked for once more, independently. */
static td_status *verify(const td_plan *plan, const td_users *u)
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
                    a_first = a_first && td_happens_before(plan, u->nodes[i], u->nodes[k]);
                    b_first = b_first && td_happens_before(plan, u->nodes[k], u->nodes[i]);
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
    td_users u = {0};
    bool *kept = NULL;
    td_status *status = NULL;
    /* whoever asks for the rows of the next window while this one ends has to know it by then */
    const bool asks_ahead = request->asks_ahead && plan->training && plan->n_served;
    plan->pipelined = !request->options->no_pipeline && (asks_ahead || uses_several_lanes(plan));
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        choose_storage(plan, v);
    choose_views(plan);
    double_outputs(plan);
    TD_TRY_OR(status, done, check_total(plan));
    TD_TRY_OR(status, done, TD_NEW(kept, plan->graph->n_values + 1));
    mark_kept(plan, kept);
    TD_TRY_OR(status, done, find_users(plan, &u));
    if (plan->jit_level > TD_O0)
        TD_TRY_OR(status, done, choose_in_place(plan, &u, kept));
    TD_TRY_OR(status, done, find_users(plan, &u));
    for (int32_t s = 0; s < plan->n_sites; s++)
        TD_TRY_OR(status, done, place_blocks(plan, &u, kept, s));
    TD_TRY_OR(status, done, verify(plan, &u));
done:
    td_free(kept);
    users_deinit(&u);
    return status;
}
