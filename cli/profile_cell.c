/* See cli/profile_cell.h. */
#include "cli/profile_cell.h"

#include <stdio.h>

const char *td_cell_time(td_cell *cell, double ns)
{
    return ns > 0 ? td_format_seconds(cell->text, ns * 1e-9) : "-";
}

const char *td_cell_share(td_cell *cell, double part, double whole)
{
    (void)snprintf(cell->text, sizeof cell->text, "%.0f %%", whole > 0 ? 100 * part / whole : 0);
    return cell->text;
}
