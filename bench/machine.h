/* What this machine can do at most, measured in the same run as a case, so that a figure stands beside its limit.
 *
 * A step's bound is flops / peak + stream_bytes / copy + row_bytes / gather (td_bench_bound): the least work of its shapes at
 * the rates below, as if nothing overlapped and each row that must move came from memory once. A step whose rows stay in the
 * cache can beat it; so can one that computes while it loads. */
#ifndef TANDEM_BENCH_MACHINE_H
#define TANDEM_BENCH_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

/* Rates per second; 0: not measured. */
typedef struct td_machine_limits {
    double flops;      /* FP32 matrix product of 2048 x 2048 x 2048 by oneDNN, all threads */
    double flops_one;  /* the same on one thread */
    double flops_bf16; /* the same in bf16, for cases in bf16, where oneDNN has it for the processor */
    double copy_bytes; /* memory: memcpy of 256 MiB by all threads, read and written bytes both counted */
    /* the same over as many bytes as the case streams, again and again: from a cache that holds them */
    double stream_bytes;
    double gather_bytes; /* reading rows of the case's size at random out of 512 MiB, all threads */
} td_machine_limits;

/* `row_size`: bytes of a row to gather; 0: no gathering. `streamed`: bytes that a step of the case reads and writes in order. */
td_status *td_machine_measure(int32_t threads, double row_size, double streamed, bool in_bf16,
                              td_machine_limits *out_limits) TD_MUST_USE;
/* On as many threads as oneDNN was told before; 0 where it has no bf16 for the processor. */
double td_machine_bf16_rate(void);
/* The higher of what was measured. */
double td_machine_peak(const td_machine_limits *limits);
/* Seconds. Parts without a rate are left out. */
double td_bench_bound(const td_machine_limits *limits, double flops, double stream_bytes, double row_bytes);

#endif
