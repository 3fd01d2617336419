/* The board on a network address, by libmicrohttpd. On a loopback address by default, which no other machine reaches; anywhere else
 * every request must bring a token. Requests are answered on threads of its own: one address has at most 64 connections of 128,
 * and at most 24 pages listen for changes at a time; the next one is answered 503. */
#ifndef TANDEM_BOARD_SERVER_H
#define TANDEM_BOARD_SERVER_H

#include "board/board.h"

typedef struct td_board_server td_board_server;

typedef struct td_board_server_options {
    const char *host;  /* NULL: 127.0.0.1 */
    int port;          /* 0: any that is free */
    const char *token; /* NULL: none, which only a loopback address allows */
} td_board_server_options;

/* The board must outlive the server. */
td_status *td_board_server_start(td_board *board, const td_board_server_options *options,
                                 td_board_server **out_server) TD_MUST_USE;
/* "http://127.0.0.1:6060/"; lives as long as the server. */
const char *td_board_server_address(const td_board_server *server);
/* Ends connections too. NULL is fine. */
void td_board_server_stop(td_board_server *server);

#endif
