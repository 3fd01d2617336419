/* What the files behind td_plan_explain share. */
#ifndef TANDEM_PARTITION_EXPLAIN_H
#define TANDEM_PARTITION_EXPLAIN_H

#include "base/string.h"
#include "partition/plan.h"

/* explain_value.c: where a parameter, its state or an input is, why, and which ops read and write it. */
void td_explain_value(const td_plan *plan, int32_t value, td_string *text);
/* The same of each parameter of a layer ("table.3": table.3.weight). False: no parameter's name begins so. */
bool td_explain_layer(const td_plan *plan, const char *layer, td_string *text);

#endif
