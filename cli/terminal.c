/* Terminals and their colours: see cli/terminal.h. */
#include "cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/string.h"
#include "cli/launcher.h"
#include "tandem/job.h"

bool td_stream_is_terminal(FILE *stream)
{
    int descriptor = stream ? fileno(stream) : -1;
    return descriptor >= 0 && isatty(descriptor) && (!td_job_is_wanted() || td_launcher_shows(descriptor));
}

/* 0: not known, or as wide as one likes. */
static int columns_of(FILE *stream)
{
    struct winsize size;
    int descriptor = stream ? fileno(stream) : -1;
    return descriptor >= 0 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void td_terminal_rewrite(FILE *stream, const char *text)
{
    const int columns = columns_of(stream);
    size_t length = strlen(text), shown = length, at = 0;
    for (int used = 0; columns > 0 && at < length; used++) {
        if (used + 1 >= columns) { /* the last column stays free: some terminals begin a new line behind it */
            shown = at;
            break;
        }
        const size_t bytes = td_text_character(text + at, length - at);
        at += bytes ? bytes : 1;
    }
    fprintf(stream, "\r%.*s\033[K", (int)shown, text);
    fflush(stream);
}

const char *td_colour_on(FILE *stream, td_colour colour)
{
    static const char *const codes[] = {"\033[0m", "\033[1;31m", "\033[32m", "\033[33m"};
    const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool wanted = td_stream_is_terminal(stream) && !(refused && refused[0]) && terminal && strcmp(terminal, "dumb");
    return wanted ? codes[colour] : "";
}
