/* See cli/ledger_view.h. */
#include "cli/ledger_view.h"

#include <string.h>

#include "base/units.h"
#include "cli/table.h"

typedef struct prediction {
    td_offload_traffic traffic;
    double to_host_s, update_s, to_device_s; /* 0: nothing to do */
    double memory_rate;
} prediction;

/* At the rates of the slowest device; steps are bounded by it. */
static td_status *predict(const td_plan *plan, prediction *out)
{
    double to_device = 0, to_host = 0;
    *out = (prediction){.traffic = td_plan_offload_traffic(plan)};
    if (!out->traffic.update_bytes)
        return NULL;
    for (int32_t i = 0; i < td_plan_summarize(plan).devices; i++) {
        td_measured_rates rates;
        TD_TRY(td_plan_measure_rates(plan, i, &rates));
        to_device =
            rates.to_device > 0 && (to_device == 0 || rates.to_device < to_device) ? rates.to_device : to_device;
        to_host = rates.to_host > 0 && (to_host == 0 || rates.to_host < to_host) ? rates.to_host : to_host;
        out->memory_rate = rates.memory > 0 ? rates.memory : out->memory_rate;
    }
    out->to_host_s = to_host > 0 ? (double)out->traffic.gradient_bytes / to_host : 0;
    out->to_device_s = to_device > 0 ? (double)out->traffic.parameter_bytes / to_device : 0;
    out->update_s = out->memory_rate > 0 ? (double)out->traffic.update_bytes / out->memory_rate : 0;
    return NULL;
}

static int64_t total(const td_ledger *ledger)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < TD_LEDGER_CLASSES; k++)
        bytes += ledger->bytes[k];
    return bytes;
}

static void add_row(td_table *table, const char *device, const char *name, int64_t with, int64_t without, double count)
{
    char held[TD_UNIT_TEXT], before[TD_UNIT_TEXT], each[32], each_before[32];
    snprintf(each, sizeof each, "%.2f", (double)with / count);
    snprintf(each_before, sizeof each_before, "%.2f", (double)without / count);
    td_table_row(table, device, name, td_format_bytes(held, (double)with), each,
                 td_format_bytes(before, (double)without), each_before);
}

static td_status *print_bytes(const td_plan *plan, FILE *out)
{
    char parameters[TD_UNIT_TEXT];
    double count = (double)td_plan_parameter_count(plan);
    td_table table;
    td_table_init(&table, 6);
    for (int i = 2; i < 6; i++)
        table.right[i] = true;
    td_table_row(&table, "device", "bytes of", "held", "a parameter", "without offload", "a parameter");
    for (int32_t d = 0; d < td_plan_summarize(plan).devices; d++) {
        const char *name = td_plan_device(plan, d).name;
        td_ledger with = td_plan_ledger(plan, d), without;
        (void)td_plan_ledger_without(plan, d, &without);
        for (int32_t k = 0; k < TD_LEDGER_CLASSES; k++)
            if (with.bytes[k] || without.bytes[k])
                add_row(&table, name, td_ledger_class_name((td_ledger_class)k), with.bytes[k], without.bytes[k], count);
        add_row(&table, name, "all", total(&with), total(&without), count);
    }
    fprintf(out, "\n  ledger of %s parameters\n", td_format_count(parameters, count));
    return td_table_print(&table, "  ", out);
}

static void print_traffic(const prediction *p, FILE *out)
{
    char bytes[3][TD_UNIT_TEXT], times[3][TD_UNIT_TEXT], rate[TD_UNIT_TEXT];
    fprintf(out, "  offload per step  gradients to the host %s (%s)   update %s (%s at %s)   parameters back %s (%s)\n",
            td_format_traffic(bytes[0], (double)p->traffic.gradient_bytes), td_format_seconds(times[0], p->to_host_s),
            td_format_traffic(bytes[1], (double)p->traffic.update_bytes), td_format_seconds(times[1], p->update_s),
            td_format_rate(rate, p->memory_rate), td_format_traffic(bytes[2], (double)p->traffic.parameter_bytes),
            td_format_seconds(times[2], p->to_device_s));
}

static void print_slots(const char *what, int32_t slots, int64_t slot_bytes, FILE *out)
{
    char bytes[TD_UNIT_TEXT];
    if (slots)
        fprintf(out, "  staging on the host  %s: %s of %s\n", what, TD_COUNTED(slots, "slot"),
                td_format_bytes(bytes, (double)slot_bytes));
}

static void print_split(const td_plan *plan, FILE *out)
{
    td_plan_split split;
    char host[TD_UNIT_TEXT], all[TD_UNIT_TEXT];
    if (td_plan_split_parameter(plan, &split))
        fprintf(out, "  split  %s: %s of %s elements on the host\n", split.parameter,
                td_format_thousands(host, split.host_elements), td_format_thousands(all, split.elements));
    if (td_plan_unsplit(plan))
        fprintf(out, "  not split  %s\n", td_plan_unsplit(plan));
}

/* A table would compare equal numbers. */
static void print_nothing_moved(const td_plan *plan, td_offload asked, FILE *out)
{
    char held[TD_UNIT_TEXT], capacity[TD_UNIT_TEXT];
    const char *before = ": ";
    fprintf(out, "\n  offload.optimizer%s moves nothing", asked == TD_OFFLOAD_AUTO ? ": auto" : "");
    for (int32_t i = 0; i < td_plan_summarize(plan).devices; i++) {
        const td_plan_device_summary device = td_plan_device(plan, i);
        if (device.is_host)
            continue;
        fprintf(out, "%s%s %s %s", before, device.name,
                asked == TD_OFFLOAD_AUTO ? "has room for all, needing" : "needs",
                td_format_bytes(held, (double)device.peak_bytes));
        if (device.capacity_bytes)
            fprintf(out, " of %s", td_format_bytes(capacity, (double)device.capacity_bytes));
        before = ", ";
    }
    fputs(before[0] == ':' ? ": there is no device beside the host\n" : "\n", out);
}

td_status *td_ledger_print(const td_plan *plan, td_offload asked, FILE *out)
{
    prediction p;
    td_ledger without;
    if (!td_plan_ledger_without(plan, 0, &without))
        return NULL;
    TD_TRY(predict(plan, &p));
    if (!p.traffic.update_bytes) {
        print_nothing_moved(plan, asked, out);
        return NULL;
    }
    TD_TRY(print_bytes(plan, out));
    print_split(plan, out);
    print_traffic(&p, out);
    print_slots("gradients", p.traffic.gradient_slots, p.traffic.gradient_slot_bytes, out);
    print_slots("parameters", p.traffic.parameter_slots, p.traffic.parameter_slot_bytes, out);
    return NULL;
}

static json_t *classes_json(const td_ledger *ledger)
{
    json_t *object = json_object();
    for (int32_t k = 0; k < TD_LEDGER_CLASSES; k++)
        json_object_set_new(object, td_ledger_class_name((td_ledger_class)k), json_integer(ledger->bytes[k]));
    return object;
}

/* The parameter whose update is made in two places, or why there is none although a share would end in one. */
static void add_split(const td_plan *plan, json_t *ledger)
{
    td_plan_split split;
    if (td_plan_split_parameter(plan, &split))
        json_object_set_new(ledger, "split",
                            json_pack("{s:s, s:I, s:I}", "parameter", split.parameter, "host_elements",
                                      (json_int_t)split.host_elements, "elements", (json_int_t)split.elements));
    if (td_plan_unsplit(plan))
        json_object_set_new(ledger, "not_split", json_string(td_plan_unsplit(plan)));
}

td_status *td_ledger_json(const td_plan *plan, json_t **out_json)
{
    prediction p;
    json_t *devices = json_array();
    *out_json = NULL;
    td_status *status = predict(plan, &p);
    for (int32_t d = 0; d < td_plan_summarize(plan).devices && !status; d++) {
        td_ledger with = td_plan_ledger(plan, d), without;
        json_t *row = json_pack("{s:s, s:o}", "device", td_plan_device(plan, d).name, "bytes", classes_json(&with));
        if (td_plan_ledger_without(plan, d, &without))
            json_object_set_new(row, "bytes_without_offload", classes_json(&without));
        json_array_append_new(devices, row);
    }
    if (status) {
        json_decref(devices);
        return status;
    }
    *out_json =
        json_pack("{s:I, s:o, s:{s:I, s:I, s:I}, s:{s:f, s:f, s:f}, s:{s:I, s:I, s:I, s:I}}", "parameters",
                  (json_int_t)td_plan_parameter_count(plan), "devices", devices, "offload_bytes_per_step", "gradients",
                  (json_int_t)p.traffic.gradient_bytes, "update", (json_int_t)p.traffic.update_bytes, "parameters",
                  (json_int_t)p.traffic.parameter_bytes, "offload_ms_predicted", "gradients", p.to_host_s * 1e3,
                  "update", p.update_s * 1e3, "parameters", p.to_device_s * 1e3, "staging", "gradient_slots",
                  (json_int_t)p.traffic.gradient_slots, "gradient_slot_bytes",
                  (json_int_t)p.traffic.gradient_slot_bytes, "parameter_slots", (json_int_t)p.traffic.parameter_slots,
                  "parameter_slot_bytes", (json_int_t)p.traffic.parameter_slot_bytes);
    if (!*out_json)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a ledger");
    add_split(plan, *out_json);
    return NULL;
}
