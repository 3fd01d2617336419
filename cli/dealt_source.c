/* A worker's share of the data: see cli/distributed.h. Every worker goes through all batches, so each knows what the others have
 * of a window: how many samples, and how many before its own. */
#include <string.h>

#include "base/memory.h"
#include "cli/distributed.h"

/* A batch without samples. */
struct td_dealt_batch {
    struct td_dealt_batch *next;
    td_field *fields;
    int64_t offset; /* the one offset of ragged fields */
};
typedef struct td_dealt_batch td_dealt_batch;

static void drop(td_dealt_source *s, td_batch *batch)
{
    s->inner.release(s->inner.self, batch);
}

/* What an empty batch looks like: the fields of the first one, without their data. Names live as long as the source. */
static td_status *remember(td_dealt_source *s, const td_batch *batch)
{
    if (s->fields)
        return NULL;
    TD_TRY(TD_NEW(s->fields, batch->n_fields + 1));
    memcpy(s->fields, batch->fields, (size_t)batch->n_fields * sizeof *s->fields);
    for (int32_t i = 0; i < batch->n_fields; i++) {
        td_tensor *tensor = &s->fields[i].tensor;
        tensor->dims[0] = tensor->entries = 0;
        tensor->data = tensor->index = NULL;
    }
    return NULL;
}

static td_status *make_empty(td_dealt_source *s, const td_batch *like, td_batch *out)
{
    td_dealt_batch *made = NULL;
    TD_TRY(TD_NEW(made, 1));
    made->next = s->empty;
    s->empty = made;
    TD_TRY(TD_NEW(made->fields, like->n_fields + 1));
    memcpy(made->fields, s->fields, (size_t)like->n_fields * sizeof *made->fields);
    for (int32_t i = 0; i < like->n_fields; i++) {
        made->fields[i].tensor.data = &made->offset; /* an address, of no elements */
        if (made->fields[i].tensor.kind == TD_RAGGED)
            made->fields[i].tensor.index = &made->offset;
    }
    *out = *like;
    out->samples = 0;
    out->owner = made;
    out->fields = made->fields;
    return NULL;
}

static td_status *look_ahead(td_dealt_source *s)
{
    if (s->has_ahead || s->at_end)
        return NULL;
    TD_TRY(s->inner.next(s->inner.self, &s->ahead, &s->at_end));
    s->has_ahead = !s->at_end;
    return NULL;
}

/* Takes the batches of the next window: this worker's into *mine, the others go back. `last`: the window's last, by value. */
static td_status *take_window(td_dealt_source *s, td_batch *mine, bool *out_has, td_batch *last)
{
    int64_t samples = 0, batches = 0, before = 0;
    *out_has = false;
    for (int32_t w = 0; w < s->workers; w++) {
        TD_TRY(look_ahead(s));
        if (!s->has_ahead || (w && s->ahead.epoch != last->epoch))
            break;
        *last = s->ahead;
        s->has_ahead = false;
        before += w < s->worker ? last->samples : 0;
        samples += last->samples;
        batches++;
        if (w == s->worker) {
            *mine = *last;
            *out_has = true;
        } else {
            td_batch theirs = *last; /* a batch is no more once it is given back */
            TD_TRY(remember(s, last));
            drop(s, &theirs);
        }
    }
    last->window_samples = samples;
    last->window_batches = batches;
    last->window_before = before;
    return NULL;
}

static td_status *next(void *self, td_batch *out_batch, bool *out_end)
{
    td_dealt_source *s = self;
    td_batch last = {0};
    bool has = false;
    TD_TRY(look_ahead(s));
    *out_end = !s->has_ahead;
    if (*out_end)
        return NULL;
    TD_TRY(take_window(s, out_batch, &has, &last));
    if (!has)
        TD_TRY(make_empty(s, &last, out_batch));
    out_batch->index = last.index;
    out_batch->window_samples = last.window_samples;
    out_batch->window_batches = last.window_batches;
    out_batch->window_before = last.window_before;
    return NULL;
}

static void release(void *self, td_batch *batch)
{
    td_dealt_source *s = self;
    for (td_dealt_batch **at = &s->empty; *at; at = &(*at)->next)
        if (*at == batch->owner) {
            td_dealt_batch *made = *at;
            *at = made->next;
            td_free(made->fields);
            td_free(made);
            return;
        }
    drop(s, batch);
}

td_source td_dealt_source_of(td_dealt_source *dealt)
{
    return (td_source){dealt, next, release};
}

void td_dealt_source_deinit(td_dealt_source *dealt)
{
    if (dealt->has_ahead)
        drop(dealt, &dealt->ahead);
    dealt->has_ahead = false;
    td_free(dealt->fields);
    dealt->fields = NULL;
    while (dealt->empty) {
        td_dealt_batch *made = dealt->empty;
        dealt->empty = made->next;
        td_free(made->fields);
        td_free(made);
    }
}
