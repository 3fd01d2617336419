/* Who is at work at a time: what a session's overlap is told from. See session.h. */
#include "base/clock.h"
#include "runtime/session.h"

double td_session_now(void)
{
    return 1e-9 * (double)td_clock_ns();
}

static void timeline_advance(td_timeline *t)
{
    double now = td_session_now();
    if (t->others > 0) {
        t->others_s += now - t->last_s;
        if (t->accelerators == 0)
            t->exposed_s += now - t->last_s;
    }
    t->last_s = now;
}

void td_timeline_enter(td_timeline *timeline, bool accelerator)
{
    pthread_mutex_lock(&timeline->mutex);
    timeline_advance(timeline);
    *(accelerator ? &timeline->accelerators : &timeline->others) += 1;
    pthread_mutex_unlock(&timeline->mutex);
}

void td_timeline_leave(td_timeline *timeline, bool accelerator)
{
    pthread_mutex_lock(&timeline->mutex);
    timeline_advance(timeline);
    *(accelerator ? &timeline->accelerators : &timeline->others) -= 1;
    pthread_mutex_unlock(&timeline->mutex);
}
