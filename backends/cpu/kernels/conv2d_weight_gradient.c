/* The gradients of conv2d's filters and bias. Sums are in the order of base/convolution.h: the samples are cut into parts by
 * shape alone, each part sums chunks of pixels, and the parts are added in order.
 *
 * A task is one part and one block of output channels. For each of its samples it lays the images out with their zeros and dy
 * with its channels side by side; then a panel (panel.h) is a few taps of a row times 8 or 16 channels, summed over pixels. */
#include "backends/cpu/kernels/conv2d.h"
#include "backends/cpu/kernels/slots.h"
#include "backends/cpu/kernels/taps.h"
#include "base/sums.h"

/* Rows of a panel: the columns of a filter where there are several, else channels. */
typedef struct weight_work {
    td_convolution c;
    conv_layout layout;
    int64_t lanes, blocks, taps, pixels;
    int64_t part_samples, parts;
    bool rows_are_channels;
} weight_work;

static td_convolution geometry(const td_kernel_call *call)
{
    return conv_geometry(call, &call->inputs[1], &call->outputs[0], &call->inputs[0]);
}

static weight_work work_of(const td_kernel_call *call)
{
    weight_work w = {.c = geometry(call)};
    const td_convolution *c = &w.c;
    w.layout = (conv_layout){.rows = c->height,
                             .columns = c->width,
                             .height = c->height + 2 * c->padding,
                             .width = c->width + 2 * c->padding,
                             .top = c->padding,
                             .left = c->padding,
                             .spacing = 1};
    w.lanes = conv_lanes(c->out);
    w.blocks = conv_blocks(c->out, w.lanes);
    w.taps = td_convolution_taps(c);
    w.pixels = td_convolution_pixels(c);
    w.part_samples = td_convolution_cut(c);
    w.parts = conv_blocks(c->batch, w.part_samples);
    w.rows_are_channels = c->kernel_width < 3 && c->in > c->kernel_width;
    return w;
}

/* Offsets of all windows from the first: int64_t[pixels]. */
static td_status *prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    (void)engine;
    const weight_work w = work_of(call);
    int64_t *offsets = NULL;
    TD_TRY(TD_NEW(offsets, w.pixels));
    for (int64_t p = 0; p < w.pixels; p++)
        offsets[p] = (p / w.c.out_width * w.layout.width + p % w.c.out_width) * w.c.stride;
    *out_state = offsets;
    return NULL;
}

/* The sums of one part: [groups][blocks][taps][lanes]. */
static int64_t part_floats(const weight_work *w)
{
    return w->c.groups * w->blocks * w->taps * w->lanes;
}

static int64_t image_floats(const weight_work *w)
{
    return conv_is_same(&w->layout) ? 0 : w->c.in * w->layout.height * w->layout.width;
}

static int64_t slot_floats(const weight_work *w)
{
    return image_floats(w) + w->pixels * w->lanes;
}

/* Fewer samples may be cut into more parts than the capacity is, but never into more than there are samples or
 * TD_CONVOLUTION_PARTS. */
static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    const weight_work w = work_of(call);
    const int64_t parts = conv_least(w.c.batch, TD_CONVOLUTION_PARTS);
    const int64_t slots = slots_for(parts * w.c.groups * w.blocks);
    return (size_t)(parts * part_floats(&w) + slots * slot_floats(&w)) * sizeof(float);
}

typedef struct weight_run {
    const td_kernel_call *call;
    weight_work w;
    const int64_t *offsets;
    float *parts, *slots;
} weight_run;

/* dy of some channels of a sample, side by side: [pixels][lanes]. Lanes beyond the last channel stay as they are. */
static void pack_channels(const weight_work *w, const float *dy, int64_t channels, float *to)
{
    for (int64_t lane = 0; lane < channels; lane++)
        for (int64_t p = 0; p < w->pixels; p++)
            to[p * w->lanes + lane] = dy[lane * w->pixels + p];
}

/* All taps over a chunk of pixels: `p` has the chunk's offsets, terms and b. */
static void add_chunk(const weight_work *w, const float *planes, panel p, float *sums)
{
    const td_convolution *c = &w->c;
    const int64_t plane = w->layout.height * w->layout.width, kernel_taps = c->kernel_height * c->kernel_width;
    const int64_t rows = w->rows_are_channels ? c->in : c->kernel_width;
    const int64_t lines = w->rows_are_channels ? kernel_taps : c->in * c->kernel_height;
    const int64_t piece = panel_piece(rows, w->lanes == 8 ? PANEL_ROWS_8 : PANEL_MOST_16);
    p.step = w->rows_are_channels ? plane : c->dilation;
    p.c_leading = w->lanes * (w->rows_are_channels ? kernel_taps : 1);
    const int64_t together = w->rows_are_channels || c->dilation > 1 ? 0 : taps_lines(w->lanes, rows);
    for (int64_t line = 0, n = 0; line < lines; line += n) {
        const int64_t tap = w->rows_are_channels ? line : line * c->kernel_width; /* the line's first */
        const float *a = planes + tap / kernel_taps * plane +
                         (tap % kernel_taps / c->kernel_width * w->layout.width + tap % c->kernel_width) * c->dilation;
        n = together > 0 && line % c->kernel_height + together <= c->kernel_height ? together : 1;
        if (n == together) {
            p.a = a;
            p.c = sums + tap * w->lanes;
            taps_sum(&p, w->lanes, rows, w->layout.width);
            continue;
        }
        for (int64_t row = 0; row < rows; row += piece) {
            p.a = a + row * p.step;
            p.c = sums + tap * w->lanes + row * p.c_leading;
            conv_panel(&p, w->lanes, conv_least(piece, rows - row));
        }
    }
}

static void sum_sample(const weight_run *run, const float *planes, const float *dy, bool add, float *sums)
{
    const weight_work *w = &run->w;
    for (int64_t pixel = 0; pixel < w->pixels; pixel += TD_CONVOLUTION_CHUNK) {
        const panel p = {.offset = run->offsets + pixel,
                         .terms = conv_least(TD_CONVOLUTION_CHUNK, w->pixels - pixel),
                         .b = dy + pixel * w->lanes,
                         .b_leading = w->lanes,
                         .add = add || pixel > 0};
        add_chunk(w, planes, p, sums);
    }
}

/* One part, one block of output channels. */
static void sum_part(const void *context, int64_t task, int64_t slot)
{
    const weight_run *run = context;
    const weight_work *w = &run->w;
    const td_convolution *c = &w->c;
    const int64_t block = task % w->blocks, group = task / w->blocks % c->groups;
    const int64_t begin = task / w->blocks / c->groups * w->part_samples,
                  end = conv_least(begin + w->part_samples, c->batch);
    const int64_t channels = conv_least(w->lanes, c->out - block * w->lanes);
    float *image = run->slots + slot * slot_floats(w), *packed = image + image_floats(w);
    float *sums = run->parts + task * w->taps * w->lanes;
    memset(packed, 0, (size_t)(w->pixels * w->lanes) * sizeof *packed);
    for (int64_t n = begin; n < end; n++) {
        const float *planes =
            (const float *)run->call->inputs[1].data + (n * c->groups + group) * c->in * c->height * c->width;
        if (image_floats(w)) {
            conv_lay_out(&w->layout, planes, c->in, image);
            planes = image;
        }
        pack_channels(w,
                      (const float *)run->call->inputs[0].data +
                          ((n * c->groups + group) * c->out + block * w->lanes) * w->pixels,
                      channels, packed);
        sum_sample(run, planes, packed, n > begin, sums);
    }
}

/* The gradient of one output channel: the parts, added in order. */
static void add_parts(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const weight_run *run = context;
    const weight_work *w = &run->w;
    const int64_t group = index / w->c.out, channel = index % w->c.out;
    const float *first =
        run->parts + (group * w->blocks + channel / w->lanes) * w->taps * w->lanes + channel % w->lanes;
    float *out = (float *)run->call->outputs[0].data + index * w->taps;
    for (int64_t tap = 0; tap < w->taps; tap++) {
        const float *from = first + tap * w->lanes;
        float sum = from[0];
        for (int64_t part = 1; part < w->parts; part++)
            sum += from[part * part_floats(w)];
        out[tap] = sum;
    }
}

static td_status *run(const td_kernel_call *call, td_team *team, void *state)
{
    weight_run run = {.call = call, .w = work_of(call), .offsets = state, .parts = call->scratch};
    const weight_work *w = &run.w;
    const int64_t tasks = w->parts * w->c.groups * w->blocks, outputs = w->c.groups * w->c.out;
    if (w->c.batch == 0) {
        memset(call->outputs[0].data, 0, (size_t)(outputs * w->taps) * sizeof(float));
        return NULL;
    }
    run.slots = run.parts + w->parts * part_floats(w);
    slots_run(team, tasks, slots_for(tasks), sum_part, &run);
    td_team_run(team, outputs, add_parts, &run);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(conv2d_weight_gradient) = {.op = "conv2d_weight_gradient",
                                                         .supports = conv_supports,
                                                         .widens = true,
                                                         .prepare = prepare,
                                                         .destroy = td_free,
                                                         .scratch_bytes = scratch_bytes,
                                                         .run = run};

/* ---- bias ------------------------------------------------------------------------------------------------------------------ */

static void sum_channels(void *context, int64_t begin, int64_t end)
{
    const td_kernel_call *call = context;
    const td_tensor *dy = &call->inputs[0];
    const int64_t pixels = dy->dims[2] * dy->dims[3], channels = dy->dims[1];
    for (int64_t o = begin; o < end; o++) {
        double sum = 0;
        for (int64_t n = 0; n < dy->dims[0]; n++)
            sum += (double)v16_sum((const float *)dy->data + (n * channels + o) * pixels, pixels);
        ((float *)call->outputs[0].data)[o] = (float)sum;
    }
}

static td_status *run_bias(const td_kernel_call *call, td_team *team, void *state)
{
    (void)state;
    td_cpu_for(team, call->inputs[0].dims[1], 1, sum_channels, (void *)(uintptr_t)call);
    return NULL;
}

const td_cpu_kernel TD_KERNEL(conv2d_bias_gradient) = {
    .op = "conv2d_bias_gradient", .supports = conv_supports, .widens = true, .run = run_bias};
