/* What a resumed run computes otherwise than the part before it: one line that lists the settings which changed. Those under which
 * a place in the data or random numbers mean nothing are refused instead; where things run changes no result. */
#include "cli/resumed_settings.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/string.h"
#include "cli/summary.h"

/* Settings that decide what an update is; all that begin so. */
static const char *const telling[] = {
    "train.reduction", "train.clip_norm",   "train.accumulate",     "train.replicas",  "train.loss_scale.",
    "train.keep_fp32", "train.table_dtype", "train.table_rounding", "offload.delayed", "optimizer",
    "ps.consistency",  "ps.dense_sync",     "ps.most_rows"};

static bool is_telling(const char *key)
{
    for (size_t i = 0; i < sizeof telling / sizeof *telling; i++)
        if (strncmp(key, telling[i], strlen(telling[i])) == 0)
            return true;
    return false;
}

/* Borrows `json`'s text, or prints into `buffer`. */
static const char *text_of(const json_t *json, char *buffer, size_t bytes)
{
    if (json_is_string(json))
        return json_string_value(json);
    if (json_is_integer(json))
        (void)snprintf(buffer, bytes, "%lld", (long long)json_integer_value(json));
    else if (json_is_real(json))
        (void)snprintf(buffer, bytes, "%g", json_real_value(json));
    else
        (void)snprintf(buffer, bytes, "%s", json_is_true(json) ? "true" : json_is_false(json) ? "false" : "not set");
    return buffer;
}

static void add_change(td_string *line, int32_t *n, const char *key, const json_t *was, const json_t *is)
{
    char before[32], after[32];
    if (!is_telling(key) || (was && is && json_equal(was, is)))
        return;
    td_string_format(line, "%s%s was %s and is %s now", (*n)++ ? "; " : "", key, text_of(was, before, sizeof before),
                     text_of(is, after, sizeof after));
}

static void say(json_t *before, json_t *now)
{
    td_string line = {0};
    char *text = NULL;
    int32_t n = 0;
    const char *key;
    json_t *value;
    json_object_foreach(now, key, value) add_change(&line, &n, key, json_object_get(before, key), value);
    json_object_foreach(before, key, value) if (!json_object_get(now, key)) add_change(&line, &n, key, value, NULL);
    td_status *status = td_string_finish(&line, &text);
    if (!status && n)
        td_log(TD_LOG_INFO, "%s: from here on updates follow %s", text,
               n == 1 ? "the new setting" : "the new settings");
    td_status_destroy(status);
    td_free(text);
}

static td_status *say_changes(td_section before, td_section now)
{
    json_t *was = NULL, *is = NULL;
    td_status *status = td_settings_json(before, &was);
    if (!status)
        status = td_settings_json(now, &is);
    if (!status)
        say(was, is);
    json_decref(was);
    json_decref(is);
    return status;
}

/* NULL when it does not read, as that of another version may not. */
static td_config *begun_with(const char *run)
{
    td_config *config = NULL;
    td_status *status = td_lineage_configuration(run, &config);
    if (!status)
        status = td_config_resolve(config);
    if (status) {
        td_log(TD_LOG_WARNING,
               "%s/run.json does not read: that seed, batch and order of rows are the same is not checked", run);
        td_config_destroy(config);
        config = NULL;
    }
    td_status_destroy(status);
    return config;
}

/* Another precision goes on from the same parameters and moments, which are f32 in all of them. */
static void say_conversion(td_section before, td_section now)
{
    const char *was = td_section_string(before, "train.precision"), *is = td_section_string(now, "train.precision");
    if (strcmp(was, is) != 0)
        td_log(TD_LOG_INFO,
               "train.precision was %s and is %s now: parameters and optimizer state go on in f32; what is computed in "
               "16 bit is rounded from them, once, to nearest even",
               was, is);
}

/* A place in the data and random numbers mean nothing under another order of the rows or another seed. */
td_status *td_resumed_settings_check(const char *run, td_section now)
{
    static const char *const keys[] = {"train.seed",          "data.batch",     "data.shuffle",
                                       "data.shuffle_buffer", "data.most_rows", "data.drop_remainder"};
    td_config *config = begun_with(run);
    td_status *status = NULL;
    for (size_t i = 0; config && !status && i < sizeof keys / sizeof *keys; i++) {
        td_section before = td_config_root(config);
        bool flag = td_config_key_find(keys[i])->type == TD_CONFIG_BOOL;
        long long was = flag ? td_section_bool(before, keys[i]) : td_section_int(before, keys[i]);
        long long is = flag ? td_section_bool(now, keys[i]) : td_section_int(now, keys[i]);
        if (was != is && flag)
            status = TD_SECTION_ERROR(now, keys[i], "%s was %s when %s began, and must stay so to resume it", keys[i],
                                      was ? "true" : "false", run);
        else if (was != is)
            status = TD_SECTION_ERROR(now, keys[i], "%s was %lld when %s began, and must stay so to resume it", keys[i],
                                      was, run);
    }
    if (config && !status)
        say_conversion(td_config_root(config), now);
    if (config && !status)
        status = say_changes(td_config_root(config), now);
    td_config_destroy(config);
    return status;
}
