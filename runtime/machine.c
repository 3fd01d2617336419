/* Opening devices and dividing the machine's cores among them: see machine.h. */
#include "runtime/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/registry.h"
#include "base/memory.h"
#include "graph/op.h"

/* ---- opening ---------------------------------------------------------------------------------------------------------------- */

static td_status *open_site(td_machine *machine, const char *name, const char *what, const char *more)
{
    td_plan_site *site = &machine->sites[machine->n_sites];
    char *backend = NULL, *options = NULL, *all = NULL;
    td_status *status = NULL;
    *site = (td_plan_site){.lanes = 1};
    TD_TRY_OR(status, done, td_backend_split(what, &backend, &options));
    TD_TRY_OR(status, done, td_backend_find(backend, &site->api));
    all = td_format("%s%s%s", options, options[0] && more[0] ? "," : "", more);
    site->name = td_strdup(name);
    if (!all || !site->name) {
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for device \"%s\"", name);
        goto done;
    }
    TD_TRY_OR(status, done, site->api->device_open(td_backend_host(), all, &site->device));
    site->properties.struct_size = sizeof site->properties;
    site->api->device_properties(site->device, &site->properties);
    site->is_host = site->properties.flags & TD_DEVICE_HOST_MEMORY;
    site->lanes = site->properties.lanes > 0 ? site->properties.lanes : 1;
    site->backend = backend;
    backend = NULL;
    machine->n_sites++;
done:
    if (status) {
        td_free((void *)(uintptr_t)site->name);
        status = td_status_prefix(status, "device \"%s\" (%s)", name, what);
    }
    td_free(backend);
    td_free(options);
    td_free(all);
    return status;
}

static bool is_host_spec(const td_option_entry *entry)
{
    return strncasecmp(entry->value, "cpu", 3) == 0 && (entry->value[3] == '\0' || entry->value[3] == ':');
}

/* The host takes the cores that the other devices leave, unless it was told how many. */
static td_status *open_host(td_machine *machine, const char *name, const char *what)
{
    int32_t taken = 0;
    char cores[32] = "";
    for (int32_t i = 0; i < machine->n_sites; i++)
        taken += machine->sites[i].properties.cores;
    int32_t left = machine->topology->usable - taken;
    if (!strstr(what, "cores="))
        (void)snprintf(cores, sizeof cores, "cores=%d", left > 0 ? left : 1);
    return open_site(machine, name, what, cores);
}

static td_status *open_sites(td_machine *machine, const td_option_list *devices)
{
    const td_option_entry *host = NULL;
    TD_TRY(TD_NEW(machine->sites, devices->n + 1));
    for (int64_t i = 0; i < devices->n; i++) {
        if (!host && is_host_spec(&devices->items[i]))
            host = &devices->items[i];
        else
            TD_TRY(open_site(machine, devices->items[i].match, devices->items[i].value, ""));
    }
    TD_TRY(open_host(machine, host ? host->match : "cpu", host ? host->value : "cpu"));
    /* the host first: the order of devices in reports */
    td_plan_site last = machine->sites[machine->n_sites - 1];
    memmove(machine->sites + 1, machine->sites, (size_t)(machine->n_sites - 1) * sizeof last);
    machine->sites[0] = last;
    machine->host = 0;
    return NULL;
}

static td_status *choose_default(td_machine *machine, const char *name)
{
    machine->standard = 0;
    for (int32_t i = machine->n_sites - 1; i > 0; i--)
        if (!machine->sites[i].is_host)
            machine->standard = i;
    if (!name)
        return NULL;
    int32_t site = td_plan_find_site(machine->sites, machine->n_sites, machine->host, machine->standard, name);
    if (site < 0) {
        char *names = td_plan_site_names(machine->sites, machine->n_sites);
        td_status *status = TD_ERROR(TD_INVALID_ARGUMENT, "placement.default asks for device \"%s\"; there is: %s",
                                     name, names ? names : "");
        td_free(names);
        return status;
    }
    machine->standard = site;
    return NULL;
}

static td_status *split_cores(td_machine *machine)
{
    int32_t n = 0;
    TD_TRY(TD_NEW(machine->first_lane, machine->n_sites + 1));
    for (int32_t s = 0; s < machine->n_sites; s++) {
        machine->first_lane[s] = n;
        n += machine->sites[s].lanes;
    }
    machine->first_lane[machine->n_sites] = n;
    int32_t *wanted = NULL;
    TD_TRY(TD_NEW(machine->lane_cores, n));
    TD_TRY(TD_NEW(wanted, n));
    for (int32_t s = 0; s < machine->n_sites; s++)
        for (int32_t lane = 0; lane < machine->sites[s].lanes; lane++) {
            int32_t cores = machine->sites[s].properties.cores / machine->sites[s].lanes;
            wanted[machine->first_lane[s] + lane] = cores > 0 ? cores : 1;
        }
    machine->lanes_share_cores = td_topology_split(machine->topology, n, wanted, machine->lane_cores);
    td_free(wanted);
    return NULL;
}

static td_status *open_all(td_machine *machine, const td_train_options *options)
{
    td_backend_set_reference(td_op_reference);
    TD_TRY(td_topology_create(&machine->topology));
    TD_TRY(open_sites(machine, &options->devices));
    TD_TRY(choose_default(machine, options->default_device));
    return split_cores(machine);
}

td_status *td_machine_open(const td_train_options *options, td_machine **out_machine)
{
    td_machine *machine = NULL;
    *out_machine = NULL;
    TD_TRY(TD_NEW(machine, 1));
    machine->references = 1;
    pthread_mutex_init(&machine->mutex, NULL);
    td_status *status = open_all(machine, options);
    if (status) {
        td_machine_release(machine);
        return status;
    }
    *out_machine = machine;
    return NULL;
}

td_machine *td_machine_retain(td_machine *machine)
{
    (void)__atomic_add_fetch(&machine->references, 1, __ATOMIC_RELAXED);
    return machine;
}

void td_machine_release(void *pointer)
{
    td_machine *machine = pointer;
    if (!machine || __atomic_sub_fetch(&machine->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (int32_t i = 0; i < machine->n_sites; i++) {
        machine->sites[i].api->device_close(machine->sites[i].device);
        td_free((void *)(uintptr_t)machine->sites[i].name);
        td_free((void *)(uintptr_t)machine->sites[i].backend);
    }
    td_free(machine->sites);
    td_free(machine->lane_cores);
    td_free(machine->first_lane);
    td_free(machine->cached);
    td_topology_destroy(machine->topology);
    pthread_mutex_destroy(&machine->mutex);
    td_free(machine);
}
