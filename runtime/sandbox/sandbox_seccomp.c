/* The filter: calls by name, so that one list serves each architecture; what is not listed fails with EPERM, in words and not by a signal. */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sandbox/sandbox_internal.h"

/* Computing, threads, memory, files that are open or that Landlock lets it open. */
static const char *const both[] = {
    "brk",
    "mmap",
    "munmap",
    "mprotect",
    "mremap",
    "madvise",
    "mincore",
    "msync",
    "mlock",
    "mlock2",
    "munlock",
    "mbind",
    "get_mempolicy",
    "set_mempolicy",
    "memfd_create",
    "membarrier",
    "move_pages", /* oneDNN's JIT maps PROT_EXEC */
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "lseek",
    "open",
    "openat",
    "openat2",
    "close",
    "close_range",
    "fstat",
    "newfstatat",
    "stat",
    "lstat",
    "statx",
    "statfs",
    "fstatfs",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "getdents64",
    "getcwd",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "copy_file_range",
    "sendfile",
    "fadvise64",
    "flock",
    "fcntl",
    "dup",
    "dup2",
    "dup3",
    "pipe",
    "pipe2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "umask",
    "futex",
    "set_robust_list",
    "get_robust_list",
    "rseq",
    "set_tid_address",
    "restart_syscall",
    "exit",
    "exit_group",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigtimedwait",
    "sigaltstack",
    "gettid",
    "getpid",
    "getppid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getpgrp",
    "getrlimit",
    "getrusage",
    "getpriority",
    "sysinfo",
    "uname",
    "times",
    "time",
    "gettimeofday",
    "clock_gettime",
    "clock_getres",
    "nanosleep",
    "clock_nanosleep",
    "getcpu",
    "getrandom",
    "sched_yield",
    "sched_getaffinity",
    "sched_setaffinity",
    "sched_getparam",
    "sched_getscheduler",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "arch_prctl" /* AMX */,
};
/* A worker talks over its socket, reads by io_uring, and keeps snapshots. */
static const char *const worker[] = {
    "sendmsg",
    "recvmsg",
    "sendto",
    "recvfrom",
    "sendmmsg",
    "recvmmsg",
    "shutdown",
    "setsockopt",
    "getsockopt",
    "getsockname",
    "getpeername",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "eventfd2",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "timerfd_create",
    "timerfd_settime",
    "timerfd_gettime",
    "mkdir",
    "mkdirat",
    "rmdir",
    "fchmod",
    "fchmodat",
    "chmod",
    "fchown",
    "utimensat",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "setpriority",
    "fgetxattr",
    "getxattr",
    "madvise",
    "process_madvise",
    "mlockall",
    "bind",
};

/* A keeper waits, hands over, ends; memory is for the C library and sanitizers. */
static const char *const keeper[] = {
    "brk",    "mmap",       "munmap",         "mprotect",     "madvise", "read",
    "write",  "close",      "poll",           "ppoll",        "accept4", "sendmsg",
    "sendto", "recvfrom",   "recvmsg",        "getsockopt",   "geteuid", "getuid",
    "getpid", "gettid",     "clock_gettime",  "rt_sigreturn", "futex",   "restart_syscall",
    "exit",   "exit_group", "rt_sigprocmask", "rt_sigaction",
};

static int add_names(scmp_filter_ctx filter, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int call = seccomp_syscall_resolve_name(names[i]);
        if (call < 0) /* this architecture has none */
            continue;
        int failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0);
        if (failed)
            return failed;
    }
    return 0;
}

/* The call with its index-th argument as told. */
static int allow_if(scmp_filter_ctx filter, int call, struct scmp_arg_cmp argument)
{
    return call < 0 ? 0 : seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 1, argument);
}

/* Threads are made, processes are not: clone3 hides its flags from a filter, and without it the C library calls clone. */
static int add_threads(scmp_filter_ctx filter)
{
    int failed = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    return failed ? failed
                  : allow_if(filter, SCMP_SYS(clone),
                             SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
}

/* Signals to itself, limits that are read and not set, names of threads, whether a file is a terminal. */
static int add_own(scmp_filter_ctx filter)
{
    static const int prctls[] = {PR_SET_NAME, PR_GET_NAME, PR_SET_TIMERSLACK, PR_GET_DUMPABLE,
                                 0x53564d41 /* PR_SET_VMA */};
    static const unsigned long ioctls[] = {TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX};
    int failed = allow_if(filter, SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    if (!failed)
        failed = allow_if(filter, SCMP_SYS(kill), SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    if (!failed)
        failed = allow_if(filter, SCMP_SYS(prlimit64), SCMP_A2(SCMP_CMP_EQ, 0));
    for (size_t i = 0; !failed && i < SY_ARRAY_LEN(prctls); i++)
        failed = allow_if(filter, SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)prctls[i]));
    for (size_t i = 0; !failed && i < SY_ARRAY_LEN(ioctls); i++)
        failed = allow_if(filter, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_EQ, ioctls[i]));
    return failed;
}

static int build(scmp_filter_ctx filter, enum sy_sandbox_kind kind)
{
    int failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (!failed) /* without: each branch of the process would be slower on CPUs with Spectre v4 */
        failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
    if (kind == SY_SANDBOX_KEEPER)
        return failed ? failed : add_names(filter, keeper, SY_ARRAY_LEN(keeper));
    if (!failed)
        failed = add_names(filter, both, SY_ARRAY_LEN(both));
    if (!failed)
        failed = add_threads(filter);
    if (!failed)
        failed = add_own(filter);
    if (!failed && kind == SY_SANDBOX_WORKER)
        failed = add_names(filter, worker, SY_ARRAY_LEN(worker));
    if (!failed && kind == SY_SANDBOX_WORKER) /* a snapshot folder is claimed by an abstract name */
        failed = allow_if(filter, SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    return failed;
}

int sy_seccomp_enter(enum sy_sandbox_kind kind)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    SY_TRY_ALLOC(filter, "no memory for a seccomp filter");
    int failed = build(filter, kind);
    if (failed) {
        seccomp_release(filter);
        return sy_error_set(SY_EIO, "cannot make a seccomp filter: %s", strerror(-failed));
    }
    failed = seccomp_load(filter);
    seccomp_release(filter);
    if (failed == -EINVAL || failed == -ENOSYS)
        return sy_error_set(SY_EUNSUPPORTED, "this kernel takes no seccomp filter (%s)",
                            strerror(-failed));
    return failed ? sy_error_set(SY_EIO, "seccomp refuses the filter: %s", strerror(-failed))
                  : SY_OK;
}
