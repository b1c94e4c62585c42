#include "runtime/cli/script_cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "runtime/doctor/doctor_file.h"
#include "runtime/doctor/doctor_parse.h"

#define PREFIX     "switchyard-run-" /* of a script's folder, and of its cgroup */
#define FILE_END   32                /* "/cgroup.procs" and the like */
#define ROUND_MS   10
#define MOST_DEPTH 16 /* of runs within runs */

/* Where version 2 is mounted: alone, or beside version 1. NULL: nowhere. */
static const char *find_mount(void)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    struct statfs mount;
    for (size_t i = 0; i < 2; i++)
        if (statfs(places[i], &mount) == 0 && mount.f_type == CGROUP2_SUPER_MAGIC)
            return places[i];
    return NULL;
}

/* The caller's own, without a slash at its end. */
static bool find_own(char *out)
{
    char groups[8192], path[SY_SCRIPT_CGROUP_BYTES / 2];
    const char *mount = find_mount();
    if (!mount || !sy_doctor_read_file("/proc/self/cgroup", groups, sizeof groups))
        return false;
    sy_parse_cgroup_path(groups, "", path, sizeof path);
    snprintf(out, SY_SCRIPT_CGROUP_BYTES, "%s%s", mount, strcmp(path, "/") == 0 ? "" : path);
    return *path != '\0';
}

static void in_folder(char *out, const char *path, const char *file)
{
    snprintf(out, SY_SCRIPT_CGROUP_BYTES + FILE_END, "%s/%s", path, file);
}

static bool write_to(const char *path, const char *file, const char *text)
{
    char full[SY_SCRIPT_CGROUP_BYTES + FILE_END];
    in_folder(full, path, file);
    int fd = *path ? open(full, O_WRONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    bool written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return written;
}

void sy_script_cgroup_make(const char *name, char *out)
{
    char own[SY_SCRIPT_CGROUP_BYTES], kill_file[SY_SCRIPT_CGROUP_BYTES + FILE_END];
    *out = '\0';
    if (!find_own(own) ||
        snprintf(out, SY_SCRIPT_CGROUP_BYTES, "%s/%s", own, name) >= SY_SCRIPT_CGROUP_BYTES ||
        mkdir(out, 0755) < 0) {
        *out = '\0';
        return;
    }
    in_folder(kill_file, out, "cgroup.kill");
    if (access(kill_file, W_OK) == 0)
        return;
    rmdir(out);
    *out = '\0';
}

void sy_script_cgroup_enter(const char *path)
{
    (void)write_to(path, "cgroup.procs", "0");
}

void sy_script_cgroup_leave(void)
{
    char own[SY_SCRIPT_CGROUP_BYTES], *slash;
    if (!find_own(own))
        return;
    while ((slash = strrchr(own, '/')) && strncmp(slash + 1, PREFIX, strlen(PREFIX)) == 0) {
        *slash = '\0';
        sy_script_cgroup_enter(own);
    }
}

void sy_script_cgroup_kill(const char *path)
{
    (void)write_to(path, "cgroup.kill", "1");
}

static bool remove_tree(const char *path, int depth)
{
    char inner[SY_SCRIPT_CGROUP_BYTES];
    DIR *folder = depth < MOST_DEPTH ? opendir(path) : NULL;
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (e->d_type == DT_DIR && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) < (int)sizeof inner)
            (void)remove_tree(inner, depth + 1);
    }
    if (folder)
        closedir(folder);
    return rmdir(path) == 0 || errno == ENOENT;
}

void sy_script_cgroup_remove(const char *path, sy_ns patience)
{
    const struct timespec pause = {.tv_nsec = ROUND_MS * (long)SY_NS_PER_MS};
    sy_ns until = sy_clock_now() + patience;
    while (*path && !remove_tree(path, 0) && sy_clock_now() < until)
        nanosleep(&pause, NULL);
}
