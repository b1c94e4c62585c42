/* What a job's data lies in, beside arrays: CSV, text, PNG and JPEG. The first byte chooses: 0 CSV rows, 1 a CSV data set, 2 text, 3 an image. */
#include <png.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h> /* after stdio.h */
#include <string.h>

#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"
#include "workers/data/csv_rows.h"
#include "workers/data/image_reader.h"
#include "workers/data/train_data.h"

#define MOST_SAMPLES 16u

static void read_rows(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    struct sy_csv_rows rows = {
        .path = "f", .at = text, .end = text + size, .separator = ',', .line = 1};
    uint64_t bytes = 0, before = 0;
    while (sy_csv_rows_next(&rows) == 1) {
        FUZZ_CHECK(rows.n >= 1 && rows.n <= SY_CSV_MAX_FIELDS && rows.line > before);
        before = rows.line;
        for (uint64_t i = 0; i < rows.n; i++)
            bytes += strlen(rows.fields[i]) + 1;
    }
    FUZZ_CHECK(bytes <= size + 2); /* nothing was made up */
    sy_csv_rows_finish(&rows);
    free(text);
}

static void read_all(const struct sy_data_spec *spec, const struct sy_data_want *want)
{
    struct sy_train_data set;
    float input[64], labels[64];
    int64_t tokens[64];
    void *places[] = {want->inputs[0].dtype == SY_DTYPE_F32 ? (void *)input : (void *)tokens};
    if (sy_train_data_open(spec, want, &set) < 0)
        return;
    FUZZ_CHECK(set.n >= 1);
    for (uint64_t at = 0; at < set.n && at < MOST_SAMPLES; at++)
        if (sy_train_data_fill(&set, want, at, false, 1, places, labels) < 0)
            break;
    sy_train_data_close(&set);
}

static void read_set(const uint8_t *data, size_t size, const char *rest, enum sy_dtype dtype,
                     struct sy_data_want labels)
{
    static char section[300];
    struct sy_data_spec spec = {0};
    struct sy_data_want want = labels;
    want.n_inputs = 1;
    want.inputs[0] = (struct sy_data_input){"x", dtype, 1, {4}, 4};
    snprintf(section, sizeof section, "{\"file\":\"%s\",%s}", fuzz_file(data, size), rest);
    json_t *object = json_loads(section, 0, NULL);
    FUZZ_CHECK(object);
    int status = sy_job_data_take(object, 1, &spec);
    json_decref(object);
    FUZZ_CHECK(status == SY_OK);
    read_all(&spec, &want);
    sy_job_data_free(&spec);
}

static void read_image(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    struct sy_image image, header;
    static uint8_t small[3 * 5 * 7];
    if (sy_image_read_header(path, &header) < 0 ||
        (uint64_t)header.width * header.height > 1u << 20) /* what it may take is another test's */
        return;
    for (uint32_t channels = 1; channels <= 3; channels += 2) {
        if (sy_image_read(path, channels, &image) < 0)
            continue;
        FUZZ_CHECK(image.width == header.width && image.height == header.height &&
                   image.channels == channels);
        FUZZ_CHECK(sy_image_resize(&image, 5, 7, small) == SY_OK);
        sy_image_finish(&image);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (data[0] % 4 == 0)
        read_rows(data + 1, size - 1);
    else if (data[0] % 4 == 1)
        read_set(data + 1, size - 1,
                 data[0] & 4 ? "\"kind\":\"csv\",\"label\":\"l\",\"standardize\":true"
                             : "\"kind\":\"csv\",\"label\":\"4\",\"header\":false",
                 SY_DTYPE_F32,
                 (struct sy_data_want){.are_classes = true, .n_labels = 1, .n_classes = 3});
    else if (data[0] % 4 == 2)
        read_set(data + 1, size - 1, "\"kind\":\"text\"", SY_DTYPE_I64,
                 (struct sy_data_want){.are_classes = true, .n_labels = 4, .n_classes = 256});
    else
        read_image(data + 1, size - 1);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------------------------- */

static size_t png(uint32_t format, uint8_t *to, size_t room)
{
    png_image image = {.version = PNG_IMAGE_VERSION, .width = 9, .height = 6, .format = format};
    uint8_t pixels[9 * 6 * 8];
    uint16_t wide[9 * 6 * 4];
    bool is_wide = (format & PNG_FORMAT_FLAG_LINEAR) != 0;
    png_color map[256] = {{0}};
    png_alloc_size_t n = room;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 37 % (format & PNG_FORMAT_FLAG_COLORMAP ? 4 : 256));
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        wide[i] = (uint16_t)(i * 1237);
    image.colormap_entries = 4;
    FUZZ_CHECK(
        png_image_write_to_memory(&image, to, &n, 0, is_wide ? (void *)wide : pixels, 0, map));
    return n;
}

static size_t jpeg(int components, bool progressive, uint8_t *to, size_t room)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    uint8_t row[17 * 4], *rows[] = {row}, *bytes = NULL;
    unsigned long n = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &bytes, &n);
    c.image_width = 17;
    c.image_height = 9;
    c.input_components = components;
    c.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (size_t i = 0; i < sizeof row; i++)
        row[i] = (uint8_t)(i * 11);
    while (c.next_scanline < c.image_height)
        jpeg_write_scanlines(&c, rows, 1);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    size_t given = fuzz_give(bytes, n, to, room);
    free(bytes);
    return given;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const char *const texts[] = {
        "0a,b,c\n1,2,\"x,\"\"y\"\"\"\r\n\r\n,,\n4,5,6",
        "5a,b,c,d,l\n1,2,3,4,cat\n5,6,7,8.5e3,dog\n-1,nan,0x1p3,inf,cat\n",
        "11,2,3,4,0\n5,6,7,8,1\n9,1,2,3,2\n",
        "1 1 , 2 ,3,\"4\",1\n\n5,6,7,8,1\n",
        "2cat\tthe cat sat\ndog\ta dog \xc3\xa9 ran\n",
    };
    static const uint32_t formats[] = {PNG_FORMAT_GRAY,
                                       PNG_FORMAT_RGB,
                                       PNG_FORMAT_RGBA,
                                       PNG_FORMAT_GA,
                                       PNG_FORMAT_LINEAR_RGB_ALPHA,
                                       PNG_FORMAT_RGB_COLORMAP};
    int n_texts = sizeof texts / sizeof *texts, n_formats = sizeof formats / sizeof *formats;
    if (i < n_texts) {
        size_t n = fuzz_give(texts[i], strlen(texts[i]), to, room);
        to[0] = (uint8_t)(to[0] - '0');
        return n;
    }
    to[0] = 3;
    i -= n_texts;
    if (i < n_formats)
        return 1 + png(formats[i], to + 1, room - 1);
    i -= n_formats;
    return i < 4 ? 1 + jpeg(i == 3 ? 4 : i == 0 ? 1 : 3, i == 2, to + 1, room - 1) : 0;
}
