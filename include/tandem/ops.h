/* Builder functions of the ops. Each adds one node to the graph of its first argument and returns its (first) output.
 *
 * Names: a node without a given name is called after its op and its first input's scope ("bottom.0/relu"). Two nodes that
 * end with the same name are an error when the graph is used: td_name one of them, or build them in their own scope
 * (td_scope_push). Shapes are checked while building; errors wait in the graph (tandem/graph.h). Gradients: `tandem ops`. */
#ifndef TANDEM_OPS_H
#define TANDEM_OPS_H

#include "tandem/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x [.., in] -> [.., out]: x W^T + b, with parameters `name`.weight [out, in] and `name`.bias [out], both
 * U(-1/sqrt(in), 1/sqrt(in)). The node is `name`/linear. */
td_value td_linear(td_value x, int64_t out, const char *name);
/* The same with given parameters; bias may be TD_NO_VALUE. */
td_value td_linear_with(td_value x, td_value weight, td_value bias, const char *name);
/* a [.., m, k] (or [.., k, m] if transpose_a) times b [.., k, n] (or [.., n, k]); leading dimensions equal, or b rank 2. */
td_value td_matmul(td_value a, td_value b, bool transpose_a, bool transpose_b);

/* Elementwise with NumPy broadcasting. */
td_value td_add(td_value a, td_value b);
td_value td_sub(td_value a, td_value b);
td_value td_mul(td_value a, td_value b);
td_value td_div(td_value a, td_value b);
td_value td_scale(td_value x, double factor);
/* x times a run-time scalar (a td_scalar of one number). */
td_value td_scale_by(td_value x, td_value scalar);
td_value td_relu(td_value x);
td_value td_gelu(td_value x, bool tanh_form);
td_value td_sigmoid(td_value x);
td_value td_tanh(td_value x);
/* Over the last axis. */
td_value td_softmax(td_value x);

td_value td_concat(int32_t n, const td_value *values, int32_t axis);
/* Elements [begin, begin + size) of an axis. */
td_value td_slice(td_value x, int32_t axis, int64_t begin, int64_t size);
/* Equal parts of an axis into out[n]. */
void td_split(td_value x, int32_t axis, int32_t n, td_value *out);
/* A view. The shape must hold as many elements for every extent; one constant dimension may be -1. */
td_value td_reshape(td_value x, td_shape shape);
td_value td_transpose(td_value x, int32_t rank, const int32_t *permutation);
/* Over one axis, which is removed unless keep. */
td_value td_reduce_sum(td_value x, int32_t axis, bool keep);
td_value td_reduce_mean(td_value x, int32_t axis, bool keep);
/* Rows of x along axis 0 picked by integer indices [..]: [.., x.dims[1:]]. */
td_value td_gather(td_value x, td_value indices);
td_value td_cast(td_value x, td_dtype dtype);
td_value td_copy(td_value x);

typedef enum td_pooling { TD_SUM = 0, TD_MEAN = 1 } td_pooling;
typedef struct td_embedding_options {
    td_pooling pooling;
    int64_t offset;   /* added to each id before the lookup */
    bool dense;       /* true: the gradient is a whole table (refused on the host) */
    td_value weights; /* per-id weights: f32 like ids; graph NULL: none */
} td_embedding_options;
/* table [rows, dim], ids i64/i32 dense [..] -> [.., dim]. */
td_value td_embedding(td_value table, td_value ids, td_embedding_options options);
/* ids ragged [bags], or dense [bags] or [bags, length] -> [bags, dim]. An empty bag is zeros. */
td_value td_embedding_bag(td_value table, td_value ids, td_pooling pooling);
td_value td_embedding_bag_with(td_value table, td_value ids, td_embedding_options options);
/* n vectors [batch, dim] -> [batch, n (n - 1) / 2]: dot products strictly below the diagonal, row-major. */
td_value td_dot_interaction(int32_t n, const td_value *vectors);
/* DCN-v2: x0 * (W x + b) + x, parameters `name`.weight [d, d] and `name`.bias [d]. */
td_value td_cross_layer(td_value x0, td_value x, const char *name);
/* Over the last axis, biased variance; parameters `name`.weight (ones) and `name`.bias (zeros). */
td_value td_layer_norm(td_value x, double epsilon, const char *name);
/* Images are f32 [samples, channels, height, width], the last three constant. A setting of 0 is the usual: stride 1,
 * dilation 1, one group. Groups are parts of the channels that do not see each other. */
typedef struct td_conv2d_options {
    int64_t stride, padding, dilation, groups;
    bool no_bias;
} td_conv2d_options;
/* [N, C, H, W] -> [N, channels, (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1, ..], with parameters `name`.weight
 * [channels, C / groups, kernel, kernel] and `name`.bias [channels], both U(-1/sqrt(fan in), 1/sqrt(fan in)). The node is
 * `name`/conv2d. */
td_value td_conv2d(td_value x, int64_t channels, int64_t kernel, td_conv2d_options options, const char *name);
/* The same with given parameters, the filters perhaps not square; bias may be TD_NO_VALUE. */
td_value td_conv2d_with(td_value x, td_value weight, td_value bias, td_conv2d_options options, const char *name);
/* The largest of each kernel x kernel window; stride 0: the kernel; padding, at most half the kernel, is never the largest. */
td_value td_max_pool2d(td_value x, int64_t kernel, int64_t stride, int64_t padding);
/* The mean of each window, zeros of the padding counted or not. */
td_value td_avg_pool2d(td_value x, int64_t kernel, int64_t stride, int64_t padding, bool count_padding);
/* Without a bias where it is TD_NO_VALUE. The node is `name`/layer_norm. */
td_value td_layer_norm_with(td_value x, td_value weight, td_value bias, double epsilon, const char *name);
/* Per channel (axis 1) over samples and pixels; parameters `name`.weight (ones), `name`.bias (zeros), and the running statistics
 * `name`.running_mean and `name`.running_variance, which move by `momentum` towards each batch's and are used in evaluation. */
td_value td_batch_norm(td_value x, double epsilon, double momentum, const char *name);
/* Every position attends to itself and those before it: qkv [B, T, 3 width] (q, k, v side by side; head h has the width / heads
 * columns from h * width / heads on in each) -> [B, T, width]. */
td_value td_causal_attention(td_value qkv, int64_t heads);
/* Keeps with probability 1 - rate and scales by 1/(1 - rate); the identity outside training. */
td_value td_dropout(td_value x, double rate);

/* Losses: one number [1], the mean over all samples. */
td_value td_bce_with_logits(td_value logit, td_value label);       /* same shapes */
td_value td_softmax_cross_entropy(td_value logit, td_value label); /* [.., classes], integer [..] */
td_value td_mse(td_value prediction, td_value target);             /* same shapes */

/* A user's function as an op: reads `inputs`, writes one new dense output. Runs on the host. It may not call the session.
 * The function and its context must outlive all sessions. No gradient. */
typedef td_status *(*td_host_function)(void *context, const td_tensor *inputs, int32_t n_inputs, td_tensor *output);
td_value td_host_call(td_graph *graph, td_host_function function, void *context, int32_t n_inputs,
                      const td_value *inputs, td_dtype dtype, td_shape shape, const char *name);

#ifdef __cplusplus
}
#endif
#endif
