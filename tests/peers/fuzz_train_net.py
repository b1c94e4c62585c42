"""Random networks for fuzz_train.py: an operator is an ONNX node and the same in PyTorch, by its definition."""
import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto as T
from onnx import helper, numpy_helper

EPSILON = 1e-5
MOST = 600  # elements of a sample's value

# name: (attributes, function); smooth or piecewise linear, defined everywhere
CURVES = {
    "Relu": ({}, F.relu), "LeakyRelu": ({"alpha": 0.1}, lambda x: F.leaky_relu(x, 0.1)), "Sigmoid": ({}, torch.sigmoid), "Tanh": ({}, torch.tanh),
    "Erf": ({}, torch.erf), "Elu": ({"alpha": 0.7}, lambda x: F.elu(x, 0.7)), "Softplus": ({}, lambda x: torch.log1p(torch.exp(x))),
    "Softsign": ({}, F.softsign), "Selu": ({}, F.selu), "Celu": ({"alpha": 1.5}, lambda x: F.celu(x, 1.5)), "Mish": ({}, F.mish),
    "HardSwish": ({}, F.hardswish), "HardSigmoid": ({"alpha": 1 / 6, "beta": 0.5}, F.hardsigmoid), "Sin": ({}, torch.sin), "Cos": ({}, torch.cos),
    "Gelu": ({}, F.gelu), "Atan": ({}, torch.atan), "Asinh": ({}, torch.asinh), "Neg": ({}, torch.neg), "Abs": ({}, torch.abs),
    "ThresholdedRelu": ({"alpha": 0.25}, lambda x: torch.where(x > 0.25, x, 0.0)), "Identity": ({}, lambda x: x),
    "Shrink": ({"lambd": 0.2, "bias": 0.1}, lambda x: torch.where(x < -0.2, x + 0.1, torch.where(x > 0.2, x - 0.1, 0.0))),
}
REDUCTIONS = {
    "ReduceMean": lambda x, d: x.mean(d, keepdim=True), "ReduceSum": lambda x, d: x.sum(d, keepdim=True), "ReduceMax": lambda x, d: x.amax(d, keepdim=True),
    "ReduceMin": lambda x, d: x.amin(d, keepdim=True), "ReduceSumSquare": lambda x, d: (x * x).sum(d, keepdim=True),
    "ReduceLogSumExp": lambda x, d: torch.logsumexp(x, d, keepdim=True),
}


def recurrent_cell(kind, x, h, c, w, r, b, linear_before_reset):
    """One step by ONNX's definition: gates iofc, zrh."""
    wb, rb = b.chunk(2)
    xs, hs = x @ w.T + wb, h @ r.T + rb
    if kind == "RNN":
        return torch.tanh(xs + hs), None
    if kind == "LSTM":
        i, o, f, g = (xs + hs).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    (xz, xr, xh), (hz, hr, hh) = xs.chunk(3, -1), hs.chunk(3, -1)
    z, reset = torch.sigmoid(xz + hz), torch.sigmoid(xr + hr)
    if linear_before_reset:
        new = torch.tanh(xh + reset * hh)
    else:
        n = h.shape[-1]
        new = torch.tanh(xh + (reset * h) @ r[2 * n:].T + rb[2 * n:])
    return (1 - z) * new + z * h, None


def recurrent(kind, x, w, r, b, reverse, linear_before_reset):
    """x [time, batch, features] to [time, directions, batch, hidden]; `reverse` says it of each direction."""
    directions = []
    for d, backwards in enumerate(reverse):
        h = c = x.new_zeros(x.shape[1], r.shape[-1])
        outs = [None] * len(x)
        for t in (range(len(x) - 1, -1, -1) if backwards else range(len(x))):
            h, c = recurrent_cell(kind, x[t], h, c, w[d], r[d], b[d], linear_before_reset)
            outs[t] = h
        directions.append(torch.stack(outs))
    return torch.stack(directions, 1)


class Maker:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.params, self.stats, self.constants, self.inputs = {}, {}, {}, {}
        self.ops = []  # (ONNX operator, output, inputs in PyTorch, node, function, shape of a sample)
        self.count = 0

    def draw(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def choose(self, options):
        return options[self.draw(0, len(options) - 1)]

    # ---- what a network is made of ------------------------------------------------------------------------------

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def param(self, *shape, around=0.0, spread=None):
        name = f"p{len(self.params)}.weight"
        fan = max(int(np.prod(shape[1:])), 1)
        spread = 1.0 / fan ** 0.5 if spread is None else spread
        self.params[name] = (around + spread * self.rng.uniform(-1, 1, shape)).astype(np.float32)
        return name

    def stat(self, *shape, around):
        name = f"s{len(self.stats)}"
        self.stats[name] = (around + 0.2 * self.rng.uniform(-1, 1, shape)).astype(np.float32)
        return name

    def constant(self, *values, dtype=np.int64, scalar=False):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(values[0] if scalar else values, dtype)
        return name

    def add(self, op, inputs, function, shape, constants=(), **attributes):
        """`inputs` are the node's first inputs and PyTorch's arguments; constants follow in the node only ("" leaves one out)."""
        out = self.name()
        node = helper.make_node(op, list(inputs) + list(constants), [out], name=f"{op}_{out}", **attributes)
        self.ops.append((op, out, list(inputs), node, function, tuple(shape)))
        return out, tuple(shape)

    def make(self, classes):
        self.classes = classes
        value = self.choose([self.image, self.image, self.signal, self.vector, self.tokens])()
        for _ in range(self.draw(2, 8)):
            made = None
            while made is None:
                made = self.choose(self.kinds(value))(*value)
            value = made

    def input(self, shape, dtype=np.float32, below=0):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = (tuple(shape), dtype, below)
        return name, tuple(shape)

    def image(self):
        return self.input([self.choose([2, 3, 4, 6]), self.draw(4, 8), self.draw(4, 8)])

    def signal(self):
        return self.input([self.draw(2, 6), self.draw(2, 8)])

    def vector(self):
        return self.input([self.draw(2, 12)])

    def tokens(self):
        rows, width = self.draw(4, 12), self.draw(2, 8)
        name, shape = self.input([self.draw(2, 6)], np.int64, rows)
        table = self.param(rows, width, spread=1.0)
        return self.add("Gather", [table, name], lambda t, i: t[i], [*shape, width], axis=0)

    def kinds(self, value):
        own = {1: [self.product, self.gemm, self.split_halves],
               2: [self.product, self.attention, self.recurrence, self.conv, self.swap, self.reduce, self.flat, self.slice],
               3: [self.conv, self.conv, self.deconv, self.pool, self.batch_norm, self.instance_norm, self.group_norm, self.pad, self.global_pool,
                   self.blocks, self.swap, self.reduce, self.flat, self.conv_norm]}[len(value[1])]
        return own + [self.curve, self.curve, self.scale, self.layer_norm, self.rms_norm, self.residual, self.joined, self.softmax, self.prelu, self.clip]

    # ---- one method a kind of operator: (name, shape), or None if it does not fit -------------------------------

    def curve(self, x, shape):
        op = self.choose(sorted(CURVES))
        attributes, function = CURVES[op]
        return self.add(op, [x], function, shape, **attributes)

    def clip(self, x, shape):
        return self.add("Clip", [x], lambda v: v.clamp(-0.6, 0.8), shape,
                        [self.constant(-0.6, dtype=np.float32, scalar=True), self.constant(0.8, dtype=np.float32, scalar=True)])

    def prelu(self, x, shape):
        if len(shape) < 2 or shape[0] < 2:
            return None
        return self.add("PRelu", [x, self.param(shape[0], *[1] * (len(shape) - 1), around=0.25, spread=0.1)], lambda v, a: torch.where(v < 0, a * v, v), shape)

    def scale(self, x, shape):
        if shape[-1] < 2:
            return None
        op, function = self.choose([("Mul", torch.mul), ("Add", torch.add), ("Sub", torch.sub), ("Div", torch.div)])
        around = 1.5 if op in ("Mul", "Div") else 0.0
        return self.add(op, [x, self.param(shape[-1], around=around, spread=0.5)], function, shape)

    def residual(self, x, shape):
        y, _ = self.curve(x, shape)
        op, function = self.choose([("Add", torch.add), ("Mul", torch.mul), ("Sub", torch.sub), ("Max", torch.maximum), ("Min", torch.minimum)])
        return self.add(op, [y, x], function, shape)

    def joined(self, x, shape):
        axis = self.draw(0, len(shape) - 1)
        wide = list(shape)
        wide[axis] *= 2
        if np.prod(wide) > MOST:
            return None
        y, _ = self.curve(x, shape)
        return self.add("Concat", [x, y], lambda a, b: torch.cat([a, b], axis + 1), wide, axis=axis + 1)

    def softmax(self, x, shape):
        if shape[-1] < 2:
            return None
        op, function = self.choose([("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)])
        return self.add(op, [x], lambda v: function(v, -1), shape, axis=-1)

    def layer_norm(self, x, shape):
        if shape[-1] < 3:
            return None
        n = shape[-1:]
        return self.add("LayerNormalization", [x, self.param(*n, around=1.0, spread=0.5), self.param(*n, spread=0.5)],
                        lambda v, g, b: F.layer_norm(v, n, g, b, EPSILON), shape, axis=-1, epsilon=EPSILON)

    def rms_norm(self, x, shape):
        if shape[-1] < 2:
            return None
        return self.add("RMSNormalization", [x, self.param(shape[-1], around=1.0, spread=0.5)],
                        lambda v, g: v / torch.sqrt((v * v).mean(-1, keepdim=True) + 1e-3) * g, shape, axis=-1, epsilon=1e-3)

    def product(self, x, shape):
        n = self.draw(2, 10)
        if np.prod(shape[:-1]) * n > MOST:
            return None
        y, to = self.add("MatMul", [x, self.param(shape[-1], n, spread=1.0 / shape[-1] ** 0.5)], torch.matmul, [*shape[:-1], n])
        return self.add("Add", [y, self.param(n, spread=0.3)], torch.add, to) if self.draw(0, 1) else (y, to)

    def gemm(self, x, shape):
        n, transposed, alpha, beta = self.draw(2, 10), self.draw(0, 1), self.choose([1.0, 1.0, 0.5]), 1.0
        w = self.param(*([n, shape[0]] if transposed else [shape[0], n]), spread=1.0 / shape[0] ** 0.5)
        return self.add("Gemm", [x, w, self.param(n, spread=0.3)], lambda v, m, b: alpha * (v @ (m.T if transposed else m)) + beta * b, [n],
                        transB=transposed, alpha=alpha, beta=beta)

    def split_halves(self, x, shape):
        if shape[0] % 2:
            return None
        half = shape[0] // 2
        y, to = self.add("Slice", [x], lambda v: v[:, half:], [half], [self.constant(half), self.constant(2 * half), self.constant(1)])
        z, _ = self.add("Slice", [x], lambda v: v[:, :half], [half], [self.constant(0), self.constant(half), self.constant(1)])
        return self.add("Mul", [y, z], torch.mul, to)  # a gate

    def slice(self, x, shape):
        if shape[0] < 2:
            return None
        return self.add("Slice", [x], lambda v: v[:, 1:], [shape[0] - 1, shape[1]], [self.constant(1), self.constant(shape[0]), self.constant(1)])

    def attention(self, x, shape):
        n = shape[1]
        q, _ = self.add("MatMul", [x, self.param(n, n, spread=1.0 / n ** 0.5)], torch.matmul, shape)
        k, _ = self.add("MatMul", [x, self.param(n, n, spread=1.0 / n ** 0.5)], torch.matmul, shape)
        k, to = self.add("Transpose", [k], lambda v: v.transpose(1, 2), [n, shape[0]], perm=[0, 2, 1])
        s, to = self.add("MatMul", [q, k], torch.matmul, [shape[0], shape[0]])
        s, _ = self.add("Div", [s], lambda v: v / n ** 0.5, to, [self.constant(n ** 0.5, dtype=np.float32, scalar=True)])
        s, _ = self.add("Softmax", [s], lambda v: torch.softmax(v, -1), to, axis=-1)
        return self.add("MatMul", [s, x], torch.matmul, shape)

    def recurrence(self, x, shape):
        (steps, n), hidden = shape, self.draw(2, 5)
        kind, gates = self.choose([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
        direction, reverse = self.choose([("forward", [0]), ("reverse", [1]), ("bidirectional", [0, 1])])
        d, more = len(reverse), {}
        if kind == "GRU":
            more = {"linear_before_reset": self.draw(0, 1)}
        t, _ = self.add("Transpose", [x], lambda v: v.transpose(0, 1), shape, perm=[1, 0, 2])
        weights = [self.param(d, gates * hidden, n, spread=0.6), self.param(d, gates * hidden, hidden, spread=0.6), self.param(d, 2 * gates * hidden, spread=0.3)]
        y, _ = self.add(kind, [t, *weights], lambda v, w, r, b: recurrent(kind, v, w, r, b, reverse, more.get("linear_before_reset", 0)), shape,
                        direction=direction, hidden_size=hidden, **more)
        y, _ = self.add("Transpose", [y], lambda v: v.permute(2, 0, 1, 3), shape, perm=[2, 0, 1, 3])
        return self.add("Reshape", [y], lambda v: v.reshape(v.shape[0], steps, d * hidden), [steps, d * hidden], [self.constant(0, steps, d * hidden)])

    def swap(self, x, shape):
        perm = [0] + [1 + int(i) for i in self.rng.permutation(len(shape))]
        return self.add("Transpose", [x], lambda v: v.permute(perm), [shape[p - 1] for p in perm[1:]], perm=perm)

    def reduce(self, x, shape):
        axis, op = self.draw(0, len(shape) - 1), self.choose(sorted(REDUCTIONS))
        function, to = REDUCTIONS[op], [1 if i == axis else n for i, n in enumerate(shape)]
        more = ([self.constant(axis + 1)], {"keepdims": 1})
        return self.add(op, [x], lambda v: function(v, axis + 1), to, more[0], **more[1])

    def flat(self, x, shape):
        return self.add("Flatten", [x], lambda v: v.flatten(1), [int(np.prod(shape))], axis=1)

    def window(self, shape):
        """kernel, stride, padding, dilation for each dimension, and the sizes then; None if it is too small."""
        kernel = [self.draw(1, 3) for _ in shape]
        dilation = [self.draw(1, 2) if k > 1 else 1 for k in kernel]
        stride, pad = [self.draw(1, 2) for _ in shape], [self.draw(0, (k - 1) * d // 2) for k, d in zip(kernel, dilation)]
        to = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(shape, kernel, stride, pad, dilation)]
        return (kernel, stride, pad, dilation, to) if min(to) > 0 else None

    def conv(self, x, shape):
        found, channels = self.window(shape[1:]), shape[0]
        if not found:
            return None
        kernel, stride, pad, dilation, to = found
        group = self.choose([g for g in (1, 1, 2, channels) if channels % g == 0])
        out = group * self.draw(1, max(1, 6 // group))
        if out < 2 or out * np.prod(to) > MOST:
            return None
        weights = [self.param(out, channels // group, *kernel)] + [self.param(out, spread=0.3)] * self.draw(0, 1)
        convolve = F.conv1d if len(kernel) == 1 else F.conv2d
        return self.add("Conv", [x, *weights], lambda v, w, b=None: convolve(v, w, b, stride, pad, dilation, group), [out, *to], kernel_shape=kernel,
                        strides=stride, pads=pad + pad, dilations=dilation, group=group)

    def deconv(self, x, shape):
        channels, kernel, stride = shape[0], [self.draw(1, 3), self.draw(1, 3)], [self.draw(1, 2), self.draw(1, 2)]
        group = self.choose([g for g in (1, 2) if channels % g == 0])
        out, pad = group * self.draw(1, 3), [self.draw(0, (k - 1) // 2) for k in kernel]
        to = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(shape[1:], stride, pad, kernel)]
        if out < 2 or out * np.prod(to) > MOST or min(to) < 1:
            return None
        return self.add("ConvTranspose", [x, self.param(channels, out // group, *kernel), self.param(out, spread=0.3)],
                        lambda v, w, b: F.conv_transpose2d(v, w, b, stride, pad, 0, group), [out, *to], kernel_shape=kernel, strides=stride, pads=pad + pad, group=group)

    def pool(self, x, shape):
        found = self.window(shape[1:])
        if not found:
            return None
        kernel, stride, pad, _, _ = found
        pad = [min(p, k // 2) for p, k in zip(pad, kernel)]
        to = [(n + 2 * p - k) // s + 1 for n, k, s, p in zip(shape[1:], kernel, stride, pad)]
        if min(to) < 1:
            return None
        if self.draw(0, 1):
            return self.add("MaxPool", [x], lambda v: F.max_pool2d(v, kernel, stride, pad), [shape[0], *to], kernel_shape=kernel, strides=stride, pads=pad + pad)
        counts = self.draw(0, 1)
        return self.add("AveragePool", [x], lambda v: F.avg_pool2d(v, kernel, stride, pad, count_include_pad=bool(counts)), [shape[0], *to], kernel_shape=kernel,
                        strides=stride, pads=pad + pad, count_include_pad=counts)

    def global_pool(self, x, shape):
        op, function = self.choose([("GlobalAveragePool", lambda v: v.mean((2, 3), keepdim=True)), ("GlobalMaxPool", lambda v: v.amax((2, 3), keepdim=True))])
        return self.add(op, [x], function, [shape[0], 1, 1])

    def batch_norm(self, x, shape):
        n, keep = shape[0], self.choose([0.9, 0.5])
        if n < 2 or np.prod(shape[1:]) < 4:
            return None
        names = [self.param(n, around=1.0, spread=0.5), self.param(n, spread=0.5), self.stat(n, around=0.0), self.stat(n, around=1.0)]

        def function(v, g, b, mean, variance):
            m, s = v.mean((0, 2, 3)), v.var((0, 2, 3), unbiased=False)  # ONNX keeps the population variance
            with torch.no_grad():
                mean.mul_(keep).add_((1 - keep) * m)
                variance.mul_(keep).add_((1 - keep) * s)
            return F.batch_norm(v, None, None, g, b, True, eps=EPSILON)
        return self.add("BatchNormalization", [x, *names], function, shape, epsilon=EPSILON, momentum=keep)

    def conv_norm(self, x, shape):
        made = self.conv(x, shape)
        return made and self.batch_norm(*made)

    def instance_norm(self, x, shape):
        if shape[0] < 2 or np.prod(shape[1:]) < 4:
            return None
        return self.add("InstanceNormalization", [x, self.param(shape[0], around=1.0, spread=0.5), self.param(shape[0], spread=0.5)],
                        lambda v, g, b: F.instance_norm(v, weight=g, bias=b, eps=EPSILON), shape, epsilon=EPSILON)

    def group_norm(self, x, shape):
        groups = self.choose([g for g in (1, 2, 3) if shape[0] % g == 0])
        if shape[0] < 2 or np.prod(shape) // groups < 4:
            return None
        return self.add("GroupNormalization", [x, self.param(shape[0], around=1.0, spread=0.5), self.param(shape[0], spread=0.5)],
                        lambda v, g, b: F.group_norm(v, groups, g, b, EPSILON), shape, num_groups=groups, epsilon=EPSILON)

    def pad(self, x, shape):
        left, right = self.draw(0, 2), self.draw(0, 2)
        mode, theirs = self.choose([("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate")])
        to = [shape[0], shape[1], shape[2] + left + right]
        if np.prod(to) > MOST or shape[2] < 3:
            return None
        return self.add("Pad", [x], lambda v: F.pad(v, (left, right, 0, 0), mode=theirs), to, [self.constant(0, 0, 0, left, 0, 0, 0, right)], mode=mode)

    def blocks(self, x, shape):
        c, h, w = shape
        if c % 4 == 0:
            return self.add("DepthToSpace", [x], lambda v: F.pixel_shuffle(v, 2), [c // 4, 2 * h, 2 * w], blocksize=2, mode="CRD")
        if h % 2 == 0 and w % 2 == 0:
            return self.add("SpaceToDepth", [x], lambda v: v.reshape(v.shape[0], c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(v.shape[0], 4 * c, h // 2, w // 2),
                            [4 * c, h // 2, w // 2], blocksize=2)
        return None

    # ---- the first `keep` operators, with an end ------------------------------------------------------------------

    def summary(self, keep):
        return [(op, out) for op, out, *_ in self.ops[:keep] if out in self.used(keep)]

    def used(self, keep):
        """Names that the output of the first `keep` operators depends on, the end's parameters too."""
        needed = {self.ops[keep - 1][1], "end.weight", "end.bias"}
        for _, out, inputs, _, _, _ in reversed(self.ops[:keep]):
            if out in needed:
                needed |= set(inputs)
        return needed

    def can_end(self, keep):
        op = self.ops[keep - 1][0]
        return op not in ("LSTM", "GRU", "RNN") and not (op == "Transpose" and self.ops[keep - 1][3].attribute[0].ints[0] != 0) and \
            not (keep > 1 and self.ops[keep - 2][0] in ("LSTM", "GRU", "RNN"))

    def set_end(self, keep):
        n = int(np.prod(self.ops[keep - 1][5]))
        rng = np.random.default_rng(n)
        self.params["end.weight"] = (rng.uniform(-1, 1, (n, self.classes)) / n ** 0.5).astype(np.float32)
        self.params["end.bias"] = rng.uniform(-0.3, 0.3, self.classes).astype(np.float32)

    def graph(self, keep, classes):
        self.set_end(keep)
        used, last = self.used(keep), self.ops[keep - 1][1]
        nodes = [node for _, out, _, node, _, _ in self.ops[:keep] if out in used]
        nodes += [helper.make_node("Flatten", [last], ["end.flat"], axis=1), helper.make_node("Gemm", ["end.flat", "end.weight", "end.bias"], ["logits"])]
        read = {name for node in nodes for name in node.input}
        weights = {k: v for k, v in {**self.params, **self.stats, **self.constants}.items() if k in read}
        inputs = [helper.make_tensor_value_info(k, T.INT64 if dtype == np.int64 else T.FLOAT, ["N", *shape]) for k, (shape, dtype, _) in self.inputs.items()]
        return helper.make_graph(nodes, "fuzz_train", inputs, [helper.make_tensor_value_info("logits", T.FLOAT, ["N", classes])],
                                 [numpy_helper.from_array(v, k) for k, v in weights.items()])

    def samples(self, n):
        return {k: self.rng.integers(0, below, (n, *shape)) if below else self.rng.standard_normal((n, *shape)).astype(dtype)
                for k, (shape, dtype, below) in self.inputs.items()}

    def forward(self, keep, inputs, params, stats):
        values, used = {**inputs, **params, **stats}, self.used(keep)
        for _, out, names, _, function, _ in self.ops[:keep]:
            if out in used:
                values[out] = function(*[values[k] for k in names])
        return values[self.ops[keep - 1][1]].flatten(1) @ values["end.weight"] + values["end.bias"]
