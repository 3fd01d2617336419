/* What the tests of the partitioner share: small models, options, and looking at where things went. */
#ifndef TANDEM_TESTS_PARTITION_MODELS_H
#define TANDEM_TESTS_PARTITION_MODELS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/memory.h"
#include "partition/plan.h"
#include "tests/base/check.h"
#include "tests/support/plan_check.h"

/* A graph with one f32 input [B <= 8, width], "x", and the labels of a bce loss, "y" [B, 1]. */
typedef struct model {
    td_graph *graph;
    td_value x, y, loss;
    td_train_options options;
    td_plan *plan;
} model;

static inline model model_begin(int64_t width)
{
    model m = {.options = td_train_defaults()};
    assert_ok(td_graph_create(&m.graph));
    m.x = td_input(m.graph, "x", TD_F32, TD_SHAPE(td_extent(m.graph, "B", 8), width));
    m.y = td_input(m.graph, "y", TD_F32, TD_SHAPE(td_extent(m.graph, "B", 8), 1));
    td_group(&m.options, "*", td_adagrad(0.1));
    return m;
}

/* Ids [B] into a table "table.weight" [rows, dim]; the op is "table/embedding". */
static inline td_value model_lookup(model *m, int64_t rows, int64_t dim, bool dense)
{
    td_value table = td_parameter(m->graph, "table.weight", TD_F32, TD_SHAPE(rows, dim), td_init_uniform(0.1));
    td_value ids = td_input(m->graph, "ids", TD_I64, TD_SHAPE(td_extent(m->graph, "B", 8)));
    return td_embedding(table, ids, (td_embedding_options){.dense = dense});
}

/* The plan, or the refusal; a plan that is made is looked through. */
static inline td_status *model_plan(model *m, td_value logit)
{
    char problem[PLAN_PROBLEM_BYTES];
    m->loss = td_bce_with_logits(logit, m->y);
    td_status *status = td_plan_train(m->graph, m->loss, &m->options, &m->plan);
    if (!status && !plan_check(m->plan, problem))
        fail_msg("%s", problem);
    return status;
}

static inline void model_end(model *m)
{
    td_plan_release(m->plan);
    td_train_options_deinit(&m->options);
    td_graph_destroy(m->graph);
    *m = (model){0};
}

/* The op that another was made part of: its names have that one's. */
static inline int32_t group_with(const td_plan *plan, const char *name)
{
    for (int32_t n = 0; n < plan->graph->n_nodes; n++) {
        const td_node *node = &plan->graph->nodes[n];
        const char *names = td_attr_string(node->attrs, node->n_attrs, "names", ""), *at = strstr(names, name);
        if (at && (at == names || at[-1] == ' ') && strcspn(at, " ") == strlen(name))
            return n;
    }
    return -1;
}

static inline const td_plan_node *node_of(const td_plan *plan, const char *name)
{
    int32_t id = td_name_map_get(&plan->graph->node_names, name);
    id = id < 0 ? group_with(plan, name) : id;
    if (id < 0)
        fail_msg("the plan has no op \"%s\"", name);
    return &plan->nodes[id];
}

static inline const char *device_of(const td_plan *plan, const char *node)
{
    return plan->sites[node_of(plan, node)->device].name;
}

static inline const char *home_of(const td_plan *plan, const char *value)
{
    int32_t id = td_name_map_get(&plan->graph->value_names, value);
    if (id < 0)
        fail_msg("the plan has no value \"%s\"", value);
    return plan->sites[plan->values[id].device].name;
}

#define assert_contains(text, part)                                                                                    \
    do {                                                                                                               \
        if (!strstr((text), (part)))                                                                                   \
            fail_msg("\"%s\" is not in: %s", (part), (text));                                                          \
    } while (0)

#endif
