/* Tokens, rights, tenants, addresses that may be listened on, and paths below a folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/access/access.h"
#include "runtime/front/access/path_below.h"
#include "tests/rigs/shell.h"

#define OPS  "ops-token-0123456789"
#define TEAM "team-token-0123456789"

static char folder[] = "/tmp/test_access_XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, 0600), 0);
}

static struct sy_access *create(struct sy_access_config config)
{
    struct sy_access *access = NULL;

    assert_int_equal(sy_access_create(&config, &access), SY_OK);
    return access;
}

/* Every prefix, every single change, and what is longer is another token. */
static void tokens_are_exact(void **state)
{
    (void)state;
    struct sy_access *access = create((struct sy_access_config){.page_token = OPS});
    struct sy_grant grant;
    char sent[80];

    for (size_t n = 0; n <= strlen(OPS) + 1; n++) {
        snprintf(sent, sizeof sent, "Bearer %.*s%s", (int)n, OPS, n > strlen(OPS) ? "x" : "");
        assert_int_equal(sy_access_header(access, sent, &grant),
                         n == strlen(OPS) ? SY_OK : SY_EDENIED);
        assert_int_equal(grant.rights, n == strlen(OPS) ? SY_RIGHTS_ALL : 0);
    }
    for (size_t i = 0; i < strlen(OPS); i++) {
        snprintf(sent, sizeof sent, "bearer  %s", OPS);
        assert_int_equal(sy_access_header(access, sent, &grant), SY_OK);
        sent[8 + i] ^= 1;
        assert_int_equal(sy_access_header(access, sent, &grant), SY_EDENIED);
    }
    /* user:ops-token-0123456789 */
    assert_int_equal(sy_access_header(access, "Basic dXNlcjpvcHMtdG9rZW4tMDEyMzQ1Njc4OQ==", &grant),
                     SY_OK);
    /* user:password of other servers: what is wanted here */
    assert_int_equal(sy_access_header(access, "Basic dXNlcjpwYXNzd29yZA==", &grant), SY_EDENIED);
    assert_non_null(strstr(sy_error_text(), "send a token as password"));
    assert_int_equal(grant.rights, 0);
    assert_int_equal(sy_access_header(access, "Digest username=\"u\"", &grant), SY_EDENIED);
    assert_non_null(strstr(sy_error_text(), "Bearer TOKEN"));
    assert_int_equal(sy_access_header(access, "Basic " OPS, &grant), SY_EDENIED);
    assert_int_equal(sy_access_header(access, "Basic ====", &grant), SY_EDENIED);
    sy_access_anonymous(access, &grant);
    assert_int_equal(sy_access_need_header(&grant, SY_RIGHT_PATHS), SY_EDENIED);
    assert_non_null(strstr(sy_error_text(), "\"authorization: Bearer TOKEN\""));
    assert_int_equal(sy_access_header(access, NULL, &grant), SY_OK);
    assert_int_equal(grant.rights, SY_RIGHTS_LOOPBACK);
    sy_access_destroy(access);
}

static void lines_of_the_file(void **state)
{
    static const char *const bad[] = {"a",
                                      "a " OPS,
                                      "a short admin",
                                      "a " OPS " everything",
                                      "a " OPS " infer,",
                                      "a " OPS " infer blue",
                                      "a " OPS " infer tenant=",
                                      "a " OPS " infer tenant=b more",
                                      "a " OPS " infer\nb " OPS " admin"};
    char path[4096];
    struct sy_access *access;
    struct sy_grant grant;
    const char *tenant;
    (void)state;

    strcpy(path, in_folder("tokens"));
    for (size_t i = 0; i < SY_ARRAY_LEN(bad); i++) {
        struct sy_access_config config = {.token_file = path};

        write_text(path, bad[i]);
        assert_int_equal(sy_access_create(&config, &access), SY_EARG);
        assert_non_null(strstr(sy_error_text(), "line "));
        assert_null(strstr(sy_error_text(), OPS));
    }
    write_text(path, "# who\n\nops\t" OPS " admin\r\nteam " TEAM " infer,jobs tenant=blue");
    access = create((struct sy_access_config){.token_file = path});
    assert_int_equal(sy_access_token(access, TEAM, strlen(TEAM), &grant), SY_OK);
    assert_int_equal(grant.rights, SY_RIGHT_READ | SY_RIGHT_INFER | SY_RIGHT_JOBS);
    assert_string_equal(grant.name, "team");
    assert_int_equal(sy_access_need(&grant, SY_RIGHT_JOBS), SY_OK);
    assert_int_equal(sy_access_need(&grant, SY_RIGHT_MODELS), SY_EDENIED);
    assert_int_equal(sy_access_tenant(&grant, NULL, &tenant), SY_OK);
    assert_string_equal(tenant, "blue");
    assert_int_equal(sy_access_tenant(&grant, "red", &tenant), SY_EDENIED);
    sy_access_anonymous(access, &grant);
    assert_int_equal(grant.rights, 0);
    sy_access_destroy(access);
}

static int tenant_of(void *core, uint64_t job, const char **out)
{
    (void)core;
    if (job > 2)
        return sy_error_set(SY_ENOTFOUND, "there is no job %d", (int)job);
    *out = job == 1 ? "blue" : "";
    return SY_OK;
}

/* A4: what a line says of shared things does not count with a tenant. */
static void tokens_of_a_tenant(void **state)
{
    static const struct sy_core_handlers handlers = {.job_tenant = tenant_of};
    char path[4096];
    struct sy_access *access;
    struct sy_grant grant;
    (void)state;

    strcpy(path, in_folder("tokens"));
    write_text(path, "ops " OPS " admin\nteam " TEAM " admin tenant=blue");
    access = create((struct sy_access_config){.token_file = path});
    assert_int_equal(sy_access_token(access, TEAM, strlen(TEAM), &grant), SY_OK);
    assert_int_equal(grant.rights, SY_RIGHTS_ALL & ~SY_RIGHTS_SHARED);
    assert_int_equal(sy_access_need(&grant, SY_RIGHT_MODELS), SY_EDENIED);
    assert_non_null(strstr(sy_error_text(), "without tenant="));
    assert_int_equal(sy_access_need(&grant, SY_RIGHT_SETTINGS), SY_EDENIED);
    assert_int_equal(sy_access_job(&grant, &handlers, NULL, 1), SY_OK);
    assert_int_equal(sy_access_job(&grant, &handlers, NULL, 2), SY_EDENIED);
    assert_int_equal(sy_access_job(&grant, &handlers, NULL, 3), SY_ENOTFOUND);
    assert_int_equal(sy_access_token(access, OPS, strlen(OPS), &grant), SY_OK);
    assert_int_equal(grant.rights, SY_RIGHTS_ALL);
    assert_int_equal(sy_access_job(&grant, &handlers, NULL, 2), SY_OK);
    sy_access_destroy(access);
}

/* A token that is taken out of the file ends for those who showed it; a broken file changes nothing. */
static void file_changes(void **state)
{
    char path[4096];
    struct sy_access *access;
    struct sy_grant grant;
    (void)state;

    strcpy(path, in_folder("tokens"));
    write_text(path, "ops " OPS " admin\nteam " TEAM " infer\n");
    access = create((struct sy_access_config){.token_file = path});
    assert_int_equal(sy_access_token(access, TEAM, strlen(TEAM), &grant), SY_OK);
    write_text(path, "broken");
    usleep(1100000);
    sy_access_refresh(access, &grant);
    assert_int_equal(grant.rights, SY_RIGHT_READ | SY_RIGHT_INFER);
    write_text(path, "ops " OPS " admin\n");
    usleep(1100000);
    sy_access_refresh(access, &grant);
    assert_int_equal(grant.rights, 0);
    sy_access_destroy(access);
}

/* How often `words` stand in the log, which goes to `path`. */
static int n_said(const char *path, const char *words)
{
    char line[1000];
    int n = 0;
    FILE *log = fopen(path, "r");

    assert_non_null(log);
    while (fgets(line, sizeof line, log))
        n += strstr(line, words) != NULL;
    fclose(log);
    return n;
}

/* A file that is gone leaves what was there, and is said once; so is one that others may write, until its mode is right. */
static void file_goes(void **state)
{
    char path[4096], log[4096];
    struct sy_access *access;
    struct sy_grant grant;
    int out = dup(STDERR_FILENO);
    (void)state;

    strcpy(path, in_folder("tokens"));
    strcpy(log, in_folder("log"));
    write_text(path, "team " TEAM " infer\n");
    access = create((struct sy_access_config){.token_file = path});
    assert_int_equal(sy_access_token(access, TEAM, strlen(TEAM), &grant), SY_OK);
    assert_non_null(freopen(log, "w", stderr));
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < 3; i++) {
        usleep(1050000);
        sy_access_refresh(access, &grant);
    }
    assert_int_equal(grant.rights, SY_RIGHT_READ | SY_RIGHT_INFER);
    write_text(path, "team " TEAM " jobs\n");
    assert_int_equal(chmod(path, 0666), 0);
    usleep(1050000);
    sy_access_refresh(access, &grant);
    assert_int_equal(grant.rights, SY_RIGHT_READ | SY_RIGHT_INFER);
    assert_int_equal(chmod(path, 0600), 0);
    usleep(1050000);
    sy_access_refresh(access, &grant);
    assert_int_equal(grant.rights, SY_RIGHT_READ | SY_RIGHT_JOBS);
    fflush(stderr);
    dup2(out, STDERR_FILENO);
    close(out);
    assert_int_equal(n_said(log, "No such file"), 1);
    assert_int_equal(n_said(log, "chmod 600"), 1);
    sy_access_destroy(access);
}

static void addresses(void **state)
{
    static const char *const here[] = {"127.0.0.1:80", ":80", "[::1]:80", "localhost:1",
                                       "127.9.9.9:0"};
    static const char *const beyond[] = {"0.0.0.0:80", "[::]:80", "10.0.0.1:80", "192.168.1.2:0"};
    struct sy_access *closed = create((struct sy_access_config){0});
    struct sy_access *said = create((struct sy_access_config){.anonymous = "infer"});
    (void)state;

    for (size_t i = 0; i < SY_ARRAY_LEN(here); i++)
        assert_int_equal(sy_access_check_listen(closed, "tcp", here[i]), SY_OK);
    for (size_t i = 0; i < SY_ARRAY_LEN(beyond); i++) {
        assert_int_equal(sy_access_check_listen(closed, "tcp", beyond[i]), SY_EDENIED);
        assert_int_equal(sy_access_check_listen(said, "tcp", beyond[i]), SY_OK);
    }
    sy_access_destroy(closed);
    sy_access_destroy(said);
}

static void peers(void **state)
{
    struct sy_access *access = create((struct sy_access_config){.anonymous = "none"});
    struct sy_grant grant;
    int pair[2];
    (void)state;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(sy_access_peer(access, pair[0], &grant), SY_OK);
    assert_int_equal(grant.rights, SY_RIGHTS_ALL); /* the same user */
    close(pair[0]);
    close(pair[1]);
    sy_access_destroy(access);
}

static void paths(void **state)
{
    static const char *const elsewhere[] = {"/etc/passwd", "/etc/none",  "../tokens",    "link",
                                            "a/../../x",   "/proc/self", "a/link/passwd"};
    char models[4096], out[SY_PATH_BYTES], name[4200];
    (void)state;

    strcpy(models, in_folder("models"));
    assert_int_equal(mkdir(models, 0700), 0);
    snprintf(name, sizeof name, "%s/a", models);
    assert_int_equal(mkdir(name, 0700), 0);
    snprintf(name, sizeof name, "%s/link", models);
    assert_int_equal(symlink("/etc/passwd", name), 0);
    snprintf(name, sizeof name, "%s/a/link", models);
    assert_int_equal(symlink("/etc", name), 0);
    snprintf(name, sizeof name, "%s/a/file", models);
    write_text(name, "x");
    assert_int_equal(sy_path_below(models, "a/file", out), SY_OK);
    assert_string_equal(out, name);
    assert_int_equal(sy_path_below(models, name, out), SY_OK);
    assert_int_equal(sy_path_below(models, "a/none", out), SY_ENOTFOUND);
    assert_int_equal(sy_path_below_new(models, "a/none", out), SY_OK);
    assert_int_equal(sy_path_below_new(models, "none/none", out), SY_ENOTFOUND);
    assert_int_equal(sy_path_below(NULL, "a/file", out), SY_EDENIED);
    for (size_t i = 0; i < SY_ARRAY_LEN(elsewhere); i++) {
        char expected[300];

        assert_int_equal(sy_path_below(models, elsewhere[i], out), SY_EDENIED);
        snprintf(expected, sizeof expected, "\"%s\" is not below the models' folder", elsewhere[i]);
        assert_memory_equal(sy_error_text(), expected, strlen(expected));
        assert_int_equal(sy_path_below_new(models, elsewhere[i], out), SY_EDENIED);
    }
    snprintf(name, sizeof name, "%sx/file", models); /* begins alike */
    assert_int_equal(sy_path_below(models, name, out), SY_EDENIED);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_exact),
        cmocka_unit_test(lines_of_the_file),
        cmocka_unit_test(tokens_of_a_tenant),
        cmocka_unit_test(file_changes),
        cmocka_unit_test(file_goes),
        cmocka_unit_test(addresses),
        cmocka_unit_test(peers),
        cmocka_unit_test(paths),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
