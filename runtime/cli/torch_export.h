/* A PyTorch model as an ONNX file, made by torch.onnx in a Python process of its own. */
#ifndef SY_CLI_TORCH_EXPORT_H
#define SY_CLI_TORCH_EXPORT_H

#include <stdbool.h>
#include <stddef.h>

struct sy_torch_export {
    char folder[64]; /* of the files made; "" none */
    char onnx[128];  /* what to import */
    char nominal
        [4096]; /* the model's place and name, as if it were an ONNX file: FOLDER/make_model.onnx */
    char source[4096]; /* the file that decides whether a package is up to date */
};

/* Whether it is model.pt2 or script.py:make_model; names are filled in then. */
bool sy_torch_export_names(const char *model, struct sy_torch_export *e);
/* Runs `python` (NULL: python3). What it says on stderr is for the user; EUNSUPPORTED, ENOTFOUND. */
int sy_torch_export_run(const char *model, const char *python, struct sy_torch_export *e);
void sy_torch_export_finish(struct sy_torch_export *e); /* removes the files */

/* The folder of the Python files beside this program, with `file` in it ("_run/sitecustomize.py"); NULL: there is none. */
const char *sy_torch_package_folder(const char *file);

#endif
