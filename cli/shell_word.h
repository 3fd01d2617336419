/* Words of commands that the program prints, so that a person can copy the line into a shell as it is. */
#ifndef TANDEM_CLI_SHELL_WORD_H
#define TANDEM_CLI_SHELL_WORD_H

#include "base/string.h"

/* The word as a shell reads it: as it is where nothing in it means more than itself, else in quotes. */
void td_shell_word(td_string *line, const char *word);
/* The same as a text of its own, which the caller frees; NULL: no memory. */
char *td_shell_word_text(const char *word);

#endif
