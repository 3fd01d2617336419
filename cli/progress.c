/* Progress on a terminal and elsewhere: see cli/progress.h. */
#include "cli/progress.h"

#include "base/units.h"
#include "cli/terminal.h"

enum { REWRITE_NS = 100000000, LINE = 256 };

const char *td_clock_text(double seconds, char buffer[32])
{
    long long whole = seconds > 0 ? (long long)(seconds + 0.5) : 0;
    if (whole >= 3600)
        snprintf(buffer, 32, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(buffer, 32, "%lld:%02lld", whole / 60, whole % 60);
    return buffer;
}

void td_progress_start(td_progress *progress, int64_t first_step, int64_t now_ns)
{
    progress->started_ns = progress->shown_ns = progress->interval_ns = now_ns;
    progress->step = progress->first_step = first_step;
    progress->samples = progress->interval_samples = progress->n_losses = 0;
    progress->rate = 0;
    progress->line_open = false;
}

double td_progress_recent_loss(const td_progress *progress)
{
    int64_t n = progress->n_losses < TD_PROGRESS_WINDOW ? progress->n_losses : TD_PROGRESS_WINDOW;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)progress->losses[i];
    return n ? sum / (double)n : 0;
}

static void update_rate(td_progress *progress, int64_t now_ns)
{
    double seconds = (double)(now_ns - progress->interval_ns) / 1e9;
    if (seconds <= 0)
        return;
    double now = (double)progress->interval_samples / seconds;
    progress->rate = progress->rate > 0 ? 0.7 * progress->rate + 0.3 * now : now;
    progress->interval_ns = now_ns;
    progress->interval_samples = 0;
}

static void show_line(FILE *stream, bool terminal, const char *line)
{
    if (terminal) {
        td_terminal_rewrite(stream, line);
        return;
    }
    fprintf(stream, "%s\n", line);
    fflush(stream);
}

/* By a number of steps: these are counted then, rather than those of the epoch. */
static bool ends_within_an_epoch(const td_progress *progress)
{
    return progress->steps_per_epoch > 0 && progress->steps / progress->steps_per_epoch < progress->epochs &&
           progress->steps != progress->epochs * progress->steps_per_epoch;
}

static void show(td_progress *progress, int64_t epoch, int64_t batch, int64_t now_ns)
{
    char rate[TD_UNIT_TEXT], left[32], line[LINE];
    double elapsed = (double)(now_ns - progress->started_ns) / 1e9;
    int64_t done = progress->step - progress->first_step;
    double seconds_left = done > 0 ? elapsed / (double)done * (double)(progress->steps - progress->step) : 0;
    double share = progress->steps > 0 ? 100.0 * (double)progress->step / (double)progress->steps : 0;
    const bool ends_early = ends_within_an_epoch(progress);
    update_rate(progress, now_ns);
    (void)snprintf(
        line, sizeof line, "epoch %lld/%lld  %lld/%lld steps  %.0f %%  loss %.4f  %s samples/s  %s left",
        (long long)epoch + 1, (long long)progress->epochs, (long long)(ends_early ? progress->step : batch + 1),
        (long long)(ends_early ? progress->steps : progress->steps_per_epoch), share, td_progress_recent_loss(progress),
        td_format_count(rate, progress->rate), td_clock_text(seconds_left, left));
    show_line(progress->stream, progress->terminal, line);
    progress->line_open = progress->terminal;
    progress->shown_ns = now_ns;
}

void td_progress_step(td_progress *progress, int64_t epoch, int64_t batch, int64_t samples, float loss, int64_t now_ns)
{
    progress->step++;
    progress->samples += samples;
    progress->interval_samples += samples;
    progress->losses[progress->n_losses++ % TD_PROGRESS_WINDOW] = loss;
    if (!progress->stream)
        return;
    bool last = progress->step == progress->steps;
    bool due = progress->terminal ? now_ns - progress->shown_ns >= REWRITE_NS : progress->step % progress->every == 0;
    if (due || last)
        show(progress, epoch, batch, now_ns);
}

void td_progress_end(td_progress *progress)
{
    if (progress->stream && progress->line_open)
        fputc('\n', progress->stream);
    progress->line_open = false;
}

/* ---- other work --------------------------------------------------------------------------------------------------------------- */

void td_work_start(td_work_progress *work, int64_t now_ns)
{
    work->done = 0;
    work->started_ns = work->shown_ns = now_ns;
    work->line_open = false;
}

static void show_work(td_work_progress *work, int64_t now_ns)
{
    char rate[TD_UNIT_TEXT], left[32], line[LINE];
    double seconds = (double)(now_ns - work->started_ns) / 1e9, each = seconds / (double)work->done;
    (void)snprintf(line, sizeof line, "%s  %lld/%lld %s  %.0f %%  %s %s/s  %s left", work->what, (long long)work->done,
                   (long long)work->all, work->unit, 100.0 * (double)work->done / (double)work->all,
                   td_format_count(rate, each > 0 ? 1 / each : 0), work->unit,
                   td_clock_text(each * (double)(work->all - work->done), left));
    show_line(work->stream, work->terminal, line);
    work->line_open = work->terminal;
    work->shown_ns = now_ns;
}

void td_work_step(td_work_progress *work, int64_t now_ns)
{
    work->done++;
    if (!work->stream || work->all <= 0)
        return;
    const bool tenth = work->done * 10 / work->all > (work->done - 1) * 10 / work->all;
    if (work->terminal ? now_ns - work->shown_ns >= REWRITE_NS || work->done == work->all : tenth)
        show_work(work, now_ns);
}

void td_work_end(td_work_progress *work)
{
    if (work->stream && work->line_open)
        fputc('\n', work->stream);
    work->line_open = false;
}
