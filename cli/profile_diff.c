/* Two recordings side by side: see profile_view.h. */
#include "base/units.h"
#include "cli/json.h"
#include "cli/profile_view.h"
#include "cli/table.h"

static const char *const verdicts[] = {"shorter", "", "longer"};

static const char *time_text(char *text, double ns)
{
    return ns < 0 ? "absent" : ns > 0 ? td_format_seconds(text, 1e-9 * ns) : "-";
}

/* What was compared, before any number. */
static void print_unlike(const td_diff *diff, FILE *out)
{
    char work[1024], how[1024];
    (void)td_diff_unlike_text(diff, true, work, sizeof work);
    (void)td_diff_unlike_text(diff, false, how, sizeof how);
    fprintf(out, "%s%s, done %s%s\n", *work ? "different work: " : "the same work", work,
            *how ? "otherwise: " : "alike", how);
}

td_status *td_profile_print_diff(const td_diff *diff, FILE *out)
{
    td_table table;
    print_unlike(diff, out);
    td_table_init(&table, 6);
    for (int i = 1; i < 5; i++)
        table.right[i] = true;
    td_table_row(&table, "median of a step", "before", "after", "change", "noise", "");
    for (int64_t i = 0; i < diff->n; i++) {
        const td_diff_row *row = &diff->rows[i];
        char before[TD_UNIT_TEXT], after[TD_UNIT_TEXT], band[TD_UNIT_TEXT], change[32] = "";
        if (row->before_ns > 0 && row->after_ns >= 0)
            (void)snprintf(change, sizeof change, "%+.1f %%", 100 * (row->after_ns / row->before_ns - 1));
        td_table_row(&table, row->name, time_text(before, row->before_ns), time_text(after, row->after_ns), change,
                     time_text(band, row->band_ns), verdicts[row->verdict + 1]);
    }
    return td_table_print(&table, "  ", out);
}

td_status *td_profile_print_diff_json(const td_diff *diff, FILE *out)
{
    static const char *const names[] = {"shorter", "noise", "longer"};
    json_t *rows = json_array();
    for (int64_t i = 0; i < diff->n; i++) {
        const td_diff_row *row = &diff->rows[i];
        json_t *json = json_pack("{s:s, s:f, s:s}", "name", row->name, "noise_ms", 1e-6 * row->band_ns, "verdict",
                                 names[row->verdict + 1]);
        json_object_set_new(json, "before_ms", row->before_ns < 0 ? json_null() : json_real(1e-6 * row->before_ns));
        json_object_set_new(json, "after_ms", row->after_ns < 0 ? json_null() : json_real(1e-6 * row->after_ns));
        json_array_append_new(rows, json);
    }
    json_t *unlike = json_array();
    for (int32_t i = 0; i < diff->n_unlike; i++)
        json_array_append_new(unlike, json_pack("{s:s, s:b, s:s, s:s}", "what", diff->unlike[i].what, "work",
                                                (int)diff->unlike[i].is_work, "before", diff->unlike[i].before, "after",
                                                diff->unlike[i].after));
    return td_json_print(json_pack("{s:b, s:b, s:o, s:o}", "slower", (int)diff->slower, "same_work",
                                   (int)diff->same_work, "differences", unlike, "rows", rows),
                         out);
}
