#include <ftw.h>
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

static char made_folder[40];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind;
    return where->level ? remove(path) : 0;
}

static void empty_folder(void)
{
    nftw(made_folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

__attribute__((destructor)) static void remove_folder(void)
{
    if (*made_folder) {
        empty_folder();
        rmdir(made_folder);
    }
}

const char *fuzz_folder(void)
{
    if (*made_folder) {
        empty_folder();
    } else {
        snprintf(made_folder, sizeof made_folder, "/dev/shm/fuzz-XXXXXX");
        FUZZ_CHECK(mkdtemp(made_folder));
    }
    return made_folder;
}

size_t fuzz_give(const void *bytes, size_t n, uint8_t *to, size_t room)
{
    if (n > room)
        return 0;
    memcpy(to, bytes, n);
    return n;
}

int fuzz_write_seeds(const char *folder)
{
    static uint8_t seed[FUZZ_MAX_BYTES];
    size_t n;
    for (int i = 0; (n = fuzz_seed(i, seed, sizeof seed)) > 0; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/seed-%d", folder, i);
        FILE *file = fopen(name, "wb");
        if (!file || fwrite(seed, 1, n, file) != n || fclose(file) != 0) {
            perror(name);
            return 1;
        }
    }
    return 0;
}
