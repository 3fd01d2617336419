/* From a batch to the actual arguments of a step: extents are learnt from it, and arguments that are inputs point at its
 * memory. Which arguments those are is found once, when the session is made; a step goes through that list and, unless its
 * extents differ from those of two steps before, through nothing else. See session.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/session.h"

/* ---- which arguments are inputs ----------------------------------------------------------------------------------------- */

static td_status *find_inputs(td_session *session, int32_t *input_of_value)
{
    const td_plan *plan = session->plan;
    for (int32_t v = 0; v < plan->graph->n_values; v++)
        session->n_inputs += plan->values[v].storage == TD_BOUND;
    TD_TRY(TD_NEW(session->inputs, session->n_inputs + 1));
    for (int32_t v = 0, n = 0; v < plan->graph->n_values; v++)
        if (plan->values[v].storage == TD_BOUND) {
            input_of_value[v] = n;
            session->inputs[n++].value = v;
        }
    return NULL;
}

/* Calls fill (or only counts) for each argument that is an input, or an input of the step before. */
static int64_t list_arguments(td_session *session, const int32_t *input_of_value, td_bound_argument *fill)
{
    const td_plan *plan = session->plan;
    int64_t n = 0;
    for (int32_t c = 0; c < plan->n_clusters; c++)
        for (int32_t k = 0; k < session->clusters[c].n_instructions; k++) {
            const td_instruction *in = &session->clusters[c].instructions[k];
            for (int32_t i = 0; i < in->call[0].n_inputs; i++) {
                int32_t root = in->values[i] < 0 ? -1 : td_plan_root(plan, in->values[i]);
                td_storage storage = root < 0 ? TD_STORE : plan->values[root].storage;
                if (storage != TD_BOUND && storage != TD_PREVIOUS)
                    continue;
                int32_t input = storage == TD_BOUND ? root : plan->values[root].root;
                if (fill)
                    fill[n] = (td_bound_argument){.input = input_of_value[input],
                                                  .previous = storage == TD_PREVIOUS,
                                                  .tensors = {&in->tensors[0][i], &in->tensors[1][i]}};
                n++;
            }
        }
    return n;
}

static void count_bytes(td_session *session, int32_t parity)
{
    for (int ends = 0; ends < 2; ends++)
        td_plan_copy_bytes_of(session->plan, session->parity_extents[parity], ends,
                              &session->to_device_bytes[parity][ends], &session->to_host_bytes[parity][ends]);
}

td_status *td_session_bind_inputs(td_session *session)
{
    int32_t *input_of_value = NULL;
    td_status *status = NULL;
    TD_TRY(TD_NEW(input_of_value, session->plan->graph->n_values + 1));
    TD_TRY_OR(status, done, find_inputs(session, input_of_value));
    session->n_arguments = list_arguments(session, input_of_value, NULL);
    TD_TRY_OR(status, done, TD_NEW(session->arguments, session->n_arguments + 1));
    (void)list_arguments(session, input_of_value, session->arguments);
    for (int32_t p = 0; p < TD_PARITIES; p++)
        count_bytes(session, p);
done:
    td_free(input_of_value);
    return status;
}

/* ---- extents ------------------------------------------------------------------------------------------------------------ */

/* What one dimension says about its extent. */
static td_status *learn_extent(td_session *session, const char *input, const char *what, td_dim dim, int64_t actual)
{
    const td_graph *graph = session->plan->graph;
    if (dim.extent < 0) {
        if (actual == dim.constant)
            return NULL;
        return TD_ERROR(TD_INVALID_ARGUMENT, "input \"%s\": %s is %" PRId64 ", the graph says %" PRId64, input, what,
                        actual, dim.constant);
    }
    const td_extent_info *extent = &graph->extents[dim.extent];
    int64_t size = actual - dim.constant;
    if (size < 0 || size % dim.multiple)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "input \"%s\": %s is %" PRId64 ", not a multiple of what extent \"%s\" stands for", input, what,
                        actual, extent->name);
    size /= dim.multiple;
    if (size > extent->capacity)
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT,
                                       "input \"%s\": %s needs extent \"%s\" = %" PRId64
                                       ", beyond its capacity %" PRId64,
                                       input, what, extent->name, size, extent->capacity),
                              "plan with a larger capacity (a larger batch)");
    if (session->extents[dim.extent] >= 0 && session->extents[dim.extent] != size)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "input \"%s\": %s makes extent \"%s\" = %" PRId64 ", another input %" PRId64, input, what,
                        extent->name, size, session->extents[dim.extent]);
    session->extents[dim.extent] = size;
    return NULL;
}

/* The batch's field for an input: most sources give the same fields in the same order every time. */
static const td_field *find_field(const td_batch *batch, const char *name, int32_t *place)
{
    if (*place < batch->n_fields && strcmp(batch->fields[*place].name, name) == 0)
        return &batch->fields[*place];
    for (int32_t i = 0; i < batch->n_fields; i++)
        if (strcmp(batch->fields[i].name, name) == 0) {
            *place = i;
            return &batch->fields[i];
        }
    return NULL;
}

static const char *const dimension_names[TD_MAX_RANK] = {"dimension 0", "dimension 1", "dimension 2",
                                                         "dimension 3", "dimension 4", "dimension 5"};

static td_status *learn_input(td_session *session, const td_batch *batch, td_bound_input *input)
{
    const td_value_info *info = &session->plan->graph->values[input->value];
    const td_field *field = find_field(batch, info->name, &input->field);
    if (!field)
        return TD_ERROR(TD_NOT_FOUND, "the batch has no field \"%s\", an input of the graph", info->name);
    const td_tensor *t = &field->tensor;
    if (t->kind != info->kind || t->dtype != info->dtype || t->rank != info->shape.rank)
        return TD_ERROR(TD_INVALID_ARGUMENT, "input \"%s\": the batch has %s of rank %d, the graph wants %s of rank %d",
                        info->name, td_dtype_name(t->dtype), t->rank, td_dtype_name(info->dtype), info->shape.rank);
    for (int32_t i = 0; i < t->rank; i++)
        TD_TRY(learn_extent(session, info->name, dimension_names[i], info->shape.dims[i], t->dims[i]));
    if (t->kind == TD_RAGGED)
        TD_TRY(learn_extent(session, info->name, "the number of ids", info->entries, t->entries));
    return NULL;
}

/* New extents reach every argument of the parity. */
static void refresh(td_session *session, int32_t parity)
{
    const td_plan *plan = session->plan;
    for (int32_t c = 0; c < plan->n_clusters; c++)
        for (int32_t k = 0; k < session->clusters[c].n_instructions; k++) {
            td_instruction *in = &session->clusters[c].instructions[k];
            const td_kernel_call *call = &in->call[parity];
            for (int32_t i = 0; i < call->n_inputs + call->n_outputs; i++) {
                td_tensor *t = &in->tensors[parity][i];
                if (in->values[i] < 0 || t->kind == TD_SCALAR)
                    continue;
                td_tensor sized;
                td_value_tensor(plan->graph, in->values[i], session->extents, &sized);
                memcpy(t->dims, sized.dims, sizeof t->dims);
                t->entries = sized.entries;
            }
            if (in->kind == TD_RUN_COPY)
                td_value_bytes(plan->graph, td_copied_to(&plan->graph->nodes[in->node]), session->extents,
                               in->copy_bytes[parity]);
        }
}

/* ---- addresses ---------------------------------------------------------------------------------------------------------- */

static void point_at_batch(td_session *session, const td_step_slot *slot, const td_step_slot *previous, int32_t parity)
{
    for (int64_t i = 0; i < session->n_arguments; i++) {
        const td_bound_argument *argument = &session->arguments[i];
        const td_bound_input *input = &session->inputs[argument->input];
        td_tensor *t = argument->tensors[parity];
        if (!argument->previous) {
            const td_tensor *from = &slot->batch.fields[input->field].tensor;
            t->data = from->data;
            t->index = from->index;
        } else if (previous && previous->has_batch) {
            int32_t place = input->field;
            *t = find_field(&previous->batch, session->plan->graph->values[input->value].name, &place)->tensor;
        } else { /* no step before this one in this run: nothing of it is still to be updated */
            t->dims[0] = 0;
            t->entries = 0;
        }
    }
}

td_status *td_session_bind_batch(td_session *session, td_step_slot *slot, const td_step_slot *previous)
{
    const td_plan *plan = session->plan;
    int32_t parity = (int32_t)(slot->step % TD_PARITIES);
    for (int64_t e = 0; e < plan->graph->n_extents; e++)
        session->extents[e] = -1;
    for (int32_t i = 0; i < session->n_inputs; i++)
        TD_TRY(learn_input(session, &slot->batch, &session->inputs[i]));
    for (int64_t e = 0; e < plan->graph->n_extents; e++)
        if (session->extents[e] < 0)
            session->extents[e] = plan->graph->extents[e].capacity;
    size_t bytes = (size_t)plan->graph->n_extents * sizeof *session->extents;
    if (memcmp(session->extents, session->parity_extents[parity], bytes) != 0) {
        refresh(session, parity);
        memcpy(session->parity_extents[parity], session->extents, bytes);
        count_bytes(session, parity);
    }
    point_at_batch(session, slot, previous, parity);
    slot->to_device_bytes = session->to_device_bytes[parity][slot->ends_window];
    slot->to_host_bytes = session->to_host_bytes[parity][slot->ends_window];
    return NULL;
}
