#include "tests/fakes/bad_import.h"

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
#include "tests/rigs/whole_import.h"

#define MEMORY_BYTES (1ull << 30)
#ifdef SY_SANITIZED
#define CPU_SECONDS 60u
#else
#define CPU_SECONDS 20u
#endif

char bad_import_folder[64], bad_import_path[96];
static char package[96];

static void import_work(const void *ctx, struct child_report *report)
{
    const struct whole_limits limits = {2, 1 << 22, 256u << 20};
    (void)ctx;
    sy_error_set(SY_OK, "%s", "");
    whole_import(bad_import_path, package, &limits, 1, &report->stage, &report->status);
    snprintf(report->text, sizeof report->text, "%s", sy_error_text());
}

struct child_end bad_import(const char *what)
{
    struct child_end end;
    bounded_child_run(import_work, NULL, MEMORY_BYTES, CPU_SECONDS, &end);
    unlink(package);
    if (end.signal || end.exit_code)
        fail_msg("%s: ended by signal %d, code %d, in %s", what, end.signal, end.exit_code,
                 whole_stage_name(end.report.stage));
    if (end.report.status < 0 && !*end.report.text)
        fail_msg("%s: refused without a reason", what);
    return end;
}

/* Refused at import, with these words (NULL: any). */
void bad_import_refused(const char *what, const char *word, const char *word2)
{
    struct child_end end = bad_import(what);
    if (end.report.status >= 0 || end.report.stage > WHOLE_PACKAGE)
        fail_msg("%s: not refused at import (%s: %s)", what, whole_stage_name(end.report.stage),
                 end.report.text);
    if ((word && !strstr(end.report.text, word)) || (word2 && !strstr(end.report.text, word2)))
        fail_msg("%s: '%s' and '%s' are not both in: %s", what, word ? word : "",
                 word2 ? word2 : "", end.report.text);
    for (const char *c = end.report.text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            fail_msg("%s: the reason holds the control character %d", what, *c);
}

void bad_import_runs(const char *what)
{
    struct child_end end = bad_import(what);
    if (end.report.stage != WHOLE_DONE)
        fail_msg("%s: %s: %s", what, whole_stage_name(end.report.stage), end.report.text);
}

int bad_import_open(void **state)
{
    (void)state;
    snprintf(bad_import_folder, sizeof bad_import_folder, "%s/sy-bad-models-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(bad_import_folder))
        return -1;
    snprintf(bad_import_path, sizeof bad_import_path, "%s/model.onnx", bad_import_folder);
    snprintf(package, sizeof package, "%s/model.sypkg", bad_import_folder);
    return 0;
}

int bad_import_close(void **state)
{
    (void)state;
    unlink(bad_import_path);
    return rmdir(bad_import_folder);
}
