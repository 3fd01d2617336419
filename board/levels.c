/* Levels of detail of a row: see board/traces.h.
 *
 * A level merges neighbours until a box is at least as wide as the level's width, so that a picture of so many pixels is drawn from
 * a number of boxes that depends on the pixels and not on the events. The first level is made where it has a quarter of the events
 * at most, each other one from the one below it, where it has half of its boxes at most. Boxes are counted before there is memory for
 * them: opening ten million events is a matter of how much memory is touched. */
#include <string.h>

#include "base/memory.h"
#include "board/traces.h"

enum { FEW = 512, FIRST_WIDTH_NS = 1000, SAMPLED = 1 << 16, BLOCK = 1024 };

td_board_box td_board_box_at(const td_trace *trace, const td_board_row *row, const td_board_level *level, int64_t i)
{
    if (level)
        return level->boxes[i];
    const td_board_item *item = &row->items[i];
    int64_t duration = item->duration_ns;
    if (duration == UINT32_MAX)
        duration = trace->events[item->event].end_ns - item->begin_ns;
    return (td_board_box){item->begin_ns, item->begin_ns + duration, duration, item->event, 1};
}

/* Whether a box goes into the one that begins at `begin_ns`. */
static bool joins(const td_board_box *box, int64_t begin_ns, int64_t width_ns)
{
    return box->end_ns - begin_ns <= width_ns;
}

/* How many boxes [first, end) of `from` become. */
static int64_t count(const td_trace *trace, const td_board_row *row, const td_board_level *from, int64_t width_ns,
                     int64_t first, int64_t end)
{
    int64_t n = 0, begin_ns = 0;
    for (int64_t i = first; i < end; i++) {
        td_board_box box = td_board_box_at(trace, row, from, i);
        if (n && joins(&box, begin_ns, width_ns))
            continue;
        begin_ns = box.begin_ns;
        n++;
    }
    return n;
}

/* Of stretches spread over the row: near enough to choose a width by. */
static int64_t estimate(const td_trace *trace, const td_board_row *row, int64_t width_ns)
{
    int64_t n = 0, blocks = SAMPLED / BLOCK;
    if (row->n_events <= SAMPLED)
        return count(trace, row, NULL, width_ns, 0, row->n_events);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t first = (row->n_events - BLOCK) / (blocks - 1) * b;
        n += count(trace, row, NULL, width_ns, first, first + BLOCK);
    }
    return (int64_t)((double)n * (double)row->n_events / SAMPLED);
}

/* How long a box's longest event is; events of the trace are far apart, those of a row know it themselves. */
static int64_t longest_of(const td_trace *trace, const td_board_box *box, bool single)
{
    const td_trace_event *event = &trace->events[box->event];
    return single ? box->busy_ns : event->end_ns - event->begin_ns;
}

static void merge(const td_trace *trace, const td_board_row *row, const td_board_level *from, int64_t n,
                  td_board_level *to)
{
    td_board_box *last = NULL;
    int64_t longest = 0; /* of the events in it */
    for (int64_t i = 0; i < n; i++) {
        const td_board_box box = td_board_box_at(trace, row, from, i);
        const int64_t other = longest_of(trace, &box, !from);
        if (!last || !joins(&box, last->begin_ns, to->width_ns)) {
            last = &to->boxes[to->n++];
            *last = box;
            longest = other;
            continue;
        }
        if (other > longest) {
            last->event = box.event;
            longest = other;
        }
        last->end_ns = box.end_ns > last->end_ns ? box.end_ns : last->end_ns;
        last->busy_ns += box.busy_ns;
        last->n += box.n;
    }
}

td_status *td_board_make_levels(const td_trace *trace, td_board_row *row)
{
    int64_t n = row->n_events;
    for (int64_t width = FIRST_WIDTH_NS; row->n_levels < TD_BOARD_LEVELS && n > FEW && width < INT64_MAX / 2;
         width *= 2) {
        const td_board_level *from = row->n_levels ? &row->levels[row->n_levels - 1] : NULL;
        int64_t most = from ? n / 2 : n / 4;
        if (!from && estimate(trace, row, width) > most)
            continue;
        int64_t boxes = count(trace, row, from, width, 0, n);
        if (boxes > most)
            continue;
        td_board_level *level = &row->levels[row->n_levels];
        *level = (td_board_level){.width_ns = width, .boxes = td_calloc_aligned((size_t)boxes * sizeof *level->boxes)};
        if (!level->boxes)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a timeline of %lld events", (long long)row->n_events);
        merge(trace, row, from, n, level);
        row->n_levels++;
        n = boxes;
    }
    return NULL;
}
