#include "runtime/base/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define MAX_FAULTS 8

struct fault {
    char op[32], what[24];
    _Atomic long left;
};

bool sy_fault_enabled;
static struct fault faults[MAX_FAULTS];
static int n_faults;

/* In front of main, so that every thread sees the table complete. */
__attribute__((constructor)) static void read_faults(void)
{
    const char *text = getenv("SY_FAULT");
    while (text && *text && n_faults < MAX_FAULTS) {
        struct fault *f = &faults[n_faults];
        const char *first = strchr(text, ':');
        const char *second = first ? strchr(first + 1, ':') : NULL;
        size_t what_length = second ? strcspn(second + 1, ",") : 0;
        if (!second || (size_t)(first - text) >= sizeof f->op || what_length >= sizeof f->what) {
            sy_log_error("fault", "event=bad_variable SY_FAULT=\"%s\"", text);
            return;
        }
        memcpy(f->op, text, (size_t)(first - text));
        memcpy(f->what, second + 1, what_length);
        f->left = strtol(first + 1, NULL, 10);
        n_faults++;
        text = second + 1 + what_length;
        text += *text == ',';
    }
    sy_fault_enabled = n_faults > 0;
}

static int status_by_name(const char *name)
{
    for (int status = -1; status > -64; status--)
        if (strcmp(sy_status_name(status), name) == 0)
            return status;
    return SY_EBUG;
}

int sy_fault_check(const char *op)
{
    for (int i = 0; i < n_faults; i++) {
        if (strcmp(faults[i].op, op) != 0 || atomic_fetch_sub(&faults[i].left, 1) != 1)
            continue;
        sy_log_warn("fault", "event=injected op=%s what=%s", op, faults[i].what);
        if (strcmp(faults[i].what, "KILL") == 0)
            kill(getpid(), SIGKILL);
        return sy_error_set(status_by_name(faults[i].what), "%s failed (injected by SY_FAULT)", op);
    }
    return SY_OK;
}
