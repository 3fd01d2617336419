/* embedding_updates: the fused updates of several tables in one op; also of a table that several lookups share.
 *
 * Made by the planner (partition/rewrites, partition/group.c). A part is what embedding_update would be for one lookup,
 * of one rule for all. Parts with the same number in `table` are adjacent and name one table: their gradients, each with its
 * duplicates summed in position order, are added in the order of the parts (as row_sparse_add would), and each touched row
 * is updated once. The gradient of a part may be columns of a wider value: those from `column` on. Nothing is written unless
 * every id and offset of every part is good. */
#include "base/memory.h"
#include "graph/ops/lookup_parts.h"
#include "graph/ops/update_rules.h"

enum { TABLE, GRADIENT, IDS, WEIGHTS, COEFFICIENTS, STATES, PART_INPUTS = STATES + TD_MAX_SLOTS };

static const td_attr_spec attrs[] = {
    {.name = "rule", .type = TD_ATTR_STRING, .required = true, .help = "the optimizer, by name"},
    {.name = "pooling",
     .type = TD_ATTR_INTS,
     .required = true,
     .help = "of each part: 0 a row per id, 1 the sum of a bag's rows, 2 their mean"},
    {.name = "offset", .type = TD_ATTR_INTS, .required = true, .help = "of each part: added to its ids"},
    {.name = "column",
     .type = TD_ATTR_INTS,
     .required = true,
     .help = "of each part: the first of its columns in its gradient value"},
    {.name = "table",
     .type = TD_ATTR_INTS,
     .required = true,
     .help = "of each part: which table, numbered from 0 in the order of the parts"},
    {.name = "rounding",
     .type = TD_ATTR_INTS,
     .required = true,
     .help = "of each part, of a 16-bit table: 0 to nearest, else the key of stochastic rounding"},
    LOOKUP_PART_NAMES,
    {0}};

static int32_t count_states(const td_type *inputs)
{
    int32_t n = 0;
    while (n < TD_MAX_SLOTS && inputs[STATES + n].kind != TD_NONE)
        n++;
    return n;
}

/* ---- shapes ---------------------------------------------------------------------------------------------------------- */

/* The part's columns of a wider gradient as the gradient that embedding_update wants. */
static td_status *cut_columns(const td_infer *infer, int32_t part, td_type *inputs)
{
    int64_t column = lookup_part_number(infer->attrs, infer->n_attrs, "column", part);
    td_shape *gradient = &inputs[GRADIENT].shape;
    const td_shape *table = &inputs[TABLE].shape;
    if (gradient->rank != 2 || table->rank != 2 || gradient->dims[1].extent >= 0)
        return column ? TD_SHAPE_ERROR(infer, "part %d takes columns of a gradient that is no [batch, width]", part)
                      : NULL;
    if (column < 0 || column > gradient->dims[1].constant - table->dims[1].constant)
        return TD_SHAPE_ERROR(infer, "part %d takes columns from %" PRId64 " on of a gradient of %" PRId64, part,
                              column, gradient->dims[1].constant);
    gradient->dims[1] = table->dims[1];
    return NULL;
}

static td_status *check_part(const td_infer *infer, int32_t part)
{
    td_type inputs[PART_INPUTS];
    lookup_part rule = {0};
    memcpy(inputs, &infer->inputs[part * PART_INPUTS], sizeof inputs);
    if (inputs[TABLE].kind == TD_NONE || inputs[GRADIENT].kind == TD_NONE || inputs[IDS].kind == TD_NONE ||
        inputs[COEFFICIENTS].kind == TD_NONE)
        return TD_SHAPE_ERROR(infer, "part %d lacks a table, gradient, ids or coefficients", part);
    TD_TRY(lookup_part_rule(infer, part, &rule));
    TD_TRY(cut_columns(infer, part, inputs));
    const char *pooling = rule.plain ? "none" : rule.attrs[1].s;
    const td_attr part_attrs[3] = {TD_STRING("rule", td_attr_string(infer->attrs, infer->n_attrs, "rule", "")),
                                   TD_STRING("pooling", pooling), rule.attrs[0]};
    td_infer one = {.graph = infer->graph,
                    .op = infer->op,
                    .name = infer->name,
                    .attrs = part_attrs,
                    .n_attrs = 3,
                    .inputs = inputs,
                    .n_inputs = STATES + count_states(inputs)};
    return td_op_find("embedding_update")->infer(&one);
}

static td_status *infer_updates(td_infer *infer)
{
    int32_t n = 0;
    TD_TRY(lookup_parts_count(infer, PART_INPUTS, &n));
    for (int32_t part = 0; part < n; part++) {
        int64_t table = lookup_part_number(infer->attrs, infer->n_attrs, "table", part);
        int64_t before = part ? lookup_part_number(infer->attrs, infer->n_attrs, "table", part - 1) : -1;
        TD_TRY(check_part(infer, part));
        if (table != before + 1 && (table != before || part == 0))
            return TD_SHAPE_ERROR(infer, "part %d is of table %" PRId64 " after table %" PRId64, part, table, before);
        if (table == before &&
            !td_shape_equal(&infer->inputs[part * PART_INPUTS].shape, &infer->inputs[(part - 1) * PART_INPUTS].shape))
            return TD_SHAPE_ERROR(infer, "parts %d and %d are of one table but differ in shape", part - 1, part);
    }
    return NULL;
}

static void cost_updates(const td_kernel_call *call, td_cost *out)
{
    const char *rule = td_attr_string(call->attrs, call->n_attrs, "rule", "");
    *out = (td_cost){0};
    for (int32_t part = 0; part < call->n_inputs / PART_INPUTS; part++) {
        const td_attr part_attrs[1] = {TD_STRING("rule", rule)};
        int32_t states = 0;
        while (states < TD_MAX_SLOTS && call->inputs[part * PART_INPUTS + STATES + states].kind != TD_NONE)
            states++;
        td_kernel_call one = {.struct_size = sizeof one,
                              .op = "embedding_update",
                              .name = call->name,
                              .attrs = part_attrs,
                              .n_attrs = 1,
                              .inputs = &call->inputs[part * PART_INPUTS],
                              .n_inputs = STATES + states};
        td_cost cost = td_op_cost(td_op_find("embedding_update"), &one);
        out->flops += cost.flops;
        out->bytes_read += cost.bytes_read;
        out->bytes_written += cost.bytes_written;
    }
}

/* ---- reference ----------------------------------------------------------------------------------------------------------- */

/* A row-sparse gradient of `room` rows of a table. */
static td_status *make_rows(const td_tensor *table, int64_t room, td_tensor *out)
{
    *out = (td_tensor){
        .kind = TD_ROW_SPARSE, .dtype = TD_F32, .rank = 2, .dims = {table->dims[0], table->dims[1]}, .entries = room};
    out->data = td_calloc((size_t)(room * table->dims[1]) + 1, sizeof(float));
    out->index = td_calloc((size_t)room + 1, sizeof(int64_t));
    out->count = td_calloc(1, sizeof(int64_t));
    return out->data && out->index && out->count ? NULL
                                                 : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a table's gradient");
}

static void free_rows(td_tensor *t)
{
    td_free(t->data);
    td_free(t->index);
    td_free(t->count);
    *t = (td_tensor){0};
}

/* The part's columns of its gradient value, as a value of their own. */
static td_status *copy_columns(const td_kernel_call *call, int32_t part, td_tensor *out)
{
    const td_tensor *inputs = &call->inputs[part * PART_INPUTS];
    int64_t dim = inputs[TABLE].dims[1], width = td_tensor_last(&inputs[GRADIENT]);
    int64_t rows = td_tensor_rows(&inputs[GRADIENT]);
    const float *from = inputs[GRADIENT].data;
    float *to = NULL;
    *out = inputs[GRADIENT];
    out->dims[out->rank - 1] = dim;
    TD_TRY(TD_NEW(to, rows * dim + 1));
    out->data = to;
    if (rows)
        from += lookup_part_number(call->attrs, call->n_attrs, "column", part);
    for (int64_t row = 0; row < rows; row++)
        memcpy(to + row * dim, from + row * width, (size_t)dim * sizeof *to);
    return NULL;
}

static td_status *part_gradient(const td_kernel_call *call, int32_t part, td_tensor *out)
{
    const td_tensor *inputs = &call->inputs[part * PART_INPUTS];
    const td_tensor *ids = &inputs[IDS];
    lookup_part rule = {0};
    td_tensor columns = {0};
    lookup_part_of_call(call, part, &rule);
    td_status *status = make_rows(&inputs[TABLE], ids->kind == TD_RAGGED ? ids->entries : td_tensor_elements(ids), out);
    if (!status)
        status = copy_columns(call, part, &columns);
    const td_tensor arguments[3] = {*ids, columns, inputs[WEIGHTS]};
    td_kernel_call one = {.struct_size = sizeof one,
                          .op = rule.plain ? "embedding_gradient" : "embedding_bag_gradient",
                          .name = rule.name,
                          .attrs = rule.attrs,
                          .n_attrs = rule.n_attrs,
                          .inputs = arguments,
                          .n_inputs = rule.plain ? 2 : 3,
                          .outputs = out,
                          .n_outputs = 1};
    if (!status)
        status = td_op_reference(one.op)(&one);
    td_free(columns.data);
    return status;
}

/* sum = sum + more; takes both. */
static td_status *add_rows(td_tensor *sum, td_tensor *more)
{
    td_tensor both = {0};
    td_status *status = make_rows(sum, sum->entries + more->entries, &both);
    const td_tensor terms[2] = {*sum, *more};
    td_kernel_call add = {.struct_size = sizeof add,
                          .op = "row_sparse_add",
                          .name = "sum",
                          .inputs = terms,
                          .n_inputs = 2,
                          .outputs = &both,
                          .n_outputs = 1};
    if (!status)
        status = td_op_reference("row_sparse_add")(&add);
    free_rows(sum);
    free_rows(more);
    *sum = both;
    return status;
}

static td_status *table_gradient(const td_kernel_call *call, int32_t first, int32_t last, td_tensor *sum)
{
    td_status *status = part_gradient(call, first, sum);
    for (int32_t part = first + 1; part < last && !status; part++) {
        td_tensor more = {0};
        status = part_gradient(call, part, &more);
        if (!status)
            status = add_rows(sum, &more);
        free_rows(&more);
    }
    return status;
}

static td_status *update_table(const td_kernel_call *call, int32_t first, int32_t last)
{
    const td_rule *rule = td_rule_find(td_attr_string(call->attrs, call->n_attrs, "rule", ""));
    td_kernel_call one = *call;
    td_tensor gradient = {0};
    one.inputs = &call->inputs[first * PART_INPUTS];
    one.n_inputs = STATES;
    while (one.n_inputs < PART_INPUTS && one.inputs[one.n_inputs].kind != TD_NONE)
        one.n_inputs++;
    update_target target = update_bind(rule, &one, COEFFICIENTS, STATES);
    target.rounding = lookup_part_number(call->attrs, call->n_attrs, "rounding", first);
    td_status *status = table_gradient(call, first, last, &gradient);
    for (int64_t i = 0; !status && i < *(int64_t *)gradient.count; i++)
        status = update_row(&target, ((int64_t *)gradient.index)[i], (float *)gradient.data + i * target.dim);
    free_rows(&gradient);
    return status;
}

static td_status *check_ids(const td_kernel_call *call, int32_t part)
{
    const td_tensor *inputs = &call->inputs[part * PART_INPUTS];
    td_kernel_call named = *call;
    lookup_part rule = {0};
    td_lookup lookup;
    lookup_part_of_call(call, part, &rule);
    named.name = rule.name;
    td_lookup_init(&lookup, &named, &inputs[IDS], rule.plain, rule.attrs[0].i, inputs[TABLE].dims[0]);
    return td_lookup_check(&lookup);
}

static td_status *reference_updates(const td_kernel_call *call)
{
    int32_t n = call->n_inputs / PART_INPUTS, last;
    for (int32_t part = 0; part < n; part++)
        TD_TRY(check_ids(call, part));
    for (int32_t first = 0; first < n; first = last) {
        int64_t table = lookup_part_number(call->attrs, call->n_attrs, "table", first);
        for (last = first + 1; last < n; last++)
            if (lookup_part_number(call->attrs, call->n_attrs, "table", last) != table)
                break;
        TD_TRY(update_table(call, first, last));
    }
    return NULL;
}

const td_op td_op_embedding_updates = {
    .name = "embedding_updates",
    .summary = "the fused updates of several tables, or of a table that several lookups share",
    .inputs = {{"table", TD_PORT_WRITES | TD_PORT_VARIADIC},
               {"gradient", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC},
               {"ids", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC},
               {"weights", TD_PORT_NO_GRADIENT | TD_PORT_OPTIONAL | TD_PORT_VARIADIC},
               {"coefficients", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC},
               {"state", TD_PORT_WRITES | TD_PORT_VARIADIC | TD_PORT_OPTIONAL},
               {"state", TD_PORT_WRITES | TD_PORT_VARIADIC | TD_PORT_OPTIONAL},
               {"state", TD_PORT_WRITES | TD_PORT_VARIADIC | TD_PORT_OPTIONAL}},
    .repeats = PART_INPUTS,
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_updates,
    .no_gradient = "it is an update",
    .cost = cost_updates,
    .reference = reference_updates,
};
