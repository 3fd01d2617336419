/* The program's entry: see cli/program.c. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/distributed.h"

/* A stream that the caller closed must not become the first file that is opened: its number is taken by what refuses everything. */
static void keep_streams(void)
{
    for (int stream = 0; stream <= 2; stream++)
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", stream ? O_RDONLY : O_WRONLY) < 0)
            _exit(1);
}

int main(int argc, char **argv)
{
    keep_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file beyond its limit is then an error with a name */
    signal(SIGUSR1, SIG_IGN); /* asks a training to record, and must not end it when it comes before or after */
    int code = td_program(argc, argv, stdout, stderr);
    if (td_distributed_must_leave()) {
        fflush(NULL);
        _exit(code);
    }
    return code;
}
