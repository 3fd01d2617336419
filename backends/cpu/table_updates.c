/* See table_updates.h. */
#include "backends/cpu/table_updates.h"

#include <stdatomic.h>

#include "backends/cpu/lookups.h"

enum { TABLE, GRADIENT, IDS, WEIGHTS, COEFFICIENTS, STATES, PART_INPUTS = STATES + TD_UPDATE_MOST_STATES };
enum { PLAIN = 0, SUM, MEAN }; /* numbers of the attribute "pooling" */
enum { WAVE_IDS = 1 << 17, CHECK_IDS = 1 << 15, SIZES = 40 };

/* ---- parts of a call --------------------------------------------------------------------------------------------------- */

static bool is_single(const td_kernel_call *call)
{
    return strcmp(call->op, "embedding_update") == 0;
}

static int32_t count_parts(const td_kernel_call *call)
{
    return is_single(call) ? 1 : call->n_inputs / PART_INPUTS;
}

/* One part as a call of its own. */
static td_kernel_call part_call(const td_kernel_call *call, int32_t part)
{
    td_kernel_call one = *call;
    if (is_single(call))
        return one;
    one.inputs = call->inputs + part * PART_INPUTS;
    for (one.n_inputs = STATES; one.n_inputs < PART_INPUTS && one.inputs[one.n_inputs].kind != TD_NONE;)
        one.n_inputs++;
    return one;
}

static int64_t part_number(const td_kernel_call *call, const char *key, int32_t part)
{
    return is_single(call) ? 0 : td_cpu_attr(call, key)->ints[part];
}

static int64_t pooling_of(const td_kernel_call *call, int32_t part)
{
    if (!is_single(call))
        return part_number(call, "pooling", part);
    const char *pooling = td_cpu_attr_string(call, "pooling", "sum");
    return strcmp(pooling, "none") == 0 ? PLAIN : strcmp(pooling, "mean") == 0 ? MEAN : SUM;
}

/* Whether a part begins a table, rather than going on with the one before. */
static bool begins_table(const td_kernel_call *call, int32_t part)
{
    return part == 0 || part_number(call, "table", part) != part_number(call, "table", part - 1);
}

static td_table_source source_of(const td_kernel_call *call, int32_t part)
{
    const td_kernel_call one = part_call(call, part);
    const td_tensor *inputs = one.inputs, *gradient = &inputs[GRADIENT];
    const int64_t pooling = pooling_of(call, part), dim = inputs[TABLE].dims[1];
    td_table_source source = {
        .gradient = gradient->data, .weights = td_cpu_optional(&one, WEIGHTS), .pitch = dim, .mean = pooling == MEAN};
    td_lookup_init(&source.lookup, call, &inputs[IDS], pooling == PLAIN,
                   is_single(call) ? td_cpu_attr_int(call, "offset", 0) : part_number(call, "offset", part),
                   inputs[TABLE].dims[0]);
    if (is_single(call))
        return source;
    td_cpu_lookup_name(&source.lookup, call->op, td_cpu_attr_string(call, "names", NULL), part);
    if (gradient->rank == 2)
        source.pitch = gradient->dims[1];
    if (source.gradient)
        source.gradient += part_number(call, "column", part);
    return source;
}

bool td_table_updates_take(const td_kernel_call *call, const td_update_rule *rule)
{
    for (int32_t part = 0; rule && part < count_parts(call); part++) {
        const td_kernel_call one = part_call(call, part);
        const td_tensor *ids = &one.inputs[IDS];
        const int64_t count = ids->kind == TD_RAGGED ? ids->entries : td_cpu_elements(ids);
        if (!td_update_takes(rule, &one, STATES) || !td_cpu_is(&one.inputs[GRADIENT], TD_DENSE, TD_F32) ||
            !td_cpu_lookup_takes_ids(ids) || count > (INT64_C(1) << 30) / count_parts(call))
            return false; /* so many that a table's ids cannot be counted in 32 bits */
    }
    return rule != NULL;
}

/* ---- scratch ----------------------------------------------------------------------------------------------------------- */

/* Where things lie in scratch: counted (memory NULL), or handed out. */
typedef struct layout {
    char *memory;
    size_t bytes;
} layout;

static void *take(layout *l, int64_t count, size_t size)
{
    void *at = l->memory ? l->memory + l->bytes : NULL;
    l->bytes += ((size_t)count * size + 63) / 64 * 64;
    return at;
}

typedef struct updates {
    const td_kernel_call *call;
    const td_update_rule *rule;
    void (*update)(const td_table_task *task);
    int32_t n_parts, n_tables;
    td_table_source *sources;  /* [parts], as all up to `first_check` */
    const td_lookup **lookups; /* of the sources */
    td_table_update *tables;
    td_row_table *wave;   /* the rows of a wave's tables side by side */
    _Atomic int64_t *bad; /* first position of a bad id; INT64_MAX: none so far */
    int64_t *first_check; /* [parts + 1]: number of the first piece to check */
    td_table_task *tasks, *sorted;
    td_row_item *items; /* [the ids of a wave] */
    char *space;
    float *sums;
    td_record_tag tag;
} updates;

/* The table that begins with `part`: which parts follow, how many ids they have. */
static td_row_table rows_of(const td_kernel_call *call, int32_t part)
{
    td_row_table rows = {.count = 0};
    for (int32_t i = part; i == part || (i < count_parts(call) && !begins_table(call, i)); i++) {
        const td_table_source source = source_of(call, i);
        rows.n_sources++;
        rows.count += source.lookup.count;
        rows.segments += td_row_segments(source.lookup.count);
    }
    rows.partitions = td_row_partitions(rows.count);
    while (1 << rows.partition_bits < rows.partitions)
        rows.partition_bits++;
    return rows;
}

static void lay_out(updates *u, layout *l)
{
    const td_kernel_call *call = u->call;
    int64_t total = 0, largest = 0, partitions = 0, sums = 0;
    u->n_parts = count_parts(call);
    u->sources = take(l, u->n_parts, sizeof *u->sources);
    u->lookups = take(l, u->n_parts, sizeof *u->lookups);
    u->tables = take(l, u->n_parts, sizeof *u->tables);
    u->wave = take(l, u->n_parts, sizeof *u->wave);
    u->bad = take(l, u->n_parts, sizeof *u->bad);
    u->first_check = take(l, u->n_parts + 1, sizeof *u->first_check);
    for (int32_t part = 0; part < u->n_parts; u->n_tables++) {
        td_row_table rows = rows_of(call, part);
        const int64_t dim = part_call(call, part).inputs[TABLE].dims[1];
        rows.begins = take(l, rows.partitions + 1, sizeof *rows.begins);
        rows.ends = take(l, rows.segments * rows.partitions, sizeof *rows.ends);
        total += rows.count;
        largest = rows.count > largest ? rows.count : largest;
        partitions += rows.partitions;
        sums += dim > TD_LONG_ROW ? 2 * dim * rows.partitions : 0;
        rows.sources = u->lookups ? u->lookups + part : NULL;
        if (u->tables)
            u->tables[u->n_tables] = (td_table_update){.rows = rows, .sources = u->sources + part};
        part += rows.n_sources;
    }
    const int64_t most = largest > WAVE_IDS ? largest : total < WAVE_IDS ? total : WAVE_IDS; /* ids of a wave */
    u->items = take(l, most, sizeof *u->items);
    u->space = take(l, most, TD_GROUP_BYTES_PER_ID);
    u->tasks = take(l, partitions, sizeof *u->tasks);
    u->sorted = take(l, partitions, sizeof *u->sorted);
    u->sums = take(l, sums, sizeof *u->sums);
}

size_t td_table_updates_scratch(const td_kernel_call *call)
{
    layout l = {0};
    updates u = {.call = call};
    lay_out(&u, &l);
    return l.bytes;
}

static void bind(updates *u)
{
    for (int32_t part = 0; part < u->n_parts; part++) {
        u->sources[part] = source_of(u->call, part);
        u->lookups[part] = &u->sources[part].lookup;
        atomic_init(&u->bad[part], INT64_MAX);
        u->first_check[part + 1] = (part ? u->first_check[part] : 0) + u->sources[part].lookup.count / CHECK_IDS + 1;
    }
    u->first_check[0] = 0;
    for (int32_t part = 0, t = 0; t < u->n_tables; part += u->tables[t++].rows.n_sources) {
        const td_kernel_call one = part_call(u->call, part);
        td_update_bind(&u->tables[t].target, u->rule, &one, COEFFICIENTS, STATES);
        if (!is_single(u->call))
            u->tables[t].target.rounding = part_number(u->call, "rounding", part);
    }
}

/* ---- checking ---------------------------------------------------------------------------------------------------------- */

static void check_piece(void *context, int64_t piece, int32_t thread)
{
    (void)thread;
    const updates *u = context;
    int32_t part = 0;
    while (u->first_check[part + 1] <= piece)
        part++;
    const td_lookup *lookup = u->lookups[part];
    int64_t i = (piece - u->first_check[part]) * CHECK_IDS;
    const int64_t end = i + CHECK_IDS < lookup->count ? i + CHECK_IDS : lookup->count;
    while (i < end && td_lookup_valid(lookup, td_lookup_row(lookup, i)))
        i++;
    int64_t known = atomic_load(&u->bad[part]);
    while (i < end && i < known && !atomic_compare_exchange_weak(&u->bad[part], &known, i)) {
    }
}

static td_status *check(updates *u, td_team *team)
{
    int64_t count = 0;
    for (int32_t part = 0; part < u->n_parts; part++) {
        TD_TRY(td_lookup_check_offsets(u->lookups[part]));
        count += u->lookups[part]->count;
    }
    td_team_run_dynamic(count > CHECK_IDS ? team : NULL, u->first_check[u->n_parts], check_piece, u);
    for (int32_t part = 0; part < u->n_parts; part++)
        if (atomic_load(&u->bad[part]) != INT64_MAX)
            return td_lookup_error(u->lookups[part], atomic_load(&u->bad[part]));
    return NULL;
}

/* ---- waves --------------------------------------------------------------------------------------------------------------- */

static int size_class(const td_table_task *task)
{
    const int64_t size = td_row_partition_size(&task->table->rows, task->partition);
    return size ? 64 - __builtin_clzll((unsigned long long)size) : 0;
}

/* Tasks of tables [first, last), those of many ids first; partitions without any are left out. */
static int32_t list_tasks(updates *u, int32_t first, int32_t last)
{
    int32_t n = 0, places[SIZES] = {0}, place = 0;
    float *sums = u->sums;
    for (int32_t t = first; t < last; t++) {
        td_table_update *table = &u->tables[t];
        const int64_t long_row = table->target.dim > TD_LONG_ROW ? 2 * table->target.dim : 0;
        for (int32_t p = 0; p < table->rows.partitions; p++, sums += long_row)
            if (td_row_partition_size(&table->rows, p))
                u->tasks[n++] = (td_table_task){table, p, long_row ? sums : NULL};
    }
    for (int32_t i = 0; i < n; i++)
        places[size_class(&u->tasks[i])]++;
    for (int c = SIZES - 1; c >= 0; c--) {
        const int32_t here = places[c];
        places[c] = place;
        place += here;
    }
    for (int32_t i = 0; i < n; i++)
        u->sorted[places[size_class(&u->tasks[i])]++] = u->tasks[i];
    return n;
}

static void run_task(void *context, int64_t index, int32_t thread)
{
    (void)thread;
    const updates *u = context;
    const td_table_task *task = &u->sorted[index];
    const uint64_t from = td_update_record_begin(&u->tag);
    u->update(task);
    td_update_record_end(&u->tag, from,
                         td_row_partition_size(&task->table->rows, task->partition) * task->table->target.dim);
}

static void run_wave(updates *u, int32_t first, int32_t last, td_team *team)
{
    int64_t ids = 0;
    for (int32_t t = first; t < last; t++) {
        td_row_table *rows = &u->tables[t].rows;
        rows->items = rows->partitions > 1 ? u->items + ids : NULL;
        rows->space = u->space + ids * TD_GROUP_BYTES_PER_ID;
        ids += rows->count;
        u->wave[t - first] = *rows;
    }
    td_row_deal(u->wave, last - first, team);
    td_team_run_dynamic(team, list_tasks(u, first, last), run_task, u);
}

td_status *td_table_updates_run(const td_kernel_call *call, const td_update_rule *rule, td_team *team,
                                void (*update)(const td_table_task *task))
{
    layout l = {.memory = call->scratch};
    updates u = {.call = call, .rule = rule, .update = update, .tag = td_record_current};
    lay_out(&u, &l);
    bind(&u);
    TD_TRY(check(&u, team));
    for (int32_t first = 0, last; first < u.n_tables; first = last) {
        int64_t ids = 0;
        for (last = first; last < u.n_tables && (last == first || ids + u.tables[last].rows.count <= WAVE_IDS); last++)
            ids += u.tables[last].rows.count;
        run_wave(&u, first, last, team);
    }
    return NULL;
}
