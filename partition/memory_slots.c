/* Placing thousands of blocks in near-linear time: see td_place_blocks_in_slots.
 *
 * Blocks are taken in the order in which the plan's sequence makes them. A slot holds one block at a time; when its block's
 * last user in the sequence is past, it waits in a stack of its size class. A new block takes a slot near the top of a stack
 * whose last block surely ends before (on whatever lanes), the smallest class that is large enough first, else grows a smaller
 * one, else opens a new one. As the blocks of a slot follow each other in happens-before, so do any two of them. Offsets are
 * known when all sizes are. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/memory.h"

enum { CLASSES = 64, LOOKS = 8, NONE = -1 };

typedef struct slot {
    int64_t bytes;
    int32_t block; /* its last one */
    int32_t below; /* in the stack */
} slot;

typedef struct pool {
    const td_plan *plan;
    const td_users *users;
    td_block *blocks;
    int64_t n, from;           /* from: where slots begin, behind what has its place already */
    int32_t *begin, *end;      /* of each block: places in the sequence; end: n_nodes when kept */
    int32_t *ending, *follows; /* blocks whose last use is at a place, as lists */
    int32_t *slot_of;
    slot *slots;
    int32_t n_slots;
    int32_t top[CLASSES];
} pool;

static int32_t class_of(int64_t bytes)
{
    return bytes < TD_ALIGNMENT ? 0 : 63 - __builtin_clzll((uint64_t)bytes / TD_ALIGNMENT);
}

/* ---- when blocks are in use ------------------------------------------------------------------------------------------------ */

static void find_times(pool *p, const int32_t *place)
{
    int32_t last = (int32_t)p->plan->graph->n_nodes;
    for (int32_t i = 0; i < p->n; i++) {
        const td_block *b = &p->blocks[i];
        p->begin[i] = p->end[i] = place[b->producer];
        for (int32_t k = 0; k < b->n_users; k++)
            if (place[p->users->nodes[b->first_user + k]] > p->end[i])
                p->end[i] = place[p->users->nodes[b->first_user + k]];
        if (b->kept)
            p->end[i] = last;
        p->follows[i] = p->ending[p->end[i]];
        p->ending[p->end[i]] = i;
    }
}

static int compare_begins(const void *a, const void *b, void *context)
{
    const pool *p = context;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (p->begin[x] != p->begin[y])
        return p->begin[x] < p->begin[y] ? -1 : 1;
    if (p->blocks[x].bytes != p->blocks[y].bytes)
        return p->blocks[x].bytes > p->blocks[y].bytes ? -1 : 1;
    return strcmp(p->blocks[x].name, p->blocks[y].name);
}

/* ---- slots ----------------------------------------------------------------------------------------------------------------- */

/* Takes a slot of this class out of its stack, if one near the top will do. */
static int32_t take_from(pool *p, int32_t class, const td_block *b, int64_t least_bytes)
{
    int32_t *link = &p->top[class];
    for (int32_t look = 0; look < LOOKS && *link != NONE; look++, link = &p->slots[*link].below) {
        int32_t found = *link;
        if (p->slots[found].bytes < least_bytes ||
            !td_block_ends_before(p->plan, p->users, &p->blocks[p->slots[found].block], b))
            continue;
        *link = p->slots[found].below;
        return found;
    }
    return NONE;
}

static int32_t find_slot(pool *p, const td_block *b)
{
    int32_t own = class_of(b->bytes), found = NONE;
    if (b->doubled) /* both parities are in use at any time */
        return NONE;
    for (int32_t class = own; class < CLASSES && found == NONE; class ++)
        found = take_from(p, class, b, b->bytes);
    for (int32_t class = own; class >= 0 && found == NONE; class --)
        found = take_from(p, class, b, 0);
    return found;
}

static void give_slot(pool *p, int32_t index)
{
    const td_block *b = &p->blocks[index];
    int32_t s = find_slot(p, b);
    if (s == NONE) {
        s = p->n_slots++;
        p->slots[s].bytes = 0;
    }
    p->slots[s].block = index;
    p->slots[s].bytes = b->bytes > p->slots[s].bytes ? b->bytes : p->slots[s].bytes;
    p->slot_of[index] = s;
}

static void free_slots(pool *p, int32_t place)
{
    for (int32_t i = p->ending[place]; i != NONE; i = p->follows[i]) {
        slot *s = &p->slots[p->slot_of[i]];
        int32_t class = class_of(s->bytes);
        s->below = p->top[class];
        p->top[class] = p->slot_of[i];
    }
}

static td_status *fill(pool *p)
{
    int32_t *place = NULL, *order = NULL;
    int64_t n_nodes = p->plan->graph->n_nodes, at = 0;
    TD_TRY(TD_NEW(place, n_nodes + 1));
    td_status *status = TD_NEW(order, p->n + 1);
    if (!status) {
        for (int32_t i = 0; i < n_nodes; i++)
            place[p->plan->sequence[i]] = i;
        for (int32_t i = 0; i < p->n; i++)
            order[i] = i;
        find_times(p, place);
        qsort_r(order, (size_t)p->n, sizeof *order, compare_begins, p);
    }
    for (int32_t now = 0; now < n_nodes && !status; now++) {
        for (; at < p->n && p->begin[order[at]] == now; at++)
            give_slot(p, order[at]);
        free_slots(p, now);
    }
    td_free(place);
    td_free(order);
    return status;
}

static td_status *give_offsets(pool *p, int64_t *out_end)
{
    int64_t *offsets = NULL;
    TD_TRY(TD_NEW(offsets, p->n_slots + 1));
    offsets[0] = p->from;
    for (int32_t s = 0; s < p->n_slots; s++)
        offsets[s + 1] = offsets[s] + p->slots[s].bytes;
    for (int32_t i = 0; i < p->n; i++)
        p->blocks[i].offset = offsets[p->slot_of[i]];
    *out_end = offsets[p->n_slots];
    td_free(offsets);
    return NULL;
}

td_status *td_place_blocks_in_slots(const td_plan *plan, const td_users *users, td_block *blocks, int64_t n,
                                    int64_t n_fixed, int64_t *out_end)
{
    pool p = {.plan = plan, .users = users, .blocks = blocks + n_fixed, .n = n - n_fixed};
    for (int64_t i = 0; i < n_fixed; i++)
        p.from = blocks[i].offset + blocks[i].bytes > p.from ? blocks[i].offset + blocks[i].bytes : p.from;
    td_status *status = NULL;
    int64_t places = plan->graph->n_nodes + 1;
    memset(p.top, 0xff, sizeof p.top);
    TD_TRY_OR(status, done, TD_NEW(p.begin, n + 1));
    TD_TRY_OR(status, done, TD_NEW(p.end, n + 1));
    TD_TRY_OR(status, done, TD_NEW(p.follows, n + 1));
    TD_TRY_OR(status, done, TD_NEW(p.slot_of, n + 1));
    TD_TRY_OR(status, done, TD_NEW(p.slots, n + 1));
    TD_TRY_OR(status, done, TD_NEW(p.ending, places));
    memset(p.ending, 0xff, (size_t)places * sizeof *p.ending);
    TD_TRY_OR(status, done, fill(&p));
    TD_TRY_OR(status, done, give_offsets(&p, out_end));
done:
    td_free(p.begin);
    td_free(p.end);
    td_free(p.ending);
    td_free(p.follows);
    td_free(p.slot_of);
    td_free(p.slots);
    return status;
}
