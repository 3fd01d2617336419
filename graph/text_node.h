/* The line of a node in .tdg text, after its name and "=". See text.h. */
#ifndef TANDEM_GRAPH_TEXT_NODE_H
#define TANDEM_GRAPH_TEXT_NODE_H

#include "graph/op.h"
#include "graph/text_scan.h"

/* `begin` is where the name stands, for errors about the whole node. */
td_status *td_parse_node(td_scanner *s, td_graph *graph, const char *name, size_t begin) TD_MUST_USE;

/* The error about a value `name`, read at byte `begin` of the current line, that no line above makes: names the line below
 * that does, or the ops of a cycle. */
td_status *td_text_missing_value(const td_scanner *s, size_t begin, const char *name) TD_MUST_USE;

#endif
