/* What a finished training was: summary.json, whose names are a promise, and the lines a person reads. */
#ifndef TANDEM_CLI_SUMMARY_H
#define TANDEM_CLI_SUMMARY_H

#include <jansson.h>
#include <stdio.h>

#include "cli/evaluation.h"
#include "cli/training.h"
#include "tandem/job.h"

typedef struct td_summary {
    td_training *training;
    const td_evaluation *evaluation;
    double generator_auc;    /* of the data's own model on the test part; NAN: not known */
    int64_t single_bytes;    /* what one device would need; 0: not known */
    const char *single_name; /* that device */
    const char *evaluate;    /* the command that measures its checkpoint again */
    const char *run;         /* folder */
    /* Of a job with served tables: pulls by how many windows they were behind (td_job_staleness). */
    bool pulls;
    int64_t staleness[TD_JOB_STALENESS];
} td_summary;

/* Copies and host work that ran while an accelerator worked, over all of it; 1 where there was none to hide. */
double td_summary_overlap(const td_session_counters *counters);
/* The document of summary.json. */
td_status *td_summary_json(const td_summary *summary, json_t **out_json) TD_MUST_USE;
/* "done in ..." and what follows. */
td_status *td_summary_print(const td_summary *summary, FILE *stream) TD_MUST_USE;
/* Parts of run.json: every setting by its full key ("optimizer[0].lr"); format, rows, fields and stages of the data (null: none);
 * name and parameters of the model. */
td_status *td_settings_json(td_section root, json_t **out_json) TD_MUST_USE;
json_t *td_data_json(const td_setup *setup);
td_status *td_model_json(const td_setup *setup, const td_store *store, json_t **out_json) TD_MUST_USE;
/* The document of run.json: what must be known to repeat the run. */
td_status *td_lineage_json(const td_config *config, const td_training *training, bool resumed,
                           json_t **out_json) TD_MUST_USE;
/* The configuration in the run.json of a folder, not resolved; paths in it are relative to where its file was. An error about
 * run.json where there is none, or nothing in it. The caller destroys *out_config, which is NULL with an error. */
td_status *td_lineage_configuration(const char *run, td_config **out_config) TD_MUST_USE;

#endif
