/* What a simulation is fed with: CSV files, read or refused with file and line, and requests made by chance. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/sim/sim_trace.h"

static char path[64];
static struct sy_sim_tenants tenants; /* that files have named */

static const char *file_with(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

enum kind { MODELS, JOBS, REQUESTS, FAULTS, DEVICES, TENANTS, PROFILES };

static int read_one(enum kind kind, const char *text)
{
    static const struct sy_sim_model known[] = {
        {.name = "a", .bytes = 1, .compute_ns = 1, .n_groups = 1},
        {.name = "b", .bytes = 1, .compute_ns = 1, .n_groups = 1}};
    static const struct sy_sim_kind otherwise = {.pool_bytes = 1, .link_gbps = 1, .speed = 1};
    static const struct sy_sim_input in = {.models = known, .n_models = 2};
    static const struct sy_sim_config config = {.device = {.name = "d"}};
    void *out = NULL;
    uint64_t count;
    int n, status;
    file_with(text);
    switch (kind) {
    case MODELS:
        status = sy_sim_read_models(path, &tenants, (struct sy_sim_model **)&out, &n);
        break;
    case JOBS:
        status = sy_sim_read_jobs(path, &tenants, (struct sy_sim_job **)&out, &n);
        break;
    case REQUESTS:
        status = sy_sim_read_requests(path, known, 2, (struct sy_sim_request **)&out, &count);
        break;
    case DEVICES:
        status = sy_sim_read_devices(path, &otherwise, (struct sy_sim_kind **)&out, &n);
        break;
    case TENANTS:
        tenants.n = 0;
        status = sy_sim_read_tenants(path, &tenants);
        break;
    case PROFILES:
        status = sy_sim_read_profiles(path, &in, &config, (struct sy_sim_profile **)&out, &n);
        break;
    default:
        status = sy_sim_read_faults(path, (struct sy_sim_fault **)&out, &n);
        break;
    }
    free(out);
    return status;
}

/* Refused, and the words begin with the file's name and `says`, as ":3: " and what is there. */
static void assert_refused(enum kind kind, const char *text, const char *says)
{
    assert_int_equal(read_one(kind, text), SY_EARG);
    const char *error = sy_error_text();
    if (strncmp(error, path, strlen(path)) != 0 || !strstr(error, says))
        fail_msg("\"%s\" was expected in: %s", says, error);
}

#define JOB_COLUMNS "name,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb,utilization"

/* A byte of 0 ends a string, not a line: what is behind it must not be lost, nor be taken for a line that is too long. */
static void test_bytes_that_are_no_text(void **state)
{
    (void)state;
    static const char text[] = "time_s,model\n0,a\n1,a\0b\n2,b\n", *const says = ":3: a byte of 0";
    const struct sy_sim_model known[] = {{.name = "a", .bytes = 1, .compute_ns = 1, .n_groups = 1},
                                         {.name = "b", .bytes = 1, .compute_ns = 1, .n_groups = 1}};
    struct sy_sim_request *out;
    uint64_t n;
    FILE *file = fopen(path, "w");
    fwrite(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_int_equal(sy_sim_read_requests(path, known, 2, &out, &n), SY_EARG);
    assert_non_null(strstr(sy_error_text(), says));
}

static void test_each_request_finds_its_model(void **state)
{
    (void)state;
    enum { N = 300 };
    static struct sy_sim_model models[N];
    struct sy_sim_request *out;
    uint64_t n;
    FILE *file = fopen(path, "w");
    fputs("time_s,model\n", file);
    for (int i = 0; i < N; i++) {
        snprintf(models[i].name, sizeof models[i].name, "m%d", (i * 7) % N);
        fprintf(file, "%d,m%d\n%d,m%d\n", i, (i * 77) % N, i, (i * 77) % N);
    }
    fclose(file);
    assert_int_equal(sy_sim_read_requests(path, models, N, &out, &n), SY_OK);
    assert_int_equal(n, 2 * N);
    for (int i = 0; i < 2 * N; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", (i / 2 * 77) % N);
        assert_string_equal(models[out[i].model].name, name);
    }
    free(out);
}

static void test_errors_name_the_line(void **state)
{
    (void)state;
    assert_refused(MODELS, "", "is empty");
    assert_refused(MODELS, "# only a comment\n", "is empty");
    assert_refused(MODELS, "model,mb\n", "names no column compute_ms");
    assert_refused(MODELS, "model,mb,compute_ms\na,1,2\nb,many,2\n", ":3: mb is \"many\"");
    assert_refused(MODELS, "model,mb,compute_ms\na,1\n", ":2: compute_ms is \"\"");
    assert_refused(MODELS, "model,mb,compute_ms\n,1,2\n", ":2: model is \"\"");
    assert_refused(MODELS, "model,mb,compute_ms,groups\na,1,2,1.5\n", ":2: groups is 1.5");
    assert_refused(MODELS, "model,mb,compute_ms\na,1,2\na,1,2\n", "two models are called a");
    assert_refused(MODELS, "model,mb,compute_ms\na,nan,2\n", ":2: mb");
    assert_refused(MODELS, "model,mb,compute_ms\na,inf,2\n", ":2: mb");
    assert_refused(MODELS, "model,mb,compute_ms\na,-1,2\n", ":2: mb");
    assert_refused(REQUESTS, "time_s,model\n# c\n\n0.5,a\n1,c\n", ":5: no model c");
    assert_refused(REQUESTS, "time_s,model,class\n0,a,10\n", ":2: class is 10");
    assert_refused(REQUESTS, "time_s,model,class\n0,a,0.5\n", ":2: class is 0.5");
    assert_refused(REQUESTS, "time_s,model,class,deadline_ms\n0,a,0,x\n", ":2: deadline_ms");
    assert_refused(JOBS, "name,submit_s,iterations,iteration_ms,persistent_mb\n",
                   "names no column ephemeral_mb");
    assert_refused(JOBS,
                   "name,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb\n"
                   "j,0,1.5,1,1,1\n",
                   ":2: iterations is 1.5");
    assert_refused(MODELS, "model,mb,compute_ms,samples_ms\na,1,2,1;2\n", ":2: samples_ms");
    assert_refused(MODELS, "model,mb,compute_ms,samples_ms\na,1,2,1 0\n", ":2: samples_ms");
    assert_refused(MODELS, "model,mb,compute_ms,outside_ms\na,1,2,-1\n", ":2: outside_ms");
    assert_refused(FAULTS, "time_s,device,kind,duration_s\n0,0,fire,1\n", ":2: kind fire");
    assert_refused(FAULTS, "time_s,device,kind,duration_s\n0,x,worker_dies,1\n", ":2: device");
    assert_refused(MODELS, "model,mb,compute_ms\na,1,0\n", ":2: compute_ms is 0, less than");
    assert_refused(MODELS, "model,mb,compute_ms,samples_ms\na,1,0,2\n", ":2: compute_ms is 0");
    assert_refused(MODELS, "model,mb,compute_ms,groups\na,1,1,0\n", ":2: groups is 0");
    assert_refused(JOBS, JOB_COLUMNS "\nj,0,0,1,1,1,\n", ":2: iterations is 0");
    assert_refused(JOBS, JOB_COLUMNS "\nj,0,1,1e-9,1,1,\n", ":2: iteration_ms is 1e-9");
    assert_refused(JOBS, JOB_COLUMNS "\nj,0,1,1,1,1,1\nj,0,1,1,1,1,2\n", ":3: utilization is 2");
    assert_refused(FAULTS, "time_s,device,kind,duration_s,factor\n0,0,link_slows,1,0\n",
                   ":2: factor is 0");
    assert_refused(FAULTS, "time_s,device,kind,duration_s,factor\n0,0,link_slows,1,1e-300\n",
                   ":2: factor is 1e-300");
    assert_refused(REQUESTS, "time_s,model\n0,\n", ":2: no model \"\"");
    unlink(path);
    struct sy_sim_model *out;
    int n;
    assert_int_equal(sy_sim_read_models(path, &tenants, &out, &n), SY_EIO);
    assert_non_null(strstr(sy_error_text(), path));
}

/* Columns in any order, some left out, comments, blanks, both kinds of line ends; sorted by time, and what comes at one time
 * stays in the file's order. */
static void test_what_is_read(void **state)
{
    (void)state;
    struct sy_sim_model *models;
    struct sy_sim_request *requests;
    struct sy_sim_job *jobs;
    int n;
    uint64_t count;
    file_with("# made by hand\r\ncompute_ms , model,mb\r\n\r\n 2.5 ,a, 100\r\n3,b,0.5\r\n");
    assert_int_equal(sy_sim_read_models(path, &tenants, &models, &n), SY_OK);
    assert_int_equal(n, 2);
    assert_string_equal(models[0].name, "a");
    assert_int_equal(models[0].compute_ns, 2500000);
    assert_int_equal(models[0].bytes, 100000000);
    assert_int_equal(models[1].bytes, 500000);
    assert_int_equal(models[0].n_groups, 16);
    assert_int_equal(models[0].n_samples, 0);
    struct sy_sim_model *seen;
    file_with("model,mb,compute_ms,samples_ms,outside_ms\na,1,2,1 2.5  4,0.25\nb,1,2,,\n");
    assert_int_equal(sy_sim_read_models(path, &tenants, &seen, &n), SY_OK);
    assert_int_equal(seen[0].n_samples, 3);
    assert_true(seen[0].samples[0] == 0.5f && seen[0].samples[1] == 1.25f &&
                seen[0].samples[2] == 2);
    assert_int_equal(seen[1].n_samples, 0);
    assert_int_equal(seen[0].outside_ns, 250000);
    assert_int_equal(seen[1].outside_ns, 0);
    free(seen);
    file_with("time_s,model,deadline_ms,outcome,served_ms\n2,a,,done,1.5\n1,b,100,,\n0.5,a,7,,\n1,"
              "a,3,,\n1,b,4,,\n");
    assert_int_equal(sy_sim_read_requests(path, models, n, &requests, &count), SY_OK);
    assert_int_equal(count, 5);
    static const int deadlines[] = {7, 100, 3, 4, 0};
    for (int i = 0; i < 5; i++)
        assert_int_equal(requests[i].deadline_ns, deadlines[i] * 1000000);
    assert_int_equal(requests[4].at_ns, 2000000000);
    assert_int_equal(requests[4].served_ns, 1500000);
    assert_int_equal(requests[0].served_ns, 0);
    free(requests);
    free(models);
    file_with("name,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb,weight\n"
              "x,5,10,100,1,2,3\ny,0,1,1,1,1,1\n");
    assert_int_equal(sy_sim_read_jobs(path, &tenants, &jobs, &n), SY_OK);
    assert_int_equal(n, 2);
    assert_string_equal(jobs[1].name, "x");
    assert_int_equal(jobs[1].weight, 3);
    assert_true(jobs[1].utilization == 1);
    free(jobs);
}

/* As spreadsheets and other tools write it: a mark in front, fields in quotes, with commas and quotes within. */
static void test_fields_in_quotes(void **state)
{
    (void)state;
    struct sy_sim_job *jobs;
    int n;
    file_with(
        "\xef\xbb\xbf# by hand\r\n\"name\",\"submit_s\",iterations, \"iteration_ms\" "
        ",persistent_mb,\"ephemeral_mb\"\r\n"
        "\"a, \"\"b\"\"\",0,\"10\",1,1,1\r\n5\" disk,0,1,1,1,\"2\"\r\n\" c \" ,0,\"1 \",1,1,1\n"
        "\"d\"e,0,1,1,1,1\n\"\"\"f\",0,1,1,1,1");
    assert_int_equal(sy_sim_read_jobs(path, &tenants, &jobs, &n), SY_OK);
    assert_int_equal(n, 5);
    assert_string_equal(jobs[0].name, "a, \"b\"");
    assert_int_equal(jobs[0].iterations, 10);
    assert_string_equal(
        jobs[1].name,
        "5\" disk"); /* quotes that do not begin a field, or do not end it, are letters */
    assert_int_equal(jobs[1].ephemeral_bytes, 2000000);
    assert_string_equal(jobs[2].name, " c "); /* spaces in quotes are the field's */
    assert_string_equal(jobs[3].name, "\"d\"e");
    assert_string_equal(jobs[4].name, "\"f");
    free(jobs);
    assert_refused(REQUESTS, "time_s,model\n0,\"\"\n", ":2: no model \"\"");
    assert_refused(REQUESTS, "time_s,model\n\"0,a\"\n", ":2: time_s is \"0,a\"");
    assert_refused(REQUESTS, "time_s,model\n0,\"a\n\"\n", ":2: a field begins with a quote");
    assert_refused(REQUESTS, "time_s,\"model\n\"\n0,a\n", ":1: a field begins with a quote");
}

/* What a line leaves out is as the options have it. */
static void test_devices_and_profiles(void **state)
{
    (void)state;
    const struct sy_sim_kind otherwise = {.name = "o",
                                          .n_devices = 9,
                                          .pool_bytes = 123456789,
                                          .link_gbps = 7,
                                          .lost_ns_per_byte = 0.5,
                                          .unified = true,
                                          .speed = 3,
                                          .contention = 0.25};
    const struct sy_sim_model models[] = {{.name = "b"}, {.name = "a"}};
    struct sy_sim_kind *kinds;
    struct sy_sim_profile *profiles;
    int n;
    file_with("speed,device,count,pool_mb,link_gbps,lost_ns_per_byte,unified,contention\n"
              "0.5,\"one, two\",2,16000,25,0,0,0\n,rest,,,,,,\n");
    assert_int_equal(sy_sim_read_devices(path, &otherwise, &kinds, &n), SY_OK);
    assert_int_equal(n, 2);
    assert_string_equal(kinds[0].name, "one, two");
    assert_int_equal(kinds[0].n_devices, 2);
    assert_int_equal(kinds[0].pool_bytes, 16000000000ull);
    assert_true(kinds[0].link_gbps == 25 && kinds[0].lost_ns_per_byte == 0 && !kinds[0].unified);
    assert_true(kinds[0].speed == 0.5 && kinds[0].contention == 0);
    assert_string_equal(kinds[1].name, "rest");
    assert_int_equal(kinds[1].n_devices, 1);
    assert_int_equal(kinds[1].pool_bytes, 123456789);
    assert_true(kinds[1].link_gbps == 7 && kinds[1].lost_ns_per_byte == 0.5 && kinds[1].unified);
    assert_true(kinds[1].speed == 3 && kinds[1].contention == 0.25);
    const struct sy_sim_input in = {.models = models, .n_models = 2};
    const struct sy_sim_config config = {.kinds = kinds, .n_kinds = 2};
    file_with("model,device,compute_ms,groups\na,rest,2.5,7\nb,\"one, two\",1,\n");
    assert_int_equal(sy_sim_read_profiles(path, &in, &config, &profiles, &n), SY_OK);
    assert_int_equal(n, 2);
    assert_int_equal(profiles[0].model, 1);
    assert_int_equal(profiles[0].kind, 1);
    assert_int_equal(profiles[0].compute_ns, 2500000);
    assert_int_equal(profiles[0].n_groups, 7);
    assert_int_equal(profiles[1].model, 0);
    assert_int_equal(profiles[1].kind, 0);
    assert_int_equal(profiles[1].n_groups, 0);
    free(profiles);
    free(kinds);
    assert_refused(DEVICES, "device\n", "describes 0 kinds");
    assert_refused(DEVICES, "count\n1\n", "names no column device");
    assert_refused(DEVICES, "device,count\na,0\n", ":2: count is 0");
    assert_refused(DEVICES, "device,unified\na,2\n", ":2: unified is 2");
    assert_refused(DEVICES, "device,speed\na,1\nb,x\n", ":3: speed is \"x\"");
    assert_refused(DEVICES, "device,speed\na,1\nb,0\n", ":3: speed: 0 is not");
    assert_refused(DEVICES, "device,link_gbps\na,0\n", ":2: GB/s of the link: 0 is not");
    assert_refused(DEVICES, "device\na\001\n", ":2: a name has no control characters");
    assert_refused(DEVICES, "device\na\na\n", "two kinds of devices are called a");
    assert_refused(PROFILES, "model,device,compute_ms\na,d,1\nc,d,1\n", ":3: no model c");
    assert_refused(PROFILES, "model,device,compute_ms\na,e,1\n", ":2: no device e");
    assert_refused(PROFILES, "model,device,compute_ms\na,d,0\n", ":2: compute_ms is 0");
}

/* Names get numbers in the order in which they are met, those of the file of tenants first. */
static void test_tenants(void **state)
{
    (void)state;
    struct sy_sim_job *jobs;
    struct sy_sim_model *models;
    char text[8192];
    int n;
    tenants = (struct sy_sim_tenants){0};
    file_with("tenant,weight,hard_share,memory_mb\nbig team,3,0.25,1500\nz,,,\n");
    assert_int_equal(sy_sim_read_tenants(path, &tenants), SY_OK);
    assert_int_equal(tenants.n, 2);
    assert_int_equal(tenants.all[0].weight, 3);
    assert_int_equal(tenants.all[0].hard_permille, 250);
    assert_int_equal(tenants.all[0].memory_bytes, 1500000000);
    assert_int_equal(tenants.all[1].hard_permille, 0);
    assert_int_equal(tenants.all[1].memory_bytes, 0);
    file_with(JOB_COLUMNS ",tenant\nj,0,1,1,1,1,1,new\nj,0,1,1,1,1,1,z\nj,0,1,1,1,1,1,\n"
                          "j,0,1,1,1,1,1,new\nj,0,1,1,1,1,1,big team\n");
    assert_int_equal(sy_sim_read_jobs(path, &tenants, &jobs, &n), SY_OK);
    static const int expected[] = {2, 1, 3, 2, 0};
    for (int i = 0; i < 5; i++)
        assert_int_equal(jobs[i].tenant, expected[i]);
    assert_string_equal(tenants.all[2].name, "new");
    assert_string_equal(tenants.all[3].name, "default");
    free(jobs);
    file_with("model,mb,compute_ms,tenant\na,1,1,new\nb,1,1,\n");
    assert_int_equal(sy_sim_read_models(path, &tenants, &models, &n), SY_OK);
    assert_int_equal(models[0].tenant, 2);
    assert_int_equal(models[1].tenant, 3);
    free(models);
    size_t at = (size_t)snprintf(text, sizeof text, "tenant\n");
    for (int i = 0; i <= SY_SIM_MAX_TENANTS; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "t%d\n", i);
    assert_refused(TENANTS, text, ":258: tenant t256: there are 256 already");
    assert_refused(TENANTS, "tenant,hard_share\na,1.5\n", ":2: hard_share is 1.5");
    assert_refused(TENANTS, "tenant,hard_share\na,0.0001\n", ":2: hard_share is 0.0001");
    assert_refused(TENANTS, "tenant,weight\na,0\n", ":2: weight is 0");
    assert_refused(TENANTS, "tenant,memory_mb\na,1e-7\n",
                   ":2: memory_mb is 1e-7, less than a byte");
    assert_refused(TENANTS, "tenant\na\033[1m\n", ":2: a name has no control characters");
    assert_refused(TENANTS, "tenant\na\na\n", ":3: a second tenant is called a");
}

/* Priorities are a server's, whose most urgent is -1000; its models have names of up to 127 bytes. */
static void test_priorities_and_names_as_a_server_has_them(void **state)
{
    (void)state;
    struct sy_sim_job *jobs;
    struct sy_sim_model *models;
    char text[256], name[128];
    int n;
    file_with("name,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb,priority\n"
              "a,0,1,1,1,1,-1000\nb,0,1,1,1,1,1000\nc,0,1,1,1,1,\n");
    assert_int_equal(sy_sim_read_jobs(path, &tenants, &jobs, &n), SY_OK);
    assert_int_equal(jobs[0].priority, -1000);
    assert_int_equal(jobs[1].priority, 1000);
    assert_int_equal(jobs[2].priority, 0);
    free(jobs);
    assert_refused(JOBS, JOB_COLUMNS ",priority\nj,0,1,1,1,1,1,-0.5\n", ":2: priority is -0.5");
    memset(name, 'm', 127);
    name[127] = '\0';
    snprintf(text, sizeof text, "model,mb,compute_ms\n%s,1,1\n", name);
    file_with(text);
    assert_int_equal(sy_sim_read_models(path, &tenants, &models, &n), SY_OK);
    assert_string_equal(models[0].name, name);
    free(models);
    snprintf(text, sizeof text, "model,mb,compute_ms\nm%s,1,1\n", name);
    assert_refused(MODELS, text, "1 to 127 letters");
}

static void test_sorting_is_stable_at_any_length(void **state)
{
    (void)state;
    struct sy_sim_model a = {.name = "a", .bytes = 1, .compute_ns = 1, .n_groups = 1};
    struct sy_sim_request *r;
    uint64_t count;
    unsigned seed = 3;
    for (int n = 0; n < 70; n++) {
        FILE *file = fopen(path, "w");
        fputs("time_s,model,deadline_ms\n", file);
        for (int i = 0; i < n; i++)
            fprintf(file, "%d,a,%d\n", rand_r(&seed) % 9, i + 1);
        fclose(file);
        assert_int_equal(sy_sim_read_requests(path, &a, 1, &r, &count), SY_OK);
        assert_int_equal(count, n);
        for (int i = 1; i < n; i++)
            assert_true(r[i - 1].at_ns < r[i].at_ns ||
                        (r[i - 1].at_ns == r[i].at_ns && r[i - 1].deadline_ns < r[i].deadline_ns));
        free(r);
    }
}

static struct sy_sim_request *generate(const char *text, uint64_t seed, uint64_t *n)
{
    struct sy_sim_generator g;
    struct sy_sim_request *r;
    assert_int_equal(sy_sim_generator_parse(text, &g), SY_OK);
    assert_int_equal(sy_sim_generate(&g, seed, &r, n), SY_OK);
    return r;
}

static void test_generated_requests_are_as_asked_for(void **state)
{
    (void)state;
    uint64_t n, again, counts[10] = {0};
    struct sy_sim_request *r =
        generate("rate=1000,seconds=200,zipf=1,models=10,classes=2,deadline-ms=5", 1, &n);
    assert_true(fabs((double)n / 200000 - 1) < 0.01); /* Poisson: a deviation of 0.2 % */
    double squares = 0;
    for (uint64_t i = 0; i < n; i++) {
        counts[r[i].model]++;
        assert_true(i == 0 || r[i].at_ns >= r[i - 1].at_ns);
        assert_int_equal(r[i].deadline_ns, r[i].class_ == 0 ? 5000000 : 50000000);
        if (i > 0)
            squares += pow((double)(r[i].at_ns - r[i - 1].at_ns) / 1e6, 2);
    }
    assert_true(fabs(squares / (double)n / 2 - 1) < 0.05); /* exponential gaps of 1 ms */
    double harmonic = 0;
    for (int i = 1; i <= 10; i++)
        harmonic += 1.0 / i;
    for (int i = 0; i < 10; i++)
        assert_true(fabs((double)counts[i] / (double)n - 1 / (i + 1.0) / harmonic) < 0.01);
    struct sy_sim_request *same =
        generate("rate=1000,seconds=200,zipf=1,models=10,classes=2,deadline-ms=5", 1, &again);
    assert_int_equal(n, again);
    assert_memory_equal(r, same, n * sizeof *r);
    free(same);
    free(r);
}

/* The day's swing moves requests from its second half into the first; bursts bring more of them. */
static void test_swing_and_bursts(void **state)
{
    (void)state;
    uint64_t n, first = 0;
    struct sy_sim_request *r = generate("rate=100,seconds=1000,swing=0.5,period=1000", 1, &n);
    for (uint64_t i = 0; i < n; i++)
        first += r[i].at_ns < 500 * SY_NS_PER_S;
    assert_true(fabs((double)n / 100000 - 1) < 0.02);
    assert_true(fabs((double)first / (double)n - (0.5 + 0.5 / M_PI)) < 0.02);
    free(r);
    free(generate("rate=100,seconds=3000,burst=10,burst-every=8,burst-last=2", 1, &n));
    assert_true(fabs((double)n / (300000 * (0.8 + 0.2 * 10)) - 1) < 0.1);
}

static void test_generator_options_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"speed=3",
                                      "rate",
                                      "rate=x",
                                      "rate=0",
                                      "rate=-1",
                                      "classes=11",
                                      "classes=0",
                                      "models=0",
                                      "swing=2",
                                      "burst=0.5",
                                      "rate=nan",
                                      "models=2.5",
                                      "classes=1.5",
                                      "burst-every=1e-9,burst-last=1e-9", /* bursts without end */
                                      "classes=9,deadline-ms=1e6",
                                      "deadline-ms=1e300"};
    struct sy_sim_generator g;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (sy_sim_generator_parse(bad[i], &g) != SY_EARG)
            fail_msg("%s was taken", bad[i]);
    assert_int_equal(sy_sim_generator_parse("", &g), SY_OK);
}

/* Each class has ten times the deadline of the one before, to the last. */
static void test_deadlines_of_all_classes(void **state)
{
    (void)state;
    uint64_t n;
    struct sy_sim_request *r = generate("rate=100,seconds=10,classes=10,deadline-ms=5000", 1, &n);
    for (uint64_t i = 0; i < n; i++)
        assert_true(fabs((double)r[i].deadline_ns / (5e9 * pow(10, r[i].class_)) - 1) < 1e-12);
    free(r);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/sy-test-trace-%d.csv", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_name_the_line),
        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_each_request_finds_its_model),
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_fields_in_quotes),
        cmocka_unit_test(test_devices_and_profiles),
        cmocka_unit_test(test_tenants),
        cmocka_unit_test(test_priorities_and_names_as_a_server_has_them),
        cmocka_unit_test(test_sorting_is_stable_at_any_length),
        cmocka_unit_test(test_generated_requests_are_as_asked_for),
        cmocka_unit_test(test_swing_and_bursts),
        cmocka_unit_test(test_generator_options_are_checked),
        cmocka_unit_test(test_deadlines_of_all_classes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
