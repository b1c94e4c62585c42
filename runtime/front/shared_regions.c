#include "runtime/front/shared_regions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define NAME_BYTES 256
#define PAGE       4096u

struct entry {
    char name[NAME_BYTES], key[NAME_BYTES];
    uint64_t offset, bytes;
    uint64_t region; /* the core's; from `offset` rounded down to the page */
    int fd;
};

struct sy_shared_regions {
    struct sy_front *front;
    struct entry *entries[SY_SHARED_REGIONS_MOST];
    int n;
};

int sy_shared_regions_create(struct sy_front *front, struct sy_shared_regions **out)
{
    *out = calloc(1, sizeof **out);
    SY_TRY_ALLOC(*out, "no memory for shared memory regions");
    (*out)->front = front;
    return SY_OK;
}

static void entry_free(struct sy_shared_regions *regions, struct entry *entry)
{
    if (entry->region)
        regions->front->handlers->region_drop(regions->front->core, entry->region);
    if (entry->fd >= 0)
        close(entry->fd);
    free(entry);
}

void sy_shared_regions_destroy(struct sy_shared_regions *regions)
{
    if (!regions)
        return;
    sy_shared_regions_unregister(regions, NULL);
    free(regions);
}

static int index_of(const struct sy_shared_regions *regions, const char *name)
{
    for (int i = 0; i < regions->n; i++)
        if (strcmp(regions->entries[i]->name, name) == 0)
            return i;
    return -1;
}

/* ---- registering -------------------------------------------------------------------------------------- */

/* The server's privileges are not lent to clients: its user's objects, and those that everybody may write. */
static int check_owner(const struct entry *entry, const struct stat *info)
{
    if (info->st_uid == geteuid() || (info->st_mode & S_IWOTH))
        return SY_OK;
    return sy_error_set(SY_EARG,
                        "shared memory object '%s' of region '%s' belongs to user %u and not to "
                        "the server's, %u; make it as that user, or writable for all",
                        entry->key, entry->name, (unsigned)info->st_uid, (unsigned)geteuid());
}

static int open_object(struct entry *entry)
{
    struct stat info;
    uint64_t end;

    /* Without O_NONBLOCK the call, and with it the loop, waits until the holder of a lease (F_SETLEASE) gives it up, 45 s at most. */
    entry->fd = shm_open(entry->key, O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
    if (entry->fd < 0 && errno == EWOULDBLOCK)
        return sy_error_set(SY_EBUSY,
                            "shared memory object '%s' of region '%s' is under a lease "
                            "(F_SETLEASE), which its holder has to give up first; try again",
                            entry->key, entry->name);
    if (entry->fd < 0)
        return sy_error_set(errno == ENOENT ? SY_ENOTFOUND : SY_EARG,
                            "unable to open shared memory object '%s' of region '%s': %s",
                            entry->key, entry->name, strerror(errno));
    if (fstat(entry->fd, &info) != 0)
        return sy_error_set(SY_EIO, "shared memory object '%s': %s", entry->key, strerror(errno));
    SY_TRY(check_owner(entry, &info));
    if (__builtin_add_overflow(entry->offset, entry->bytes, &end) || end > (uint64_t)info.st_size)
        return sy_error_set(
            SY_EARG,
            "region '%s': %llu bytes from %llu on do not lie in shared memory object "
            "'%s' of %llu bytes",
            entry->name, (unsigned long long)entry->bytes, (unsigned long long)entry->offset,
            entry->key, (unsigned long long)info.st_size);
    return SY_OK;
}

static int share(struct sy_shared_regions *regions, struct entry *entry)
{
    const struct sy_core_handlers *handlers = regions->front->handlers;
    uint64_t before = entry->offset % PAGE;

    if (!handlers->region_add)
        return sy_error_set(SY_EUNSUPPORTED, "this server shares no memory with its clients");
    return handlers->region_add(regions->front->core, entry->fd, entry->offset - before,
                                entry->bytes + before, false, &entry->region);
}

static int check_names(const struct sy_shared_regions *regions, const char *name, const char *key,
                       uint64_t bytes)
{
    if (!*name || strlen(name) >= NAME_BYTES)
        return sy_error_set(SY_EARG, "a shared memory region's name has 1 to %d bytes",
                            NAME_BYTES - 1);
    if (!*key || strlen(key) >= NAME_BYTES)
        return sy_error_set(SY_EARG, "a shared memory object's key has 1 to %d bytes",
                            NAME_BYTES - 1);
    if (index_of(regions, name) >= 0)
        return sy_error_set(SY_EARG, "shared memory region '%s' already in manager", name);
    if (bytes == 0)
        return sy_error_set(SY_EARG, "shared memory region '%s' has no bytes", name);
    if (regions->n == SY_SHARED_REGIONS_MOST)
        return sy_error_set(
            SY_EBUSY, "%d shared memory regions are registered; unregister one first", regions->n);
    return SY_OK;
}

int sy_shared_regions_check_client(bool is_local)
{
    return is_local ? SY_OK
                    : sy_error_set(SY_EDENIED,
                                   "shared memory is registered by clients on this machine only; "
                                   "send the tensors in the request");
}

int sy_shared_regions_register(struct sy_shared_regions *regions, const char *name, const char *key,
                               uint64_t offset, uint64_t bytes)
{
    struct entry *entry;
    int status;

    SY_TRY(check_names(regions, name, key, bytes));
    entry = calloc(1, sizeof *entry);
    SY_TRY_ALLOC(entry, "no memory for a shared memory region");
    *entry = (struct entry){.offset = offset, .bytes = bytes, .fd = -1};
    strcpy(entry->name, name);
    strcpy(entry->key, key);
    status = open_object(entry);
    if (status == SY_OK)
        status = share(regions, entry);
    if (status < 0) {
        entry_free(regions, entry);
        return status;
    }
    regions->entries[regions->n++] = entry;
    return SY_OK;
}

void sy_shared_regions_unregister(struct sy_shared_regions *regions, const char *name)
{
    for (int i = regions->n - 1; i >= 0; i--) {
        if (name && strcmp(regions->entries[i]->name, name) != 0)
            continue;
        entry_free(regions, regions->entries[i]);
        regions->entries[i] = regions->entries[--regions->n];
    }
}

int sy_shared_regions_status(struct sy_shared_regions *regions, const char *name, json_t **out)
{
    if (name && index_of(regions, name) < 0)
        return sy_error_set(SY_ENOTFOUND, "unable to find system shared memory region: '%.200s'",
                            name);
    *out = json_array();
    for (int i = 0; i < regions->n; i++) {
        const struct entry *entry = regions->entries[i];

        if (!name || strcmp(entry->name, name) == 0)
            json_array_append_new(*out,
                                  json_pack("{s:s, s:s, s:I, s:I}", "name", entry->name, "key",
                                            entry->key, "offset", (json_int_t)entry->offset,
                                            "byte_size", (json_int_t)entry->bytes));
    }
    return SY_OK;
}

/* ---- using ----------------------------------------------------------------------------------------------- */

/* A client may truncate its object, or give it away, between two requests. */
static int check_now(const struct entry *entry)
{
    struct stat info;
    uint64_t end = entry->offset + entry->bytes;

    if (fstat(entry->fd, &info) != 0)
        return sy_error_set(SY_EARG, "shared memory object '%s' of region '%s': %s", entry->key,
                            entry->name, strerror(errno));
    SY_TRY(check_owner(entry, &info));
    if ((uint64_t)info.st_size >= end)
        return SY_OK;
    return sy_error_set(SY_EARG,
                        "shared memory region '%s' ends at byte %llu of object '%s', which was "
                        "truncated to %llu bytes since it was registered; register it again",
                        entry->name, (unsigned long long)end, entry->key,
                        (unsigned long long)info.st_size);
}

static int find(const struct sy_shared_regions *regions, const char *name, uint64_t offset,
                uint64_t bytes, const struct entry **out)
{
    int index = index_of(regions, name);

    if (index < 0)
        return sy_error_set(SY_EARG, "Unable to find shared memory region: '%.200s'", name);
    *out = regions->entries[index];
    if (offset > (*out)->bytes || bytes > (*out)->bytes - offset)
        return sy_error_set(
            SY_EARG,
            "Invalid offset + byte size for shared memory region: '%s' has %llu bytes; "
            "%llu from %llu on are asked for",
            name, (unsigned long long)(*out)->bytes, (unsigned long long)bytes,
            (unsigned long long)offset);
    return check_now(*out);
}

int sy_shared_regions_find(struct sy_shared_regions *regions, const char *name, uint64_t offset,
                           uint64_t bytes, uint64_t *region, uint64_t *at)
{
    const struct entry *entry;

    SY_TRY(find(regions, name, offset, bytes, &entry));
    *region = entry->region;
    *at = entry->offset % PAGE + offset;
    return SY_OK;
}

/* ---- copies ----------------------------------------------------------------------------------------------- */

static int is_short(void)
{
    return sy_error_set(SY_EARG, "a shared memory object was truncated while the request ran; "
                                 "register its region again");
}

int sy_region_file_read(const struct sy_region_file *file, void *to, uint64_t n)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t part = pread(file->fd, (char *)to + done, n - done, (off_t)(file->at + done));

        if (part <= 0)
            return is_short();
        done += (uint64_t)part;
    }
    return SY_OK;
}

int sy_region_file_write(const struct sy_region_file *file, const void *from, uint64_t n)
{
    struct stat info;

    /* Writing would make the object longer again. */
    if (fstat(file->fd, &info) != 0 || (uint64_t)info.st_size < file->least_object)
        return is_short();
    for (uint64_t done = 0; done < n;) {
        ssize_t part =
            pwrite(file->fd, (const char *)from + done, n - done, (off_t)(file->at + done));

        if (part <= 0)
            return is_short();
        done += (uint64_t)part;
    }
    return SY_OK;
}

int sy_region_file_open(struct sy_shared_regions *regions, const char *name, uint64_t offset,
                        uint64_t bytes, struct sy_region_file *out)
{
    const struct entry *entry;

    SY_TRY(find(regions, name, offset, bytes, &entry));
    *out = (struct sy_region_file){.fd = fcntl(entry->fd, F_DUPFD_CLOEXEC, 0),
                                   .at = entry->offset + offset,
                                   .least_object = entry->offset + entry->bytes};
    return out->fd >= 0 ? SY_OK
                        : sy_error_set(SY_EBUSY, "no file descriptor to copy from a region: %s",
                                       strerror(errno));
}

void sy_region_file_close(struct sy_region_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}
