/* Placing the blocks of an arena by size, larger ones first: see td_place_blocks_by_size. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "partition/memory.h"

static int compare_blocks(const void *a, const void *b)
{
    const td_block *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

bool td_block_ends_before(const td_plan *plan, const td_users *u, const td_block *a, const td_block *b)
{
    if (a->kept)
        return false;
    for (int32_t k = 0; k < a->n_users; k++)
        if (!td_happens_before(plan, u->nodes[a->first_user + k], b->producer))
            return false;
    return true;
}

static bool may_share(const td_plan *plan, const td_users *u, const td_block *a, const td_block *b)
{
    if (a->doubled || b->doubled)
        return false;
    return td_block_ends_before(plan, u, a, b) || td_block_ends_before(plan, u, b, a);
}

/* The lowest offset at which `b` keeps off every placed block that it may not share with. `placed`: by offset. */
static int64_t first_fit(const td_plan *plan, const td_users *u, const td_block *b, td_block *const *placed, int64_t n)
{
    int64_t offset = 0;
    for (int64_t i = 0; i < n && placed[i]->offset < offset + b->bytes; i++) {
        int64_t end = placed[i]->offset + placed[i]->bytes;
        if (end > offset && !may_share(plan, u, b, placed[i]))
            offset = end;
    }
    return offset;
}

/* Keeps `placed` in the order of offsets. */
static void insert_block(td_block **placed, int64_t n, td_block *b)
{
    int64_t at = n;
    for (; at > 0 && placed[at - 1]->offset > b->offset; at--)
        placed[at] = placed[at - 1];
    placed[at] = b;
}

td_status *td_place_blocks_by_size(const td_plan *plan, const td_users *users, td_block *blocks, int64_t n,
                                   int64_t n_fixed, int64_t *out_end)
{
    td_block **placed = NULL;
    int64_t end = 0;
    TD_TRY(TD_NEW(placed, n + 1));
    qsort(blocks + n_fixed, (size_t)(n - n_fixed), sizeof *blocks, compare_blocks);
    for (int64_t i = 0; i < n; i++) {
        if (i >= n_fixed)
            blocks[i].offset = first_fit(plan, users, &blocks[i], placed, i);
        insert_block(placed, i, &blocks[i]);
        end = blocks[i].offset + blocks[i].bytes > end ? blocks[i].offset + blocks[i].bytes : end;
    }
    *out_end = end;
    td_free(placed);
    return NULL;
}
