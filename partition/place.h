/* What the files of the pass place share. */
#ifndef TANDEM_PARTITION_PLACE_H
#define TANDEM_PARTITION_PLACE_H

#include "partition/plan.h"

/* The first placement rule that matches a name; NULL: none. */
const td_option_entry *td_place_rule_of(const td_plan_request *request, const char *name);

/* A node and what it makes are there. The cause is taken; NULL: there was no memory for it. */
td_status *td_place_assign(td_plan *plan, int32_t id, int32_t site, char *cause) TD_MUST_USE;

/* ---- casts (place_casts.c) ------------------------------------------------------------------------------------------------ */

/* A cast between f32 and 16 bit that nobody has given a place by its own name or target. */
bool td_place_is_free_cast(const td_plan_request *request, const td_graph *graph, const td_node *node);

/* reader[v]: the forward op among those that read value v which decides where it belongs, or -1. Casts are looked through. */
void td_place_find_readers(const td_plan_request *request, const td_graph *graph, int32_t *reader);

/* A cast of what an op makes, to 16 bit: views of it may follow. Other casts have to wait. */
td_status *td_place_cast_of_result(td_plan *plan, int32_t id) TD_MUST_USE;

/* The others, when parameters and all readers have their places. */
td_status *td_place_casts(td_plan *plan, const td_plan_request *request, const int32_t *reader) TD_MUST_USE;

#endif
