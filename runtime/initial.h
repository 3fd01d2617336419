/* Initial values of parameters and state, in any dtype that rows may have: a function of seed, name and index alone. */
#ifndef TANDEM_RUNTIME_INITIAL_H
#define TANDEM_RUNTIME_INITIAL_H

#include "base/philox.h"
#include "tandem/graph.h"

typedef struct td_initial {
    td_initializer how;
    td_philox_key key;
    td_dtype dtype;
} td_initial;

td_initial td_initial_of(uint64_t seed, const char *name, td_dtype dtype, td_initializer how);
/* Whether these values can be made: f32, f16 and bf16 by any rule, the others only zeros. */
td_status *td_initial_check(const td_initial *initial, const char *name) TD_MUST_USE;
/* All of them are zero bits, which fresh memory holds already. */
bool td_initial_is_zero(const td_initial *initial);
/* Elements [first, first + n) in the dtype; values are rounded to nearest, ties to even. */
void td_initial_fill(const td_initial *initial, int64_t first, int64_t n, void *out);

#endif
