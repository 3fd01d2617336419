/* Rule: an operand that the graph fixes to the neutral element. Exact for every bit pattern of x: x * 1, x / 1, x - 0, and
 * x + -0. Not x + 0 and not x - -0: they turn -0 into 0. */
#include <math.h>
#include <string.h>

#include "partition/rewrite.h"

static bool is_neutral(const char *op, int32_t operand, float number)
{
    if (strcmp(op, "mul") == 0)
        return number == 1;
    if (strcmp(op, "div") == 0)
        return operand == 1 && number == 1;
    if (strcmp(op, "sub") == 0)
        return operand == 1 && number == 0 && !signbit(number);
    return strcmp(op, "add") == 0 && number == 0 && signbit(number);
}

td_status *td_rewrite_neutral_element(td_rewriter *r, int32_t node, bool *out_changed)
{
    const td_node *n = &r->graph->nodes[node];
    float number = 0;
    if (n->target || n->n_inputs != 2 || n->n_outputs != 1 || n->inputs[0] < 0 || n->inputs[1] < 0)
        return NULL;
    for (int32_t operand = 0; operand < 2 && !*out_changed; operand++)
        if (td_rewrite_constant(r, n->inputs[operand], &number) && is_neutral(n->op->name, operand, number))
            TD_TRY(td_rewrite_as(r, node, n->inputs[1 - operand], out_changed));
    return NULL;
}
