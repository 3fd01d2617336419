/* JSON by hand, for long answers and for texts that may be any bytes: see board/board.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/string.h"
#include "board/board.h"

/* Each byte that belongs to no character becomes U+FFFD, and so do control characters but line ends and tabs. */
static void append_clean(td_string *out, const char *text, size_t bytes, bool quoted)
{
    const unsigned char *at = (const unsigned char *)text;
    for (size_t i = 0; i < bytes;) {
        size_t n = td_text_character(at + i, bytes - i);
        bool line = at[i] == '\n' || at[i] == '\t';
        bool control = n == 1 && !line && (at[i] < 0x20 || at[i] == 0x7f);
        if (!n || control)
            td_string_append(out, "\xef\xbf\xbd");
        else if (quoted && line)
            td_string_append(out, at[i] == '\n' ? "\\n" : "\\t");
        else if (quoted && (at[i] == '"' || at[i] == '\\'))
            td_string_append_bytes(out, at[i] == '"' ? "\\\"" : "\\\\", 2);
        else
            td_string_append_bytes(out, at + i, n);
        i += n ? n : 1;
    }
}

void td_board_quote(td_string *out, const char *text, size_t bytes)
{
    td_string_append(out, "\"");
    append_clean(out, text, bytes, true);
    td_string_append(out, "\"");
}

json_t *td_board_text_json(const char *text)
{
    td_string clean = {0};
    char *finished = NULL;
    append_clean(&clean, text, strlen(text), false);
    td_status *status = td_string_finish(&clean, &finished);
    json_t *json = status ? NULL : json_string(finished);
    td_status_destroy(status);
    td_free(finished);
    return json;
}

td_status *td_board_put_json(td_string *out, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text)
        td_string_append(out, text);
    free(text); /* jansson's own allocation */
    json_decref(json);
    return text ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an answer");
}

void td_board_put_number(td_string *out, double number)
{
    if (!isfinite(number))
        td_string_append(out, "null");
    else
        td_string_format(out, "%.9g", number);
}

void td_board_hash_text(const char *text, char out_hash[17])
{
    static const char digits[] = "0123456789abcdef";
    uint64_t hash = td_hash_string(text, 0);
    for (int i = 0; i < 16; i++)
        out_hash[i] = digits[hash >> (60 - 4 * i) & 15];
    out_hash[16] = '\0';
}
