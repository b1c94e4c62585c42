#include "runtime/front/request/front_room.h"

static int find(const struct sy_front *front, uint64_t content)
{
    for (int i = 0; i < SY_FRONT_ROOMS; i++)
        if (front->rooms[i].content == content)
            return i;
    return -1;
}

void sy_front_room_remember(struct sy_front *front, uint64_t content, int64_t times)
{
    int i = find(front, content);

    if (i < 0)
        i = front->next_room++ % SY_FRONT_ROOMS;
    front->rooms[i] = (struct sy_front_room){.content = content, .times = times};
}

int64_t sy_front_room_recall(const struct sy_front *front, uint64_t content)
{
    int i = find(front, content);

    return i < 0 ? 0 : front->rooms[i].times;
}
