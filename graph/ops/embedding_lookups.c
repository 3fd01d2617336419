/* embedding_lookups: several lookups in one op, which share one dispatch over the threads, and may write side by side.
 *
 * Made by the planner (partition/group.c) of embedding and embedding_bag nodes of one subgraph. Each lookup is a part: a
 * table, ids, and per-id weights or nothing. Without `concat` there is one output per part, the same as its own op would
 * give. With `concat` there is one output [batch, sum of the widths], the parts' columns one after another; a part without a
 * table is then a dense value [batch, width] in the place of the ids, whose columns are copied. */
#include "base/memory.h"
#include "graph/ops/lookup_parts.h"

enum { TABLE, IDS, WEIGHTS };

static const td_attr_spec attrs[] = {
    {.name = "pooling",
     .type = TD_ATTR_INTS,
     .required = true,
     .help = "of each part: 0 a row per id, 1 the sum of a bag's rows, 2 their mean"},
    {.name = "offset", .type = TD_ATTR_INTS, .required = true, .help = "of each part: added to its ids"},
    {.name = "concat", .type = TD_ATTR_BOOL, .help = "one output with the parts' columns one after another"},
    {.name = "outputs", .type = TD_ATTR_INT, .required = true, .help = "how many: 1, or one per part"},
    LOOKUP_PART_NAMES,
    {0}};

/* ---- shapes ---------------------------------------------------------------------------------------------------------- */

static td_status *part_type(const td_infer *infer, int32_t part, td_type *out)
{
    const td_type *inputs = &infer->inputs[part * LOOKUP_PART_INPUTS];
    lookup_part rule = {0};
    if (inputs[TABLE].kind == TD_NONE) {
        if (inputs[IDS].kind != TD_DENSE || inputs[IDS].dtype != TD_F32 || inputs[IDS].shape.rank != 2)
            return TD_SHAPE_ERROR(infer, "part %d has no table, so it must be a dense f32 [batch, width]", part);
        *out = inputs[IDS];
        return NULL;
    }
    TD_TRY(lookup_part_rule(infer, part, &rule));
    td_infer one = {.graph = infer->graph,
                    .op = infer->op,
                    .name = infer->name,
                    .attrs = rule.attrs,
                    .n_attrs = rule.n_attrs,
                    .inputs = inputs,
                    .n_inputs = rule.plain ? 2 : LOOKUP_PART_INPUTS,
                    .outputs = out,
                    .n_outputs = 1};
    if (rule.plain && inputs[WEIGHTS].kind != TD_NONE)
        return TD_SHAPE_ERROR(infer, "per-id weights need bags: pooling 1 or 2");
    return td_op_find(rule.op)->infer(&one);
}

static td_status *add_columns(const td_infer *infer, int32_t part, const td_type *type, td_type *total)
{
    if (type->shape.rank != 2 || type->shape.dims[1].extent >= 0)
        return TD_SHAPE_ERROR(infer, "part %d must be [batch, width] to stand beside others", part);
    if (part == 0) {
        *total = *type;
        return NULL;
    }
    if (!td_dim_equal(total->shape.dims[0], type->shape.dims[0]))
        return TD_SHAPE_ERROR(infer, "part %d has another batch than part 0", part);
    (void)td_dim_add(total->shape.dims[1], type->shape.dims[1], &total->shape.dims[1]);
    return NULL;
}

static td_status *infer_lookups(td_infer *infer)
{
    bool concat = td_attr_int(infer->attrs, infer->n_attrs, "concat", 0);
    int32_t n = 0;
    TD_TRY(lookup_parts_count(infer, LOOKUP_PART_INPUTS, &n));
    if (infer->n_outputs != (concat ? 1 : n))
        return TD_SHAPE_ERROR(infer, "%d outputs for %d parts", infer->n_outputs, n);
    for (int32_t part = 0; part < n; part++) {
        td_type type = {0};
        TD_TRY(part_type(infer, part, &type));
        if (concat)
            TD_TRY(add_columns(infer, part, &type, &infer->outputs[0]));
        else if (infer->inputs[part * LOOKUP_PART_INPUTS].kind == TD_NONE)
            return TD_SHAPE_ERROR(infer, "part %d has no table", part);
        else
            infer->outputs[part] = type;
    }
    return NULL;
}

/* ---- cost and reference -------------------------------------------------------------------------------------------------- */

/* The call of one part, into `out` (of a temporary of its own with `concat`). */
static void part_call(const td_kernel_call *call, int32_t part, const lookup_part *rule, td_tensor *out,
                      td_kernel_call *out_call)
{
    *out_call = (td_kernel_call){.struct_size = sizeof *out_call,
                                 .op = rule->op,
                                 .name = rule->name,
                                 .attrs = rule->attrs,
                                 .n_attrs = rule->n_attrs,
                                 .inputs = &call->inputs[part * LOOKUP_PART_INPUTS],
                                 .n_inputs = rule->plain ? 2 : LOOKUP_PART_INPUTS,
                                 .outputs = out,
                                 .n_outputs = 1};
}

static bool is_concat(const td_kernel_call *call)
{
    return td_attr_int(call->attrs, call->n_attrs, "concat", 0) != 0;
}

/* The output of one part as its own op would have it. */
static td_tensor part_output(const td_kernel_call *call, int32_t part)
{
    if (!is_concat(call))
        return call->outputs[part];
    td_tensor out = call->outputs[0];
    const td_tensor *inputs = &call->inputs[part * LOOKUP_PART_INPUTS];
    out.dims[1] = inputs[inputs[TABLE].kind == TD_NONE ? IDS : TABLE].dims[1];
    out.data = NULL;
    return out;
}

static void cost_lookups(const td_kernel_call *call, td_cost *out)
{
    *out = (td_cost){0};
    for (int32_t part = 0; part < call->n_inputs / LOOKUP_PART_INPUTS; part++) {
        td_tensor output = part_output(call, part);
        td_cost one = {0, (double)td_tensor_bytes(&output), (double)td_tensor_bytes(&output)};
        lookup_part rule;
        td_kernel_call single;
        if (call->inputs[part * LOOKUP_PART_INPUTS + TABLE].kind != TD_NONE) {
            lookup_part_of_call(call, part, &rule);
            part_call(call, part, &rule, &output, &single);
            one = td_op_cost(td_op_find(rule.op), &single);
        }
        out->flops += one.flops;
        out->bytes_read += one.bytes_read;
        out->bytes_written += one.bytes_written;
    }
}

static td_status *look_up(const td_kernel_call *call, int32_t part, td_tensor *output)
{
    lookup_part rule = {0};
    td_kernel_call single;
    lookup_part_of_call(call, part, &rule);
    part_call(call, part, &rule, output, &single);
    return td_op_find(rule.op)->reference(&single);
}

/* Columns [begin, ..) of the one output. */
static td_status *fill_columns(const td_kernel_call *call, int32_t part, int64_t begin)
{
    const td_tensor *inputs = &call->inputs[part * LOOKUP_PART_INPUTS], *whole = &call->outputs[0];
    td_tensor output = part_output(call, part);
    const float *from = inputs[IDS].data;
    float *buffer = NULL;
    td_status *status = NULL;
    if (inputs[TABLE].kind != TD_NONE) {
        TD_TRY(TD_NEW(buffer, td_tensor_elements(&output) + 1));
        from = output.data = buffer;
        status = look_up(call, part, &output);
    }
    for (int64_t row = 0; row < output.dims[0] && !status; row++)
        memcpy((float *)whole->data + row * whole->dims[1] + begin, from + row * output.dims[1],
               (size_t)output.dims[1] * sizeof *from);
    td_free(buffer);
    return status;
}

static td_status *reference_lookups(const td_kernel_call *call)
{
    td_status *status = NULL;
    int64_t begin = 0;
    for (int32_t part = 0; part < call->n_inputs / LOOKUP_PART_INPUTS && !status; part++) {
        td_tensor output = part_output(call, part);
        status = is_concat(call) ? fill_columns(call, part, begin) : look_up(call, part, &output);
        begin += is_concat(call) ? output.dims[1] : 0;
    }
    return status;
}

const td_op td_op_embedding_lookups = {
    .name = "embedding_lookups",
    .summary = "several lookups in one, side by side in one value if asked, made by the planner",
    .inputs = {{"table", TD_PORT_OPTIONAL | TD_PORT_VARIADIC},
               {"ids", TD_PORT_NO_GRADIENT | TD_PORT_VARIADIC},
               {"weights", TD_PORT_OPTIONAL | TD_PORT_VARIADIC}},
    .repeats = LOOKUP_PART_INPUTS,
    .outputs = {{"output", TD_PORT_VARIADIC}},
    .attrs = attrs,
    .flags = TD_OP_INTERNAL,
    .infer = infer_lookups,
    .no_gradient = "it is put in after differentiation",
    .cost = cost_lookups,
    .reference = reference_lookups,
};
