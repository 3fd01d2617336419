/* run.json: what must be known to repeat a run, written before its first step, and read when a run is gone on with or looked at. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/summary.h"
#include "cli/version.h"

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for run.json");
}

/* The resolved configuration as text; free() it. */
static td_status *resolved_text(const td_config *config, char **out_text)
{
    size_t bytes = 0;
    FILE *stream = open_memstream(out_text, &bytes);
    if (!stream)
        return no_memory();
    td_config_print(config, stream);
    return fclose(stream) ? no_memory() : NULL;
}

static json_t *host_json(void)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    json_t *host = json_pack("{s:s, s:i}", "name", name, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN));
    const char *isa = getenv("TANDEM_ISA");
    if (host && isa)
        json_object_set_new(host, "isa_override", json_string(isa));
    return host;
}

static json_t *device_list(const td_plan *plan)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < td_plan_summarize(plan).devices; i++) {
        td_plan_device_summary device = td_plan_device(plan, i);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", device.name, "backend", device.backend,
                                              "description", device.description ? device.description : ""));
    }
    return list;
}

td_status *td_lineage_json(const td_config *config, const td_training *training, bool resumed, json_t **out_json)
{
    char *text = NULL, *plan_text = NULL, time_text[32];
    json_t *settings = NULL, *model = NULL;
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    td_status *status = resolved_text(config, &text);
    if (!status)
        status = td_plan_json(training->plan, &plan_text);
    if (!status)
        status = td_settings_json(td_config_root(config), &settings);
    if (!status)
        status = td_model_json(training->setup, training->store, &model);
    if (!status) {
        *out_json = json_pack(
            "{s:s, s:s, s:I, s:s, s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "configuration_file",
            td_config_origin(config), "configuration", text, "seed",
            (json_int_t)td_section_int(td_config_root(config), "train.seed"), "version", TANDEM_VERSION, "started",
            time_text, "resumed", (int)resumed, "first_step", (json_int_t)td_store_steps(training->store) + 1, "host",
            host_json(), "devices", device_list(training->plan), "settings", json_incref(settings), "model",
            json_incref(model), "data", td_data_json(training->setup), "plan", json_loads(plan_text, 0, NULL));
        status = *out_json ? NULL : no_memory();
    }
    json_decref(settings);
    json_decref(model);
    td_text_free(plan_text);
    free(text); /* the C library's own allocation */
    return status;
}

td_status *td_lineage_configuration(const char *run, td_config **out_config)
{
    *out_config = NULL;
    char *path = td_format("%s/run.json", run);
    if (!path)
        return no_memory();
    json_error_t error = {0};
    char *bytes = NULL;
    size_t n = 0;
    td_status *status = td_file_read(path, &bytes, &n);
    json_t *json = status ? NULL : json_loadb(bytes, n, 0, &error);
    const char *text = json_string_value(json_object_get(json, "configuration"));
    const char *origin = json_string_value(json_object_get(json, "configuration_file"));
    if (text)
        status = td_config_parse(text, strlen(text), origin ? origin : path, out_config);
    else if (!status)
        status = TD_ERROR(TD_INVALID_ARGUMENT, "%s: %s", path, json ? "there is no configuration in it" : error.text);
    json_decref(json);
    td_free(bytes);
    td_free(path);
    return status;
}
