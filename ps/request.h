/* Whether the bytes of a request are what its words say: both come from another process. What they mean is the server's
 * (server.c). */
#ifndef TANDEM_PS_REQUEST_H
#define TANDEM_PS_REQUEST_H

#include "ps/comm.h"
#include "ps/shard.h"

/* It begins with so many td_wire_part, and all their keys follow. */
td_status *td_request_check_parts(const td_request *request, int64_t parts, int64_t *out_keys) TD_MUST_USE;
/* Whether two pushes are of one kind and of the same tables, so that they can be summed. Both have so many parts as they say. */
bool td_request_is_alike(const td_request *a, const td_request *b);
/* It has n ids and as many rows, and nothing else. */
td_status *td_request_check_rows(const td_request *request, int64_t n, int64_t row_bytes) TD_MUST_USE;
/* It defines one of `tables` tables, or the next one. */
td_status *td_request_definition(const td_request *request, int64_t tables, td_shard_definition *out) TD_MUST_USE;

#endif
