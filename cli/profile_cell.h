/* Texts in the cells of a profile's tables. Each keeps its own buffer, so that a row may have several. */
#ifndef TANDEM_CLI_PROFILE_CELL_H
#define TANDEM_CLI_PROFILE_CELL_H

#include "base/units.h"

typedef struct td_cell {
    char text[TD_UNIT_TEXT];
} td_cell;

/* "1.2 ms"; "-" for no time. Texts last as long as the cell. */
const char *td_cell_time(td_cell *cell, double ns);
/* "12 %" of the whole; "0 %" where there is no whole. */
const char *td_cell_share(td_cell *cell, double part, double whole);

#endif
