#include "runtime/repository/repository.h"

void sy_repository_wait_cancel(struct sy_repository_wait *wait)
{
    if (!wait->previous)
        return;
    *wait->previous = wait->next;
    if (wait->next)
        wait->next->previous = wait->previous;
    wait->previous = NULL;
}
