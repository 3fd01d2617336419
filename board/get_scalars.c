/* Scalars for a chart of so many pixels: smoothing sees every point, and of the points of one pixel the least and the greatest are
 * kept, so that no peak is lost. */
#include <math.h>
#include <string.h>

#include "board/board.h"

/* What falls into one pixel. */
typedef struct column {
    double x, first, last, least, greatest, smoothed;
    int64_t n;
} column;

typedef struct chart {
    const td_board_series *series;
    bool by_time;
    double from, to, smoothing;
    int64_t pixels, in_range, not_finite, first_bad;
} chart;

static double x_of(const chart *c, int64_t i)
{
    const td_board_point *point = &c->series->points[i];
    return c->by_time ? point->seconds : (double)point->step;
}

static void put_column(td_string *out, const column *col, bool *first)
{
    const double numbers[] = {col->x, col->last, col->least, col->greatest, col->smoothed};
    if (!col->n)
        return;
    td_string_append(out, *first ? "[" : ",[");
    *first = false;
    for (int i = 0; i < 5; i++) {
        td_string_append(out, i ? "," : "");
        if (i)
            td_board_put_number(out, numbers[i]);
        else
            td_string_format(out, "%.15g", numbers[0]);
    }
    td_string_append(out, "]");
}

static void add(column *col, double x, double value, double smoothed)
{
    col->x = x;
    col->last = value;
    col->least = !col->n || value < col->least ? value : col->least;
    col->greatest = !col->n || value > col->greatest ? value : col->greatest;
    col->smoothed = smoothed;
    col->n++;
}

static void count(chart *c)
{
    for (int64_t i = 0; i < c->series->n; i++) {
        double x = x_of(c, i);
        c->in_range += x >= c->from && x <= c->to;
        if (isfinite(c->series->points[i].value))
            continue;
        c->first_bad = c->not_finite++ ? c->first_bad : c->series->points[i].step;
    }
}

/* An exponential moving average, corrected for its start as Adam's moments are: sum(b^k x) / sum(b^k). */
static void put_points(chart *c, td_string *out)
{
    double sum = 0, weight = 0, width = (c->to - c->from) / (double)c->pixels;
    bool whole = c->in_range <= c->pixels || !(width > 0), first = true;
    column col = {0};
    int64_t at = -1;
    for (int64_t i = 0; i < c->series->n; i++) {
        double x = x_of(c, i), value = c->series->points[i].value;
        if (!isfinite(value))
            continue;
        sum = c->smoothing * sum + value;
        weight = c->smoothing * weight + 1;
        if (x < c->from || x > c->to)
            continue;
        int64_t pixel = whole ? i : (int64_t)((x - c->from) / width);
        pixel = !whole && pixel >= c->pixels ? c->pixels - 1 : pixel; /* x is the end of the range */
        if (pixel != at) {
            put_column(out, &col, &first);
            col = (column){0};
            at = pixel;
        }
        add(&col, x, value, sum / weight);
    }
    put_column(out, &col, &first);
}

TD_BOARD_HANDLER(get_scalars)
{
    td_board_run *run = NULL;
    chart c = {0};
    TD_TRY(td_board_run_of(board, request, &run));
    TD_TRY(td_board_run_read(board, run));
    TD_TRY(td_board_series_of(run, request, TD_EVENT_SCALAR, &c.series));
    const char *axis = td_board_parameter_of(request, "axis");
    c.by_time = axis && !strcmp(axis, "time");
    double first = c.series->n ? x_of(&c, 0) : 0, last = c.series->n ? x_of(&c, c.series->n - 1) : 0;
    c.from = td_board_number(request, "from", first, -1e300, 1e300);
    c.to = td_board_number(request, "to", last, -1e300, 1e300);
    c.smoothing = td_board_number(request, "smoothing", 0, 0, 0.9999);
    c.pixels = (int64_t)td_board_number(request, "pixels", 1000, 1, 8000);
    count(&c);
    td_string_append(out, "{\"tag\":");
    td_board_quote(out, c.series->tag, strlen(c.series->tag));
    td_string_format(out, ",\"n\":%lld,\"n_in_range\":%lld,\"not_finite\":%lld,\"first_not_finite\":",
                     (long long)c.series->n, (long long)c.in_range, (long long)c.not_finite);
    td_string_format(out, c.not_finite ? "%lld" : "null", (long long)c.first_bad);
    td_string_append(out, ",\"columns\":[\"x\",\"value\",\"least\",\"greatest\",\"smoothed\"],\"points\":[");
    put_points(&c, out);
    td_string_append(out, "]}");
    return NULL;
}
