/* See cli/weights.h: the keys of model.weights become what td_store_import takes. */
#include "cli/weights.h"

#include "base/memory.h"

/* *out_list: as many as *out_n, borrowed texts; td_free the list. */
static td_status *list_of(td_section root, const char *key, const char ***out_list, int32_t *out_n)
{
    *out_n = td_section_count(root, key);
    TD_TRY(TD_NEW(*out_list, *out_n + 1));
    for (int32_t i = 0; i < *out_n; i++)
        (*out_list)[i] = td_section_string_at(root, key, i);
    return NULL;
}

static td_status *map_of(td_section root, td_weight_name **out_map, int32_t *out_n)
{
    *out_n = td_section_count(root, "model.weights.map");
    TD_TRY(TD_NEW(*out_map, *out_n + 1));
    for (int32_t i = 0; i < *out_n; i++) {
        td_section item = td_section_item(root, "model.weights.map", i);
        (*out_map)[i] = (td_weight_name){.match = td_section_string(item, "match"),
                                         .from = td_section_string(item, "from"),
                                         .transpose = td_section_bool(item, "transpose")};
    }
    return NULL;
}

td_status *td_weights_import(td_section root, td_store *store)
{
    char *path = NULL;
    const char **keep = NULL, **ignore = NULL;
    td_weight_name *map = NULL;
    td_weights weights = {0};
    TD_TRY(td_section_path(root, "model.weights.file", &path));
    if (!path)
        return NULL;
    weights.file = path;
    td_status *status = list_of(root, "model.weights.keep", &keep, &weights.n_keep);
    if (!status)
        status = list_of(root, "model.weights.ignore", &ignore, &weights.n_ignore);
    if (!status)
        status = map_of(root, &map, &weights.n_map);
    weights.keep = keep;
    weights.ignore = ignore;
    weights.map = map;
    if (!status)
        status = td_store_import(store, &weights);
    td_free(keep);
    td_free(ignore);
    td_free(map);
    td_free(path);
    return status;
}
