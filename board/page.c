/* Finding a file of the page: see board/page.h. */
#include "board/page.h"

#include <string.h>

const td_board_asset *td_board_asset_find(const char *path)
{
    for (const td_board_asset *asset = td_board_assets; asset->path; asset++)
        if (!strcmp(asset->path, path))
            return asset;
    return NULL;
}
