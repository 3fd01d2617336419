/* Histograms, tensors, images and texts: read again from the files where they lie. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "board/board.h"

static td_status *find(td_board *board, const td_board_request *request, td_event_kind kind, td_board_run **out_run,
                       const td_board_series **out_series)
{
    TD_TRY(td_board_run_of(board, request, out_run));
    TD_TRY(td_board_run_read(board, *out_run));
    return td_board_series_of(*out_run, request, kind, out_series);
}

static void put_stamp(td_string *out, const td_board_point *point)
{
    td_string_format(out, "\"step\":%lld,\"seconds\":%.15g", (long long)point->step, point->seconds);
}

static void put_steps(td_string *out, const td_board_series *series)
{
    td_string_append(out, "\"steps\":[");
    for (int64_t i = 0; i < series->n; i++)
        td_string_format(out, "%s%lld", i ? "," : "", (long long)series->points[i].step);
    td_string_append(out, "]");
}

static void begin(td_string *out, const td_board_series *series)
{
    td_string_append(out, "{\"tag\":");
    td_board_quote(out, series->tag, strlen(series->tag));
    td_string_append(out, ",");
}

/* ---- histograms --------------------------------------------------------------------------------------------------------------- */

static void put_numbers(td_string *out, const char *name, const double *numbers, int32_t n)
{
    td_string_format(out, ",\"%s\":[", name);
    for (int32_t i = 0; i < n; i++) {
        td_string_append(out, i ? "," : "");
        td_board_put_number(out, numbers[i]);
    }
    td_string_append(out, "]");
}

static void put_histogram(td_string *out, const td_board_point *point, const td_histogram *h)
{
    double n = h->n ? (double)h->n : 1, mean = h->sum / n, variance = h->sum_squares / n - mean * mean;
    const double facts[] = {(double)h->n, h->least, h->greatest, mean, sqrt(variance > 0 ? variance : 0)};
    static const char *const names[] = {"n", "least", "greatest", "mean", "deviation"};
    td_string_append(out, "{");
    put_stamp(out, point);
    for (int i = 0; i < 5; i++) {
        td_string_format(out, ",\"%s\":", names[i]);
        td_board_put_number(out, facts[i]);
    }
    put_numbers(out, "limits", h->limits, h->n_buckets);
    put_numbers(out, "counts", h->counts, h->n_buckets);
    td_string_append(out, "}");
}

/* At most `limit` of them, evenly over the steps, the last one always. */
TD_BOARD_HANDLER(get_histograms)
{
    td_board_run *run = NULL;
    const td_board_series *series = NULL;
    TD_TRY(find(board, request, TD_EVENT_HISTOGRAM, &run, &series));
    int64_t most = (int64_t)td_board_number(request, "limit", 60, 1, 1000), n = series->n < most ? series->n : most;
    begin(out, series);
    td_string_format(out, "\"n\":%lld,\"histograms\":[", (long long)series->n);
    for (int64_t i = 0; i < n; i++) {
        const td_board_point *point = &series->points[n == 1 ? series->n - 1 : i * (series->n - 1) / (n - 1)];
        uint8_t *payload = NULL;
        td_histogram histogram;
        TD_TRY(td_board_payload(board, run, point, &payload));
        td_status *status = td_event_parse_histogram(payload, point->bytes, &histogram);
        td_free(payload);
        TD_TRY(status);
        td_string_append(out, i ? "," : "");
        put_histogram(out, point, &histogram);
    }
    td_string_append(out, "]}");
    return NULL;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------ */

enum { MOST_SHOWN = 40000 };

/* A range of one dimension. */
typedef struct range {
    int64_t begin, end;
    bool single; /* an index: the dimension goes */
} range;

/* "3", ":", "2:5", "-2:", as Python has them; cut to the dimension. */
static bool parse_range(const char *text, size_t bytes, int64_t size, range *out)
{
    char buffer[64], *end = NULL;
    if (bytes >= sizeof buffer)
        return false;
    memcpy(buffer, text, bytes);
    buffer[bytes] = '\0';
    char *colon = strchr(buffer, ':');
    *out = (range){0, size, colon == NULL};
    const char *first = buffer + strspn(buffer, " ");
    if (first != colon && *first) {
        out->begin = strtoll(first, &end, 10);
        out->begin += out->begin < 0 ? size : 0;
        if (end == first || (*end && *end != ':' && *end != ' '))
            return false;
    } else if (!colon) {
        return false;
    }
    if (!colon) {
        if (out->begin < 0 || out->begin >= size)
            return false;
        out->end = out->begin + 1;
        return true;
    }
    const char *last = colon + 1 + strspn(colon + 1, " ");
    if (*last) {
        out->end = strtoll(last, &end, 10);
        out->end += out->end < 0 ? size : 0;
        if (end == last || (*end && *end != ' '))
            return false;
    }
    out->begin = out->begin < 0 ? 0 : out->begin > size ? size : out->begin;
    out->end = out->end > size ? size : out->end < out->begin ? out->begin : out->end;
    return true;
}

static td_status *parse_slice(const char *text, const td_event_tensor_view *t, range *ranges)
{
    int32_t given = 0;
    for (int32_t d = 0; d < t->rank; d++)
        ranges[d] = (range){0, t->dims[d], false};
    for (const char *at = text; at && *at; given++) {
        size_t bytes = strcspn(at, ",");
        if (given == t->rank || !parse_range(at, bytes, t->dims[given], &ranges[given]))
            return TD_ERROR(TD_INVALID_ARGUMENT,
                            "slice: a range such as : or 2:5, or an index, for each of %d dimensions, within it",
                            t->rank);
        at += bytes + (at[bytes] == ',');
    }
    return NULL;
}

/* The numbers of a slice in order, with what they come to; at most MOST_SHOWN of them are listed. */
static void put_slice(td_string *out, const td_event_tensor_view *t, const range *ranges)
{
    int64_t index[TD_EVENT_MOST_DIMS], n = 1, shown = 0;
    double least = 0, greatest = 0, sum = 0;
    int64_t finite = 0;
    for (int32_t d = 0; d < t->rank; d++) {
        index[d] = ranges[d].begin;
        n *= ranges[d].end - ranges[d].begin;
    }
    td_string_append(out, ",\"values\":[");
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        float x;
        for (int32_t d = 0; d < t->rank; d++)
            at = at * t->dims[d] + index[d];
        memcpy(&x, t->data + at * 4, sizeof x);
        if (isfinite(x)) {
            least = !finite || (double)x < least ? (double)x : least;
            greatest = !finite || (double)x > greatest ? (double)x : greatest;
            sum += (double)x;
            finite++;
        }
        if (shown < MOST_SHOWN) {
            td_string_append(out, shown++ ? "," : "");
            td_board_put_number(out, (double)x);
        }
        for (int32_t d = t->rank - 1; d >= 0 && ++index[d] == ranges[d].end; d--)
            index[d] = ranges[d].begin;
    }
    td_string_format(
        out, "],\"n\":%lld,\"n_shown\":%lld,\"not_finite\":%lld,\"least\":%.9g,\"greatest\":%.9g,\"mean\":%.9g",
        (long long)n, (long long)shown, (long long)(n - finite), least, greatest, finite ? sum / (double)finite : 0);
}

static void put_shape(td_string *out, const td_event_tensor_view *t, const range *ranges)
{
    td_string_append(out, ",\"shape\":[");
    for (int32_t d = 0; d < t->rank; d++)
        td_string_format(out, "%s%lld", d ? "," : "", (long long)t->dims[d]);
    td_string_append(out, "],\"slice\":[");
    for (int32_t d = 0; d < t->rank; d++)
        td_string_format(out, "%s{\"begin\":%lld,\"end\":%lld,\"single\":%s}", d ? "," : "", (long long)ranges[d].begin,
                         (long long)ranges[d].end, ranges[d].single ? "true" : "false");
    td_string_append(out, "]");
}

/* The last point at or before a step; the first where there is none. */
static const td_board_point *point_at(const td_board_series *series, double step)
{
    int64_t at = 0;
    while (at + 1 < series->n && (double)series->points[at + 1].step <= step)
        at++;
    return &series->points[at];
}

TD_BOARD_HANDLER(get_tensors)
{
    td_board_run *run = NULL;
    const td_board_series *series = NULL;
    uint8_t *payload = NULL;
    td_event_tensor_view tensor;
    range ranges[TD_EVENT_MOST_DIMS];
    TD_TRY(find(board, request, TD_EVENT_TENSOR, &run, &series));
    if (!series->n)
        return TD_ERROR(TD_NOT_FOUND, "this tensor has no step yet");
    const td_board_point *point = point_at(series, td_board_number(request, "step", 1e300, -1e300, 1e300));
    TD_TRY(td_board_payload(board, run, point, &payload));
    td_status *status = td_event_parse_tensor(payload, point->bytes, &tensor);
    if (!status)
        status = parse_slice(td_board_parameter_of(request, "slice"), &tensor, ranges);
    if (!status) {
        begin(out, series);
        put_steps(out, series);
        td_string_append(out, ",");
        put_stamp(out, point);
        put_shape(out, &tensor, ranges);
        put_slice(out, &tensor, ranges);
        td_string_append(out, "}");
    }
    td_free(payload);
    return status;
}

/* ---- images and texts --------------------------------------------------------------------------------------------------------- */

TD_BOARD_HANDLER(get_images)
{
    td_board_run *run = NULL;
    const td_board_series *series = NULL;
    TD_TRY(find(board, request, TD_EVENT_IMAGE, &run, &series));
    begin(out, series);
    put_steps(out, series);
    td_string_append(out, "}");
    return NULL;
}

/* The file itself; only what begins as a PNG does. */
TD_BOARD_HANDLER(get_image)
{
    td_board_run *run = NULL;
    const td_board_series *series = NULL;
    uint8_t *payload = NULL;
    td_event_image_view image;
    TD_TRY(find(board, request, TD_EVENT_IMAGE, &run, &series));
    if (!series->n)
        return TD_ERROR(TD_NOT_FOUND, "this image has no step yet");
    const td_board_point *point = point_at(series, td_board_number(request, "step", 1e300, -1e300, 1e300));
    TD_TRY(td_board_payload(board, run, point, &payload));
    td_status *status = td_event_parse_image(payload, point->bytes, &image);
    if (!status && (image.bytes < 8 || memcmp(image.file, "\x89PNG\r\n\x1a\n", 8) != 0))
        status = TD_ERROR(TD_DATA_ERROR, "this image is no PNG file");
    if (!status)
        td_string_append_bytes(out, image.file, image.bytes);
    td_free(payload);
    return status;
}

TD_BOARD_HANDLER(get_texts)
{
    enum { LONGEST = 1 << 20, MOST = 20 };
    td_board_run *run = NULL;
    const td_board_series *series = NULL;
    TD_TRY(find(board, request, TD_EVENT_TEXT, &run, &series));
    begin(out, series);
    td_string_append(out, "\"texts\":[");
    for (int64_t i = series->n > MOST ? series->n - MOST : 0, first = i; i < series->n; i++) {
        uint8_t *payload = NULL;
        const char *text = NULL;
        size_t bytes = 0;
        TD_TRY(td_board_payload(board, run, &series->points[i], &payload));
        td_status *status = td_event_parse_text(payload, series->points[i].bytes, &text, &bytes);
        if (!status) {
            td_string_append(out, i > first ? ",{" : "{");
            put_stamp(out, &series->points[i]);
            td_string_append(out, ",\"text\":");
            td_board_quote(out, text, bytes < LONGEST ? bytes : LONGEST);
            td_string_append(out, "}");
        }
        td_free(payload);
        TD_TRY(status);
    }
    td_string_append(out, "]}");
    return NULL;
}
