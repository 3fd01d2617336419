/* tandem devices: which backends there are, built in and in TANDEM_PLUGIN_PATH, and what each says of its device. */
#include <string.h>

#include "backends/registry.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/table.h"

typedef struct found {
    const td_backend_listing *row;
    td_device_properties properties;
    char problem[200]; /* "" when the device opens */
} found;

static void look_at(const td_backend_listing *row, found *out)
{
    *out = (found){.row = row, .properties = {.struct_size = sizeof(td_device_properties)}};
    if (row->problem) {
        snprintf(out->problem, sizeof out->problem, "%s", row->problem);
        return;
    }
    const td_backend_api *api = NULL;
    td_device *device = NULL;
    td_status *status = td_backend_find(row->name, &api);
    if (!status)
        status = api->device_open(td_backend_host(), "", &device);
    if (status)
        snprintf(out->problem, sizeof out->problem, "%.*s", (int)strcspn(td_status_message(status), "\n"),
                 td_status_message(status));
    td_status_destroy(status);
    if (!device)
        return;
    api->device_properties(device, &out->properties);
    api->device_close(device);
}

static void add_row(td_table *table, const found *f)
{
    char memory[TD_UNIT_TEXT] = "the host's", link[TD_UNIT_TEXT] = "", cores[16] = "";
    const td_device_properties *p = &f->properties;
    if (f->problem[0]) {
        td_table_row(table, f->row->name, "-", "-", "-", f->problem);
        return;
    }
    if (p->memory_bytes)
        td_format_bytes(memory, (double)p->memory_bytes);
    if (p->link_bytes_per_s > 0)
        td_format_rate(link, p->link_bytes_per_s);
    if (p->cores > 0)
        snprintf(cores, sizeof cores, "%d", p->cores);
    td_table_row(table, f->row->name, memory, cores[0] ? cores : "all", link[0] ? link : "-",
                 p->description[0] ? p->description : f->row->summary);
}

static json_t *row_json(const found *f)
{
    const td_device_properties *p = &f->properties;
    json_t *row = json_pack("{s:s, s:s}", "backend", f->row->name, "summary", f->row->summary ? f->row->summary : "");
    if (f->row->library)
        json_object_set_new(row, "library", json_string(f->row->library));
    if (f->problem[0]) {
        json_object_set_new(row, "problem", json_string(f->problem));
        return row;
    }
    json_object_set_new(row, "description", json_string(p->description));
    json_object_set_new(row, "host_memory", json_boolean(p->flags & TD_DEVICE_HOST_MEMORY));
    json_object_set_new(row, "memory_bytes", json_integer((json_int_t)p->memory_bytes));
    json_object_set_new(row, "link_bytes_per_s", json_real(p->link_bytes_per_s));
    json_object_set_new(row, "cores", json_integer(p->cores));
    return row;
}

static td_status *run(const td_arguments *arguments)
{
    td_backend_listing *rows = NULL;
    TD_TRY(td_backend_list(&rows));
    bool as_json = td_argument_flag(arguments, "--json");
    json_t *list = as_json ? json_array() : NULL;
    td_table table;
    td_table_init(&table, 5);
    if (!as_json)
        td_table_row(&table, "backend", "memory", "cores", "link", "what it is");
    for (int32_t i = 0; rows[i].name; i++) {
        found f;
        look_at(&rows[i], &f);
        if (as_json)
            json_array_append_new(list, row_json(&f));
        else
            add_row(&table, &f);
    }
    td_backend_list_destroy(rows);
    td_status *status = td_table_print(&table, "", arguments->out);
    if (!as_json)
        return status;
    td_status_destroy(status);
    return td_json_print(list, arguments->out);
}

static const td_command_option options[] = {TD_OPTION_JSON, {NULL, NULL, NULL}};

static const char *const notes[] = {
    "Memory, cores and link are those of a device opened without options; devices[] in a configuration sets them.",
    NULL};

const td_command td_command_devices = {
    .name = "devices",
    .summary = "lists the kinds of devices that there are here",
    .usage = "[--json]",
    .options = options,
    .notes = notes,
    .run = run,
};
