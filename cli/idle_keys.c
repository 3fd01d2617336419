/* See cli/idle_keys.h. */
#include "cli/idle_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/config_tree.h"

/* What makes another key idle: one of these values, "0" or "off|no|false"; "-" is not given, or an empty list, "+" is given. */
typedef struct idle_state {
    const char *decider, *idle;
} idle_state;

enum { MOST_KEYS = 6, MOST_STATES = 6 };

/* `keys` do nothing where all of `states` hold. */
typedef struct idle_rule {
    const char *keys[MOST_KEYS];
    idle_state states[MOST_STATES];
} idle_rule;

#define SCHEDULE                                                                                                       \
    {                                                                                                                  \
        "profile.skip", "profile.wait", "profile.warm_up", "profile.active", "profile.repeat", "profile.unit"          \
    }
#define OFF "off|no|false"

static const idle_rule rules[] = {
    {{"offload.speculate"}, {{"train.clip_norm", "0"}}},
    {{"data.cross_buckets"}, {{"data.crosses", "-"}}},
    {{"data.shuffle_buffer"}, {{"data.shuffle", OFF}}},
    {{"data.train_share"}, {{"data.test", "+"}}},
    {{"checkpoint.every", "checkpoint.incremental", "checkpoint.directory"}, {{"checkpoint.keep", "0"}}},
    {{"summary.tensor_elements"}, {{"summary.tensors", "-"}}},
    {{"summary.every"},
     {{"summary.parameters", "-"},
      {"summary.gradients", "-"},
      {"summary.activations", "-"},
      {"summary.tensors", "-"},
      {"summary.images", "0"},
      {"summary.texts", "0"}}},
    {{"summary.parameters", "summary.gradients", "summary.activations", "summary.tensors", "summary.images",
      "summary.texts"},
     {{"summary.every", "0"}}},
    {{"landscape.create_landscape.train", "landscape.unit"}, {{"landscape.intervals", "-"}}},
    {{"landscape.intervals"}, {{"landscape.create_landscape.train", OFF}}},
    {{"landscape.landscape_size", "landscape.num_samples"},
     {{"landscape.intervals", "-"}, {"landscape.create_landscape.result", OFF}}},
    {{"model.weights.map", "model.weights.keep", "model.weights.ignore"}, {{"model.weights.file", "-"}}},
    {SCHEDULE, {{"profile.steps", "+"}}},
    {SCHEDULE, {{"profile.epochs", "+"}}},
};

/* What a key is, as it was written; a list as "[...]" or "[]", what is not there as "". */
static const char *text_of(td_section section, const char *key)
{
    const char *text = td_section_string(section, key);
    return text ? text : !td_section_has(section, key) ? "" : td_section_count(section, key) ? "[...]" : "[]";
}

/* True where somebody gave the key another value than it has by itself: a resolved configuration gives all of them. */
static bool is_said(td_section root, const char *key)
{
    const char *fallback = td_config_key_find(key)->fallback;
    if (!td_section_given(root, key))
        return false;
    const char *text = text_of(root, key);
    bool flag = false, usual = false;
    if (fallback && td_config_to_bool(text, &flag) && td_config_to_bool(fallback, &usual))
        return flag != usual;
    return !fallback || strcmp(text, fallback) != 0;
}

static bool holds(td_section root, const idle_state *state)
{
    const bool there = td_section_has(root, state->decider) && td_section_count(root, state->decider) > 0;
    if (!strcmp(state->idle, "-"))
        return !there;
    if (!strcmp(state->idle, "+"))
        return there;
    double number, idle;
    const char *text = text_of(root, state->decider);
    if (there && td_config_to_float(text, &number) && td_config_to_float(state->idle, &idle))
        return number == idle;
    return there && td_config_is_one_of(text, state->idle);
}

static bool is_idle(td_section root, const idle_rule *rule)
{
    for (int i = 0; i < MOST_STATES && rule->states[i].decider; i++)
        if (!holds(root, &rule->states[i]))
            return false;
    return true;
}

/* How a decider stands. */
static const char *standing(td_section root, const idle_state *state)
{
    return !strcmp(state->idle, "-")   ? "not given"
           : !strcmp(state->idle, "+") ? "given"
                                       : text_of(root, state->decider);
}

/* "a and b are not given, c is 0": deciders that stand alike together. */
static void describe(td_section root, const idle_rule *rule, char *text, size_t bytes)
{
    text[0] = '\0';
    for (int i = 0, end; i < MOST_STATES && rule->states[i].decider; i = end) {
        const char *stands = standing(root, &rule->states[i]);
        for (end = i + 1; end < MOST_STATES && rule->states[end].decider; end++)
            if (strcmp(standing(root, &rule->states[end]), stands) != 0)
                break;
        for (int k = i; k < end; k++)
            (void)snprintf(text + strlen(text), bytes - strlen(text), "%s%s",
                           !k                      ? ""
                           : k > i && k == end - 1 ? " and "
                                                   : ", ",
                           rule->states[k].decider);
        (void)snprintf(text + strlen(text), bytes - strlen(text), " %s %s", end > i + 1 ? "are" : "is", stands);
    }
}

static void warn_of(td_section root, const idle_rule *rule, const char *key)
{
    char place[160], why[512];
    describe(root, rule, why, sizeof why);
    td_log(TD_LOG_WARNING, "%s (%s) has no effect: %s", key, td_section_place(root, key, place, sizeof place), why);
}

/* Keys of one group of parameters that another kind of schedule has. */
static void warn_of_schedule(td_section group, int32_t index)
{
    static const struct {
        const char *key, *kinds;
    } keys[] = {
        {"total_steps", "cosine|linear"}, {"final_factor", "cosine|linear"}, {"every", "step"}, {"factor", "step"}};
    const char *kind = td_section_string(group, "schedule.kind");
    kind = kind ? kind : "constant";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "schedule.%s", keys[i].key);
        if (td_section_given(group, key) && !td_config_is_one_of(kind, keys[i].kinds))
            td_log(TD_LOG_WARNING, "optimizer[%d].%s has no effect: it is for schedule.kind %s, and that is %s", index,
                   key, keys[i].kinds, kind);
    }
}

void td_warn_of_idle_keys(td_section root)
{
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        const idle_rule *rule = &rules[r];
        for (int k = 0; k < MOST_KEYS && rule->keys[k]; k++)
            if (is_said(root, rule->keys[k]) && is_idle(root, rule))
                warn_of(root, rule, rule->keys[k]);
    }
    const bool skips = strcmp(td_section_string(root, "train.on_nan"), "skip") == 0 ||
                       strcmp(td_section_string(root, "train.precision"), "fp16") == 0;
    if (is_said(root, "train.most_skipped") && !skips)
        td_log(TD_LOG_WARNING,
               "train.most_skipped has no effect: no step is skipped without train.on_nan: skip or fp16");
    const bool narrow =
        strcmp(td_section_string(root, "train.table_dtype"), "f32") != 0 ||
        (td_section_has(root, "offload.master") && strcmp(td_section_string(root, "offload.master"), "none") == 0);
    if (is_said(root, "train.table_rounding") && !narrow)
        td_log(TD_LOG_WARNING, "train.table_rounding has no effect: nothing that is updated is kept in 16 bit "
                               "(train.table_dtype, offload.master)");
    for (int32_t i = 0; i < td_section_count(root, "optimizer"); i++)
        warn_of_schedule(td_section_item(root, "optimizer", i), i);
}
