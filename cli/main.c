/* The program's entry: see cli/program.c. */
#include <signal.h>

#include "cli/command.h"

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a file beyond its limit is then an error with a name */
    return td_program(argc, argv, stdout, stderr);
}
