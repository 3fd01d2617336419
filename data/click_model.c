/* The planted click model: see data/click_model.h. */
#include "data/click_model.h"

#include "base/hash.h"
#include "base/math.h"
#include "base/memory.h"
#include "data/mix.h"

enum { PROBE_ROWS = 4096, LAST_FULL_OCTAVE = 12 };

/* Random bits of one row, in the order in which they are asked for. */
typedef struct stream {
    td_philox_key key;
    uint64_t row, block;
    uint32_t bits[4];
    int32_t used;
} stream;

static uint32_t draw(stream *from)
{
    if (from->used == 4) {
        td_philox_block(from->key, from->row, from->block++, from->bits);
        from->used = 0;
    }
    return from->bits[from->used++];
}

/* Bell-shaped around 0 with variance 1, from -3.5 to 3.5: the sum of four bytes (Irwin and Hall). */
static double bell(uint32_t bits)
{
    const double deviation = 147.80053; /* root of 4 (256^2 - 1) / 12 */
    uint32_t sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24);
    return ((double)sum - 510) / deviation;
}

/* ---- setting up ----------------------------------------------------------------------------------------------------- */

/* The integral of x^-skew from a to b. */
static double zipf_mass(double a, double b, double skew)
{
    double power = 1 - skew;
    if (power > -1e-6 && power < 1e-6)
        return td_log(b) - td_log(a);
    return (td_exp(power * td_log(b)) - td_exp(power * td_log(a))) / power;
}

/* Octave k holds ranks 2^k - 1 .. 2^(k+1) - 2. Thresholds are rounded to 24 bits. */
static void set_octaves(td_click_table *table, double skew)
{
    double mass[TD_CLICK_OCTAVES], total = 0, sum = 0;
    table->n_octaves = 0;
    for (uint64_t begin = 1; begin <= table->rows; begin *= 2) {
        uint64_t end = 2 * begin <= table->rows ? 2 * begin : table->rows + 1;
        mass[table->n_octaves] = zipf_mass((double)begin, (double)end, skew);
        total += mass[table->n_octaves++];
    }
    for (int32_t k = 0; k < table->n_octaves; k++) {
        sum += mass[k];
        table->below[k] = (uint32_t)(int64_t)(sum / total * 0xffffff) << 8;
    }
    table->below[table->n_octaves - 1] = UINT32_MAX;
    for (uint32_t g = 0, k = 0; g < TD_CLICK_GUIDES; g++) {
        while (table->below[k] <= g << 26 && k < (uint32_t)table->n_octaves - 1)
            k++;
        table->guide[g] = (uint8_t)k;
    }
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void set_table(td_click_table *table, int64_t rows, double skew, uint64_t key)
{
    table->rows = (uint64_t)rows;
    table->key = key;
    table->offset = td_mix(key) % table->rows;
    table->multiplier = (table->rows * 40503u >> 16) | 1; /* near the golden section of the table */
    while (common_divisor(table->multiplier, table->rows) != 1)
        table->multiplier++;
    set_octaves(table, skew);
}

/* The mean logit over the first rows decides the bias. */
static void set_bias(td_click_model *model)
{
    const td_click_sink nowhere = {0};
    const double wanted = -1.4;
    double sum = 0;
    float label;
    for (int64_t row = 0; row < PROBE_ROWS; row++)
        sum += td_click_model_row(model, row, 0, &nowhere, &label);
    model->bias = wanted - sum / PROBE_ROWS;
}

static td_status *set_up(td_click_model *model, const td_synthetic_options *options, const int64_t *table_rows)
{
    TD_TRY(TD_NEW(model->weights, model->n_dense));
    TD_TRY(TD_NEW(model->tables, model->n_tables));
    uint64_t secret = td_hash_number(options->seed, td_hash_string("click model", 0));
    double squares = 0;
    for (int32_t j = 0; j < model->n_dense; j++) {
        model->weights[j] = (float)bell((uint32_t)td_mix(secret + (uint64_t)j));
        squares += (double)model->weights[j] * (double)model->weights[j];
    }
    int32_t n_pairs = model->n_tables / 2;
    double length = model->bag > 1 ? (double)model->bag / 2 : 1;
    model->dense_scale = squares > 0 ? sqrt(0.4 / squares) : 0;
    model->id_scale = sqrt(1.0 / (model->n_tables * length));
    model->pair_scale = n_pairs ? sqrt(0.4 / n_pairs) / length : 0;
    for (int32_t t = 0; t < model->n_tables; t++)
        set_table(&model->tables[t], table_rows[t], options->skew, td_hash_number((uint64_t)t, secret));
    set_bias(model);
    return NULL;
}

td_status *td_click_model_create(const td_synthetic_options *options, int32_t n_tables, const int64_t *table_rows,
                                 td_click_model **out_model)
{
    *out_model = NULL;
    td_click_model *model = NULL;
    TD_TRY(TD_NEW(model, 1));
    model->key = td_philox_key_of(options->seed, "clicks", "");
    model->n_dense = options->n_dense;
    model->n_tables = n_tables;
    model->bag = options->bag;
    td_status *status = set_up(model, options, table_rows);
    if (status)
        td_click_model_destroy(model);
    else
        *out_model = model;
    return status;
}

void td_click_model_destroy(td_click_model *model)
{
    if (!model)
        return;
    td_free(model->weights);
    td_free(model->tables);
    td_free(model);
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

/* Hidden numbers of what was drawn from a table: sums over a bag. */
typedef struct hidden {
    double effect, latent;
} hidden;

static const double fade[TD_CLICK_OCTAVES - LAST_FULL_OCTAVE] = {
    1,         0.7071,   0.5,      0.3536,   0.25,     0.1768,    0.125,    0.08839,  0.0625,   0.04419,  0.03125,
    0.0220971, 0.015625, 0.011049, 0.007813, 0.005524, 0.0039063, 0.002762, 0.001953, 0.001381, 0.0009766};

static int64_t draw_id(stream *from, const td_click_table *table, hidden *sum)
{
    uint32_t bits = draw(from);
    int32_t octave = table->guide[bits >> 26];
    while (bits >= table->below[octave] && octave < table->n_octaves - 1)
        octave++;
    uint64_t begin = (uint64_t)1 << octave;
    uint64_t width = 2 * begin <= table->rows ? begin : table->rows + 1 - begin;
    uint64_t rank = begin - 1 + (width * draw(from) >> 32);
    uint64_t secret = td_mix(table->key + rank * 0x9e3779b97f4a7c15ULL);
    double scale = octave > LAST_FULL_OCTAVE ? fade[octave - LAST_FULL_OCTAVE] : 1;
    sum->effect += scale * bell((uint32_t)secret);
    sum->latent += scale * bell((uint32_t)(secret >> 32));
    return (int64_t)((rank * table->multiplier + table->offset) % table->rows);
}

/* A table's id or bag of row element `i`. */
static hidden draw_table(stream *from, const td_click_model *model, int32_t t, int64_t i, const td_click_sink *sink)
{
    hidden sum = {0, 0};
    int64_t *ids = sink->ids ? sink->ids[t] : NULL, *offsets = sink->offsets ? sink->offsets[t] : NULL;
    int64_t length = model->bag > 1 ? (int64_t)((uint64_t)draw(from) * (uint64_t)(model->bag + 1) >> 32) : 1;
    int64_t begin = offsets ? offsets[i] : i;
    for (int64_t k = 0; k < length; k++) {
        int64_t id = draw_id(from, &model->tables[t], &sum);
        if (ids)
            ids[begin + k] = id;
    }
    if (offsets)
        offsets[i + 1] = begin + length;
    return sum;
}

double td_click_model_row(const td_click_model *model, int64_t row, int64_t i, const td_click_sink *sink,
                          float *out_label)
{
    stream from = {.key = model->key, .row = (uint64_t)row, .used = 4};
    double dense = 0, ids = 0, pairs = 0, before = 0;
    for (int32_t j = 0; j < model->n_dense; j++) {
        float x = (float)bell(draw(&from));
        dense += (double)model->weights[j] * (double)x;
        if (sink->dense)
            sink->dense[i * model->n_dense + j] = x;
    }
    for (int32_t t = 0; t < model->n_tables; t++) {
        hidden here = draw_table(&from, model, t, i, sink);
        ids += here.effect;
        pairs += t % 2 ? before * here.latent : 0;
        before = here.latent;
    }
    double logit = model->bias + model->dense_scale * dense + model->id_scale * ids + model->pair_scale * pairs;
    uint32_t high = draw(&from);
    double chance = td_philox_uniform_double(high, draw(&from));
    *out_label = chance * (1 + td_exp(-logit)) < 1;
    if (sink->label)
        sink->label[i] = *out_label;
    return logit;
}
