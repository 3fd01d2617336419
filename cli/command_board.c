/* tandem board: serves a page that shows the runs in a folder, until it is interrupted. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "board/server.h"
#include "cli/command.h"

enum { DEFAULT_PORT = 6060 };

static td_status *port_of(const td_arguments *arguments, int *out_port)
{
    double port = 0;
    TD_TRY(td_argument_number(arguments, "--port", (td_number_range){0, 65535, true}, DEFAULT_PORT, &port));
    *out_port = (int)port;
    return NULL;
}

/* Signals that end it are taken by this thread alone. */
static void wait_for_signal(const sigset_t *signals)
{
    int number;
    while (sigwait(signals, &number))
        ;
}

static td_status *serve(const td_arguments *arguments, td_board *board, const sigset_t *signals)
{
    td_board_server_options options = {.host = td_argument(arguments, "--host"),
                                       .token = td_argument(arguments, "--token")};
    td_board_server *server = NULL;
    TD_TRY(port_of(arguments, &options.port));
    TD_TRY(td_board_server_start(board, &options, &server));
    fprintf(arguments->out, "%s is at %s%s%s   (Ctrl-C ends it)\n", arguments->words[0],
            td_board_server_address(server), options.token ? "?token=" : "", options.token ? options.token : "");
    fflush(arguments->out);
    wait_for_signal(signals);
    td_board_server_stop(server);
    return NULL;
}

static td_status *run(const td_arguments *arguments)
{
    td_board *board = NULL;
    sigset_t signals, before;
    TD_TRY(td_board_open(arguments->words[0], &board));
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, &before); /* the server's threads inherit it */
    td_status *status = serve(arguments, board, &signals);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    td_board_close(board);
    return status;
}

static const td_command_option options[] = {
    {"--port", "N", "where to listen (6060); 0: any port that is free"},
    {"--host", "ADDR", "the address to listen on (127.0.0.1, which no other machine reaches)"},
    {"--token", "TEXT", "a secret that every request must bring; needed on any other address"},
    {NULL, NULL, NULL},
};

const td_command td_command_board = {
    .name = "board",
    .summary = "shows runs in a browser: curves, graph, timeline",
    .usage = "DIR [--port N] [--host ADDR --token TEXT]",
    .least = 1,
    .most = 1,
    .first = "the folder of runs",
    .options = options,
    .run = run,
};
