/* conv2d and the gradient of its images: both read windows of one set of planes and write pixels of another, so one procedure
 * does both. Sums are in the order of base/convolution.h.
 *
 * Planes are laid out with zeros around them (for the gradient also between pixels, where windows skip some), a few samples at
 * a time; then every window lies inside, and its taps are at fixed offsets from its first pixel. The filters are packed so
 * that neighbouring output channels lie side by side. A panel (panel.h) is a few neighbouring pixels times 8 or 16 channels,
 * or where there are few of these the other way round (pixels.h): no window is ever copied, and no sum leaves the registers within a chunk. */
#include "backends/cpu/kernels/conv2d.h"
#include "backends/cpu/kernels/pixels.h"

/* Windows over `from` channels make `to` channels, both of one group. */
typedef struct gathering {
    int64_t batch, groups, from, to;
    int64_t rows, columns;     /* of the planes that are written */
    conv_layout layout;        /* of the planes that are read */
    int64_t row_step, step;    /* elements between windows: down and along the rows */
    int64_t taps, kernel_taps; /* terms of a sum; those of one channel */
    int64_t lanes, blocks;     /* channels of a panel, panels of `to` */
    int64_t row_vectors;       /* of pixels in a row that is written; 0: panels of channels */
    bool transposed;           /* the filter is [from, to, ..] */
} gathering;

/* Panels, and whether they are of pixels: for few channels side by side, where that leaves fewer lanes empty. The choice does
 * not depend on the instruction set (scratch does not), and weighs a vector of 16 pixels as 1.5 of 8 channels: it is 1 with
 * AVX-512 and 2 with AVX2. */
static void choose_panels(gathering *g)
{
    const int64_t vectors = conv_blocks(g->columns, PIXEL_LANES);
    g->lanes = conv_lanes(g->to);
    g->blocks = conv_blocks(g->to, g->lanes);
    g->row_vectors = g->lanes == 8 && g->step == 1 && 3 * vectors * g->to <= 2 * g->columns ? vectors : 0;
}

static gathering forward_gathering(const td_kernel_call *call)
{
    const td_convolution c = conv_geometry(call, &call->inputs[0], &call->inputs[1], &call->outputs[0]);
    gathering g = {.batch = c.batch,
                   .groups = c.groups,
                   .from = c.in,
                   .to = c.out,
                   .rows = c.out_height,
                   .columns = c.out_width,
                   .layout = {.rows = c.height,
                              .columns = c.width,
                              .height = c.height + 2 * c.padding,
                              .width = c.width + 2 * c.padding,
                              .top = c.padding,
                              .left = c.padding,
                              .spacing = 1},
                   .step = c.stride,
                   .taps = td_convolution_taps(&c),
                   .kernel_taps = c.kernel_height * c.kernel_width};
    g.row_step = c.stride * g.layout.width;
    choose_panels(&g);
    return g;
}

/* Input pixel (i, j) reads dy, spread by the stride, at (i + padding - k dilation, ..) for tap row k. */
static gathering gradient_gathering(const td_kernel_call *call)
{
    const td_convolution c = conv_geometry(call, &call->outputs[0], &call->inputs[1], &call->inputs[0]);
    const int64_t down = (c.kernel_height - 1) * c.dilation, along = (c.kernel_width - 1) * c.dilation;
    gathering g = {.batch = c.batch,
                   .groups = c.groups,
                   .from = c.out,
                   .to = c.in,
                   .rows = c.height,
                   .columns = c.width,
                   .layout = {.rows = c.out_height,
                              .columns = c.out_width,
                              .height = c.height + down,
                              .width = c.width + along,
                              .top = down - c.padding,
                              .left = along - c.padding,
                              .spacing = c.stride},
                   .step = 1,
                   .taps = c.out * c.kernel_height * c.kernel_width,
                   .kernel_taps = c.kernel_height * c.kernel_width,
                   .transposed = true};
    g.row_step = g.layout.width;
    choose_panels(&g);
    return g;
}

static gathering gathering_of(const td_kernel_call *call)
{
    return strcmp(call->op, "conv2d") == 0 ? forward_gathering(call) : gradient_gathering(call);
}

/* ---- preparing ----------------------------------------------------------------------------------------------------------- */

/* Offsets of all taps from a window's first pixel: int64_t[taps]. */
static td_status *prepare(const td_cpu_engine *engine, const td_kernel_call *call, void **out_state)
{
    (void)engine;
    const gathering g = gathering_of(call);
    const int64_t kernel_width = call->inputs[1].dims[3], kernel_height = call->inputs[1].dims[2];
    const int64_t dilation = td_cpu_attr_int(call, "dilation", 1);
    int64_t *offsets = NULL;
    TD_TRY(TD_NEW(offsets, g.taps));
    for (int64_t r = 0; r < g.taps; r++) {
        int64_t k = r % g.kernel_taps / kernel_width, l = r % kernel_width;
        if (g.transposed) { /* from the window's last pixel backwards */
            k = kernel_height - 1 - k;
            l = kernel_width - 1 - l;
        }
        offsets[r] = (r / g.kernel_taps * g.layout.height + k * dilation) * g.layout.width + l * dilation;
    }
    *out_state = offsets;
    return NULL;
}

static int64_t packed_floats(const gathering *g)
{
    return g->groups * g->blocks * g->taps * g->lanes;
}

/* One sample's planes, laid out; also as they are where vectors of pixels reach beyond the last. */
static int64_t slot_floats(const gathering *g)
{
    return conv_is_same(&g->layout) && !g->row_vectors ? 0 : g->groups * g->from * g->layout.height * g->layout.width;
}

static size_t scratch_bytes(const td_kernel_call *call, const void *state)
{
    (void)state;
    const gathering g = gathering_of(call);
    const int64_t beyond = g.row_vectors ? PIXEL_LANES : 0;
    return (size_t)(packed_floats(&g) + conv_least(g.batch, CONV_SLOTS) * slot_floats(&g) + beyond) * sizeof(float);
}

/* ---- running ------------------------------------------------------------------------------------------------------------- */

typedef struct gather_run {
    const td_kernel_call *call;
    gathering g;
    const int64_t *offsets;
    const float *bias;
    float *packed, *slots;
    int64_t first, samples, bands; /* of this round; bands of rows per plane */
} gather_run;

/* One panel of filters: [taps][lanes], zeros beyond the last channel. */
static void pack_filters(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const gather_run *run = context;
    const gathering *g = &run->g;
    const int64_t group = index / g->blocks, first = index % g->blocks * g->lanes;
    const float *filters = run->call->inputs[1].data;
    float *to = run->packed + index * g->taps * g->lanes;
    for (int64_t r = 0; r < g->taps; r++)
        for (int64_t lane = 0; lane < g->lanes; lane++) {
            const int64_t channel = first + lane, from = r / g->kernel_taps;
            const int64_t at = g->transposed
                                   ? ((group * g->from + from) * g->to + channel) * g->kernel_taps + r % g->kernel_taps
                                   : (group * g->to + channel) * g->taps + r;
            *to++ = channel < g->to ? filters[at] : 0;
        }
}

static int64_t sample_floats(const gathering *g)
{
    return g->groups * g->from * g->layout.rows * g->layout.columns;
}

static void lay_out_group(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const gather_run *run = context;
    const gathering *g = &run->g;
    const int64_t sample = index / g->groups, group = index % g->groups;
    conv_lay_out(&g->layout,
                 (const float *)run->call->inputs[0].data + (run->first + sample) * sample_floats(g) +
                     group * g->from * g->layout.rows * g->layout.columns,
                 g->from, run->slots + sample * slot_floats(g) + group * g->from * g->layout.height * g->layout.width);
}

/* Some neighbouring pixels of one row, all channels of a block: from a tile to the planes. */
static void store_tile(const gather_run *run, const float *tile, int64_t pixels, int64_t channel, int64_t channels,
                       float *out)
{
    const gathering *g = &run->g;
    for (int64_t lane = 0; lane < channels; lane++) {
        float *to = out + lane * g->rows * g->columns;
        const float bias = run->bias ? run->bias[channel + lane] : 0;
        for (int64_t i = 0; i < pixels; i++)
            to[i] = run->bias ? tile[i * g->lanes + lane] + bias : tile[i * g->lanes + lane];
    }
}

/* One row of pixels of one block of channels. `window`: the first window's first pixel. */
static void gather_row(const gather_run *run, const float *window, const float *filters, int64_t channel,
                       int64_t channels, float *out)
{
    const gathering *g = &run->g;
    float tile[PANEL_ROWS_8 * 16];
    const int64_t piece = panel_piece(g->columns, g->lanes == 8 ? PANEL_ROWS_8 : PANEL_MOST_16);
    for (int64_t j = 0; j < g->columns; j += piece) {
        const int64_t pixels = conv_least(piece, g->columns - j);
        for (int64_t r = 0; r < g->taps; r += TD_CONVOLUTION_CHUNK) {
            const panel p = {.a = window + j * g->step,
                             .step = g->step,
                             .offset = run->offsets + r,
                             .terms = conv_least(TD_CONVOLUTION_CHUNK, g->taps - r),
                             .b = filters + r * g->lanes,
                             .b_leading = g->lanes,
                             .c = tile,
                             .c_leading = g->lanes,
                             .add = r > 0};
            conv_panel(&p, g->lanes, pixels);
        }
        store_tile(run, tile, pixels, channel, channels, out + j);
    }
}

/* Where the vectors `at` of a plane, row by row, are read and written, and how many of their pixels there are. */
static int64_t vector_of(const gathering *g, int64_t at, int64_t *read, int64_t *write)
{
    const int64_t row = at / g->row_vectors, column = at % g->row_vectors * PIXEL_LANES;
    *read = row * g->row_step + column;
    *write = row * g->columns + column;
    return conv_least(PIXEL_LANES, g->columns - column);
}

/* The vectors [at, at + vectors) of pixels of some channels: `filters` and `out` are the first channel's. */
static void gather_vectors(const gather_run *run, const float *planes, int64_t at, int64_t vectors,
                           const float *filters, int64_t channel, int64_t channels, float *out)
{
    const gathering *g = &run->g;
    float tile[PIXEL_VECTORS * PIXEL_CHANNELS * PIXEL_LANES];
    int64_t write[PIXEL_VECTORS], pixels[PIXEL_VECTORS];
    pixel_panel p = {.b_leading = g->lanes, .c = tile};
    for (int64_t v = 0; v < vectors; v++) {
        int64_t read = 0;
        pixels[v] = vector_of(g, at + v, &read, &write[v]);
        p.a[v] = planes + read;
    }
    for (int64_t r = 0; r < g->taps; r += TD_CONVOLUTION_CHUNK) {
        p.offset = run->offsets + r;
        p.terms = conv_least(TD_CONVOLUTION_CHUNK, g->taps - r);
        p.b = filters + r * g->lanes;
        p.add = r > 0;
        pixels_sum(&p, vectors, channels);
    }
    for (int64_t v = 0; v < vectors; v++)
        for (int64_t k = 0; k < channels; k++) {
            const v16 sum = v16_load(tile + (v * PIXEL_CHANNELS + k) * PIXEL_LANES);
            v16_store_first(out + k * g->rows * g->columns + write[v],
                            run->bias ? v16_add(sum, v16_set(run->bias[channel + k])) : sum, pixels[v]);
        }
}

/* Rows [begin, end) of all channels of a block, by vectors of pixels. */
static void gather_rows_of_pixels(const gather_run *run, const float *planes, int64_t begin, int64_t end,
                                  const float *filters, int64_t channel, int64_t channels, float *out)
{
    const gathering *g = &run->g;
    const int64_t last = end * g->row_vectors, piece = panel_piece(channels, PIXEL_CHANNELS);
    for (int64_t at = begin * g->row_vectors; at < last;) {
        const int64_t vectors = last - at < PIXEL_VECTORS ? 1 : PIXEL_VECTORS;
        for (int64_t k = 0; k < channels; k += piece)
            gather_vectors(run, planes, at, vectors, filters + k, channel + k, conv_least(piece, channels - k),
                           out + k * g->rows * g->columns);
        at += vectors;
    }
}

/* A band of rows of one block of channels of one sample. */
static void gather_band(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const gather_run *run = context;
    const gathering *g = &run->g;
    const int64_t band = index % run->bands, block = index / run->bands % g->blocks;
    const int64_t group = index / run->bands / g->blocks % g->groups,
                  sample = index / run->bands / g->blocks / g->groups;
    const int64_t channels = conv_least(g->lanes, g->to - block * g->lanes), channel = group * g->to + block * g->lanes;
    const float *planes = slot_floats(g)
                              ? run->slots + sample * slot_floats(g)
                              : (const float *)run->call->inputs[0].data + (run->first + sample) * sample_floats(g);
    planes += group * g->from * g->layout.height * g->layout.width;
    const float *filters = run->packed + (group * g->blocks + block) * g->taps * g->lanes;
    float *out = (float *)run->call->outputs[0].data +
                 ((run->first + sample) * g->groups * g->to + channel) * g->rows * g->columns;
    int64_t begin = 0, end = 0;
    td_team_span(g->rows, band, run->bands, &begin, &end);
    if (g->row_vectors)
        gather_rows_of_pixels(run, planes, begin, end, filters, channel, channels, out);
    for (int64_t i = begin; i < end && !g->row_vectors; i++)
        gather_row(run, planes + i * g->row_step, filters, channel, channels, out + i * g->columns);
}

static td_status *run_gathering(const td_kernel_call *call, td_team *team, void *state)
{
    gather_run run = {.call = call, .g = gathering_of(call), .offsets = state, .packed = call->scratch};
    const gathering *g = &run.g;
    const bool same = !slot_floats(g);
    if (g->batch == 0)
        return NULL;
    if (call->n_inputs > 2 && call->inputs[2].kind != TD_NONE)
        run.bias = call->inputs[2].data;
    run.slots = run.packed + packed_floats(g);
    if (g->row_vectors)
        memset(run.slots + conv_least(g->batch, CONV_SLOTS) * slot_floats(g), 0, PIXEL_LANES * sizeof(float));
    td_team_run(team, g->groups * g->blocks, pack_filters, &run);
    for (run.first = 0; run.first < g->batch; run.first += run.samples) {
        run.samples = conv_least(g->batch - run.first, same ? g->batch : CONV_SLOTS);
        const int64_t tasks = run.samples * g->groups * g->blocks;
        run.bands = conv_least(conv_blocks(CONV_TASKS, tasks), g->rows);
        if (!same)
            td_team_run(team, run.samples * g->groups, lay_out_group, &run);
        td_team_run(team, tasks * run.bands, gather_band, &run);
    }
    return NULL;
}

const td_cpu_kernel TD_KERNEL(conv2d) = {.op = "conv2d",
                                         .supports = conv_supports,
                                         .widens = true,
                                         .prepare = prepare,
                                         .destroy = td_free,
                                         .scratch_bytes = scratch_bytes,
                                         .run = run_gathering};
const td_cpu_kernel TD_KERNEL(conv2d_input_gradient) = {.op = "conv2d_input_gradient",
                                                        .supports = conv_supports,
                                                        .widens = true,
                                                        .prepare = prepare,
                                                        .destroy = td_free,
                                                        .scratch_bytes = scratch_bytes,
                                                        .run = run_gathering};
