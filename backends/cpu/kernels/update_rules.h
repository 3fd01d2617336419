/* The optimizers' loops of this instruction set, by the attribute "rule" of a call. */
#ifndef TANDEM_BACKENDS_CPU_KERNELS_UPDATE_RULES_H
#define TANDEM_BACKENDS_CPU_KERNELS_UPDATE_RULES_H

#include <string.h>

#include "backends/cpu/update.h"

#define TD_DECLARE_RULE(rule) extern const td_update_rule TD_KERNEL(update_##rule);
TD_UPDATE_RULES(TD_DECLARE_RULE)
#undef TD_DECLARE_RULE

/* NULL: no optimizer has that name. */
static inline const td_update_rule *td_update_rule_of(const td_kernel_call *call)
{
#define TD_RULE_ADDRESS(rule) &TD_KERNEL(update_##rule),
    static const td_update_rule *const rules[] = {TD_UPDATE_RULES(TD_RULE_ADDRESS)};
#undef TD_RULE_ADDRESS
    const char *name = td_cpu_attr_string(call, "rule", "");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return NULL;
}

#endif
