"""Single operators that the ONNX project's test data lacks: ONNX Runtime's own, scikit-learn's, sequences, Scan. name -> (model, inputs)."""
import numpy as np
from onnx import TensorProto as T, helper as h, numpy_helper as nh

RNG = np.random.default_rng(5)
KIND = {np.dtype(np.float32): T.FLOAT, np.dtype(np.int32): T.INT32, np.dtype(np.int64): T.INT64, np.dtype(np.uint8): T.UINT8,
        np.dtype(np.int8): T.INT8, np.dtype(np.int16): T.INT16, np.dtype(bool): T.BOOL, np.dtype(np.float16): T.FLOAT16, np.dtype(object): T.STRING}
MS, ML = "com.microsoft", "ai.onnx.ml"


def floats(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


def bytes_(kind, *dims):
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max, dims, dtype=kind, endpoint=True)


def f32(x):
    return np.array(x, np.float32)


def model(nodes, inputs, constants, outputs, opset=17, batch=True):
    """inputs, constants: name -> array; the first dimension of inputs is symbolic where `batch`."""
    ins = [h.make_tensor_value_info(n, KIND[a.dtype], (["N"] if batch and a.ndim else []) + list(a.shape[1 if batch and a.ndim else 0:]))
           for n, a in inputs.items()]
    outs = [h.make_value_info(o, h.make_tensor_type_proto(k, None)) if isinstance(k, int) else k for o, k in outputs.items()]
    graph = h.make_graph(nodes, "g", ins, outs, [nh.from_array(a, n) for n, a in constants.items()])
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", opset), h.make_opsetid(MS, 1), h.make_opsetid(ML, 3)])
    made.ir_version = 8
    return made, list(inputs.values())


def one(op, inputs, constants=None, domain=MS, n_outputs=1, kind=T.FLOAT, order=None, batch=True, **attrs):
    constants = constants or {}
    names = order or list(inputs) + list(constants)
    outs = {f"y{i}": (kind[i] if isinstance(kind, list) else kind) for i in range(n_outputs)}
    return model([h.make_node(op, names, list(outs), domain=domain, name="it", **attrs)], inputs, constants, outs, batch=batch)


def activations():
    x, b = floats(3, 4, 8), floats(8)
    return {
        "gelu": one("Gelu", {"x": x}), "fast_gelu": one("FastGelu", {"x": x}), "fast_gelu_bias": one("FastGelu", {"x": x}, {"b": b}),
        "bias_gelu": one("BiasGelu", {"x": x}, {"b": b}), "quick_gelu": one("QuickGelu", {"x": x}, alpha=1.3),
    }


def products():
    made = {}
    for ta in (0, 1):
        for tb in (0, 1):
            a, b = floats(2, 5, 3) if ta else floats(2, 3, 5), floats(4, 5) if tb else floats(5, 4)
            made[f"fused_matmul_{ta}{tb}"] = one("FusedMatMul", {"a": a}, {"b": b}, transA=ta, transB=tb, alpha=0.37)
    made["fused_matmul_batch"] = one("FusedMatMul", {"a": floats(3, 2, 5), "b": floats(2, 5, 4)}, batch=False, transBatchA=1)
    made["fused_matmul_both"] = one("FusedMatMul", {"a": floats(2, 4, 3, 5), "b": floats(2, 4, 6, 5)}, transB=1, alpha=0.125)
    for act, params in (("Relu", []), ("Clip", [-0.3, 0.8]), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.1, 0.4]), ("Tanh", [])):
        extra = {"activation_params": params} if params else {}
        made["fused_conv_" + act.lower()] = one("FusedConv", {"x": floats(2, 3, 7, 7)}, {"w": floats(4, 3, 3, 3), "b": floats(4)}, activation=act,
                                                pads=[1, 1, 1, 1], strides=[2, 1], **extra)
    made["fused_conv_sum"] = one("FusedConv", {"x": floats(2, 3, 6, 6), "z": floats(2, 4, 6, 6)}, {"w": floats(4, 3, 3, 3), "b": floats(4)},
                                 order=["x", "w", "b", "z"], activation="Relu", pads=[1, 1, 1, 1])
    made["fused_gemm"] = one("FusedGemm", {"a": floats(2, 5)}, {"b": floats(4, 5), "c": floats(4)}, transB=1, alpha=0.5, beta=2.0, activation="LeakyRelu",
                             activation_alpha=0.1)
    return made


def norms():
    x, skip, g, b, bias = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)
    c = {"g": g, "b": b}
    made = {"skip_norm": one("SkipLayerNormalization", {"x": x, "s": skip}, c),
            "skip_norm_bias": one("SkipLayerNormalization", {"x": x, "s": skip}, dict(c, bias=bias), epsilon=1e-5),
            "skip_norm_sum": one("SkipLayerNormalization", {"x": x, "s": skip}, dict(c, bias=bias), order=["x", "s", "g", "b", "bias"], n_outputs=1),
            "skip_rms": one("SkipSimplifiedLayerNormalization", {"x": x, "s": skip}, {"g": g}),
            "rms": one("SimplifiedLayerNormalization", {"x": x}, {"g": g}, domain="", axis=-1, epsilon=1e-6),
            "skip_norm_wide": one("SkipLayerNormalization", {"x": x}, {"s": floats(1, 3, 8), **c})}
    made["skip_norm_sum"] = model([h.make_node("SkipLayerNormalization", ["x", "s", "g", "b", "bias"], ["y", "", "", "sum"], domain=MS)],
                                  {"x": x, "s": skip}, dict(c, bias=bias), {"y": T.FLOAT, "sum": T.FLOAT})
    ids, seg = RNG.integers(0, 20, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
    tables = {"w": floats(20, 8), "p": floats(9, 8), "t": floats(2, 8), "g": g, "b": b}
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
    made["embed_norm"] = one("EmbedLayerNormalization", {"i": ids, "s": seg, "m": mask}, tables, order=["i", "s", "w", "p", "t", "g", "b", "m"], n_outputs=2,
                             kind=[T.FLOAT, T.INT32], epsilon=1e-6)
    return made


def attentions():
    made, hidden, heads, s = {}, 16, 4, 6
    x, w, b = floats(2, s, hidden), floats(hidden, 3 * hidden) / 4, floats(3 * hidden)
    raw = np.array([[1] * s, [1] * 4 + [0] * (s - 4)], np.int32)
    lengths = np.array([6, 3], np.int32)
    base = {"w": w, "b": b}

    def attention(name, inputs, order, constants=base, outs=1, **attrs):
        made[name] = model([h.make_node("Attention", order, [f"y{i}" for i in range(outs)], domain=MS, num_heads=heads, **attrs)], inputs, constants,
                           {f"y{i}": T.FLOAT for i in range(outs)})
    attention("attention", {"x": x}, ["x", "w", "b"])
    attention("attention_raw_mask", {"x": x, "m": raw}, ["x", "w", "b", "m"])
    attention("attention_lengths", {"x": x, "m": lengths}, ["x", "w", "b", "m"], mask_filter_value=-5000.0)
    attention("attention_causal", {"x": x}, ["x", "w", "b"], unidirectional=1)
    attention("attention_causal_mask", {"x": x, "m": raw}, ["x", "w", "b", "m"], unidirectional=1)
    attention("attention_3d_mask", {"x": x, "m": RNG.integers(0, 2, (2, s, s)).astype(np.int32)}, ["x", "w", "b", "m"], scale=0.3)
    attention("attention_bias", {"x": x, "r": floats(2, heads, s, s)}, ["x", "w", "b", "", "", "r"])
    attention("attention_sizes", {"x": x}, ["x", "w", "b"], {"w": floats(hidden, 8 + 8 + 12), "b": floats(28)}, qkv_hidden_sizes=[8, 8, 12])
    q, k, v = floats(2, s, hidden), floats(2, 5, hidden), floats(2, 5, hidden)

    def multi(name, inputs, order, constants=None, outs=1, **attrs):
        made[name] = model([h.make_node("MultiHeadAttention", order, [f"y{i}" for i in range(outs)], domain=MS, num_heads=heads, **attrs)], inputs,
                           constants or {}, {f"y{i}": T.FLOAT for i in range(outs)})
    qkv = {"q": q, "k": k, "v": v}
    multi("mha", qkv, ["q", "k", "v"])
    multi("mha_bias", qkv, ["q", "k", "v", "b"], {"b": b})
    multi("mha_mask", dict(qkv, m=np.array([[1] * 5, [1, 1, 0, 0, 0]], np.int32)), ["q", "k", "v", "", "m"])
    multi("mha_lengths", dict(qkv, m=np.array([5, 2], np.int32)), ["q", "k", "v", "", "m"])
    multi("mha_score_bias", dict(qkv, r=floats(2, heads, s, 5)), ["q", "k", "v", "", "", "r"], scale=0.2)
    multi("mha_past", dict(qkv, pk=floats(2, heads, 3, 4), pv=floats(2, heads, 3, 4)), ["q", "k", "v", "", "", "", "pk", "pv"], outs=3)
    multi("mha_causal", {"q": q, "k": floats(2, s, hidden), "v": floats(2, s, hidden)}, ["q", "k", "v"], unidirectional=1)
    multi("mha_heads_first", {"q": q, "k": floats(2, heads, 5, 4), "v": floats(2, heads, 5, 4)}, ["q", "k", "v"])
    xq, wq = bytes_(np.uint8, 2, s, hidden), bytes_(np.int8, hidden, 3 * hidden)
    made["qattention"] = model([h.make_node("QAttention", ["x", "w", "b", "xs", "ws", "m", "xz", "wz"], ["y"], domain=MS, num_heads=heads)],
                               {"x": xq, "m": lengths}, {"w": wq, "b": b, "xs": f32(0.01), "ws": f32(0.01), "xz": np.uint8(120), "wz": np.int8(0)},
                               {"y": T.FLOAT})
    return made


def quantized():
    x, y = bytes_(np.uint8, 2, 4, 6, 6), bytes_(np.uint8, 2, 4, 6, 6)
    a = {"as": f32(0.05), "az": np.uint8(120)}
    b = {"bs": f32(0.03), "bz": np.uint8(100)}
    c = {"cs": f32(0.1), "cz": np.uint8(130)}
    made = {"quant_" + op.lower(): one("QLinear" + op, {"x": x, "y": y}, {**a, **b, **c}, order=["x", "as", "az", "y", "bs", "bz", "cs", "cz"], kind=T.UINT8)
            for op in ("Add", "Mul")}
    for op, attrs in (("Sigmoid", {}), ("LeakyRelu", {"alpha": 0.2}), ("GlobalAveragePool", {}), ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
                      ("Softmax", {"axis": 1, "opset": 13})):
        scales = {**a, "cs": f32(1 / 256), "cz": np.uint8(0)} if op in ("Sigmoid", "Softmax") else {**a, **c}
        made["quant_" + op.lower()] = one("QLinear" + op, {"x": x}, scales, order=["x", "as", "az", "cs", "cz"], kind=T.UINT8, **attrs)
    made["quant_concat"] = one("QLinearConcat", {"x": x, "y": y}, {**a, **b, **c}, order=["cs", "cz", "x", "as", "az", "y", "bs", "bz"], kind=T.UINT8, axis=1)
    m, w, bias = bytes_(np.uint8, 3, 16), bytes_(np.int8, 16, 8), RNG.integers(-500, 500, 8).astype(np.int32)
    columns = {"w": w, "ws": np.abs(floats(8)) / 50 + f32(0.001), "wz": np.zeros(8, np.int8), "c": bias}
    made["qgemm"] = one("QGemm", {"x": m}, {**a, "w": w, "ws": f32(0.02), "wz": np.int8(3), "c": bias, "cs": f32(0.5), "cz": np.uint8(128)},
                        order=["x", "as", "az", "w", "ws", "wz", "c", "cs", "cz"], kind=T.UINT8)
    made["qgemm_columns_float"] = one("QGemm", {"x": m}, {**a, **columns}, order=["x", "as", "az", "w", "ws", "wz", "c"], alpha=0.5)
    f = floats(3, 16)
    made["dynamic_matmul"] = one("DynamicQuantizeMatMul", {"x": f}, {"w": w, "ws": f32(0.02), "wz": np.int8(0), "b": floats(8)})
    made["dynamic_matmul_columns"] = one("DynamicQuantizeMatMul", {"x": f}, {"w": w, "ws": columns["ws"], "wz": columns["wz"]})
    made["matmul_to_float"] = one("MatMulIntegerToFloat", {"x": m}, {"w": w, "as": f32(0.05), "ws": f32(0.02), "az": np.uint8(120), "wz": np.int8(0), "b": floats(8)})
    made["ms_qdq"] = model([h.make_node("QuantizeLinear", ["x", "as", "az"], ["q"], domain=MS), h.make_node("DequantizeLinear", ["q", "as", "az"], ["y"], domain=MS)],
                           {"x": floats(2, 8)}, a, {"y": T.FLOAT})
    return made


def last_channels():
    """As ONNX Runtime's layout passes write 8 bits."""
    x, a, c = bytes_(np.uint8, 2, 7, 9, 6), {"as": f32(0.02), "az": np.uint8(120)}, {"cs": f32(0.05), "cz": np.uint8(128)}
    conv = {**a, "w": bytes_(np.int8, 8, 6, 3, 3), "ws": np.abs(floats(8)) / 100 + f32(0.001), "wz": np.zeros(8, np.int8), **c, "b": RNG.integers(-999, 999, 8).astype(np.int32)}
    pools = ["x", "as", "az", "cs", "cz"]
    return {
        "last_conv": one("QLinearConv", {"x": x}, conv, kind=T.UINT8, channels_last=1, pads=[1, 1, 1, 1], strides=[2, 1], kernel_shape=[3, 3]),
        "last_average": one("QLinearAveragePool", {"x": x}, {**a, **c}, order=pools, kind=T.UINT8, channels_last=1, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "last_global": one("QLinearGlobalAveragePool", {"x": x}, {**a, **c}, order=pools, kind=T.UINT8, channels_last=1),
        "last_max": one("NhwcMaxPool", {"x": x}, kind=T.UINT8, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0]),
    }


def saved(made):
    """The model as ONNX Runtime saves it after all its optimizations: convolutions in blocks of this machine's size."""
    import os
    import tempfile

    import onnx
    import onnxruntime
    options, (net, inputs) = onnxruntime.SessionOptions(), made
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = os.path.join(folder, "saved.onnx")
        onnxruntime.InferenceSession(net.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath), inputs


def blocks():
    weights = {"a": floats(20, 3, 3, 3), "b": floats(20, 1, 3, 3), "c": floats(40, 20, 1, 1) / 4, "d": floats(20), "s": np.array([1, 1, 2, 2], np.float32)}
    nodes = [h.make_node("Conv", ["x", "a", "d"], ["p"], pads=[1, 1, 1, 1], strides=[2, 2]), h.make_node("Relu", ["p"], ["q"]),
             h.make_node("Conv", ["q", "b"], ["r"], pads=[1, 1, 1, 1], group=20), h.make_node("Add", ["r", "q"], ["t"]),
             h.make_node("MaxPool", ["t"], ["u"], kernel_shape=[2, 2]), h.make_node("Conv", ["u", "c"], ["v"]),
             h.make_node("Resize", ["v", "", "s"], ["w"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
             h.make_node("GlobalAveragePool", ["w"], ["y"])]
    return {"saved_in_blocks": saved(model(nodes, {"x": floats(2, 3, 16, 12)}, weights, {"w": T.FLOAT, "y": T.FLOAT}))}


def rows():
    """Distances, hashes, rows of quantised tables, axes."""
    made, words = {}, np.array([["a", ""], ["hello world", "\u00fc\u00f1"], ["five5", "sixsix"]], object)
    for metric in ("euclidean", "sqeuclidean"):
        made["distance_" + metric] = one("CDist", {"a": floats(4, 7)}, {"b": floats(5, 7)}, metric=metric)
    for name, values in (("words", words), ("i64", RNG.integers(-9, 9, (3, 2))), ("f32", floats(3, 2))):
        made["hash_" + name] = one("MurmurHash3", {"x": values}, kind=T.INT32, positive=0, seed=42)
    ids, scales = RNG.integers(0, 20, (3, 5)), np.abs(floats(20, 3))
    made["blocks_of_bytes"] = one("GatherBlockQuantized", {"i": ids}, {"d": bytes_(np.uint8, 20, 24), "s": scales, "z": bytes_(np.uint8, 20, 2)},
                                  order=["d", "i", "s", "z"], block_size=16, bits=4)
    made["axis_expand_dims"] = one("ExpandDims", {"x": floats(3, 4)}, {"a": np.int32(1)})
    made["axis_expand_dims_computed"] = model([h.make_node("Sub", ["a", "b"], ["c"]), h.make_node("ExpandDims", ["x", "c"], ["y"], domain=MS)], {"x": floats(3, 4)},
                                              {"a": np.int32(1), "b": np.int32(2)}, {"y": T.FLOAT})
    tables = {n: bytes_(np.uint8, *dims) for n, dims in (("w", (20, 16)), ("p", (9, 16)), ("t", (2, 16)), ("g", (16,)), ("b", (16,)))}
    scaled = {n + "s": f32(0.01 * k + 0.01) for k, n in enumerate(tables)}
    zeros = {n + "z": np.uint8(110 + 5 * k) for k, n in enumerate(tables)}
    made["embed_norm_8"] = one("QEmbedLayerNormalization", {"i": ids.astype(np.int32), "k": RNG.integers(0, 2, (3, 5)).astype(np.int32), "m": np.ones((3, 5), np.int32)},
                               {**tables, **scaled, **zeros},
                               order=["i", "k", *tables, "m", *scaled, *zeros], n_outputs=2, kind=[T.FLOAT, T.INT32])
    return made


def learned():
    x = floats(3, 5)
    made = {"scaler": one("Scaler", {"x": x}, domain=ML, offset=[1.0, 2.0, 0.0, -1.0, 0.5], scale=[0.5, 1.0, 2.0, 1.0, 3.0]),
            "normalizer": one("Normalizer", {"x": x}, domain=ML, norm="L2"),
            "binarizer": one("Binarizer", {"x": x}, domain=ML, threshold=0.2),
            "regressor": one("LinearRegressor", {"x": x}, domain=ML, coefficients=list(map(float, floats(10))), intercepts=[0.5, -1.0], targets=2),
            "extract": one("ArrayFeatureExtractor", {"x": x}, {"i": np.array([3, 0], np.int64)}, domain=ML)}
    made["classifier"] = one("LinearClassifier", {"x": x}, domain=ML, n_outputs=2, kind=[T.INT64, T.FLOAT], coefficients=list(map(float, floats(15))),
                             intercepts=[0.1, 0.2, 0.3], classlabels_ints=[4, 7, 9], post_transform="SOFTMAX", multi_class=0)
    made["labels"] = one("LabelEncoder", {"x": np.array([[1], [5], [3]], np.int64)}, domain=ML, kind=T.INT64, keys_int64s=[1, 3], values_int64s=[10, 30], default_int64=-7)
    return made


def scan(name, axes, reverse, out_axis=0, out_reverse=0):
    """cumulative tanh(sum): one state, two scanned inputs, two results of each turn; reads w from around."""
    body = h.make_graph([h.make_node("MatMul", ["h", "w"], ["p"]), h.make_node("Add", ["p", "a"], ["q"]), h.make_node("Mul", ["q", "b"], ["r"]),
                         h.make_node("Tanh", ["r"], ["n"]), h.make_node("Identity", ["n"], ["o"]), h.make_node("Neg", ["q"], ["m"])], "body",
                        [h.make_value_info(n, h.make_tensor_type_proto(T.FLOAT, None)) for n in ("h", "a", "b")],
                        [h.make_value_info(n, h.make_tensor_type_proto(T.FLOAT, None)) for n in ("n", "o", "m")])
    node = h.make_node("Scan", ["h0", "x", "z"], ["last", "all", "minus"], body=body, num_scan_inputs=2, scan_input_axes=axes, scan_input_directions=[reverse, 0],
                       scan_output_axes=[out_axis, 0], scan_output_directions=[0, out_reverse])
    x = floats(2, 7, 4) if axes[0] in (1, -2) else floats(7, 2, 4)
    z = floats(7, 2, 4) if axes[1] == 0 else floats(2, 7, 4)
    return model([node], {"h0": floats(2, 4), "x": x, "z": z}, {"w": floats(4, 4)}, {"last": T.FLOAT, "all": T.FLOAT, "minus": T.FLOAT}, batch=False)


def growing(trips):
    """A list that a loop appends to, and a tensor that it makes longer."""
    state = [h.make_tensor_value_info("i", T.INT64, []), h.make_tensor_value_info("c", T.BOOL, []),
             h.make_value_info("s", h.make_sequence_type_proto(h.make_tensor_type_proto(T.FLOAT, None))), h.make_value_info("g", h.make_tensor_type_proto(T.FLOAT, None))]
    outs = [h.make_tensor_value_info("c2", T.BOOL, []), h.make_value_info("s2", h.make_sequence_type_proto(h.make_tensor_type_proto(T.FLOAT, None))),
            h.make_value_info("g2", h.make_tensor_type_proto(T.FLOAT, None)), h.make_value_info("t", h.make_tensor_type_proto(T.FLOAT, None))]
    body = h.make_graph([h.make_node("Identity", ["c"], ["c2"]), h.make_node("Cast", ["i"], ["f"], to=T.FLOAT), h.make_node("Mul", ["x", "f"], ["y"]),
                         h.make_node("SequenceInsert", ["s", "y"], ["s2"]), h.make_node("Concat", ["g", "y"], ["g2"], axis=1),
                         h.make_node("ReduceSum", ["g2"], ["t"], keepdims=0)], "body", state, outs)
    nodes = [h.make_node("SequenceEmpty", [], ["empty"]), h.make_node("Loop", ["n", "true", "empty", "x"], ["list", "long", "sums"], body=body),
             h.make_node("ConcatFromSequence", ["list"], ["stacked"], axis=1, new_axis=1), h.make_node("SequenceLength", ["list"], ["length"]),
             h.make_node("SequenceAt", ["list", "minus"], ["last"])]
    return model(nodes, {"x": floats(2, 3)}, {"n": np.array(trips, np.int64), "true": np.array(True), "minus": np.array(-1, np.int64)},
                 {"stacked": T.FLOAT, "long": T.FLOAT, "sums": T.FLOAT, "length": T.INT64, "last": T.FLOAT}, batch=False)


def sequences():
    x = floats(2, 7, 3)
    i64 = lambda v: np.array(v, np.int64)
    nodes = [h.make_node("SplitToSequence", ["x", "two"], ["s"], axis=1), h.make_node("SequenceAt", ["s", "one"], ["a"]),
             h.make_node("SequenceInsert", ["s", "x", "one"], ["s1"]), h.make_node("SequenceErase", ["s1", "zero"], ["s2"]),
             h.make_node("ConcatFromSequence", ["s2"], ["b"], axis=1), h.make_node("SplitToSequence", ["x"], ["t"], axis=2, keepdims=0),
             h.make_node("ConcatFromSequence", ["t"], ["c"], axis=0, new_axis=1), h.make_node("SplitToSequence", ["x", "parts"], ["p"], axis=1),
             h.make_node("SequenceAt", ["p", "one"], ["d"]), h.make_node("SequenceConstruct", ["a", "d"], ["q"]), h.make_node("SequenceLength", ["q"], ["n"])]
    return {"sequences": model(nodes, {"x": x}, {"two": i64(2), "one": i64(1), "zero": i64(0), "parts": i64([1, 4, 2])},
                               {"a": T.FLOAT, "b": T.FLOAT, "c": T.FLOAT, "d": T.FLOAT, "n": T.INT64}),
            "growing_3": growing(3), "growing_9": growing(9), "scan": scan("scan", [0, 0], 0), "scan_reverse": scan("r", [0, 0], 1, 0, 1),
            "scan_axes": scan("a", [1, 0], 0, 1, 0), "scan_all": scan("b", [-2, 1], 1, -1, 1)}


def written_out():
    """ONNX's own that are written out as others."""
    made, i64 = {}, lambda *v: np.array(v, np.int64)
    for name, signal, window, sides in (("plain", floats(2, 128, 1), None, 1), ("window", floats(2, 90, 1), np.hanning(25).astype(np.float32), 1),
                                        ("both_sides", floats(2, 64, 1), np.hamming(16).astype(np.float32), 0)):
        extra = {"w": window} if window is not None else {"length": np.array(32, np.int64)}
        made["stft_" + name] = model([h.make_node("STFT", ["x", "step", "w"] if window is not None else ["x", "step", "", "length"], ["y"], onesided=sides)],
                                     {"x": signal}, {"step": np.array(7, np.int64), **extra}, {"y": T.FLOAT})
    made["stft_computed_window"] = model([h.make_node("HannWindow", ["size"], ["w"]), h.make_node("Add", ["w", "small"], ["w2"]), h.make_node("STFT", ["x", "step", "w2"], ["y"])],
                                         {"x": floats(2, 90, 1), "small": floats(24) / 9}, {"size": np.array(24, np.int64), "step": np.array(7, np.int64)}, {"y": T.FLOAT}, batch=False)
    made["stft_complex"] = model([h.make_node("STFT", ["x", "step", "", "length"], ["y"], onesided=0)], {"x": floats(2, 64, 2)},
                                 {"step": np.array(5, np.int64), "length": np.array(16, np.int64)}, {"y": T.FLOAT})
    made["mel"] = model([h.make_node("MelWeightMatrix", ["n", "l", "r", "a", "b"], ["m"]), h.make_node("MatMul", ["x", "m"], ["y"])], {"x": floats(2, 7, 65)},
                        {"n": np.array(20, np.int64), "l": np.array(128, np.int64), "r": np.array(8000, np.int64), "a": f32(20), "b": f32(3900)}, {"y": T.FLOAT})
    for name, x, attrs in (("sorted", RNG.integers(-900, 900, 9000), {}), ("appearing", RNG.integers(-2500, 2500, 9000), {"sorted": 0}),
                           ("rows", RNG.integers(0, 4, (3000, 5)), {"axis": 0}), ("large", (1 << 60) + RNG.integers(0, 40, 6000), {})):
        made["unique_" + name] = model([h.make_node("Unique", ["x"], ["u", "f", "inv", "n"], **attrs)], {"x": x.astype(np.int64)}, {}, {o: T.INT64 for o in ("u", "f", "inv", "n")}, batch=False)
    for name, rows, places, image, attrs in (("plain", 2 * 4, 25, [6, 6], {}), ("strides", 3 * 4, 9, [6, 6], {"strides": [2, 2]}),
                                             ("pads", 2 * 4, 16, [6, 6], {"strides": [2, 2], "pads": [1, 1, 1, 1]}), ("dilations", 4, 16, [6, 6], {"dilations": [2, 2]})):
        made["col2im_" + name] = one("Col2Im", {"x": floats(2, rows, places)}, {"i": i64(*image), "b": i64(2, 2)}, domain="", **attrs)
        made["col2im_" + name][0].opset_import[0].version = 18
    for name, mode, size, extra in (("linear", "linear", (5, 4), {}), ("cubic", "cubic", (4, 7), {}), ("outside", "linear", (3, 5), {"exclude_outside": 1}),
                                    ("up", "cubic", (17, 20), {"exclude_outside": 1}), ("corners", "linear", (6, 5), {"coordinate_transformation_mode": "align_corners"})):
        made["antialias_" + name] = model([h.make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode, antialias=1, axes=[2, 3], **extra)], {"x": floats(2, 3, 9, 12)},
                                          {"s": i64(*size)}, {"y": T.FLOAT}, opset=18)
    mask = RNG.integers(0, 2, (3, 5)).astype(np.float32)
    made["nonzero"] = model([h.make_node("NonZero", ["m"], ["i"]), h.make_node("Transpose", ["i"], ["t"]), h.make_node("GatherND", ["x", "t"], ["y"])],
                            {"x": floats(3, 5)}, {"m": mask}, {"i": T.INT64, "y": T.FLOAT}, batch=False)
    made["nonzero_range"] = model([h.make_node("ConstantOfShape", ["n"], ["c"], value=h.make_tensor("v", T.FLOAT, [1], [1.0])), h.make_node("NonZero", ["c"], ["i"]),
                                   h.make_node("Transpose", ["i"], ["t"]), h.make_node("Squeeze", ["t", "one"], ["p"]), h.make_node("Gather", ["x", "p"], ["y"], axis=1)],
                                  {"x": floats(3, 9)}, {"n": i64(5), "one": i64(1)}, {"y": T.FLOAT})
    return made


def functions():
    """Functions of the model's own: one in another, attributes passed on and left to their defaults, a branch inside."""
    def attr_ref(node, name, outer, kind):
        a = node.attribute.add()
        a.name, a.ref_attr_name, a.type = name, outer, kind
        return node
    opsets = [h.make_opsetid("", 17), h.make_opsetid("own", 1)]
    leaky = h.make_function("own", "leaky", ["x"], ["y"], [attr_ref(h.make_node("LeakyRelu", ["x"], ["t"]), "alpha", "slope", 1), h.make_node("Add", ["t", "x"], ["y"])],
                            opsets, ["slope"])
    zero = h.make_node("Constant", [], ["zero"], value_float=0.0)
    info = lambda n: h.make_value_info(n, h.make_tensor_type_proto(T.FLOAT, None))
    branches = [h.make_graph([h.make_node(op, ["x"], [out])], "b", [], [info(out)]) for op, out in (("Neg", "n"), ("Exp", "e"))]
    choose = h.make_function("own", "choose", ["x", "extra"], ["y", "t"], [
        zero, h.make_node("ReduceSum", ["x"], ["s"], keepdims=0), h.make_node("Greater", ["s", "zero"], ["c"]),
        h.make_node("If", ["c"], ["t"], then_branch=branches[0], else_branch=branches[1]),
        attr_ref(h.make_node("leaky", ["t"], ["l"], domain="own"), "slope", "alpha", 1), h.make_node("Mul", ["l", "x"], ["y"])], opsets, ["alpha"], [])
    nodes = [h.make_node("choose", ["x"], ["a", "b"], domain="own", alpha=0.3), h.make_node("choose", ["b"], ["y", "unread"], domain="own", alpha=0.7),
             h.make_node("Add", ["a", "y"], ["z"])]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["N", 5])], [info("z"), info("b")])
    made = h.make_model(graph, functions=[leaky, choose], opset_imports=opsets)
    made.ir_version = 9
    return {"functions": (made, [floats(3, 5)])}


def decoders():
    """What exporters of language models write: rotary embedding, a past, fewer heads of keys, weights of a few bits."""
    made, b, s, n, g, d = {}, 2, 4, 4, 2, 16
    cos, sin = floats(12, d // 2), floats(12, d // 2)
    caches = {"cos": cos, "sin": sin}
    at = np.array([[0, 1, 2, 3], [3, 4, 5, 6]], np.int64)
    for name, x, extra in (("rows", floats(b, s, n * d), {"num_heads": n}), ("heads", floats(b, n, s, d), {}), ("derived", floats(b, s, n * d), {}),
                           ("pairs", floats(b, s, n * d), {"interleaved": 1})):
        made["rotary_" + name] = one("RotaryEmbedding", {"x": x, "at": at}, caches, order=["x", "at", "cos", "sin"], **extra)
    made["rotary_offset"] = one("RotaryEmbedding", {"x": floats(b, s, n * d)}, dict(caches, at=np.array([3], np.int64)), order=["x", "at", "cos", "sin"])
    made["rotary_part"] = one("RotaryEmbedding", {"x": floats(b, s, n * d), "at": at}, {"cos": floats(12, 2), "sin": floats(12, 2)}, order=["x", "at", "cos", "sin"],
                              num_heads=n, rotary_embedding_dim=4)

    def group(name, past, total, ends, packed=False, length=s, b=b, sinks=False, **attrs):
        q = {"q": floats(b, length, (n + 2 * g) * d)} if packed else {"q": floats(b, length, n * d), "k": floats(b, length, g * d), "v": floats(b, length, g * d)}
        inputs = dict(q, **({"pk": floats(b, g, past, d), "pv": floats(b, g, past, d)} if past else {}), ends=np.array(ends, np.int32))
        order = [i if i in inputs else "" for i in ("q", "k", "v", "pk", "pv", "ends")] + ["total"] + (["cos", "sin"] if "do_rotary" in attrs else [])
        extra = {"sinks": floats(n)} if sinks else {}
        order = (order + [""] * 4)[:11] + ["sinks"] if sinks else order
        made["group_" + name] = model([h.make_node("GroupQueryAttention", order, ["y", "ko", "vo"], domain=MS, num_heads=n, kv_num_heads=g, **attrs)], inputs,
                                      dict(caches, total=np.array(total, np.int32), **extra), {"y": T.FLOAT, "ko": T.FLOAT, "vo": T.FLOAT})
    def open_group(name, past, length, counts, **attrs):
        """As exporters write it: lengths of the past and of the new rows are open, the mask says how many keys there are."""
        total, info = past + length, lambda n, kind, dims: h.make_tensor_value_info(n, kind, ["N"] + dims)
        inputs = {"q": floats(b, length, n * d), "k": floats(b, length, g * d), "v": floats(b, length, g * d), "pk": floats(b, g, past, d), "pv": floats(b, g, past, d),
                  "mask": (np.arange(total) < np.array(counts)[:, None]).astype(np.int64)}
        ins = [info(i, T.FLOAT, ["L", w * d]) for i, w in (("q", n), ("k", g), ("v", g))] + [info(i, T.FLOAT, [g, "P", d]) for i in ("pk", "pv")] + [info("mask", T.INT64, ["T"])]
        nodes = [h.make_node("Shape", ["mask"], ["sizes"]), h.make_node("Gather", ["sizes", "second"], ["all"]), h.make_node("Cast", ["all"], ["total"], to=T.INT32),
                 h.make_node("ReduceSum", ["mask", "axis"], ["count"], keepdims=0), h.make_node("Sub", ["count", "second"], ["last"]), h.make_node("Cast", ["last"], ["ends"], to=T.INT32),
                 h.make_node("GroupQueryAttention", ["q", "k", "v", "pk", "pv", "ends", "total"] + (["cos", "sin"] if "do_rotary" in attrs else []), ["y", "ko", "vo"],
                             domain=MS, name="it", num_heads=n, kv_num_heads=g, **attrs)]
        constants = dict(caches, second=np.array(1, np.int64), axis=np.array([1], np.int64))
        graph = h.make_graph(nodes, "g", ins, [h.make_value_info(o, h.make_tensor_type_proto(T.FLOAT, None)) for o in ("y", "ko", "vo")],
                             [nh.from_array(a, i) for i, a in constants.items()])
        made["group_open_" + name] = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(MS, 1)]), list(inputs.values())
        made["group_open_" + name][0].ir_version = 8
    open_group("first", 0, 4, [4, 4], do_rotary=1)
    open_group("step", 5, 1, [6, 6], do_rotary=1)
    open_group("step_padded", 5, 1, [6, 4], do_rotary=1)
    open_group("window", 5, 1, [6, 5], local_window_size=3)
    group("first", 0, s, [3, 3])
    group("first_rotary", 0, s, [3, 3], do_rotary=1)
    group("packed", 0, s, [3, 3], packed=True, do_rotary=1, rotary_interleaved=1, scale=0.2)
    group("step", 5, 6, [5, 5], length=1, do_rotary=1)
    group("several", 5, 9, [8], b=1, do_rotary=1)
    group("softcap", 0, s, [3, 3], softcap=2.0)
    group("sinks", 5, 6, [5, 5], length=1, sinks=True, do_rotary=1)
    group("smooth", 0, s, [3, 3], smooth_softmax=1)
    open_group("smooth_step", 5, 1, [6, 4], do_rotary=1, smooth_softmax=1)
    group("window", 5, 6, [5, 5], length=1, local_window_size=3)
    group("window_first", 0, s, [3, 3], local_window_size=2)
    for name, k, bits, block, zeros, bias in (("plain", 64, 4, 32, None, False), ("zeros", 64, 4, 16, np.uint8, True), ("ragged", 80, 4, 32, np.uint8, False),
                                              ("float_zeros", 64, 4, 32, np.float32, False), ("eight", 64, 8, 32, np.uint8, False)):
        blocks = (k + block - 1) // block
        c = {"w": bytes_(np.uint8, 6, blocks, block * bits // 8), "s": np.abs(floats(6 * blocks)) / 8}
        order = ["x", "w", "s"]
        if zeros:
            c["z"] = floats(6 * blocks) if zeros == np.float32 else bytes_(np.uint8, 6 * ((blocks * bits + 7) // 8))
            order.append("z")
        if bias:
            c["b"], order = floats(6), order + ["", "b"]
        made["nbits_" + name] = one("MatMulNBits", {"x": floats(3, 2, k)}, c, order=order, K=k, N=6, bits=bits, block_size=block)
    # without zeros: ONNX Runtime does not read them where rows name their groups
    groups = {"w": bytes_(np.uint8, 6, 2, 16), "s": np.abs(floats(12)) / 8, "g": np.arange(64, dtype=np.int32) % 2}
    made["nbits_groups"] = one("MatMulNBits", {"x": floats(3, 2, 64)}, groups, order=["x", "w", "s", "", "g"], K=64, N=6, bits=4, block_size=32)
    for name, kind, dtype, low, high in (("int4", T.INT4, np.int8, -8, 7), ("uint4", T.UINT4, np.uint8, 0, 15), ("int8", T.INT8, np.int8, -128, 127)):
        q, zero = RNG.integers(low, high, (8, 6), endpoint=True), RNG.integers(low, high, (2, 6), endpoint=True)
        nodes = [h.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0, block_size=4), h.make_node("MatMul", ["x", "w"], ["y"])]
        made["blocks_" + name] = model(nodes, {"x": floats(3, 8)}, {"s": np.abs(floats(2, 6))}, {"y": T.FLOAT}, opset=21)
        made["blocks_" + name][0].graph.initializer.extend([h.make_tensor("q", kind, [8, 6], q.flatten()), h.make_tensor("z", kind, [2, 6], zero.flatten())])
        made["blocks_" + name][0].ir_version = 10
    return made


def experts():
    """Mixtures of experts, whole and of few bits; MatMulBnb4.

    ONNX Runtime's CPU has no third layer and no concatenated SwiGLU. Its QMoE always normalizes the routing weights, and rounds activations to 8 bits where weights
    of 8 bits lie in blocks.
    """
    made, n, hid, mid = {}, 5, 32, 16
    for name, act, k, norm, wide in (("relu", "relu", 2, 0, 1), ("gelu", "gelu", 1, 1, 1), ("silu", "silu", 3, 1, 1), ("identity", "identity", 5, 0, 1),
                                     ("swiglu", "swiglu", 2, 1, 2)):
        attrs = dict(k=k, activation_type=act, normalize_routing_weights=norm, **({"swiglu_fusion": 1, "activation_alpha": 1.7, "activation_beta": 1.0,
                                                                                  "swiglu_limit": 4.0} if wide > 1 else {}))
        inputs, biases = {"x": floats(6, hid), "p": floats(6, n)}, {"b1": floats(n, wide * mid), "b2": floats(n, hid)}
        weights = {"w1": floats(n, wide * mid, hid), "w2": floats(n, hid, mid)}
        made["moe_" + name] = one("MoE", inputs, dict(weights, **biases), order=["x", "p", "w1", "b1", "w2", "b2"], **attrs)
        for bits, block in ((4, 0), (8, 0), (4, 16)):
            q = {"w1": bytes_(np.uint8, n, wide * mid, hid * bits // 8), "w2": bytes_(np.uint8, n, hid, mid * bits // 8),
                 "s1": np.abs(floats(n, wide * mid, *([hid // block] if block else []))) / 2 ** bits,
                 "s2": np.abs(floats(n, hid, *([mid // block] if block else []))) / 2 ** bits}
            made[f"qmoe_{name}_{bits}_{block}"] = one("QMoE", inputs, dict(q, **biases), order=["x", "p", "w1", "s1", "b1", "w2", "s2", "b2"], expert_weight_bits=bits,
                                                      **dict(attrs, normalize_routing_weights=1), **({"block_size": block} if block else {}))
    for block in (0, 16):
        rows = lambda r, c: [n, r, (c // block + 1) // 2] if block else [n, (r + 1) // 2]
        q = {"w1": bytes_(np.uint8, n, mid, hid // 2), "w2": bytes_(np.uint8, n, hid, mid // 2), "z1": bytes_(np.uint8, *rows(mid, hid)), "z2": bytes_(np.uint8, *rows(hid, mid)),
             "s1": np.abs(floats(n, mid, *([hid // block] if block else []))) / 16, "s2": np.abs(floats(n, hid, *([mid // block] if block else []))) / 16}
        made[f"qmoe_zeros_{block}"] = one("QMoE", {"x": floats(6, hid), "p": floats(6, n)}, q, order=["x", "p", "w1", "s1", "", "w2", "s2"] + [""] * 4 + ["z1", "z2"], k=2, normalize_routing_weights=1,
                                          **({"block_size": block} if block else {}))
    nodes = [h.make_node("MatMul", ["x", "r"], ["each"]), h.make_node("Reshape", ["each", "flat"], ["p"]),
             h.make_node("MoE", ["x", "p", "w1", "", "w2"], ["y"], domain=MS, k=2)]
    made["moe_sequence"] = model(nodes, {"x": floats(2, 3, hid)}, {"r": floats(hid, n), "flat": np.array([-1, n], np.int64), "w1": floats(n, mid, hid),
                                                                   "w2": floats(n, hid, mid)}, {"y": T.FLOAT})
    for kind in (0, 1):
        c = {"b": bytes_(np.uint8, 48 * 6 // 2), "m": np.abs(floats(48 * 6 // 32))}
        made[f"bnb4_{kind}"] = one("MatMulBnb4", {"x": floats(3, 2, 48)}, c, K=48, N=6, block_size=32, quant_type=kind)
    return made


def newer():
    """What ONNX has since opset 23, and curves and pools with parameters."""
    made, b, s, n, g, d = {}, 2, 4, 4, 2, 16

    def new(name, opset, op, inputs, constants, outs=("y",), order=None, **attrs):
        made[name] = model([h.make_node(op, order or list(inputs) + list(constants), list(outs), name="it", **attrs)], inputs, constants, {o: T.FLOAT for o in outs}, opset=opset)
        made[name][0].ir_version = 11

    rows = {"q": floats(b, s, n * d), "k": floats(b, 6, g * d), "v": floats(b, 6, g * d)}
    heads = {"q": floats(b, n, s, d), "k": floats(b, n, s, d), "v": floats(b, n, s, 8)}
    past = {"pk": floats(b, n, 3, d), "pv": floats(b, n, 3, 8)}
    mask = RNG.integers(0, 2, (s, s)).astype(bool) | np.eye(s, dtype=bool)
    few = {"q_num_heads": n, "kv_num_heads": g}
    new("attend_rows", 23, "Attention", rows, {}, **few)
    new("attend_causal", 23, "Attention", heads, {}, is_causal=1, scale=0.3)
    new("attend_softcap", 23, "Attention", heads, {}, softcap=1.5)
    new("attend_mask", 23, "Attention", heads, {"m": mask})
    new("attend_bias", 23, "Attention", heads, {"m": floats(n, s, s)})
    new("attend_bias_rows", 23, "Attention", dict(rows, m=floats(b, 1, s, 6)), {}, **few)
    new("attend_past", 23, "Attention", dict(heads, **past), {}, ("y", "pko", "pvo"), order=["q", "k", "v", "", "pk", "pv"])
    new("attend_past_causal", 24, "Attention", dict(heads, **past), {}, ("y", "pko", "pvo"), order=["q", "k", "v", "", "pk", "pv"], is_causal=1)
    caches = {"cos": floats(12, d // 2), "sin": floats(12, d // 2)}
    at = np.array([[0, 1, 2, 3], [3, 4, 5, 6]], np.int64)
    new("turned_rows", 23, "RotaryEmbedding", {"x": floats(b, s, n * d), "at": at}, caches, order=["x", "cos", "sin", "at"], num_heads=n)
    new("turned_pairs", 23, "RotaryEmbedding", {"x": floats(b, n, s, d), "at": at}, caches, order=["x", "cos", "sin", "at"], interleaved=1)
    new("turned_part", 23, "RotaryEmbedding", {"x": floats(b, n, s, d), "cos": floats(b, s, 3), "sin": floats(b, s, 3)}, {}, rotary_embedding_dim=6)
    new("rms", 23, "RMSNormalization", {"x": floats(3, 4, 10)}, {"w": floats(10)}, epsilon=1e-4)
    new("swish", 24, "Swish", {"x": floats(3, 10)}, {}, alpha=1.3)
    for mode in ("linear", "circular"):
        new("scatter_" + mode, 24, "TensorScatter", {"x": floats(b, 2, 8, 3), "u": floats(b, 2, 4, 3), "at": np.array([1, 4 if mode == "linear" else 6], np.int64)}, {}, mode=mode)
    new("deform", 22, "DeformConv", {"x": floats(2, 4, 7, 9), "o": floats(2, 36, 4, 9), "m": floats(2, 18, 4, 9)}, {"w": floats(6, 2, 3, 3), "b": floats(6)}, order=["x", "w", "o", "b", "m"],
        group=2, offset_group=2, pads=[1, 1, 1, 1], strides=[2, 1], kernel_shape=[3, 3])
    new("deform_wide", 19, "DeformConv", {"x": floats(2, 3, 8, 8), "o": floats(2, 12, 6, 7)}, {"w": floats(5, 3, 3, 2)}, order=["x", "w", "o"], pads=[1, 0, 1, 0], dilations=[2, 1])
    new("crop_and_pad", 18, "CenterCropPad", {"x": floats(3, 7, 4)}, {"s": np.array([4, 9], np.int64)}, axes=[1, 2])
    for old in (10, 16):
        new(f"roi_max_{old}", old, "RoiAlign", {"x": floats(2, 3, 9, 12)}, {"r": f32([[0, 0, 7, 8], [2, 1, 11, 5.5], [4, 3, 4.5, 3.2]]), "i": np.array([0, 1, 0], np.int64)},
            mode="max", output_height=3, output_width=4, sampling_ratio=2, spatial_scale=0.9)
    for name, op, gates, attrs in (("lstm_hard", "LSTM", 4, {"activations": ["HardSigmoid", "Tanh", "Elu"], "activation_alpha": [0.15, 0.7], "activation_beta": [0.45]}),
                                   ("lstm_leaky", "LSTM", 4, {"activations": ["Sigmoid", "LeakyRelu", "Affine"], "activation_alpha": [0.3, 0.8], "activation_beta": [0.1]}),
                                   ("gru_scaled", "GRU", 3, {"activations": ["HardSigmoid", "ScaledTanh"], "activation_alpha": [0.25, 0.9], "activation_beta": [0.4, 0.6]}),
                                   ("rnn_threshold", "RNN", 1, {"activations": ["ThresholdedRelu"], "activation_alpha": [0.2]}),
                                   ("lstm_both", "LSTM", 4, {"direction": "bidirectional", "activations": ["HardSigmoid", "Tanh", "Tanh", "HardSigmoid", "LeakyRelu", "Tanh"],
                                                             "activation_alpha": [0.15, 0.25, 0.1], "activation_beta": [0.45, 0.55]})):
        ways = 2 if name == "lstm_both" else 1
        new("curves_" + name, 14, op, {"x": floats(5, 2, 3)}, {"w": floats(ways, gates * 6, 3), "r": floats(ways, gates * 6, 6)}, ("y", "hn"), hidden_size=6, **attrs)
    return made


def at_run():
    """Sizes that depend on data."""
    made, x = {}, floats(3, 6)
    i64 = lambda *v: np.array(v, np.int64)
    f = T.FLOAT
    made["run_nonzero"] = model([h.make_node("Relu", ["x"], ["r"]), h.make_node("NonZero", ["r"], ["i"]), h.make_node("Transpose", ["i"], ["t"]),
                                 h.make_node("GatherND", ["x", "t"], ["y"]), h.make_node("ReduceMean", ["y"], ["m"])], {"x": x}, {}, {"i": T.INT64, "y": f, "m": f}, batch=False)
    made["run_compress"] = model([h.make_node("Greater", ["x", "z"], ["c"]), h.make_node("Slice", ["c", "a", "b", "a"], ["c0"]), h.make_node("Reshape", ["c0", "flat"], ["c1"]),
                                  h.make_node("Compress", ["x", "c1"], ["y"], axis=1), h.make_node("Gemm", ["y", "y"], ["w"], transA=1)], {"x": x},
                                 {"z": np.array(0, np.float32), "a": i64(0), "b": i64(1), "flat": i64(-1)}, {"y": f, "w": f}, batch=False)
    made["run_unique"] = model([h.make_node("Unique", ["x"], ["u", "f", "inv", "n"]), h.make_node("Exp", ["u"], ["y"])], {"x": RNG.integers(0, 5, (3, 6)).astype(np.float32)}, {},
                               {"u": f, "f": T.INT64, "inv": T.INT64, "n": T.INT64, "y": f}, batch=False)
    made["run_unique_axis"] = model([h.make_node("Unique", ["x"], ["u"], axis=0)], {"x": RNG.integers(0, 2, (7, 2)).astype(np.float32)}, {}, {"u": f}, batch=False)
    made["run_topk"] = model([h.make_node("TopK", ["x", "k"], ["v", "i"]), h.make_node("Softmax", ["v"], ["s"])], {"x": x, "k": i64(4)}, {}, {"s": f, "i": T.INT64}, batch=False)
    made["run_range"] = model([h.make_node("Range", ["a", "b", "c"], ["r"]), h.make_node("Cast", ["r"], ["y"], to=1)],
                              {"a": np.array(2, np.int64), "b": np.array(17, np.int64), "c": np.array(4, np.int64)}, {}, {"y": f}, batch=False)
    made["run_resize"] = model([h.make_node("Resize", ["x", "", "", "s"], ["y"], mode="linear"), h.make_node("GlobalAveragePool", ["y"], ["p"])],
                               {"x": floats(1, 2, 5, 6), "s": i64(1, 2, 9, 4)}, {}, {"y": f, "p": f}, batch=False)
    made["run_pad_tile"] = model([h.make_node("Pad", ["x", "p"], ["y"]), h.make_node("Tile", ["y", "t"], ["z"]), h.make_node("Reshape", ["z", "r"], ["w"])],
                                 {"x": x, "p": i64(1, 0, 0, 2), "t": i64(2, 1), "r": i64(4, -1)}, {}, {"w": f}, batch=False)
    made["run_onehot"] = model([h.make_node("OneHot", ["i", "d", "v"], ["y"]), h.make_node("Transpose", ["y"], ["yt"]), h.make_node("MatMul", ["y", "yt"], ["z"])],
                               {"i": i64(1, 0, 3), "d": np.array(5, np.int64)}, {"v": np.array([0, 1], np.float32)}, {"z": f}, batch=False)
    made["run_conv"] = model([h.make_node("Slice", ["x", "a", "b", "ax"], ["c"]), h.make_node("Conv", ["c", "w", "bias"], ["y"], pads=[1, 1, 1, 1]), h.make_node("BatchNormalization", ["y", "s", "o", "m", "q"], ["n"]),
                              h.make_node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2]), h.make_node("Flatten", ["p"], ["z"])],
                             {"x": floats(1, 3, 9, 9), "a": i64(2), "b": i64(8)}, {"ax": i64(3), "w": floats(4, 3, 3, 3), "bias": floats(4), "s": floats(4), "o": floats(4), "m": floats(4),
                              "q": np.abs(floats(4))}, {"z": f}, batch=False)
    halves = floats(3, 6).astype(np.float16)
    made["run_half"] = model([h.make_node("Relu", ["x"], ["r"]), h.make_node("NonZero", ["r"], ["i"]), h.make_node("Transpose", ["i"], ["t"]), h.make_node("GatherND", ["x", "t"], ["g"]),
                              h.make_node("Cast", ["g"], ["w"], to=1), h.make_node("Sqrt", ["w"], ["q"]), h.make_node("Cast", ["q"], ["c"], to=10), h.make_node("Mul", ["c", "two"], ["y"]),
                              h.make_node("Add", ["y", "g"], ["z"])], {"x": halves}, {"two": np.array(2, np.float16)},
                             {"y": T.FLOAT16, "z": T.FLOAT16, "q": f}, batch=False)
    made["run_lstm"] = model([h.make_node("Slice", ["x", "a", "b"], ["c"]), h.make_node("LSTM", ["c", "w", "r", "bias"], ["y", "hn"], hidden_size=5), h.make_node("GRU", ["c", "w3", "r3"], ["u"], hidden_size=4)],
                             {"x": floats(9, 2, 3), "a": i64(1), "b": i64(6)}, {"w": floats(1, 20, 3), "r": floats(1, 20, 5), "bias": floats(1, 40), "w3": floats(1, 12, 3), "r3": floats(1, 12, 4)},
                             {"y": f, "hn": f, "u": f}, batch=False)
    return made


def hybrids():
    """What exporters of hybrid language models, PyTorch and TensorFlow put in ONNX Runtime's domain."""
    b, t, heads, d = 2, 3, 2, 8
    x, row = floats(b, t, heads * d), floats(b, t, heads)
    made = {"gated_add": one("GatedAdd", {"x": x, "y": floats(b, t, heads * d), "g": floats(b, t, 1)}),
            "scaled_silu": one("ScaledSiLU", {"x": x}, alpha=0.7), "scaled_silu_input": one("ScaledSiLU", {"x": x}, {"s": f32(1.3)}),
            "attention_gate": one("LinearAttentionGate", {"a": row, "b": floats(b, t, heads)}, {"bias": floats(heads), "s": -np.abs(floats(heads))},
                                  order=["a", "bias", "s", "b"], n_outputs=2),
            "unfold": one("UnfoldTensor", {"x": floats(2, 9, 4)}, dim=1, size=3, step=2), "unfold_last": one("UnfoldTensor", {"x": floats(2, 9)}, size=4),
            "inverse": one("Inverse", {"x": floats(3, 2, 4, 4)}), "inverse_one": one("Inverse", {"x": floats(5, 5)}, batch=False)}
    for name, size, attrs in (("heads", d, {}), ("whole", heads * d, {"activation": "sigmoid", "epsilon": 1e-3})):
        made["gated_norm_" + name] = one("GatedRMSNorm", {"x": x, "g": floats(b, t, heads * d)}, {"s": floats(size)}, order=["x", "s", "g"], **attrs)
    for name, scale in (("each", floats(heads * d)), ("rows", floats(heads, d)), ("all", floats(d)), ("none", None)):
        made["branch_norm_" + name] = one("BranchwiseRMSNorm", {"x": x}, {} if scale is None else {"s": scale}, num_branches=heads)
    made["branch_norm_grouped"] = one("BranchwiseRMSNorm", {"x": floats(b, t, heads, d)}, {"s": floats(heads, d)}, epsilon=1e-2)
    for size in (1, 2, 3):
        ids = np.array([[1, 2, 3, 1, 2, 4, 1, 2], [5, 5, 6, 5, 6, 5, 5, 6]], np.int64)
        made[f"ngram_{size}"] = one("NGramRepeatBlock", {"i": ids, "s": floats(2, 10)}, ngram_size=size)
    made["ngram_short"] = one("NGramRepeatBlock", {"i": ids[:, :2], "s": floats(2, 10)}, ngram_size=4)
    boxes = f32([[0.1, 0.2, 0.9, 0.8], [-0.3, 0.1, 0.6, 1.4], [0.9, 0.7, 0.2, 0.1]])
    for mode in ("bilinear", "nearest"):
        made["crops_" + mode] = one("CropAndResize", {"x": floats(2, 3, 7, 9), "b": boxes, "i": np.array([1, 0, 1], np.int32)}, {"c": np.array([4, 5], np.int32)},
                                    batch=False, mode=mode, extrapolation_value=0.5)
    made["crops_one"] = one("CropAndResize", {"x": floats(2, 3, 7, 9), "b": boxes, "i": np.array([1, 0, 1], np.int32)}, {"c": np.array([1, 1], np.int32)}, batch=False)
    made["padded_transpose"] = one("ConvTransposeWithDynamicPads", {"x": floats(2, 3, 5, 6)}, {"w": floats(3, 4, 3, 3), "p": np.array([1, 0, 1, 1]), "b": floats(4)},
                                   order=["x", "w", "p", "b"], strides=[2, 2])
    made["matmul_integer16"] = one("MatMulInteger16", {"a": RNG.integers(-300, 300, (2, 3, 5)).astype(np.int16)}, {"b": RNG.integers(-300, 300, (5, 4)).astype(np.int16)},
                                   kind=T.INT32)
    made["ms_causal_conv"] = one("CausalConvWithState", {"x": floats(b, 4, 6), "past": floats(b, 4, 2)}, {"w": floats(4, 1, 3), "c": floats(4)},
                                 order=["x", "w", "c", "past"], n_outputs=2, activation="silu")
    key = floats(b, t, heads * d)
    made["ms_linear_attention"] = one("LinearAttention", {"q": floats(b, t, 2 * heads * d), "k": key / np.linalg.norm(key), "v": floats(b, t, heads * 5),
                                                          "s": floats(b, heads, d, 5), "g": -np.abs(floats(b, t, heads)), "e": np.abs(floats(b, t, heads)) / 2},
                                      n_outputs=2, q_num_heads=2 * heads, kv_num_heads=heads)
    half = d // 2
    cache = {"c": np.cos(floats(9, half)), "s": np.sin(floats(9, half))}
    at = RNG.integers(0, 9, (3, b, t))
    for name, shape, attrs in (("rows", (b, t, heads * d), {"num_heads": heads}), ("heads", (b, heads, t, d), {}), ("mixed", (b, heads, t, d), {"mrope_layout": 1}),
                               ("pairs", (b, heads, t, d), {"interleaved": 1})):
        made["mrotary_" + name] = one("MRotaryEmbedding", {"x": floats(*shape), "p": at}, cache, batch=False, mrope_section=[2, 1, 1], **attrs)
    return made


def models():
    made = {}
    for family in (hybrids, written_out, functions, activations, products, norms, attentions, decoders, experts, newer, at_run, quantized, last_channels, blocks, rows, learned,
                   sequences):
        made.update({f"op_{n}": lambda v=v: v for n, v in family().items()})
    return made
