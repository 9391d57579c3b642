/* coll_disagree, every collective started and waited for. */
#include "coll_started.h"

#include "coll_disagree.c"
