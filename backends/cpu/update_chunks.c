/* Updates cut over a team, each thread's part recorded: see update.h. While nothing is recorded it is td_cpu_for and no more. */
#include "backends/cpu/update.h"

typedef struct chunks {
    td_cpu_range_fn fn;
    void *context;
    int64_t n, block, elements, blocks, parts;
    td_record_tag tag;
} chunks;

uint64_t td_update_record_begin(const td_record_tag *tag)
{
    return tag->set ? td_record_begin() : 0;
}

void td_update_record_end(const td_record_tag *tag, uint64_t from, int64_t elements)
{
    if (from)
        td_record_write(TD_RECORD_UPDATE, tag->id, tag->step, tag->micro, from, td_ticks(), (uint64_t)elements);
}

/* Elements before unit `at` of n: those of all chunks add up to `elements`. */
static int64_t elements_before(const chunks *c, int64_t at)
{
    return (int64_t)((double)c->elements * ((double)at / (double)c->n));
}

static void run_chunk(void *context, int64_t part, int32_t thread)
{
    const chunks *c = context;
    int64_t begin, end;
    (void)thread;
    td_team_span(c->blocks, part, c->parts, &begin, &end);
    begin *= c->block;
    end = end * c->block < c->n ? end * c->block : c->n;
    const uint64_t from = td_update_record_begin(&c->tag);
    c->fn(c->context, begin, end);
    td_update_record_end(&c->tag, from, elements_before(c, end) - elements_before(c, begin));
}

void td_update_for(td_team *team, int64_t n, int64_t block, int64_t elements, td_cpu_range_fn fn, void *context)
{
    chunks c = {.fn = fn,
                .context = context,
                .n = n,
                .block = block,
                .elements = elements,
                .blocks = n / block + (n % block != 0),
                .tag = td_record_current};
    if (!c.tag.set || n <= 0) {
        td_cpu_for(team, n, block, fn, context);
        return;
    }
    c.parts = td_team_threads(team) < c.blocks ? td_team_threads(team) : c.blocks;
    td_team_run(team, c.parts, run_chunk, &c);
}
