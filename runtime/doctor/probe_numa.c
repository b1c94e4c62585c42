/* How much slower the memory of other nodes is. */
#include <math.h>
#include <numa.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/doctor/probe.h"
#include "runtime/doctor/read_rate.h"

#define BYTES   (64ull << 20)
#define N_TIMES 3

static double node_gbps(int node)
{
    void *memory = numa_alloc_onnode(BYTES, node);
    if (!memory)
        return NAN;
    memset(memory, 1, BYTES);
    double gbps = sy_read_gbps(memory, BYTES, N_TIMES);
    numa_free(memory, BYTES);
    return gbps;
}

void sy_probe_numa(struct sy_doctor_facts *facts)
{
    double best = NAN, worst = NAN;
    if (numa_available() < 0) {
        facts->numa_nodes = 1;
        return;
    }
    facts->numa_nodes = numa_num_configured_nodes();
    for (int node = 0; facts->numa_nodes > 1 && node <= numa_max_node(); node++) {
        if (!numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned)node))
            continue;
        double gbps = node_gbps(node);
        best = fmax(best, gbps);
        worst = fmin(worst, gbps);
    }
    facts->numa_far_percent = worst / best * 100;
}
