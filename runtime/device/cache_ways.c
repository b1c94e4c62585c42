#include "runtime/device/cache_ways.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/status.h"

#define TEXT_BYTES 4096
#define NAME       "switchyard-"

/* ---- which ways ------------------------------------------------------------------------------------------------ */

static int check_plan(unsigned n_ways, unsigned min_ways, const size_t *n_cores, int n)
{
    if (n < 1 || n > 64 || n_ways > 64 || min_ways == 0)
        return sy_error_set(SY_EARG, "%d sets of cores for %u cache ways, at least %u each", n,
                            n_ways, min_ways);
    for (int i = 0; i < n; i++)
        if (n_cores[i] == 0)
            return sy_error_set(SY_EARG, "set %d of cores for cache ways has none", i);
    if ((uint64_t)n * min_ways > n_ways)
        return sy_error_set(SY_EBUSY, "%d slices with at least %u of %u cache ways each", n,
                            min_ways, n_ways);
    return SY_OK;
}

static size_t sum_of(const size_t *values, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += values[i];
    return sum;
}

/* The set whose part of `spare` was cut by most, of those that have not got that back. */
static int most_cut(const size_t *n_cores, int n, size_t sum, unsigned spare, uint64_t taken)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!(taken >> i & 1) &&
            (best < 0 || spare * n_cores[i] % sum > spare * n_cores[best] % sum))
            best = i;
    return best;
}

int sy_cache_ways_plan(unsigned n_ways, unsigned min_ways, const size_t *n_cores, int n,
                       uint64_t *masks)
{
    unsigned had[64], left, from = 0;
    uint64_t taken = 0;
    SY_TRY(check_plan(n_ways, min_ways, n_cores, n));
    size_t sum = sum_of(n_cores, n);
    unsigned spare = left = n_ways - (unsigned)n * min_ways;
    for (int i = 0; i < n; i++) {
        had[i] = min_ways + (unsigned)(spare * n_cores[i] / sum);
        left -= had[i] - min_ways;
    }
    for (; left > 0; left--) {
        int i = most_cut(n_cores, n, sum, spare, taken);
        taken |= 1ull << i;
        had[i]++;
    }
    for (int i = 0; i < n; i++) {
        masks[i] = (had[i] == 64 ? UINT64_MAX : (1ull << had[i]) - 1) << from;
        from += had[i];
    }
    return SY_OK;
}

/* ---- what there is --------------------------------------------------------------------------------------------- */

static int read_text(const char *root, const char *name, char *text)
{
    char path[SY_CACHE_WAYS_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", root, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, TEXT_BYTES - 1);
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return sy_error_set(SY_ENOTFOUND, "%s: %s", path, strerror(why));
    text[got] = '\0';
    return SY_OK;
}

static int read_number(const char *root, const char *name, int base, uint64_t *out)
{
    char text[TEXT_BYTES], *end;
    SY_TRY(read_text(root, name, text));
    errno = 0;
    *out = strtoull(text, &end, base);
    if (errno || end == text || (*end != '\n' && *end != '\0') || *out == 0)
        return sy_error_set(SY_EPROTO, "%s/%s says '%.40s'", root, name, text);
    return SY_OK;
}

/* Behind the next ';' of the line. */
static const char *next_domain(const char *at)
{
    at += strcspn(at, ";\n");
    return *at == ';' ? at + 1 : NULL;
}

/* "    L3:0=fffff;1=fffff" among other lines. */
static int read_domains(const char *root, struct sy_cache_ways *out)
{
    char text[TEXT_BYTES];
    SY_TRY(read_text(root, "schemata", text));
    const char *at = strstr(text, "L3:");
    out->n_domains = 0;
    for (at = at ? at + strlen("L3:") : NULL; at; at = next_domain(at)) {
        unsigned domain;
        if (out->n_domains == SY_CACHE_WAYS_DOMAINS || sscanf(at, "%u=", &domain) != 1)
            return sy_error_set(SY_EPROTO, "%s/schemata: '%.40s'", root, at);
        out->domains[out->n_domains++] = domain;
    }
    return out->n_domains ? SY_OK
                          : sy_error_set(SY_EUNSUPPORTED, "%s/schemata has no line L3", root);
}

static int read_limits(struct sy_cache_ways *out)
{
    uint64_t mask, least, groups;
    char path[SY_CACHE_WAYS_PATH + 16];
    snprintf(path, sizeof path, "%s/info", out->root);
    if (access(path, F_OK) < 0)
        return sy_error_set(SY_ENOTFOUND, "resctrl is not mounted at %s", out->root);
    snprintf(path, sizeof path, "%s/info/L3", out->root);
    if (access(path, F_OK) < 0)
        return sy_error_set(SY_EUNSUPPORTED, "this CPU's last-level cache cannot be divided");
    SY_TRY(read_number(out->root, "info/L3/cbm_mask", 16, &mask));
    SY_TRY(read_number(out->root, "info/L3/min_cbm_bits", 10, &least));
    SY_TRY(read_number(out->root, "info/L3/num_closids", 10, &groups));
    if ((mask & (mask + 1)) != 0 || least > 64)
        return sy_error_set(SY_EPROTO, "%s/info/L3: ways %llx, at least %llu", out->root,
                            (unsigned long long)mask, (unsigned long long)least);
    out->n_ways = (unsigned)__builtin_popcountll(mask);
    out->min_ways = (unsigned)least;
    out->most_groups = (unsigned)(groups - 1);
    return SY_OK;
}

/* ---- groups ---------------------------------------------------------------------------------------------------- */

static void group_path(const struct sy_cache_ways *ways, int group, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/" NAME "%d-%d", ways->root, (int)getpid(), group);
}

/* True for a group of a process that has ended, or of an earlier process with this pid: this one has none yet. */
static bool is_left_over(const char *name)
{
    int pid, group, used = 0;
    return sscanf(name, NAME "%d-%d%n", &pid, &group, &used) == 2 && name[used] == '\0' &&
           pid > 0 && (pid == getpid() || (kill(pid, 0) < 0 && errno == ESRCH));
}

static void remove_left_over(const char *root)
{
    DIR *folder = opendir(root);
    for (struct dirent *e = folder ? readdir(folder) : NULL; e; e = readdir(folder)) {
        char path[SY_CACHE_WAYS_PATH + sizeof e->d_name];
        if (!is_left_over(e->d_name))
            continue;
        snprintf(path, sizeof path, "%s/%s", root, e->d_name);
        (void)rmdir(path);
    }
    if (folder)
        closedir(folder);
}

int sy_cache_ways_read(const char *root, struct sy_cache_ways *out)
{
    *out = (struct sy_cache_ways){.n_ways = 0};
    if (strlen(root) >= sizeof out->root)
        return sy_error_set(SY_EARG, "a path of %zu bytes for resctrl", strlen(root));
    strcpy(out->root, root);
    SY_TRY(read_limits(out));
    return read_domains(root, out);
}

int sy_cache_ways_open(const char *root, struct sy_cache_ways *out)
{
    SY_TRY(sy_cache_ways_read(root, out));
    remove_left_over(root);
    return SY_OK;
}

/* The kernel takes a line in one write. */
static int write_line(const char *folder, const char *name, const char *line)
{
    char path[SY_CACHE_WAYS_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    ssize_t put = fd < 0 ? -1 : write(fd, line, strlen(line));
    int why = errno;
    if (fd >= 0)
        close(fd);
    return put == (ssize_t)strlen(line)
               ? SY_OK
               : sy_error_set(SY_EIO, "%s: '%.60s': %s", path, line, strerror(why));
}

static void schemata_line(const struct sy_cache_ways *ways, uint64_t mask, char *line, size_t bytes)
{
    size_t used = (size_t)snprintf(line, bytes, "L3:");
    for (unsigned d = 0; d < ways->n_domains; d++)
        used += (size_t)snprintf(line + used, bytes - used, "%s%u=%llx", d ? ";" : "",
                                 ways->domains[d], (unsigned long long)mask);
    snprintf(line + used, bytes - used, "\n");
}

/* Its ways first: cores that came before would have all ways for a moment. */
static int set_group(const struct sy_cache_ways *ways, int group, const struct sy_cache_group *is)
{
    char path[SY_CACHE_WAYS_PATH + 32], line[SY_CACHE_WAYS_DOMAINS * 28 + 8];
    group_path(ways, group, path, sizeof path);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return sy_error_set(SY_EIO, "%s: %s", path, strerror(errno));
    schemata_line(ways, is->mask, line, sizeof line);
    SY_TRY(write_line(path, "schemata", line));
    return write_line(path, "cpus_list", is->cores);
}

void sy_cache_ways_clear(const struct sy_cache_ways *ways)
{
    char path[SY_CACHE_WAYS_PATH + 32];
    for (int i = 0; i < (int)ways->most_groups; i++) {
        group_path(ways, i, path, sizeof path);
        (void)rmdir(path); /* another may have removed it */
    }
}

int sy_cache_ways_set(const struct sy_cache_ways *ways, const struct sy_cache_group *groups, int n)
{
    sy_cache_ways_clear(ways);
    if (n > (int)ways->most_groups)
        return sy_error_set(SY_EBUSY, "%d slices; %u groups of cache ways are there", n,
                            ways->most_groups);
    for (int i = 0; i < n; i++) {
        int status = set_group(ways, i, &groups[i]);
        if (status < 0) {
            sy_cache_ways_clear(ways);
            return status;
        }
    }
    return SY_OK;
}
