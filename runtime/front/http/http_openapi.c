#include "runtime/front/http/http_openapi.h"

/* The assembler reads the file, from the folder that make runs in; the Makefile makes this object again when it changes. */
__asm__(".section .rodata\n"
        ".globl sy_openapi, sy_openapi_end\n"
        ".hidden sy_openapi, sy_openapi_end\n"
        "sy_openapi:\n"
        ".incbin \"runtime/front/http/openapi.json\"\n"
        "sy_openapi_end:\n"
        ".previous\n");
extern const char sy_openapi[] __attribute__((visibility("hidden")));
extern const char sy_openapi_end[] __attribute__((visibility("hidden")));

static void on_openapi(void *ctx, struct sy_http_call *call)
{
    (void)ctx;
    sy_http_reply(call, 200, "application/json", sy_openapi, (size_t)(sy_openapi_end - sy_openapi));
}

int sy_http_openapi_add(struct sy_http_server *server)
{
    static const struct sy_http_route route = {"GET", "/v2/openapi.json", SY_RIGHT_ANYBODY,
                                               on_openapi};

    return sy_http_server_add_routes(server, &route, 1, NULL);
}
