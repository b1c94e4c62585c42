#include "workers/data/image_reader.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include "loader/package/file_bytes.h"
#include "runtime/base/status.h"

/* metadata may take this much of a JPEG; more is read when needed */
#define HEADER_BYTES (64u << 10)

bool sy_image_has_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot &&
           (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png"));
}

static int make_pixels(const char *path, struct sy_image *image)
{
    uint64_t pixels = (uint64_t)image->width * image->height;
    if (!pixels || image->width > SY_IMAGE_MAX_SIDE || image->height > SY_IMAGE_MAX_SIDE ||
        pixels > SY_IMAGE_MAX_PIXELS)
        return sy_error_set(SY_ETOOBIG, "image '%s' is %u by %u; at most %u a side and %u in all",
                            path, image->width, image->height, SY_IMAGE_MAX_SIDE,
                            SY_IMAGE_MAX_PIXELS);
    if (image->channels == 0) /* the header was wanted */
        return SY_OK;
    image->pixels = malloc(pixels * image->channels);
    return image->pixels ? SY_OK
                         : sy_error_set(SY_ENOMEM_HOST, "image '%s': no room for %u by %u", path,
                                        image->width, image->height);
}

/* ---- JPEG: libjpeg reports by longjmp --------------------------------------------------------------------- */

struct jpeg_trouble {
    struct jpeg_error_mgr base;
    jmp_buf out;
    char text[JMSG_LENGTH_MAX];
};

static void jpeg_fatal(j_common_ptr info)
{
    struct jpeg_trouble *t = (struct jpeg_trouble *)info->err;
    t->base.format_message(info, t->text);
    longjmp(t->out, 1);
}

/* A warning is a broken image: what follows it is made up. Bytes that nobody needs are no harm. */
static void jpeg_warning(j_common_ptr info, int level)
{
    if (level < 0 && info->err->msg_code != JWRN_EXTRANEOUS_DATA)
        jpeg_fatal(info);
}

/* A row of what is left of the white after the inks; Adobe's files have it as that, others have the inks. */
static void mix_inks(const unsigned char *inks, bool is_inverted, struct sy_image *image,
                     uint32_t row)
{
    uint8_t *to = image->pixels + (size_t)row * image->width * image->channels;
    for (uint32_t x = 0; x < image->width; x++, inks += 4, to += image->channels) {
        unsigned rgb[3];
        for (int i = 0; i < 3; i++)
            rgb[i] = (is_inverted ? inks[i] * inks[3] : (255u - inks[i]) * (255u - inks[3])) / 255u;
        if (image->channels == 3)
            for (int i = 0; i < 3; i++)
                to[i] = (uint8_t)rgb[i];
        else /* libjpeg's grey */
            to[0] = (uint8_t)((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
    }
}

static int decode_cmyk(struct jpeg_decompress_struct *info, const char *path,
                       struct sy_image *image)
{
    info->out_color_space = JCS_CMYK;
    jpeg_start_decompress(info);
    /* libjpeg's own memory: it goes with `info` when a broken file jumps out of here. */
    JSAMPARRAY row = info->mem->alloc_sarray((j_common_ptr)info, JPOOL_IMAGE, 4 * image->width, 1);
    if (info->output_components != 4)
        return sy_error_set(SY_EUNSUPPORTED, "image '%s' has %d inks; four are read", path,
                            info->output_components);
    while (info->output_scanline < info->output_height) {
        jpeg_read_scanlines(info, row, 1);
        mix_inks(row[0], info->saw_Adobe_marker, image, info->output_scanline - 1);
    }
    jpeg_finish_decompress(info);
    return SY_OK;
}

static int decode_jpeg(struct jpeg_decompress_struct *info, const char *path,
                       struct sy_image *image)
{
    jpeg_read_header(info, TRUE);
    image->width = info->image_width;
    image->height = info->image_height;
    SY_TRY(make_pixels(path, image));
    if (!image->channels)
        return SY_OK;
    if (info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK)
        return decode_cmyk(info, path, image);
    info->out_color_space = image->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(info);
    while (info->output_scanline < info->output_height) {
        JSAMPROW row =
            image->pixels + (size_t)info->output_scanline * image->width * image->channels;
        jpeg_read_scanlines(info, &row, 1);
    }
    jpeg_finish_decompress(info);
    return SY_OK;
}

static int read_jpeg(const char *path, const unsigned char *bytes, size_t n, struct sy_image *image)
{
    struct jpeg_decompress_struct info;
    struct jpeg_trouble trouble = {0};
    volatile int status;
    info.err = jpeg_std_error(&trouble.base);
    trouble.base.error_exit = jpeg_fatal;
    trouble.base.emit_message = jpeg_warning;
    jpeg_create_decompress(&info);
    if (setjmp(trouble.out)) {
        status = sy_error_set(SY_ECORRUPT, "image '%s' is broken: %s", path, trouble.text);
    } else {
        jpeg_mem_src(&info, bytes, n);
        status = decode_jpeg(&info, path, image);
    }
    jpeg_destroy_decompress(&info);
    return status;
}

/* ---- PNG ------------------------------------------------------------------------------------------------ */

static int read_png(const char *path, const unsigned char *bytes, size_t n, struct sy_image *image)
{
    png_image png = {.version = PNG_IMAGE_VERSION};
    const png_color black = {0, 0, 0};
    if (!png_image_begin_read_from_memory(&png, bytes, n))
        return sy_error_set(SY_ECORRUPT, "image '%s' is broken: %s", path, png.message);
    image->width = png.width;
    image->height = png.height;
    int status = make_pixels(path, image);
    png.format = image->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    if (status == SY_OK && image->channels &&
        (!png_image_finish_read(&png, &black, image->pixels, 0, NULL) || png.warning_or_error))
        status = sy_error_set(SY_ECORRUPT, "image '%s' is broken: %s", path, png.message);
    png_image_free(&png);
    return status;
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static int read_bytes(const char *path, const unsigned char *bytes, size_t n,
                      struct sy_image *image)
{
    static const unsigned char png_magic[] = {0x89, 'P', 'N', 'G'};
    if (n >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff)
        return read_jpeg(path, bytes, n, image);
    if (n >= 4 && !memcmp(bytes, png_magic, 4))
        return read_png(path, bytes, n, image);
    return sy_error_set(n ? SY_EUNSUPPORTED : SY_ECORRUPT, "image '%s' is %s", path,
                        n ? "neither JPEG nor PNG" : "empty");
}

static int read_file(const char *path, uint64_t limit, uint32_t channels, struct sy_image *out)
{
    struct sy_image image = {.channels = channels};
    unsigned char *bytes;
    size_t n;
    SY_TRY(sy_file_read_range(path, 0, limit, &bytes, &n));
    int status = read_bytes(path, bytes, n, &image);
    free(bytes);
    if (status < 0)
        sy_image_finish(&image);
    else
        *out = image;
    return status;
}

int sy_image_read(const char *path, uint32_t channels, struct sy_image *out)
{
    return read_file(path, UINT64_MAX, channels, out);
}

int sy_image_read_header(const char *path, struct sy_image *out)
{
    if (read_file(path, HEADER_BYTES, 0, out) == SY_OK)
        return SY_OK;
    return read_file(path, UINT64_MAX, 0, out); /* shorter than that, or its header is longer */
}

void sy_image_finish(struct sy_image *image)
{
    if (!image)
        return;
    free(image->pixels);
    image->pixels = NULL;
}
