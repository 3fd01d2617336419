/* What the files of a session's steps share: one micro-batch in, one out (steps.c), and which ones (runs.c). */
#ifndef TANDEM_RUNTIME_STEPS_H
#define TANDEM_RUNTIME_STEPS_H

#include "runtime/session.h"

typedef enum td_outcome {
    TD_STEP_DONE,    /* its window is done; the report describes it */
    TD_STEP_GOES_ON, /* its window goes on */
    TD_STEP_FAILED,
    TD_STEP_HELD /* its loss or a gradient is not finite; nothing of it was applied */
} td_outcome;

static inline td_step_slot *td_slot_of(td_session *session, int64_t step)
{
    return &session->slots[step % TD_STEP_SLOTS];
}

/* The batch has the fields again that it came with. */
void td_slot_drop_fields(td_step_slot *slot);
/* Gives the slot's batch back to its source. */
void td_slot_release_batch(td_step_slot *slot);
/* `slot` has its batch and its place in a window. On failure the micro-batch never existed; its batch is released. */
td_status *td_session_admit(td_session *session, td_step_slot *slot) TD_MUST_USE;
/* Waits for the oldest micro-batch in flight. */
td_outcome td_session_complete_oldest(td_session *session, td_step_report *report);
/* A micro-batch has ended, or a batch will not be trained on: it counts among its window's. */
void td_session_count_in_window(td_session *session, const td_step_slot *slot);
void td_session_drop_batch(td_session *session, const td_batch *batch, double wait_data_s);
/* Of a held micro-batch, when nothing is in flight: an error, or the report of its window, which is skipped. All batches of the
 * window have been counted. */
td_status *td_session_settle_held(td_session *session, const td_step_slot *slot, td_step_report *report) TD_MUST_USE;
void td_session_forget_failure(td_session *session);

#endif
