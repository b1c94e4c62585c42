/* Data sets of a job: every reader against what was written, its order, batches ahead, and each kind of bad input by name. */
#include <math.h>
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

#include <jpeglib.h>
#include <png.h>

#include "loader/image_reader.h"
#include "loader/npy.h"
#include "runtime/base/status.h"
#include "workers/csv_rows.h"
#include "workers/job_data.h"
#include "workers/prefetch.h"
#include "workers/train_data.h"

/* The places of a network's one input. */
#define ONE(place) ((void *[]){place})

static char folder[64];

static char *path_of(const char *name)
{
    static char paths[8][256];
    static int at;
    char *path = paths[at++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", folder, name);
    return path;
}

static char *write_bytes(const char *name, const void *bytes, size_t n)
{
    char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
    return path;
}

static char *write_text(const char *name, const char *text)
{
    return write_bytes(name, text, strlen(text));
}

static struct sy_data_want want_numbers(int64_t n_inputs, int64_t n_classes)
{
    return (struct sy_data_want){
        .n_inputs = 1,
        .inputs = {{.dtype = SY_DTYPE_F32, .rank = 1, .dims = {n_inputs}, .n = (uint64_t)n_inputs}},
        .are_classes = true,
        .n_labels = 1,
        .n_classes = n_classes};
}

static struct sy_data_want want_indices(int64_t n_inputs, int64_t n_classes)
{
    struct sy_data_want want = want_numbers(n_inputs, n_classes);
    want.inputs[0].dtype = SY_DTYPE_I64;
    return want;
}

/* A section "data" as a job file has it; finish with sy_job_data_free. */
static struct sy_data_spec spec_of(const char *format, ...)
{
    char text[1024];
    struct sy_data_spec spec = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    if (sy_job_data_take(json, 5, &spec) < 0)
        fail_msg("%s", sy_error_text());
    json_decref(json);
    return spec;
}

static void open_data(const struct sy_data_spec *spec, const struct sy_data_want *want,
                      struct sy_train_data *data)
{
    if (sy_train_data_open(spec, want, data) < 0)
        fail_msg("%s", sy_error_text());
}

/* Refused with this status, and a text that names `part`. */
static void check_refused(struct sy_data_spec spec, struct sy_data_want want, int status,
                          const char *part)
{
    struct sy_train_data data;
    assert_int_equal(sy_train_data_open(&spec, &want, &data), status);
    if (!strstr(sy_error_text(), part))
        fail_msg("'%s' is not in: %s", part, sy_error_text());
    sy_job_data_free(&spec);
}

/* ---- .npy ---------------------------------------------------------------------------------------------- */

static void test_npy(void **state)
{
    (void)state;
    float inputs[5][2], input[2];
    int64_t labels[5];
    int32_t label;
    for (int i = 0; i < 5; i++) {
        inputs[i][0] = (float)i;
        inputs[i][1] = (float)-i;
        labels[i] = i % 3;
    }
    sy_npy_write(path_of("x.npy"), SY_DTYPE_F32, 2, (const int64_t[]){5, 2}, inputs);
    sy_npy_write(path_of("y.npy"), SY_DTYPE_I64, 1, (const int64_t[]){5}, labels);
    struct sy_data_spec spec = spec_of(
        "{'kind': 'npy', 'inputs': '%s', 'labels': '%s', 'mean': 1, 'std': 2, 'shuffle': false}",
        path_of("x.npy"), path_of("y.npy"));
    struct sy_data_want want = want_numbers(2, 3);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 5);
    for (uint64_t i = 0; i < 12; i++) { /* the stream goes round */
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        assert_true(input[0] == ((float)(i % 5) - 1.0f) / 2.0f);
        assert_int_equal(label, i % 5 % 3);
    }
    sy_train_data_close(&data);
    check_refused(spec, want_numbers(3, 3), SY_EARG, "takes 3");
    const char *both = "{'kind': 'npy', 'inputs': '%s', 'labels': '%s'}";
    check_refused(spec_of(both, path_of("x.npy"), path_of("y.npy")), want_numbers(2, 2), SY_EARG,
                  "sample 2 of");
    check_refused(spec_of(both, path_of("y.npy"), path_of("none.npy")), want_numbers(1, 3),
                  SY_ENOTFOUND, "none.npy");
    sy_npy_write(path_of("y4.npy"), SY_DTYPE_I64, 1, (const int64_t[]){4}, labels);
    check_refused(spec_of(both, path_of("x.npy"), path_of("y4.npy")), want_numbers(2, 3),
                  SY_ECORRUPT, "4 labels");
    check_refused(spec_of(both, path_of("x.npy"), path_of("x.npy")), want_numbers(2, 3), SY_EARG,
                  "x.npy");
}

/* What cannot be learnt from is named when its sample is wanted, float64 beyond float32 too; a label that is a value, at the start. */
static void test_npy_not_finite(void **state)
{
    (void)state;
    double values[4][2] = {{0, 1}, {2, 3}, {4, NAN}, {1e39, 7}};
    float input[2];
    int32_t label;
    struct sy_data_want want = want_numbers(2, 3);
    struct sy_train_data data;
    sy_npy_write(path_of("n.npy"), SY_DTYPE_F64, 2, (const int64_t[]){4, 2}, values);
    sy_npy_write(path_of("l.npy"), SY_DTYPE_I64, 1, (const int64_t[]){4},
                 (const int64_t[]){0, 1, 2, 0});
    struct sy_data_spec spec =
        spec_of("{'kind': 'npy', 'inputs': '%s', 'labels': '%s', 'shuffle': false}",
                path_of("n.npy"), path_of("l.npy"));
    open_data(&spec, &want, &data);
    assert_int_equal(sy_train_data_fill(&data, &want, 0, false, 1, ONE(input), &label), SY_OK);
    assert_int_equal(sy_train_data_fill(&data, &want, 1, false, 1, ONE(input), &label), SY_OK);
    assert_int_equal(sy_train_data_fill(&data, &want, 2, false, 1, ONE(input), &label),
                     SY_ECORRUPT);
    assert_non_null(strstr(sy_error_text(), "n.npy': element 1 is nan"));
    assert_int_equal(sy_train_data_fill(&data, &want, 3, false, 1, ONE(input), &label),
                     SY_ECORRUPT);
    assert_non_null(strstr(sy_error_text(), "sample 3 of"));
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
    want.are_classes = false;
    want.n_labels = 2;
    check_refused(spec_of("{'kind': 'npy', 'inputs': '%s', 'labels': '%s'}", path_of("x.npy"),
                          path_of("n.npy")),
                  want, SY_ECORRUPT, "labels");
    sy_npy_write(path_of("x4.npy"), SY_DTYPE_F64, 2, (const int64_t[]){4, 2},
                 (const double[]){0, 1, 2, 3, 4, 5, 6, 7});
    check_refused(spec_of("{'kind': 'npy', 'inputs': '%s', 'labels': '%s'}", path_of("x4.npy"),
                          path_of("n.npy")),
                  want, SY_ECORRUPT, "n.npy' has label nan");
}

/* ---- CSV ----------------------------------------------------------------------------------------------- */

static const char csv[] = "size,\"the \"\"kind\"\"\",weight,ignored\r\n"
                          "1,cat,10,x\r\n"
                          "2,\"dog, big\",20,\n"
                          "\n"
                          "3,cat,60,\"two\nlines\"\n"
                          "6,ant,30,z";

static void test_csv_columns(void **state)
{
    (void)state;
    float input[2];
    int32_t label;
    const int32_t wanted[] = {1, 2, 1, 0}; /* ant, cat, "dog, big" */
    const float weights[] = {10, 20, 60, 30};
    struct sy_data_spec spec =
        spec_of("{'kind': 'csv', 'file': '%s', 'label': 'the \\'kind\\'', 'features': ['weight', "
                "'size'], 'shuffle': false}",
                write_text("a.csv", csv));
    struct sy_data_want want = want_numbers(2, 3);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 4);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        assert_true(input[0] == weights[i]);
        assert_int_equal(label, wanted[i]);
    }
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

static void test_csv_standardized(void **state)
{
    (void)state;
    float input[2], label, sum = 0, square = 0;
    struct sy_data_spec spec =
        spec_of("{'kind': 'csv', 'file': '%s', 'label': '3', 'header': false, 'separator': ';', "
                "'standardize': true}",
                write_text("b.csv", "1;5;0.5\n2;5;1.5\n4;5;-2\n9;5;7\n"));
    struct sy_data_want want = want_numbers(2, 1);
    struct sy_train_data data;
    want.are_classes = false;
    open_data(&spec, &want, &data);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        sum += input[0];
        square += input[0] * input[0];
        assert_true(input[1] == 0.0f &&
                    (label == 0.5f || label == 1.5f || label == -2 || label == 7));
    }
    assert_true(fabsf(sum) < 1e-5f && fabsf(square - 4) < 1e-4f);
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

static void test_bad_csv(void **state)
{
    (void)state;
    struct sy_data_want want = want_numbers(1, 2);
    const char *job = "{'kind': 'csv', 'file': '%s', 'label': 'y', 'features': ['x']}";
    check_refused(
        spec_of("{'kind': 'csv', 'file': '%s', 'label': 'z'}", write_text("c.csv", "x,y\n1,0\n")),
        want, SY_EARG, "no column 'z'; it has 'x', 'y'");
    check_refused(spec_of("{'kind': 'csv', 'file': '%s', 'label': 'y', 'features': ['xx']}",
                          path_of("c.csv")),
                  want, SY_EARG, "no column 'xx'");
    check_refused(
        spec_of("{'kind': 'csv', 'file': '%s', 'label': '3', 'header': false}", path_of("c.csv")),
        want, SY_EARG, "'1' to '2'");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,0\n1,2\n")), want, SY_EARG, "label 2");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,0\none,1\n")), want, SY_ECORRUPT,
                  "line 3, column 'x': 'one'");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,0\n1,1,1\n")), want, SY_ECORRUPT,
                  "line 3: 3 fields");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,\"0\n")), want, SY_ECORRUPT, "quote");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n")), want, SY_EARG, "no rows");
    check_refused(spec_of(job, write_text("d.csv", "")), want, SY_EARG, "no rows");
    check_refused(spec_of(job, write_text("d.csv", "x,y\nnan,1\n")), want, SY_ECORRUPT, "'nan'");
    check_refused(spec_of("{'kind': 'csv', 'file': '%s', 'label': 'y'}", path_of("c.csv")),
                  want_numbers(2, 2), SY_EARG, "1 feature columns");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1e39,1\n")), want, SY_ECORRUPT, "'1e39'");
    check_refused(spec_of(job, write_text("d.csv", "x,y\r1,0\r2,1\r")), want, SY_ECORRUPT,
                  "line 1: a carriage return");
    check_refused(spec_of(job, write_bytes("d.csv", "x,y\n1,0\n\0,1\n", 13)), want, SY_ECORRUPT,
                  "line 3: a byte 0");
    check_refused(spec_of(job, write_text("d.csv", "x,x,y\n1,2,0\n")), want, SY_EARG,
                  "column 'x' twice");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,-1\n")), want, SY_EARG,
                  "row 1: label '-1' is no class");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,1\n2,0.5\n")), want, SY_EARG,
                  "row 2: label '0.5' is no class");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,ant\n2,bee\n3,cow\n")), want, SY_EARG,
                  "3 different labels, the model's outputs tell 2");
    char *test = write_text("t.csv", "x,y\n1,cow\n");
    check_refused(spec_of("{'kind': 'csv', 'file': '%s', 'label': 'y', 'test_file': '%s'}",
                          write_text("e.csv", "x,y\n1,ant\n2,bee\n"), test),
                  want, SY_EARG, "label 'cow'");
}

/* Random tables, written with random quoting, read back. */
static void test_csv_against_what_was_written(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 200; round++) {
        char text[4096], fields[12][8][8], *to = text;
        int rows = 1 + rand() % 12, columns = 1 + rand() % 8;
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) {
                int n = (columns == 1) + rand() % 6, quoted = rand() % 2;
                char *field = fields[r][c];
                for (int i = 0; i < n; i++)
                    field[i] = (quoted ? "ab\",\n\r" : "abc")[rand() % (quoted ? 6 : 3)];
                field[n] = 0;
                to += sprintf(to, "%s", quoted ? "\"" : "");
                for (int i = 0; i < n; i++)
                    to += sprintf(to, "%s%c", field[i] == '"' ? "\"" : "", field[i]);
                to += sprintf(to, "%s%s", quoted ? "\"" : "",
                              c + 1 < columns ? ","
                              : rand() % 2    ? "\r\n"
                                              : "\n");
            }
        struct sy_csv_rows csv_rows = {.path = "memory", .at = text, .end = to, .separator = ','};
        for (int r = 0; r < rows; r++) {
            assert_int_equal(sy_csv_rows_next(&csv_rows), 1);
            assert_int_equal(csv_rows.n, columns);
            for (int c = 0; c < columns; c++)
                assert_string_equal(csv_rows.fields[c], fields[r][c]);
        }
        assert_int_equal(sy_csv_rows_next(&csv_rows), 0);
        sy_csv_rows_finish(&csv_rows);
    }
}

/* ---- text ---------------------------------------------------------------------------------------------- */

static void test_text_classes(void **state)
{
    (void)state;
    int64_t input[4];
    int32_t label;
    mkdir(path_of("text"), 0777);
    write_text("text/de.txt", "Haus\n\nUm\n");
    write_text("text/en.txt", "housing");
    struct sy_data_spec spec =
        spec_of("{'kind': 'text', 'folder': '%s', 'shuffle': false}", path_of("text"));
    struct sy_data_want want = want_indices(4, 2);
    struct sy_train_data data;
    const char *wanted[] = {"Haus", "Um\0\0", "hous"};
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        for (int c = 0; c < 4; c++)
            assert_int_equal(input[c], wanted[i][c]);
        assert_int_equal(label, i == 2);
    }
    sy_train_data_close(&data);
    spec.split = SY_SPLIT_WINDOWS;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 5); /* 9 bytes and 7 */
    sy_train_data_close(&data);
    spec.ngram = 3;
    spec.vocabulary = 50;
    open_data(&spec, &want, &data);
    assert_int_equal(sy_train_data_fill(&data, &want, 0, false, 1, ONE(input), &label), SY_OK);
    for (int c = 0; c < 4; c++)
        assert_in_range(input[c], 1, 49);
    sy_train_data_close(&data);
    check_refused(spec, want_indices(4, 1), SY_EARG, "2 classes");
    mkdir(path_of("empty"), 0777);
    check_refused(spec_of("{'kind': 'text', 'folder': '%s'}", path_of("empty")), want_indices(4, 2),
                  SY_EARG, "0 classes");
    check_refused(spec_of("{'kind': 'text', 'folder': '%s'}", path_of("nowhere")),
                  want_indices(4, 2), SY_ENOTFOUND, "nowhere");
    write_text("empty/fr.txt", "x");
    write_text("empty/de.txt", "x");
    check_refused(spec_of("{'kind': 'text', 'folder': '%s', 'test_folder': '%s'}", path_of("text"),
                          path_of("empty")),
                  want_indices(4, 2), SY_EARG, "class 'fr.txt'");
    write_text("text/fr.txt", "\n\n");
    check_refused(spec_of("{'kind': 'text', 'folder': '%s'}", path_of("text")), want_indices(4, 3),
                  SY_EARG, "class 'fr.txt' has no sample");
    remove(path_of("text/fr.txt"));
}

static void test_text_that_goes_on(void **state)
{
    (void)state;
    int64_t input[2][3];
    int32_t labels[2][3];
    struct sy_data_spec spec = spec_of("{'kind': 'text', 'file': '%s', 'shuffle': false}",
                                       write_text("long.txt", "abcdefgh"));
    struct sy_data_want want = want_indices(3, 256);
    struct sy_train_data data;
    want.n_labels = 3;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 2);
    assert_int_equal(sy_train_data_fill(&data, &want, 0, false, 2, ONE(input), labels), SY_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(input[i / 3][i % 3], 'a' + i);
        assert_int_equal(labels[i / 3][i % 3], 'b' + i);
    }
    sy_train_data_close(&data);
    want.n_classes = 100;
    check_refused(spec, want, SY_EARG, "byte 3 is 100");
    check_refused(spec_of("{'kind': 'text', 'file': '%s'}", path_of("long.txt")),
                  want_indices(3, 256), SY_EARG, "rows of outputs");
    want.n_classes = 256;
    check_refused(spec_of("{'kind': 'text', 'file': '%s'}", write_text("short.txt", "abc")), want,
                  SY_EARG, "3 bytes");
}

/* ---- images -------------------------------------------------------------------------------------------- */

static void write_png(const char *name, int width, int height, const uint8_t *rgb)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    assert_true(png_image_write_to_file(&image, path_of(name), 0, rgb, 0, NULL));
}

static void write_jpeg(const char *name, int width, int height, const uint8_t *rgb)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, file);
    info.image_width = (JDIMENSION)width;
    info.image_height = (JDIMENSION)height;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 100, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + (size_t)info.next_scanline * (size_t)width * 3);
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    fclose(file);
}

static void paint(int width, int height, const uint8_t *color, uint8_t *rgb)
{
    for (int i = 0; i < width * height; i++)
        memcpy(rgb + 3 * i, color, 3);
}

/* A slope stays the same slope when it is resized, away from the borders. */
static void test_resize(void **state)
{
    (void)state;
    uint8_t pixels[60], to[240];
    struct sy_image image = {.width = 60, .height = 1, .channels = 1, .pixels = pixels};
    for (int i = 0; i < 60; i++)
        pixels[i] = (uint8_t)(4 * i);
    for (uint32_t width = 5; width <= 240; width++) {
        assert_int_equal(sy_image_resize(&image, width, 1, to), SY_OK);
        for (uint32_t x = 0; x < width; x++) {
            double at = (x + 0.5) * 60.0 / width - 0.5, reach = 60.0 / width > 1 ? 60.0 / width : 1;
            if (at - reach >= 0 && at + reach <= 59)
                assert_true(fabs(to[x] - 4 * at) < 1.0);
        }
    }
    assert_int_equal(sy_image_resize(&image, 60, 1, to), SY_OK);
    assert_memory_equal(to, pixels, 60);
}

static struct sy_data_want want_images(void)
{
    struct sy_data_want want = want_numbers(3 * 4 * 6, 2);
    want.inputs[0].rank = 3;
    want.inputs[0].dims[0] = 3;
    want.inputs[0].dims[1] = 4;
    want.inputs[0].dims[2] = 6;
    return want;
}

static void test_images(void **state)
{
    (void)state;
    static uint8_t rgb[40 * 30 * 3];
    float input[3 * 4 * 6];
    int32_t label;
    mkdir(path_of("images"), 0777);
    mkdir(path_of("images/blue"), 0777);
    mkdir(path_of("images/red"), 0777);
    paint(40, 30, (const uint8_t[]){255, 0, 0}, rgb);
    write_jpeg("images/red/a.jpg", 40, 30, rgb);
    paint(3, 2, (const uint8_t[]){0, 0, 255}, rgb);
    write_png("images/blue/b.PNG", 3, 2, rgb);
    write_text("images/blue/notes.txt", "no image");
    struct sy_data_spec spec =
        spec_of("{'kind': 'images', 'folder': '%s', 'shuffle': false}", path_of("images"));
    struct sy_data_want want = want_images();
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 2);
    for (uint64_t i = 0; i < 4; i++) { /* decoded, then kept */
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        assert_int_equal(label, i % 2);
        for (int p = 0; p < 24; p++) {
            assert_true(fabsf(input[p] - (i % 2 ? 1 : 0)) < 0.02f);
            assert_true(fabsf(input[24 + p]) < 0.02f);
            assert_true(fabsf(input[48 + p] - (i % 2 ? 0 : 1)) < 0.02f);
        }
    }
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

/* Four inks, the second file's as Adobe's programs write them (what is left of the white): both are orange, three quarters as bright. */
static void test_cmyk(void **state)
{
    (void)state;
    static const uint8_t inks[2][4] = {{0, 128, 255, 64}, {255, 127, 0, 191}};
    struct sy_image image;
    for (int adobe = 0; adobe < 2; adobe++) {
        struct jpeg_compress_struct info;
        struct jpeg_error_mgr errors;
        uint8_t row[8 * 4];
        for (size_t i = 0; i < sizeof row; i++)
            row[i] = inks[adobe][i % 4];
        FILE *file = fopen(path_of("inks.jpg"), "wb");
        info.err = jpeg_std_error(&errors);
        jpeg_create_compress(&info);
        jpeg_stdio_dest(&info, file);
        info.image_width = info.image_height = 8;
        info.input_components = 4;
        info.in_color_space = JCS_CMYK;
        jpeg_set_defaults(&info);
        jpeg_set_quality(&info, 100, TRUE);
        info.write_Adobe_marker = (boolean)adobe;
        jpeg_start_compress(&info, TRUE);
        for (JSAMPROW rows = row; info.next_scanline < 8;)
            jpeg_write_scanlines(&info, &rows, 1);
        jpeg_finish_compress(&info);
        jpeg_destroy_compress(&info);
        fclose(file);
        assert_int_equal(sy_image_read(path_of("inks.jpg"), 3, &image), SY_OK);
        for (int i = 0; i < 8 * 8; i++) {
            assert_in_range(image.pixels[3 * i], 188, 194);
            assert_in_range(image.pixels[3 * i + 1], 92, 98);
            assert_in_range(image.pixels[3 * i + 2], 0, 3);
        }
        sy_image_finish(&image);
        assert_int_equal(sy_image_read(path_of("inks.jpg"), 1, &image), SY_OK);
        assert_in_range(image.pixels[9], 110, 116); /* 0.299 R + 0.587 G + 0.114 B */
        sy_image_finish(&image);
    }
}

/* Cut anywhere: refused by name, or nothing of the pixels was behind the cut. */
static void check_cut_images(const char *name)
{
    unsigned char bytes[8192];
    struct sy_image image, whole;
    assert_int_equal(sy_image_read(path_of(name), 3, &whole), SY_OK);
    FILE *file = fopen(path_of(name), "rb");
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(n < sizeof bytes);
    for (size_t cut = 0; cut + 3 < n; cut += 1 + n / 97) {
        char *path = write_bytes("cut.jpg", bytes, cut);
        if (sy_image_read(path, 3, &image) < 0) {
            assert_non_null(strstr(sy_error_text(), "cut.jpg"));
            continue;
        }
        assert_true(cut + 16 > n);
        assert_memory_equal(image.pixels, whole.pixels, (size_t)image.width * image.height * 3);
        sy_image_finish(&image);
    }
    sy_image_finish(&whole);
}

static void test_broken_images(void **state)
{
    (void)state;
    uint8_t rgb[16 * 16 * 3];
    float input[3 * 4 * 6];
    int32_t label;
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * 37);
    mkdir(path_of("broken"), 0777);
    mkdir(path_of("broken/a"), 0777);
    mkdir(path_of("broken/b"), 0777);
    write_jpeg("broken/a/good.jpg", 16, 16, rgb);
    write_png("broken/b/good.png", 16, 16, rgb);
    check_cut_images("broken/a/good.jpg");
    check_cut_images("broken/b/good.png");
    struct sy_data_spec spec = spec_of("{'kind': 'images', 'folder': '%s'}", path_of("broken"));
    struct sy_data_want want = want_images();
    struct sy_train_data data;
    write_text("broken/b/text.png", "this is no image");
    assert_int_equal(sy_train_data_open(&spec, &want, &data), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "broken/b/text.png"));
    remove(path_of("broken/b/text.png"));
    assert_int_equal(symlink("nowhere.png", path_of("broken/b/link.png")), 0);
    assert_int_equal(sy_train_data_open(&spec, &want, &data), SY_ENOTFOUND);
    assert_non_null(strstr(sy_error_text(), "broken/b/link.png"));
    remove(path_of("broken/b/link.png"));
    remove(path_of("broken/b/good.png"));
    assert_int_equal(sy_train_data_open(&spec, &want, &data), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "broken/b' has no .jpg"));
    write_png("broken/b/good.png", 16, 16, rgb);
    unsigned char bytes[8192]; /* a good header, half of the rest: found when it is decoded */
    FILE *file = fopen(path_of("broken/a/good.jpg"), "rb");
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    write_bytes("broken/a/half.jpg", bytes, n - n / 8);
    open_data(&spec, &want, &data);
    int status = SY_OK;
    for (uint64_t i = 0; i < 3 && status == SY_OK; i++)
        status = sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label);
    assert_int_equal(status, SY_ECORRUPT);
    assert_non_null(strstr(sy_error_text(), "broken/a/half.jpg"));
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

/* ---- synthetic, order, batches ahead ---------------------------------------------------------------------- */

static void test_holdout(void **state)
{
    (void)state;
    float input[2];
    int32_t label;
    int n_seen = 0;
    int64_t labels[40], inputs[40][2], seen[40] = {0};
    for (int i = 0; i < 40; i++) {
        inputs[i][0] = inputs[i][1] = i;
        labels[i] = i;
    }
    sy_npy_write(path_of("hx.npy"), SY_DTYPE_I64, 2, (const int64_t[]){40, 2}, inputs);
    sy_npy_write(path_of("hy.npy"), SY_DTYPE_I64, 1, (const int64_t[]){40}, labels);
    struct sy_data_spec spec =
        spec_of("{'kind': 'npy', 'inputs': '%s', 'labels': '%s', 'holdout': 0.25}",
                path_of("hx.npy"), path_of("hy.npy"));
    struct sy_data_want want = want_numbers(2, 40);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 30);
    assert_int_equal(data.n_test, 10);
    for (uint64_t i = 0; i < 40; i++) { /* each sample is in one of the sets */
        bool is_test = i >= 30;
        assert_int_equal(
            sy_train_data_fill(&data, &want, is_test ? i - 30 : i, is_test, 1, ONE(input), &label),
            SY_OK);
        n_seen += seen[label]++ == 0;
    }
    assert_int_equal(n_seen, 40);
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

static void test_synthetic_is_a_function(void **state)
{
    (void)state;
    float first[3][8], again[8];
    int32_t label, same;
    struct sy_data_spec spec = spec_of("{'kind': 'synthetic', 'samples': 10, 'test_samples': 3}");
    struct sy_data_want want = want_numbers(8, 4);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n_test, 3);
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(first[0]), &label),
                         SY_OK);
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(again), &same), SY_OK);
        assert_memory_equal(first[0], again, sizeof again);
        assert_true(label == same && label >= 0 && label < 4);
    }
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

static void take(struct sy_prefetch *prefetch, bool is_test, uint64_t index, float *input,
                 int32_t *labels)
{
    int got;
    while ((got = sy_prefetch_take(prefetch, is_test, index, 1, ONE(input), labels)) == 0)
        continue;
    assert_int_equal(got, 1);
}

/* Whatever is asked for, in whatever order, is what fill gives. */
static void test_prefetch(void **state)
{
    (void)state;
    float wanted[4][8], input[4][8];
    int32_t wanted_labels[4], labels[4];
    struct sy_prefetch *prefetch;
    struct sy_data_spec spec = spec_of("{'kind': 'synthetic', 'samples': 50, 'test_samples': 9}");
    struct sy_data_want want = want_numbers(8, 4);
    struct sy_train_data data;
    srand(3);
    open_data(&spec, &want, &data);
    assert_int_equal(sy_prefetch_create(&data, &want, 4, &prefetch), SY_OK);
    uint64_t index = 0;
    for (int i = 0; i < 2000; i++) {
        bool is_test = rand() % 8 == 0;
        index = rand() % 4 ? index + 1 : (uint64_t)rand() % 5;
        if (rand() % 8 == 0) /* asks, and does not wait */
            sy_prefetch_take(prefetch, !is_test, index + 1, 0, ONE(input), labels);
        take(prefetch, is_test, index, *input, labels);
        assert_int_equal(
            sy_train_data_fill(&data, &want, index * 4, is_test, 4, ONE(wanted), wanted_labels),
            SY_OK);
        assert_memory_equal(wanted, input, sizeof input);
        assert_memory_equal(wanted_labels, labels, sizeof labels);
    }
    sy_prefetch_destroy(prefetch);
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

static void check_bad_section(const char *text, const char *part)
{
    struct sy_data_spec spec = {0};
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(copy, 0, NULL);
    assert_non_null(json);
    assert_int_equal(sy_job_data_take(json, 0, &spec), SY_EARG);
    if (!strstr(sy_error_text(), part))
        fail_msg("'%s' is not in: %s", part, sy_error_text());
    sy_job_data_free(&spec);
    json_decref(json);
}

static void test_keys(void **state)
{
    (void)state;
    check_bad_section("{'kind': 'cvs'}", "known: 'idx', 'npy', 'csv'");
    check_bad_section("{'kind': 'csv', 'labels': 'y'}", "did you mean 'data.label'");
    check_bad_section("{'kind': 'csv', 'label': 'y'}", "'data.file' is missing");
    check_bad_section("{'kind': 'images'}", "'data.folder' is missing");
    check_bad_section("{'kind': 'text'}", "either");
    check_bad_section("{'kind': 'text', 'file': 'a', 'folder': 'b'}", "either");
    check_bad_section("{'kind': 'text', 'folder': 'a', 'vocabulary': 300}", "n-grams");
    check_bad_section("{'images': 'a', 'labels': 'b', 'test_images': 'c'}", "go together");
    check_bad_section("{'images': 'a', 'labels': 'b', 'shuffle': 1}", "true or false");
    check_bad_section("{'kind': 'csv', 'file': 'a', 'label': 'y', 'features': []}", "at least one");
    check_bad_section("{'kind': 'csv', 'file': 'a', 'label': 'y', 'features': [1]}", "list");
    check_bad_section("{'kind': 'csv', 'file': 'a', 'label': 'y', 'separator': ', '}", "one char");
    check_bad_section("{'kind': 'synthetic', 'test_samples': 3, 'holdout': 0.5}", "holdout");
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sy_train_data_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy),          cmocka_unit_test(test_npy_not_finite),
        cmocka_unit_test(test_csv_columns),  cmocka_unit_test(test_csv_standardized),
        cmocka_unit_test(test_bad_csv),      cmocka_unit_test(test_csv_against_what_was_written),
        cmocka_unit_test(test_text_classes), cmocka_unit_test(test_text_that_goes_on),
        cmocka_unit_test(test_resize),       cmocka_unit_test(test_images),
        cmocka_unit_test(test_cmyk),         cmocka_unit_test(test_broken_images),
        cmocka_unit_test(test_holdout),      cmocka_unit_test(test_synthetic_is_a_function),
        cmocka_unit_test(test_prefetch),     cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
