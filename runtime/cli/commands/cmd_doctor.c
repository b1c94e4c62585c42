/* doctor: what this machine can do, what limits a swap here, what to change. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/plan/plan.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/doctor/doctor_models.h"
#include "runtime/cli/doctor/doctor_report.h"
#include "runtime/cli/doctor/link_probe.h"
#include "runtime/device/device.h"
#include "runtime/doctor/findings.h"
#include "runtime/doctor/probe.h"

#define N_WORKERS    4 /* serve's default */
#define SILENT_S     2 /* a step that takes longer is named on stderr */
#define READ_BYTES   SY_DOCTOR_EXAMPLE_BYTES
#define QUICK_BYTES  (64u << 20)
#define POOL_BYTES   (128u << 20)
#define BANDWIDTH_NS (250 * SY_NS_PER_MS)
#define SAMPLE_BYTES (32u << 20) /* smaller packages are read too fast to time */

struct doctor {
    const char *device, *folder; /* folder NULL: the current one, and no models */
    bool json, quick;
    struct sy_doctor_facts facts;
    struct sy_doctor_models models;
    struct sy_findings findings;
};

/* ---- steps --------------------------------------------------------------------------------------------- */

static void probe_machine(struct doctor *doctor)
{
    sy_probe_cpu(&doctor->facts);
    sy_probe_cgroup(&doctor->facts);
    sy_probe_memory(&doctor->facts);
    sy_probe_limits(&doctor->facts);
    sy_probe_uring(&doctor->facts);
    sy_probe_sandbox(&doctor->facts);
    sy_probe_workers(&doctor->facts, N_WORKERS);
}

static void open_device(struct doctor *doctor)
{
    sy_probe_device(&doctor->facts, doctor->device);
}

static void open_cuda(struct doctor *doctor)
{
    sy_probe_cuda(&doctor->facts);
}

static void measure_link(struct doctor *doctor)
{
    struct sy_doctor_facts *facts = &doctor->facts;
    struct sy_link_cost cost;
    if (*facts->device_why)
        return;
    if (sy_link_probe(doctor->device, &cost) < 0) {
        sy_doctor_text(facts->link_why, sy_error_text());
        return;
    }
    facts->link_gbps = cost.bytes_per_ns;
    facts->link_alpha_us = cost.alpha_ns / 1e3;
    facts->link_sigma_us = cost.sigma_ns / 1e3;
    facts->link_lost_ns_per_byte = cost.lost_ns_per_byte;
}

static void measure_storage(struct doctor *doctor)
{
    const char *sample = sy_doctor_models_largest(&doctor->models, SAMPLE_BYTES);
    sy_probe_storage(&doctor->facts, doctor->folder ? doctor->folder : ".", sample,
                     doctor->quick ? QUICK_BYTES : READ_BYTES);
}

static void measure_memory(struct doctor *doctor)
{
    sy_probe_bandwidth(&doctor->facts, doctor->quick ? BANDWIDTH_NS / 5 : BANDWIDTH_NS);
    sy_probe_huge_pages(&doctor->facts, doctor->quick ? POOL_BYTES / 4 : POOL_BYTES);
    sy_probe_numa(&doctor->facts);
}

static void predict(struct doctor *doctor)
{
    sy_doctor_models_predict(&doctor->models, &doctor->facts);
    sy_findings_make(&doctor->facts, &doctor->findings);
}

static const struct {
    const char *what; /* shown while it takes long */
    void (*run)(struct doctor *doctor);
} steps[] = {
    {"probing cores, memory, limits", probe_machine},
    {"opening the device", open_device},
    {"opening the GPU driver", open_cuda},
    {"measuring the link", measure_link},
    {"measuring storage", measure_storage},
    {"measuring memory", measure_memory},
    {"predicting swaps", predict},
};

/* ---- progress ------------------------------------------------------------------------------------------ */

static const char *volatile current_step;

/* Between any two instructions: only what may be called from a signal. */
static void name_step(int number)
{
    static const char before[] = "switchyard doctor: ", after[] = " ...\n";
    const char *step = current_step;
    (void)number;
    if (write(STDERR_FILENO, before, sizeof before - 1) < 0 ||
        write(STDERR_FILENO, step, strlen(step)) < 0 ||
        write(STDERR_FILENO, after, sizeof after - 1) < 0)
        return; /* stdout is closed */
}

static void run_steps(struct doctor *doctor)
{
    struct sigaction on_alarm = {.sa_handler = name_step, .sa_flags = SA_RESTART};
    current_step = steps[0].what;
    sigaction(SIGALRM, &on_alarm, NULL);
    for (size_t i = 0; i < SY_ARRAY_LEN(steps); i++) {
        current_step = steps[i].what;
        alarm(SILENT_S);
        steps[i].run(doctor);
        alarm(0);
    }
}

/* ---- the command --------------------------------------------------------------------------------------- */

static int print(const struct doctor *doctor)
{
    if (!doctor->json) {
        sy_doctor_print(&doctor->facts, &doctor->findings, &doctor->models);
        return SY_OK;
    }
    json_t *answer = sy_doctor_json(&doctor->facts, &doctor->findings, &doctor->models);
    int failed = !answer || json_dumpf(answer, stdout, JSON_INDENT(2)) < 0;
    json_decref(answer);
    putchar('\n');
    return failed ? sy_error_set(SY_EIO, "cannot write the answer") : SY_OK;
}

static int run(struct doctor *doctor)
{
    sy_doctor_facts_init(&doctor->facts);
    int status = doctor->folder ? sy_doctor_models_find(doctor->folder, &doctor->models) : SY_OK;
    if (status == SY_OK) {
        run_steps(doctor);
        status = print(doctor);
    }
    sy_doctor_models_finish(&doctor->models);
    if (status < 0)
        return sy_cli_fail_status();
    return sy_findings_are_ok(&doctor->findings) ? 0 : 1;
}

static const struct sy_cli_field fields[] = {
    {{"device", "SPEC",
      "host, emulated[,link-gbps=12.3], cuda:N, or cuda:UUID of a GPU or MIG instance; default "
      "host"},
     SY_CLI_TEXT(struct doctor, device)},
    {{"models", "DIR",
      "storage is measured here, and a swap is predicted for each package (FILE.sypkg, "
      "NAME/VERSION/model.sypkg); default: the current folder, no models"},
     SY_CLI_TEXT(struct doctor, folder)},
    {{"quick", NULL, "smaller measurements: about a second less each, and less exact"},
     SY_CLI_SWITCH(struct doctor, quick)},
    {{"json", NULL, "findings, facts and predictions as JSON"},
     SY_CLI_SWITCH(struct doctor, json)}};

static const char usage[] =
    "doctor [options]\n\n"
    "Measures what this machine can do for a server, and says what to change. Takes a\n"
    "few seconds, writes a scratch file of 240 MB that has no name, changes nothing.\n\n"
    "A swap brings a model's weights to where they are computed with. It comes over\n"
    "storage (package to memory) and, on a device with memory of its own, over the\n"
    "link (memory to device), and it computes behind the bytes that have arrived. It\n"
    "takes as long as the slowest of the three, and a little for the first part that\n"
    "nothing can hide. cold: nothing is in memory. warm: the weights are in host\n"
    "memory.\n\n"
    "  ok     as it should be\n"
    "  warn   works, but costs speed or room; \"do:\" says what to change\n"
    "  FAIL   a server would not start or answer\n\n"
    "Exit status: 0 it will work, 1 it will not, 2 bad usage.";

int sy_cmd_doctor(int argc, char **argv)
{
    static const struct sy_cli_fields command = {usage, fields, SY_ARRAY_LEN(fields), NULL};
    struct sy_device_spec spec;
    struct doctor *doctor = calloc(1, sizeof *doctor);

    if (!doctor)
        return sy_cli_fail("no memory");
    doctor->device = "host";
    int result = sy_cli_read(&command, argc, argv, doctor);
    if (result == SY_CLI_END && sy_device_spec_parse(doctor->device, &spec) < 0) {
        result = sy_cli_usage("--device: %s", sy_error_text());
    } else if (result == SY_CLI_END) {
        if (!getenv("SY_LOG"))
            sy_log_threshold = SY_LOG_ERROR; /* the table reports refused probes */
        result = run(doctor);
    }
    free(doctor);
    return result;
}
