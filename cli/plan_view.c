/* A plan as tables: see cli/plan_view.h. */
#include "cli/served_view.h"
#include "cli/plan_view.h"

#include <jansson.h>
#include <string.h>

#include "base/units.h"
#include "cli/ledger_view.h"
#include "cli/table.h"

/* ---- JSON, read ------------------------------------------------------------------------------------------------------------ */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static bool flag_of(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* ---- the model --------------------------------------------------------------------------------------------------------------- */

static void print_model(const td_setup *setup, FILE *out)
{
    char rows[TD_UNIT_TEXT];
    double all = 0;
    int32_t tables = setup->dataset ? td_dataset_schema(setup->dataset)->n_tables : 0;
    for (int32_t i = 0; i < tables; i++) {
        char name[32];
        snprintf(name, sizeof name, "ids_t%d", i);
        const td_schema_field *field = td_schema_find(td_dataset_schema(setup->dataset), name);
        all += field ? (double)field->table_rows : 0;
    }
    fprintf(out, "%s: ", setup->name);
    if (tables)
        fprintf(out, "%s %s in %s, ", td_format_count(rows, all), all == 1 ? "row" : "rows",
                TD_COUNTED(tables, "table"));
    fprintf(out, "batch %lld\n\n", (long long)setup->batch);
}

/* ---- tables ------------------------------------------------------------------------------------------------------------------- */

static td_status *print_devices(const json_t *plan, FILE *out)
{
    td_table table;
    size_t i;
    const json_t *device;
    td_table_init(&table, 7);
    td_table_row(&table, "device", "backend", "memory", "peak", "parameters", "state", "activations");
    json_array_foreach(json_object_get(plan, "devices"), i, device)
    {
        char capacity[TD_UNIT_TEXT] = "the host's", peak[TD_UNIT_TEXT], parameters[TD_UNIT_TEXT], state[TD_UNIT_TEXT];
        char activations[TD_UNIT_TEXT];
        if (number_of(device, "capacity_bytes") > 0)
            td_format_bytes(capacity, number_of(device, "capacity_bytes"));
        td_table_row(&table, text_of(device, "name"), text_of(device, "backend"), capacity,
                     td_format_bytes(peak, number_of(device, "peak_bytes")),
                     td_format_bytes(parameters, number_of(device, "parameter_bytes")),
                     td_format_bytes(state, number_of(device, "state_bytes")),
                     td_format_bytes(activations, number_of(device, "activation_bytes")));
    }
    return td_table_print(&table, "  ", out);
}

/* Tables that are not simply in memory: how much there is of them, in memory at most, and in a file at most. */
static void print_paging(const json_t *plan, FILE *out)
{
    size_t i;
    const json_t *device;
    json_array_foreach(json_object_get(plan, "devices"), i, device)
    {
        char all[TD_UNIT_TEXT], resident[TD_UNIT_TEXT], file[TD_UNIT_TEXT];
        if (number_of(device, "table_bytes") <= 0)
            continue;
        fprintf(out, "\n  tables on %s: %s of rows and state, at most %s of them in memory", text_of(device, "name"),
                td_format_bytes(all, number_of(device, "table_bytes")),
                td_format_bytes(resident, number_of(device, "table_resident_bytes")));
        if (number_of(device, "table_file_bytes") > 0)
            fprintf(out, ", up to %s in a file", td_format_bytes(file, number_of(device, "table_file_bytes")));
        fputc('\n', out);
    }
}

/* Steps of several micro-batches: how many, and what the sums of their gradients take. */
static void print_window(const json_t *plan, FILE *out)
{
    size_t i;
    const json_t *device;
    const char *separator = "";
    if (number_of(plan, "micro_batches_per_step") < 2)
        return;
    fprintf(out, "\n  a step is up to %.0f micro-batches; sums of their gradients (in activations): ",
            number_of(plan, "micro_batches_per_step"));
    json_array_foreach(json_object_get(plan, "devices"), i, device)
    {
        char bytes[TD_UNIT_TEXT];
        if (number_of(device, "accumulated_bytes") <= 0)
            continue;
        fprintf(out, "%s%s on %s", separator, td_format_bytes(bytes, number_of(device, "accumulated_bytes")),
                text_of(device, "name"));
        separator = ", ";
    }
    fputc('\n', out);
}

/* "bottom, lookup", or "-"; what does not fit is counted. */
static void join_names(const json_t *list, char *buffer, size_t bytes)
{
    size_t i, at = 0, n = json_array_size(list), longest = 40;
    const json_t *name;
    snprintf(buffer, bytes, "-");
    json_array_foreach(list, i, name)
    {
        const char *text = json_string_value(name);
        if (i > 0 && at + strlen(text) > longest) {
            snprintf(buffer + at, bytes - at, ", %zu more", n - i);
            return;
        }
        int written = snprintf(buffer + at, bytes - at, "%s%s", i ? ", " : "", text);
        at += written > 0 ? (size_t)written : 0;
        if (at + 20 >= bytes)
            return;
    }
}

static td_status *print_subgraphs(const json_t *plan, FILE *out)
{
    td_table table;
    size_t i;
    const json_t *subgraph;
    td_table_init(&table, 7);
    table.right[2] = table.right[4] = table.right[5] = true;
    td_table_row(&table, "subgraph", "device", "ops", "after", "ms (bound)", "flops/byte", "why it is there");
    json_array_foreach(json_object_get(plan, "subgraphs"), i, subgraph)
    {
        char after[160], ops[16], time[32], intensity[32];
        join_names(json_object_get(subgraph, "after"), after, sizeof after);
        snprintf(ops, sizeof ops, "%.0f", number_of(subgraph, "n_ops"));
        snprintf(time, sizeof time, "%.3f", number_of(subgraph, "ms"));
        snprintf(intensity, sizeof intensity, "%.2f", number_of(subgraph, "flops_per_byte"));
        td_table_row(&table, text_of(subgraph, "name"), text_of(subgraph, "device"), ops, after, time, intensity,
                     text_of(subgraph, "why"));
    }
    return td_table_print(&table, "  ", out);
}

static td_status *print_cuts(const json_t *plan, FILE *out)
{
    enum { MOST = 12 };
    td_table table;
    size_t i, n = json_array_size(json_object_get(plan, "cut_edges"));
    const json_t *cut;
    if (!n)
        return NULL;
    td_table_init(&table, 4);
    table.right[3] = true;
    td_table_row(&table, "cut edge", "from", "to", "a step");
    json_array_foreach(json_object_get(plan, "cut_edges"), i, cut)
    {
        char traffic[TD_UNIT_TEXT], more[48];
        if (i == MOST && n > MOST + 1) {
            snprintf(more, sizeof more, "%zu more (--json has all)", n - i);
            td_table_row(&table, more, "", "", "");
            break;
        }
        td_table_row(&table, text_of(cut, "value"), text_of(cut, "from"), text_of(cut, "to"),
                     td_format_traffic(traffic, number_of(cut, "bytes")));
    }
    fputc('\n', out);
    return td_table_print(&table, "  ", out);
}

static void print_tenants(const json_t *plan, FILE *out)
{
    enum { MOST = 3 };
    size_t i, k;
    const json_t *device, *tenant;
    fputc('\n', out);
    json_array_foreach(json_object_get(plan, "devices"), i, device)
    {
        char bytes[TD_UNIT_TEXT];
        fprintf(out, "  largest on %s:", text_of(device, "name"));
        json_array_foreach(json_object_get(device, "tenants"), k, tenant)
        {
            if (k == MOST)
                break;
            fprintf(out, "%s %s %s", k ? "," : "", text_of(tenant, "name"),
                    td_format_bytes(bytes, number_of(tenant, "bytes")));
        }
        fputs(json_array_size(json_object_get(device, "tenants")) ? "\n" : " nothing\n", out);
    }
}

/* ---- lines ------------------------------------------------------------------------------------------------------------------------ */

static void print_bound(const json_t *plan, FILE *out)
{
    size_t i;
    const json_t *device;
    char time[TD_UNIT_TEXT], to_device[TD_UNIT_TEXT], to_host[TD_UNIT_TEXT];
    double bound = number_of(plan, "step_bound_ms");
    const char *by = "the critical path";
    json_array_foreach(json_object_get(plan, "devices"), i, device)
    {
        if (number_of(device, "busy_ms") < bound * (1 - 1e-6)) /* printed and read again: equal up to rounding */
            continue;
        by = text_of(device, "name");
    }
    fprintf(out, "\n  copies per step  to devices %s   to the host %s\n",
            td_format_traffic(to_device, number_of(plan, "to_device_bytes_per_step")),
            td_format_traffic(to_host, number_of(plan, "to_host_bytes_per_step")));
    fprintf(out, "  step bound %s by %s; busy by estimate:", td_format_seconds(time, bound / 1e3), by);
    json_array_foreach(json_object_get(plan, "devices"), i, device)
        fprintf(out, "%s %s %.0f %%", i ? "," : "", text_of(device, "name"),
                bound > 0 ? 100 * number_of(device, "busy_ms") / bound : 0);
    fprintf(out, "\n  planned in %s%s\n", td_format_seconds(time, number_of(plan, "plan_ms") / 1e3),
            flag_of(plan, "early_lookup") ? "; rows of the next batch are looked up early" : "");
}

static void print_optimized(const json_t *plan, FILE *out)
{
    size_t i;
    const json_t *row, *optimized = json_object_get(plan, "optimized");
    fprintf(out, "  optimised at %s:", text_of(optimized, "level"));
    json_array_foreach(json_object_get(optimized, "rules"), i, row)
        fprintf(out, "%s %s %.0f", i ? "," : "", text_of(row, "rule"), number_of(row, "count"));
    fprintf(out, "%s\n", json_array_size(json_object_get(optimized, "rules")) ? "" : " nothing to do");
}

static void print_remarks(const json_t *plan, FILE *out)
{
    size_t i;
    const json_t *row;
    if (flag_of(plan, "delayed"))
        fprintf(out, "  offload.delayed: a step computes with parameters that lack the update of the step before; "
                     "results are not "
                     "those of exact updates\n");
    json_array_foreach(json_object_get(plan, "moved"), i, row)
        fprintf(out, "  moved to the host: %s (%s)\n", text_of(row, "op"), text_of(row, "why"));
    json_array_foreach(json_object_get(plan, "flags"), i, row) fprintf(
        out,
        "  doubtful: subgraph %s is memory-bound (%.2f flops per byte) and its copies, %.3f ms, cost more than it "
        "does, %.3f ms\n",
        text_of(row, "subgraph"), number_of(row, "flops_per_byte"), number_of(row, "copies_ms"), number_of(row, "ms"));
}

td_status *td_plan_view_print(const td_setup *setup, const td_plan *plan, FILE *out)
{
    char *text = NULL;
    TD_TRY(td_plan_json(plan, &text));
    json_t *json = json_loads(text, 0, NULL);
    td_text_free(text);
    if (!json)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a plan's tables");
    print_model(setup, out);
    td_status *status = print_devices(json, out);
    print_paging(json, out);
    print_window(json, out);
    fputc('\n', out);
    if (!status)
        status = print_subgraphs(json, out);
    if (!status)
        status = print_cuts(json, out);
    if (!status) {
        print_tenants(json, out);
        print_bound(json, out);
        print_optimized(json, out);
        print_remarks(json, out);
        status = td_ledger_print(plan, setup->options.offload_optimizer, out);
        td_served_print(setup->root, plan, out);
        td_shared_print(setup->root, plan, out);
    }
    json_decref(json);
    return status;
}
