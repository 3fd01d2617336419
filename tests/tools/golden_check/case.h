/* A golden training case as its folder holds it: the model and optimizer it describes, ten batches, the initial parameters
 * and what a correct engine finds. Nothing is computed here.
 *
 *     <folder>/expected.json        model, optimizer, losses, gradient norms, final tensors, each with its tolerance
 *     <folder>/init.safetensors     initial parameters by name
 *     <folder>/batches.safetensors  "step<k>.<input>"; a pair "ids_<x>", "offsets_<x>" is one ragged input "ids_<x>" */
#ifndef TANDEM_TESTS_GOLDEN_CHECK_CASE_H
#define TANDEM_TESTS_GOLDEN_CHECK_CASE_H

#include <jansson.h>

#include "base/safetensors.h"
#include "tandem/tandem.h"

typedef struct golden_case {
    const char *name; /* borrowed: the folder's */
    json_t *expected;
    td_safetensors *initial;
    int32_t n_steps, n_fields, n_batches;
    int32_t micro_batches; /* of a step, at most: more than 1 where gradients are accumulated */
    int32_t *first;        /* [n_steps + 1]: a step's batches are first[step] .. first[step + 1] */
    td_batch *batches;     /* [n_batches] */
    td_field *fields;      /* [n_batches, n_fields]: the batches point here */
    char **names;          /* [n_fields] */
    void **memory;         /* what the fields' tensors point to */
    int64_t n_memory, memory_capacity;
} golden_case;

/* Reads `folder`; on failure too, golden_case_close frees what was read. */
td_status *golden_case_open(golden_case *c, const char *folder, const char *name) TD_MUST_USE;
void golden_case_close(golden_case *c);

/* The graph's input for a field. Dimension 0 is the extent "B", the ids of a ragged field an extent of the field's name; both
 * with the most that any step has as capacity. */
td_status *golden_case_input(const golden_case *c, td_graph *graph, const char *name, td_value *out_value) TD_MUST_USE;
/* Dimension `axis` of a parameter in init.safetensors; 0 when there is none. */
int64_t golden_case_dim(const golden_case *c, const char *parameter, int32_t axis);

/* ---- JSON, with errors that name what is missing ------------------------------------------------------------------------- */

td_status *golden_json_load(const char *path, json_t **out_root) TD_MUST_USE;
/* Member `key` of an object, of this type (JSON_REAL: any number). Borrowed. */
td_status *golden_json_get(const json_t *object, const char *key, json_type type, json_t **out_value) TD_MUST_USE;
td_status *golden_json_number(const json_t *object, const char *key, double *out_number) TD_MUST_USE;

/* ---- optimizers ------------------------------------------------------------------------------------------------------------ */

/* Settings as these files spell them (lr, betas, eps, ...); one that is given as zero is TD_ZERO. Keys that are no settings
 * ("type", "parameters") are passed over, and so is what is false; unknown ones are an error. `rule` is borrowed. */
td_status *golden_optimizer(const char *rule, const json_t *settings, td_optimizer *out_optimizer) TD_MUST_USE;

#endif
