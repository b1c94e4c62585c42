#include "runtime/cli/script_tree.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"

struct entry {
    pid_t pid, parent;
    char state;
    bool is_in, is_out;
};

/* "PID (name) STATE PARENT ...": the name may hold anything. */
static bool read_entry(pid_t pid, struct entry *out)
{
    char path[64], text[512], state = 'Z';
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    if (!name_end || sscanf(name_end + 1, " %c %ld", &state, &parent) != 2)
        return false;
    *out = (struct entry){.pid = pid, .parent = (pid_t)parent, .state = state};
    return state != 'Z' && state != 'X';
}

static int read_all(struct entry **out)
{
    DIR *folder = opendir("/proc");
    struct entry *all = NULL;
    const struct dirent *d;
    int n = 0, room = 0;
    while (folder && (d = readdir(folder))) {
        long pid = strtol(d->d_name, NULL, 10);
        if (pid <= 0)
            continue;
        if (n == room) {
            struct entry *more = realloc(all, (size_t)(2 * room + 256) * sizeof *all);
            if (!more)
                break;
            all = more;
            room = 2 * room + 256;
        }
        n += read_entry((pid_t)pid, &all[n]);
    }
    if (folder)
        closedir(folder);
    *out = all;
    return n;
}

static int by_pid(const void *a, const void *b)
{
    const struct entry *one = a, *other = b;
    return (one->pid > other->pid) - (one->pid < other->pid);
}

/* One more generation: what descends from those that are in. all: by pid. */
static bool grow(struct entry *all, int n, pid_t root)
{
    bool grew = false;
    for (int i = 0; i < n; i++) {
        const struct entry key = {.pid = all[i].parent};
        const struct entry *parent = bsearch(&key, all, (size_t)n, sizeof *all, by_pid);
        if (all[i].is_in || all[i].is_out || all[i].pid == getpid() ||
            !(all[i].parent == root || (parent && parent->is_in)))
            continue;
        all[i].is_in = grew = true;
    }
    return grew;
}

/* all: read; frees it. What descends from the root and is not out. */
static int take_tree(struct entry *all, int n, pid_t root, bool with_root, pid_t *out)
{
    int found = 0;
    if (n > 0)
        qsort(all, (size_t)n, sizeof *all, by_pid);
    for (int i = 0; i < n; i++)
        all[i].is_in = with_root && all[i].pid == root;
    while (n > 0 && grow(all, n, root))
        ;
    for (int i = 0; i < n && found < SY_SCRIPT_TREE_MOST; i++)
        if (all[i].is_in)
            out[found++] = all[i].pid;
    free(all);
    return found;
}

int sy_script_tree_list(pid_t root, bool with_root, pid_t *out)
{
    struct entry *all;
    int n = read_all(&all);
    return take_tree(all, n, root, with_root, out);
}

static bool is_marked(pid_t pid, const char *setting)
{
    char path[64], *one = NULL;
    size_t room = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    FILE *file = fopen(path, "re");
    while (file && !found && getdelim(&one, &room, '\0', file) > 0)
        found = strcmp(one, setting) == 0;
    free(one);
    if (file)
        fclose(file);
    return found;
}

int sy_script_tree_list_left(pid_t reaper, const char *setting, pid_t *out)
{
    struct entry *all;
    int n = read_all(&all);
    for (int i = 0; i < n; i++)
        all[i].is_out = !is_marked(all[i].pid, setting);
    return take_tree(all, n, reaper, false, out);
}

/* Sums two keys over the lines "KEY: N kB" in /proc/PID/FILE. */
static uint64_t read_lines(pid_t pid, const char *name, const char *one, const char *other)
{
    char path[64], line[256], key[64];
    unsigned long long kb;
    uint64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%63[^:]: %llu kB", key, &kb) == 2 &&
            (strcmp(key, one) == 0 || strcmp(key, other) == 0))
            sum += kb * 1024;
    if (file)
        fclose(file);
    return sum;
}

uint64_t sy_script_tree_memory(const pid_t *pids, int n, uint64_t enough)
{
    uint64_t sum = 0, exact = 0;
    for (int i = 0; i < n; i++)
        sum += read_lines(pids[i], "status", "RssAnon", "RssShmem");
    if (sum <= enough)
        return sum;
    for (int i = 0; i < n; i++) {
        uint64_t bytes = read_lines(pids[i], "smaps_rollup", "Pss_Anon", "Pss_Shmem");
        exact += bytes ? bytes : read_lines(pids[i], "status", "RssAnon", "RssShmem");
    }
    return SY_MIN(sum, exact);
}

static uint64_t ran_ns_of(pid_t pid)
{
    char path[64];
    unsigned long long ran = 0;
    snprintf(path, sizeof path, "/proc/%ld/schedstat", (long)pid);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%llu", &ran) != 1)
        ran = 0;
    if (file)
        fclose(file);
    return ran;
}

bool sy_script_tree_wants_core(const pid_t *pids, int n, uint64_t *ran_ns)
{
    bool wants = false;
    *ran_ns = 0;
    for (int i = 0; i < n; i++) {
        struct entry entry;
        wants |= read_entry(pids[i], &entry) && entry.state == 'R';
        *ran_ns += ran_ns_of(pids[i]);
    }
    return wants;
}
