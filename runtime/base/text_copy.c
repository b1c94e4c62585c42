#include "runtime/base/text_copy.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

char *sy_text_copy(const void *text, size_t bytes)
{
    char *copy = bytes < SIZE_MAX ? malloc(bytes + 1) : NULL;

    if (!copy)
        return NULL;
    if (bytes)
        memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}
