/* Why a line of a graph's text reads a value that no line above it makes: nobody makes it, a line below does, or the ops read
 * each other in a circle. Looks at the lines from the one at hand on as words, only to explain an error. */
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "graph/names.h"
#include "graph/text_node.h"

/* An op's line: its name and the values that it reads. */
typedef struct op_line {
    char *name;
    int64_t line;
    int32_t first_input, n_inputs;
    int32_t from; /* on the way: the op that reads this one, or -1 */
} op_line;

typedef struct lines {
    op_line *ops;
    char **inputs;
    int64_t n_ops, ops_capacity, n_inputs, inputs_capacity;
    td_name_map by_name;
} lines;

static void lines_deinit(lines *l)
{
    for (int64_t i = 0; i < l->n_ops; i++)
        td_free(l->ops[i].name);
    for (int64_t i = 0; i < l->n_inputs; i++)
        td_free(l->inputs[i]);
    td_free(l->ops);
    td_free(l->inputs);
    td_name_map_deinit(&l->by_name);
}

static td_status *add_input(lines *l, const char *name)
{
    TD_TRY(td_grow(&l->inputs, &l->inputs_capacity, l->n_inputs, sizeof *l->inputs));
    l->inputs[l->n_inputs] = td_strdup(name);
    if (!l->inputs[l->n_inputs])
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an error about a graph's text");
    l->n_inputs++;
    l->ops[l->n_ops - 1].n_inputs++;
    return NULL;
}

/* "name = op(a, b" as far as it goes; other lines, and what is wrong with them, are of no interest here. */
static td_status *add_line(lines *l, td_scanner *s)
{
    char word[TD_SCAN_NAME_BYTES];
    size_t begin;
    td_status *status = td_scan_name(s, "", word, &begin);
    if (status || !td_scan_accept(s, "=")) {
        td_status_destroy(status);
        return NULL;
    }
    TD_TRY(td_grow(&l->ops, &l->ops_capacity, l->n_ops, sizeof *l->ops));
    op_line *op = &l->ops[l->n_ops];
    *op = (op_line){.name = td_strdup(word), .line = s->line, .first_input = (int32_t)l->n_inputs, .from = -1};
    if (!op->name)
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an error about a graph's text");
    l->n_ops++;
    TD_TRY(td_name_map_put(&l->by_name, op->name, (int32_t)l->n_ops - 1));
    status = td_scan_name(s, "", word, &begin);
    bool more = !status && td_scan_accept(s, "(");
    while (more) {
        status = td_scan_name(s, "", word, &begin);
        more = !status;
        if (more)
            TD_TRY(add_input(l, word));
        more = more && td_scan_accept(s, ",");
    }
    td_status_destroy(status);
    return NULL;
}

/* The op that makes a value: "op", or "op:1" for its second output. -1: none of these lines. */
static int32_t maker_of(const lines *l, char *value)
{
    int32_t found = td_name_map_get(&l->by_name, value);
    char *colon = strrchr(value, ':');
    if (found >= 0 || !colon)
        return found;
    *colon = '\0';
    found = td_name_map_get(&l->by_name, value);
    *colon = ':';
    return found;
}

/* Whether op 0 reads itself, through others: they are linked by `from` from `*out_last` back to op 0. */
static td_status *find_cycle(lines *l, int32_t *out_last)
{
    int32_t *queue = NULL, end = 0;
    *out_last = -1;
    TD_TRY(TD_NEW(queue, l->n_ops + 1));
    queue[end++] = 0;
    for (int32_t at = 0; at < end && *out_last < 0; at++) {
        const op_line *op = &l->ops[queue[at]];
        for (int32_t i = 0; i < op->n_inputs && *out_last < 0; i++) {
            int32_t maker = maker_of(l, l->inputs[op->first_input + i]);
            if (maker == 0)
                *out_last = queue[at];
            if (maker <= 0 || l->ops[maker].from >= 0)
                continue;
            l->ops[maker].from = queue[at];
            queue[end++] = maker;
        }
    }
    td_free(queue);
    return NULL;
}

/* "a (line 3) <- c (line 5) <- b (line 4) <- a": each op and the one that it feeds. */
static td_status *describe_cycle(const lines *l, int32_t last, td_string *text)
{
    enum { MOST = 10 };
    int32_t named = 0;
    td_string_format(text, "\"%s\" (line %lld)", l->ops[0].name, (long long)l->ops[0].line);
    for (int32_t i = last; i > 0 && named < MOST; i = l->ops[i].from, named++)
        td_string_format(text, " -> \"%s\" (line %lld)", l->ops[i].name, (long long)l->ops[i].line);
    td_string_format(text, "%s -> \"%s\"", named == MOST ? " -> ..." : "", l->ops[0].name);
    return NULL;
}

static td_status *explain(const td_scanner *s, size_t begin, const char *name, lines *l)
{
    char value[TD_SCAN_NAME_BYTES];
    int32_t last = -1;
    char *cycle = NULL;
    (void)strncpy(value, name, sizeof value - 1);
    value[sizeof value - 1] = '\0';
    int32_t maker = l->n_ops ? maker_of(l, value) : -1;
    if (maker < 0)
        return td_scan_error(s, begin, "there is no value \"%s\" above this line", name);
    TD_TRY(find_cycle(l, &last));
    if (last < 0)
        return td_scan_error(s, begin, "\"%s\" is made on line %lld, below this one: move that line up", name,
                             (long long)l->ops[maker].line);
    td_string text = {0};
    TD_TRY(describe_cycle(l, last, &text));
    TD_TRY(td_string_finish(&text, &cycle));
    td_status *status =
        td_scan_error(s, begin, "the graph has a cycle, each op feeds the next: %s; cut it at one of them", cycle);
    td_free(cycle);
    return status;
}

td_status *td_text_missing_value(const td_scanner *s, size_t begin, const char *name)
{
    lines l = {0};
    td_status *status = NULL;
    td_scanner rest = *s;
    rest.at = rest.line_begin;
    do {
        status = add_line(&l, &rest);
    } while (!status && td_scan_next_line(&rest));
    if (!status)
        status = explain(s, begin, name, &l);
    lines_deinit(&l);
    return status;
}
