/* Text from a model that predicts characters (tandem eval --generate). */
#ifndef TANDEM_CLI_GENERATE_H
#define TANDEM_CLI_GENERATE_H

#include "cli/setup.h"
#include "tandem/session.h"

typedef struct td_generation {
    const char *prompt;
    int64_t length;     /* characters to add */
    double temperature; /* 0: always the likeliest; 1: as likely as the model says */
} td_generation;

/* The prompt and what follows, td_free'd by the caller. The same store, seed (train.seed) and settings give the same text. */
td_status *td_generate(td_setup *setup, td_store *store, const td_generation *generation, char **out_text) TD_MUST_USE;
/* The plan that td_generate runs, so that a store can be made for it. */
td_status *td_generation_plan(td_setup *setup, const td_store *store, td_plan **out_plan) TD_MUST_USE;

#endif
