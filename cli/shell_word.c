/* See cli/shell_word.h. */
#include "cli/shell_word.h"

#include <string.h>

#include "base/memory.h"

/* Within single quotes a shell reads everything as it is, but for the quote: that one is put between quoted pieces. */
void td_shell_word(td_string *line, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-=:,@%";
    if (*word && !word[strspn(word, plain)]) {
        td_string_append(line, word);
        return;
    }
    td_string_append(line, "'");
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            td_string_append(line, "'\\''");
        else
            td_string_append_bytes(line, c, 1);
    td_string_append(line, "'");
}

char *td_shell_word_text(const char *word)
{
    td_string line = {0};
    char *text = NULL;
    td_shell_word(&line, word);
    td_status_destroy(td_string_finish(&line, &text));
    return text;
}
