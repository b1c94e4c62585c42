/* A process in a sandbox: what it must still do works, what a hostile file or client would have it do is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/sandbox/sandbox.h"

#define LIMIT_BYTES (256ull << 20)

static char own[64], other[64];

/* ---- in the child: exit status 0, or the line that did not hold ------------------------------------------------- */

#define HOLDS(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            _exit(1);                                                                            \
        }                                                                                        \
    } while (0)
#define REFUSED(call)                                                 \
    do {                                                              \
        errno = 0;                                                    \
        long refused_ = (long)(call);                                 \
        HOLDS(refused_ == -1 && (errno == EPERM || errno == EACCES)); \
    } while (0)

static void in_child(void (*work)(void))
{
    int wait_status;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        work();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(WEXITSTATUS(wait_status), 0);
}

static void *count(void *to)
{
    ++*(int *)to;
    return NULL;
}

static void threads_work(void)
{
    pthread_t thread;
    int n = 0;
    HOLDS(pthread_create(&thread, NULL, count, &n) == 0);
    HOLDS(pthread_join(thread, NULL) == 0 && n == 1);
}

static void jit_works(void)
{
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(code != MAP_FAILED);
    HOLDS(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0);
}

static void others_are_out_of_reach(void)
{
    char *const argv[] = {"true", NULL};
    char byte = 0;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)own, 1};
    char memory[40];
    REFUSED(execv("/bin/true", argv));
    REFUSED(fork());
    REFUSED(kill(getppid(), 0));
    REFUSED(kill(0, 0)); /* its group */
    HOLDS(kill(getpid(), 0) == 0);
    REFUSED(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
    REFUSED(process_vm_writev(getppid(), &here, 1, &there, 1, 0));
    snprintf(memory, sizeof memory, "/proc/%d/mem", (int)getppid());
    REFUSED(open(memory, O_RDWR));
    REFUSED(unshare(CLONE_NEWUSER));
    REFUSED(syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL));
    REFUSED(syscall(SYS_bpf, 0, NULL, 0));
    REFUSED(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
    REFUSED(syscall(SYS_userfaultfd, 0));
    REFUSED(setuid(65534));
}

static void network_is_out_of_reach(void)
{
    REFUSED(socket(AF_INET, SOCK_STREAM, 0));
    REFUSED(socket(AF_INET6, SOCK_DGRAM, 0));
    REFUSED(socket(AF_NETLINK, SOCK_RAW, 0));
}

/* "CapEff:\t%x" of /proc/self/status: of root's power nothing is left but what files and pinned memory need. */
static void power_is_gone(void)
{
    char text[4096] = "";
    unsigned long long effective;
    int fd = open("/proc/self/status", O_RDONLY);
    HOLDS(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    const char *at = strstr(text, "CapEff:");
    HOLDS(at && sscanf(at, "CapEff: %llx", &effective) == 1);
    for (unsigned i = CAP_SETGID; i <= CAP_SETPCAP; i++)
        HOLDS(!(effective >> i & 1));
    HOLDS(!(effective >> CAP_SYS_ADMIN & 1) && !(effective >> CAP_SYS_PTRACE & 1) &&
          !(effective >> CAP_NET_ADMIN & 1));
    HOLDS(strstr(text, "NoNewPrivs:\t1"));
    close(fd);
}

static void enter_import(struct sy_sandbox_state *state)
{
    struct sy_sandbox_paths paths = {
        .read = {"/proc/self", "/dev/null"}, .n_read = 2, .write = own};
    struct sy_sandbox_limits limits = {
        .data_bytes = LIMIT_BYTES, .file_bytes = 1 << 20, .cpu_seconds = 60};
    HOLDS(sy_sandbox_enter_import(&paths, &limits, state) == SY_OK);
}

static void import_child(void)
{
    struct sy_sandbox_state state;
    char path[100], path2[100], elsewhere[100];
    int ring[40] = {0};
    enter_import(&state);
    HOLDS(state.filtered);
    threads_work();
    jit_works();
    snprintf(path, sizeof path, "%s/a", own);
    snprintf(path2, sizeof path2, "%s/b", own);
    snprintf(elsewhere, sizeof elsewhere, "%s/secret", other);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    REFUSED(truncate(path, 0)); /* by name, even its own: Landlock 1 and 2 hold no other either */
    HOLDS(fd >= 0 && write(fd, "x", 1) == 1 && fsync(fd) == 0 && rename(path, path2) == 0 &&
          unlink(path2) == 0);
    HOLDS(ftruncate(fd, 2 << 20) == -1 && errno == EFBIG);
    if (state.landlock_abi) {
        REFUSED(open(elsewhere, O_RDONLY));
        REFUSED(open(elsewhere, O_WRONLY));
        REFUSED(open("/etc/passwd", O_RDONLY));
        REFUSED(unlink(elsewhere));
        snprintf(path, sizeof path, "%s/new", other);
        REFUSED(open(path, O_RDWR | O_CREAT, 0600));
    }
    others_are_out_of_reach();
    network_is_out_of_reach();
    REFUSED(socket(AF_UNIX, SOCK_STREAM, 0));
    REFUSED(syscall(SYS_io_uring_setup, 4, ring)); /* operations in a ring pass no filter */
    power_is_gone();
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    REFUSED(setrlimit(RLIMIT_DATA, &more));
#ifndef SY_SANITIZED
    void *bomb =
        mmap(NULL, 2 * LIMIT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(bomb == MAP_FAILED && errno == ENOMEM);
#endif
}

static void an_import_reaches_its_own_files_and_nothing_else(void **state)
{
    (void)state;
    in_child(import_child);
}

static void worker_child(void)
{
    struct sy_sandbox_state state;
    char elsewhere[100];
    HOLDS(sy_sandbox_enter_worker(&state) == SY_OK);
    HOLDS(state.filtered);
    threads_work();
    jit_works();
    snprintf(elsewhere, sizeof elsewhere, "%s/secret", other); /* jobs name files of theirs */
    int fd = open(elsewhere, O_RDWR);
    HOLDS(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
    others_are_out_of_reach();
    network_is_out_of_reach();
    struct sockaddr_un name = {.sun_family = AF_UNIX}; /* a snapshot folder's claim */
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "sy-test-%d", (int)getpid());
    int claim = socket(AF_UNIX, SOCK_STREAM, 0);
    HOLDS(claim >= 0 && bind(claim, (struct sockaddr *)&name, sizeof name) == 0);
    REFUSED(connect(claim, (struct sockaddr *)&name, sizeof name));
    power_is_gone();
}

static void a_worker_opens_files_and_touches_no_other_process(void **state)
{
    (void)state;
    in_child(worker_child);
}

static void limits_child(void)
{
    struct sy_sandbox_paths none = {0};
    struct sy_sandbox_limits limits = {.cpu_seconds = 1};
    struct sy_sandbox_state state;
    HOLDS(sy_sandbox_enter_import(&none, &limits, &state) == SY_OK);
    for (;;) /* SIGXCPU ends it, and SIGKILL where that were ignored */
        (void)getppid();
}

static void cpu_time_ends(void **state)
{
    int wait_status;
    (void)state;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        limits_child();
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFSIGNALED(wait_status));
    assert_true(WTERMSIG(wait_status) == SIGXCPU || WTERMSIG(wait_status) == SIGKILL);
}

static void it_says_what_it_lacks(void **state)
{
    char text[256];
    (void)state;
    sy_sandbox_describe(&(struct sy_sandbox_state){.landlock_abi = 3, .filtered = true}, text,
                        sizeof text);
    assert_string_equal(text, "Landlock 3, seccomp");
    sy_sandbox_describe(&(struct sy_sandbox_state){.landlock_why = "no Landlock", .filtered = true},
                        text, sizeof text);
    assert_string_equal(text, "no Landlock, seccomp");
}

static int make_folders(void **state)
{
    char path[100];
    (void)state;
    snprintf(own, sizeof own, "/tmp/sy-sandbox-XXXXXX");
    snprintf(other, sizeof other, "/tmp/sy-sandbox-XXXXXX");
    if (!mkdtemp(own) || !mkdtemp(other))
        return -1;
    snprintf(path, sizeof path, "%s/secret", other);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    return fd < 0 ? -1 : close(fd);
}

static int remove_folders(void **state)
{
    char path[100];
    (void)state;
    snprintf(path, sizeof path, "%s/secret", other);
    unlink(path);
    return rmdir(own) | rmdir(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_import_reaches_its_own_files_and_nothing_else),
        cmocka_unit_test(a_worker_opens_files_and_touches_no_other_process),
        cmocka_unit_test(cpu_time_ends),
        cmocka_unit_test(it_says_what_it_lacks),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
