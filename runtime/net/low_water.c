#include "runtime/net/low_water.h"

#include <sys/socket.h>

#include "runtime/base/assert.h"

void sy_net_set_low_water(int fd, uint32_t *set, uint64_t left)
{
    uint32_t bytes = (uint32_t)SY_MIN(left, (uint64_t)SY_LOW_WATER_BYTES);
    int value = bytes > 0 ? (int)bytes : 1;

    if (bytes != *set && setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value) == 0)
        *set = bytes;
}
