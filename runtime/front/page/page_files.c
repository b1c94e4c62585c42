#include "runtime/front/page/page_files.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/base/assert.h"

#define HTML "text/html; charset=utf-8"
#define CSS  "text/css; charset=utf-8"
#define JS   "text/javascript; charset=utf-8"
#define SVG  "image/svg+xml"

/* X(symbol, name, type) */
#define FILES(X)                      \
    X(page_html, SY_PAGE_START, HTML) \
    X(page_css, "page.css", CSS)      \
    X(page_svg, "page.svg", SVG)      \
    X(page_js, "page.js", JS)         \
    X(device_js, "device.js", JS)     \
    X(jobs_js, "jobs.js", JS)         \
    X(known_js, "known.js", JS)       \
    X(models_js, "models.js", JS)     \
    X(numbers_js, "numbers.js", JS)   \
    X(pool_js, "pool.js", JS)         \
    X(send_js, "send.js", JS)         \
    X(words_js, "words.js", JS)

/* The assembler reads each file, from the folder that make runs in; the Makefile makes this object again when one changes. */
#define INCLUDE_BYTES(symbol, name, type)                                  \
    __asm__(".section .rodata\n"                                           \
            ".globl sy_" #symbol ", sy_" #symbol "_end\n"                  \
            ".hidden sy_" #symbol ", sy_" #symbol "_end\n"                 \
            "sy_" #symbol ":\n"                                            \
            ".incbin \"runtime/front/page/" name "\"\n"                    \
            "sy_" #symbol "_end:\n"                                        \
            ".previous\n");                                                \
    extern const char sy_##symbol[] __attribute__((visibility("hidden"))); \
    extern const char sy_##symbol##_end[] __attribute__((visibility("hidden")));
FILES(INCLUDE_BYTES)

static const struct {
    const char *name, *type, *begin, *end;
} files[] = {
#define X(symbol, name, type) {name, type, sy_##symbol, sy_##symbol##_end},
    FILES(X)
#undef X
};

bool sy_page_content(const char *name, struct sy_page_content *out)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(files); i++)
        if (strcmp(name, files[i].name) == 0) {
            *out = (struct sy_page_content){.type = files[i].type,
                                            .data = files[i].begin,
                                            .bytes = (size_t)(files[i].end - files[i].begin)};
            return true;
        }
    return false;
}

const char *sy_page_etag(void)
{
    static char etag[24];
    XXH64_hash_t hash = 0;

    for (size_t i = 0; !*etag && i < SY_ARRAY_LEN(files); i++)
        hash = XXH3_64bits_withSeed(files[i].begin, (size_t)(files[i].end - files[i].begin), hash);
    if (!*etag)
        snprintf(etag, sizeof(etag), "\"%016llx\"", (unsigned long long)hash);
    return etag;
}
