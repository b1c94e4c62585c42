#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"

void fuzz_check_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "fuzz: %s:%d: %s does not hold; last error: \"%s\"\n", file, line, condition,
            sy_error_text());
    abort();
}

const char *fuzz_file(const void *bytes, size_t n)
{
    static char name[40];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_CHECK(fd >= 0);
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0);
    FUZZ_CHECK(pwrite(fd, bytes, n, 0) == (ssize_t)n);
    return name;
}

size_t fuzz_give(const void *bytes, size_t n, uint8_t *to, size_t room)
{
    if (n > room)
        return 0;
    memcpy(to, bytes, n);
    return n;
}
