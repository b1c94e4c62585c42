#include "runtime/cli/fetch/fetch_curl.h"

#include <dlfcn.h>

#include "runtime/base/status.h"

int sy_curl_open(struct sy_curl *curl)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return sy_error_set(SY_EUNSUPPORTED, "fetching needs libcurl (Debian: libcurl4): %s",
                            dlerror());
#define FIND(name)                                                         \
    curl->name = (__typeof__(curl_##name) *)dlsym(library, "curl_" #name); \
    if (!curl->name)                                                       \
        return sy_error_set(SY_EUNSUPPORTED, "libcurl.so.4 has no curl_" #name);
    SY_CURL_FUNCTIONS(FIND)
#undef FIND
    return curl->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK
               ? SY_OK
               : sy_error_set(SY_EUNSUPPORTED, "libcurl cannot start");
}
