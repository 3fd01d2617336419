/* The registry of rules, and how the settings a person gave become the settings a rule runs with. */
#include "optim/rule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

#define TD_OPTIMIZER(name) extern const td_rule td_rule_##name;
#include "optim/optimizers.def"
#undef TD_OPTIMIZER

static const td_rule *const rules[] = {
#define TD_OPTIMIZER(name) &td_rule_##name,
#include "optim/optimizers.def"
#undef TD_OPTIMIZER
};

/* Where a setting lives in td_optimizer. `nesterov` is not here: it is a bool. */
static const struct {
    const char *name;
    size_t at;
} fields[] = {{"momentum", offsetof(td_optimizer, momentum)},
              {"beta1", offsetof(td_optimizer, beta1)},
              {"beta2", offsetof(td_optimizer, beta2)},
              {"epsilon", offsetof(td_optimizer, epsilon)},
              {"weight_decay", offsetof(td_optimizer, weight_decay)},
              {"alpha", offsetof(td_optimizer, alpha)},
              {"l1", offsetof(td_optimizer, l1)},
              {"l2", offsetof(td_optimizer, l2)},
              {"lr_power", offsetof(td_optimizer, lr_power)},
              {"initial_accumulator", offsetof(td_optimizer, initial_accumulator)}};
enum { FIELDS = sizeof fields / sizeof *fields };

int32_t td_rule_count(void)
{
    return (int32_t)(sizeof rules / sizeof *rules);
}

const td_rule *td_rule_at(int32_t index)
{
    return rules[index];
}

const td_rule *td_rule_find(const char *name)
{
    for (int32_t i = 0; i < td_rule_count(); i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return NULL;
}

bool td_rule_is_elementwise(const td_rule *rule)
{
    bool by_element = !rule->whole_tensor && !rule->refuses_dense;
    for (const td_slot *slot = rule->slots; slot->name; slot++)
        by_element = by_element && !slot->per_row;
    return by_element;
}

static const char *rule_name(const void *context, int32_t index)
{
    (void)context;
    return rules[index]->name;
}

const char *td_rule_nearest(const char *name)
{
    return td_nearest(name, td_rule_count(), rule_name, NULL);
}

static double field(const td_optimizer *settings, size_t at)
{
    double value;
    memcpy(&value, (const char *)settings + at, sizeof value);
    return value;
}

static void set_field(td_optimizer *settings, size_t at, double value)
{
    memcpy((char *)settings + at, &value, sizeof value);
}

static size_t field_offset(const char *name)
{
    for (int i = 0; i < FIELDS; i++)
        if (strcmp(fields[i].name, name) == 0)
            return fields[i].at;
    return SIZE_MAX;
}

/* TD_ZERO asks for zero; a plain 0 asks for nothing. */
static bool given_value(double value)
{
    return value != 0 || signbit(value);
}

int32_t td_rule_slots(const td_rule *rule, const td_optimizer *settings, const td_slot **out_slots)
{
    int32_t count = 0;
    for (; rule->slots[count].name; count++) {
        const char *condition = rule->slots[count].only_with;
        if (condition && field(settings, field_offset(condition)) == 0)
            break;
    }
    *out_slots = rule->slots;
    return count;
}

static const td_setting *find_setting(const td_rule *rule, const char *name)
{
    for (const td_setting *setting = rule->settings; setting->name; setting++)
        if (strcmp(setting->name, name) == 0)
            return setting;
    return NULL;
}

static td_status *unknown_setting(const td_rule *rule, const char *name)
{
    char known[256] = "lr";
    size_t used = strlen(known);
    for (const td_setting *setting = rule->settings; setting->name && used < sizeof known; setting++)
        used += (size_t)snprintf(known + used, sizeof known - used, ", %s", setting->name);
    return TD_ERROR(TD_INVALID_ARGUMENT, "optimizer %s: it has no setting %s; it knows %s", rule->name, name, known);
}

static td_status *check_unknown(const td_rule *rule, const td_optimizer *given)
{
    for (int i = 0; i < FIELDS; i++)
        if (given_value(field(given, fields[i].at)) && !find_setting(rule, fields[i].name))
            return unknown_setting(rule, fields[i].name);
    if (given->nesterov && !find_setting(rule, "nesterov"))
        return unknown_setting(rule, "nesterov");
    return NULL;
}

static td_status *resolve_setting(const td_rule *rule, const td_setting *setting, const td_optimizer *given,
                                  td_optimizer *settings)
{
    size_t at = field_offset(setting->name);
    if (at == SIZE_MAX) /* nesterov: any bool is in range */
        return NULL;
    double value = field(given, at);
    value = !given_value(value) ? setting->fallback : value + 0.0; /* -0 + 0 is 0 */
    if (!(value >= setting->least && value <= setting->most))
        return TD_ERROR(TD_INVALID_ARGUMENT, "optimizer %s: %s is %.9g but must be from %.9g to %.9g", rule->name,
                        setting->name, value, setting->least, setting->most);
    set_field(settings, at, value);
    return NULL;
}

static td_status *resolve_rate(const td_rule *rule, double lr)
{
    const double most = 1e6; /* far beyond use; keeps every coefficient finite in FP32 */
    if (!given_value(lr))
        return TD_ERROR(TD_INVALID_ARGUMENT, "optimizer %s: no learning rate is given; set lr", rule->name);
    if (!(lr >= 0 && lr <= most))
        return TD_ERROR(TD_INVALID_ARGUMENT, "optimizer %s: lr is %.9g but must be from 0 to %.9g", rule->name, lr,
                        most);
    return NULL;
}

td_status *td_rule_resolve(const td_rule *rule, const td_optimizer *given, td_optimizer *out_settings)
{
    td_optimizer settings = *given;
    settings.name = rule->name;
    settings.lr = given->lr + 0.0;
    TD_TRY(resolve_rate(rule, given->lr));
    TD_TRY(check_unknown(rule, given));
    for (const td_setting *setting = rule->settings; setting->name; setting++)
        TD_TRY(resolve_setting(rule, setting, given, &settings));
    TD_TRY(td_status_prefix(td_schedule_check(&given->schedule), "optimizer %s", rule->name));
    if (rule->check)
        TD_TRY(rule->check(&settings));
    *out_settings = settings;
    return NULL;
}
