/* The program's entry: see cli/program.c. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/distributed.h"

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a file beyond its limit is then an error with a name */
    signal(SIGUSR1, SIG_IGN); /* asks a training to record, and must not end it when it comes before or after */
    int code = td_program(argc, argv, stdout, stderr);
    if (td_distributed_must_leave()) {
        fflush(NULL);
        _exit(code);
    }
    return code;
}
