"""Models as other tools write them: scikit-learn's exporter, ONNX Runtime's optimizer and quantizer, Keras, PaddlePaddle. A tool that is not
installed is left out. name -> function that gives (model, inputs)."""
import os
import tempfile

import numpy as np
import onnx

RNG = np.random.default_rng(3)


def floats(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


# ---- scikit-learn -------------------------------------------------------------------------------


def learned(kind, **options):
    from skl2onnx import to_onnx
    from sklearn import neural_network, pipeline, preprocessing
    x, target = floats(80, 6), RNG.integers(0, 3, 80)
    net = {"classifier": neural_network.MLPClassifier((12, 8), max_iter=20), "binary": neural_network.MLPClassifier((7,), max_iter=20),
           "regressor": neural_network.MLPRegressor(hidden_layer_sizes=(9, 5), activation="tanh", max_iter=20),
           "logistic": neural_network.MLPClassifier((6,), activation="logistic", max_iter=20)}[kind]
    target = target > 0 if kind == "binary" else floats(80, 2) if kind == "regressor" else target
    made = pipeline.make_pipeline(preprocessing.StandardScaler(), net).fit(x, target.astype(np.int64) if kind == "binary" else target)
    zipped = {} if kind == "regressor" else {"options": {"zipmap": False}}
    return to_onnx(made, x[:1], target_opset=17, **zipped), [x[:4]]


# ---- networks for the optimizer and the quantizer -------------------------------------------------


def constant(name, array):
    return onnx.numpy_helper.from_array(array, name)


def build(nodes, weights, inputs, outputs, opset=17):
    h, kinds = onnx.helper, {np.dtype(np.float32): 1, np.dtype(np.int64): 7}
    ins = [h.make_tensor_value_info(n, kinds[a.dtype], ["N"] + list(a.shape[1:])) for n, a in inputs.items()]
    graph = h.make_graph(nodes, "net", ins, [h.make_value_info(o, h.make_tensor_type_proto(1, None)) for o in outputs],
                         [constant(n, a) for n, a in weights.items()])
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)])
    made.ir_version = 8
    return made


def convolutional():
    """Residual blocks with the activations, pools and joins that the quantizer has operators for."""
    n, w, x = onnx.helper.make_node, {}, {"x": floats(2, 3, 24, 24)}
    nodes = []

    def conv(i, o, a, c, k=3, **attrs):
        w[f"w{o}"], w[f"b{o}"] = floats(c, a, k, k) / (k * np.sqrt(a).astype(np.float32)), floats(c) / 4
        nodes.append(n("Conv", [i, f"w{o}", f"b{o}"], [o], name=o, pads=[k // 2] * 4, **attrs))
    conv("x", "c1", 3, 8)
    nodes.append(n("Relu", ["c1"], ["r1"], name="r1"))
    nodes.append(n("MaxPool", ["r1"], ["p1"], name="p1", kernel_shape=[2, 2], strides=[2, 2]))
    conv("p1", "c2", 8, 8)
    nodes.append(n("Add", ["c2", "p1"], ["s"], name="s"))
    nodes.append(n("LeakyRelu", ["s"], ["l"], name="l", alpha=0.1))
    conv("l", "c3", 8, 8, 1)
    nodes.append(n("Sigmoid", ["c3"], ["g"], name="g"))
    nodes.append(n("Mul", ["g", "l"], ["m"], name="m"))
    conv("m", "c4", 8, 16, strides=[2, 2])
    nodes.append(n("Clip", ["c4", "zero", "six"], ["k"], name="k"))
    conv("k", "c5", 16, 8, 1)
    nodes.append(n("AveragePool", ["k"], ["a"], name="a", kernel_shape=[3, 3], pads=[1] * 4))
    nodes.append(n("Concat", ["c5", "a"], ["j"], name="j", axis=1))
    nodes.append(n("GlobalAveragePool", ["j"], ["v"], name="v"))
    nodes.append(n("Flatten", ["v"], ["f"], name="f"))
    w.update(zero=np.array(0, np.float32), six=np.array(6, np.float32), wl=floats(10, 24) / 4, bl=floats(10))
    nodes.append(n("Gemm", ["f", "wl", "bl"], ["y"], name="y", transB=1))
    return build(nodes, w, x, ["y"]), x


def transformer(blocks=2, hidden=32, heads=4, length=7):
    """Blocks as PyTorch's exporter writes them for BERT, so that the optimizer's patterns match."""
    n, w, nodes = onnx.helper.make_node, {}, []
    ids, mask = RNG.integers(0, 50, (2, length)), np.array([[1] * length, [1] * 4 + [0] * (length - 4)], np.int64)
    i64 = lambda *v: np.array(v, np.int64)
    w.update(words=floats(50, hidden), places=floats(length, hidden), one=np.array(1, np.float32), low=np.array(-10000, np.float32), ax=i64(1, 2),
             split=i64(0, 0, heads, hidden // heads), join=i64(0, 0, hidden), root=np.array((hidden // heads) ** .5, np.float32), two=np.array(2, np.float32),
             half=np.array(.5, np.float32), r2=np.array(2 ** .5, np.float32), eps=np.array(1e-12, np.float32))
    nodes += [n("Gather", ["words", "ids"], ["e0"]), n("Add", ["e0", "places"], ["e1"]), n("Unsqueeze", ["mask", "ax"], ["m1"]), n("Cast", ["m1"], ["m2"], to=1),
              n("Sub", ["one", "m2"], ["m3"]), n("Mul", ["m3", "low"], ["bias"])]

    def norm(x, out):
        w["g" + out], w["b" + out] = 1 + floats(hidden) / 8, floats(hidden) / 8
        o = lambda s: out + s
        nodes.extend([n("ReduceMean", [x], [o("m")], axes=[-1]), n("Sub", [x, o("m")], [o("d")]), n("Pow", [o("d"), "two"], [o("q")]),
                      n("ReduceMean", [o("q")], [o("v")], axes=[-1]), n("Add", [o("v"), "eps"], [o("e")]), n("Sqrt", [o("e")], [o("s")]),
                      n("Div", [o("d"), o("s")], [o("n")]), n("Mul", [o("n"), "g" + out], [o("w")]), n("Add", [o("w"), "b" + out], [out])])

    def dense(x, out, i, o):
        w["w" + out], w["c" + out] = floats(i, o) / np.sqrt(i).astype(np.float32), floats(o) / 8
        nodes.extend([n("MatMul", [x, "w" + out], [out + "p"], name=out + "_matmul"), n("Add", ["c" + out, out + "p"], [out])])
    norm("e1", "h0")
    for k in range(blocks):
        x, p = f"h{k}", f"l{k}"
        for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            dense(x, p + name, hidden, hidden)
            nodes.extend([n("Reshape", [p + name, "split"], [p + name + "r"]), n("Transpose", [p + name + "r"], [p + name + "t"], perm=perm)])
        nodes += [n("MatMul", [p + "qt", p + "kt"], [p + "s"]), n("Div", [p + "s", "root"], [p + "sc"]), n("Add", [p + "sc", "bias"], [p + "sm"]),
                  n("Softmax", [p + "sm"], [p + "so"], axis=-1), n("MatMul", [p + "so", p + "vt"], [p + "a"]), n("Transpose", [p + "a"], [p + "at"], perm=[0, 2, 1, 3]),
                  n("Reshape", [p + "at", "join"], [p + "aj"])]
        dense(p + "aj", p + "o", hidden, hidden)
        nodes.append(n("Add", [p + "o", x], [p + "r1"]))
        norm(p + "r1", p + "n1")
        dense(p + "n1", p + "f", hidden, 48)
        nodes += [n("Div", [p + "f", "r2"], [p + "g1"]), n("Erf", [p + "g1"], [p + "g2"]), n("Add", [p + "g2", "one"], [p + "g3"]), n("Mul", [p + "f", p + "g3"], [p + "g4"]),
                  n("Mul", [p + "g4", "half"], [p + "g"])]
        dense(p + "g", p + "u", 48, hidden)
        nodes.append(n("Add", [p + "u", p + "n1"], [p + "r2"]))
        norm(p + "r2", f"h{k + 1}")
    x = {"ids": ids, "mask": mask}
    return build(nodes, w, x, [f"h{blocks}"], 13), x


def recurrent():
    n, x = onnx.helper.make_node, {"x": floats(2, 5, 12)}
    w = {"w": floats(2, 64, 12) / 4, "r": floats(2, 64, 16) / 4, "b": floats(2, 128) / 4, "d": floats(32, 6), "s": np.array([0, 0, -1], np.int64)}
    nodes = [n("Transpose", ["x"], ["t"], perm=[1, 0, 2]), n("LSTM", ["t", "w", "r", "b"], ["o"], hidden_size=16, direction="bidirectional"),
             n("Transpose", ["o"], ["u"], perm=[2, 0, 1, 3]), n("Reshape", ["u", "s"], ["v"]), n("MatMul", ["v", "d"], ["y"])]
    return build(nodes, w, x, ["y"]), x


NETS = {"cnn": convolutional, "bert": transformer, "lstm": recurrent}

# ---- ONNX Runtime ---------------------------------------------------------------------------------


def in_folder(work, made):
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "in.onnx"), os.path.join(folder, "out.onnx")
        onnx.save(made, source)
        work(source, target)
        return onnx.load(target)


def optimized(net, level):
    import onnxruntime as ort

    def work(source, target):
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.optimized_model_filepath, options.log_severity_level = target, 4
        ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    made, inputs = NETS[net]()
    return in_folder(work, made), list(inputs.values())


def fused(net):
    from onnxruntime.transformers import optimizer

    def work(source, target):
        optimizer.optimize_model(source, "bert", num_heads=4, hidden_size=32, opt_level=0).save_model_to_file(target)
    made, inputs = NETS[net]()
    return in_folder(work, made), list(inputs.values())


def quantized_static(net, form, per_channel, weights="QInt8", inputs_as="QUInt8"):
    from onnxruntime import quantization as q
    made, inputs = NETS[net]()

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.left = [inputs]

        def get_next(self):
            return self.left.pop() if self.left else None

    def work(source, target):
        q.quantize_static(source, target, Reader(), quant_format=getattr(q.QuantFormat, form), per_channel=per_channel,
                          weight_type=getattr(q.QuantType, weights), activation_type=getattr(q.QuantType, inputs_as))
    return in_folder(work, made), list(inputs.values())


def quantized_dynamic(net, weights):
    from onnxruntime import quantization as q
    made, inputs = NETS[net]()
    return in_folder(lambda source, target: q.quantize_dynamic(source, target, weight_type=getattr(q.QuantType, weights)), made), list(inputs.values())


# ---- Keras ----------------------------------------------------------------------------------------


def keras(kind, opset):
    import tensorflow as tf
    import tf2onnx
    layers, seq = tf.keras.layers, tf.keras.Sequential
    tf.keras.utils.set_random_seed(1)
    act = lambda name: layers.Activation(name)
    net, shape = {
        "dense": lambda: (seq([layers.Dense(16, "relu"), layers.BatchNormalization(), layers.Dropout(.5), layers.Dense(5, "softmax")]), (12,)),
        "conv": lambda: (seq([layers.Conv2D(8, 3, padding="same", activation="relu"), layers.BatchNormalization(), layers.MaxPooling2D(),
                              layers.SeparableConv2D(12, 3, strides=2, padding="same"), act("swish"), layers.DepthwiseConv2D(3), layers.GlobalAveragePooling2D(),
                              layers.Dense(4)]), (21, 21, 3)),
        "up": lambda: (seq([layers.Conv2DTranspose(6, 3, 2, "same"), layers.LeakyReLU(), layers.UpSampling2D(2, interpolation="bilinear"),
                            layers.ZeroPadding2D(1), layers.Cropping2D(((1, 0), (0, 2))), layers.Conv2D(2, 3)]), (6, 6, 4)),
        "lstm": lambda: (seq([layers.Bidirectional(layers.LSTM(8, return_sequences=True)), layers.LSTM(6), layers.Dense(3)]), (7, 5)),
        "gru": lambda: (seq([layers.GRU(8, return_sequences=True), layers.GRU(6, reset_after=False), layers.Dense(3)]), (7, 5)),
        "conv1d": lambda: (seq([layers.Conv1D(8, 3, padding="causal", activation="elu"), layers.AveragePooling1D(), layers.LayerNormalization(), layers.Flatten(),
                                layers.Dense(3)]), (16, 4)),
        "mobilenet": lambda: (tf.keras.applications.MobileNetV2((64, 64, 3), weights=None, classes=10, alpha=.35), (64, 64, 3)),
        "efficientnet": lambda: (tf.keras.applications.EfficientNetB0(weights=None, input_shape=(64, 64, 3), classes=10), (64, 64, 3)),
        "resnet": lambda: (tf.keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10), (64, 64, 3)),
    }[kind]()
    net.build((None,) + shape) if not net.built else None
    call = tf.function(lambda x: net(x, training=False), input_signature=[tf.TensorSpec((None,) + shape, tf.float32, name="x")])
    made, _ = tf2onnx.convert.from_function(call, input_signature=call.input_signature, opset=opset)
    return made, [floats(2, *shape)]


# ---- PaddlePaddle ---------------------------------------------------------------------------------


def paddle(kind, opset):
    import paddle as p
    import paddle2onnx
    nn = p.nn
    p.seed(1)

    class Recurrent(nn.Layer):
        def __init__(self):
            super().__init__()
            self.rnn, self.last = nn.LSTM(6, 8, direction="bidirect"), nn.Linear(16, 3)

        def forward(self, x):
            return self.last(self.rnn(x)[0])
    net, shape = {
        "dense": lambda: (nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 5), nn.Softmax()), (12,)),
        "conv": lambda: (nn.Sequential(nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8), nn.Hardswish(), nn.MaxPool2D(2), nn.Conv2D(8, 8, 3, groups=8), nn.Swish(),
                                       nn.Upsample(size=[16, 16], mode="bilinear"), nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(8, 4)), (3, 20, 20)),
        "transformer": lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu"), 2), (6, 16)),
        "lstm": lambda: (Recurrent(), (7, 6)),
        "mobilenet": lambda: (p.vision.models.mobilenet_v3_small(), (3, 64, 64)),
        "resnet": lambda: (p.vision.models.resnet18(), (3, 64, 64)),
    }[kind]()
    net.eval()
    with tempfile.TemporaryDirectory() as folder:
        p.jit.save(net, folder + "/net", input_spec=[p.static.InputSpec([None, *shape], "float32", "x")])
        paddle2onnx.export(folder + "/net.json", folder + "/net.pdiparams", folder + "/net.onnx", opset_version=opset, optimize_tool="None")
        return onnx.load(folder + "/net.onnx"), [floats(2, *shape)]


# ---- all ------------------------------------------------------------------------------------------


def has(package):
    import importlib.util
    return importlib.util.find_spec(package) is not None


def models():
    made = {}
    if has("skl2onnx"):
        made.update({f"skl_{k}": lambda k=k: learned(k) for k in ("classifier", "binary", "regressor", "logistic")})
    for net in NETS:
        for level in ("BASIC", "EXTENDED"):
            made[f"ort_{level.lower()}_{net}"] = lambda net=net, level=level: optimized(net, "ORT_ENABLE_" + level)
        for weights in ("QInt8", "QUInt8"):
            made[f"quant_dynamic_{weights.lower()}_{net}"] = lambda net=net, weights=weights: quantized_dynamic(net, weights)
        for form in ("QDQ", "QOperator"):
            made[f"quant_{form.lower()}_{net}"] = lambda net=net, form=form: quantized_static(net, form, False)
            made[f"quant_{form.lower()}_channels_{net}"] = lambda net=net, form=form: quantized_static(net, form, True)
        made[f"quant_qdq_signed_{net}"] = lambda net=net: quantized_static(net, "QDQ", False, inputs_as="QInt8")
    made["ort_fused_bert"] = lambda: fused("bert")
    if has("tf2onnx"):
        for i, kind in enumerate(("dense", "conv", "up", "lstm", "gru", "conv1d", "mobilenet", "efficientnet", "resnet")):
            made[f"keras_{kind}"] = lambda kind=kind, i=i: keras(kind, (13, 15, 17)[i % 3])
    if has("paddle2onnx"):
        for i, kind in enumerate(("dense", "conv", "transformer", "lstm", "mobilenet", "resnet")):
            made[f"paddle_{kind}"] = lambda kind=kind, i=i: paddle(kind, (11, 13, 16)[i % 3])
    return made
