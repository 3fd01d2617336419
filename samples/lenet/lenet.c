/* LeNet-5 on images, the usual form with ReLU and max pooling (LeCun et al. 1998): two convolutions of 5 x 5, three linear layers.
 *
 *     image [B, C, H, W] -> conv1, relu, pool 2 -> conv2, relu, pool 2 -> fc1 .. fc<k>, relu between -> scores [B, classes]
 *
 * model.channels and model.padding are of the convolutions, model.hidden the widths before the last layer. */
#include "cli/model.h"

#include <stdio.h>

enum { KERNEL = 5 };

static td_status *convolve(const td_model_options *options, td_value *x, int32_t index)
{
    char name[16], weight_name[32], bias_name[32];
    td_initializer weight_initial, bias_initial;
    td_graph *graph = x->graph;
    const int64_t in = td_value_dim(*x, 1), out = td_section_int_at(options->config, "model.channels", index);
    TD_TRY(td_model_initial(options, in * KERNEL * KERNEL, &weight_initial, &bias_initial));
    (void)snprintf(name, sizeof name, "conv%d", index + 1);
    (void)snprintf(weight_name, sizeof weight_name, "%s.weight", name);
    (void)snprintf(bias_name, sizeof bias_name, "%s.bias", name);
    td_value weight = td_parameter(graph, weight_name, TD_F32, TD_SHAPE(out, in, KERNEL, KERNEL), weight_initial);
    td_value bias = td_parameter(graph, bias_name, TD_F32, TD_SHAPE(out), bias_initial);
    const td_conv2d_options window = {.padding = td_section_int_at(options->config, "model.padding", index)};
    *x = td_max_pool2d(td_relu(td_conv2d_with(*x, weight, bias, window, name)), 2, 0, 0);
    return NULL;
}

td_status *td_model_lenet(const td_model_options *options, td_graph *graph, td_model *out_model)
{
    td_value x, label;
    int64_t classes;
    TD_TRY(td_model_image(options, graph, &x));
    TD_TRY(td_model_classes(options, graph, &label, &classes));
    const int32_t convolutions = td_section_count(options->config, "model.channels");
    if (td_section_count(options->config, "model.padding") != convolutions)
        return TD_SECTION_ERROR(options->config, "model.padding",
                                "model.padding and model.channels must have one number for each convolution");
    for (int32_t i = 0; i < convolutions; i++)
        TD_TRY(convolve(options, &x, i));
    TD_TRY(td_graph_check(graph));
    const int64_t pixels = td_value_dim(x, 1) * td_value_dim(x, 2) * td_value_dim(x, 3);
    x = td_name(td_reshape(x, TD_SHAPE(td_value_shape(x).dims[0], pixels)), "flat");
    TD_TRY(td_model_layers(options, "fc", classes, &x));
    *out_model = (td_model){.loss = td_name(td_softmax_cross_entropy(x, label), "loss"),
                            .logit = TD_NO_VALUE,
                            .scores = td_name(x, "scores"),
                            .next = TD_NO_VALUE};
    return NULL;
}
