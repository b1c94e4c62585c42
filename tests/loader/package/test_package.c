/* The package file: what is written can be read; every byte counts; every cut is named. The weights that are expected come from the
 * graph's constants, through an engine of the tests that copies them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/rigs/package_rig.h"

#define PAGE 4096u

/* ---- what is written ------------------------------------------------------------------------------------------ */

static void test_reads_what_was_written(void **state)
{
    (void)state;
    struct sy_package *p;
    size_t bytes;
    unsigned char *all = pr_read_file(pr_path, &bytes);
    assert_int_equal(pr_open_and_verify(pr_path, &p), SY_OK);
    assert_string_equal(p->name, "small");
    assert_string_equal(p->packed_for, "copies for tests");
    assert_string_equal(p->path, pr_path);
    assert_int_equal(p->n_layers, 4);
    assert_int_equal(p->weights_bytes, 4 * PAGE); /* one page, none, none, 64*40*4 in three */
    assert_int_equal(bytes, p->weights_offset + p->weights_bytes);
    const unsigned char *weights = all + p->weights_offset;
    const struct sy_layer *conv = &p->layers[0], *gemm = &p->layers[3];
    assert_memory_equal(weights, pr_graph->tensors[1].data, 4 * 9 * 4);
    assert_int_equal(conv->params[1].offset_bytes, 192); /* behind 144 bytes, aligned to 64 */
    assert_memory_equal(weights + 192, pr_graph->tensors[2].data, 16);
    assert_int_equal(gemm->offset_bytes, PAGE);
    assert_memory_equal(weights + PAGE,
                        pr_graph->nodes[3].inputs[1] >= 0
                            ? pr_graph->tensors[pr_graph->nodes[3].inputs[1]].data
                            : NULL,
                        64 * 40 * 4);
    assert_memory_equal(conv->params[0].layout, "as", 3);
    assert_int_equal(p->graph->nodes[3].op, SY_OP_GEMM);
    assert_null(p->graph->tensors[1].data); /* it is in the weights */
    assert_int_equal(p->profile.n_threads, 0);
    assert_int_equal(sy_package_layer_ns(p, 0, 1), 0);
    /* all layers in one piece, and the last two */
    assert_int_equal(sy_package_verify(p, 0, 4, weights), SY_OK);
    assert_int_equal(sy_package_verify(p, 2, 2, weights + PAGE), SY_OK);
    assert_int_equal(sy_package_verify(p, 2, 2, weights), SY_ECORRUPT);
    sy_package_close(p);
    free(all);
}

static void test_same_model_same_bytes(void **state)
{
    (void)state;
    size_t n, m;
    unsigned char *a = pr_read_file(pr_pristine, &n), *b;
    assert_int_equal(sy_package_write(pr_path, "small", pr_graph, &pr_copier, NULL, NULL), SY_OK);
    b = pr_read_file(pr_path, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

/* An engine's choices of algorithms for a model of many sizes are longer than any name. */
static void test_long_choices_come_back(void **state)
{
    (void)state;
    struct sy_package *p;
    const size_t length = 300000;
    char *choices = malloc(length + 1);
    assert_non_null(choices);
    memset(choices, 'c', length);
    choices[length] = '\0';
    struct sy_profile profile = {.choices = choices};
    assert_int_equal(sy_package_set_profile(pr_path, &profile), SY_OK);
    assert_int_equal(pr_open_and_verify(pr_path, &p), SY_OK);
    assert_string_equal(p->profile.choices, choices);
    sy_package_close(p);
    free(choices);
}

static int other_describe(char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "copies for others");
    return SY_OK;
}

static void test_packed_for_another_engine(void **state)
{
    (void)state;
    struct sy_package *p;
    struct sy_engine_ops other = pr_copier;
    other.describe = other_describe;
    assert_int_equal(sy_package_open(pr_path, &p), SY_OK);
    assert_int_equal(sy_package_check_engine(p, &pr_copier), SY_OK);
    assert_int_equal(sy_package_check_engine(p, &other), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), pr_path));
    assert_non_null(strstr(sy_error_text(), "copies for tests"));
    assert_non_null(strstr(sy_error_text(), "copies for others"));
    sy_package_close(p);
}

/* ---- damage --------------------------------------------------------------------------------------------------- */

static const char *section_of(const struct sy_package_header *h, size_t at)
{
    if (at < PAGE)
        return ": header: ";
    if (at < PAGE + h->meta_bytes)
        return ": meta: ";
    if (at < h->weights_offset)
        return ": padding: ";
    return at < h->weights_offset + PAGE ? ": weights of layer 0 (node0): "
                                         : ": weights of layer 3 (node3): ";
}

/* Every byte of the file, each with a bit pattern of its own. */
static void test_every_byte_counts(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *all = pr_read_file(pr_path, &bytes);
    struct sy_package_header h = pr_header_of(all);
    int fd = open(pr_path, O_WRONLY);
    assert_true(fd >= 0);
#ifdef SY_SANITIZED
    const size_t step = 7;
#else
    const size_t step = 1;
#endif
    for (size_t at = 0; at < bytes; at += at < PAGE || at % 64 == 0 ? 1 : step) {
        unsigned char altered = all[at] ^ (unsigned char)(1u << at % 8 | (at * 37 & 0xffu));
        altered = altered == all[at] ? (unsigned char)~all[at] : altered;
        assert_int_equal(pwrite(fd, &altered, 1, (off_t)at), 1);
        pr_expect_refused(SY_ECORRUPT, section_of(&h, at));
        assert_int_equal(pwrite(fd, &all[at], 1, (off_t)at), 1);
    }
    close(fd);
    pr_expect_good(pr_path);
    free(all);
}

static void expect_cut(const unsigned char *all, size_t at, const char *words)
{
    pr_write_file(pr_path, all, at);
    pr_expect_refused(SY_ECORRUPT, words);
}

static void test_every_cut_is_named(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *all = pr_read_file(pr_path, &bytes);
    struct sy_package_header h = pr_header_of(all);
    const size_t meta_end = PAGE + h.meta_bytes, weights = h.weights_offset;
    for (size_t at = 0; at < PAGE; at += at == 0 || at + 5 > PAGE ? 1 : 511)
        expect_cut(all, at, ": header: the file has ");
    for (size_t at = PAGE; at < meta_end; at += at < PAGE + 2 || at + 2 > meta_end ? 1 : 97)
        expect_cut(all, at, ": meta: the file has ");
    for (size_t at = meta_end; at < weights; at += at < meta_end + 2 || at + 2 > weights ? 1 : 97)
        expect_cut(all, at, ": padding: the file has ");
    for (size_t layer = weights; layer < bytes; layer += PAGE)
        for (int d = -1; d <= 1; d++)
            if (layer + (size_t)d >= weights)
                expect_cut(all, layer + (size_t)d, ": weights: the file has ");
    expect_cut(all, bytes - 1, ": weights: the file has ");
    free(all);
}

static void test_appended_bytes_are_refused(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *all = pr_read_file(pr_path, &bytes), *more = calloc(1, bytes + PAGE);
    memcpy(more, all, bytes);
    memset(more + bytes, 'x', PAGE);
    for (size_t extra = 1; extra <= PAGE; extra += PAGE - 1) {
        pr_write_file(pr_path, more, bytes + extra);
        pr_expect_refused(SY_ECORRUPT, ": weights: the file has ");
    }
    free(more);
    free(all);
}

/* The header's hash is right, its contents are not. */
static void with_header(const struct sy_package_header *header, int status, const char *words)
{
    struct sy_package_header h = *header;
    int fd = open(pr_path, O_WRONLY);
    h.header_hash = sy_package_header_hash(&h);
    assert_int_equal(pwrite(fd, &h, sizeof h, 0), sizeof h);
    close(fd);
    pr_expect_refused(status, words);
}

static void test_hostile_headers(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *all = pr_read_file(pr_path, &bytes);
    const struct sy_package_header good = pr_header_of(all);
    struct sy_package_header h = good;
    char words[80];
    h.version = SY_PACKAGE_VERSION + 1;
    snprintf(words, sizeof words, "version %u, this program reads %u", SY_PACKAGE_VERSION + 1,
             SY_PACKAGE_VERSION);
    with_header(&h, SY_EUNSUPPORTED, words);
    h.version = SY_PACKAGE_VERSION - 1;
    with_header(&h, SY_EUNSUPPORTED, "import the model again");
    h = good, h.meta_bytes = UINT64_MAX - 4096;
    with_header(&h, SY_ECORRUPT, ": header: ");
    h = good, h.meta_bytes += 1;
    with_header(&h, SY_ECORRUPT, ": meta: ");
    h = good, h.meta_bytes = 0;
    with_header(&h, SY_ECORRUPT, ": meta: ");
    h = good, h.weights_offset = 1ull << 62;
    with_header(&h, SY_ECORRUPT, ": header: ");
    h = good, h.weights_offset = 0;
    with_header(&h, SY_ECORRUPT, ": header: ");
    h = good, h.weights_bytes = 0 - good.weights_offset;
    with_header(&h, SY_ECORRUPT, ": header: ");
    h = good, h.weights_offset += PAGE, h.weights_bytes -= PAGE; /* the first layer as padding */
    with_header(&h, SY_ECORRUPT, ": padding: ");
    h = good, h.weights_offset -= 1;
    with_header(&h, SY_ECORRUPT, ": header: ");
    free(all);
}

static void test_what_is_no_package(void **state)
{
    (void)state;
    struct sy_package *p = NULL;
    pr_write_file(pr_path, "", 0);
    pr_expect_refused(SY_ECORRUPT, ": header: ");
    unlink(pr_path);
    assert_int_equal(sy_package_open(pr_path, &p), SY_ENOTFOUND);
    assert_int_equal(sy_package_open(pr_folder, &p), SY_EARG);
    assert_int_equal(mkfifo(pr_path, 0600), 0);
    assert_int_equal(sy_package_open(pr_path, &p), SY_EARG); /* and does not wait for a writer */
    assert_null(p);
    unlink(pr_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_reads_what_was_written, pr_fresh),
        cmocka_unit_test_setup(test_same_model_same_bytes, pr_fresh),
        cmocka_unit_test_setup(test_long_choices_come_back, pr_fresh),
        cmocka_unit_test_setup(test_packed_for_another_engine, pr_fresh),
        cmocka_unit_test_setup(test_every_byte_counts, pr_fresh),
        cmocka_unit_test_setup(test_every_cut_is_named, pr_fresh),
        cmocka_unit_test_setup(test_appended_bytes_are_refused, pr_fresh),
        cmocka_unit_test_setup(test_hostile_headers, pr_fresh),
        cmocka_unit_test_setup(test_what_is_no_package, pr_fresh),
    };
    return cmocka_run_group_tests(tests, pr_start, pr_finish);
}
