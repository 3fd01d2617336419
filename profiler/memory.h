/* Device memory over a step: what the store holds all the time, and which values live when, by the plan and the recorded times.
 *
 * A value lives from the beginning of the subgraph that makes it to the end of the last one that reads it, in the middle one of
 * the steps that count. Values that share memory (views, ops in place) count once, as their root. */
#ifndef TANDEM_PROFILER_MEMORY_H
#define TANDEM_PROFILER_MEMORY_H

#include "profiler/view.h"

typedef struct td_memory_point {
    int64_t at_ns; /* since the step's begin */
    int64_t bytes; /* live from here on, the store left out */
} td_memory_point;

typedef struct td_memory_tenant {
    const char *name, *class;
    int64_t bytes;
} td_memory_tenant;

enum { TD_MEMORY_TENANTS = 10 };

typedef struct td_device_memory {
    int32_t device;
    int64_t store_bytes, arena_bytes, capacity_bytes;
    int64_t peak_live_bytes; /* of values */
    int64_t peak_at_ns;
    int64_t in_use_bytes; /* the device's own count, at most; 0: it was not sampled */
    td_memory_point *points;
    int64_t n_points;
    td_memory_tenant tenants[TD_MEMORY_TENANTS]; /* at the peak, the store's too, largest first */
    int32_t n_tenants;
} td_device_memory;

typedef struct td_memory_view {
    int64_t step;
    td_device_memory *devices;
    int32_t n_devices;
} td_memory_view;

td_status *td_memory_view_create(const td_view *view, td_memory_view **out_memory) TD_MUST_USE;
void td_memory_view_destroy(td_memory_view *memory);

#endif
