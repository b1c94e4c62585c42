/* A program of somebody else's, which knows the public header and library alone, talks to a server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/rigs/server_fixture.h"
#include "tests/rigs/shell.h"

static const char program[] = "#include <stdio.h>\n"
                              "#include <stdlib.h>\n"
                              "#include <switchyard.h>\n"
                              "int main(int argc, char **argv)\n"
                              "{\n"
                              "    sy_client *client;\n"
                              "    char *text = NULL;\n"
                              "    int status = sy_client_connect(argv[argc - 1], 0, &client);\n"
                              "    if (status == 0)\n"
                              "        status = sy_client_call(client, \"models\", NULL, &text);\n"
                              "    puts(status == 0 ? text : sy_client_error(client));\n"
                              "    free(text);\n"
                              "    sy_client_close(client);\n"
                              "    return status == 0 ? 0 : 1;\n"
                              "}\n";

/* Numbers that never go through the socket: the output is found where it was placed, in the memory of the input. */
static const char shared_program[] =
    "#include <stdio.h>\n"
    "#include <switchyard.h>\n"
    "int main(int argc, char **argv)\n"
    "{\n"
    "    sy_client *client;\n"
    "    sy_client_region *region = NULL;\n"
    "    sy_client_result *result = NULL;\n"
    "    int status = sy_client_connect(argv[argc - 1], 0, &client);\n"
    "    if (status == 0)\n"
    "        status = sy_client_region_create(client, 8192, &region);\n"
    "    if (status == 0) {\n"
    "        float *x = sy_client_region_data(region), *y = x + 1024;\n"
    "        sy_client_tensor input = {\"input\", \"FP32\", 2, {256, 4}, x, 4096};\n"
    "        sy_client_place place = {\"output\", y, 4096};\n"
    "        sy_client_options options = {.urgency_class = 1, .places = &place, .n_places = 1};\n"
    "        for (int i = 0; i < 1024; i++)\n"
    "            x[i] = (float)i;\n"
    "        status = sy_client_infer_with(client, \"identity\", &input, 1, &options, &result);\n"
    "        if (status == 0)\n"
    "            printf(\"%d %g\", result->outputs[0].data == y, (double)y[1023]);\n"
    "    }\n"
    "    puts(status == 0 ? \"\" : sy_client_error(client));\n"
    "    sy_client_result_free(result);\n"
    "    sy_client_close(client);\n"
    "    sy_client_region_destroy(region);\n"
    "    return status == 0 ? 0 : 1;\n"
    "}\n";

static void run(const char *command, int expected, const char *says)
{
    static char output[65536];
    assert_int_equal(shell_run(output, sizeof output, "%s", command), expected);
    if (!strstr(output, says))
        fail_msg("'%s' is not in '%s'", says, output);
}

static bool can_compile(void)
{
#ifdef SY_SANITIZED
    print_message("skipped: the library wants a program that is sanitized too\n");
    return false;
#endif
    if (access("runtime/client/switchyard.h", R_OK) == 0 &&
        system("cc --version > /dev/null 2>&1") == 0)
        return true;
    print_message("skipped: no compiler is called cc, or the sources are not here\n");
    return false;
}

/* Folder of the library; `text` is folder/program, linked with it. */
static const char *compile(const struct fixture *f, const char *text)
{
    static char folder[300];
    char command[2000], source[400];
    snprintf(source, sizeof source, "%s/program.c", f->folder);
    FILE *file = fopen(source, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    fclose(file);
    snprintf(folder, sizeof folder, "%s", fixture_program("."));
    snprintf(command, sizeof command,
             "cc -Wall -Wextra -Werror -I runtime/client -o %s/program %s -L %s -lswitchyard 2>&1",
             f->folder, source, folder);
    run(command, 0, "");
    return folder;
}

static void start(struct fixture *f)
{
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_init(f, "library");
    fixture_start(f, args);
}

static void a_program_links_and_talks(void **state)
{
    (void)state;
    char command[2000];
    struct fixture f;
    if (!can_compile())
        skip();
    start(&f);
    const char *folder = compile(&f, program);
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s/program %s 2>&1", folder, f.folder,
             f.address);
    run(command, 0, "tiny_cnn");
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s/program %s/nobody 2>&1", folder,
             f.folder, f.folder);
    run(command, 1, "no server answers");
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void a_program_shares_memory(void **state)
{
    (void)state;
    char command[2000];
    struct fixture f;
    if (!can_compile())
        skip();
    start(&f);
    const char *folder = compile(&f, shared_program);
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s/program %s 2>&1", folder, f.folder,
             f.address);
    run(command, 0, "1 1023");
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_program_links_and_talks),
                                       cmocka_unit_test(a_program_shares_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
