/* See request.h. */
#include "ps/request.h"

#include <inttypes.h>
#include <string.h>

#include "ps/protocol.h"

td_status *td_request_check_parts(const td_request *request, int64_t parts, int64_t *out_keys)
{
    const td_wire_part *part = request->data;
    *out_keys = 0;
    if (parts < 0 || parts > request->bytes / (int64_t)sizeof *part)
        return TD_ERROR(TD_INTERNAL, "a message of %" PRId64 " bytes cannot have %" PRId64 " parts", request->bytes,
                        parts);
    const int64_t room = (request->bytes - parts * (int64_t)sizeof *part) / (int64_t)sizeof(int64_t);
    for (int64_t i = 0; i < parts; i++) {
        if (part[i].n < 0 || part[i].n > room - *out_keys)
            return TD_ERROR(TD_INTERNAL, "a message of %" PRId64 " bytes cannot have %" PRId64 " more keys",
                            request->bytes, part[i].n);
        *out_keys += part[i].n;
    }
    return NULL;
}

bool td_request_is_alike(const td_request *a, const td_request *b)
{
    const td_wire_part *of_a = a->data, *of_b = b->data;
    bool alike = a->kind == b->kind && a->words[1] == b->words[1];
    for (int64_t i = 0; alike && i < (int64_t)a->words[1]; i++)
        alike = of_a[i].table == of_b[i].table;
    return alike;
}

td_status *td_request_check_rows(const td_request *request, int64_t n, int64_t row_bytes)
{
    const int64_t each = row_bytes + (int64_t)sizeof(int64_t);
    if (n >= 0 && n <= request->bytes / each && request->bytes == n * each)
        return NULL;
    return TD_ERROR(TD_INTERNAL, "a message of %" PRId64 " bytes is not %" PRId64 " rows of %" PRId64, request->bytes,
                    n, row_bytes);
}

static bool ends(const char *text, size_t bytes)
{
    return memchr(text, '\0', bytes) != NULL;
}

td_status *td_request_definition(const td_request *request, int64_t tables, td_shard_definition *out)
{
    const int64_t table = (int64_t)request->words[0];
    if (table < 0 || table > tables)
        return TD_ERROR(TD_INTERNAL, "a definition of table %" PRId64 " after %" PRId64, table, tables);
    if (request->bytes != (int64_t)sizeof *out)
        return TD_ERROR(TD_INTERNAL, "a table's definition of %" PRId64 " bytes", request->bytes);
    memcpy(out, request->data, sizeof *out);
    bool good = ends(out->name, sizeof out->name) && ends(out->rule, sizeof out->rule) && out->rows >= 0 &&
                out->dim > 0 && out->n_states >= 0 && out->n_states <= TD_MAX_SLOTS;
    for (int32_t s = 0; good && s < out->n_states; s++)
        good = ends(out->state_names[s], sizeof out->state_names[s]);
    return good ? NULL : TD_ERROR(TD_INTERNAL, "a definition of table %" PRId64 " that is none", table);
}
