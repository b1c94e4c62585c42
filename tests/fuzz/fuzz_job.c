/* Job files: bytes are refused, or parsed; what the command line sends on (normalized text) is the same job. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"
#include "workers/job/job.h"

static void check_load(const uint8_t *data, size_t size, const struct sy_job *parsed)
{
    struct sy_job job;
    char *text = NULL;
    if (sy_job_load(fuzz_file(data, size), &text) < 0) {
        FUZZ_CHECK(!text);
        return;
    }
    FUZZ_CHECK(sy_job_parse(text, &job) == SY_OK);
    FUZZ_CHECK(job.model[0] == '/' && (!job.data.inputs[0] || job.data.inputs[0][0] == '/'));
    FUZZ_CHECK(!parsed || parsed->hash == job.hash); /* paths count by their last part */
    sy_job_finish(&job);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sy_job job;
    char *text = malloc(size + 1);
    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = 0;
    int status = sy_job_parse(text, &job);
    if (status == SY_OK) {
        FUZZ_CHECK(
            job.name && job.model &&
            (job.data.inputs[0] || job.data.folder[0] || job.data.samples[0] || job.data.n_fields));
        FUZZ_CHECK(job.options.batch >= 1 && job.data.std >= 0 && !strchr(job.name, '/'));
    }
    check_load(data, size, status == SY_OK && !memchr(data, 0, size) ? &job : NULL);
    sy_job_finish(&job);
    free(text);
    return 0;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "{\"name\": \"a\", \"model\": \"m.onnx\", \"optimizer\": {\"learning_rate\": 0.1},"
        " \"data\": {\"images\": \"i\", \"labels\": \"l\"}}",
        "{\"name\": \"fashion_mnist\", \"model\": \"../m.onnx\", \"loss\": "
        "\"softmax_cross_entropy\", \"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.05,"
        " \"momentum\": 0.9, \"weight_decay\": 1e-4}, \"data\": {\"kind\": \"idx\", \"images\":"
        " \"/d/i.gz\", \"labels\": \"/d/l.gz\", \"test_images\": \"/d/ti\", \"test_labels\":"
        " \"/d/tl\", \"mean\": 0.286, \"std\": 0.353}, \"batch\": 64, \"epochs\": 2, \"seed\": 1,"
        " \"max_steps\": 100, \"snapshot\": {\"folder\": \"../s\", \"every_seconds\": 30,"
        " \"every_steps\": 7}}",
        "{\"name\": \"b\", \"model\": \"/m\", \"loss\": \"mse\", \"optimizer\": {\"kind\": "
        "\"adam\", \"learning_rate\": 1e-3, \"beta1\": 0.8, \"beta2\": 0.99, \"epsilon\": 1e-7},"
        " \"data\": {\"images\": \"i\", \"labels\": \"l\"}}",
        "{\"name\": \"c\", \"model\": \"m\", \"optimizer\": {\"kind\": \"adamw\", "
        "\"learning_rate\": 1e-3}, "
        "\"data\": {\"kind\": \"csv\", \"file\": \"f.csv\", \"test_file\": \"t.csv\", \"label\": "
        "\"y\", "
        "\"features\": [\"a\", \"b\"], \"separator\": \";\", \"header\": true, \"standardize\": "
        "true, "
        "\"holdout\": 0.1, \"shuffle\": false}}",
        "{\"name\": \"d\", \"model\": \"m\", \"optimizer\": {\"learning_rate\": 0.1}, \"data\": "
        "{\"kind\": "
        "\"text\", \"folder\": \"d\", \"test_folder\": \"e\", \"split\": \"file\", \"ngram\": 3, "
        "\"vocabulary\": 1024}}",
        "{\"name\": \"e\", \"model\": \"m\", \"optimizer\": {\"learning_rate\": 0.1}, \"data\": "
        "{\"kind\": "
        "\"images\", \"folder\": \"d\", \"mean\": 0.5, \"std\": 0.2}}",
        "{\"name\": \"f\", \"model\": \"m\", \"optimizer\": {\"learning_rate\": 0.1}, \"data\": "
        "{\"kind\": "
        "\"npy\", \"inputs\": {\"x\": \"x.npy\", \"mask\": {\"fill\": 1}}, \"labels\": \"y.npy\", "
        "\"test_inputs\": {\"x\": \"t.npy\"}, \"test_labels\": \"ty.npy\"}}",
        "{\"name\": \"g\", \"model\": \"m\", \"dims\": {\"seq\": 16}, \"precision\": \"bf16\", "
        "\"optimizer\": "
        "{\"learning_rate\": 0.1, \"schedule\": {\"kind\": \"cosine\", \"warmup_steps\": 10}}, "
        "\"data\": "
        "{\"kind\": \"synthetic\", \"samples\": 10, \"test_samples\": 2, \"noise\": 0.5, "
        "\"vocabulary\": 8}}",
        "{\"name\": \"h\", \"model\": \"m\", \"output\": \"o\", \"slice\": \"s\", \"tenant\": "
        "\"t\", \"class\": \"opportunistic\", "
        "\"priority\": -3, \"loss\": \"bce\", \"accumulate\": 4, \"clip_norm\": 1, \"recompute\": "
        "true, \"frozen\": [\"e.*\", \"x\"], "
        "\"target_accuracy\": 0.9, \"evaluate_every_steps\": 5, \"optimizer\": {\"kind\": \"sgd\", "
        "\"learning_rate\": 0.1, \"momentum\": 0.9, "
        "\"nesterov\": true, \"decay\": \"weights\"}, \"schedule\": {\"kind\": \"linear\", "
        "\"warmup_steps\": 1, \"steps\": 20, \"final_rate\": 0.01}, "
        "\"data\": {\"kind\": \"csv\", \"file\": \"f\", \"label\": \"y\", \"inputs\": {\"a\": "
        "\"c\", \"b\": [\"d\", \"e\"], \"f\": 0.5}}}",
        "{\"name\": \"i\", \"model\": \"m\", \"optimizer\": {\"learning_rate\": 0.1}, "
        "\"schedule\": {\"kind\": \"step\", \"every_steps\": 3, \"factor\": "
        "0.5}, \"data\": {\"kind\": \"text\", \"folder\": \"d\", \"split\": \"windows\", "
        "\"inputs\": {\"a\": \"text\", \"b\": \"mask\", \"c\": \"length\", "
        "\"d\": \"positions\", \"e\": 1}}}",
        "{\"name\": \"j\", \"model\": \"m\", \"optimizer\": {\"learning_rate\": 0.1}, "
        "\"schedule\": {\"kind\": \"cosine\", \"steps\": 9}, \"data\": "
        "{\"kind\": \"npy\", \"inputs\": {\"a\": \"a.npy\", \"b\": 2}, \"labels\": \"l.npy\", "
        "\"test_inputs\": {\"a\": \"t.npy\"}, \"test_labels\": "
        "\"u.npy\"}}",
        "{\"name\": \"k\", \"model\": \"m\", \"optimizer\": {\"learning_rate\": 0.1}, \"data\": "
        "{\"kind\": \"npy\", \"inputs\": \"a.npy\", \"labels\": "
        "\"l.npy\", \"test_inputs\": \"b.npy\", \"test_labels\": \"u.npy\"}}",
        "{\"name\": \"\\u00e9\\ud83d\\ude00\", \"x\": [[[[1, -2.5e3, true, null]]]]}",
    };
    return i < (int)(sizeof seeds / sizeof *seeds) ? fuzz_give(seeds[i], strlen(seeds[i]), to, room)
                                                   : 0;
}
