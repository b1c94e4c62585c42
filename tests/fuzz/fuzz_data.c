/* What a job's data lies in, beside arrays: CSV, text, PNG and JPEG. The first byte chooses: 0 CSV rows, 1 a data set of any kind, with its section of the job file, 2 an image. */
#include <fcntl.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h> /* after stdio.h */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- data sets ------------------------------------------------------------------------------------------------------ */

static const char *const set_files[] = {"a",   "b",    "d/c",   "d/k",   "e/c",
                                        "e/k", "f/.h", "f/c/x", "f/k/y", "f/k/z/w"};

static void write_file(const char *folder, const char *name, const uint8_t *bytes, size_t n)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0700);
    }
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file && fwrite(bytes, 1, n, file) == n);
    fclose(file);
}

static void fill_all(const struct sy_train_data *set, const struct sy_data_want *want)
{
    static double input[2][64], labels[64];
    void *places[] = {input[0], input[1]};
    FUZZ_CHECK(set->n >= 1);
    for (int is_test = 0; is_test <= (set->n_test > 0); is_test++)
        for (uint64_t at = 0; at < (is_test ? set->n_test : set->n) && at < MOST_SAMPLES; at++)
            if (sy_train_data_fill(set, want, at, is_test, 1, places, labels) < 0)
                break;
}

/* The model: flags 1, 2: its first input's type; 4: a second input; 8: classes; 16: four rows of labels; 32: 256 outputs, not 3. */
static void want_of(uint8_t flags, struct sy_data_want *want)
{
    static const enum sy_dtype types[] = {SY_DTYPE_F32, SY_DTYPE_I64, SY_DTYPE_I32, SY_DTYPE_BOOL};
    memset(want, 0, sizeof *want);
    want->n_inputs = flags & 4 ? 2 : 1;
    want->inputs[0] = (struct sy_data_input){"x", types[flags & 3], 1, {4}, 4};
    want->inputs[1] = (struct sy_data_input){"z", SY_DTYPE_F32, 2, {1, 2}, 2};
    if (flags & 64) /* an image */
        want->inputs[0] = (struct sy_data_input){"x", types[flags & 3], 3, {3, 2, 3}, 18};
    want->are_classes = (flags & 8) != 0;
    want->n_labels = flags & 16 ? 4 : 1;
    want->n_classes = flags & 32 ? 256 : 3;
}

/* [flags] the section "data", a zero, then the bytes of each of the files, zeros between them. Paths have no slash: nothing else is read. */
static void read_set(const uint8_t *data, size_t size)
{
    struct sy_data_spec spec = {0};
    struct sy_data_want want;
    struct sy_train_data set;
    json_error_t error;
    const uint8_t *at = data + 1, *end = data + size, *zero;
    if (size < 2 || !(zero = memchr(at, 0, size - 1)) || memchr(at, '/', (size_t)(zero - at)) ||
        memmem(at, (size_t)(zero - at), "..", 2))
        return;
    json_t *object = json_loadb((const char *)at, (size_t)(zero - at), 0, &error);
    if (!object)
        return;
    const char *folder = fuzz_folder();
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FUZZ_CHECK(here >= 0 && chdir(folder) == 0);
    for (size_t i = 0; zero && i < sizeof set_files / sizeof *set_files; i++) {
        at = zero + 1;
        zero = memchr(at, 0, (size_t)(end - at));
        write_file(folder, set_files[i], at, (size_t)((zero ? zero : end) - at));
    }
    want_of(data[0], &want);
    if (json_is_object(object) && sy_job_data_take(object, 1, &spec) == SY_OK &&
        sy_train_data_open(&spec, &want, &set) == SY_OK) {
        fill_all(&set, &want);
        sy_train_data_close(&set);
    }
    sy_job_data_free(&spec);
    json_decref(object);
    FUZZ_CHECK(fchdir(here) == 0);
    close(here);
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
    if (data[0] % 3 == 0)
        read_rows(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        read_set(data + 1, size - 1);
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

#define NUL       "\0"
#define TABLE     "a,b,c,d,l\n1,2,3,4,cat\n5,6,7,8.5e3,dog\n-1,2,0x1p3,4,cat\n"
#define NUMBERS   "1 ; 2 ;3;\"4\";1\n\n5;6;7;8;0\n9;1;2;3;2\n"
#define SENTENCES "the cat sat\n\na dog \xc3\xa9 ran on" NUL "un chat" NUL
/* Each begins with what chooses, and flags. */
static const struct {
    size_t n;
    const char *bytes;
} texts[] = {
#define TEXT(choice, flags, bytes)                         \
    {                                                      \
        sizeof(choice flags bytes) - 1, choice flags bytes \
    }
    TEXT("\0", "", "a,b,c\n1,2,\"x,\"\"y\"\"\"\r\n\r\n,,\n4,5,6"),
    TEXT("\1", "\x08",
         "{\"kind\":\"csv\",\"file\":\"a\",\"label\":\"l\",\"standardize\":true,\"test_file\":"
         "\"b\"}" NUL TABLE NUL TABLE),
    TEXT("\1", "\x04",
         "{\"kind\":\"csv\",\"file\":\"a\",\"label\":\"5\",\"header\":false,\"separator\":\";\","
         "\"holdout\":0.5,\"inputs\":"
         "{\"x\":[\"1\",\"2\",\"3\",\"4\"],\"z\":[\"1\",\"4\"]}}" NUL NUMBERS),
    TEXT("\1", "\x10",
         "{\"kind\":\"csv\",\"file\":\"a\",\"label\":\"5\",\"header\":false,\"separator\":\";\","
         "\"features\":[\"1\",\"2\",\"3\",\"5\"]}" NUL NUMBERS),
    TEXT(
        "\1", "\x09",
        "{\"kind\":\"csv\",\"file\":\"a\",\"label\":\"5\",\"header\":false,\"separator\":\";\"}" NUL
            NUMBERS),
    TEXT("\1", "\x39",
         "{\"kind\":\"text\",\"file\":\"a\",\"test_file\":\"b\"}" NUL "cat\tthe cat sat on" NUL
         "a dog \xc3\xa9 ran"),
    TEXT("\1", "\x08",
         "{\"kind\":\"text\",\"folder\":\"d\",\"test_folder\":\"e\"}" NUL NUL NUL SENTENCES
             SENTENCES),
    TEXT("\1", "\x0d",
         "{\"kind\":\"text\",\"folder\":\"f\",\"split\":\"windows\",\"ngram\":3,\"vocabulary\":50,"
         "\"holdout\":0.3,\"inputs\":{\"x\":\"text\",\"z\":"
         "\"mask\"}}" NUL NUL NUL NUL NUL NUL NUL "hidden" NUL SENTENCES SENTENCES),
    TEXT("\1", "\x0e",
         "{\"kind\":\"text\",\"folder\":\"f\",\"split\":\"files\",\"shuffle\":false,\"inputs\":{"
         "\"x\":\"text\",\"z\":\"length\"}}" NUL NUL NUL NUL NUL NUL NUL NUL SENTENCES SENTENCES),
    TEXT("\1", "\x0e",
         "{\"kind\":\"text\",\"folder\":\"d\",\"inputs\":{\"x\":\"positions\",\"z\":0.5}}" NUL NUL
             NUL SENTENCES),
    TEXT("\1", "\x0c",
         "{\"kind\":\"synthetic\",\"samples\":9,\"test_samples\":2,\"noise\":0.5,\"inputs\":{\"x\":"
         "\"random\",\"z\":\"mask\"}}" NUL),
    TEXT("\1", "\x08",
         "{\"images\":\"a\",\"labels\":\"b\",\"mean\":0.5,\"std\":2}" NUL "IDX" NUL "IDX"),
    TEXT("\1", "\x08", "{\"kind\":\"npy\",\"inputs\":\"a\",\"labels\":\"b\"}" NUL "\x93NUMPY\1"),
    TEXT("\1", "\x48", "{\"kind\":\"images\",\"folder\":\"f\"}" NUL),
#undef TEXT
};

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const uint32_t formats[] = {PNG_FORMAT_GRAY,
                                       PNG_FORMAT_RGB,
                                       PNG_FORMAT_RGBA,
                                       PNG_FORMAT_GA,
                                       PNG_FORMAT_LINEAR_RGB_ALPHA,
                                       PNG_FORMAT_RGB_COLORMAP};
    int n_texts = sizeof texts / sizeof *texts, n_formats = sizeof formats / sizeof *formats;
    if (i < n_texts)
        return fuzz_give(texts[i].bytes, texts[i].n, to, room);
    to[0] = 2;
    i -= n_texts;
    if (i < n_formats)
        return 1 + png(formats[i], to + 1, room - 1);
    i -= n_formats;
    return i < 4 ? 1 + jpeg(i == 3 ? 4 : i == 0 ? 1 : 3, i == 2, to + 1, room - 1) : 0;
}
