#include "runtime/cli/doctor/doctor_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS 80
#define INDENT  20 /* of what a finding says, behind its level and its name */

/* ---- for people ---------------------------------------------------------------------------------------- */

/* From column INDENT on, broken between words; a longer word stands out. */
static void print_wrapped(const char *text)
{
    int column = INDENT;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column > INDENT && column + 1 + n > COLUMNS) {
            printf("\n%*s", INDENT, "");
            column = INDENT;
        }
        column += printf("%s%.*s", column > INDENT ? " " : "", n, text);
        text += n;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_finding(const struct sy_finding *finding)
{
    char advice[sizeof finding->advice + 4];
    printf("  %-5s %-11s ", sy_finding_level_name(finding->level), finding->id);
    print_wrapped(finding->value);
    if (!*finding->advice)
        return;
    snprintf(advice, sizeof advice, "do: %s", finding->advice);
    printf("%*s", INDENT, "");
    print_wrapped(advice);
}

static void print_findings(const struct sy_findings *findings)
{
    int last = -1;
    for (int i = 0; i < findings->n; i++) {
        const struct sy_finding *finding = &findings->list[i];
        if ((int)finding->group != last)
            printf("%s%s\n", last < 0 ? "" : "\n", sy_finding_group_title(finding->group));
        last = (int)finding->group;
        print_finding(finding);
    }
}

static const char *ms(double value, char out[16])
{
    if (isnan(value))
        snprintf(out, 16, "-");
    else
        snprintf(out, 16, value < 10 ? "%.2f" : value < 1000 ? "%.1f" : "%.0f", value);
    return out;
}

static void print_model(const struct sy_doctor_model *model)
{
    char compute[16], cold[16], warm[16], bound[32];
    const struct sy_swap_forecast *swap = &model->swap;
    if (*model->why) {
        const char *tail = model->path;
        size_t n = strlen(tail);
        printf("  %s\n%*s", n > COLUMNS - 2 ? tail + n - (COLUMNS - 2) : tail, INDENT, "");
        print_wrapped(model->why);
        return;
    }
    snprintf(bound, sizeof bound, "%s/%s", sy_swap_bound_name(swap->cold_bound),
             sy_swap_bound_name(swap->warm_bound));
    printf("  %-20.20s %8.1f %8s %8s %8s  %s\n", model->name, (double)model->bytes / 1e6,
           ms(swap->compute_ms, compute), ms(swap->cold_ms, cold), ms(swap->warm_ms, warm), bound);
}

static void print_models(const struct sy_doctor_facts *facts, const struct sy_doctor_models *models)
{
    if (models->n == 0)
        return;
    printf("\nswaps predicted, batch 1, ms%s\n",
           facts->device_emulated == 1 ? " (emulated device)" : "");
    printf("  %-20s %8s %8s %8s %8s  %s\n", "model", "MB", "compute", "cold", "warm",
           "waits for, cold/warm");
    for (int i = 0; i < models->n; i++)
        print_model(&models->list[i]);
}

void sy_doctor_print(const struct sy_doctor_facts *facts, const struct sy_findings *findings,
                     const struct sy_doctor_models *models)
{
    print_findings(findings);
    print_models(facts, models);
    printf("\n%d ok, %d to change, %d in the way: %s\n", sy_findings_count(findings, SY_FINDING_OK),
           sy_findings_count(findings, SY_FINDING_WARN),
           sy_findings_count(findings, SY_FINDING_FAIL),
           sy_findings_are_ok(findings) ? "it will work" : "it will not work");
}

/* ---- for programs -------------------------------------------------------------------------------------- */

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *swap_json(const struct sy_swap_forecast *swap)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:s}", "storage_ms", real(swap->storage_ms),
                     "link_ms", real(swap->link_ms), "compute_ms", real(swap->compute_ms),
                     "cold_ms", real(swap->cold_ms), "warm_ms", real(swap->warm_ms), "cold_bound",
                     sy_swap_bound_name(swap->cold_bound), "warm_bound",
                     sy_swap_bound_name(swap->warm_bound));
}

static json_t *finding_json(const struct sy_finding *finding)
{
    static const char *const levels[] = {"ok", "warn", "fail"};
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "id", finding->id, "group",
                     sy_finding_group_title(finding->group), "level", levels[finding->level],
                     "value", finding->value, "do", finding->advice);
}

static json_t *model_json(const struct sy_doctor_model *model)
{
    if (*model->why)
        return json_pack("{s:s, s:s}", "path", model->path, "why", model->why);
    return json_pack("{s:s, s:s, s:I, s:b, s:o}", "path", model->path, "name", model->name, "bytes",
                     (json_int_t)model->bytes, "profiled", model->is_profiled, "swap",
                     swap_json(&model->swap));
}

static json_t *findings_json(const struct sy_findings *findings)
{
    json_t *list = json_array();
    for (int i = 0; i < findings->n; i++)
        json_array_append_new(list, finding_json(&findings->list[i]));
    return list;
}

static json_t *models_json(const struct sy_doctor_models *models)
{
    json_t *list = json_array();
    for (int i = 0; i < models->n; i++)
        json_array_append_new(list, model_json(&models->list[i]));
    return list;
}

json_t *sy_doctor_json(const struct sy_doctor_facts *facts, const struct sy_findings *findings,
                       const struct sy_doctor_models *models)
{
    struct sy_swap_forecast example;
    sy_swap_forecast_bytes(facts, SY_DOCTOR_EXAMPLE_BYTES, &example);
    return json_pack("{s:b, s:s, s:b, s:o, s:o, s:{s:I, s:o}, s:o}", "works",
                     sy_findings_are_ok(findings), "device", facts->device, "emulated",
                     facts->device_emulated == 1, "findings", findings_json(findings), "facts",
                     sy_doctor_facts_json(facts), "example", "bytes",
                     (json_int_t)SY_DOCTOR_EXAMPLE_BYTES, "swap", swap_json(&example), "models",
                     models_json(models));
}
