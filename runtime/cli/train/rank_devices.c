#include "runtime/cli/train/rank_devices.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "runtime/base/assert.h"

static const char *next_in_list(const char *at)
{
    at += strcspn(at, ",");
    return *at ? at + 1 : NULL;
}

static int length_of(const char *devices)
{
    int n = 0;
    for (const char *at = devices; at; at = next_in_list(at))
        n++;
    return n;
}

static bool is_same_device(const char *a, const char *b)
{
    size_t n = strcspn(a, ",");
    return n == strcspn(b, ",") && strncmp(a, b, n) == 0;
}

const char *sy_rank_device(char *devices, long local_rank)
{
    for (long left = local_rank % length_of(devices); left > 0; left--)
        devices = strchr(devices, ',') + 1;
    devices[strcspn(devices, ",")] = '\0';
    return devices;
}

int sy_rank_devices_most_on_one(const char *devices, int n_ranks)
{
    int n = length_of(devices), most = 0;
    for (const char *device = devices; device; device = next_in_list(device)) {
        int here = 0, i = 0;
        for (const char *at = devices; at; at = next_in_list(at), i++)
            if (is_same_device(at, device))
                here += n_ranks / n + (i < n_ranks % n);
        most = SY_MAX(most, here);
    }
    return devices ? most : n_ranks;
}
