/* Device options: "memory=256MiB,cores=1,link=12GB/s,latency=8us,lanes=1,gemm=tiles", read into a struct by a table.
 *
 *     const td_option table[] = {{"memory", TD_OPTION_BYTES, &memory}, {"cores", TD_OPTION_INT, &cores, .least = 1}};
 *     TD_TRY(td_options_parse("cpu", options, table, 2));
 *
 * Values that are not given keep what the target holds. Errors name the device's backend, the key, the value and what is
 * allowed; an unknown key lists the known ones. */
#ifndef TANDEM_BACKENDS_OPTIONS_H
#define TANDEM_BACKENDS_OPTIONS_H

#include <stdint.h>

#include "tandem/status.h"

typedef enum td_option_type {
    TD_OPTION_INT = 0, /* int32_t, within [least, most] */
    TD_OPTION_BYTES,   /* uint64_t: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB; a plain number is bytes */
    TD_OPTION_RATE,    /* double, bytes per second: "12GB/s" */
    TD_OPTION_SECONDS, /* double: ns, us, ms, s */
    TD_OPTION_CHOICE   /* int32_t, an index into choices (NULL-terminated) */
} td_option_type;

typedef struct td_option {
    const char *key;
    td_option_type type;
    void *target;
    int32_t least, most; /* TD_OPTION_INT; most 0: no upper limit */
    const char *const *choices;
} td_option;

/* `text` may be NULL or "". A key given twice is an error. */
td_status *td_options_parse(const char *backend, const char *text, const td_option *table,
                            int32_t n_options) TD_MUST_USE;

#endif
