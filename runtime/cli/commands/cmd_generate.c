/* generate: tokens from a decoder, one request a token in a session: its keys and values stay at the server. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/graph/graph.h"
#include "loader/package/file_bytes.h"
#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/inputs/decoder_inputs.h"
#include "runtime/cli/inputs/random_inputs.h"
#include "runtime/cli/inputs/sample_token.h"
#include "runtime/cli/inputs/token_text.h"
#include "runtime/client/client_json.h"

#define MOST_TOKENS (1 << 20)

struct generate {
    const char *address, *model, *output, *vocabulary_path;
    int64_t *tokens; /* of the prompt, then the one that came last */
    int64_t n_tokens, past, n_new, most_new, stop;
    struct sy_sampler sampler;
    struct sy_vocabulary *vocabulary;
    sy_client *client;
    sy_client_options options;
    json_t *entry; /* of the model */
    char session[64];
    sy_ns start_ns, first_ns; /* of the prompt's request; when its token was there */
};

/* ---- the prompt ------------------------------------------------------------------------------------------------ */

static int add_token(struct generate *g, const char *text, char **end)
{
    long long token = strtoll(text, end, 10);

    if (*end == text || token < 0 || token > INT32_MAX)
        return sy_error_set(SY_EARG, "\"%.40s\" is not a token: whole numbers, from 0 on", text);
    if (g->n_tokens == MOST_TOKENS)
        return sy_error_set(SY_ETOOBIG, "more than %d tokens", MOST_TOKENS);
    g->tokens[g->n_tokens++] = token;
    return SY_OK;
}

/* Numbers between commas and white space. */
static int read_tokens(struct generate *g, const char *text)
{
    char *end;

    while (*text) {
        if (isspace((unsigned char)*text) || *text == ',') {
            text++;
            continue;
        }
        SY_TRY(add_token(g, text, &end));
        text = end;
    }
    return SY_OK;
}

static int read_prompt_file(struct generate *g, const char *path)
{
    unsigned char *bytes;
    size_t n;

    SY_TRY(sy_file_read_range(path, 0, UINT64_MAX, &bytes, &n));
    char *text = malloc(n + 1);
    int status = SY_ENOMEM_HOST;
    if (text) {
        memcpy(text, bytes, n);
        text[n] = '\0';
        status = read_tokens(g, text);
    } else {
        sy_error_set(SY_ENOMEM_HOST, "no memory for %s", path);
    }
    free(text);
    free(bytes);
    return status;
}

/* ---- a token --------------------------------------------------------------------------------------------------- */

static float score_at(const sy_client_tensor *scores, enum sy_dtype dtype, size_t i)
{
    if (dtype == SY_DTYPE_F32)
        return ((const float *)scores->data)[i];
    uint16_t bits = ((const uint16_t *)scores->data)[i];
    return dtype == SY_DTYPE_F16 ? sy_half_to_float(bits) : sy_bf16_to_float(bits);
}

static const sy_client_tensor *find_scores(const struct generate *g, const sy_client_result *result)
{
    for (int i = 0; i < result->n_outputs; i++)
        if (g->output ? strcmp(result->outputs[i].name, g->output) == 0
                      : result->n_outputs == 1 || strcmp(result->outputs[i].name, "logits") == 0)
            return &result->outputs[i];
    return NULL;
}

/* Chooses a token by the last position: the last `vocabulary` values. */
static int choose(struct generate *g, const sy_client_result *result, int64_t *token)
{
    const sy_client_tensor *scores = find_scores(g, result);

    if (!scores)
        return sy_error_set(SY_ENOTFOUND, "the model gives no \"%s\"; name its scores (--output)",
                            g->output ? g->output : "logits");
    enum sy_dtype dtype = sy_dtype_from_wire_name(scores->dtype);
    if (dtype != SY_DTYPE_F32 && dtype != SY_DTYPE_F16 && dtype != SY_DTYPE_BF16)
        return sy_error_set(SY_EUNSUPPORTED, "scores of type %s", scores->dtype);
    size_t all = scores->bytes / sy_dtype_bytes(dtype);
    size_t n = scores->rank > 0 ? (size_t)scores->shape[scores->rank - 1] : 0;
    if (n == 0 || n > all)
        return sy_error_set(SY_EPROTO, "the model gave no scores");
    float *last = malloc(n * sizeof *last);
    SY_TRY_ALLOC(last, "no memory for %zu scores", n);
    for (size_t i = 0; i < n; i++)
        last[i] = score_at(scores, dtype, all - n + i);
    int status = sy_sample_token(&g->sampler, last, (int64_t)n, token);
    free(last);
    return status;
}

/* One request: what is in tokens goes to the session, and the next token takes its place. */
static int step(struct generate *g)
{
    struct sy_decoder_inputs inputs;
    sy_client_result *result = NULL;
    int64_t token = 0;

    g->options.session_start = g->past == 0;
    g->options.session_end = g->n_new + 1 == g->most_new;
    int status = sy_decoder_inputs_make(g->entry, g->tokens, g->n_tokens, g->past, &inputs);
    if (status == SY_OK) {
        status = sy_client_infer_with(g->client, g->model, inputs.tensors, inputs.n, &g->options,
                                      &result);
        if (status < 0)
            sy_error_set(status, "%s", sy_client_error(g->client));
    }
    sy_decoder_inputs_finish(&inputs);
    if (status == SY_OK)
        status = choose(g, result, &token);
    sy_client_result_free(result);
    SY_TRY(status);
    g->past += g->n_tokens;
    g->tokens[0] = token;
    g->n_tokens = 1;
    g->n_new++;
    return SY_OK;
}

static void show(const struct generate *g)
{
    char text[256];
    size_t n =
        g->vocabulary ? sy_vocabulary_text(g->vocabulary, g->tokens[0], text, sizeof text) : 0;

    if (g->vocabulary)
        fwrite(text, 1, n, stdout);
    else
        printf("%s%lld", g->n_new > 1 ? " " : "", (long long)g->tokens[0]);
    fflush(stdout);
}

static void show_times(const struct generate *g)
{
    double prompt = (double)(g->first_ns - g->start_ns) / 1e9;
    double rest = (double)(sy_clock_now() - g->first_ns) / 1e9;

    printf("\n");
    fprintf(stderr, "%lld tokens; the first after %.3f s", (long long)g->n_new, prompt);
    if (g->n_new > 1)
        fprintf(stderr, ", then %.1f tokens/s", (double)(g->n_new - 1) / rest);
    fprintf(stderr, "\n");
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

static int find_model(struct generate *g, json_t *models)
{
    g->entry = sy_json_named(models, g->model);
    if (!g->entry)
        return sy_error_set(SY_ENOTFOUND, "the server has no model %s", g->model);
    if (json_array_size(json_object_get(g->entry, "state_tensors")) == 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "%s keeps nothing between requests: no output \"present...\" belongs "
                            "to an input \"past...\"",
                            g->model);
    return SY_OK;
}

static int generate_all(struct generate *g)
{
    bool stopped = false;

    snprintf(g->session, sizeof g->session, "generate-%ld-%llx", (long)getpid(),
             (unsigned long long)sy_clock_now());
    g->options.session = g->session;
    g->start_ns = sy_clock_now();
    while (g->n_new < g->most_new && !stopped) {
        SY_TRY(step(g));
        if (g->n_new == 1)
            g->first_ns = sy_clock_now();
        stopped = g->tokens[0] == g->stop;
        if (!stopped)
            show(g);
    }
    show_times(g);
    return SY_OK;
}

/* A session that ended with its last request is gone already. */
static void end_session(const struct generate *g)
{
    json_t *params = json_pack("{s:s, s:s}", "model", g->model, "session", g->session);
    char *text = NULL, *answer = NULL;

    if (params && g->options.tenant)
        json_object_set_new(params, "tenant", json_string(g->options.tenant));
    text = params && *g->session ? json_dumps(params, 0) : NULL;
    if (text && sy_client_call(g->client, "session_end", text, &answer) == SY_OK)
        free(answer);
    free(text);
    json_decref(params);
}

static int run(struct generate *g)
{
    json_t *models, *params = json_pack("{s:s}", "model", g->model);

    if (!params)
        return sy_cli_fail("a name that is not UTF-8");
    if (g->options.version > 0)
        json_object_set_new(params, "version", json_integer(g->options.version));
    if (sy_cli_call(g->client, "models", params, &models))
        return 1;
    int status = find_model(g, models);
    if (status == SY_OK)
        status = generate_all(g);
    int result = status < 0 ? sy_cli_fail_status() : 0;
    end_session(g);
    json_decref(models);
    return result;
}

static int set_tokens(void *command, const char *value)
{
    return read_tokens(command, value);
}

static int set_prompt_file(void *command, const char *value)
{
    return read_prompt_file(command, value);
}

static int set_model(void *command, const char *word)
{
    struct generate *g = command;

    if (g->model)
        return sy_error_set(SY_EARG, "one model, not also %s", word);
    g->model = word;
    return SY_OK;
}

static const struct sy_cli_field fields[] = {
    {{"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
     SY_CLI_TEXT(struct generate, address)},
    {{"tokens", "LIST", "the prompt: token ids, as 1,2,3"}, SY_CLI_SET(set_tokens)},
    {{"prompt-file", "FILE", "the prompt: a file of token ids, between commas or white space"},
     SY_CLI_SET(set_prompt_file)},
    {{"max-tokens", "N", "how many; default 32"},
     SY_CLI_INT64(struct generate, most_new, 1, MOST_TOKENS)},
    {{"stop", "ID", "ends behind this token, the model's end of text"},
     SY_CLI_INT64(struct generate, stop, 0, INT32_MAX)},
    {{"temperature", "T", "0, the default: always the likeliest token"},
     SY_CLI_REAL(struct generate, sampler.temperature)},
    {{"top-k", "N", "with a temperature: among the N likeliest; default all"},
     SY_CLI_INT64(struct generate, sampler.top_k, 1, INT32_MAX)},
    {{"seed", "N", "of what is drawn; default 1"},
     SY_CLI_INT64(struct generate, sampler.state, 0, INT64_MAX)},
    {{"vocab", "FILE",
      "tokenizer.json or vocab.json of the model: prints text; else token ids are printed"},
     SY_CLI_TEXT(struct generate, vocabulary_path)},
    {{"output", "NAME", "the output that has the scores; default logits"},
     SY_CLI_TEXT(struct generate, output)},
    {{"class", "N", "0, the most urgent, to 9; default: the model's, mostly 1"},
     SY_CLI_INT(struct generate, options.urgency_class, 0, 9)},
    {{"tenant", "NAME", "whose request it is"}, SY_CLI_TEXT(struct generate, options.tenant)},
    {{"version", "N", "of the model; default: as its version policy says, the highest"},
     SY_CLI_INT64(struct generate, options.version, 1, INT64_MAX)}};

static int check(struct generate *g)
{
    if (!g->model)
        return sy_cli_usage("generate with which model? see switchyard generate --help");
    if (g->n_tokens == 0)
        return sy_cli_usage("no prompt: --tokens 1,2,3 or --prompt-file FILE");
    if (g->vocabulary_path && sy_vocabulary_open(g->vocabulary_path, &g->vocabulary) < 0)
        return sy_cli_fail_status();
    return 0;
}

int sy_cmd_generate(int argc, char **argv)
{
    static const struct sy_cli_fields command = {
        "generate MODEL --tokens LIST [options]\n\nRuns a decoder token by token in a session and "
        "prints the tokens as they come.",
        fields, SY_ARRAY_LEN(fields), set_model};
    struct generate g = {.most_new = 32,
                         .stop = -1,
                         .sampler = {.state = 1},
                         .options = {.urgency_class = SWITCHYARD_MODEL_CLASS}};

    g.tokens = malloc(MOST_TOKENS * sizeof *g.tokens);
    if (!g.tokens)
        return sy_cli_fail("no memory for the prompt");
    int result = sy_cli_read(&command, argc, argv, &g);
    if (result == SY_CLI_END) {
        result = check(&g);
        if (result == 0)
            result = sy_cli_connect(g.address, 0, &g.client);
        if (result == 0) {
            result = run(&g);
            sy_client_close(g.client);
        }
    }
    sy_vocabulary_close(g.vocabulary);
    free(g.tokens);
    return result;
}
