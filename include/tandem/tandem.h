/* All of Tandem's public headers. Each also stands alone; read them in this order.
 *
 *     #include "tandem/tandem.h"
 *     cc program.c $(pkg-config --cflags --libs tandem)
 */
#ifndef TANDEM_TANDEM_H
#define TANDEM_TANDEM_H

#include "tandem/status.h"
#include "tandem/backend.h"
#include "tandem/graph.h"
#include "tandem/ops.h"
#include "tandem/optimizer.h"
#include "tandem/data.h"
#include "tandem/plan.h"
#include "tandem/session.h"
#include "tandem/profiler.h"
#include "tandem/job.h"

#endif
