/* The seam between the process and the CUDA plugin: loading, refusing, and the whole device suite behind it, on the tests' own
 * plugin, which has a fake for CUDA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/device/device_cuda.h"
#include "runtime/device/plugin_host.h"

#define OUTPUT_BYTES 65536

static char folder[4096], build[4096]; /* of the test binaries; of the program */
static char output[OUTPUT_BYTES];      /* of the last command */

/* Runs a command of the shell, keeps what it prints. Its exit status. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
    char command[16384];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = 0;
    int result = pclose(pipe);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

static void expect_output(const char *word)
{
    if (!strstr(output, word))
        print_error("no \"%s\" in: %s\n", word, output);
    assert_non_null(strstr(output, word));
}

/* This binary as another program: opens what it is told to and says what it was told. */
static int open_and_tell(const char *text)
{
    struct sy_device_spec spec;
    struct sy_device *device;
    int status = sy_device_spec_parse(text, &spec);
    if (status == SY_OK)
        status = sy_device_open(&spec, &device);
    if (status < 0) {
        printf("%s: %s\n", sy_status_name(status), sy_error_text());
        return 1;
    }
    printf("opened %s\n", sy_device_get_properties(device)->name);
    sy_device_close(device);
    return 0;
}

/* ---- the fake behind the seam -------------------------------------------------------------------------------- */

static void test_the_device_suite_on_the_fake(void **state)
{
    (void)state;
    int result = run(
        "SY_CUDA_PLUGIN=%s/libswitchyard-cuda-fake.so SY_TEST_DEVICE=cuda:0 %s/test_device 2>&1",
        folder, folder);
    if (result != 0)
        print_error("%s\n", output);
    assert_int_equal(result, 0);
    expect_output("Fake GPU");
}

/* No descriptors: the pool is with a keeper, each process has it at an address of its own. */
static void test_the_device_suite_with_a_keeper(void **state)
{
    (void)state;
    int result = run("SY_CUDA_PLUGIN=%s/libswitchyard-cuda-fake.so SY_TEST_DEVICE=cuda "
                     "SY_CUDA_POOL=ipc SY_CUDA_KEEPER=%s/test_cuda_device "
                     "%s/test_device 2>&1",
                     folder, folder, folder);
    if (result != 0)
        print_error("%s\n", output);
    assert_int_equal(result, 0);
}

/* The plugin sets its errors in this process's text, and its faults are this process's. */
static void test_errors_reach_the_process(void **state)
{
    (void)state;
    assert_int_equal(
        run("SY_CUDA_PLUGIN=%s/libswitchyard-cuda-fake.so %s/test_cuda_plugin --open cuda:5 2>&1",
            folder, folder),
        1);
    expect_output("ENODEVICE: cuda:5: there is 1 GPU here");
    assert_int_equal(
        run("SY_CUDA_PLUGIN=%s/libswitchyard-cuda-fake.so %s/test_cuda_plugin --open cuda 2>&1",
            folder, folder),
        0);
    expect_output("opened cuda:0 (Fake GPU)");
}

static void test_another_build_is_refused(void **state)
{
    (void)state;
    char path[5000];
    void *entry;
    struct sy_plugin_host other = {.abi = SY_PLUGIN_ABI + 1,
                                   .layout_bytes = SY_PLUGIN_LAYOUT_BYTES,
                                   .error_write = sy_error_write};
    snprintf(path, sizeof path, "%s/libswitchyard-cuda-fake.so", folder);
    setenv("SY_CUDA_PLUGIN", path, 1);
    assert_int_equal(sy_device_cuda_symbol(SY_CUDA_PLUGIN_ENTRY, &entry), SY_OK);
    unsetenv("SY_CUDA_PLUGIN");
    assert_null(((sy_plugin_entry)entry)(&other));
    assert_non_null(strstr(sy_error_text(), "another build"));
    other.abi = SY_PLUGIN_ABI;
    other.layout_bytes += 8;
    assert_null(((sy_plugin_entry)entry)(&other));
    assert_int_equal(sy_device_cuda_symbol("sy_no_such_symbol", &entry), SY_ENODEVICE);
    assert_non_null(strstr(sy_error_text(), "sy_no_such_symbol"));
}

/* ---- no plugin ------------------------------------------------------------------------------------------------ */

static void test_without_a_plugin(void **state)
{
    (void)state;
    assert_int_equal(run("SY_CUDA_PLUGIN= %s/test_cuda_plugin --open cuda:0 2>&1", folder), 1);
    expect_output("ENODEVICE: cuda:0: libswitchyard-cuda.so is neither in ");
    expect_output("--device host");
    assert_int_equal(
        run("SY_CUDA_PLUGIN=/nonexistent/x.so %s/test_cuda_plugin --open cuda:0 2>&1", folder), 1);
    expect_output("/nonexistent/x.so");
    /* Some library that is no plugin: */
    assert_int_equal(run("SY_CUDA_PLUGIN=libm.so.6 %s/test_cuda_plugin --open cuda:3 2>&1", folder),
                     1);
    expect_output("cuda:3: libswitchyard-cuda.so has no sy_cuda_device_ops_v1");
    assert_int_equal(
        run("SY_CUDA_PLUGIN=/nonexistent/x.so %s/test_cuda_plugin --open host 2>&1", folder), 0);
}

/* ---- the plugin itself ----------------------------------------------------------------------------------------- */

static bool plugin_was_built(void)
{
    char path[5000];
    snprintf(path, sizeof path, "%s/" SY_CUDA_PLUGIN_FILE, build);
    return access(path, R_OK) == 0;
}

static bool have_gpu(void)
{
    return access("/dev/nvidiactl", F_OK) == 0;
}

/* Links nothing of the driver, exports one symbol, and where there is no driver it says so in one line. */
static void test_the_plugin_loads_and_refuses(void **state)
{
    (void)state;
    if (!plugin_was_built()) {
        print_message("skip: no CUDA plugin was built (CUDA=0, or no toolkit)\n");
        skip();
    }
    assert_int_equal(run("readelf -d %s/" SY_CUDA_PLUGIN_FILE " | grep NEEDED", build), 0);
    assert_null(strstr(output, "libcuda"));
    assert_int_equal(run("nm -D --defined-only %s/" SY_CUDA_PLUGIN_FILE " | grep -c ' T '", build),
                     0);
    assert_int_equal(run("nm -D --defined-only %s/" SY_CUDA_PLUGIN_FILE
                         " | grep ' T ' | grep -v ' T sy_cuda_'",
                         build),
                     1);
    if (have_gpu()) {
        print_message("skip: there is a GPU here: make gpu-check\n");
        skip();
    }
    assert_int_equal(run("SY_CUDA_PLUGIN=%s/" SY_CUDA_PLUGIN_FILE
                         " %s/test_cuda_plugin --open cuda:0",
                         build, folder),
                     1);
    expect_output("ENODEVICE: cuda:0: there is no NVIDIA driver here");
    expect_output("--device host");
    assert_ptr_equal(strchr(output, '\n'), output + strlen(output) - 1);
}

/* `switchyard serve` says the same and exits with 1; `host` serves on. */
static void test_serve_refuses_and_host_stays(void **state)
{
    (void)state;
    if (have_gpu()) {
        print_message("skip: there is a GPU here: make gpu-check\n");
        skip();
    }
    int result =
        run("timeout 60 %s/switchyard serve --device cuda:0 --socket /tmp/sy-plugin-%d.sock 2>&1",
            build, (int)getpid());
    assert_int_equal(result, 1);
    expect_output("cuda:0");
    expect_output("--device host");
    assert_int_equal(run("timeout 60 %s/switchyard bench-link --device host 2>&1", build), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_device_suite_on_the_fake),
        cmocka_unit_test(test_the_device_suite_with_a_keeper),
        cmocka_unit_test(test_errors_reach_the_process),
        cmocka_unit_test(test_another_build_is_refused),
        cmocka_unit_test(test_without_a_plugin),
        cmocka_unit_test(test_the_plugin_loads_and_refuses),
        cmocka_unit_test(test_serve_refuses_and_host_stays),
    };
    if (argc == 3 && strcmp(argv[1], "--open") == 0)
        return open_and_tell(argv[2]);
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (n < 0)
        return 1;
    folder[n] = 0;
    *strrchr(folder, '/') = 0;
    strcpy(build, folder);
    *strrchr(build, '/') = 0;
    /* The leak checker of gcc 12 falls over thread-local data of libraries that are loaded late. */
    const char *options = getenv("ASAN_OPTIONS");
    char more[1024];
    snprintf(more, sizeof more, "%s:intercept_tls_get_addr=0", options ? options : "");
    setenv("ASAN_OPTIONS", more, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
