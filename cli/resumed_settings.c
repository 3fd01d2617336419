/* What a resumed run computes otherwise than the part before it: one line that lists the settings which changed. Those under which
 * a place in the data or random numbers mean nothing are refused instead (command_train.c); where things run changes no result. */
#include "cli/resumed_settings.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/string.h"
#include "cli/summary.h"

/* Settings that decide what an update is; all that begin so. */
static const char *const telling[] = {"train.reduction",   "train.clip_norm",      "train.accumulate",
                                      "train.replicas",    "train.loss_scale.",    "train.keep_fp32",
                                      "train.table_dtype", "train.table_rounding", "offload.delayed",
                                      "optimizer",         "ps.consistency",       "ps.most_rows"};

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

td_status *td_resumed_settings_say(td_section before, td_section now)
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
