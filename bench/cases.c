/* The table of cases: see bench/bench.h. */
#include <string.h>

#include "base/nearest.h"
#include "bench/workload.h"

static const td_bench_case cases[] = {
#define TD_BENCH_CASE(family, name, rule, summary) {name, rule, summary, td_bench_##family},
#include "bench/cases.def"
#undef TD_BENCH_CASE
};

int32_t td_bench_count(void)
{
    return (int32_t)(sizeof cases / sizeof *cases);
}

const td_bench_case *td_bench_at(int32_t index)
{
    return &cases[index];
}

const td_bench_case *td_bench_find(const char *name)
{
    for (int32_t i = 0; i < td_bench_count(); i++)
        if (!strcmp(cases[i].name, name))
            return &cases[i];
    return NULL;
}

static const char *name_at(const void *context, int32_t index)
{
    (void)context;
    return cases[index].name;
}

const char *td_bench_nearest(const char *name)
{
    return td_nearest(name, td_bench_count(), name_at, NULL);
}
