/* What a training process of our own writes on the page of the script that started it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/cli/train/script_gate.h"

/* The place was another process's, whose start is not this one's: who compares would find that the owner has ended. */
static void test_it_takes_the_place_whole(void **state)
{
    struct sy_script_gate gate;
    char path[64];
    int file = memfd_create("page", MFD_CLOEXEC);
    const uint64_t magic = SY_SCRIPT_MAGIC;
    (void)state;
    assert_int_equal(ftruncate(file, SY_SCRIPT_PAGE_BYTES), 0);
    assert_int_equal(pwrite(file, &magic, sizeof magic, 0), sizeof magic);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    assert_int_equal(setenv("SWITCHYARD_SCRIPT_PAGE", path, 1), 0);
    assert_int_equal(sy_script_gate_open(&gate), SY_OK);
    atomic_store(&gate.page->owner, 1);
    atomic_store(&gate.page->owner_started, 5);
    sy_script_gate_show(&gate, 3, 9, 0.5);
    assert_int_equal(atomic_load(&gate.page->owner), getpid());
    assert_int_equal(atomic_load(&gate.page->owner_started), 0);
    assert_int_equal(atomic_load(&gate.page->step), 3);
    assert_int_equal(atomic_load(&gate.page->total_steps), 9);
    sy_script_gate_close(&gate);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_it_takes_the_place_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
