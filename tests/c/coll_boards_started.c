/* coll_boards, every collective started and waited for. */
#include "coll_started.h"

#include "coll_boards.c"
