/* Names with the fewest edits between them, by three rows of the usual table, or one within the other: see base/nearest.h. */
#include "base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 63, SHORTEST_PART = 3 };

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

int32_t td_edit_distance(const char *a, const char *b)
{
    int32_t rows[3][LONGEST + 1];
    int32_t a_length = (int32_t)strnlen(a, LONGEST), b_length = (int32_t)strnlen(b, LONGEST);
    for (int32_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (int32_t i = 1; i <= a_length; i++) {
        int32_t *now = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        now[0] = i;
        for (int32_t j = 1; j <= b_length; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = least(above[j - 1] + (x != y), least(above[j], now[j - 1]) + 1);
            bool swapped =
                i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]);
            if (swapped)
                now[j] = least(now[j], two_above[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

int32_t td_start_distance(const char *start, const char *name)
{
    char begins[LONGEST + 1], cut[LONGEST + 1];
    (void)snprintf(begins, sizeof begins, "%.*s", (int)strcspn(start, "*"), start);
    const int32_t length = (int32_t)strlen(begins);
    int32_t fewest = td_edit_distance(begins, name);
    for (int32_t shown = length > 1 ? length - 1 : 0; shown <= length + 1 && shown <= LONGEST; shown++) {
        (void)snprintf(cut, sizeof cut, "%.*s", shown, name);
        fewest = least(fewest, td_edit_distance(begins, cut));
    }
    return fewest;
}

/* How far a name that was given is from another: of a pattern what it has before its first * is the beginning of one, and so may a name
 * be, but not so short a one that many begin with most of it. */
static int32_t slip_distance(const char *name, const char *meant)
{
    const bool whole = !strchr(name, '*') && strlen(name) < SHORTEST_PART;
    return whole ? td_edit_distance(name, meant) : td_start_distance(name, meant);
}

/* No more edits than a third of its letters, of one letter none. */
static bool is_a_slip(const char *name, const char *meant)
{
    const int32_t length = least((int32_t)strcspn(name, "*"), LONGEST);
    return length > 0 && slip_distance(name, meant) <= least((length + 2) / 3, length - 1);
}

static bool is_of_a_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* 0: `part` is not in `whole`; 1: among its letters; 2: as words of it, between dots and the like. */
static int32_t rank_within(const char *part, const char *whole)
{
    const size_t length = strlen(part);
    int32_t rank = 0;
    for (const char *at = whole; length >= SHORTEST_PART && *at; at++) {
        if (strncasecmp(at, part, length) != 0)
            continue;
        const bool begins = at == whole || !is_of_a_word(at[-1]);
        if (begins && !is_of_a_word(at[length]))
            return 2;
        rank = 1;
    }
    return rank;
}

/* Likewise, of a name that was given: it is a part of the other, or has the other among its words. */
static int32_t rank_kin(const char *name, const char *other)
{
    const int32_t rank = rank_within(name, other);
    return rank == 2 || rank_within(other, name) < 2 ? rank : 2;
}

/* Whether a name comes before the best so far: there is none, or it is as good and the first by alphabet. */
static bool is_before(const char *name, const char *best)
{
    return !best || strcmp(name, best) < 0;
}

static const char *nearest_kin(const char *name, int32_t n, const char *(*at)(const void *context, int32_t index),
                               const void *context)
{
    const char *best = NULL;
    int32_t highest = 1;
    for (int32_t i = 0; i < n; i++) {
        const char *other = at(context, i);
        const int32_t rank = other ? rank_kin(name, other) : 0;
        if (rank > highest || (rank == highest && is_before(other, best))) {
            highest = rank;
            best = other;
        }
    }
    return best;
}

const char *td_nearest(const char *name, int32_t n, const char *(*at)(const void *context, int32_t index),
                       const void *context)
{
    const bool is_pattern = strchr(name, '*') != NULL;
    const char *best = NULL;
    int32_t fewest = INT32_MAX;
    for (int32_t i = 0; i < n; i++) {
        const char *other = at(context, i);
        if (!other)
            continue;
        const int32_t edits = is_pattern ? td_start_distance(name, other) : td_edit_distance(name, other);
        if (edits < fewest || (edits == fewest && is_before(other, best))) {
            fewest = edits;
            best = other;
        }
    }
    const char *kin = best && !is_a_slip(name, best) ? nearest_kin(name, n, at, context) : NULL;
    return kin ? kin : best;
}

bool td_is_near(const char *name, const char *nearest)
{
    return is_a_slip(name, nearest) || rank_kin(name, nearest) > 0;
}

const char *td_meant(char buffer[TD_MEANT], const char *name, const char *nearest)
{
    buffer[0] = '\0';
    if (nearest && td_is_near(name, nearest))
        (void)snprintf(buffer, TD_MEANT, "; did you mean \"%.120s\"?", nearest);
    return buffer;
}
