/* One case at one set of extents: the reference, the device with one to three threads, in place, and beside a peer. */
#include <inttypes.h>
#include <string.h>

#include "tests/conformance/conformance.h"

enum { MOST_THREADS = 3 };

/* Libraries' own kernels: sums of some hundred products of numbers around 1, in another order. */
static const double near_tolerance = 2e-5;

static td_status *run_reference(const built_case *built, int32_t shared_output, int32_t shared_input, arguments *a)
{
    td_tensor tensors[2 * MAX_ARGUMENTS];
    const td_kernel_call call = arguments_call(built, a, tensors);
    if (shared_output >= 0) {
        tensors[MAX_ARGUMENTS + shared_output].data = tensors[shared_input].data;
    }
    td_status *(*reference)(const td_kernel_call *) = td_op_reference(call.op);
    if (!reference)
        return TD_ERROR(TD_INTERNAL, "it has no reference kernel");
    TD_TRY(reference(&call));
    if (shared_output >= 0)
        memcpy(a->outputs[shared_output].tensor.data, a->inputs[shared_input].tensor.data,
               (size_t)a->outputs[shared_output].bytes[0]);
    return NULL;
}

/* Takes `status`: it must be a refusal of the data that names the node. */
static td_status *expect_refusal(td_status *status, const char *who)
{
    const bool good = td_status_code(status) == TD_DATA_ERROR && strstr(td_status_message(status), "node");
    td_status *wrong =
        good     ? NULL
        : status ? TD_ERROR(TD_INTERNAL, "%s refused with code %d, \"%s\"; expected a data error naming the node", who,
                            (int)td_status_code(status), td_status_message(status))
                 : TD_ERROR(TD_INTERNAL, "%s took data that it must refuse", who);
    td_status_destroy(status);
    return wrong;
}

static bool is_bad(const built_case *built, const arguments *a)
{
    bool bad = false;
    for (int32_t i = 0; i < a->n_inputs; i++)
        bad = bad || (built->fills[i] == FILL_BAD &&
                      (a->inputs[i].tensor.kind == TD_RAGGED ? a->inputs[i].tensor.entries
                                                             : td_tensor_elements(&a->inputs[i].tensor)) > 0);
    return bad && built->source->flags & CASE_FAILS;
}

/* The device with `threads`, on a fresh copy of `fresh`. */
static td_status *compare_device(const conformance_device *device, const built_case *built, const int64_t *extents,
                                 int32_t threads, int32_t shared_output, int32_t shared_input, const arguments *fresh,
                                 const arguments *expected, double tolerance)
{
    arguments actual;
    TD_TRY(arguments_clone(fresh, &actual));
    td_status *status = device_run(device, built, extents, threads, shared_output, shared_input, &actual);
    if (!status && shared_output >= 0)
        actual.inputs[shared_input].written = false;
    if (!status)
        status = arguments_compare(&actual, expected, tolerance);
    if (shared_output >= 0)
        status = td_status_prefix(status, "in place (output %d over input %d)", shared_output, shared_input);
    arguments_deinit(&actual);
    return td_status_prefix(status, "%d threads", threads);
}

/* VDPBF16PS and its like: factors that are made between products are rounded to bf16 as well. */
static bool multiplies_pairs(const conformance_device *device)
{
    td_device_properties properties = {.struct_size = sizeof properties};
    device->api->device_properties(device->device, &properties);
    return strstr(properties.description, "bf16 products in hardware") != NULL;
}

static double tolerance_of(const conformance_device *device, const built_case *built)
{
    if (!device->exact)
        return device->tolerance;
    if (!(built->source->flags & CASE_NEAR))
        return 0;
    /* A sum in f32 and one in double may be rounded to neighbours in 16 bit. */
    const td_node *node = &built->graph->nodes[built->node];
    const td_dtype dtype = built->graph->values[node->outputs[0]].dtype;
    if (dtype == TD_BF16 && strstr(node->op->name, "attention") && multiplies_pairs(device))
        return 0x1p-6;
    return dtype == TD_BF16 ? 0x1p-7 : dtype == TD_F16 ? 0x1p-10 : near_tolerance;
}

/* All numbers of threads agree with each other bit for bit on devices that promise it, whatever they are compared with. */
static td_status *check_threads(const conformance_device *device, const built_case *built, const int64_t *extents,
                                const arguments *fresh, const arguments *expected)
{
    const double tolerance = tolerance_of(device, built);
    arguments first;
    TD_TRY(compare_device(device, built, extents, 1, -1, -1, fresh, expected, tolerance));
    TD_TRY(arguments_clone(fresh, &first));
    td_status *status = device_run(device, built, extents, 1, -1, -1, &first);
    for (int32_t threads = 2; threads <= MOST_THREADS && !status; threads++)
        status = device->exact
                     ? td_status_prefix(compare_device(device, built, extents, threads, -1, -1, fresh, &first, 0),
                                        "against one thread")
                     : compare_device(device, built, extents, threads, -1, -1, fresh, expected, tolerance);
    arguments_deinit(&first);
    return status;
}

static td_status *check_in_place(const conformance_device *device, const built_case *built, const int64_t *extents,
                                 const arguments *fresh, const arguments *expected)
{
    const td_op *op = built->graph->nodes[built->node].op;
    for (int k = 0; k < 3 && op->in_place[k].output; k++) {
        const int32_t output = op->in_place[k].output - 1, input = op->in_place[k].input - 1;
        if (input >= fresh->n_inputs || fresh->inputs[input].bytes[0] != fresh->outputs[output].bytes[0] ||
            fresh->inputs[input].tensor.kind != TD_DENSE)
            continue;
        /* The shared memory holds the input, so it has no garbage to be checked behind the actual extents: start alike. */
        arguments copy;
        TD_TRY(arguments_clone(fresh, &copy));
        td_status *status = run_reference(built, output, input, &copy);
        copy.inputs[input].written = false;
        if (!status)
            status = td_status_prefix(arguments_compare(&copy, expected, 0), "the reference in place");
        arguments_deinit(&copy);
        TD_TRY(status);
        TD_TRY(compare_device(device, built, extents, 2, output, input, fresh, expected, tolerance_of(device, built)));
    }
    return NULL;
}

static td_status *check_peer(const conformance_device *device, const conformance_device *peer, const built_case *built,
                             const int64_t *extents, const arguments *fresh)
{
    arguments theirs;
    TD_TRY(arguments_clone(fresh, &theirs));
    td_status *status = device_run(peer, built, extents, 1, -1, -1, &theirs);
    if (!status)
        status = compare_device(device, built, extents, 1, -1, -1, fresh, &theirs, 0);
    arguments_deinit(&theirs);
    return td_status_prefix(status, "against %s", peer->api->name);
}

static td_status *check_thoroughly(const conformance_device *device, const conformance_device *peer,
                                   const built_case *built, const int64_t *extents, const arguments *fresh,
                                   const arguments *expected)
{
    TD_TRY(check_threads(device, built, extents, fresh, expected));
    TD_TRY(check_in_place(device, built, extents, fresh, expected));
    return peer ? check_peer(device, peer, built, extents, fresh) : NULL;
}

td_status *check_forward(const conformance_device *device, const conformance_device *peer, const built_case *built,
                         const int64_t *extents)
{
    arguments fresh, expected = {0};
    TD_TRY(arguments_init(built, extents, &fresh));
    td_status *status = arguments_clone(&fresh, &expected);
    if (!status && is_bad(built, &fresh)) {
        status = expect_refusal(run_reference(built, -1, -1, &expected), "the reference");
        if (!status)
            status = expect_refusal(device_run(device, built, extents, 2, -1, -1, &fresh), "the device");
    } else if (!status) {
        status = td_status_prefix(run_reference(built, -1, -1, &expected), "the reference");
        if (!status && device->threads)
            status = compare_device(device, built, extents, device->threads, -1, -1, &fresh, &expected,
                                    tolerance_of(device, built));
        else if (!status)
            status = check_thoroughly(device, peer, built, extents, &fresh, &expected);
    }
    arguments_deinit(&fresh);
    arguments_deinit(&expected);
    return td_status_prefix(status, "at B=%" PRId64 ", N=%" PRId64, extents[0], extents[1]);
}
