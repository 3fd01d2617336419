/* A built-in model: a function that builds its graph from a configuration and what the data looks like.
 *
 * One folder samples/<name>/ holds its builder, its configurations and its README; samples/models.def lists it.
 *
 *     td_status *td_model_dlrm(const td_model_options *options, td_graph *graph, td_model *out)
 *     {
 *         td_model_inputs inputs;
 *         TD_TRY(td_model_inputs_add(options, graph, &inputs));
 *         ...
 *         *out = (td_model){.loss = loss, .logit = logit};
 *         return NULL;
 *     }
 *
 * Keys of the configuration that a model reads are rows of cli/config.def with `when = "model.name=..."`. */
#ifndef TANDEM_CLI_MODEL_H
#define TANDEM_CLI_MODEL_H

#include "cli/config.h"
#include "tandem/data.h"
#include "tandem/graph.h"
#include "tandem/ops.h"

typedef struct td_model_options {
    td_section config;       /* the whole: td_section_int(options->config, "model.dim") */
    const td_schema *schema; /* of the data; NULL: none, for a graph from a file */
    int64_t batch;           /* capacity of the extent "B" */
} td_model_options;

typedef struct td_model {
    td_value loss;   /* one f32 number */
    td_value logit;  /* f32 [B, 1]: metrics are of it; TD_NO_VALUE: none */
    td_value scores; /* f32 [B, classes]: the largest is the class; likewise */
    td_value next;   /* f32 [B, T, symbols]: of the character after each; likewise */
} td_model;

typedef td_status *(*td_model_builder)(const td_model_options *options, td_graph *graph, td_model *out_model);

int32_t td_model_count(void);
const char *td_model_name(int32_t index);
/* Builds `model.name`, or reads the file `graph`, into a new graph. An unknown name is an error with the nearest. */
td_status *td_model_build(const td_model_options *options, td_graph **out_graph, td_model *out_model) TD_MUST_USE;

/* The same from a .tdg file. */
td_status *td_model_from_file(const char *path, td_graph **out_graph, td_model *out_model) TD_MUST_USE;

/* ---- for builders ------------------------------------------------------------------------------------------------------ */

enum { TD_MODEL_MOST_TABLES = 512 };

/* The inputs that a schema asks for. Absent ones are TD_NO_VALUE. */
typedef struct td_model_inputs {
    td_dim batch;
    td_value numbers; /* f32 [B, n_numbers]: the field "dense" or "numeric" */
    int64_t n_numbers;
    td_value label;    /* f32 [B, 1] */
    td_value wide_ids; /* i64 [B, columns], all in one table of wide_rows rows */
    int64_t wide_rows;
    int32_t n_tables;
    td_value ids[TD_MODEL_MOST_TABLES]; /* "ids_t<i>": i64 [B], or ragged */
    int64_t rows[TD_MODEL_MOST_TABLES];
} td_model_inputs;

/* Which of the optional inputs a model takes. */
enum { TD_MODEL_NUMBERS = 1, TD_MODEL_TABLES = 2, TD_MODEL_WIDE = 4 };
/* Adds the inputs that the schema has and `wanted` names; the label always. */
td_status *td_model_inputs_add(const td_model_options *options, td_graph *graph, unsigned wanted,
                               td_model_inputs *out_inputs) TD_MUST_USE;
/* "<prefix><i>.weight" [rows, dim], starting as model.table_deviation says, and its bags by model.pooling, called
 * "<prefix><i>/bag": [B, dim]. */
td_value td_model_bag(const td_model_options *options, td_graph *graph, const td_model_inputs *inputs, int32_t index,
                      const char *prefix, int64_t dim);
/* Linear layers "<name>.<i>" with ReLU between them: the widths listed under `key`, then `last`. relu_last: after the last
 * one too. */
td_value td_model_perceptron(const td_model_options *options, td_value x, const char *name, const char *key,
                             int64_t last, bool relu_last);

/* ---- images and classes: model_images.c ---- */

/* The input "image" as f32 [B, channels, height, width]; the label i64 [B], and how many classes there are. */
td_status *td_model_image(const td_model_options *options, td_graph *graph, td_value *out_image) TD_MUST_USE;
td_status *td_model_classes(const td_model_options *options, td_graph *graph, td_value *out_label,
                            int64_t *out_classes) TD_MUST_USE;
/* How the weights and the bias of a layer with so many inputs start, by model.initial. */
td_status *td_model_initial(const td_model_options *options, int64_t fan_in, td_initializer *out_weight,
                            td_initializer *out_bias) TD_MUST_USE;
/* Linear layers "<name>1", .. with ReLU between them: the widths of model.hidden, then `last`. */
td_status *td_model_layers(const td_model_options *options, const char *name, int64_t last, td_value *x) TD_MUST_USE;

#endif
