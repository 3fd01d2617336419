/* What an optimizer's step could take at least: the rate at which this machine moves the same streams with next to no arithmetic. */
#ifndef TANDEM_BENCH_UPDATE_STREAMS_H
#define TANDEM_BENCH_UPDATE_STREAMS_H

#include <stdint.h>

#include "tandem/status.h"

/* Of a step with two moments, 28 bytes an element each: f32 parameter and moments in and out, with an f32 gradient in; or with a 16-bit
 * gradient in and a 16-bit copy out. */
typedef enum td_update_streams { TD_STREAMS_NONE = 0, TD_STREAMS_F32, TD_STREAMS_MIXED } td_update_streams;

/* *out_rate: bytes per second, at the best of some passes over so many bytes, read and written (fewer where they
 * would lie in more than 512 MiB). */
td_status *td_measure_update_streams(td_update_streams streams, int32_t threads, double bytes,
                                     double *out_rate) TD_MUST_USE;

#endif
