/* Planes through weights, and the loss over them: see cli/landscape.h. */
#include "cli/landscape.h"

#include <math.h>
#include <string.h>

#include "base/convert.h"
#include "base/memory.h"
#include "base/philox.h"

/* ---- eigenvectors --------------------------------------------------------------------------------------------------------- */

/* One rotation that makes matrix[p][q] zero (Golub and Van Loan, "Matrix computations", 8.5.2). */
static void rotate(double *m, int32_t n, double *v, int32_t p, int32_t q)
{
    double theta = (m[q * n + q] - m[p * n + p]) / (2 * m[p * n + q]);
    double t = (theta >= 0 ? 1.0 : -1.0) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1), s = t * c;
    for (int32_t k = 0; k < n; k++) {
        double x = m[k * n + p], y = m[k * n + q];
        m[k * n + p] = c * x - s * y;
        m[k * n + q] = s * x + c * y;
    }
    for (int32_t k = 0; k < n; k++) {
        double x = m[p * n + k], y = m[q * n + k], a = v[p * n + k], b = v[q * n + k];
        m[p * n + k] = c * x - s * y;
        m[q * n + k] = s * x + c * y;
        v[p * n + k] = c * a - s * b;
        v[q * n + k] = s * a + c * b;
    }
}

static void sort_largest_first(double *values, double *vectors, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = i + 1; k < n; k++) {
            if (values[k] <= values[i])
                continue;
            double value = values[i];
            values[i] = values[k];
            values[k] = value;
            for (int32_t j = 0; j < n; j++) {
                double x = vectors[i * n + j];
                vectors[i * n + j] = vectors[k * n + j];
                vectors[k * n + j] = x;
            }
        }
}

void td_symmetric_eigen(double *matrix, int32_t n, double *out_values, double *out_vectors)
{
    enum { MOST_SWEEPS = 60 };
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < n; k++)
            out_vectors[i * n + k] = i == k;
    for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
        double off = 0, all = 0;
        for (int32_t i = 0; i < n * n; i++) {
            all += matrix[i] * matrix[i];
            off += i / n == i % n ? 0 : matrix[i] * matrix[i];
        }
        if (off <= 1e-28 * all)
            break;
        for (int32_t p = 0; p < n; p++)
            for (int32_t q = p + 1; q < n; q++)
                if (matrix[p * n + q] != 0)
                    rotate(matrix, n, out_vectors, p, q);
    }
    for (int32_t i = 0; i < n; i++)
        out_values[i] = matrix[i * n + i];
    sort_largest_first(out_values, out_vectors, n);
}

/* ---- weights of files ----------------------------------------------------------------------------------------------------- */

static td_status *read_parameter(td_safetensors *file, const td_probe_parameter *parameter, float *out)
{
    const td_safetensors_tensor *tensor = NULL;
    char *bytes = NULL;
    TD_TRY(td_safetensors_require(file, parameter->name, &tensor));
    bool same = tensor->rank == parameter->shape.rank && td_dtype_converts(tensor->dtype);
    for (int32_t d = 0; same && d < tensor->rank; d++)
        same = tensor->dims[d] == parameter->shape.dims[d];
    if (!same)
        return TD_ERROR(TD_DATA_ERROR, "weights of %s are of another shape than the model's", parameter->name);
    TD_TRY(TD_NEW(bytes, tensor->bytes + 1));
    td_status *status = td_safetensors_read(file, tensor, 0, tensor->bytes, bytes);
    if (!status)
        (void)td_floats_convert(bytes, tensor->dtype, parameter->n, out, TD_F32);
    td_free(bytes);
    return status;
}

/* The same parameter of n files, one after the other. */
static td_status *read_all(td_safetensors *const *files, int32_t n, const td_probe_parameter *parameter, float *out)
{
    for (int32_t i = 0; i < n; i++)
        TD_TRY(read_parameter(files[i], parameter, out + i * parameter->n));
    return NULL;
}

static int64_t largest(const td_loss_probe *probe)
{
    int64_t most = 1;
    for (int32_t i = 0; i < probe->n_parameters; i++)
        most = probe->parameters[i].n > most ? probe->parameters[i].n : most;
    return most;
}

/* ---- directions ----------------------------------------------------------------------------------------------------------- */

/* Random numbers whose rows are as long as the point's; zeros for what has one dimension or none. */
static void fill_random(const td_loss_probe *probe, const float *centre, uint64_t seed, const char *purpose, float *out)
{
    for (int32_t i = 0; i < probe->n_parameters; i++) {
        const td_probe_parameter *parameter = &probe->parameters[i];
        const int64_t width = parameter->rows ? parameter->n / parameter->rows : 0;
        float *d = out + parameter->first;
        const float *w = centre + parameter->first;
        if (parameter->shape.rank < 2) {
            memset(d, 0, (size_t)parameter->n * sizeof *d);
            continue;
        }
        td_random_fill(d, 0, parameter->n, td_philox_key_of(seed, purpose, parameter->name), TD_RANDOM_NORMAL, 0, 1);
        for (int64_t row = 0; row < parameter->rows; row++) {
            double own = 0, wanted = 0;
            for (int64_t k = row * width; k < (row + 1) * width; k++) {
                own += (double)d[k] * (double)d[k];
                wanted += (double)w[k] * (double)w[k];
            }
            double scale = own > 0 ? sqrt(wanted / own) : 0;
            for (int64_t k = row * width; k < (row + 1) * width; k++)
                d[k] = (float)((double)d[k] * scale);
        }
    }
}

static td_status *make_plane(const td_loss_probe *probe, int32_t n, td_plane *plane)
{
    *plane = (td_plane){.n = n};
    TD_TRY(TD_NEW(plane->centre, probe->elements + 1));
    TD_TRY(TD_NEW(plane->first, probe->elements + 1));
    TD_TRY(TD_NEW(plane->second, probe->elements + 1));
    TD_TRY(TD_NEW(plane->x, n + 1));
    return TD_NEW(plane->y, n + 1);
}

void td_plane_deinit(td_plane *plane)
{
    td_free(plane->centre);
    td_free(plane->first);
    td_free(plane->second);
    td_free(plane->x);
    td_free(plane->y);
    *plane = (td_plane){0};
}

td_status *td_plane_around(const td_loss_probe *probe, td_safetensors *file, uint64_t seed, td_plane *out_plane)
{
    td_status *status = make_plane(probe, 0, out_plane);
    for (int32_t i = 0; !status && i < probe->n_parameters; i++)
        status = read_parameter(file, &probe->parameters[i], out_plane->centre + probe->parameters[i].first);
    if (status) {
        td_plane_deinit(out_plane);
        return status;
    }
    fill_random(probe, out_plane->centre, seed, "landscape.x", out_plane->first);
    fill_random(probe, out_plane->centre, seed, "landscape.y", out_plane->second);
    out_plane->random[0] = out_plane->random[1] = true;
    return NULL;
}

/* Of the differences from the last point: how each lies to each other. `room`: the largest parameter, n times. */
static td_status *add_products(const td_loss_probe *probe, td_safetensors *const *files, int32_t n, float *room,
                               double *gram)
{
    for (int32_t p = 0; p < probe->n_parameters; p++) {
        const int64_t elements = probe->parameters[p].n;
        const float *last = room + (n - 1) * elements;
        TD_TRY(read_all(files, n, &probe->parameters[p], room));
        for (int32_t i = 0; i + 1 < n; i++)
            for (int32_t k = 0; k <= i; k++) {
                const float *a = room + i * elements, *b = room + k * elements;
                double sum = 0;
                for (int64_t e = 0; e < elements; e++)
                    sum += ((double)a[e] - (double)last[e]) * ((double)b[e] - (double)last[e]);
                gram[i * n + k] += sum;
            }
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = i + 1; k < n; k++)
            gram[i * n + k] = gram[k * n + i];
    return NULL;
}

/* direction = sum of weight[i] (file i - last), for both at once. */
static td_status *mix(const td_loss_probe *probe, td_safetensors *const *files, int32_t n, float *room,
                      const double *weights[2], td_plane *plane)
{
    float *out[2] = {plane->first, plane->second};
    for (int32_t p = 0; p < probe->n_parameters; p++) {
        const td_probe_parameter *parameter = &probe->parameters[p];
        const float *last = room + (n - 1) * parameter->n;
        TD_TRY(read_all(files, n, parameter, room));
        memcpy(plane->centre + parameter->first, last, (size_t)parameter->n * sizeof *last);
        for (int d = 0; d < 2; d++)
            for (int64_t e = 0; e < parameter->n; e++) {
                double sum = 0;
                for (int32_t i = 0; i < n; i++)
                    sum += weights[d][i] * ((double)room[i * parameter->n + e] - (double)last[e]);
                out[d][parameter->first + e] = (float)sum;
            }
    }
    return NULL;
}

/* A direction that the path does not have: by chance, of length one. */
static void draw_missing(const td_loss_probe *probe, uint64_t seed, const char *purpose, td_plane *plane, float *out)
{
    double sum = 0;
    fill_random(probe, plane->centre, seed, purpose, out);
    for (int64_t i = 0; i < probe->elements; i++)
        sum += (double)out[i] * (double)out[i];
    for (int64_t i = 0; i < probe->elements; i++)
        out[i] = sum > 0 ? (float)((double)out[i] / sqrt(sum)) : 0;
}

/* From eigenvectors of the products to directions of length one, and the path's places on them. */
static td_status *follow(const td_loss_probe *probe, td_safetensors *const *files, uint64_t seed, float *room,
                         double *values, double *vectors, td_plane *plane)
{
    const int32_t n = plane->n;
    double all = 0, *places[2] = {plane->x, plane->y};
    const double *weights[2] = {vectors, vectors + (n > 1 ? n : 0)};
    static const char *const purposes[] = {"landscape.x", "landscape.y"};
    for (int32_t i = 0; i < n; i++)
        all += values[i] > 0 ? values[i] : 0;
    for (int d = 0; d < 2; d++) {
        double value = d < n && values[d] > 1e-12 * all ? values[d] : 0, length = sqrt(value);
        plane->random[d] = !(length > 0);
        plane->explained[d] = all > 0 ? value / all : 0;
        for (int32_t i = 0; i < n; i++) {
            places[d][i] = plane->random[d] ? 0 : length * vectors[d * n + i];
            vectors[d < n ? d * n + i : i] *= plane->random[d] ? 0 : 1 / length;
        }
    }
    TD_TRY(mix(probe, files, n, room, weights, plane));
    for (int d = 0; d < 2; d++)
        if (plane->random[d])
            draw_missing(probe, seed, purposes[d], plane, d ? plane->second : plane->first);
    return NULL;
}

td_status *td_plane_of_path(const td_loss_probe *probe, td_safetensors *const *files, int32_t n, uint64_t seed,
                            td_plane *out_plane)
{
    float *room = NULL;
    double *gram = NULL, *values = NULL, *vectors = NULL;
    td_status *status = make_plane(probe, n, out_plane);
    if (!status)
        status = TD_NEW(room, largest(probe) * n);
    if (!status)
        status = TD_NEW(gram, (int64_t)n * n);
    if (!status)
        status = TD_NEW(values, n);
    if (!status)
        status = TD_NEW(vectors, (int64_t)n * n);
    if (!status)
        status = add_products(probe, files, n, room, gram);
    if (!status) {
        td_symmetric_eigen(gram, n, values, vectors);
        status = follow(probe, files, seed, room, values, vectors, out_plane);
    }
    td_free(room);
    td_free(gram);
    td_free(values);
    td_free(vectors);
    if (status)
        td_plane_deinit(out_plane);
    return status;
}

/* ---- drawing -------------------------------------------------------------------------------------------------------------- */

/* Where an axis begins and ends: the path and three tenths of its width around it; as wide as the other one where it has none. */
static void range_of(const double *places, int32_t n, double other, double *out_low, double *out_high)
{
    double least = 0, greatest = 0;
    for (int32_t i = 0; i < n; i++) {
        least = places[i] < least ? places[i] : least;
        greatest = places[i] > greatest ? places[i] : greatest;
    }
    double width = greatest - least, margin = width > 0 ? 0.3 * width : other > 0 ? 0.5 * other : 1;
    *out_low = least - margin;
    *out_high = greatest + margin;
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *axis(double low, double high, int32_t size)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < size; i++)
        json_array_append_new(list, json_real(low + (high - low) * i / (size > 1 ? size - 1 : 1)));
    return list;
}

static td_status *draw_row(td_loss_probe *probe, const td_plane *plane, const json_t *x, double y, json_t *rows)
{
    json_t *row = json_array();
    td_status *status = NULL;
    for (size_t i = 0; !status && i < json_array_size(x); i++) {
        double loss = (double)NAN;
        status = td_loss_probe_move(probe, plane->centre, plane->first, json_real_value(json_array_get(x, i)),
                                    plane->second, y);
        if (!status)
            status = td_loss_probe_read(probe, &loss);
        if (!status)
            json_array_append_new(row, number(loss));
    }
    json_array_append_new(rows, row);
    return status;
}

td_status *td_landscape_draw(td_loss_probe *probe, const td_plane *plane, int32_t size, json_t **out_json)
{
    double low[2], high[2], width;
    range_of(plane->x, plane->n, 0, &low[0], &high[0]);
    width = high[0] - low[0];
    range_of(plane->y, plane->n, plane->n ? width : 0, &low[1], &high[1]);
    json_t *x = axis(low[0], high[0], size), *y = axis(low[1], high[1], size), *rows = json_array();
    td_status *status = NULL;
    for (int32_t i = 0; !status && i < size; i++)
        status = draw_row(probe, plane, x, json_real_value(json_array_get(y, (size_t)i)), rows);
    *out_json =
        json_pack("{s:o, s:o, s:o, s:[f, f], s:[b, b]}", "x", x, "y", y, "loss", rows, "explained", plane->explained[0],
                  plane->explained[1], "random", (int)plane->random[0], (int)plane->random[1]);
    if (!status && !*out_json)
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a landscape");
    if (status) {
        json_decref(*out_json);
        *out_json = NULL;
    }
    return status;
}
