/* See text_types.h. */
#include "graph/text_types.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "graph/ops/rules.h"
#include "graph/text.h"

#define MOST_ELEMENTS (INT64_MAX / 16)
enum { MOST_EXTENTS = 4096 };

td_status *td_parse_graph_error(td_scanner *s, td_graph *graph, size_t where)
{
    return td_graph_failed(graph) ? td_scan_locate(s, where, td_graph_check(graph)) : NULL;
}

/* An extent's name: quoted, or letters, digits, '_' and '.', no digit first. */
static td_status *scan_extent_name(td_scanner *s, char name[TD_SCAN_NAME_BYTES])
{
    size_t length = 0, begin = s->at;
    if (td_scan_peek(s) == '"')
        return td_scan_name(s, "an extent", name, NULL);
    for (int c = td_scan_peek(s); c > 0 && td_text_is_word_byte((unsigned char)c) && !strchr("+-:#/", c);
         c = td_scan_peek(s)) {
        if (length + 1 >= TD_SCAN_NAME_BYTES)
            return td_scan_error(s, begin, "a name has at most %d bytes", TD_SCAN_NAME_BYTES - 1);
        name[length++] = (char)c;
        s->at++;
    }
    name[length] = '\0';
    return length ? NULL : td_scan_error(s, begin, "expected a dimension: a number, or an extent like B<=64");
}

static int64_t known_capacity(const td_graph *graph, const char *name)
{
    for (int64_t i = 0; i < graph->n_extents; i++)
        if (strcmp(graph->extents[i].name, name) == 0)
            return graph->extents[i].capacity;
    return -1;
}

/* The capacity of the extent itself in multiple * extent + constant <= most. */
static td_status *scan_capacity(td_scanner *s, const td_graph *graph, const char *name, const td_dim *dim, size_t begin,
                                int64_t *out)
{
    int64_t most = 0;
    if (s->bytes - s->at < 2 || memcmp(s->text + s->at, "<=", 2) != 0) {
        *out = known_capacity(graph, name);
        if (*out < 0)
            return td_scan_error(s, begin, "extent \"%s\" has no capacity yet: write %s<=N", name, name);
    } else {
        s->at += 2;
        TD_TRY(td_scan_natural(s, &most));
        if (most < dim->constant || (most - dim->constant) % dim->multiple != 0)
            return td_scan_error(s, begin, "%" PRId64 "*%s+%" PRId64 " cannot have the capacity %" PRId64,
                                 dim->multiple, name, dim->constant, most);
        *out = (most - dim->constant) / dim->multiple;
    }
    if (!td_multiply_checked(*out, dim->multiple, &most) || !td_add_checked(most, dim->constant, &most) ||
        most > MOST_ELEMENTS)
        return td_scan_error(s, begin, "a dimension is at most 2^59");
    return NULL;
}

td_status *td_parse_dim(td_scanner *s, td_graph *graph, td_dim *out)
{
    char name[TD_SCAN_NAME_BYTES];
    int64_t number = 1, capacity = 0;
    *out = td_dim_constant(0);
    td_scan_blanks(s);
    size_t begin = s->at;
    int first = td_scan_peek(s);
    if (first >= '0' && first <= '9') {
        TD_TRY(td_scan_natural(s, &number));
        if (td_scan_peek(s) != '*') {
            *out = td_dim_constant(number);
            return number <= MOST_ELEMENTS ? NULL : td_scan_error(s, begin, "a dimension is at most 2^59");
        }
        s->at++;
        if (number < 1)
            return td_scan_error(s, begin, "an extent is multiplied by 1 or more");
    }
    td_dim dim = {0, number, 0};
    TD_TRY(scan_extent_name(s, name));
    if (td_scan_peek(s) == '+') {
        s->at++;
        TD_TRY(td_scan_natural(s, &dim.constant));
    }
    TD_TRY(scan_capacity(s, graph, name, &dim, begin, &capacity));
    if (graph->n_extents >= MOST_EXTENTS && known_capacity(graph, name) < 0)
        return td_scan_error(s, begin, "a graph's text has at most %d extents", MOST_EXTENTS);
    dim.extent = td_extent(graph, name, capacity).extent;
    TD_TRY(td_parse_graph_error(s, graph, begin));
    *out = dim;
    return NULL;
}

td_status *td_parse_shape(td_scanner *s, td_graph *graph, td_shape *out)
{
    memset(out, 0, sizeof *out);
    TD_TRY(td_scan_expect(s, "["));
    if (td_scan_accept(s, "]"))
        return NULL;
    do {
        if (out->rank == TD_MAX_RANK)
            return td_scan_error(s, s->at, "a shape has at most %d dimensions", TD_MAX_RANK);
        TD_TRY(td_parse_dim(s, graph, &out->dims[out->rank]));
        out->rank++;
    } while (td_scan_accept(s, ","));
    return td_scan_expect(s, "]");
}

td_status *td_parse_type(td_scanner *s, td_graph *graph, td_type *out)
{
    char word[TD_SCAN_NAME_BYTES];
    size_t begin;
    memset(out, 0, sizeof *out);
    out->kind = TD_DENSE;
    out->entries = td_dim_constant(0);
    TD_TRY(td_scan_name(s, "a type (f32, ragged i64, ...)", word, &begin));
    if (strcmp(word, "ragged") == 0)
        out->kind = TD_RAGGED;
    else if (strcmp(word, "row_sparse") == 0)
        out->kind = TD_ROW_SPARSE;
    if (out->kind != TD_DENSE)
        TD_TRY(td_scan_name(s, "a dtype", word, &begin));
    if (!td_dtype_parse(word, &out->dtype))
        return td_scan_error(s, begin, "\"%s\" is no type; there are f32, f16, bf16, i32, i64, u8, bool, f64", word);
    size_t shape_begin = s->at;
    TD_TRY(td_parse_shape(s, graph, &out->shape));
    if (out->kind == TD_DENSE)
        return NULL;
    if (out->kind == TD_RAGGED ? out->shape.rank != 1 : out->shape.rank < 1)
        return td_scan_error(s, shape_begin,
                             out->kind == TD_RAGGED ? "a ragged value has one dimension, its bags"
                                                    : "a row-sparse value has at least one dimension");
    TD_TRY(td_scan_name(s, "\"of\" and how many entries", word, &begin));
    if (strcmp(word, "of") != 0)
        return td_scan_error(s, begin, "found \"%s\", expected \"of\" and how many entries", word);
    return td_parse_dim(s, graph, &out->entries);
}

td_status *td_parse_initializer(td_scanner *s, td_initializer *out)
{
    char word[TD_SCAN_NAME_BYTES];
    td_scanner before = *s;
    int kind = 0;
    if (td_scan_line_ended(s))
        return NULL;
    TD_TRY(td_scan_name(s, "an initializer", word, NULL));
    while (kind < TD_TEXT_INITIALIZERS && strcmp(word, td_text_initializers[kind]) != 0)
        kind++;
    if (kind == TD_TEXT_INITIALIZERS) {
        *s = before;
        return NULL;
    }
    *out = (td_initializer){.kind = (td_initializer_kind)kind};
    TD_TRY(td_scan_expect(s, "("));
    TD_TRY(td_scan_real(s, &out->a));
    if (out->kind != TD_INIT_CONSTANT) {
        TD_TRY(td_scan_expect(s, ","));
        TD_TRY(td_scan_real(s, &out->b));
    }
    return td_scan_expect(s, ")");
}
