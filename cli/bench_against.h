/* The comparing half of `tandem bench`: a configuration beside a single device. */
#ifndef TANDEM_CLI_BENCH_AGAINST_H
#define TANDEM_CLI_BENCH_AGAINST_H

#include "cli/command.h"

/* Runs what `tandem bench CONFIG --against DEVICE` was asked for, and prints it. */
td_status *td_bench_against(const td_arguments *arguments) TD_MUST_USE;

#endif
