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

#include "tests/server_fixture.h"

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

static void run(const char *command, int expected, const char *says)
{
    static char output[65536];
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    assert_int_equal(pclose(pipe), expected << 8);
    if (!strstr(output, says))
        fail_msg("'%s' is not in '%s'", says, output);
}

static void a_program_links_and_talks(void **state)
{
    (void)state;
    char command[2000], folder[300], source[400];
    struct fixture f;
#ifdef SY_SANITIZED
    print_message("skipped: the library wants a program that is sanitized too\n");
    skip();
#endif
    if (access("runtime/switchyard.h", R_OK) != 0 || system("cc --version > /dev/null 2>&1") != 0) {
        print_message("skipped: no compiler is called cc, or the sources are not here\n");
        skip();
    }
    fixture_init(&f, "library");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    snprintf(source, sizeof source, "%s/program.c", f.folder);
    FILE *file = fopen(source, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(program, 1, sizeof program - 1, file), sizeof program - 1);
    fclose(file);
    snprintf(folder, sizeof folder, "%s", fixture_program("."));
    snprintf(command, sizeof command,
             "cc -Wall -Wextra -Werror -I runtime -o %s/program %s -L %s -lswitchyard 2>&1",
             f.folder, source, folder);
    run(command, 0, "");
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s/program %s 2>&1", folder, f.folder,
             f.address);
    run(command, 0, "tiny_cnn");
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s/program %s/nobody 2>&1", folder,
             f.folder, f.folder);
    run(command, 1, "no server answers");
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_program_links_and_talks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
