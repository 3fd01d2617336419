/* Terminals and their colours: see cli/terminal.h. */
#include "cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool td_stream_is_terminal(FILE *stream)
{
    int descriptor = stream ? fileno(stream) : -1;
    return descriptor >= 0 && isatty(descriptor);
}

const char *td_colour_on(FILE *stream, td_colour colour)
{
    static const char *const codes[] = {"\033[0m", "\033[1;31m", "\033[32m", "\033[33m"};
    const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool wanted = td_stream_is_terminal(stream) && !(refused && refused[0]) && terminal && strcmp(terminal, "dumb");
    return wanted ? codes[colour] : "";
}
