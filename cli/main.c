/* The program's entry: see cli/program.c. */
#include "cli/command.h"

int main(int argc, char **argv)
{
    return td_program(argc, argv, stdout, stderr);
}
