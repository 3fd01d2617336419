/* See cli/recompute_view.h. */
#include "cli/recompute_view.h"

#include "base/units.h"

/* The same plan with everything kept; *out_plan stays NULL where that does not fit. */
static td_status *plan_without(td_setup *setup, td_plan **out_plan)
{
    td_option_list rules = setup->options.recompute;
    setup->options.recompute = (td_option_list){0};
    td_status *status = td_plan_train(setup->graph, setup->model.loss, &setup->options, out_plan);
    setup->options.recompute = rules;
    if (td_status_code(status) != TD_DOES_NOT_FIT)
        return status;
    td_status_destroy(status);
    return NULL;
}

static json_t *rules_json(const td_option_list *rules)
{
    json_t *list = json_array();
    for (int64_t i = 0; list && i < rules->n; i++)
        json_array_append_new(list, json_string(rules->items[i].match));
    return list;
}

static json_t *devices_json(const td_plan *plan, const td_plan *without)
{
    json_t *list = json_array();
    for (int32_t i = 0; list && i < td_plan_summarize(plan).devices; i++) {
        td_plan_device_summary device = td_plan_device(plan, i);
        json_t *before = without ? json_integer((json_int_t)td_plan_device(without, i).activation_bytes) : json_null();
        json_array_append_new(list, json_pack("{s:s, s:I, s:o}", "name", device.name, "activation_bytes",
                                              (json_int_t)device.activation_bytes, "activation_bytes_without", before));
    }
    return list;
}

td_status *td_recompute_json(td_setup *setup, const td_plan *plan, json_t **out_json)
{
    td_plan *without = NULL;
    *out_json = NULL;
    if (!setup->options.recompute.n)
        return NULL;
    TD_TRY(plan_without(setup, &without));
    *out_json = json_pack("{s:o, s:i, s:o}", "rules", rules_json(&setup->options.recompute), "ops",
                          (int)td_plan_summarize(plan).recomputed_ops, "devices", devices_json(plan, without));
    td_plan_release(without);
    return *out_json ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for what is computed again");
}

static void print_device(const json_t *device, FILE *out)
{
    const json_t *without = json_object_get(device, "activation_bytes_without");
    char now[TD_UNIT_TEXT], before[TD_UNIT_TEXT];
    if (json_equal(without, json_object_get(device, "activation_bytes")))
        return;
    fprintf(out, "    %s: activations %s, ", json_string_value(json_object_get(device, "name")),
            td_format_bytes(now, json_number_value(json_object_get(device, "activation_bytes"))));
    if (json_is_null(without))
        fputs("without it the plan does not fit\n", out);
    else
        fprintf(out, "without it %s\n", td_format_bytes(before, json_number_value(without)));
}

void td_recompute_print(const json_t *json, FILE *out)
{
    size_t i;
    const json_t *rule, *device;
    if (!json)
        return;
    fputs("\n  recompute", out);
    json_array_foreach(json_object_get(json, "rules"), i, rule)
        fprintf(out, "%s %s", i ? "," : "", json_string_value(rule));
    fprintf(out, ": backward runs %s again, same bits\n",
            TD_COUNTED(json_integer_value(json_object_get(json, "ops")), "op"));
    json_array_foreach(json_object_get(json, "devices"), i, device) print_device(device, out);
}
