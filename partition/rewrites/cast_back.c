/* Rule: x -> wider -> the dtype of x is x, where the wider dtype holds every value of the narrower: 16-bit floats in f32 and
 * f64, f32 in f64, i32 in i64 and f64, and bytes in all of them. */
#include "partition/rewrite.h"

static bool holds_all(td_dtype wide, td_dtype narrow)
{
    static const unsigned narrower[TD_DTYPE_COUNT] = {
        [TD_F32] = 1 << TD_F16 | 1 << TD_BF16 | 1 << TD_U8,
        [TD_F64] = 1 << TD_F32 | 1 << TD_F16 | 1 << TD_BF16 | 1 << TD_I32 | 1 << TD_U8,
        [TD_I64] = 1 << TD_I32 | 1 << TD_U8,
        [TD_I32] = 1 << TD_U8,
    };
    return narrower[wide] >> narrow & 1;
}

td_status *td_rewrite_cast_back(td_rewriter *r, int32_t node, bool *out_changed)
{
    const td_node *n = &r->graph->nodes[node];
    if (!td_rewrite_is(r, node, "cast") || n->target)
        return NULL;
    const td_node *before = td_rewrite_maker(r, n->inputs[0]);
    if (!before || before->op != n->op)
        return NULL;
    td_dtype wide = r->graph->values[n->inputs[0]].dtype, narrow = r->graph->values[n->outputs[0]].dtype;
    return holds_all(wide, narrow) ? td_rewrite_as(r, node, before->inputs[0], out_changed) : NULL;
}
