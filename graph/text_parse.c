/* A graph from text: see text.h for the form. Whatever the bytes are, the result is a graph or one error with origin, line
 * and column.
 *
 * Nothing nests, so nothing recurses. Work and memory are bounded by the text's length: shapes are numbers here, and
 * nothing of their size is allocated. */
#include <locale.h>
#include <string.h>

#include "base/memory.h"
#include "base/nearest.h"
#include "graph/ops/rules.h"
#include "graph/text.h"
#include "graph/text_node.h"
#include "graph/text_types.h"

enum { MOST_BYTES = 1 << 30, MOST_SCALARS = 1 << 16 };

/* ---- sources -------------------------------------------------------------------------------------------------------------- */

static td_status *parse_value_name(td_scanner *s, td_graph *graph, int32_t *out_value)
{
    char name[TD_SCAN_NAME_BYTES];
    size_t begin;
    TD_TRY(td_scan_name(s, "a value's name", name, &begin));
    *out_value = td_graph_find(graph, name).id;
    return *out_value >= 0 ? NULL : td_scan_error(s, begin, "there is no value \"%s\" above this line", name);
}

static td_status *parse_scalar(td_scanner *s, td_graph *graph, const char *name, size_t begin, const td_type *type)
{
    double *numbers = NULL;
    td_status *status = NULL;
    int64_t n = type->shape.rank == 1 && type->shape.dims[0].extent < 0 ? type->shape.dims[0].constant : -1;
    if (type->kind != TD_DENSE || n < 0 || n > MOST_SCALARS)
        return td_scan_error(s, begin, "scalar \"%s\" must have the shape [n], n a number up to %d", name,
                             MOST_SCALARS);
    TD_TRY(TD_NEW(numbers, n + 1));
    for (int64_t i = 0; i < n; i++) {
        TD_TRY_OR(status, done, td_scan_expect(s, i ? "," : "="));
        TD_TRY_OR(status, done, td_scan_real(s, &numbers[i]));
    }
    (void)td_scalar(graph, name, type->dtype, (int32_t)n, numbers);
    status = td_parse_graph_error(s, graph, begin);
done:
    td_free(numbers);
    return status;
}

/* "frozen" and "for PARAMETER" after a source. */
static td_status *parse_source_marks(td_scanner *s, td_graph *graph, td_value value)
{
    char word[TD_SCAN_NAME_BYTES];
    size_t begin;
    while (!td_scan_line_ended(s)) {
        TD_TRY(td_scan_name(s, "\"frozen\" or \"for\"", word, &begin));
        if (strcmp(word, "frozen") == 0) {
            (void)td_freeze(value);
            TD_TRY(td_parse_graph_error(s, graph, begin));
        } else if (strcmp(word, "for") == 0) {
            int32_t parameter = -1;
            size_t at = s->at;
            TD_TRY(parse_value_name(s, graph, &parameter));
            if (graph->values[parameter].class != TD_CLASS_PARAMETER)
                return td_scan_error(s, at, "\"%s\" is not a parameter", graph->values[parameter].name);
            graph->values[value.id].parameter = parameter;
        } else {
            return td_scan_error(s, begin, "found \"%s\", expected \"frozen\", \"for\" or the line's end", word);
        }
    }
    return NULL;
}

static td_status *parse_source(td_scanner *s, td_graph *graph, td_class class)
{
    char name[TD_SCAN_NAME_BYTES];
    size_t begin;
    td_type type;
    td_initializer initial = td_init_constant(0.0);
    TD_TRY(td_scan_name(s, "a name", name, &begin));
    TD_TRY(td_parse_type(s, graph, &type));
    if (class == TD_CLASS_SCALAR)
        return parse_scalar(s, graph, name, begin, &type);
    bool numbers_only = td_text_has_initializer(class);
    if (type.kind != TD_DENSE && numbers_only)
        return td_scan_error(s, begin, "%s \"%s\" must be dense", td_text_classes[class], name);
    if (numbers_only)
        TD_TRY(td_parse_initializer(s, &initial));
    td_value value = td_graph_add_source(graph, class, type.kind, name, type.dtype, type.shape, type.entries);
    TD_TRY(td_parse_graph_error(s, graph, begin));
    graph->values[value.id].initial = numbers_only ? initial : graph->values[value.id].initial;
    return parse_source_marks(s, graph, value);
}

/* ---- other lines ------------------------------------------------------------------------------------------------------------ */

static td_status *parse_gradient(td_scanner *s, td_graph *graph)
{
    int32_t value = -1, parameter = -1;
    char word[TD_SCAN_NAME_BYTES];
    size_t begin;
    TD_TRY(parse_value_name(s, graph, &value));
    TD_TRY(td_scan_name(s, "\"of\" and a parameter", word, &begin));
    if (strcmp(word, "of") != 0)
        return td_scan_error(s, begin, "found \"%s\", expected \"of\" and a parameter", word);
    TD_TRY(parse_value_name(s, graph, &parameter));
    if (graph->values[value].producer < 0 || graph->values[parameter].class != TD_CLASS_PARAMETER)
        return td_scan_error(s, begin, "this line ties the result of an op to a parameter");
    graph->values[value].parameter = parameter;
    return NULL;
}

static const char *keyword_at(const void *context, int32_t index)
{
    (void)context;
    static const char *const others[] = {"extent", "output", "gradient"};
    return index < TD_CLASS_COUNT ? td_text_classes[index] : others[index - TD_CLASS_COUNT];
}

static td_status *parse_keyword(td_scanner *s, td_graph *graph, const char *word, size_t begin)
{
    td_dim extent;
    int32_t value = -1;
    for (int class = 0; class < TD_CLASS_COUNT; class ++)
        if (strcmp(word, td_text_classes[class]) == 0)
            return parse_source(s, graph, (td_class) class);
    if (strcmp(word, "extent") == 0)
        return td_parse_dim(s, graph, &extent);
    if (strcmp(word, "gradient") == 0)
        return parse_gradient(s, graph);
    if (strcmp(word, "output") != 0)
        return td_scan_error(s, begin, "\"%s\" begins no line (\"%s\" does), and no \"=\" makes it an op's name", word,
                             td_nearest(word, TD_CLASS_COUNT + 3, keyword_at, NULL));
    TD_TRY(parse_value_name(s, graph, &value));
    td_output((td_value){graph, value});
    return NULL;
}

static td_status *parse_line(td_scanner *s, td_graph *graph)
{
    char word[TD_SCAN_NAME_BYTES];
    size_t begin;
    TD_TRY(td_scan_name(s, "a name or a keyword", word, &begin));
    if (td_scan_accept(s, "="))
        TD_TRY(td_parse_node(s, graph, word, begin));
    else
        TD_TRY(parse_keyword(s, graph, word, begin));
    return td_scan_expect_line_end(s);
}

static td_status *parse_header(td_scanner *s)
{
    char word[TD_SCAN_NAME_BYTES];
    size_t begin;
    int64_t version = 0;
    TD_TRY(td_scan_name(s, "\"tdg 1\"", word, &begin));
    if (strcmp(word, "tdg") != 0)
        return td_scan_error(s, begin, "the first line of a graph's text is \"tdg 1\"");
    TD_TRY(td_scan_integer(s, &version));
    if (version != 1)
        return td_scan_error(s, begin, "this is version %lld of the text form; version 1 is understood",
                             (long long)version);
    return td_scan_expect_line_end(s);
}

static td_status *parse_text(td_scanner *s, td_graph *graph)
{
    bool has_header = false;
    do {
        if (td_scan_line_ended(s))
            continue;
        if (has_header)
            TD_TRY(parse_line(s, graph));
        else
            TD_TRY(parse_header(s));
        has_header = true;
    } while (td_scan_next_line(s));
    if (!has_header)
        return td_scan_error(s, s->at, "there is no graph here: the first line is \"tdg 1\"");
    return td_status_prefix(td_graph_check(graph), "%s", s->origin);
}

td_status *td_graph_parse(const char *text, size_t bytes, const char *origin, td_graph **out_graph)
{
    td_scanner s = {.text = text, .origin = origin ? origin : "graph", .bytes = bytes, .line = 1};
    *out_graph = NULL;
    if (bytes > MOST_BYTES)
        return TD_ERROR(TD_DATA_ERROR, "%s: %zu bytes; a graph's text has at most %d", s.origin, bytes, MOST_BYTES);
    td_graph *graph = NULL;
    TD_TRY(td_graph_create(&graph));
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* decimal points, whatever the program's locale */
    if (plain == (locale_t)0) {
        td_graph_destroy(graph);
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory", s.origin);
    }
    locale_t before = uselocale(plain);
    td_status *status = parse_text(&s, graph);
    (void)uselocale(before);
    freelocale(plain);
    if (status) {
        td_graph_destroy(graph);
        return status;
    }
    *out_graph = graph;
    return NULL;
}
