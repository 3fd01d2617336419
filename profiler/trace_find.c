/* Finding: the plan that an id is of, and the trace that a run has. See trace.h. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "base/string.h"
#include "profiler/job.h"
#include "profiler/trace.h"

/* ---- plans ---------------------------------------------------------------------------------------------------------------------- */

typedef struct by_id {
    uint32_t first_id;
    int32_t plan;
} by_id;

/* Of two plans with the same ids the first counts: it stands last. */
static int in_order(const void *a, const void *b)
{
    const by_id *x = a, *y = b;
    if (x->first_id != y->first_id)
        return x->first_id < y->first_id ? -1 : 1;
    return y->plan - x->plan;
}

td_status *td_trace_index_plans(td_trace *trace)
{
    by_id *order = NULL;
    TD_TRY(TD_NEW(order, trace->n_plans + 1));
    td_status *status = TD_NEW(trace->plan_order, trace->n_plans + 1);
    for (int64_t p = 0; p < trace->n_plans; p++)
        order[p] = (by_id){trace->plans[p].first_id, (int32_t)p};
    if (trace->n_plans > 1)
        qsort(order, (size_t)trace->n_plans, sizeof *order, in_order);
    for (int64_t p = 0; !status && p < trace->n_plans; p++)
        trace->plan_order[p] = order[p].plan;
    td_free(order);
    return status;
}

const td_trace_plan *td_trace_find(const td_trace *trace, uint32_t id, int32_t *out_node, int32_t *out_subgraph)
{
    int64_t low = 0, high = trace->n_plans; /* the last plan that begins at or before the id */
    *out_node = *out_subgraph = -1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (trace->plans[trace->plan_order[middle]].first_id <= id)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return NULL;
    const td_trace_plan *plan = &trace->plans[trace->plan_order[low - 1]];
    uint32_t offset = id - plan->first_id, nodes = (uint32_t)plan->n_nodes;
    if (offset >= nodes + (uint32_t)plan->n_subgraphs)
        return NULL;
    *(offset < nodes ? out_node : out_subgraph) = (int32_t)(offset < nodes ? offset : offset - nodes);
    return plan;
}

/* ---- files ---------------------------------------------------------------------------------------------------------------------- */

/* Later than another: by its number, and of a job's traces the first rank's. */
static bool is_newer(const char *name, const char *than)
{
    int32_t stem = 0, rank = 0, than_stem = 0, than_rank = 0;
    if (!td_job_name_parse(name, &stem, &rank))
        return false;
    if (!td_job_name_parse(than, &than_stem, &than_rank))
        return true;
    int order = strncmp(name, than, (size_t)(stem < than_stem ? stem : than_stem));
    order = order ? order : stem - than_stem;
    return order ? order > 0 : rank < than_rank;
}

/* The newest among the traces of a folder, whose names have a number; NULL: none. */
static td_status *newest_in(const char *folder, char **out_file)
{
    DIR *entries = opendir(folder);
    char best[256] = "";
    *out_file = NULL;
    if (!entries && errno != ENOENT && errno != ENOTDIR)
        return td_file_error(folder, "read", errno);
    if (!entries)
        return NULL;
    for (struct dirent *entry; (entry = readdir(entries));)
        if (is_newer(entry->d_name, best))
            td_text_cut(best, sizeof best, entry->d_name);
    (void)closedir(entries);
    if (!best[0])
        return NULL;
    *out_file = td_format("%s/%s", folder, best);
    return *out_file ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
}

td_status *td_trace_locate(const char *path, char **out_file)
{
    struct stat status;
    *out_file = NULL;
    if (stat(path, &status) != 0)
        return td_file_error(path, "open", errno);
    if (!S_ISDIR(status.st_mode)) {
        *out_file = td_strdup(path);
        return *out_file ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    }
    char *profile = td_format("%s/profile", path);
    if (!profile)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    td_status *error = newest_in(profile, out_file);
    td_free(profile);
    if (!error && !*out_file)
        error = newest_in(path, out_file);
    if (!error && !*out_file)
        error = td_status_help(TD_ERROR(TD_NOT_FOUND, "%s: no trace was recorded there", path),
                               "record one: tandem train CONFIG --profile, or kill -USR1 a training that runs");
    return error;
}
