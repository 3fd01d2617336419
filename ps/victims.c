/* See victims.h. Heaps in arrays: while all keys are looked at, the last collected one is on top, so that it can give way. */
#include "ps/victims.h"

#include "base/memory.h"
#include "ps/slot_bits.h"

enum { SHARE = 256, LEAST = 4, SLACK = 2 };

void td_victims_init(td_victims *victims, int32_t parts)
{
    *victims = (td_victims){.parts = parts};
}

void td_victims_deinit(td_victims *victims)
{
    for (int32_t p = 0; victims->heaps && p < victims->parts; p++)
        td_free(victims->heaps[p].items);
    td_free(victims->heaps);
    *victims = (td_victims){0};
}

void td_victims_forget(td_victims *victims)
{
    for (int32_t p = 0; p < victims->parts && victims->any_known; p++) {
        victims->heaps[p].n = 0;
        victims->heaps[p].is_known = false;
    }
    victims->any_known = false;
}

static td_victim victim_of(const td_victim_view *view, int64_t slot)
{
    return (td_victim){.rank = td_key_marks_rank(view->marks, slot, view->by_count),
                       .slot = (uint32_t)slot,
                       .key = view->index->keys[slot]};
}

static bool is_before(const td_victim *a, const td_victim *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->key < b->key;
}

/* ---- heaps ------------------------------------------------------------------------------------------------------------------- */

/* Whether a belongs nearer to the top: the first one there, or with `last` the last one. */
static bool is_above(const td_victim *a, const td_victim *b, bool last)
{
    return last ? is_before(b, a) : is_before(a, b);
}

static void sink(td_victim *items, int64_t n, int64_t at, bool last)
{
    const td_victim item = items[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_above(&items[child + 1], &items[child], last))
            child++;
        if (!is_above(&items[child], &item, last))
            break;
        items[at] = items[child];
    }
    items[at] = item;
}

/* There is room for it. */
static void push(td_victim_heap *heap, const td_victim *item, bool last)
{
    int64_t at = heap->n++;
    for (; at > 0 && is_above(item, &heap->items[(at - 1) / 2], last); at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = *item;
}

static void pop(td_victim_heap *heap)
{
    heap->items[0] = heap->items[--heap->n];
    if (heap->n)
        sink(heap->items, heap->n, 0, false);
}

/* ---- looking at all keys ------------------------------------------------------------------------------------------------------- */

/* How many a part collects: a share of its keys, all parts being about as large. */
static int64_t share_of(const td_victims *victims, const td_victim_view *view)
{
    const int64_t share = view->index->n / victims->parts / SHARE;
    return share > LEAST ? share : LEAST;
}

/* Room for `most` keys of each part, and as many that are used afterwards. */
static td_status *make_room(td_victims *victims, int64_t most)
{
    if (!victims->heaps)
        TD_TRY(TD_NEW(victims->heaps, victims->parts));
    for (int32_t p = 0; p < victims->parts; p++) {
        td_victim_heap *heap = &victims->heaps[p];
        if (heap->capacity >= SLACK * most)
            continue;
        td_free(heap->items);
        heap->items = NULL;
        heap->capacity = 0;
        TD_TRY(TD_NEW(heap->items, SLACK * most));
        heap->capacity = SLACK * most;
    }
    return NULL;
}

static td_status *collect(td_victims *victims, const td_victim_view *view)
{
    const int64_t most = share_of(victims, view);
    td_victims_forget(victims);
    TD_TRY(make_room(victims, most));
    for (int64_t slot = td_key_index_next(view->index, 0); slot >= 0; slot = td_key_index_next(view->index, slot + 1)) {
        const td_victim item = victim_of(view, slot);
        td_victim_heap *heap = &victims->heaps[td_key_part(item.key, victims->parts)];
        if (heap->n < most) {
            push(heap, &item, true);
        } else if (is_before(&item, &heap->items[0])) {
            heap->items[0] = item;
            sink(heap->items, heap->n, 0, true);
        }
    }
    victims->any_known = true;
    for (int32_t p = 0; p < victims->parts; p++) {
        td_victim_heap *heap = &victims->heaps[p];
        heap->is_known = true;
        heap->bound = heap->n ? heap->items[0] : (td_victim){0};
        for (int64_t i = heap->n / 2 - 1; i >= 0; i--)
            sink(heap->items, heap->n, i, false);
    }
    return NULL;
}

void td_victims_touch(td_victims *victims, const td_victim_view *view, int64_t slot)
{
    if (!victims->any_known)
        return;
    const td_victim item = victim_of(view, slot);
    td_victim_heap *heap = &victims->heaps[td_key_part(item.key, victims->parts)];
    if (!heap->is_known || !is_before(&item, &heap->bound))
        return;
    if (heap->n < heap->capacity) {
        push(heap, &item, false);
        return;
    }
    heap->n = 0; /* mostly of what has changed since: all keys are looked at again when one must go */
    heap->is_known = false;
}

static bool is_current(const td_victim_view *view, const td_victim *item)
{
    const int64_t slot = item->slot;
    return td_slot_bit(view->index->taken, slot) && view->index->keys[slot] == item->key &&
           td_key_marks_rank(view->marks, slot, view->by_count) == item->rank;
}

/* Without looking at all keys: false, and that must be done. */
static bool known_first(td_victim_heap *heap, const td_victim_view *view, uint32_t latest, int64_t *out_slot)
{
    while (heap->n && !is_current(view, &heap->items[0]))
        pop(heap);
    *out_slot = TD_NO_SLOT;
    if (heap->n && heap->items[0].rank <= latest)
        *out_slot = heap->items[0].slot;
    return heap->n || (heap->is_known && heap->bound.rank > latest);
}

td_status *td_victims_first(td_victims *victims, const td_victim_view *view, int32_t part, uint32_t latest,
                            int64_t *out_slot)
{
    *out_slot = TD_NO_SLOT;
    if (victims->any_known && known_first(&victims->heaps[part], view, latest, out_slot))
        return NULL;
    TD_TRY(collect(victims, view));
    (void)known_first(&victims->heaps[part], view, latest, out_slot);
    return NULL;
}

int64_t td_victims_bytes(const td_victims *victims)
{
    int64_t bytes = 0;
    for (int32_t p = 0; victims->heaps && p < victims->parts; p++)
        bytes += (int64_t)sizeof *victims->heaps + victims->heaps[p].capacity * (int64_t)sizeof(td_victim);
    return bytes;
}
