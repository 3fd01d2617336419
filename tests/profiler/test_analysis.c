/* What is injected into a trace is what the analyses name: slow data, a slow link, a slow op, an unbalanced cut, with its
 * milliseconds. Each rule of advice speaks on a trace made for it, and is silent on one that is not. */
#include "tests/profiler/made_trace.h"

#include "profiler/report.h"
#include "tandem/graph.h"
#include "tandem/profiler.h"

static const char *path(void)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "analysis-%d.tdt", (int)getpid());
    return text;
}

typedef struct opened {
    td_trace *trace;
    td_analysis *a;
    td_advice_list advice;
} opened;

static opened open_made(const made *m)
{
    opened o = {0};
    made_file(path(), m);
    OK(td_trace_read(path(), &o.trace));
    OK(td_analysis_create(o.trace, -1, &o.a));
    td_advise(o.a, &o.advice);
    (void)unlink(path());
    return o;
}

static void close_made(opened *o)
{
    td_analysis_destroy(o->a);
    td_trace_destroy(o->trace);
}

static const td_advice *find(const opened *o, const char *rule)
{
    for (int32_t i = 0; i < o->advice.n; i++)
        if (!strcmp(o->advice.items[i].rule, rule))
            return &o->advice.items[i];
    return NULL;
}

static void near(double value, double wanted)
{
    if (value < 0.95 * wanted || value > 1.05 * wanted)
        fail_msg("%g is not within 5 %% of %g", value, wanted);
}

/* ---- the step trace -------------------------------------------------------------------------------------------------------------- */

static void test_a_step_is_the_sum_of_its_critical_path(void **state)
{
    (void)state;
    made m = made_defaults();
    opened o = open_made(&m);
    const td_step_times *step = &o.a->steps->average;
    int64_t copies = m.durations[TO_ACCEL] + m.durations[TO_CPU];
    int64_t ops = m.durations[LOOKUP] + m.durations[TOP] + m.durations[BACKWARD] + m.durations[UPDATE];
    assert_int_equal(o.a->steps->n_steps, m.steps);
    assert_int_equal(step->path_ns[TD_CAUSE_SUBGRAPH], ops);
    assert_int_equal(step->path_ns[TD_CAUSE_COPY], copies);
    assert_int_equal(step->path_ns[TD_CAUSE_WAKE_UP], 6 * m.wake_up);
    assert_int_equal(step->path_ns[TD_CAUSE_DATA], m.data_wait);
    assert_int_equal(step->path_ns[TD_CAUSE_HOST], m.callback);
    assert_int_equal(step->path_ns[TD_CAUSE_UNKNOWN], 0);
    assert_int_equal(step->interval_ns, ops + copies + 6 * m.wake_up + m.data_wait + m.callback);
    assert_int_equal(step->forward_ns, m.durations[LOOKUP] + m.durations[BOTTOM] + m.durations[TOP]);
    assert_int_equal(step->backward_ns, m.durations[BACKWARD]);
    assert_int_equal(step->update_ns, m.durations[UPDATE]);
    assert_int_equal(step->to_device_bytes, m.copied_bytes);
    assert_int_equal(step->tail_ns, m.durations[TO_CPU] + m.durations[UPDATE] + 2 * m.wake_up);
    assert_int_equal(o.a->steps->subgraphs[BOTTOM].path_ns, 0); /* it ran beside the lookup */
    assert_int_equal(o.a->steps->subgraphs[TO_CPU].bytes, m.copied_bytes * m.steps);
    close_made(&o);
}

static const td_view_lane *lane_named(const opened *o, const char *name, const td_lane_times **out_times)
{
    for (int64_t l = 0; l < o->a->view->n_lanes; l++)
        if (!strcmp(o->a->view->lanes[l].name, name)) {
            *out_times = &o->a->steps->lanes[l];
            return &o->a->view->lanes[l];
        }
    fail_msg("no lane %s", name);
    return NULL;
}

static void test_lanes_say_what_they_waited_for(void **state)
{
    (void)state;
    made m = made_defaults();
    m.data_wait = 300000;
    opened o = open_made(&m);
    const td_lane_times *accel = NULL, *cpu = NULL;
    int64_t n = m.steps, w = m.wake_up, *d = m.durations;
    (void)lane_named(&o, "accel", &accel);
    (void)lane_named(&o, "cpu", &cpu);
    assert_int_equal(accel->busy_ns, n * (d[BOTTOM] + d[TOP] + d[BACKWARD]));
    assert_int_equal(cpu->busy_ns, n * (d[LOOKUP] + d[UPDATE]));
    assert_int_equal(accel->waits_ns[TD_CAUSE_DATA], n * m.data_wait);
    assert_int_equal(cpu->waits_ns[TD_CAUSE_DATA], n * m.data_wait);
    /* top: the rest of the lookup, and its copy */
    assert_int_equal(accel->by_subgraph_ns[LOOKUP], n * (d[LOOKUP] - d[BOTTOM]));
    assert_int_equal(accel->by_subgraph_ns[TO_ACCEL], n * d[TO_ACCEL]);
    assert_int_equal(cpu->by_subgraph_ns[TOP], n * d[TOP]);
    assert_int_equal(cpu->by_subgraph_ns[BACKWARD], n * d[BACKWARD]);
    assert_int_equal(cpu->waits_ns[TD_CAUSE_COPY], n * (d[TO_ACCEL] + d[TO_CPU]));
    assert_int_equal(cpu->waits_ns[TD_CAUSE_WAKE_UP], n * 6 * w);
    assert_int_equal(cpu->busy_ns + cpu->idle_ns, o.a->steps->wall_ns);
    /* the lookup and bottom begin together */
    assert_int_equal(accel->overlap_ns[0] + accel->overlap_ns[1] - accel->busy_ns, n * d[BOTTOM]);
    close_made(&o);
}

/* Subgraphs may begin when the batch is bound: what that takes is the run's own thread's, and no lane's. */
static void test_binding_a_batch_is_no_waking_up(void **state)
{
    (void)state;
    made m = made_defaults();
    m.admit = 600000;
    opened o = open_made(&m);
    const td_step_times *step = &o.a->steps->average;
    assert_int_equal(step->path_ns[TD_CAUSE_WAKE_UP], 6 * m.wake_up);
    assert_int_equal(step->path_ns[TD_CAUSE_HOST], m.callback + m.admit);
    const td_lane_times *accel = NULL;
    (void)lane_named(&o, "accel", &accel);
    assert_int_equal(accel->waits_ns[TD_CAUSE_HOST], m.steps * (m.callback + m.admit));
    assert_null(find(&o, "wake_ups"));
    const td_advice *advice = find(&o, "host_work");
    assert_non_null(advice);
    assert_non_null(
        strstr(advice->text,
               "holds a step up for 601 us (11 %): binding batches (ids are told apart there) 600 us; fewer ids"));
    close_made(&o);
}

/* ---- injected ---------------------------------------------------------------------------------------------------------------------- */

static void test_slow_data_is_named_with_its_time(void **state)
{
    (void)state;
    made m = made_defaults();
    m.data_wait = m.fetch = 2000000;
    opened o = open_made(&m);
    near((double)o.a->steps->average.path_ns[TD_CAUSE_DATA], 2e6);
    assert_string_equal(o.advice.items[0].rule, "data_starvation");
    near(o.advice.items[0].gain_ms, 2);
    assert_non_null(strstr(o.advice.items[0].text, "a batch takes 2.00 ms to make, on 1 thread"));
    assert_int_equal(o.a->data.starved_steps, m.steps);
    close_made(&o);
}

static void test_a_slow_link_is_named_with_its_time(void **state)
{
    (void)state;
    made m = made_defaults();
    m.durations[TO_CPU] = 3000000;
    opened o = open_made(&m);
    near((double)o.a->steps->average.path_ns[TD_CAUSE_COPY], 3e6 + 17e3);
    assert_string_equal(o.advice.items[0].rule, "slow_link");
    near(o.advice.items[0].gain_ms, 3.017);
    assert_non_null(strstr(o.advice.items[0].text, "\"gradient -> cpu\" with 3.00 ms: 16.4 kB at 5.46 MB/s"));
    close_made(&o);
}

/* What it takes is its latency, and no faster link would help. */
static void test_a_copied_scalar_says_nothing_of_a_link(void **state)
{
    (void)state;
    made m = made_defaults();
    m.durations[TO_CPU] = 3000000;
    m.copied_bytes = 4;
    opened o = open_made(&m);
    assert_null(find(&o, "slow_link"));
    close_made(&o);
}

static void test_a_slow_op_is_named_with_its_excess(void **state)
{
    (void)state;
    made m = made_defaults();
    m.durations[BACKWARD] = 6000000; /* planned: 1 ms */
    opened o = open_made(&m);
    const td_advice *advice = find(&o, "slow_op");
    assert_non_null(advice);
    near(advice->gain_ms, 5);
    assert_non_null(
        strstr(advice->text, "linear_gradient \"top/linear_gradient\" takes 6.00 ms of a step on accel, 5.00 ms more"));
    assert_string_equal(o.a->ops->ops.rows[0].name, "top/linear_gradient");
    close_made(&o);
}

static void test_an_unbalanced_cut_is_named_with_what_balance_would_save(void **state)
{
    (void)state;
    made m = made_defaults();
    for (int i = BOTTOM; i <= BACKWARD; i++)
        m.durations[i] *= 4; /* 12 ms there, 2.7 on the host */
    opened o = open_made(&m);
    const td_advice *advice = find(&o, "unbalanced_cut");
    assert_non_null(advice);
    near(advice->measured * (double)o.a->steps->average.interval_ns, 1e6 * (12 - 2.7) / 2);
    assert_non_null(strstr(advice->text, "accel works 12.0 ms of a step, cpu 2.70 ms"));
    assert_non_null(strstr(advice->text, "to cpu first: it takes 4.00 ms now"));
    assert_null(find(&o, "slow_op")); /* all of it is as slow */
    close_made(&o);
}

/* What is moved takes longer on a host of a fiftieth of the speed: hardly anything would be saved. */
static void test_balance_counts_how_slow_the_other_device_is(void **state)
{
    (void)state;
    made m = made_defaults();
    for (int i = BOTTOM; i <= BACKWARD; i++)
        m.durations[i] *= 4;
    m.changes[0][0] = "\"cores\":3,";
    m.changes[0][1] = "\"cores\":3,\"flops_per_s\":1e9,\"memory_bytes_per_s\":1e9,";
    m.changes[1][0] = "\"link_bytes_per_s\":1e9";
    m.changes[1][1] = "\"link_bytes_per_s\":1e9,\"flops_per_s\":5e10,\"memory_bytes_per_s\":5e10";
    opened o = open_made(&m);
    assert_null(find(&o, "unbalanced_cut"));
    close_made(&o);
}

/* Of many small ops none is worth moving; a layer of them is. */
static void test_balance_names_a_layer_where_its_ops_are_small(void **state)
{
    (void)state;
    made m = made_defaults();
    for (int i = BOTTOM; i <= BACKWARD; i++)
        m.durations[i] *= 20; /* 60 ms of 62.7: an op is a third of it, too much for the balance of 28.7 */
    m.durations[BOTTOM] = 2000000;
    m.durations[TOP] = 2500000;
    m.durations[BACKWARD] = 55000000;
    m.changes[0][0] = "\"name\":\"bottom/linear\"";
    m.changes[0][1] = "\"name\":\"h.1.down/linear\"";
    m.changes[1][0] = "\"name\":\"top/linear\"";
    m.changes[1][1] = "\"name\":\"h.1.up/linear\"";
    opened o = open_made(&m);
    const td_advice *advice = find(&o, "unbalanced_cut");
    assert_non_null(advice);
    near(advice->gain_ms, 4.5);
    assert_non_null(strstr(advice->text, "move \"h.1.*\" to cpu first (placement.rules): its ops take 4.50 ms now"));
    close_made(&o);
}

/* ---- each rule -------------------------------------------------------------------------------------------------------------------------- */

static void slow_data(made *m)
{
    m->data_wait = m->fetch = 600000;
}
static void slow_data_ahead(made *m) /* workers are slow, and ahead all the same */
{
    m->fetch = 600000;
    m->queue = 7;
    m->queue_most = 8;
}
static void slow_link(made *m)
{
    m->durations[TO_ACCEL] = 600000;
}
static void hidden_link(made *m) /* as slow, while the accelerator works on something else */
{
    m->durations[TO_ACCEL] = 600000;
    m->durations[BOTTOM] = 2500000;
}
static void in_pieces(made *m) /* both copies become pieces of one */
{
    m->durations[TO_CPU] = 250000;
    m->changes[0][0] = "\"op\":\"copy\",\"subgraph\":1";
    m->changes[0][1] = "\"op\":\"copy\",\"subgraph\":5";
    m->changes[1][0] = "\"link_latency_s\":1e-6";
    m->changes[1][1] = "\"link_latency_s\":1e-4";
}
static void in_quick_pieces(made *m) /* the latency is a hundredth of that */
{
    in_pieces(m);
    m->changes[1][0] = NULL;
}
static void slow_op(made *m)
{
    m->durations[TOP] = 5000000;
}
static void slow_ops(made *m) /* all of them, as on a machine that is slower than it was taken for */
{
    for (int i = 0; i < N_SUBGRAPHS; i++)
        m->durations[i] *= 4;
}
static void unbalanced(made *m)
{
    for (int i = BOTTOM; i <= BACKWARD; i++)
        m->durations[i] *= 3;
}
static void balanced(made *m) /* as much there, and as much here */
{
    unbalanced(m);
    m->durations[LOOKUP] = 3000000;
    m->durations[UPDATE] = 4500000;
}
static void round_trip(made *m) /* what the host computes without any state goes back */
{
    m->durations[TO_ACCEL] = m->durations[TO_CPU] = 100000;
    m->changes[0][0] = "\"inputs\":[6,5]";
    m->changes[0][1] = "\"inputs\":[5]";
    m->changes[1][0] = "\"lane\":\"to_device\",\"estimated_ms\":0.1,\"after\":[0]";
    m->changes[1][1] = "\"lane\":\"to_device\",\"estimated_ms\":0.1,\"after\":[6]";
}
static void round_trip_to_state(made *m) /* it updates a table, which lives there */
{
    round_trip(m);
    m->changes[0][0] = m->changes[1][0];
    m->changes[0][1] = m->changes[1][1];
    m->changes[1][0] = NULL;
}
static void inserted(made *m)
{
    m->changes[0][0] = "\"name\":\"bottom/linear\",\"op\":\"linear\"";
    m->changes[0][1] = "\"inserted\":true,\"name\":\"bottom/linear\",\"op\":\"cast\"";
}
static void early_lookup(made *m) /* the planner's as well, but no conversion */
{
    m->changes[0][0] = "\"name\":\"table/bag\",\"op\":\"embedding_bag\"";
    m->changes[0][1] = "\"inserted\":true,\"name\":\"table/bag\",\"op\":\"lookup_early\"";
}
static void idle_cores(made *m)
{
    m->cpu_share = 0.2;
}
static void idle_for_ranks(made *m) /* the host's lane is busy as long, waiting for rows that others send */
{
    m->cpu_share = 0.2;
    m->durations[LOOKUP] = 2000000;
    m->pull_within = 1800000;
}
static void wake_ups(made *m)
{
    m->wake_up = 150000;
}
static void long_before_wake_ups(made *m) /* as long, after a lot of work */
{
    m->wake_up = 150000;
    for (int i = 0; i < N_SUBGRAPHS; i++)
        m->durations[i] *= 2;
}
static void host_work(made *m)
{
    m->callback = 500000;
}
static void little_host_work(made *m)
{
    m->callback = 200000;
}
static void no_overlap(made *m)
{
    m->changes[0][0] = "\"pipelined\":true";
    m->changes[0][1] = "\"pipelined\":false";
}
static void nothing_to_overlap(made *m) /* one device does it all */
{
    no_overlap(m);
    m->durations[LOOKUP] = m->durations[UPDATE] = 100000;
}
static void uneven(made *m)
{
    m->steps = 10;
    m->slow_step = 9;
    m->slow_by = 10000000;
}
static void one_uneven(made *m) /* of twenty: not a tenth */
{
    uneven(m);
    m->steps = 20;
}
static void dropped(made *m)
{
    m->dropped = 12;
}
static void recording(made *m)
{
    m->event_ns = 10000;
}
static void cheap_recording(made *m)
{
    m->event_ns = 1000;
}
static void replanning(made *m)
{
    m->prepare = 300000;
}
static void little_replanning(made *m)
{
    m->prepare = 50000;
}

/* Rules about ranks: test_ranks.c. `also`: what else is true of that trace; `innocent` looks alike, and the rule has nothing to say
 * of it. */
static const struct rule_case {
    td_advice_rule rule;
    void (*inject)(made *m);
    const char *says, *also;
    void (*innocent)(made *m); /* NULL: every other case is */
} cases[] = {
    {TD_ADVICE_data_starvation, slow_data,
     "waiting for data takes 600 us of a step of 5.35 ms (11 %): a batch takes 600 us to make, on 1 thread", "",
     slow_data_ahead},
    {TD_ADVICE_slow_link, slow_link, "\"bag -> accel\" with 600 us", "", hidden_link},
    {TD_ADVICE_copy_in_pieces, in_pieces, "is copied in 2 pieces, whose latency takes 200 us of its 250 us",
     "slow_link", in_quick_pieces},
    {TD_ADVICE_slow_op, slow_op, "linear \"top/linear\" takes 5.00 ms", "unbalanced_cut", slow_ops},
    {TD_ADVICE_unbalanced_cut, unbalanced, "accel works 9.00 ms of a step, cpu 2.70 ms", "", balanced},
    {TD_ADVICE_round_trip, round_trip, "move \"table/update\" to accel: saves 32.8 kB of copies a step, about 200 us",
     "wake_ups", round_trip_to_state},
    {TD_ADVICE_inserted_ops, inserted,
     "1 conversion that the planner inserted takes 1.00 ms of a step, cast \"bottom/linear\"", "", early_lookup},
    {TD_ADVICE_idle_cores, idle_cores, "0.8 of its 4 cores work", "", idle_for_ranks},
    {TD_ADVICE_wake_ups, wake_ups, "lanes take 900 us of a step to wake up", "", long_before_wake_ups},
    {TD_ADVICE_host_work, host_work, ": the caller's code after a step 500 us; do less there", "", little_host_work},
    {TD_ADVICE_no_overlap, no_overlap, "with train.pipeline: on, up to", "", nothing_to_overlap},
    {TD_ADVICE_uneven_steps, uneven, "step 10 takes 14.7 ms, most of the difference the run's own thread", "host_work",
     one_uneven},
    {TD_ADVICE_dropped_records, dropped, "12 records were dropped", "", NULL},
    {TD_ADVICE_recording, recording, "recording itself takes about", "", cheap_recording},
    {TD_ADVICE_replanning, replanning, "300 us of a step, the longest for linear \"bottom/linear\" with 300 us", "",
     little_replanning},
};

static const char *rules_of(const opened *o, char *buffer, size_t bytes)
{
    buffer[0] = '\0';
    for (int32_t i = 0; i < o->advice.n; i++)
        (void)snprintf(buffer + strlen(buffer), bytes - strlen(buffer), "%s%s", i ? " " : "", o->advice.items[i].rule);
    return buffer;
}

static void test_each_rule_speaks_on_its_trace_and_on_no_other(void **state)
{
    enum { RULES = TD_ADVICE_slow_rank };
    (void)state;
    made m = made_defaults();
    opened quiet = open_made(&m);
    if (quiet.advice.n)
        fail_msg("advice on a trace that needs none: %s", quiet.advice.items[0].text);
    close_made(&quiet);
    assert_int_equal(sizeof cases / sizeof *cases, RULES);
    for (int i = 0; i < RULES; i++) {
        char rules[512];
        assert_int_equal(cases[i].rule, i);
        m = made_defaults();
        cases[i].inject(&m);
        opened o = open_made(&m);
        const td_advice *advice = find(&o, td_advice_name(cases[i].rule));
        if (!advice)
            fail_msg("%s does not speak", td_advice_name(cases[i].rule));
        if (!strstr(advice->text, cases[i].says))
            fail_msg("%s says: %s", advice->rule, advice->text);
        assert_true(advice->measured > advice->threshold);
        if (o.advice.n != 1 + (*cases[i].also != '\0') || (*cases[i].also && !find(&o, cases[i].also)))
            fail_msg("of the trace for %s speak: %s", advice->rule, rules_of(&o, rules, sizeof rules));
        close_made(&o);
    }
}

static void test_no_rule_speaks_on_what_only_looks_like_its_trace(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!cases[i].innocent)
            continue;
        made m = made_defaults();
        cases[i].innocent(&m);
        opened o = open_made(&m);
        const td_advice *advice = find(&o, td_advice_name(cases[i].rule));
        if (advice)
            fail_msg("%s speaks: %s", advice->rule, advice->text);
        close_made(&o);
    }
}

/* ---- operators, memory, data ------------------------------------------------------------------------------------------------------------ */

static void test_operators_are_counted_and_held_against_their_device(void **state)
{
    (void)state;
    made m = made_defaults();
    m.changes[0][0] = "\"link_bytes_per_s\":1e9";
    m.changes[0][1] = "\"flops_per_s\":4e9,\"memory_bytes_per_s\":1e12,\"link_bytes_per_s\":1e9";
    opened o = open_made(&m);
    const td_op_statistics *ops = o.a->ops;
    int64_t sum = 0;
    assert_int_equal(ops->ops.n, N_SUBGRAPHS);
    for (int64_t i = 0; i < ops->ops.n; i++) {
        assert_int_equal(ops->ops.rows[i].count, m.steps);
        sum += ops->ops.rows[i].self_ns;
        if (!strcmp(ops->ops.rows[i].name, "bottom/linear")) /* 2 GFLOP/s of 4 */
            near(td_op_reached(o.a->view, &ops->ops.rows[i]), 0.5);
    }
    assert_int_equal(sum, ops->self_ns);
    const td_op_row *linear = NULL;
    for (int64_t i = 0; i < ops->types.n; i++)
        if (!strcmp(ops->types.rows[i].name, "linear"))
            linear = &ops->types.rows[i];
    assert_int_equal(linear->count, 2 * m.steps);
    assert_int_equal(linear->total_ns, m.steps * (m.durations[BOTTOM] + m.durations[TOP]));
    assert_int_equal(ops->devices.n, 2);
    char text[64];
    assert_string_equal(td_op_shapes(o.a->view->plan, o.a->view->plan->nodes[TOP].inputs, 2, text, sizeof text),
                        "f32 [256, 16], f32 [256, 64]");
    close_made(&o);
}

static void test_memory_lives_from_its_maker_to_its_last_reader(void **state)
{
    (void)state;
    made m = made_defaults();
    opened o = open_made(&m);
    const td_device_memory *accel = &o.a->memory->devices[1], *cpu = &o.a->memory->devices[0];
    assert_int_equal(accel->peak_live_bytes,
                     65536 + 16384 + 4); /* hidden, the bag's copy and the loss, while top runs */
    assert_int_equal(accel->in_use_bytes, 500000);
    assert_string_equal(accel->tenants[0].name, "hidden");
    assert_string_equal(cpu->tenants[0].name, "table");
    assert_int_equal(accel->points[accel->n_points - 1].bytes, 0);
    close_made(&o);
}

static void test_everything_is_in_the_report(void **state)
{
    (void)state;
    static const char *const keys[] = {"totals",   "trace",  "average",   "steps", "subgraphs", "lanes",  "activities",
                                       "overlaps", "memory", "operators", "data",  "machine",   "advice", "device_ops"};
    char *text = NULL;
    made m = made_defaults();
    made_file(path(), &m);
    OK(td_profiler_analyse(path(), TD_PROFILER_LAST_WINDOW, &text));
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_non_null(json_object_get(json, keys[i]));
    assert_int_equal(json_object_size(json), sizeof keys / sizeof *keys);
    json_decref(json);
    td_text_free(text);
    td_status *status = td_profiler_analyse(path(), 1, &text);
    assert_non_null(strstr(td_status_message(status), "the trace has 1 recorded window; there is no window 1"));
    td_status_destroy(status);
    (void)unlink(path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_is_the_sum_of_its_critical_path),
        cmocka_unit_test(test_lanes_say_what_they_waited_for),
        cmocka_unit_test(test_binding_a_batch_is_no_waking_up),
        cmocka_unit_test(test_slow_data_is_named_with_its_time),
        cmocka_unit_test(test_a_slow_link_is_named_with_its_time),
        cmocka_unit_test(test_a_copied_scalar_says_nothing_of_a_link),
        cmocka_unit_test(test_a_slow_op_is_named_with_its_excess),
        cmocka_unit_test(test_an_unbalanced_cut_is_named_with_what_balance_would_save),
        cmocka_unit_test(test_balance_counts_how_slow_the_other_device_is),
        cmocka_unit_test(test_balance_names_a_layer_where_its_ops_are_small),
        cmocka_unit_test(test_each_rule_speaks_on_its_trace_and_on_no_other),
        cmocka_unit_test(test_no_rule_speaks_on_what_only_looks_like_its_trace),
        cmocka_unit_test(test_operators_are_counted_and_held_against_their_device),
        cmocka_unit_test(test_memory_lives_from_its_maker_to_its_last_reader),
        cmocka_unit_test(test_everything_is_in_the_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
