/* Which path is answered by whom, and errors as answers: see board/board.h. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "board/board.h"
#include "board/page.h"

const char *td_board_parameter_of(const td_board_request *request, const char *name)
{
    for (int32_t i = 0; i < request->n_parameters; i++)
        if (!strcmp(request->parameters[i].name, name))
            return request->parameters[i].value;
    return NULL;
}

double td_board_number(const td_board_request *request, const char *name, double fallback, double least, double most)
{
    const char *text = td_board_parameter_of(request, name);
    char *end = NULL;
    double number = text && *text ? strtod(text, &end) : fallback;
    if (end && *end)
        number = fallback;
    return number >= least ? number <= most ? number : most : least; /* NaN: the least */
}

typedef struct route {
    const char *path;
    td_status *(*handle)(td_board *board, const td_board_request *request, td_string *out);
    const char *type;
} route;

#define JSON_TYPE "application/json; charset=utf-8"

static const route routes[] = {
    {"/api/v1/runs", td_board_get_runs, JSON_TYPE},
    {"/api/v1/run", td_board_get_run, JSON_TYPE},
    {"/api/v1/tags", td_board_get_tags, JSON_TYPE},
    {"/api/v1/scalars", td_board_get_scalars, JSON_TYPE},
    {"/api/v1/histograms", td_board_get_histograms, JSON_TYPE},
    {"/api/v1/tensors", td_board_get_tensors, JSON_TYPE},
    {"/api/v1/images", td_board_get_images, JSON_TYPE},
    {"/api/v1/image", td_board_get_image, "image/png"},
    {"/api/v1/texts", td_board_get_texts, JSON_TYPE},
    {"/api/v1/landscape", td_board_get_landscape, JSON_TYPE},
    {"/api/v1/profile", td_board_get_profile, JSON_TYPE},
    {"/api/v1/curves", td_board_get_curves, JSON_TYPE},
    {"/api/v1/step", td_board_get_step, JSON_TYPE},
    {"/api/v1/timeline", td_board_get_timeline, JSON_TYPE},
    {"/api/v1/cluster", td_board_get_cluster, JSON_TYPE},
};

static td_board_response failure(int status, const char *message)
{
    td_string body = {0};
    char *text = NULL;
    td_string_append(&body, "{\"error\": ");
    td_board_quote(&body, message, strlen(message));
    td_string_append(&body, "}\n");
    size_t bytes = body.length;
    td_status *failed = td_string_finish(&body, &text);
    if (failed) {
        td_status_destroy(failed);
        static char nothing[] = "{\"error\": \"out of memory\"}\n";
        return (td_board_response){500, JSON_TYPE, nothing, sizeof nothing - 1, true};
    }
    return (td_board_response){status, JSON_TYPE, text, bytes, false};
}

static int http_status(td_code code)
{
    return code == TD_NOT_FOUND ? 404 : code == TD_INVALID_ARGUMENT ? 400 : code == TD_DATA_ERROR ? 422 : 500;
}

static td_board_response answer_route(td_board *board, const td_board_request *request, const route *r)
{
    td_string out = {0};
    char *text = NULL;
    pthread_mutex_lock(&board->mutex);
    board->left_bytes = board->most_at_once;
    td_status *status = r->handle(board, request, &out);
    pthread_mutex_unlock(&board->mutex);
    size_t bytes = out.length;
    if (!status)
        status = td_string_finish(&out, &text);
    if (!status)
        return (td_board_response){200, r->type, text, bytes, false};
    td_string_deinit(&out);
    td_board_response response = failure(http_status(td_status_code(status)), td_status_message(status));
    td_status_destroy(status);
    return response;
}

td_board_response td_board_answer(td_board *board, const td_board_request *request)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(routes[i].path, request->path))
            return answer_route(board, request, &routes[i]);
    const td_board_asset *asset = td_board_asset_find(!strcmp(request->path, "/") ? "/index.html" : request->path);
    if (asset)
        return (td_board_response){200, asset->type, (char *)(uintptr_t)asset->data, asset->bytes, true};
    return failure(404, "there is nothing here; / is the page, docs/board.md lists what /api/v1 has");
}

void td_board_response_deinit(td_board_response *response)
{
    if (!response->fixed)
        td_free(response->body);
    *response = (td_board_response){0};
}
