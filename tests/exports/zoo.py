#!/usr/bin/env python3
"""Models that people export, against ONNX Runtime: exports a zoo (random weights) with both of PyTorch's exporters, by other tools (zoo_tools.py),
and operators of other domains one by one (zoo_operators.py); writes inputs and ONNX Runtime's outputs beside each as the ONNX project's test data
is laid out, and runs tests/onnx_suite over it.

usage: zoo.py BUILD FOLDER [--only TEXT] [--exporter legacy|dynamo|open] [--keep]     --keep: what is exported already stays
"""
import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import warnings

LIMIT_S = 240
OPEN = {"resnet18", "mobilenet_v2", "densenet121", "shufflenet_v2_x1_0", "googlenet", "efficientnet_b0", "convnext_tiny", "regnet_y_400mf"}
OPSETS = {"small": [9, 11, 13, 17], "vision": [12, 17], "timm": [17], "text": [14, 17]}


def export_legacy(module, inputs, path, opset):
    import torch
    names = [f"in{i}" for i in range(len(inputs))]
    axes = {n: {0: "N"} for n in names} if inputs[0].shape[0] > 1 else None
    torch.onnx.export(module, inputs, path, opset_version=opset, input_names=names, dynamic_axes=axes, dynamo=False)


def export_dynamo(module, inputs, path, opset):
    import torch
    batch = torch.export.Dim("N") if inputs[0].shape[0] > 1 else None
    shapes = tuple({0: batch} for _ in inputs) if batch is not None else None
    if shapes and type(module).__name__ == "Plain":
        shapes = (shapes,)
    torch.onnx.export(module, inputs, path, opset_version=opset, dynamo=True, dynamic_shapes=shapes, external_data=False, verbose=False)


def open_axes(inputs):
    """Which sizes requests may choose: the length of tokens, height and width of images; each input's has a name of its own."""
    axes = []
    for i, t in enumerate(inputs):
        more = {1: f"length{i}"} if t.dim() == 2 and not t.is_floating_point() else {2: "height", 3: "width"} if t.dim() == 4 else {}
        axes.append({0: "N", **more})
    return axes


def export_open(module, inputs, path, opset):
    import torch
    names = [f"in{i}" for i in range(len(inputs))]
    torch.onnx.export(module, inputs, path, opset_version=opset, input_names=names, dynamic_axes=dict(zip(names, open_axes(inputs))), dynamo=False)


def other_sizes(inputs, arrays):
    """The inputs with other batches and sizes: of the same elements, repeated or cut."""
    import numpy as np
    for batch, scale in ((1, 0.5), (3, 1.5)):
        made = []
        for a, axes in zip(arrays, open_axes(inputs)):
            dims = [batch if d == 0 else max(int(n * scale), 1) if d in axes else n for d, n in enumerate(a.shape)]
            made.append(np.resize(a, dims))
        yield made


def write_tensors(folder, kind, arrays):
    from onnx import numpy_helper
    for i, a in enumerate(arrays):
        with open(f"{folder}/{kind}_{i}.pb", "wb") as out:
            out.write(numpy_helper.from_array(a).SerializeToString())


def write_data(folder, sets):
    import numpy as np
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
    for k, arrays in enumerate(sets):
        arrays = arrays[:len(session.get_inputs())]
        feeds = {i.name: a for i, a in zip(session.get_inputs(), arrays)}
        outs = session.run(None, feeds)
        os.makedirs(f"{folder}/test_data_set_{k}", exist_ok=True)
        write_tensors(f"{folder}/test_data_set_{k}", "input", arrays)
        write_tensors(f"{folder}/test_data_set_{k}", "output", [np.asarray(o) for o in outs])


def make(family, name, exporter, opset, folder, log):
    with open(log, "w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    warnings.filterwarnings("ignore")
    if exporter == "made":
        import onnx
        os.makedirs(folder)
        model, arrays = made_models(family)[name]()
        onnx.save(model, f"{folder}/model.onnx")
        return write_data(folder, [arrays])
    import torch
    import zoo_models
    torch.manual_seed(1)
    torch.set_num_threads(1)
    module, inputs = zoo_models.FAMILIES[family]()[name]()
    module.eval()
    os.makedirs(folder)
    with torch.no_grad():
        {"legacy": export_legacy, "dynamo": export_dynamo, "open": export_open}[exporter](module, inputs, f"{folder}/model.onnx", opset)
    arrays = [t.numpy() for t in inputs]
    write_data(folder, [arrays] + (list(other_sizes(inputs, arrays)) if exporter == "open" else []))


def made_models(family):
    import importlib
    return importlib.import_module("zoo_" + family).models()


def plan(args):
    for family in ("operators", "tools"):
        for name in made_models(family):
            if not args.exporter and (not args.only or args.only in name):
                yield family, name, "made", ""
    try:
        import zoo_models
    except ImportError as why:
        print(f"without the exporters of PyTorch: {why}")
        return
    for family, models in zoo_models.FAMILIES.items():
        opsets = OPSETS[family]
        for i, name in enumerate(models()):
            if args.only and args.only not in name:
                continue
            if args.exporter in (None, "legacy"):
                yield family, name, "legacy", opsets[i % len(opsets)]
            if args.exporter in (None, "open") and (family == "text" or name in OPEN):
                yield family, name, "open", 17
            if args.exporter in (None, "dynamo") and not name.startswith("script"):
                yield family, name, "dynamo", 18 + i % 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("folder")
    parser.add_argument("--only")
    parser.add_argument("--exporter")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    skipped = []
    for family, name, exporter, opset in plan(args):
        root = os.path.join(args.folder, "zoo-quantized" if "quant" in name else "zoo")
        os.makedirs(root, exist_ok=True)
        folder = f"{root}/{name}_{exporter}{opset}"
        log = folder + ".log"
        if args.keep and (os.path.exists(folder + "/test_data_set_0/output_0.pb") or os.path.exists(folder + ".skip")):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        child = multiprocessing.Process(target=make, args=(family, name, exporter, opset, folder, log))
        child.start()
        child.join(LIMIT_S)
        if child.is_alive():
            child.kill()
            child.join()
        if child.exitcode != 0:  # the exporter's or ONNX Runtime's refusal, not ours
            with open(log) as text:
                skipped.append((f"{name}_{exporter}{opset}", ([l.strip() for l in text if l.strip()] or ["no output"])[-1][:150]))
            os.replace(log, folder + ".skip")
            shutil.rmtree(folder, ignore_errors=True)
        else:
            os.remove(log)
    for name, why in skipped:
        print(f"not exported {name}: {why}")
    only = ["--only", args.only] if args.only else []
    sys.exit(subprocess.call([f"{args.build}/tests/onnx_suite", "--verbose", *only, args.folder]))


if __name__ == "__main__":
    main()
