/* The packages of a models folder, and the swap that is predicted for each. */
#ifndef SY_CLI_DOCTOR_MODELS_H
#define SY_CLI_DOCTOR_MODELS_H

#include "runtime/doctor/doctor_facts.h"
#include "runtime/doctor/swap_forecast.h"

struct sy_doctor_model {
    char *path;     /* of the package, or of the ONNX file that has none */
    char name[128]; /* the package's own */
    char why[256];  /* it cannot be predicted: the reason; else "" */
    uint64_t bytes; /* weights */
    bool is_profiled;
    struct sy_swap_forecast swap;
};

struct sy_doctor_models {
    struct sy_doctor_model *list;
    int n;
};

/* DIR/FILE.sypkg, DIR/NAME/VERSION/model.sypkg, and model.onnx files beside which there is no package; by path. Only names: no file is opened. EIO:
 * the folder cannot be read; ENOMEM_HOST. To be finished, also after a failure. */
int sy_doctor_models_find(const char *folder, struct sy_doctor_models *out);
/* The largest package of at least `least_bytes`, for measuring the storage. NULL: there is none. Valid until finish. */
const char *sy_doctor_models_largest(const struct sy_doctor_models *models, uint64_t least_bytes);
/* Opens each and predicts; what cannot be gets its reason. */
void sy_doctor_models_predict(struct sy_doctor_models *models, const struct sy_doctor_facts *facts);
void sy_doctor_models_finish(struct sy_doctor_models *models); /* zeroed is fine */

#endif
