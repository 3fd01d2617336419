/* The step trace's curves, and one step in detail. */
#include "board/traces.h"
#include "profiler/report.h"

TD_BOARD_HANDLER(get_curves)
{
    const td_analysis *analysis = NULL;
    json_t *json = NULL;
    double from = td_board_number(request, "from", 0, 0, 9e15), to = td_board_number(request, "to", 9e15, 0, 9e15);
    TD_TRY(td_board_analysis_of(board, request, &analysis));
    TD_TRY(td_report_curves_json(analysis, (int64_t)from, (int64_t)to, &json));
    return td_board_put_json(out, json);
}

TD_BOARD_HANDLER(get_step)
{
    const td_analysis *analysis = NULL;
    json_t *json = NULL;
    double step = td_board_number(request, "step", -1, -1, 9e15);
    if (step < 0)
        return TD_ERROR(TD_INVALID_ARGUMENT, "which step? ask with step=N");
    TD_TRY(td_board_analysis_of(board, request, &analysis));
    TD_TRY(td_report_step_json(analysis, (int64_t)step, &json));
    return td_board_put_json(out, json);
}
