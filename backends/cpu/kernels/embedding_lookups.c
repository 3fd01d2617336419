/* embedding, embedding_bag and embedding_lookups: rows copied, bags pooled, for one table or several.
 *
 * A part is one lookup, or columns that are only copied (see graph/ops/embedding_lookups.c). Each is cut into runs of bags by
 * shape alone; the runs of all parts are one list that the team works off. Rows are asked for ahead of their use. */
#include "backends/cpu/bags.h"

enum { TABLE, IDS, WEIGHTS, PART_INPUTS };
enum { PLAIN = 0, SUM, MEAN }; /* numbers of the attribute "pooling" */

typedef struct part {
    td_bags bags;
    const float *dense; /* columns to copy, `bags.lookup.dim` wide; NULL: a lookup */
    float *out;
    int64_t pitch; /* of `out`, in floats */
    int64_t rows;  /* of the output: bags, or rows of the columns */
    int64_t block, first_run;
    bool plain;
} part;

typedef struct work {
    part *parts;
    int32_t n;
    int64_t runs;
} work;

/* ---- running --------------------------------------------------------------------------------------------------------- */

static void copy_columns(const part *p, int64_t begin, int64_t end)
{
    const int64_t dim = p->bags.lookup.dim;
    for (int64_t i = begin; i < end; i++)
        memcpy(p->out + i * p->pitch, p->dense + i * dim, (size_t)dim * sizeof(float));
}

/* Ids are checked, and the first rows asked for, a little ahead of their use: reading all ids of a run at once would wait for
 * the memory that holds them. */
typedef struct ahead {
    td_cpu_lookup *lookup;
    int64_t checked, end; /* positions: good ones end here, the run's end there */
} ahead;

enum { CHECK = 64 }; /* ids at once, at least */

/* Whether the ids before `position`, and those whose rows are asked for meanwhile, are good. */
static inline bool good_until(ahead *a, int64_t position)
{
    int64_t wanted = position + TD_LOOKUP_PREFETCH;
    if (wanted <= a->checked || a->checked == a->end)
        return true;
    wanted = wanted + CHECK < a->end ? wanted + CHECK : a->end;
    if (!td_cpu_lookup_good(a->lookup, a->checked, wanted))
        return false;
    a->checked = wanted;
    return true;
}

static void copy_rows(const part *p, int64_t begin, int64_t end, ahead *a)
{
    const td_cpu_lookup *lookup = &p->bags.lookup;
    for (int64_t i = begin; i < end && good_until(a, i + 1); i++) {
        if (i + TD_LOOKUP_PREFETCH < end)
            td_cpu_lookup_prefetch(lookup, i + TD_LOOKUP_PREFETCH);
        td_bag_copy_row(lookup, i, p->out + i * p->pitch);
    }
}

static void pool(const part *p, int64_t first, int64_t last, ahead *a)
{
    const td_lookup *ids = &p->bags.lookup.ids;
    for (int64_t bag = first; bag < last; bag++) {
        const int64_t end = td_lookup_begin(ids, bag + 1);
        if (!good_until(a, end))
            return;
        td_bag_pool(&p->bags, td_lookup_begin(ids, bag), end, a->checked, p->out + bag * p->pitch);
    }
}

/* Bags of one id and 16 columns: a row times its weight. */
static void scale_rows(const part *p, int64_t begin, int64_t end, ahead *a)
{
    const td_cpu_lookup *lookup = &p->bags.lookup;
    for (int64_t i = begin; i < end && good_until(a, i + 1); i++) {
        if (i + TD_LOOKUP_PREFETCH < end)
            td_cpu_lookup_prefetch(lookup, i + TD_LOOKUP_PREFETCH);
        const v16 row = td_bag_load16(td_cpu_lookup_row(lookup, i), lookup->dtype, 0);
        v16_store(p->out + i * p->pitch, v16_fma(v16_set(p->bags.weights[i]), row, v16_set(0)));
    }
}

static void run_rows(part *p, int64_t first, int64_t last)
{
    td_cpu_lookup *lookup = &p->bags.lookup;
    if (p->dense) {
        copy_columns(p, first, last);
        return;
    }
    const int64_t begin = td_lookup_begin(&lookup->ids, first), end = td_lookup_begin(&lookup->ids, last);
    ahead a = {lookup, begin, end};
    if (!good_until(&a, begin))
        return;
    for (int64_t i = begin; i < a.checked && i < begin + TD_LOOKUP_PREFETCH; i++)
        td_cpu_lookup_prefetch(lookup, i);
    if (p->plain)
        copy_rows(p, first, last, &a);
    else if (!lookup->ids.offsets && lookup->ids.length == 1 && lookup->dim == 16 && p->bags.weights)
        scale_rows(p, first, last, &a);
    else
        pool(p, first, last, &a);
}

static void run_one(void *context, int64_t run, int32_t thread)
{
    (void)thread;
    const work *w = context;
    int32_t low = 0, high = w->n;
    while (high - low > 1) { /* the last part that begins at or before this run */
        const int32_t middle = (low + high) / 2;
        if (w->parts[middle].first_run <= run)
            low = middle;
        else
            high = middle;
    }
    part *p = &w->parts[low];
    const int64_t begin = (run - p->first_run) * p->block, end = begin + p->block;
    run_rows(p, begin, end < p->rows ? end : p->rows);
}

static td_status *run_parts(work *w, td_team *team)
{
    td_status *status = NULL;
    for (int32_t i = 0; i < w->n; i++) {
        part *p = &w->parts[i];
        const td_lookup *ids = &p->bags.lookup.ids;
        if (!p->dense)
            TD_TRY(td_lookup_check_offsets(ids));
        p->block = td_cpu_lookup_block(p->rows, p->dense ? p->rows : ids->count, p->bags.lookup.dim);
        p->first_run = w->runs;
        w->runs += p->rows / p->block + (p->rows % p->block != 0);
    }
    td_team_run_dynamic(team, w->runs, run_one, w);
    for (int32_t i = 0; i < w->n && !status; i++)
        if (!w->parts[i].dense)
            status = td_cpu_lookup_result(&w->parts[i].bags.lookup);
    return status;
}

/* ---- one lookup ------------------------------------------------------------------------------------------------------ */

static bool supports_lookup(const td_tensor *inputs)
{
    return td_cpu_lookup_takes_table(&inputs[TABLE]) && td_cpu_lookup_takes_ids(&inputs[IDS]);
}

static void init_lookup(part *p, const td_kernel_call *call, const td_tensor *inputs, int32_t n_inputs, int32_t pooling,
                        int64_t offset)
{
    p->plain = pooling == PLAIN;
    p->bags.mean = pooling == MEAN;
    p->bags.weights = n_inputs > WEIGHTS && inputs[WEIGHTS].kind != TD_NONE ? inputs[WEIGHTS].data : NULL;
    td_cpu_lookup_init(&p->bags.lookup, call, &inputs[IDS], p->plain, &inputs[TABLE]);
    p->bags.lookup.ids.offset = offset;
    p->rows = p->bags.lookup.ids.bags;
}

static bool supports(const td_kernel_call *call)
{
    return supports_lookup(call->inputs);
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    const bool bags = strcmp(call->op, "embedding_bag") == 0;
    const bool mean = strcmp(td_cpu_attr_string(call, "pooling", "sum"), "mean") == 0;
    part one = {.out = call->outputs[0].data, .pitch = call->inputs[TABLE].dims[1]};
    work w = {.parts = &one, .n = 1};
    init_lookup(&one, call, call->inputs, call->n_inputs,
                !bags  ? PLAIN
                : mean ? MEAN
                       : SUM,
                td_cpu_attr_int(call, "offset", 0));
    return run_parts(&w, team);
}

const td_cpu_kernel TD_KERNEL(embedding) = {.op = "embedding", .supports = supports, .run = run};
const td_cpu_kernel TD_KERNEL(embedding_bag) = {.op = "embedding_bag", .supports = supports, .run = run};

/* ---- several --------------------------------------------------------------------------------------------------------- */

static bool supports_all(const td_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i += PART_INPUTS)
        if (call->inputs[i + TABLE].kind != TD_NONE && !supports_lookup(&call->inputs[i]))
            return false;
    return true;
}

static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    return (size_t)(call->n_inputs / PART_INPUTS) * sizeof(part);
}

static void init_part(part *p, const td_kernel_call *call, int32_t index)
{
    const td_tensor *inputs = &call->inputs[index * PART_INPUTS];
    memset(p, 0, sizeof *p);
    if (inputs[TABLE].kind == TD_NONE) {
        p->dense = inputs[IDS].data;
        p->rows = inputs[IDS].dims[0];
        p->bags.lookup.dim = inputs[IDS].dims[1];
        return;
    }
    const td_attr *poolings = td_cpu_attr(call, "pooling"), *offsets = td_cpu_attr(call, "offset");
    init_lookup(p, call, inputs, PART_INPUTS, (int32_t)poolings->ints[index], offsets->ints[index]);
    td_cpu_lookup_name(&p->bags.lookup.ids, p->plain ? "embedding" : "embedding_bag",
                       td_cpu_attr_string(call, "names", NULL), index);
}

static td_status *run_all(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    work w = {.parts = call->scratch, .n = call->n_inputs / PART_INPUTS};
    const bool concat = td_cpu_attr_bool(call, "concat", false);
    int64_t column = 0;
    for (int32_t i = 0; i < w.n; i++) {
        part *p = &w.parts[i];
        init_part(p, call, i);
        p->out = concat ? (float *)call->outputs[0].data : call->outputs[i].data;
        p->pitch = concat ? call->outputs[0].dims[1] : p->bags.lookup.dim;
        if (concat && p->out)
            p->out += column;
        column += p->bags.lookup.dim;
    }
    return run_parts(&w, team);
}

const td_cpu_kernel TD_KERNEL(embedding_lookups) = {
    .op = "embedding_lookups", .supports = supports_all, .scratch_bytes = scratch_bytes, .run = run_all};
