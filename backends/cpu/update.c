/* Optimizer rules over dense and row-sparse gradients, cut over a team: see update.h. */
#include "backends/cpu/update.h"

enum { PARAMETER, GRADIENT, COEFFICIENTS, STATES };

bool td_update_takes(const td_update_rule *rule, const td_kernel_call *call, int32_t first)
{
    int32_t states = call->n_inputs - first;
    const td_tensor *parameter = &call->inputs[0];
    const bool narrow = td_cpu_is(parameter, TD_DENSE, TD_BF16) || td_cpu_is(parameter, TD_DENSE, TD_F16);
    if (states < rule->least_states || states > rule->most_states ||
        (!td_cpu_is(parameter, TD_DENSE, TD_F32) && !narrow))
        return false;
    const bool by_rows = rule->per_row || call->inputs[1].kind == TD_ROW_SPARSE || first != STATES;
    if (narrow && by_rows && td_cpu_product(parameter, 1, parameter->rank) > TD_UPDATE_MOST_NARROW)
        return false;
    for (int32_t i = first; i < call->n_inputs; i++)
        if (!td_cpu_is(&call->inputs[i], TD_DENSE, TD_F32))
            return false;
    return true;
}

void td_update_bind(td_update_target *target, const td_update_rule *rule, const td_kernel_call *call,
                    int32_t coefficients, int32_t first)
{
    const td_tensor *parameter = &call->inputs[0];
    *target = (td_update_target){.rule = rule,
                                 .parameter = parameter->data,
                                 .dtype = parameter->dtype,
                                 .rounding = td_cpu_attr_int(call, "rounding", 0),
                                 .rows = parameter->dims[0],
                                 .dim = td_cpu_product(parameter, 1, parameter->rank),
                                 .coefficients = call->inputs[coefficients].data};
    for (int32_t i = first; i < call->n_inputs; i++)
        target->states[target->n_states++] = call->inputs[i].data;
}

bool td_update_supports(const td_update_rule *rule, const td_kernel_call *call)
{
    const td_tensor *gradient = &call->inputs[GRADIENT];
    return td_update_takes(rule, call, STATES) &&
           (td_cpu_is(gradient, TD_DENSE, TD_F32) || td_cpu_is(gradient, TD_ROW_SPARSE, TD_F32));
}

typedef struct update_work {
    td_update_target target;
    const float *gradient;
    const int64_t *rows; /* of a row-sparse gradient, `count` of them */
    int64_t count;
} update_work;

static void update_elements(void *context, int64_t begin, int64_t end)
{
    const update_work *work = context;
    const td_update_target *target = &work->target;
    float *states[TD_UPDATE_MOST_STATES] = {NULL};
    for (int32_t s = 0; s < target->n_states; s++)
        states[s] = target->states[s] + begin;
    const td_update_rule *rule = target->rule;
    (rule->update_long ? rule->update_long : rule->update)((float *)target->parameter + begin, states,
                                                           work->gradient + begin, end - begin, target->coefficients);
}

/* Of a 16-bit parameter: widened by the piece. */
static void update_narrow_elements(void *context, int64_t begin, int64_t end)
{
    enum { PIECE = 512 };
    const update_work *work = context;
    const td_update_target *target = &work->target;
    uint16_t *parameter = target->parameter;
    float wide[PIECE];
    for (int64_t at = begin; at < end; at += PIECE) {
        const int64_t n = end - at < PIECE ? end - at : PIECE;
        float *states[TD_UPDATE_MOST_STATES] = {NULL};
        for (int32_t s = 0; s < target->n_states; s++)
            states[s] = target->states[s] + at;
        td_widen_row(parameter + at, target->dtype, n, wide);
        target->rule->update(wide, states, work->gradient + at, n, target->coefficients);
        td_narrow_row(wide, target->dtype, at, n, target->rounding, td_update_of(target->coefficients), parameter + at);
    }
}

static void update_all_rows(void *context, int64_t begin, int64_t end)
{
    const update_work *work = context;
    for (int64_t row = begin; row < end; row++)
        td_update_row(&work->target, row, work->gradient + row * work->target.dim);
}

static void update_some_rows(void *context, int64_t begin, int64_t end)
{
    const update_work *work = context;
    for (int64_t i = begin; i < end; i++) {
        if (i + TD_UPDATE_PREFETCH_ROWS < work->count)
            td_update_prefetch(&work->target, work->rows[i + TD_UPDATE_PREFETCH_ROWS]);
        td_update_row(&work->target, work->rows[i], work->gradient + i * work->target.dim);
    }
}

static void update_rows_together(void *context, int64_t begin, int64_t end)
{
    const update_work *work = context;
    const td_update_target *target = &work->target;
    target->rule->update_rows(target->parameter, target->states, work->rows + begin, end - begin, work->count - begin,
                              work->gradient + begin * target->dim, target->dim, target->coefficients);
}

td_status *td_update_run(const td_update_rule *rule, const td_kernel_call *call, td_team *team)
{
    const td_tensor *gradient = &call->inputs[GRADIENT];
    update_work work = {.gradient = gradient->data};
    td_update_bind(&work.target, rule, call, COEFFICIENTS, STATES);
    int64_t rows_per_block = 1 + TD_CPU_BLOCK / (work.target.dim + 1);
    if (gradient->kind == TD_ROW_SPARSE) {
        work.rows = gradient->index;
        work.count = *(const int64_t *)gradient->count;
        const bool together = rule->update_rows && work.target.dtype == TD_F32;
        td_update_for(team, work.count, 1 + rows_per_block / 4, work.count * work.target.dim,
                      together ? update_rows_together : update_some_rows, &work); /* far rows: a quarter pays */
    } else if (rule->per_row) {
        td_update_for(team, work.target.rows, rows_per_block, work.target.rows * work.target.dim, update_all_rows,
                      &work);
    } else {
        td_update_for(team, work.target.rows * work.target.dim, TD_CPU_BLOCK, work.target.rows * work.target.dim,
                      work.target.dtype == TD_F32 ? update_elements : update_narrow_elements, &work);
    }
    return NULL;
}
