/* Windows of micro-batches: the keys train.accumulate and its kin, and how many steps a training then has. */
#include <string.h>

#include "base/memory.h"
#include "cli/setup.h"

td_status *td_setup_windows(td_section root, td_train_options *options)
{
    int64_t last = 1;
    options->accumulate = (int32_t)td_section_int(root, "train.accumulate");
    options->replicas = (int32_t)td_section_int(root, "train.replicas");
    options->reduction = !strcmp(td_section_string(root, "train.reduction"), "sum") ? TD_REDUCE_SUM : TD_REDUCE_MEAN;
    for (int32_t i = 0; i < td_section_count(root, "train.accumulate_from"); i++) {
        td_section change = td_section_item(root, "train.accumulate_from", i);
        int64_t step = td_section_int(change, "step");
        if (step <= last)
            return TD_SECTION_ERROR(change, "step",
                                    "step %lld does not come after step %lld: list them by ascending step",
                                    (long long)step, (long long)last);
        td_accumulate_from(options, step, (int32_t)td_section_int(change, "accumulate"));
        last = step;
    }
    return NULL;
}

/* ---- counting ------------------------------------------------------------------------------------------------------------ */

/* Micro-batches of the window of a step (from 1), and the step from which on that changes. */
static int64_t window_at(td_section root, int64_t step, int64_t *out_until)
{
    int64_t accumulate = td_section_int(root, "train.accumulate");
    *out_until = INT64_MAX;
    for (int32_t i = 0; i < td_section_count(root, "train.accumulate_from"); i++) {
        td_section change = td_section_item(root, "train.accumulate_from", i);
        int64_t from = td_section_int(change, "step");
        if (from > step) {
            *out_until = from;
            break;
        }
        accumulate = td_section_int(change, "accumulate");
    }
    return accumulate * td_section_int(root, "train.replicas");
}

static int64_t windows_of(int64_t batches, int64_t window)
{
    return batches / window + (batches % window != 0);
}

/* Epochs whose windows are all alike, as many as begin and end before the change. False beyond 64 bits. */
static bool whole_epochs(td_section root, int64_t batches, int64_t *step, int64_t *epochs)
{
    int64_t until, taken, all = windows_of(batches, window_at(root, *step, &until)), whole = (until - *step) / all;
    whole = whole < *epochs ? whole : *epochs;
    *epochs -= whole;
    return td_multiply_checked(whole, all, &taken) && td_add_checked(*step, taken, step);
}

/* One epoch, whatever changes in it. */
static int64_t one_epoch(td_section root, int64_t batches, int64_t step)
{
    while (batches > 0) {
        int64_t until, window = window_at(root, step, &until), n = windows_of(batches, window);
        n = n < until - step ? n : until - step;
        batches = n > batches / window ? 0 : batches - n * window;
        step += n;
    }
    return step;
}

/* The step after so many epochs from `step` on; INT64_MAX beyond 64 bits. */
static int64_t after_epochs(td_section root, int64_t batches_per_epoch, int64_t epochs, int64_t step)
{
    while (batches_per_epoch > 0 && epochs > 0) {
        if (!whole_epochs(root, batches_per_epoch, &step, &epochs))
            return INT64_MAX;
        if (epochs-- > 0)
            step = one_epoch(root, batches_per_epoch, step);
    }
    return step;
}

int64_t td_setup_count_steps(td_section root, int64_t batches_per_epoch, int64_t epochs)
{
    int64_t next = after_epochs(root, batches_per_epoch, epochs, 1);
    return next == INT64_MAX ? next : next - 1;
}

int64_t td_setup_count_steps_from(td_section root, int64_t batches_per_epoch, int64_t epochs, int64_t done,
                                  td_data_position at)
{
    if (at.epoch >= epochs)
        return done;
    int64_t next = one_epoch(root, batches_per_epoch - at.batch, done + 1);
    next = after_epochs(root, batches_per_epoch, epochs - at.epoch - 1, next);
    return next == INT64_MAX ? next : next - 1;
}
