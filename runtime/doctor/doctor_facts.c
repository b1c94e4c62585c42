#include "runtime/doctor/doctor_facts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/printable.h"

void sy_doctor_facts_init(struct sy_doctor_facts *facts)
{
    memset(facts, 0, sizeof *facts);
#define X(name, what) facts->name = NAN;
    SY_DOCTOR_NUMBERS(X)
#undef X
}

static json_t *number(double value)
{
    if (isnan(value))
        return json_null();
    return isinf(value) ? json_integer(-1) : json_real(value);
}

json_t *sy_doctor_facts_json(const struct sy_doctor_facts *facts)
{
    json_t *object = json_object();
    int failed = !object;
#define X(name, what) failed |= json_object_set_new(object, #name, number(facts->name)) != 0;
    SY_DOCTOR_NUMBERS(X)
#undef X
#define X(name, what) failed |= json_object_set_new(object, #name, json_string(facts->name)) != 0;
    SY_DOCTOR_TEXTS(X)
#undef X
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

void sy_doctor_text(char field[SY_DOCTOR_TEXT_BYTES], const char *text)
{
    snprintf(field, SY_DOCTOR_TEXT_BYTES, "%s", text);
    sy_printable_make(field);
}
