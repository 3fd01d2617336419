/* JSON out, by jansson. */
#ifndef TANDEM_CLI_JSON_H
#define TANDEM_CLI_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "tandem/status.h"

/* Prints an indented document and a newline. Takes `json`; NULL means there was no memory to build it. */
td_status *td_json_print(json_t *json, FILE *out) TD_MUST_USE;
/* Writes it as <folder>/<name>: whole, or not at all. Takes `json`. */
td_status *td_json_write(json_t *json, const char *folder, const char *name) TD_MUST_USE;

#endif
