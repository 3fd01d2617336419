/* Names of subgraphs: what they hold, in few words, and unlike each other's, for who reads a plan or a recording.
 *
 * "bottom+top backward" are the scopes of a cluster's nodes; "lookup" is what all of them are. Where that is the name of several clusters,
 * as of a model whose layers are alike, theirs are more exact: first with the layer's number ("h.3 backward"), then with the scope that is
 * within it ("h.3.up backward"), and last with a number of their own. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "partition/plan.h"

/* How much of a node's name is its scope: "bottom" of "bottom.0/linear"; with a layer's number "bottom.0"; all before the slash. */
typedef enum scope { SCOPE_FIRST, SCOPE_LAYER, SCOPE_WHOLE, SCOPES } scope;

static size_t scope_of(const char *name, scope how)
{
    return how == SCOPE_FIRST ? strcspn(name, "./@") : how == SCOPE_LAYER ? td_layer_length(name) : strcspn(name, "/@");
}

static char *copy_name(const td_plan *plan, const td_cluster *cluster)
{
    const td_node *first = &plan->graph->nodes[plan->sequence[cluster->first]];
    const char *to = plan->sites[plan->values[td_copied_to(first)].device].name;
    const char *value = plan->graph->values[first->inputs[0]].name;
    return cluster->n == 1 ? td_format("%s -> %s", value, to)
                           : td_format("%s and %d more -> %s", value, cluster->n - 1, to);
}

/* What all nodes of a cluster are, where that says more than their scopes. */
static const char *common_role(const td_plan *plan, const td_cluster *cluster)
{
    bool early = true, lookup = true, rows = true, update = true;
    for (int32_t i = 0; i < cluster->n; i++) {
        int32_t n = plan->sequence[cluster->first + i];
        const td_node *node = &plan->graph->nodes[n];
        early = early && plan->nodes[n].early == TD_EARLY_FIRST;
        lookup = lookup && (td_op_is_lookup(node->op) || plan->nodes[n].early == TD_EARLY_REST);
        rows = rows && strncmp(node->op->name, "embedding_update", strlen("embedding_update")) == 0;
        update = update && node->phase == TD_UPDATE;
    }
    return early ? "early lookup" : lookup ? "lookup" : rows ? "tables update" : update ? "update" : NULL;
}

/* "bottom+top backward": the scopes of a cluster's nodes in sequence, up to three, and its phases or its role. */
static char *scopes_name(const td_plan *plan, const td_cluster *cluster, scope how, const char *role)
{
    enum { MOST = 3 };
    const char *seen[MOST];
    int32_t scopes = 0;
    bool phases[3] = {false};
    td_string name = {0};
    char *text = NULL;
    for (int32_t i = 0; i < cluster->n; i++) {
        const td_node *node = &plan->graph->nodes[plan->sequence[cluster->first + i]];
        size_t length = scope_of(node->name, how);
        bool known = scopes > MOST;
        phases[node->phase] = true;
        for (int32_t k = 0; k < scopes && k < MOST; k++)
            known = known || (scope_of(seen[k], how) == length && strncmp(seen[k], node->name, length) == 0);
        if (known)
            continue;
        td_string_format(&name, "%s%.*s", scopes ? "+" : "", scopes < MOST ? (int)length : 2,
                         scopes < MOST ? node->name : "..");
        if (scopes < MOST)
            seen[scopes] = node->name;
        scopes++;
    }
    static const char *const without_forward[] = {"", " backward", " update", " backward, update"};
    static const char *const with_forward[] = {"", ", backward", ", update", ", backward, update"};
    const char *what = (phases[0] ? with_forward : without_forward)[phases[1] + 2 * phases[2]];
    td_string_format(&name, "%s%s", role ? " " : "", role ? role : what);
    td_status *status = td_string_finish(&name, &text);
    td_status_destroy(status); /* the caller reports a missing name */
    return text;
}

static char *compute_name(const td_plan *plan, const td_cluster *cluster, scope how)
{
    const char *role = common_role(plan, cluster);
    return role && how == SCOPE_FIRST ? td_strdup(role) : scopes_name(plan, cluster, how, role);
}

/* ---- unlike each other ----------------------------------------------------------------------------------------------------------- */

typedef struct named {
    const char *name;
    int32_t cluster;
} named;

static int by_name(const void *a, const void *b)
{
    const named *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : x->cluster - y->cluster;
}

static bool same_name(const named *list, int32_t n, int32_t i, int32_t k)
{
    return k >= 0 && k < n && !strcmp(list[i].name, list[k].name);
}

static td_status *no_memory(void)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a subgraph's name");
}

/* Each cluster whose name is also another one's gets a more exact one; `how` SCOPES: its number behind it, from the second on. */
static td_status *tell_apart(td_plan *plan, named *list, scope how)
{
    const int32_t n = plan->n_clusters;
    for (int32_t c = 0; c < n; c++)
        list[c] = (named){plan->clusters[c].name, c};
    if (n > 1)
        qsort(list, (size_t)n, sizeof *list, by_name);
    char **names = NULL;
    TD_TRY(TD_NEW(names, n + 1));
    td_status *status = NULL;
    for (int32_t i = 0, number = 1; i < n && !status; i++) {
        const td_cluster *cluster = &plan->clusters[list[i].cluster];
        const bool repeats = same_name(list, n, i, i - 1), alone = !repeats && !same_name(list, n, i, i + 1);
        number = repeats ? number + 1 : 1;
        if (alone || (how == SCOPES && !repeats) || (how < SCOPES && cluster->lane != TD_QUEUE_COMPUTE))
            continue;
        names[i] = how < SCOPES ? compute_name(plan, cluster, how) : td_format("%s (%d)", list[i].name, number);
        status = names[i] ? NULL : no_memory();
    }
    for (int32_t i = 0; i < n; i++) {
        char **name = &plan->clusters[list[i].cluster].name;
        if (!names[i])
            continue;
        td_free(*name);
        *name = names[i];
    }
    td_free(names);
    return status;
}

td_status *td_plan_name_clusters(td_plan *plan)
{
    named *list = NULL;
    for (int32_t c = 0; c < plan->n_clusters; c++) {
        td_cluster *cluster = &plan->clusters[c];
        cluster->name =
            cluster->lane == TD_QUEUE_COMPUTE ? compute_name(plan, cluster, SCOPE_FIRST) : copy_name(plan, cluster);
        if (!cluster->name)
            return no_memory();
    }
    TD_TRY(TD_NEW(list, plan->n_clusters + 1));
    td_status *status = NULL;
    for (scope how = SCOPE_LAYER; how <= SCOPES && !status; how++)
        status = tell_apart(plan, list, how);
    td_free(list);
    return status;
}
