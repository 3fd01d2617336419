/* HTTP for the board: see board/server.h. It reads requests, checks who asks, and sends what td_board_answer says; and keeps
 * /api/v1/events open, where a line comes whenever a file of a run changes.
 *
 * A page of another site that a browser shows cannot read answers (no CORS header is sent), nor reach them under a name of its own
 * that it lets point here: on a loopback address the Host header must name it. */
#include "board/server.h"

#ifdef TANDEM_HAVE_MICROHTTPD
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/memory.h"

struct td_board_server {
    td_board *board;
    struct MHD_Daemon *daemon;
    char *token, *address;
    bool loopback;
    pthread_mutex_t mutex;
    pthread_cond_t ends;
    bool ending;
    int listeners; /* of /api/v1/events: each holds a connection and its thread for as long as it likes */
};

/* One address may have many pages open, but not all connections that there are. */
enum { MOST_CONNECTIONS = 128, MOST_OF_ONE_ADDRESS = 64, MOST_LISTENERS = 24 };

/* ---- who may ask --------------------------------------------------------------------------------------------------------- */

/* Takes as long for a wrong text as for the right one of the same length. */
static bool same_secret(const char *given, const char *wanted)
{
    size_t n = strlen(wanted);
    if (!given || strlen(given) != n)
        return false;
    unsigned char difference = 0;
    for (size_t i = 0; i < n; i++)
        difference |= (unsigned char)(given[i] ^ wanted[i]);
    return difference == 0;
}

static bool is_loopback_name(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (!strncasecmp(host, names[i], n) &&
            (!host[n] || (host[n] == ':' && !host[n + 1 + strspn(host + n + 1, "0123456789")])))
            return true;
    }
    return false;
}

/* 200, or what to refuse with. */
static unsigned check_caller(const td_board_server *server, struct MHD_Connection *connection, bool *out_by_query)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    *out_by_query = false;
    if (server->loopback && (!host || !is_loopback_name(host)))
        return 403;
    if (!server->token)
        return 200;
    const char *bearer = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    const char *query = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token");
    if (bearer && !strncmp(bearer, "Bearer ", 7) && same_secret(bearer + 7, server->token))
        return 200;
    if (same_secret(MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, "tandem_token"), server->token))
        return 200;
    *out_by_query = same_secret(query, server->token);
    return *out_by_query ? 200 : 401;
}

/* ---- answers ---------------------------------------------------------------------------------------------------------------- */

static void add_headers(const td_board_server *server, struct MHD_Response *response, const char *type, bool set_cookie)
{
    static const char *const headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cache-Control", "no-store"},
    };
    MHD_add_response_header(response, "Content-Type", type);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    char *cookie = set_cookie ? td_format("tandem_token=%s; HttpOnly; SameSite=Strict; Path=/", server->token) : NULL;
    if (cookie)
        MHD_add_response_header(response, "Set-Cookie", cookie);
    td_free(cookie);
}

static enum MHD_Result queue(const td_board_server *server, struct MHD_Connection *connection, unsigned status,
                             struct MHD_Response *response, const char *type, bool set_cookie)
{
    if (!response)
        return MHD_NO;
    add_headers(server, response, type, set_cookie);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse_listener(const td_board_server *server, struct MHD_Connection *connection)
{
    static char text[] = "As many pages listen for changes as can; this one must ask for itself.\n";
    struct MHD_Response *response = MHD_create_response_from_buffer(sizeof text - 1, text, MHD_RESPMEM_PERSISTENT);
    if (response)
        MHD_add_response_header(response, "Retry-After", "30");
    return queue(server, connection, 503, response, "text/plain; charset=utf-8", false);
}

static enum MHD_Result refuse(const td_board_server *server, struct MHD_Connection *connection, unsigned status)
{
    static char unauthorized[] =
        "A token is needed: open the address that tandem board printed, with ?token=... at its end.\n";
    static char forbidden[] = "Not under this name: the board is at 127.0.0.1 or localhost.\n";
    static char method[] = "Only GET and HEAD.\n";
    char *text = status == 401 ? unauthorized : status == 403 ? forbidden : method;
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
    return queue(server, connection, status, response, "text/plain; charset=utf-8", false);
}

enum { MOST_PARAMETERS = 32 };

static enum MHD_Result take_parameter(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    td_board_request *request = context;
    (void)kind;
    if (request->n_parameters == MOST_PARAMETERS)
        return MHD_NO;
    td_board_parameter *parameters = (td_board_parameter *)(uintptr_t)request->parameters;
    parameters[request->n_parameters++] = (td_board_parameter){name, value ? value : ""};
    return MHD_YES;
}

static void free_body(void *body)
{
    td_free(body);
}

static enum MHD_Result answer(const td_board_server *server, struct MHD_Connection *connection, const char *path,
                              bool set_cookie)
{
    td_board_parameter parameters[MOST_PARAMETERS];
    td_board_request request = {.path = path, .parameters = parameters};
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, take_parameter, &request);
    td_board_response body = td_board_answer(server->board, &request);
    struct MHD_Response *response =
        body.fixed ? MHD_create_response_from_buffer(body.bytes, body.body, MHD_RESPMEM_PERSISTENT)
                   : MHD_create_response_from_buffer_with_free_callback(body.bytes, body.body, free_body);
    if (!response)
        td_board_response_deinit(&body);
    return queue(server, connection, (unsigned)body.status, response, body.type, set_cookie);
}

/* ---- events ------------------------------------------------------------------------------------------------------------------- */

typedef struct listener {
    td_board_server *server;
    uint64_t state;
    int quiet_s, socket;
} listener;

/* A page that was closed, or another one is opened in its place, has its connection ended: nothing would tell before the next line
 * is sent, and its place is another's. */
static bool is_gone(const listener *l)
{
    char byte;
    return l->socket >= 0 && recv(l->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* A second, or less when the server ends; true: it does. */
static bool wait_a_second(td_board_server *server)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_mutex_lock(&server->mutex);
    if (!server->ending)
        pthread_cond_timedwait(&server->ends, &server->mutex, &until);
    bool ending = server->ending;
    pthread_mutex_unlock(&server->mutex);
    return ending;
}

/* Blocks its connection's own thread until there is something to say. */
static ssize_t next_event(void *context, uint64_t at, char *buffer, size_t room)
{
    enum { QUIET_S = 15 };
    listener *l = context;
    if (!at)
        return snprintf(buffer, room, "retry: 2000\n\n");
    for (;;) {
        if (wait_a_second(l->server) || is_gone(l))
            return MHD_CONTENT_READER_END_OF_STREAM;
        uint64_t state = td_board_state(l->server->board);
        if (state != l->state) {
            l->state = state;
            l->quiet_s = 0;
            return snprintf(buffer, room, "event: change\ndata: %016llx\n\n", (unsigned long long)state);
        }
        if (++l->quiet_s >= QUIET_S) { /* finds out whether anybody still listens */
            l->quiet_s = 0;
            return snprintf(buffer, room, ": quiet\n\n");
        }
    }
}

static bool add_listener(td_board_server *server, int by)
{
    pthread_mutex_lock(&server->mutex);
    bool room = server->listeners + by <= MOST_LISTENERS;
    server->listeners += room ? by : 0;
    pthread_mutex_unlock(&server->mutex);
    return room;
}

static void free_listener(void *context)
{
    listener *l = context;
    (void)add_listener(l->server, -1);
    td_free(l);
}

static enum MHD_Result send_events(td_board_server *server, struct MHD_Connection *connection)
{
    if (!add_listener(server, 1))
        return refuse_listener(server, connection);
    listener *l = td_calloc(1, sizeof *l);
    if (!l) {
        (void)add_listener(server, -1);
        return MHD_NO;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *l = (listener){.server = server, .state = td_board_state(server->board), .socket = info ? info->connect_fd : -1};
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 512, next_event, l, free_listener);
    if (!response)
        free_listener(l);
    return queue(server, connection, 200, response, "text/event-stream", false);
}

/* ---- the server ----------------------------------------------------------------------------------------------------------------- */

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data, size_t *bytes,
                                  void **state)
{
    td_board_server *server = context;
    static int seen;
    (void)version;
    (void)data;
    if (!*state) { /* the header alone is here: what is sent with it is read, and left, before the answer */
        *state = &seen;
        return MHD_YES;
    }
    if (*bytes) {
        *bytes = 0;
        return MHD_YES;
    }
    bool by_query = false;
    unsigned status = check_caller(server, connection, &by_query);
    if (status == 200 && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        status = 405;
    if (status != 200)
        return refuse(server, connection, status);
    if (!strcmp(path, "/api/v1/events") && !strcmp(method, "GET"))
        return send_events(server, connection);
    return answer(server, connection, path, by_query);
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* Unreserved characters of an address (RFC 3986, 2.3), which a cookie may have too. */
static bool is_carried_anywhere(const char *token)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    return *token && !token[strspn(token, plain)];
}

static td_status *listen_on(td_board_server *server, const char *host, int port, const struct addrinfo *found)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                     (found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0u);
    server->loopback = is_loopback(found->ai_addr);
    if (server->token && !is_carried_anywhere(server->token))
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "--token: it is carried by addresses and cookies"),
                              "use letters, digits, and -._~ only");
    if (!server->loopback && !server->token)
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "--host %s: other machines could read these runs", host),
                              "give a secret that they must bring: --token TEXT");
    server->daemon =
        MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, on_request, server, MHD_OPTION_SOCK_ADDR, found->ai_addr,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                         (unsigned)MOST_OF_ONE_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT, 120u, MHD_OPTION_END);
    if (!server->daemon)
        return td_status_help(TD_ERROR(TD_IO, "%s:%d: %s", host, port, strerror(errno)),
                              "another port: --port N; any that is free: --port 0");
    const union MHD_DaemonInfo *bound = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    bool bracket = strchr(host, ':') != NULL;
    server->address =
        td_format("http://%s%s%s:%d/", bracket ? "[" : "", host, bracket ? "]" : "", bound ? (int)bound->port : port);
    return server->address ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for an address");
}

td_status *td_board_server_start(td_board *board, const td_board_server_options *options, td_board_server **out_server)
{
    const char *host = options->host ? options->host : "127.0.0.1";
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char service[16];
    td_board_server *server;
    *out_server = NULL;
    TD_TRY(TD_NEW(server, 1));
    server->board = board;
    pthread_mutex_init(&server->mutex, NULL);
    pthread_cond_init(&server->ends, NULL);
    snprintf(service, sizeof service, "%d", options->port);
    server->token = options->token ? td_strdup(options->token) : NULL;
    td_status *status =
        options->token && !server->token ? TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a token") : NULL;
    int error = status ? 0 : getaddrinfo(host, service, &hints, &found);
    if (error)
        status = td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "--host %s: %s", host, gai_strerror(error)),
                                "name an address of this machine: 127.0.0.1, 0.0.0.0 (all), ::1");
    if (!status)
        status = listen_on(server, host, options->port, found);
    if (found)
        freeaddrinfo(found);
    if (status)
        td_board_server_stop(server);
    else
        *out_server = server;
    return status;
}

const char *td_board_server_address(const td_board_server *server)
{
    return server->address;
}

void td_board_server_stop(td_board_server *server)
{
    if (!server)
        return;
    pthread_mutex_lock(&server->mutex);
    server->ending = true;
    pthread_cond_broadcast(&server->ends);
    pthread_mutex_unlock(&server->mutex);
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    pthread_cond_destroy(&server->ends);
    pthread_mutex_destroy(&server->mutex);
    td_free(server->token);
    td_free(server->address);
    td_free(server);
}

#else

td_status *td_board_server_start(td_board *board, const td_board_server_options *options, td_board_server **out_server)
{
    (void)board;
    (void)options;
    *out_server = NULL;
    return td_status_help(
        TD_ERROR(TD_UNSUPPORTED, "this program was built without libmicrohttpd, which serves the page"),
        "install libmicrohttpd-dev and build again");
}

const char *td_board_server_address(const td_board_server *server)
{
    (void)server;
    return "";
}

void td_board_server_stop(td_board_server *server)
{
    (void)server;
}

#endif
