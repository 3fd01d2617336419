/* See base/event.h. A sleeper announces itself and reads `changes` before it looks at the count; a poster moves the
 * count, then `changes`, then looks for sleepers; all in one total order. So either the sleeper sees the new count, or
 * the kernel sees that `changes` moved, or the poster sees the sleeper. */
#include "base/event.h"

#include "base/clock.h"
#include "base/futex.h"

void td_gate_init(td_gate *gate, int32_t spins)
{
    atomic_init(&gate->count, 0);
    atomic_init(&gate->changes, 0);
    atomic_init(&gate->sleepers, 0);
    atomic_init(&gate->stopped, false);
    gate->spins = spins;
}

static void wake(td_gate *gate)
{
    atomic_fetch_add(&gate->changes, 1);
    if (atomic_load(&gate->sleepers))
        td_futex_wake_all(&gate->changes);
}

void td_gate_post(td_gate *gate, uint32_t n)
{
    atomic_fetch_add(&gate->count, n);
    wake(gate);
}

void td_gate_stop(td_gate *gate)
{
    atomic_store(&gate->stopped, true);
    wake(gate);
}

uint32_t td_gate_count(const td_gate *gate)
{
    return atomic_load(&gate->count);
}

static bool reached(const td_gate *gate, uint32_t target)
{
    return (int32_t)(atomic_load(&gate->count) - target) >= 0;
}

static bool spin(const td_gate *gate, uint32_t target)
{
    for (int32_t i = 0; i < gate->spins && !atomic_load_explicit(&gate->stopped, memory_order_relaxed); i++) {
        if (reached(gate, target))
            return true;
        td_spin_pause();
    }
    return reached(gate, target);
}

/* `end` on the clock; negative: never. */
static td_gate_result sleep_until(td_gate *gate, uint32_t target, int64_t end)
{
    for (;;) {
        unsigned seen = atomic_load(&gate->changes);
        if (reached(gate, target))
            return TD_GATE_REACHED;
        if (atomic_load(&gate->stopped))
            return TD_GATE_STOPPED;
        int64_t left = end < 0 ? -1 : end - td_clock_ns();
        if (end >= 0 && left <= 0)
            return TD_GATE_TIMEOUT;
        td_futex_wait(&gate->changes, seen, left);
    }
}

static td_gate_result wait(td_gate *gate, uint32_t target, int64_t end)
{
    if (spin(gate, target))
        return TD_GATE_REACHED;
    atomic_fetch_add(&gate->sleepers, 1);
    td_gate_result result = sleep_until(gate, target, end);
    atomic_fetch_sub(&gate->sleepers, 1);
    return result;
}

bool td_gate_wait_at_least(td_gate *gate, uint32_t target)
{
    return wait(gate, target, -1) == TD_GATE_REACHED;
}

td_gate_result td_gate_wait_for(td_gate *gate, uint32_t target, int64_t nanoseconds)
{
    int64_t end;
    if (__builtin_add_overflow(td_clock_ns(), nanoseconds < 0 ? 0 : nanoseconds, &end))
        end = INT64_MAX;
    return wait(gate, target, end);
}
