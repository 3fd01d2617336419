/* What signals do to a command: see cli/signals.h. */
#include "cli/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"

static _Atomic(td_session *) running;
static _Atomic(td_job *) running_job;
static volatile sig_atomic_t caught;

static const int caught_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR2, SIGPIPE};
enum { N_SIGNALS = sizeof caught_signals / sizeof *caught_signals };
static struct sigaction actions_before[N_SIGNALS];
static void (*handler)(int); /* NULL: none of this file's */

static const char *at_once; /* what is said then */
static bool clears;         /* a line of progress may be there */

static void on_signal(int number)
{
    if (caught && number != SIGPIPE) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    caught = number;
    td_session *session = atomic_load(&running);
    td_job *job = atomic_load(&running_job);
    if (job)
        td_job_ask_to_stop(job);
    else if (session)
        td_session_stop(session);
}

/* With what a handler may call. */
static void write_error(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void on_signal_at_once(int number)
{
    caught = number;
    write_error(clears ? "\r\033[Ktandem: " : "tandem: ");
    write_error(td_signals_reason());
    write_error(at_once);
    write_error("\n");
    _exit(TD_EXIT_INTERRUPTED);
}

static void catch_with(void (*next)(int))
{
    const struct sigaction action = {.sa_handler = next, .sa_flags = SA_RESTART};
    for (int i = 0; i < N_SIGNALS; i++) {
        if (!handler)
            sigaction(caught_signals[i], NULL, &actions_before[i]);
        if (actions_before[i].sa_handler != SIG_IGN)
            sigaction(caught_signals[i], &action, NULL);
    }
    handler = next;
}

void td_signals_end_at_once(const char *what)
{
    at_once = what;
    clears = isatty(STDERR_FILENO);
    catch_with(on_signal_at_once);
}

void td_signals_catch(void)
{
    if (handler == on_signal)
        return;
    caught = 0;
    catch_with(on_signal);
}

void td_signals_release(void)
{
    if (!handler)
        return;
    handler = NULL;
    bool unread = caught == SIGPIPE; /* what is still to be said must not end the process before it is said elsewhere */
    for (int i = 0; i < N_SIGNALS; i++)
        if (!unread || caught_signals[i] != SIGPIPE)
            sigaction(caught_signals[i], &actions_before[i], NULL);
}

void td_signals_stop_session(td_session *session)
{
    atomic_store(&running, session);
}

void td_signals_stop_job(td_job *job)
{
    atomic_store(&running_job, job);
    if (job && caught)
        td_job_ask_to_stop(job);
}

bool td_signals_came(void)
{
    return caught != 0;
}

bool td_signals_ask_to_stop(void)
{
    const td_job *job = atomic_load(&running_job);
    return caught || (job && td_job_is_asked_to_stop(job));
}

const char *td_signals_reason(void)
{
    switch (caught) {
    case SIGTERM:
        return "ended by SIGTERM";
    case SIGUSR2:
        return "ended by SIGUSR2";
    case SIGHUP:
        return "ended by SIGHUP (the terminal is gone)";
    case SIGPIPE:
        return "ended by SIGPIPE (nobody reads the output any more)";
    default:
        return "interrupted";
    }
}

const char *td_signals_another(void)
{
    return caught == SIGINT && isatty(STDERR_FILENO) ? "Ctrl-C" : "signal";
}
