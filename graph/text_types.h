/* The lower half of the .tdg grammar: dimensions, shapes, types and initializers. See text.h. */
#ifndef TANDEM_GRAPH_TEXT_TYPES_H
#define TANDEM_GRAPH_TEXT_TYPES_H

#include "graph/op.h"
#include "graph/text_scan.h"

/* New extents are added to the graph. No dimension is beyond 2^59. */
td_status *td_parse_dim(td_scanner *s, td_graph *graph, td_dim *out) TD_MUST_USE;
td_status *td_parse_shape(td_scanner *s, td_graph *graph, td_shape *out) TD_MUST_USE;
td_status *td_parse_type(td_scanner *s, td_graph *graph, td_type *out) TD_MUST_USE;
/* "constant(0)", where the next word is an initializer's; else leaves *out and the scanner alone. */
td_status *td_parse_initializer(td_scanner *s, td_initializer *out) TD_MUST_USE;
/* The graph's own error since the last call, at byte `where` of the line. */
td_status *td_parse_graph_error(td_scanner *s, td_graph *graph, size_t where) TD_MUST_USE;

#endif
