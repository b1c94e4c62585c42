/* libcurl, opened when it is needed. */
#ifndef SY_CLI_FETCH_FETCH_CURL_H
#define SY_CLI_FETCH_FETCH_CURL_H

#define CURL_DISABLE_TYPECHECK /* its macros name the functions themselves */
#include <curl/curl.h>

#define SY_CURL_FUNCTIONS(F) \
    F(global_init)           \
    F(easy_init)             \
    F(easy_setopt)           \
    F(easy_perform)          \
    F(easy_getinfo)          \
    F(easy_strerror)         \
    F(easy_cleanup)          \
    F(slist_append)          \
    F(slist_free_all)

struct sy_curl {
#define POINTER(name) __typeof__(curl_##name) *name;
    SY_CURL_FUNCTIONS(POINTER)
#undef POINTER
};

/* Fills it in; it stays open as long as the program runs. EUNSUPPORTED says which package is missing. */
int sy_curl_open(struct sy_curl *curl);

#endif
