/* Signals that end a command: SIGINT, SIGTERM, SIGHUP, SIGUSR2 (which mpirun passes on to its ranks) and SIGPIPE, where they are not
 * ignored (as under nohup). A command that has nothing to end well is ended by the first one, with a word and exit code 130; a training
 * ends after the steps in flight. Of the process: for the thread that runs a command. */
#ifndef TANDEM_CLI_SIGNALS_H
#define TANDEM_CLI_SIGNALS_H

#include "tandem/job.h"
#include "tandem/session.h"

/* From now on one of them says "interrupted" (see below) and `what`, which stays the caller's, and ends the process with 130. */
void td_signals_end_at_once(const char *what);
/* From now on the first one asks what is told below to stop, and is remembered; a second one ends the process, unless it is the next
 * line that nobody reads. */
void td_signals_catch(void);
/* They do again what they did before. */
void td_signals_release(void);
/* The session, or the job of which all workers stop after the same step, that a signal asks to stop; NULL: none. It outlives that. A
 * signal that has come asks a job too, a session not: see td_signals_came. */
void td_signals_stop_session(td_session *session);
void td_signals_stop_job(td_job *job);

/* Whether one came since td_signals_catch. */
bool td_signals_came(void);
/* The same, or to another rank of the job. */
bool td_signals_ask_to_stop(void);
/* "interrupted", and the like. */
const char *td_signals_reason(void);
/* What another one is called: "Ctrl-C" or "signal". */
const char *td_signals_another(void);

#endif
