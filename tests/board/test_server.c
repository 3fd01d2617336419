/* The board on a socket: who is answered, and that nobody takes all connections there are. Raw requests, so that each header is the
 * test's own. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#include "board/server.h"

static char folder[64];
static td_board *board;
static td_board_server *server;

static void ok(td_status *status)
{
    if (status)
        fail_msg("%s", td_status_message(status));
}

static int enter(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tandem_server_XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    ok(td_board_open(folder, &board));
    return 0;
}

static int leave(void **state)
{
    (void)state;
    td_board_server_stop(server);
    server = NULL;
    td_board_close(board);
    board = NULL;
    return rmdir(folder);
}

static void serve(const char *host, const char *token)
{
    const td_board_server_options options = {.host = host, .token = token};
    td_status *status = td_board_server_start(board, &options, &server);
    if (td_status_code(status) == TD_UNSUPPORTED) { /* built without libmicrohttpd */
        td_status_destroy(status);
        skip();
    }
    ok(status);
}

/* A connection to the server, with a request sent. */
static int begin(const char *request)
{
    const char *port = strrchr(td_board_server_address(server), ':') + 1;
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval most = {.tv_sec = 60};
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(connection >= 0);
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    assert_int_equal(connect(connection, (const struct sockaddr *)(const void *)&address, sizeof address), 0);
    assert_int_equal(send(connection, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    return connection;
}

/* The first line's number, 0 where the connection ended without an answer; what came of it in `answer`. */
static int read_answer(int connection, char answer[4096])
{
    size_t n = 0;
    for (ssize_t got; n < 4095 && (got = recv(connection, answer + n, 4095 - n, 0)) > 0; n += (size_t)got)
        if (memmem(answer, n + (size_t)got, "\r\n\r\n", 4)) {
            n += (size_t)got;
            break;
        }
    answer[n] = '\0';
    return n > 12 && !strncmp(answer, "HTTP/1.1 ", 9) ? atoi(answer + 9) : 0;
}

static int ask(const char *request, char answer[4096])
{
    int connection = begin(request), status = read_answer(connection, answer);
    close(connection);
    return status;
}

#define END "Connection: close\r\n\r\n"

static void test_only_the_board_s_own_names_are_answered(void **state)
{
    (void)state;
    char answer[4096];
    serve(NULL, NULL);
    assert_int_equal(ask("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" END, answer), 200);
    assert_non_null(strstr(answer, "Content-Security-Policy: default-src 'self'"));
    assert_null(strcasestr(answer, "Access-Control-Allow-Origin"));
    assert_int_equal(ask("GET / HTTP/1.1\r\nHost: localhost:99\r\n" END, answer), 200);
    assert_int_equal(ask("GET / HTTP/1.1\r\nHost: elsewhere.example\r\n" END, answer), 403);
    assert_int_equal(ask("GET / HTTP/1.1\r\nHost: 127.0.0.1.elsewhere.example\r\n" END, answer), 403);
    assert_int_equal(ask("DELETE /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n" END, answer), 405);
    assert_int_equal(ask("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\n" END "abc", answer), 405);
    assert_int_equal(ask("GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n" END, answer), 404);
}

static void test_elsewhere_a_token_is_needed(void **state)
{
    (void)state;
    char answer[4096];
    const td_board_server_options bare = {.host = "0.0.0.0"};
    td_status *status = td_board_server_start(board, &bare, &server);
    if (td_status_code(status) != TD_UNSUPPORTED)
        assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
    td_status_destroy(status);
    assert_null(server);
    const td_board_server_options spaced = {.host = "0.0.0.0", .token = "a secret"};
    status = td_board_server_start(board, &spaced, &server);
    assert_int_not_equal(td_status_code(status), TD_OK);
    td_status_destroy(status);
    assert_null(server);
    serve("0.0.0.0", "a~secret");
    assert_int_equal(ask("GET / HTTP/1.1\r\nHost: board\r\n" END, answer), 401);
    assert_int_equal(ask("GET /api/v1/runs?token=wrong HTTP/1.1\r\nHost: board\r\n" END, answer), 401);
    assert_int_equal(ask("GET /api/v1/runs?token=a~secretary HTTP/1.1\r\nHost: board\r\n" END, answer), 401);
    assert_int_equal(ask("GET /api/v1/events?token= HTTP/1.1\r\nHost: board\r\n" END, answer), 401);
    assert_int_equal(ask("GET / HTTP/1.1\r\nHost: board\r\nAuthorization: Bearer a~secret\r\n" END, answer), 200);
    assert_null(strstr(answer, "Set-Cookie"));
    assert_int_equal(ask("GET /?token=a%7Esecret HTTP/1.1\r\nHost: board\r\n" END, answer), 200);
    assert_non_null(strstr(answer, "Set-Cookie: tandem_token=a~secret; HttpOnly; SameSite=Strict"));
    assert_int_equal(ask("GET / HTTP/1.1\r\nHost: board\r\nCookie: tandem_token=a~secret\r\n" END, answer), 200);
    assert_int_equal(ask("GET / HTTP/1.1\r\nHost: board\r\nCookie: tandem_token=b~secret\r\n" END, answer), 401);
}

static void test_listeners_and_connections_are_bounded(void **state)
{
    (void)state;
    enum { LISTENERS = 24, CONNECTIONS = 64 };
    static const char listen[] = "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    static const char listen_once[] = "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n" END;
    static const char page[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" END;
    char answer[4096];
    int connections[CONNECTIONS];
    serve(NULL, NULL);
    for (int i = 0; i < LISTENERS; i++) {
        connections[i] = begin(listen);
        assert_int_equal(read_answer(connections[i], answer), 200);
    }
    assert_int_equal(ask(listen_once, answer), 503);
    assert_int_equal(ask(page, answer), 200); /* others are served all the same */
    for (int i = LISTENERS; i < CONNECTIONS; i++) {
        connections[i] = begin("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        assert_int_equal(read_answer(connections[i], answer), 200); /* and stays open */
    }
    int refused = begin(page);
    assert_int_equal(read_answer(refused, answer), 0);
    close(refused);
    for (int i = 0; i < CONNECTIONS; i++)
        close(connections[i]);
    do /* places of listeners that have gone are given again */
        refused = ask(listen_once, answer);
    while (refused == 503 || !refused);
    assert_int_equal(refused, 200);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_only_the_board_s_own_names_are_answered),
        TEST(test_elsewhere_a_token_is_needed),
        TEST(test_listeners_and_connections_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
