/* See base/topology.h. */
#include "base/topology.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/cores.h"
#include "base/memory.h"

/* ---- processing units --------------------------------------------------------------------------------------------------- */

static void take(td_topology *t, td_core_set *left, int32_t core)
{
    t->cores[t->n_cores++] = core;
    left->bits[core / 64] &= ~((uint64_t)1 << (core % 64));
}

/* The next allowed unit of this physical core that is not yet taken; -1: none. */
static int32_t next_unit_of(hwloc_obj_t core, const td_core_set *left)
{
    for (int unit = hwloc_bitmap_first(core->cpuset); unit >= 0; unit = hwloc_bitmap_next(core->cpuset, unit))
        if (td_core_set_has(left, unit))
            return unit;
    return -1;
}

/* One more unit from each physical core that has one left. Returns how many. */
static int32_t take_one_of_each_core(td_topology *t, hwloc_topology_t machine, td_core_set *left)
{
    int32_t taken = 0;
    int n = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_CORE);
    for (int i = 0; i < n; i++) {
        int32_t unit = next_unit_of(hwloc_get_obj_by_type(machine, HWLOC_OBJ_CORE, (unsigned)i), left);
        if (unit < 0)
            continue;
        take(t, left, unit);
        taken++;
    }
    return taken;
}

/* All units of all cores that hwloc sees. */
static td_core_set units_in_cores(hwloc_topology_t machine)
{
    td_core_set set = {{0}};
    int n = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_CORE);
    for (int i = 0; i < n; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(machine, HWLOC_OBJ_CORE, (unsigned)i);
        for (int unit = hwloc_bitmap_first(core->cpuset); unit >= 0; unit = hwloc_bitmap_next(core->cpuset, unit))
            if (unit < TD_MAX_CORES)
                td_core_set_add(&set, unit);
    }
    return set;
}

/* Fills in cores, n_cores, n_physical. Units that hwloc does not know count as cores of their own. */
static void order_cores(td_topology *t, hwloc_topology_t machine, const td_core_set *allowed)
{
    td_core_set left = *allowed, known = {{0}};
    if (machine) {
        known = units_in_cores(machine);
        t->n_physical = take_one_of_each_core(t, machine, &left);
    }
    for (int32_t unit = 0; unit < TD_MAX_CORES; unit++) {
        if (!td_core_set_has(&left, unit) || td_core_set_has(&known, unit))
            continue;
        take(t, &left, unit);
        t->n_physical++;
    }
    while (machine && take_one_of_each_core(t, machine, &left) > 0)
        ;
}

/* ---- caches and memory -------------------------------------------------------------------------------------------------- */

/* A data or unified cache of this level above the unit. */
static int64_t cache_bytes(hwloc_topology_t machine, int32_t unit, unsigned level)
{
    hwloc_obj_t object = hwloc_get_pu_obj_by_os_index(machine, (unsigned)unit);
    for (; object; object = object->parent) {
        bool cache = hwloc_obj_type_is_dcache(object->type);
        if (cache && object->attr->cache.depth == level)
            return (int64_t)object->attr->cache.size;
    }
    return 0;
}

static int64_t at_least_zero(long value)
{
    return value > 0 ? value : 0;
}

static void read_caches(td_topology *t, hwloc_topology_t machine)
{
    if (machine) {
        t->l1_bytes = cache_bytes(machine, t->cores[0], 1);
        t->l2_bytes = cache_bytes(machine, t->cores[0], 2);
        t->l3_bytes = cache_bytes(machine, t->cores[0], 3);
    }
#ifdef _SC_LEVEL1_DCACHE_SIZE
    t->l1_bytes = t->l1_bytes ? t->l1_bytes : at_least_zero(sysconf(_SC_LEVEL1_DCACHE_SIZE));
    t->l2_bytes = t->l2_bytes ? t->l2_bytes : at_least_zero(sysconf(_SC_LEVEL2_CACHE_SIZE));
    t->l3_bytes = t->l3_bytes ? t->l3_bytes : at_least_zero(sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
}

/* "MemAvailable:  123 kB" of /proc/meminfo in bytes; -1 where it is missing. */
static int64_t memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file)
        return -1;
    char line[256];
    long long kibibytes = -1;
    while (kibibytes < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lld kB", &kibibytes) != 1)
            kibibytes = -1;
    (void)fclose(file);
    return kibibytes < 0 ? -1 : (int64_t)kibibytes * 1024;
}

static void read_memory(td_topology *t, const td_cgroup *limits)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    t->memory_bytes = page * at_least_zero(sysconf(_SC_PHYS_PAGES));
    int64_t available = memory_available();
    t->memory_available_bytes = available >= 0 ? available : page * at_least_zero(sysconf(_SC_AVPHYS_PAGES));
    if (limits->memory_bytes == 0 || limits->memory_bytes >= t->memory_bytes)
        return;
    t->memory_bytes = limits->memory_bytes;
    int64_t left = limits->memory_bytes - limits->memory_used_bytes;
    if (left < t->memory_available_bytes)
        t->memory_available_bytes = left > 0 ? left : 0;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

/* NULL where hwloc cannot read this machine. */
static hwloc_topology_t load_machine(void)
{
    hwloc_topology_t machine = NULL;
    if (hwloc_topology_init(&machine) != 0)
        return NULL;
    (void)hwloc_topology_set_all_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_ALL);
    (void)hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_NONE); /* probing devices is slow */
    if (hwloc_topology_load(machine) == 0)
        return machine;
    hwloc_topology_destroy(machine);
    return NULL;
}

static void read_machine(td_topology *t, const td_core_set *allowed)
{
    hwloc_topology_t machine = load_machine();
    order_cores(t, machine, allowed);
    read_caches(t, machine);
    int nodes = machine ? hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_NUMANODE) : 1;
    t->n_numa = nodes > 0 ? nodes : 1;
    if (machine)
        hwloc_topology_destroy(machine);
}

td_status *td_topology_create(td_topology **out_topology)
{
    *out_topology = NULL;
    td_core_set allowed;
    TD_TRY(td_cores_allowed(&allowed));
    td_topology *t = NULL;
    TD_TRY(TD_NEW(t, 1));
    td_status *status = TD_NEW(t->cores, td_core_set_count(&allowed));
    if (status) {
        td_free(t);
        return status;
    }
    read_machine(t, &allowed);
    td_cgroup limits = td_cgroup_read("");
    t->quota = limits.cpus;
    t->usable = t->n_cores;
    if (t->quota > 0 && t->quota < t->n_cores)
        t->usable = t->quota < 1 ? 1 : (int32_t)t->quota; /* a thread beyond the whole cores would be throttled */
    read_memory(t, &limits);
    *out_topology = t;
    return NULL;
}

void td_topology_destroy(td_topology *topology)
{
    if (!topology)
        return;
    td_free(topology->cores);
    td_free(topology);
}

/* What each lane with wanted 0 gets: its part of `rest`, or 1 where lanes take turns. */
static int32_t open_share(bool turns, int32_t rest, int32_t lanes, int32_t lane)
{
    return turns ? 1 : rest / lanes + (lane < rest % lanes);
}

bool td_topology_split(const td_topology *topology, int32_t n, const int32_t *wanted, td_lane_cores *out_lanes)
{
    int64_t fixed = 0;
    int32_t open = 0, open_seen = 0, begin = 0, usable = topology->usable;
    for (int32_t i = 0; i < n; i++) {
        fixed += wanted[i];
        open += wanted[i] == 0;
    }
    bool turns = fixed + open > usable;
    for (int32_t i = 0; i < n; i++) {
        int32_t size = wanted[i] < usable ? wanted[i] : usable;
        if (wanted[i] == 0)
            size = open_share(turns, turns ? 0 : usable - (int32_t)fixed, open, open_seen++);
        out_lanes[i] = (td_lane_cores){topology->cores + begin, size};
        begin += turns ? 0 : size;
    }
    return turns;
}
