/* The files of the page, which are part of the program: board/page/ as it was when the program was built. */
#ifndef TANDEM_BOARD_PAGE_H
#define TANDEM_BOARD_PAGE_H

#include <stddef.h>

typedef struct td_board_asset {
    const char *path, *type; /* "/main.js" */
    const unsigned char *data;
    size_t bytes;
} td_board_asset;

/* Made by cmake/page.cmake; a NULL path ends it. */
extern const td_board_asset td_board_assets[];
/* NULL: there is none. */
const td_board_asset *td_board_asset_find(const char *path);

#endif
