/* Paths that clients send: below one folder, whatever they hold. */
#ifndef SY_FRONT_PATH_BELOW_H
#define SY_FRONT_PATH_BELOW_H

#include <stddef.h>

#define SY_PATH_BYTES 4096

/* The path as it really lies, without links, absolute: `path` is below `folder` (absolute, or from it), and is there. openat2 with RESOLVE_BENEATH: neither
 * "..", nor a link, nor a file system of the kernel leads out. folder NULL: nothing lies below it. EDENIED in the same words for all that lies elsewhere, there or
 * not; ENOTFOUND: there is none below the folder. */
int sy_path_below(const char *folder, const char *path, char out[SY_PATH_BYTES]);
/* As sy_path_below, for a file or folder that need not exist yet; its folder must. */
int sy_path_below_new(const char *folder, const char *path, char out[SY_PATH_BYTES]);

#endif
