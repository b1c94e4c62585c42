#include "tests/nets/onnx_import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"

int onnx_try_inferred(const char *path, struct sy_graph **out)
{
    int status;
    SY_TRY(sy_onnx_read(path, out));
    if ((status = sy_graph_infer(*out)) < 0)
        sy_graph_free(*out);
    return status;
}

int onnx_try_optimized(const char *path, struct sy_graph **out)
{
    int status;
    SY_TRY(onnx_try_inferred(path, out));
    if ((status = sy_graph_optimize(*out)) < 0)
        sy_graph_free(*out);
    return status;
}

struct sy_graph *onnx_inferred(const char *path)
{
    struct sy_graph *g;
    if (onnx_try_inferred(path, &g) < 0)
        fail_msg("%s: %s", path, sy_error_text());
    return g;
}

struct sy_graph *onnx_optimized(const char *path)
{
    struct sy_graph *g;
    if (onnx_try_optimized(path, &g) < 0)
        fail_msg("%s: %s", path, sy_error_text());
    return g;
}

void onnx_expect_refusal(const char *path, int status, const char *text)
{
    struct sy_graph *g = NULL;
    assert_int_equal(sy_onnx_read(path, &g), status);
    if (!strstr(sy_error_text(), text))
        fail_msg("'%s' does not contain '%s'", sy_error_text(), text);
    assert_null(g);
}
