/* The page's files, which are part of this program: no folder has to be found at run time. */
#ifndef SY_FRONT_PAGE_FILES_H
#define SY_FRONT_PAGE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SY_PAGE_START "page.html"

struct sy_page_content {
    const char *type; /* Content-Type */
    const void *data;
    size_t bytes;
};

/* False: no file has this name. */
bool sy_page_content(const char *name, struct sy_page_content *out);
/* The ETag of all files: they come from one build, and change together. With its quotes; constant. */
const char *sy_page_etag(void);

#endif
