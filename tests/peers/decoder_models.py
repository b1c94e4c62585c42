"""Decoders with past keys and values as exporters write them, with random weights: GPT-2's plan and Llama's, attention written out, as onnxruntime-genai's
GroupQueryAttention ("genai") or as ONNX's own Attention of opset 23 ("attention").

Inputs input_ids, attention_mask, position_ids, past_key_values.I.key and .value [batch, heads, past, width]; outputs logits and
present.I.key and .value, the past with the new positions behind it.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper

OPSET = 17
FAR = -3.0e38  # what a masked score becomes; its exponential is 0


class Builder:
    """Nodes and weights of a graph, one result a node."""

    def __init__(self, seed):
        self.nodes, self.weights, self.names = [], [], 0
        self.random = np.random.default_rng(seed)
        self.known = {}

    def op(self, kind, *inputs, n=1, **attributes):
        self.names += 1
        outs = [f"{kind}_{self.names}_{i}" for i in range(n)]
        self.nodes.append(helper.make_node(kind, list(inputs), outs, **attributes))
        return outs[0] if n == 1 else outs

    def put(self, array, name=None):
        array = np.asarray(array)
        key = (str(array.dtype), array.shape, array.tobytes()) if array.size < 16 else None
        if key in self.known:
            return self.known[key]
        self.names += 1
        name = name or f"w_{self.names}"
        self.weights.append(onnx.numpy_helper.from_array(array, name))
        if key:
            self.known[key] = name
        return name

    def ints(self, *values):
        return self.put(np.array(values, np.int64))

    def scalar(self, value):
        return self.put(np.array(value, np.float32))

    def normal(self, *shape, scale=0.02, mean=0.0):
        return self.put((mean + scale * self.random.standard_normal(shape)).astype(np.float32))

    def size(self, x, axis):
        return self.op("Gather", self.op("Shape", x), self.put(np.array(axis, np.int64)), axis=0)


def layer_norm(b, x, hidden):
    return b.op("LayerNormalization", x, b.normal(hidden, mean=1.0), b.normal(hidden), epsilon=1e-5)


def rms_norm(b, x, hidden):
    square = b.op("Pow", x, b.scalar(2.0))
    mean = b.op("Div", b.op("ReduceSum", square, b.ints(-1), keepdims=1), b.scalar(float(hidden)))
    root = b.op("Sqrt", b.op("Add", mean, b.scalar(1e-5)))
    return b.op("Mul", b.op("Div", x, root), b.normal(hidden, mean=1.0))


def unsqueezed(b, x, axis):
    return b.op("Unsqueeze", x, b.ints(axis))


def shape_of(b, *dims):
    """A shape tensor from sizes (names of scalars) and numbers."""
    parts = [unsqueezed(b, d, 0) if isinstance(d, str) else b.ints(d) for d in dims]
    return b.op("Concat", *parts, axis=0)


def mask_of(b, ids, attention_mask, past):
    """[batch, 1, seq, total]: 0 where a position is seen, FAR where not: causal, and what attention_mask has as 0."""
    seq, total = b.size(ids, 1), b.op("Add", b.size(past, 2), b.size(ids, 1))
    rows = b.op("Range", b.op("Sub", total, seq), total, b.put(np.array(1, np.int64)))
    columns = b.op("Range", b.put(np.array(0, np.int64)), total, b.put(np.array(1, np.int64)))
    seen = b.op("LessOrEqual", unsqueezed(b, columns, 0), unsqueezed(b, rows, 1))
    kept = b.op("Cast", unsqueezed(b, attention_mask, 1), to=TensorProto.BOOL)
    both = b.op("And", unsqueezed(b, kept, 1), seen)
    return b.op("Where", both, b.scalar(0.0), b.scalar(FAR))


def attend(b, q, k, v, mask, width):
    scores = b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = b.op("Mul", scores, b.scalar(1 / np.sqrt(width)))
    weights = b.op("Softmax", b.op("Add", scores, mask), axis=-1)
    return b.op("MatMul", weights, v)


def heads_of(b, x, batch, seq, heads, width):
    return b.op("Transpose", b.op("Reshape", x, shape_of(b, batch, seq, heads, width)),
                perm=[0, 2, 1, 3])


def merged(b, x, batch, seq, hidden):
    return b.op("Reshape", b.op("Transpose", x, perm=[0, 2, 1, 3]), shape_of(b, batch, seq, hidden))


def cached(b, layer, key, value):
    k = f"present.{layer}.key"
    v = f"present.{layer}.value"
    b.nodes.append(helper.make_node("Concat", [f"past_key_values.{layer}.key", key], [k], axis=2))
    b.nodes.append(helper.make_node("Concat", [f"past_key_values.{layer}.value", value], [v], axis=2))
    return k, v


def gelu(b, x):
    cube = b.op("Mul", b.scalar(0.044715), b.op("Pow", x, b.scalar(3.0)))
    inner = b.op("Mul", b.op("Add", x, cube), b.scalar(0.7978845608))
    return b.op("Mul", b.op("Mul", x, b.scalar(0.5)),
                b.op("Add", b.op("Tanh", inner), b.scalar(1.0)))


def conv1d(b, x, batch, seq, n_in, n_out):
    """transformers' Conv1D: rows flattened, one Gemm."""
    flat = b.op("Reshape", x, b.ints(-1, n_in))
    y = b.op("Gemm", flat, b.normal(n_in, n_out), b.normal(n_out))
    return b.op("Reshape", y, shape_of(b, batch, seq, n_out))


def gpt2_layer(b, x, i, d, batch, seq, mask):
    hidden, heads = d["hidden"], d["heads"]
    width = hidden // heads
    qkv = conv1d(b, layer_norm(b, x, hidden), batch, seq, hidden, 3 * hidden)
    q, k, v = (heads_of(b, t, batch, seq, heads, width)
               for t in b.op("Split", qkv, b.ints(hidden, hidden, hidden), n=3, axis=2))
    k, v = cached(b, i, k, v)
    y = merged(b, attend(b, q, k, v, mask, width), batch, seq, hidden)
    x = b.op("Add", conv1d(b, y, batch, seq, hidden, hidden), x)
    y = conv1d(b, layer_norm(b, x, hidden), batch, seq, hidden, 4 * hidden)
    return b.op("Add", x, conv1d(b, gelu(b, y), batch, seq, 4 * hidden, hidden))


def rotated(b, x, cos, sin, width):
    half = width // 2
    low = b.op("Slice", x, b.ints(0), b.ints(half), b.ints(3))
    high = b.op("Slice", x, b.ints(half), b.ints(2**63 - 1), b.ints(3))
    turned = b.op("Concat", b.op("Neg", high), low, axis=-1)
    return b.op("Add", b.op("Mul", x, cos), b.op("Mul", turned, sin))


def repeated(b, x, batch, groups, times, width):
    """Each key head serves `times` query heads."""
    if times == 1:
        return x
    total = b.size(x, 2)
    wide = b.op("Expand", unsqueezed(b, x, 2), shape_of(b, batch, groups, times, total, width))
    return b.op("Reshape", wide, shape_of(b, batch, groups * times, total, width))


def llama_layer(b, x, i, d, batch, seq, mask, turn):
    hidden, heads, groups = d["hidden"], d["heads"], d["groups"]
    width = hidden // heads
    y = rms_norm(b, x, hidden)
    q = heads_of(b, b.op("MatMul", y, b.normal(hidden, hidden)), batch, seq, heads, width)
    k = heads_of(b, b.op("MatMul", y, b.normal(hidden, groups * width)), batch, seq, groups, width)
    v = heads_of(b, b.op("MatMul", y, b.normal(hidden, groups * width)), batch, seq, groups, width)
    k, v = cached(b, i, rotated(b, k, *turn, width), v)
    k, v = (repeated(b, t, batch, groups, heads // groups, width) for t in (k, v))
    y = merged(b, attend(b, rotated(b, q, *turn, width), k, v, mask, width), batch, seq, hidden)
    x = b.op("Add", x, b.op("MatMul", y, b.normal(hidden, hidden)))
    y = rms_norm(b, x, hidden)
    gate = b.op("MatMul", y, b.normal(hidden, d["inner"]))
    gate = b.op("Mul", gate, b.op("Sigmoid", gate))
    y = b.op("Mul", gate, b.op("MatMul", y, b.normal(hidden, d["inner"])))
    return b.op("Add", x, b.op("MatMul", y, b.normal(d["inner"], hidden)))


def node(b, kind, inputs, outputs, **attributes):
    b.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
    return outputs[0]


def grouped(b, i, d, q, k, v, lengths, tables):
    """com.microsoft.GroupQueryAttention: rotation and cache are its own."""
    b.names += 1
    past = [f"past_key_values.{i}.{part}" for part in ("key", "value")]
    outs = [f"grouped_{b.names}", f"present.{i}.key", f"present.{i}.value"]
    return node(b, "GroupQueryAttention", [q, k, v, *past, *lengths, *tables], outs, domain="com.microsoft", num_heads=d["heads"],
                kv_num_heads=d["groups"], do_rotary=1)


def attention(b, i, d, q, k, v):
    """ONNX's Attention of opset 23, causal."""
    b.names += 1
    past = [f"past_key_values.{i}.{part}" for part in ("key", "value")]
    outs = [f"attention_{b.names}", f"present.{i}.key", f"present.{i}.value"]
    return node(b, "Attention", [q, k, v, "", *past], outs, q_num_heads=d["heads"], kv_num_heads=d["groups"], is_causal=1)


def fused_layer(b, x, i, d, attend_with):
    """Llama's layer around one node of attention."""
    hidden, width = d["hidden"], d["hidden"] // d["heads"]
    y = rms_norm(b, x, hidden)
    q, k, v = (b.op("MatMul", y, b.normal(hidden, n)) for n in (hidden, d["groups"] * width, d["groups"] * width))
    x = b.op("Add", x, b.op("MatMul", attend_with(q, k, v), b.normal(hidden, hidden)))
    y = rms_norm(b, x, hidden)
    gate = b.op("MatMul", y, b.normal(hidden, d["inner"]))
    gate = b.op("Mul", gate, b.op("Sigmoid", gate))
    y = b.op("Mul", gate, b.op("MatMul", y, b.normal(hidden, d["inner"])))
    return b.op("Add", x, b.op("MatMul", y, b.normal(d["inner"], hidden)))


def fused_layers(b, x, d, positions):
    width = d["hidden"] // d["heads"]
    angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    if d["name"] == "genai":
        sums = b.op("ReduceSum", "attention_mask", b.ints(1), keepdims=0)
        seqlens = b.op("Cast", b.op("Sub", sums, b.put(np.array([1], np.int64))), to=TensorProto.INT32)
        total = b.op("Cast", b.size("attention_mask", 1), to=TensorProto.INT32)
        tables = [b.put(table(angles).astype(np.float32)) for table in (np.cos, np.sin)]
    for i in range(d["layers"]):
        x = fused_layer(b, x, i, d, (lambda q, k, v, i=i: grouped(b, i, d, q, k, v, [seqlens, total], tables)) if d["name"] == "genai"
                        else (lambda q, k, v, i=i: attention(b, i, d, q, k, v)))
    return x


def rotary(b, position_ids, width):
    rates = 10000.0 ** (-np.arange(0, width, 2, dtype=np.float32) / width)
    at = b.op("Cast", unsqueezed(b, position_ids, 2), to=TensorProto.FLOAT)
    angles = b.op("Mul", at, b.put(rates.reshape(1, 1, -1)))
    angles = unsqueezed(b, b.op("Concat", angles, angles, axis=-1), 1)
    return b.op("Cos", angles), b.op("Sin", angles)


def port(name, kind, *dims):
    return helper.make_tensor_value_info(name, kind, list(dims))


def finished(b, d, x, logits):
    b.nodes[-1].output[0] = logits
    heads, width = d["groups"], d["hidden"] // d["heads"]
    ins = [port("input_ids", TensorProto.INT64, "batch", "seq"),
           port("attention_mask", TensorProto.INT64, "batch", "past + seq"),
           port("position_ids", TensorProto.INT64, "batch", "seq")]
    if d["name"] == "genai":
        ins.pop(2)
    if d["name"] == "attention":
        ins[1:] = []
    outs = [port(logits, TensorProto.FLOAT, "batch", "seq", d["vocabulary"])]
    for i in range(d["layers"]):
        for part in ("key", "value"):
            ins.append(port(f"past_key_values.{i}.{part}", TensorProto.FLOAT,
                            "batch", heads, "past", width))
            outs.append(port(f"present.{i}.{part}", TensorProto.FLOAT,
                             "batch", heads, "past + seq", width))
    graph = helper.make_graph(b.nodes, d["name"], ins, outs, b.weights)
    opsets = [helper.make_opsetid("", 23 if d["name"] == "attention" else OPSET)]
    if d["name"] == "genai":
        opsets.append(helper.make_opsetid("com.microsoft", 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def decoder(kind, layers=2, hidden=64, heads=4, groups=None, inner=None, vocabulary=101,
            positions=256, seed=1):
    """kind: "gpt2", "llama", "genai" or "attention"; groups: heads of keys and values."""
    d = dict(name=kind, layers=layers, hidden=hidden, heads=heads, groups=groups or heads,
             inner=inner or 2 * hidden, vocabulary=vocabulary)
    b = Builder(seed)
    table = b.normal(vocabulary, hidden)
    if kind in ("genai", "attention"):
        x = rms_norm(b, fused_layers(b, b.op("Gather", table, "input_ids"), d, positions), hidden)
        b.op("MatMul", x, b.op("Transpose", table, perm=[1, 0]))
        return finished(b, d, x, "logits")
    batch, seq = b.size("input_ids", 0), b.size("input_ids", 1)
    mask = mask_of(b, "input_ids", "attention_mask", "past_key_values.0.key")
    x = b.op("Gather", table, "input_ids")
    if kind == "gpt2":
        x = b.op("Add", x, b.op("Gather", b.normal(positions, hidden), "position_ids"))
    turn = rotary(b, "position_ids", hidden // heads) if kind == "llama" else None
    for i in range(layers):
        x = gpt2_layer(b, x, i, d, batch, seq, mask) if kind == "gpt2" else \
            llama_layer(b, x, i, d, batch, seq, mask, turn)
    x = layer_norm(b, x, hidden) if kind == "gpt2" else rms_norm(b, x, hidden)
    b.op("MatMul", x, b.op("Transpose", table, perm=[1, 0]))
    return finished(b, d, x, "logits")


def gpt2_small(seed=1):
    return decoder("gpt2", layers=12, hidden=768, heads=12, vocabulary=50257, positions=1024,
                   seed=seed)
