/* YAML to configuration nodes, by libyaml's document interface. Anchors and aliases are copied out; a document that
 * nests or expands beyond reason is refused, so no input can exhaust memory or the stack. */
#include <string.h>
#include <yaml.h>

#include "base/memory.h"
#include "cli/config_tree.h"

enum { DEEPEST = 32, MOST_NODES = 100000 };

typedef struct reading {
    yaml_document_t *document;
    const char *origin;
    bool positions; /* false: a value of --set, whose origin says it all */
    int64_t nodes;
} reading;

static td_status *place_error(const reading *r, yaml_mark_t mark, const char *text)
{
    td_status *status = TD_ERROR(TD_INVALID_ARGUMENT, "%s", text);
    if (!r->positions)
        return td_status_prefix(status, "%s", r->origin);
    return td_status_prefix(status, "%s:%zu:%zu", r->origin, mark.line + 1, mark.column + 1);
}

static td_status *convert(reading *r, int id, int depth, td_config_node **out_node);

static td_status *convert_scalar(const yaml_node_t *from, td_config_node *node)
{
    node->quoted = from->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->text = td_strdup((const char *)from->data.scalar.value);
    return node->text ? NULL
                      : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a value of %zu bytes", from->data.scalar.length);
}

static td_status *convert_list(reading *r, const yaml_node_t *from, int depth, td_config_node *node)
{
    for (yaml_node_item_t *item = from->data.sequence.items.start; item < from->data.sequence.items.top; item++) {
        td_config_node *child = NULL;
        TD_TRY(convert(r, *item, depth + 1, &child));
        TD_TRY(td_config_node_append(node, NULL, child));
    }
    return NULL;
}

static td_status *convert_pair(reading *r, const yaml_node_pair_t *pair, int depth, td_config_node *node)
{
    const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
    if (key->type != YAML_SCALAR_NODE)
        return place_error(r, key->start_mark, "a key must be a word, not a list or a map");
    const char *name = (const char *)key->data.scalar.value;
    if (strlen(name) != key->data.scalar.length)
        return place_error(r, key->start_mark, "a key holds a zero byte");
    const td_config_node *before = td_config_node_child(node, name);
    if (before) {
        char *text = td_format("\"%s\" is given twice (first in line %d); remove one", name, before->line);
        td_status *status = place_error(r, key->start_mark, text ? text : "a key is given twice");
        td_free(text);
        return status;
    }
    td_config_node *child = NULL;
    TD_TRY(convert(r, pair->value, depth + 1, &child));
    if (r->positions) {
        child->line = (int32_t)key->start_mark.line + 1;
        child->column = (int32_t)key->start_mark.column + 1;
    }
    return td_config_node_append(node, name, child);
}

static td_status *convert_map(reading *r, const yaml_node_t *from, int depth, td_config_node *node)
{
    for (yaml_node_pair_t *pair = from->data.mapping.pairs.start; pair < from->data.mapping.pairs.top; pair++)
        TD_TRY(convert_pair(r, pair, depth, node));
    return NULL;
}

static td_status *convert(reading *r, int id, int depth, td_config_node **out_node)
{
    *out_node = NULL;
    const yaml_node_t *from = yaml_document_get_node(r->document, id);
    if (depth > DEEPEST)
        return place_error(r, from->start_mark, "nested more than 32 deep (an alias inside its own anchor?)");
    if (++r->nodes > MOST_NODES)
        return place_error(r, from->start_mark, "more than 100000 values, aliases written out");
    td_config_node_kind kind = from->type == YAML_SCALAR_NODE     ? TD_NODE_SCALAR
                               : from->type == YAML_SEQUENCE_NODE ? TD_NODE_LIST
                                                                  : TD_NODE_MAP;
    int32_t line = r->positions ? (int32_t)from->start_mark.line + 1 : 0;
    int32_t column = r->positions ? (int32_t)from->start_mark.column + 1 : 0;
    td_config_node *node = NULL;
    TD_TRY(td_config_node_create(kind, r->origin, line, column, &node));
    td_status *status = kind == TD_NODE_SCALAR ? convert_scalar(from, node)
                        : kind == TD_NODE_LIST ? convert_list(r, from, depth, node)
                                               : convert_map(r, from, depth, node);
    if (status) {
        td_config_node_destroy(node);
        return status;
    }
    *out_node = node;
    return NULL;
}

static td_status *empty_value(const char *origin, td_config_node **out_node)
{
    TD_TRY(td_config_node_create(TD_NODE_SCALAR, origin, 0, 0, out_node));
    (*out_node)->text = td_strdup("");
    if ((*out_node)->text)
        return NULL;
    td_config_node_destroy(*out_node);
    *out_node = NULL;
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a value");
}

static td_status *parser_error(const reading *r, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory while reading it", r->origin);
    char *text = td_format("not YAML: %s%s%s", parser->problem ? parser->problem : "cannot read it",
                           parser->context ? ", " : "", parser->context ? parser->context : "");
    td_status *status = place_error(r, parser->problem_mark, text ? text : "not YAML");
    td_free(text);
    return status;
}

/* Refuses deep nesting while it is read: building a document takes libyaml time that grows with the square of the depth. Other
 * mistakes are left to whoever reads on. */
static td_status *check_depth(const reading *r, const char *text, size_t bytes)
{
    yaml_parser_t parser;
    yaml_event_t event;
    if (!yaml_parser_initialize(&parser))
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory while reading it", r->origin);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    td_status *status = NULL;
    int depth = 0;
    for (bool more = true; more && !status;) {
        if (!yaml_parser_parse(&parser, &event))
            break;
        more = event.type != YAML_STREAM_END_EVENT;
        depth += event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        depth -= event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        if (depth > DEEPEST)
            status = place_error(r, event.start_mark, "nested more than 32 deep");
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}

td_status *td_config_yaml(const char *text, size_t bytes, const char *origin, bool positions, td_config_node **out_node)
{
    *out_node = NULL;
    yaml_parser_t parser;
    yaml_document_t document, second;
    reading r = {.document = &document, .origin = origin, .positions = positions};
    TD_TRY(check_depth(&r, text, bytes));
    if (!yaml_parser_initialize(&parser))
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory while reading it", origin);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    td_status *status = NULL;
    if (!yaml_parser_load(&parser, &document)) {
        status = parser_error(&r, &parser);
        goto out_parser;
    }
    const yaml_node_t *root = yaml_document_get_root_node(&document);
    if (!root) {
        status = empty_value(origin, out_node);
        goto out_document;
    }
    TD_TRY_OR(status, out_document, convert(&r, 1, 0, out_node));
    if (!yaml_parser_load(&parser, &second)) {
        status = parser_error(&r, &parser);
        goto out_document;
    }
    const yaml_node_t *more = yaml_document_get_root_node(&second);
    if (more)
        status = place_error(&r, more->start_mark, "a second document; a configuration is one");
    yaml_document_delete(&second);
out_document:
    yaml_document_delete(&document);
out_parser:
    yaml_parser_delete(&parser);
    if (status) {
        td_config_node_destroy(*out_node);
        *out_node = NULL;
    }
    return status;
}
