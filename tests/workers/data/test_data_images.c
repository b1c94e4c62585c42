/* Data sets of images: folders, formats, resizing, broken files. */
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

#include <jpeglib.h>
#include <png.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/data_rig.h"
#include "workers/data/image_reader.h"

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

/* A class's folder has folders of its own: their images are the class's too. */
static void test_folders_in_folders(void **state)
{
    (void)state;
    uint8_t rgb[4 * 4 * 3] = {0};
    float input[3 * 4 * 6];
    int32_t label;
    const char *folders[] = {"deep", "deep/a", "deep/a/2020", "deep/a/2020/may", "deep/b"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(path_of(folders[i]), 0777), 0);
    write_png("deep/a/2020/may/x.png", 4, 4, rgb); /* nothing in a itself */
    write_png("deep/a/2020/y.png", 4, 4, rgb);
    write_png("deep/b/z.png", 4, 4, rgb);
    struct sy_data_spec spec =
        spec_of("{'kind': 'images', 'folder': '%s', 'shuffle': false}", path_of("deep"));
    struct sy_data_want want = want_images();
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        assert_int_equal(label, i == 2);
    }
    sy_train_data_close(&data);
    assert_string_equal(warned_by(&spec, &want), "");
    assert_int_equal(symlink("..", path_of("deep/a/2020/up")), 0);
    assert_int_equal(sy_train_data_open(&spec, &want, &data), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "a/2020/up' is a link to a folder that it is in"));
    sy_job_data_free(&spec);
}

static void test_left_out_is_said(void **state)
{
    (void)state;
    uint8_t rgb[4 * 4 * 3] = {0};
    const char *folders[] = {"some", "some/a", "some/b", "some/b/more"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(path_of(folders[i]), 0777), 0);
    write_png("some/a/x.png", 4, 4, rgb);
    write_png("some/b/y.png", 4, 4, rgb);
    write_text("some/README", "no image, and not a class's");
    struct sy_data_spec spec = spec_of("{'kind': 'images', 'folder': '%s'}", path_of("some"));
    struct sy_data_want want = want_images();
    assert_string_equal(warned_by(&spec, &want), "");
    write_png("some/stray.png", 4, 4, rgb);
    write_text("some/b/more/z.gif", "a name that is not read");
    const char *said = warned_by(&spec, &want);
    assert_non_null(strstr(said, "left_out=2"));
    assert_non_null(strstr(said, "some/b/more/z.gif"));
    sy_job_data_free(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_cmyk),
        cmocka_unit_test(test_broken_images),
        cmocka_unit_test(test_folders_in_folders),
        cmocka_unit_test(test_left_out_is_said),
    };
    return cmocka_run_group_tests(tests, make_data_folder, remove_data_folder);
}
