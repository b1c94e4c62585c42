/* A file that is there whole or not at all: written under a temporary name, fsync'd, renamed, its folder fsync'd.
 *
 * Operations for SY_FAULT: file_create, file_write, file_read, file_sync, file_rename, folder_sync. */
#ifndef SY_BASE_DURABLE_FILE_H
#define SY_BASE_DURABLE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sy_durable_file {
    char *path, *temporary; /* owned */
    int fd;                 /* write to it as you like until commit */
};

/* Creates PATH.tmp-PID (mode 0644) beside `path`; removes those of processes that are gone and untouched for ten minutes. EIO names the path and why. */
int sy_durable_file_create(const char *path, struct sy_durable_file *out);
/* Makes it durable under its name. On failure the temporary file is removed and what had the name before stays; only when the folder's
 * fsync fails has the new file the name already, whole, but perhaps not after a power cut. Finishes `file`. */
int sy_durable_file_commit(struct sy_durable_file *file);
/* Removes the temporary file; a finished or zeroed file is fine. */
void sy_durable_file_discard(struct sy_durable_file *file);

/* Whether what follows a file's name is ".tmp-PID", as sy_durable_file_create has it, of a process that is gone. */
bool sy_durable_file_is_left_behind(const char *tail);
/* fsync of a folder: what was made, renamed or removed in it is durable. EIO names it. */
int sy_folder_sync(const char *path);
/* The part of `path` behind FOLDER/, "" for FOLDER/ itself; NULL: not below it. Compares text only; both paths are absolute. */
const char *sy_path_relative_to(const char *folder, const char *path);

/* All of `bytes` at `offset`. EIO names `path`. */
int sy_write_fully(int fd, const char *path, const void *bytes, size_t n, uint64_t offset);
/* ECORRUPT names `path` and the offset when the file ends before; EIO on a failed read. */
int sy_read_fully(int fd, const char *path, void *bytes, size_t n, uint64_t offset);

#endif
