/* The simulator's files: traces of requests and jobs, models, devices, profiles, tenants, faults, and the words of a generator. The first byte chooses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/base/text_copy.h"
#include "runtime/sim/sim_trace.h"
#include "tests/fuzz/fuzz.h"

static void read_models(const char *path)
{
    struct sy_sim_tenants tenants = {0};
    struct sy_sim_model *models = NULL;
    int n = 0;
    if (sy_sim_read_models(path, &tenants, &models, &n) == SY_OK)
        for (int i = 0; i < n; i++)
            FUZZ_CHECK(models[i].tenant >= 0 && models[i].tenant < SY_SIM_MAX_TENANTS);
    free(models);
}

static void read_jobs(const char *path)
{
    struct sy_sim_tenants tenants = {0};
    struct sy_sim_job *jobs = NULL;
    int n = 0;
    if (sy_sim_read_jobs(path, &tenants, &jobs, &n) == SY_OK)
        for (int i = 0; i < n; i++)
            FUZZ_CHECK(jobs[i].utilization >= 0 && jobs[i].utilization <= 1);
    free(jobs);
}

static void read_requests(const char *path)
{
    struct sy_sim_model *models = NULL;
    struct sy_sim_request *requests = NULL;
    uint64_t n = 0;
    FUZZ_CHECK(sy_sim_example_models(3, &models) == SY_OK);
    if (sy_sim_read_requests(path, models, 3, &requests, &n) == SY_OK)
        for (uint64_t i = 0; i < n; i++)
            FUZZ_CHECK(requests[i].model >= 0 && requests[i].model < 3);
    free(requests);
    free(models);
}

static void read_devices(const char *path)
{
    const struct sy_sim_kind otherwise = {
        .n_devices = 1, .pool_bytes = 1 << 30, .link_gbps = 12, .speed = 1};
    struct sy_sim_kind *kinds = NULL;
    int n = 0;
    if (sy_sim_read_devices(path, &otherwise, &kinds, &n) == SY_OK)
        FUZZ_CHECK(n >= 1);
    free(kinds);
}

static void read_faults(const char *path)
{
    struct sy_sim_fault *faults = NULL;
    int n = 0;
    (void)sy_sim_read_faults(path, &faults, &n);
    free(faults);
}

static void parse_generator(const uint8_t *data, size_t size)
{
    struct sy_sim_generator g;
    char *text = sy_text_copy(data, size);
    FUZZ_CHECK(text);
    if (sy_sim_generator_parse(text, &g) == SY_OK)
        FUZZ_CHECK(isfinite(g.rate) && isfinite(g.seconds) && g.n_models >= 0);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sy_sim_tenants tenants = {0};
    if (size < 1)
        return 0;
    if (data[0] % 7 == 0) {
        parse_generator(data + 1, size - 1);
        return 0;
    }
    const char *path = fuzz_file(data + 1, size - 1);
    switch (data[0] % 7) {
    case 1:
        read_models(path);
        break;
    case 2:
        read_jobs(path);
        break;
    case 3:
        read_requests(path);
        break;
    case 4:
        read_devices(path);
        break;
    case 5:
        read_faults(path);
        break;
    default:
        (void)sy_sim_read_tenants(path, &tenants);
        FUZZ_CHECK(tenants.n >= 0 && tenants.n <= SY_SIM_MAX_TENANTS);
    }
    return 0;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "0rate=100,seconds=60,zipf=1,models=20,classes=2,deadline-ms=100,swing=0.5,period=60,burst="
        "5,"
        "burst-every=30,burst-last=2",
        "1model,mb,compute_ms,groups,samples_ms,tenant\nresnet,240,8.5,4,8 9 10,a\n\"b\",10,1,,,\n",
        "2# "
        "jobs\nname,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb,utilization,tenant,"
        "priority,weight\nj1,0,100,10,100,200,0.9,a,1,2\r\nj2,1.5,10,20,1,2,,,,\n",
        "3time_s,model,class,deadline_ms,served_ms\n0,resnet152,0,100,5\n1e-3,bert_base,1,,\n",
        "4device,count,pool_mb,link_gbps,lost_ns_per_byte,unified,speed,contention\nv100,2,16000,"
        "12,0,0,1,0\n"
        "gh,1,90000,400,0.1,1,2,0.5\n",
        "5time_s,device,kind,duration_s,factor\n1,0,worker_dies,2,\n3,0,link_slows,1,0.5\n",
        "6tenant,weight,hard_share,memory_mb\na,2,0.5,1000\nb,1,0,0\n",
    };
    if ((size_t)i >= sizeof seeds / sizeof *seeds)
        return 0;
    size_t n = fuzz_give(seeds[i], strlen(seeds[i]), to, room);
    to[0] = (uint8_t)(to[0] - '0');
    return n;
}
