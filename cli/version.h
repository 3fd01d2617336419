/* The version that the program, run.json and summary.json state. CMake defines it from the project's one number. */
#ifndef TANDEM_CLI_VERSION_H
#define TANDEM_CLI_VERSION_H

#ifndef TANDEM_VERSION
#define TANDEM_VERSION "unknown"
#endif

#endif
