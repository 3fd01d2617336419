/* From a parameter's name to that of its tensor in another program's file: see td_weight_name of tandem/session.h. */
#ifndef TANDEM_RUNTIME_WEIGHT_NAMES_H
#define TANDEM_RUNTIME_WEIGHT_NAMES_H

#include "tandem/session.h"

/* More * in `from` than in `match`, or too many of them. */
td_status *td_weight_names_check(const td_weights *weights) TD_MUST_USE;
/* The tensor for a parameter, and whether it lies transposed. *out_name: td_free it; NULL: the parameter keeps what it has. */
td_status *td_weight_name_of(const td_weights *weights, const char *parameter, char **out_name,
                             bool *out_transpose) TD_MUST_USE;
/* Whether the tensor may be left over. */
bool td_weight_is_ignored(const td_weights *weights, const char *tensor);

#endif
