/* Landlock by its system calls: headers of Debian 12 know the first two versions only. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/sandbox/sandbox_internal.h"

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444 /* the same on all architectures */
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif

#define CREATE_RULESET_VERSION 1u
#define RULE_PATH_BENEATH      1

#define FS_EXECUTE     (1ull << 0)
#define FS_WRITE_FILE  (1ull << 1)
#define FS_READ_FILE   (1ull << 2)
#define FS_READ_DIR    (1ull << 3)
#define FS_REMOVE_FILE (1ull << 5)
#define FS_MAKE_CHAR   (1ull << 6)
#define FS_MAKE_REG    (1ull << 8)
#define FS_MAKE_BLOCK  (1ull << 11)
#define FS_V1          ((1ull << 13) - 1)
#define FS_REFER       (1ull << 13) /* version 2 */
#define FS_TRUNCATE    (1ull << 14) /* version 3 */
#define FS_IOCTL_DEV   (1ull << 15) /* version 5 */
#define NET_BIND_TCP   (1ull << 0)  /* version 4 */
#define NET_CONNECT    (1ull << 1)
#define SCOPE_SOCKETS  (1ull << 0) /* version 6: connecting to abstract names of processes outside */
#define SCOPE_SIGNALS  (1ull << 1)

#define FILE_RIGHTS (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)
#define READ        (FS_READ_FILE | FS_READ_DIR)
#define WRITE       (READ | FS_WRITE_FILE | FS_MAKE_REG | FS_REMOVE_FILE | FS_TRUNCATE | FS_REFER)

struct ruleset { /* the kernel's struct landlock_ruleset_attr, version 6 */
    uint64_t handled_fs, handled_net, scoped;
};

struct rule { /* struct landlock_path_beneath_attr */
    uint64_t allowed;
    int32_t parent_fd;
} __attribute__((packed));

/* An older kernel refuses a longer structure only if what it does not know is not 0: it is handed as much as it knows. */
static size_t known_bytes(int abi)
{
    return abi >= 6 ? sizeof(struct ruleset) : (abi >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t));
}

static uint64_t known_fs(int abi)
{
    return FS_V1 | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) |
           (abi >= 5 ? FS_IOCTL_DEV : 0);
}

static int allow(int ruleset, const char *path, uint64_t rights)
{
    struct stat st;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return SY_OK;
    if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        rights &= FILE_RIGHTS;
    struct rule rule = {.allowed = rights, .parent_fd = fd};
    long failed = syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0);
    int error = errno;
    close(fd);
    return failed
               ? sy_error_set(SY_EIO, "Landlock refuses a rule for %s: %s", path, strerror(error))
               : SY_OK;
}

static int allow_all(int ruleset, const struct sy_sandbox_paths *paths, uint64_t known)
{
    if (!paths)
        return SY_OK;
    for (int i = 0; i < paths->n_read; i++)
        SY_TRY(allow(ruleset, paths->read[i], READ & known));
    return paths->write ? allow(ruleset, paths->write, WRITE & known) : SY_OK;
}

int sy_landlock_enter(const struct sy_sandbox_paths *paths, int *abi)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);
    *abi = 0;
    if (version < 1)
        return sy_error_set(SY_EUNSUPPORTED, "this kernel has no Landlock (%s)", strerror(errno));
    uint64_t known = known_fs((int)version);
    struct ruleset wanted = {.handled_fs =
                                 paths ? known : FS_EXECUTE | FS_MAKE_CHAR | FS_MAKE_BLOCK};
    if (version >= 4)
        wanted.handled_net = NET_BIND_TCP | NET_CONNECT;
    if (version >= 6)
        wanted.scoped = SCOPE_SOCKETS | SCOPE_SIGNALS;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &wanted, known_bytes((int)version), 0);
    if (ruleset < 0)
        return sy_error_set(SY_EIO, "Landlock refuses a ruleset: %s", strerror(errno));
    int status = allow_all(ruleset, paths, known);
    if (status == SY_OK && syscall(SYS_landlock_restrict_self, ruleset, 0))
        status =
            sy_error_set(SY_EIO, "Landlock refuses to restrict the process: %s", strerror(errno));
    close(ruleset);
    if (status == SY_OK)
        *abi = (int)version;
    return status;
}
