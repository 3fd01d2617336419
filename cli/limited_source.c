/* A source that ends early: see cli/limited_source.h. */
#include "cli/limited_source.h"

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    td_limited_source *source = self;
    *out_end = source->left == 0;
    if (*out_end)
        return NULL;
    source->left--;
    return source->inner.next(source->inner.self, out_batch, out_end);
}

static void release(void *self, td_batch *batch)
{
    td_limited_source *source = self;
    source->inner.release(source->inner.self, batch);
}

td_source td_limited_source_of(td_limited_source *limited)
{
    return (td_source){limited, next, release};
}
