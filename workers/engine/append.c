#include "workers/engine/append.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"

void *sy_append(void *array, int *n, size_t element_bytes)
{
    void *list;
    memcpy(&list, array, sizeof list);
    bool is_full = (*n & (*n - 1)) == 0; /* room doubles at powers of two */
    if (is_full) {
        size_t room = *n ? (size_t)*n * 2 : 1;
        void *grown = realloc(list, room * element_bytes);
        if (!grown) {
            sy_error_set(SY_ENOMEM_HOST, "no memory for %zu elements of %zu bytes", room,
                         element_bytes);
            return NULL;
        }
        list = grown;
        memcpy(array, &list, sizeof list);
    }
    void *element = (char *)list + (size_t)*n * element_bytes;
    memset(element, 0, element_bytes);
    ++*n;
    return element;
}
