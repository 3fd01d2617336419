/* What is injected into a trace is what the analyses name: slow data, a slow link, a slow op, an unbalanced cut, with its
 * milliseconds. Each rule of advice speaks on a trace made for it, and is silent on one that is not. Rules about ranks: test_ranks.c. */
#include "tests/profiler/open_made.h"

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

/* A gap without any record: the advice says so, and blames neither cores nor work for it. */
static void test_what_no_event_recorded_is_blamed_on_nobody(void **state)
{
    (void)state;
    for (int recorded = 0; recorded < 2; recorded++) {
        made m = made_defaults();
        *(recorded ? &m.callback : &m.unrecorded) = 500000;
        opened o = open_made(&m);
        const td_advice *advice = find(&o, "host_work");
        assert_non_null(advice);
        assert_int_equal(strstr(advice->text, "unrecorded 500 us; the recording does not say") != NULL, !recorded);
        assert_int_equal(strstr(advice->text, "unrecorded") != NULL, !recorded);
        assert_null(strstr(advice->text, "core"));
        near(advice->gain_ms, recorded ? 0.5 : 0.001);
        close_made(&o);
    }
}

static void test_pieces_of_a_list_take_the_latency_once(void **state)
{
    (void)state;
    made m = made_defaults();
    in_pieces(&m);
    m.changes[1][1] = "\"link_latency_s\":1e-4,\"copies_as_lists\":true";
    opened o = open_made(&m);
    assert_null(find(&o, "copy_in_pieces"));
    close_made(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_data_is_named_with_its_time),
        cmocka_unit_test(test_a_slow_link_is_named_with_its_time),
        cmocka_unit_test(test_a_copied_scalar_says_nothing_of_a_link),
        cmocka_unit_test(test_a_slow_op_is_named_with_its_excess),
        cmocka_unit_test(test_an_unbalanced_cut_is_named_with_what_balance_would_save),
        cmocka_unit_test(test_balance_counts_how_slow_the_other_device_is),
        cmocka_unit_test(test_balance_names_a_layer_where_its_ops_are_small),
        cmocka_unit_test(test_each_rule_speaks_on_its_trace_and_on_no_other),
        cmocka_unit_test(test_no_rule_speaks_on_what_only_looks_like_its_trace),
        cmocka_unit_test(test_pieces_of_a_list_take_the_latency_once),
        cmocka_unit_test(test_what_no_event_recorded_is_blamed_on_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
