#include "runtime/sandbox/sandbox.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/sandbox/sandbox_internal.h"

#define ADDRESSES_PER_DATA 4 /* mapped model files, thread stacks, an allocator's reserve */

int sy_sandbox_no_new_privs(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return sy_error_set(SY_EIO, "cannot give up new privileges: %s", strerror(errno));
    return SY_OK;
}

/* ---- capabilities ------------------------------------------------------------------------------------------- */

/* Files of other users are read and written as before, memory is pinned; nothing else of root's power stays. */
static const unsigned kept[] = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_CHOWN,
                                CAP_IPC_LOCK};

static bool is_kept(unsigned capability)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i] == capability)
            return true;
    return false;
}

static int drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, data))
        return sy_error_set(SY_EIO, "cannot read capabilities: %s", strerror(errno));
    for (unsigned i = 0; i <= 63; i++)
        if (!is_kept(i))
            (void)prctl(PR_CAPBSET_DROP, i, 0, 0,
                        0); /* refused without CAP_SETPCAP: no matter then */
    for (unsigned i = 0; i < 2; i++) {
        uint32_t keep = 0;
        for (unsigned bit = 0; bit < 32; bit++)
            keep |= is_kept(32 * i + bit) ? 1u << bit : 0;
        data[i].effective &= keep;
        data[i].permitted &= keep;
        data[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &header, data))
        return sy_error_set(SY_EIO, "cannot drop capabilities: %s", strerror(errno));
    return SY_OK;
}

/* ---- limits -------------------------------------------------------------------------------------------------- */

static int limit(int resource, const char *name, uint64_t value)
{
    struct rlimit r;
    if (value == 0)
        return SY_OK;
    if (getrlimit(resource, &r) == 0 && r.rlim_max < value)
        value = r.rlim_max; /* it has less already */
    r = (struct rlimit){value, value};
    if (setrlimit(resource, &r))
        return sy_error_set(SY_EIO, "cannot limit %s to %llu: %s", name, (unsigned long long)value,
                            strerror(errno));
    return SY_OK;
}

static int set_limits(const struct sy_sandbox_limits *l)
{
    signal(SIGXFSZ, SIG_IGN); /* a file that grows too long is EFBIG, with words */
#ifndef SY_SANITIZED
    SY_TRY(limit(RLIMIT_DATA, "memory", l->data_bytes));
    SY_TRY(limit(RLIMIT_AS, "addresses", l->data_bytes * ADDRESSES_PER_DATA));
#endif
    SY_TRY(limit(RLIMIT_FSIZE, "the length of files", l->file_bytes));
    SY_TRY(limit(RLIMIT_CPU, "CPU time", l->cpu_seconds));
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none); /* no copy of its memory on the disk */
    return SY_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------------------- */

static int enter(enum sy_sandbox_kind kind, const struct sy_sandbox_paths *paths,
                 struct sy_sandbox_state *out)
{
    *out = (struct sy_sandbox_state){0};
    SY_TRY(sy_sandbox_no_new_privs());
    SY_TRY(drop_capabilities());
    int status = sy_landlock_enter(paths, &out->landlock_abi);
    if (status < 0 && status != SY_EUNSUPPORTED)
        return status;
    if (status < 0)
        snprintf(out->landlock_why, sizeof out->landlock_why, "%s", sy_error_text());
    status = sy_seccomp_enter(kind);
    if (status < 0 && status != SY_EUNSUPPORTED)
        return status;
    out->filtered = status == SY_OK;
    if (status < 0)
        snprintf(out->filter_why, sizeof out->filter_why, "%s", sy_error_text());
    return SY_OK;
}

int sy_sandbox_enter_import(const struct sy_sandbox_paths *paths,
                            const struct sy_sandbox_limits *limits, struct sy_sandbox_state *out)
{
    SY_TRY(set_limits(limits));
    return enter(SY_SANDBOX_IMPORT, paths, out);
}

int sy_sandbox_enter_worker(struct sy_sandbox_state *out)
{
    return enter(SY_SANDBOX_WORKER, NULL, out);
}

int sy_sandbox_enter_keeper(struct sy_sandbox_state *out)
{
    static const struct sy_sandbox_paths no_paths = {.n_read = 0};
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    return enter(SY_SANDBOX_KEEPER, &no_paths, out);
}

void sy_sandbox_describe(const struct sy_sandbox_state *state, char *out, int n)
{
    char landlock[120], filter[120];
    snprintf(landlock, sizeof landlock, "Landlock %d", state->landlock_abi);
    snprintf(filter, sizeof filter, "seccomp");
    snprintf(out, (size_t)n, "%s, %s", state->landlock_abi ? landlock : state->landlock_why,
             state->filtered ? filter : state->filter_why);
}
