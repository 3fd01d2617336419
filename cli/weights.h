/* model.weights: where parameters begin. */
#ifndef TANDEM_CLI_WEIGHTS_H
#define TANDEM_CLI_WEIGHTS_H

#include "cli/config.h"
#include "tandem/session.h"

/* Nothing without model.weights.file. */
td_status *td_weights_import(td_section root, td_store *store) TD_MUST_USE;

#endif
