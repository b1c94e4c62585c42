/* Token files, and authorization headers that clients send. The first byte chooses. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/status.h"
#include "runtime/front/access/access_internal.h"
#include "tests/fuzz/fuzz.h"

#define TOKEN "0123456789abcdef-page"

static void read_file(const char *text, size_t n)
{
    struct sy_token_list list = {NULL, 0};
    int status = sy_token_list_parse(&list, text, n);

    FUZZ_CHECK(list.n <= SY_TOKENS_MOST);
    for (int i = 0; i < list.n; i++) { /* each is found, and has no right that there is not */
        FUZZ_CHECK(sy_token_list_find(&list, list.tokens[i].digest) == &list.tokens[i]);
        FUZZ_CHECK((list.tokens[i].rights & ~SY_RIGHTS_ALL) == 0);
    }
    FUZZ_CHECK(status == SY_OK || *sy_error_text());
    sy_token_list_finish(&list);
}

/* Nobody has a right who did not send the token. */
static void read_header(const char *text)
{
    struct sy_access_config config = {.page_token = TOKEN, .anonymous = "none"};
    struct sy_access *access;
    struct sy_grant grant;

    if (sy_access_create(&config, &access) < 0)
        return;
    int status = sy_access_header(access, text, &grant);
    FUZZ_CHECK(status == SY_OK || grant.rights == 0);
    FUZZ_CHECK(grant.rights == 0 || strstr(text, TOKEN) || strncasecmp(text, "basic ", 6) == 0);
    sy_access_destroy(access);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] % 2)
        read_header(text);
    else
        read_file(text, size - 1);
    free(text);
    return 0;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "\x02"
        "# NAME TOKEN RIGHTS\nops 0123456789abcdef0123 admin\nteam abcdef0123456789abcdef "
        "infer,jobs tenant=blue\r\n\n",
        "\x01"
        "Bearer 0123456789abcdef-page",
        "\x01"
        "Basic eDowMTIzNDU2Nzg5YWJjZGVmLXBhZ2U=",
    };

    return i < (int)(sizeof seeds / sizeof *seeds) ? fuzz_give(seeds[i], strlen(seeds[i]), to, room)
                                                   : 0;
}
