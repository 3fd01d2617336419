/* The opened devices of one set of options, and the plans made for them. Shared by plans, stores and sessions: whoever needs
 * the devices retains the machine; the last release closes them. */
#ifndef TANDEM_RUNTIME_MACHINE_H
#define TANDEM_RUNTIME_MACHINE_H

#include <pthread.h>

#include "base/topology.h"
#include "partition/plan.h"

struct td_machine {
    int64_t references;  /* atomic */
    td_plan_site *sites; /* names and backends are owned here */
    int32_t n_sites, host, standard;
    td_topology *topology;
    td_lane_cores *lane_cores; /* compute lanes of all sites, in order */
    int32_t *first_lane;       /* of each site, n_sites + 1 */
    bool lanes_share_cores;
    pthread_mutex_t mutex; /* of the cache below */
    td_plan **cached;
    int64_t n_cached, cached_capacity;
};

/* Opens the devices that options ask for, the host too where it is not named. Errors name the device and its specification. */
td_status *td_machine_open(const td_train_options *options, td_machine **out_machine) TD_MUST_USE;
td_machine *td_machine_retain(td_machine *machine);
/* As owner of a plan: void * so that it can be a callback. */
void td_machine_release(void *machine);

/* Plans that were made with one set of options, by what they were made from. The options own the cache's references: they
 * drop them when they end, which is what lets plan and machine go. */
td_plan *td_machine_find_plan(td_machine *machine, const char *key); /* retained, or NULL */
td_status *td_machine_keep_plan(td_machine *machine, td_plan *plan) TD_MUST_USE;
void td_machine_forget_plans(td_machine *machine);

#endif
