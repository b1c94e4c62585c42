/* switchyard-cuda-keeper FD ORDINAL BYTES: owns a pool for as long as FD's other end is open (pool_keeper.h). */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/device/cuda/pool_keeper.h"

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "%s: started by switchyard itself, with a socket, a device and a size\n",
                argv[0]);
        return 1;
    }
    return sy_pool_keeper_run(atoi(argv[1]), atoi(argv[2]), strtoull(argv[3], NULL, 10));
}
