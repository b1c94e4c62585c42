#include "runtime/front/access/access.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/access/access_internal.h"

struct sy_access {
    char *token_file, *page_token;
    unsigned anonymous, socket_rights;
    bool anonymous_is_said;
    struct sy_token_list list;
    uint64_t generation; /* from 1; one more for each list */
    struct stat seen;    /* stat of the token file when it was read */
    sy_ns looked_ns;
};

/* ---- the list ------------------------------------------------------------------------------------------ */

static int check_page_token(const char *token)
{
    for (const char *c = token; *c; c++)
        if (!isgraph((unsigned char)*c))
            return sy_error_set(SY_EARG, "the page's token may have printable ASCII only, no "
                                         "spaces");
    return *token ? SY_OK : sy_error_set(SY_EARG, "the page's token is empty");
}

static int load(struct sy_access *access)
{
    struct sy_token_list list = {NULL, 0};
    int status = SY_OK;

    if (access->page_token)
        status = check_page_token(access->page_token);
    if (access->page_token && status == SY_OK)
        status = sy_token_list_add(&list, "--page-token", access->page_token,
                                   strlen(access->page_token), SY_RIGHTS_ALL, "");
    if (status == SY_OK && access->token_file)
        status = sy_token_file_read(access->token_file, &list);
    if (status < 0) {
        sy_token_list_finish(&list);
        return status;
    }
    if (access->token_file && list.n == 0)
        sy_log_warn("access",
                    "event=token_file path=\"%s\" why=\"no token is in it: nobody can "
                    "show one\"",
                    access->token_file);
    sy_token_list_finish(&access->list);
    access->list = list;
    access->generation++;
    return SY_OK;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Once a second at most. */
static void reload_if_changed(struct sy_access *access)
{
    sy_ns now = sy_clock_now();
    struct stat info = {0};

    if (!access->token_file || now < access->looked_ns + SY_NS_PER_S)
        return;
    access->looked_ns = now;
    if (stat(access->token_file, &info) != 0)
        info = (struct stat){0}; /* said once, too */
    if (is_same_file(&info, &access->seen))
        return;
    access->seen = info;
    if (load(access) < 0)
        sy_log_warn("access", "event=tokens_kept why=\"%s\"", sy_error_text());
    else
        sy_log_info("access", "event=tokens_read n=%d", access->list.n);
}

static int set_rights(struct sy_access *access, const struct sy_access_config *config)
{
    access->anonymous = config->token_file ? 0 : SY_RIGHTS_LOOPBACK;
    access->anonymous_is_said = config->anonymous != NULL;
    if (config->anonymous && sy_access_parse_rights(config->anonymous, &access->anonymous) < 0)
        return sy_error_prefix(SY_EARG, "--anonymous");
    access->socket_rights = SY_RIGHT_READ | SY_RIGHT_INFER | SY_RIGHT_MODELS | SY_RIGHT_JOBS;
    if (config->socket_rights &&
        sy_access_parse_rights(config->socket_rights, &access->socket_rights) < 0)
        return sy_error_prefix(SY_EARG, "--socket-rights");
    return SY_OK;
}

int sy_access_create(const struct sy_access_config *config, struct sy_access **out)
{
    struct sy_access *access = calloc(1, sizeof *access);
    int status;

    *out = NULL;
    SY_TRY_ALLOC(access, "no memory for tokens");
    SY_TRY_GOTO(set_rights(access, config), fail);
    access->token_file = config->token_file ? strdup(config->token_file) : NULL;
    access->page_token = config->page_token ? strdup(config->page_token) : NULL;
    if (access->token_file)
        (void)stat(access->token_file, &access->seen); /* reading it says what is wrong */
    access->looked_ns = sy_clock_now();
    SY_TRY_GOTO(load(access), fail);
    *out = access;
    return SY_OK;
fail:
    sy_access_destroy(access);
    return status;
}

void sy_access_destroy(struct sy_access *access)
{
    if (!access)
        return;
    sy_token_list_finish(&access->list);
    if (access->page_token)
        OPENSSL_cleanse(access->page_token, strlen(access->page_token));
    free(access->page_token);
    free(access->token_file);
    free(access);
}

/* ---- addresses ----------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in6 *six = (const void *)address;

    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

/* Whether only this machine reaches the address. One that does not resolve counts so: binding it reports the reason. */
static bool stays_here(const char *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *info = NULL;
    const char *colon = strrchr(address, ':');
    bool stays = true;
    char host[256];
    size_t n = colon ? (size_t)(colon - address) : 0;

    if (n == 0 || n >= sizeof host)
        return true;
    if (address[0] == '[' && address[n - 1] == ']')
        snprintf(host, sizeof host, "%.*s", (int)n - 2, address + 1);
    else
        snprintf(host, sizeof host, "%.*s", (int)n, address);
    if (getaddrinfo(host, NULL, &hints, &info) != 0)
        return true;
    for (const struct addrinfo *at = info; at; at = at->ai_next)
        stays = stays && is_loopback(at->ai_addr);
    freeaddrinfo(info);
    return stays;
}

int sy_access_check_listen(const struct sy_access *access, const char *option, const char *address)
{
    if (!access || !address || access->token_file || access->anonymous_is_said ||
        stays_here(address))
        return SY_OK;
    return sy_error_set(SY_EDENIED,
                        "--%s %s: anybody who reaches this address could use this server; give "
                        "--token-file FILE (who may do what), or say with --anonymous RIGHTS what "
                        "callers without a token may do",
                        option, address);
}

/* ---- grants -------------------------------------------------------------------------------------------- */

void sy_access_anonymous(struct sy_access *access, struct sy_grant *grant)
{
    *grant = (struct sy_grant){.rights = access ? access->anonymous : SY_RIGHTS_ALL};
    if (access)
        grant->generation = access->generation;
}

static int grant_digest(struct sy_access *access, const unsigned char digest[32],
                        struct sy_grant *grant)
{
    const struct sy_token *token = sy_token_list_find(&access->list, digest);

    *grant = (struct sy_grant){.generation = access->generation, .is_unknown = !token};
    memcpy(grant->digest, digest, sizeof grant->digest);
    snprintf(grant->name, sizeof grant->name, "%s", token ? token->name : "");
    if (!token)
        return sy_error_set(SY_EDENIED, "this server does not know the token");
    grant->rights = token->rights;
    memcpy(grant->tenant, token->tenant, sizeof grant->tenant);
    return SY_OK;
}

int sy_access_token(struct sy_access *access, const char *token, size_t n, struct sy_grant *grant)
{
    unsigned char digest[32];

    if (!access) {
        sy_access_anonymous(access, grant);
        return SY_OK;
    }
    reload_if_changed(access);
    sy_token_digest(token, SY_MIN(n, (size_t)SY_TOKEN_MOST + 1), digest);
    return grant_digest(access, digest, grant);
}

/* "Basic " and base64 of user:token. */
static int basic_token(struct sy_access *access, const char *text, struct sy_grant *grant)
{
    unsigned char plain[600];
    size_t n = strcspn(text, " \t");
    const char *colon;
    int bytes;

    *grant = (struct sy_grant){0};
    if (n == 0 || n > 796 || n % 4 != 0 ||
        (bytes = EVP_DecodeBlock(plain, (const unsigned char *)text, (int)n)) < 0)
        return sy_error_set(SY_EDENIED, "the authorization header holds no base64");
    for (size_t i = n; i > 0 && i > n - 2 && text[i - 1] == '='; i--)
        bytes--;
    colon = memchr(plain, ':', (size_t)bytes);
    if (!colon)
        return sy_error_set(SY_EDENIED, "the authorization header holds no USER:TOKEN");
    colon++;
    size_t n_password = (size_t)bytes - (size_t)(colon - (char *)plain);
    if (sy_access_token(access, colon, n_password, grant) == SY_OK)
        return SY_OK;
    return sy_error_set(SY_EDENIED,
                        "the password of Basic authorization is no token of this server: "
                        "send a token as password, or \"Authorization: Bearer TOKEN\"");
}

int sy_access_header(struct sy_access *access, const char *value, struct sy_grant *grant)
{
    sy_access_anonymous(access, grant);
    if (!value || !access)
        return SY_OK;
    if (strncasecmp(value, "basic ", 6) == 0)
        return basic_token(access, value + 6 + strspn(value + 6, " "), grant);
    if (strncasecmp(value, "bearer ", 7) != 0) {
        *grant = (struct sy_grant){0};
        return sy_error_set(SY_EDENIED,
                            "this scheme of authorization is not understood: send "
                            "\"Authorization: Bearer TOKEN\", or Basic with the token as password");
    }
    value += 7 + strspn(value + 7, " ");
    return sy_access_token(access, value, strlen(value), grant);
}

int sy_access_peer(struct sy_access *access, int fd, struct sy_grant *grant)
{
    struct ucred peer;
    socklen_t n = sizeof peer;

    sy_access_anonymous(access, grant);
    if (!access)
        return SY_OK;
    grant->rights = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0)
        return sy_error_set(SY_EDENIED, "the kernel does not report the credentials of the peer");
    grant->rights = peer.uid == 0 || peer.uid == geteuid() ? SY_RIGHTS_ALL : access->socket_rights;
    return SY_OK;
}

void sy_access_refresh(struct sy_access *access, struct sy_grant *grant)
{
    unsigned char digest[sizeof grant->digest];
    char name[sizeof grant->name];

    if (!access || (!*grant->name && !grant->is_unknown))
        return;
    reload_if_changed(access);
    if (grant->generation == access->generation)
        return;
    memcpy(digest, grant->digest, sizeof digest);
    memcpy(name, grant->name, sizeof name);
    if (grant_digest(access, digest, grant) < 0) /* gone: no rights */
        memcpy(grant->name, name, sizeof name);
}

int sy_access_need(const struct sy_grant *grant, unsigned right)
{
    const char *name = sy_access_right_name(right);

    if (right == SY_RIGHT_ANYBODY || (right && (grant->rights & right) == right))
        return SY_OK;
    if (*grant->tenant && (right & SY_RIGHTS_SHARED))
        return sy_error_set(SY_EDENIED,
                            "the token \"%s\" is tenant \"%s\"'s; models, policy and settings are "
                            "shared by all tenants and need a token without tenant=, with the "
                            "right \"%s\"",
                            grant->name, grant->tenant, name);
    if (grant->is_unknown && !*grant->name)
        return sy_error_set(SY_EDENIED, "this server does not know the token");
    if (grant->is_unknown)
        return sy_error_set(SY_EDENIED, "the token \"%s\" was taken off this server's list",
                            grant->name);
    if (*grant->name)
        return sy_error_set(SY_EDENIED, "the token \"%s\" has not the right \"%s\"", grant->name,
                            name);
    return sy_error_set(SY_EDENIED, "this needs a token with the right \"%s\"", name);
}

int sy_access_need_header(const struct sy_grant *grant, unsigned right)
{
    int status = sy_access_need(grant, right);

    if (status == SY_OK || *grant->name || grant->is_unknown)
        return status;
    return sy_error_set(status,
                        "this needs a token with the right \"%s\": send the header "
                        "\"authorization: Bearer TOKEN\" (over gRPC: metadata)",
                        sy_access_right_name(right));
}

int sy_access_tenant(const struct sy_grant *grant, const char *asked, const char **out)
{
    *out = asked ? asked : "";
    if (!*grant->tenant)
        return SY_OK;
    if (**out && strcmp(*out, grant->tenant) != 0)
        return sy_error_set(SY_EDENIED, "the token \"%s\" is tenant \"%s\"'s, not \"%.60s\"'s",
                            grant->name, grant->tenant, *out);
    *out = grant->tenant;
    return SY_OK;
}

int sy_access_job(const struct sy_grant *grant, const struct sy_core_handlers *handlers, void *core,
                  uint64_t job)
{
    const char *tenant;

    if (!*grant->tenant)
        return SY_OK;
    SY_TRY(handlers->job_tenant(core, job, &tenant));
    if (strcmp(tenant, grant->tenant) == 0)
        return SY_OK;
    return sy_error_set(SY_EDENIED, "the token \"%s\" is tenant \"%s\"'s, and job %llu is not",
                        grant->name, grant->tenant, (unsigned long long)job);
}
