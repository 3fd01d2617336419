/* Whether a stream is a terminal, a line that rewrites itself on one, and colour: only there, and never with NO_COLOR. */
#ifndef TANDEM_CLI_TERMINAL_H
#define TANDEM_CLI_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

typedef enum td_colour { TD_COLOUR_NONE = 0, TD_COLOUR_RED, TD_COLOUR_GREEN, TD_COLOUR_YELLOW } td_colour;

bool td_stream_is_terminal(FILE *stream);
/* Puts a text in place of the line that the cursor is in, cut off where the terminal ends: what wraps cannot be put in place again. */
void td_terminal_rewrite(FILE *stream, const char *text);
/* What switches the stream to a colour, or back (TD_COLOUR_NONE); "" where colour is not wanted. */
const char *td_colour_on(FILE *stream, td_colour colour);

#endif
