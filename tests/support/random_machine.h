/* Machines, options and batches for random models: see random_graph.h. Machines are opened once and shared by many plans. */
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_MACHINE_H
#define TANDEM_TESTS_SUPPORT_RANDOM_MACHINE_H

#include "runtime/machine.h"
#include "tandem/session.h"
#include "tests/support/random_graph.h"

enum { RANDOM_DEVICES = 5 };

/* Devices as "name", "backend:options" pairs; the first is the host. */
typedef struct random_machine {
    const char *devices[RANDOM_DEVICES][2];
    int32_t n_devices;
    td_machine *machine; /* NULL until random_machine_open */
} random_machine;

td_status *random_machine_open(random_machine *machine) TD_MUST_USE;
void random_machine_close(random_machine *machine);

/* Options for one graph on an opened machine: optimizer groups from `model_seed`; with `placing`, rules, the default device
 * and the switches too, from `placing_seed`. td_train_options_deinit them. */
td_train_options random_options(const random_machine *machine, uint64_t model_seed, bool placing,
                                uint64_t placing_seed);

/* Batches of a recipe: `steps` of them, each a function of the recipe's seed and its index; some are short, the last always
 * where it can be. One field per input. */
typedef struct random_source random_source;
td_status *random_source_create(const random_recipe *recipe, int64_t steps, random_source **out_source) TD_MUST_USE;
void random_source_destroy(random_source *source);
/* From the first batch on again. */
td_source random_source_begin(random_source *source);

#endif
