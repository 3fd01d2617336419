/* The text form of graphs (.tdg): what text_print.c and text_parse*.c agree on.
 *
 *     tdg 1
 *     extent B<=2048
 *     input x f32 [B<=2048, 13]
 *     parameter fc.weight f32 [64, 13] uniform(-0.277350098, 0.277350098)
 *     scalar rate f32 [1] = 0.5
 *     fc/linear = linear(x, fc.weight, -) on accel -> f32 [B<=2048, 64]
 *     fc/softmax = softmax(fc/linear) -> f32 [B<=2048, 64]
 *     parts = split(fc/softmax) axis=1 outputs=2 -> f32 [B<=2048, 32], f32 [B<=2048, 32]
 *     output parts
 *
 * One line per extent, source and node, in the order in which they were made, so that ids survive; '#' after a blank starts
 * a comment. A node is called as its first output; its others are `name:1`, `name:2`. '-' is an absent input. Attributes
 * that have their default are left out. What follows -> is what inference finds; the parser compares. A dimension is a
 * number or [multiple*]extent[+number]<=capacity, the capacity of the whole. Numbers are the shortest decimals that read
 * back to the same bits. A name with other bytes than letters, digits and _ . / : # + - (or an awkward first one) stands in
 * quotes; in quotes, \" \\ and \xHH. After a node's attributes: `on TARGET`, `backward [of NODE]`, `update`. After a
 * source's type: its initializer, `frozen`, `for PARAMETER` (states). `gradient V of P` ties a gradient to its parameter.
 *
 * Types: f32 [..] (dense), ragged i64 [bags] of ids, row_sparse f32 [rows, dim] of entries, scalar sources as above. */
#ifndef TANDEM_GRAPH_TEXT_H
#define TANDEM_GRAPH_TEXT_H

#include <stdbool.h>
#include <string.h>

#include "graph/graph.h"

static const char *const td_text_classes[TD_CLASS_COUNT] = {
    [TD_CLASS_INPUT] = "input",           [TD_CLASS_PARAMETER] = "parameter",      [TD_CLASS_STATE] = "state",
    [TD_CLASS_ACTIVATION] = "activation", [TD_CLASS_GRADIENT] = "gradient_source", [TD_CLASS_SCALAR] = "scalar",
    [TD_CLASS_CONSTANT] = "constant",     [TD_CLASS_STAGING] = "staging",          [TD_CLASS_REPLICA] = "replica",
};
static const char *const td_text_initializers[] = {
    [TD_INIT_CONSTANT] = "constant", [TD_INIT_UNIFORM] = "uniform", [TD_INIT_NORMAL] = "normal"};
enum { TD_TEXT_INITIALIZERS = 3 };

static inline bool td_text_is_word_byte(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_./:#+-", c) != NULL);
}

static inline bool td_text_has_initializer(td_class class)
{
    return class == TD_CLASS_PARAMETER || class == TD_CLASS_STATE || class == TD_CLASS_CONSTANT;
}

#endif
