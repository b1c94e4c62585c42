#include "tests/nets/reference_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/base/status.h"

const char *const reference_models[N_MODELS] = {"tiny_cnn", "mlp", "bert_tiny"};

void references_take(struct fixture *f, struct references *r)
{
    for (int m = 0; m < N_MODELS; m++)
        for (int v = 0; v < VARIANTS; v++)
            r->of[m][v] = fixture_infer(f, reference_models[m], 1, v, NULL);
}

void references_free(struct references *r)
{
    for (int m = 0; m < N_MODELS; m++)
        for (int v = 0; v < VARIANTS; v++)
            sy_client_result_free(r->of[m][v]);
}

void references_ask(struct fixture *f, const struct references *r, int variant)
{
    for (int m = 0; m < N_MODELS; m++) {
        sy_client_result *result = fixture_infer(f, reference_models[m], 1, variant, NULL);
        assert_true(fixture_same(result, r->of[m][variant]));
        sy_client_result_free(result);
    }
}

void references_evict(struct fixture *f, bool image_too)
{
    for (int m = 0; m < N_MODELS; m++)
        json_decref(fixture_call(
            f, "evict", json_pack("{s:s, s:b}", "model", reference_models[m], "image", image_too)));
}

void *asker_main(void *arg)
{
    struct asker *a = arg;
    sy_client *client = NULL;
    if (sy_client_connect(a->f->address, 300000, &client) < 0) {
        a->n_failed++;
        return NULL;
    }
    for (int i = 0; i < a->n; i++) {
        int m = (a->seed + i) % N_MODELS, v = (a->seed + i / 2) % VARIANTS, status = 0;
        sy_client_result *result = fixture_infer_on(client, reference_models[m], 1, v, &status);
        if (status < 0 && a->n_failed++ == 0)
            snprintf(a->error, sizeof a->error, "%s: %s", reference_models[m],
                     sy_client_error(client));
        a->n_wrong += status == 0 && !fixture_same(result, a->references->of[m][v]);
        sy_client_result_free(result);
        atomic_fetch_add(&a->n_done, 1);
    }
    sy_client_close(client);
    return NULL;
}
