/* All of a configuration at once: see cli/setup.h. */
#include "cli/setup.h"

#include <string.h>

#include "base/memory.h"
#include "cli/idle_patterns.h"

/* "a/b/model.tdg" -> "model". */
static void name_run(td_setup *setup)
{
    const char *name = td_section_string(setup->root, "model.name");
    const char *path = name ? name : td_section_string(setup->root, "graph");
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *base = slash ? slash + 1 : path ? path : "model";
    size_t length = name ? strlen(base) : strcspn(base, ".");
    snprintf(setup->name, sizeof setup->name, "%.*s", (int)(length < 40 ? length : 40), base);
}

static void count_steps(td_setup *setup)
{
    int64_t rows = setup->dataset ? td_dataset_schema(setup->dataset)->train_rows : 0;
    bool drop = td_section_bool(setup->root, "data.drop_remainder");
    int64_t epochs = td_section_int(setup->root, "train.epochs"), most = td_section_int(setup->root, "train.steps");
    setup->batches_per_epoch = drop ? rows / setup->batch : rows / setup->batch + (rows % setup->batch != 0);
    setup->steps_per_epoch = td_setup_count_steps(setup->root, setup->batches_per_epoch, 1);
    setup->steps = td_setup_count_steps(setup->root, setup->batches_per_epoch, epochs);
    if (most && (!setup->steps || most < setup->steps))
        setup->steps = most;
}

/* Hash tables that no job has belong to this process. */
static td_status *own_tables(td_setup *setup)
{
    td_train_options *options = &setup->options;
    if (!options->hashes.n || options->remote || options->serve_embedding)
        return NULL;
    TD_TRY(td_own_tables_create(&setup->own));
    options->remote = td_own_tables_remote(setup->own);
    return NULL;
}

td_status *td_setup_serve_none(td_setup *setup)
{
    setup->options.serve_embedding = false;
    return setup->own ? NULL : own_tables(setup);
}

static td_status *open_parts(const td_config *config, td_setup *setup)
{
    setup->root = td_config_root(config);
    setup->batch = td_section_int(setup->root, "data.batch");
    name_run(setup);
    bool from_file = td_section_has(setup->root, "graph");
    if (!from_file || td_section_has(setup->root, "data.format"))
        TD_TRY(td_setup_dataset(setup->root, &setup->dataset));
    count_steps(setup);
    td_model_options model = {.config = setup->root,
                              .schema = setup->dataset ? td_dataset_schema(setup->dataset) : NULL,
                              .batch = setup->batch};
    TD_TRY(td_model_build(&model, &setup->graph, &setup->model));
    TD_TRY(td_check_idle_patterns(setup));
    TD_TRY(td_setup_options(setup->root, setup->steps, &setup->options));
    if (setup->distributed)
        td_distributed_options(setup->distributed, setup->root, &setup->options);
    return own_tables(setup);
}

td_status *td_setup_open(const td_config *config, td_setup *out_setup)
{
    const td_distributed alone = {.leads = true};
    TD_TRY(td_setup_open_worker(config, &alone, out_setup));
    out_setup->distributed = NULL;
    return NULL;
}

td_status *td_setup_open_worker(const td_config *config, const td_distributed *distributed, td_setup *out_setup)
{
    *out_setup = (td_setup){.distributed = distributed, .options = td_train_defaults()};
    td_status *status = open_parts(config, out_setup);
    if (status)
        td_setup_close(out_setup);
    return status;
}

void td_setup_close(td_setup *setup)
{
    td_train_options_deinit(&setup->options);
    td_graph_destroy(setup->graph);
    td_dataset_destroy(setup->dataset);
    td_own_tables_destroy(setup->own);
    *setup = (td_setup){0};
}
