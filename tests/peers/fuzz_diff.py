#!/usr/bin/env python3
"""Random graphs through the engine and through ONNX Runtime.

A graph is made from a seed: operators of all types, sizes that are left open, If and Loop. ONNX Runtime computes what it gives; the engine runs the same
file by tests/onnx_data's onnx_suite, in a process of its own. A graph that gives something else is cut down to the smallest part that still does, and
left in the folder with its seed. What the engine refuses in words is counted, not a failure; what ONNX Runtime refuses is no case.

usage: fuzz_diff.py [--seed N] [--graphs N] [--seconds T] [--nodes N] [--keep FOLDER]
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV] + sys.argv)

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import TensorProto as T  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

SUITE = os.environ.get("SY_ONNX_SUITE", os.path.join(ROOT, "build/tests/onnx_suite"))
OPSET, BATCH = 17, 64  # graphs a process of onnx_suite
MOST = 4096  # elements of a value
NUMBERS = ["float32", "float64", "int32", "int64"]
REALS = ["float32", "float64"]
ALL = NUMBERS + ["int8", "uint8", "int16", "uint16", "uint32", "uint64", "float16", "bool", "str"]
onnxruntime.set_default_logger_severity(4)


def onnx_type(dtype):
    return T.STRING if dtype == "str" else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


class Value:
    """exact: it has no rounding in it, so that a comparison or a rounding of it has one answer."""

    def __init__(self, name, dtype, shape, exact=True, open_dim=False):
        self.name, self.dtype, self.shape, self.exact, self.open_dim = name, dtype, tuple(shape), exact, open_dim

    @property
    def n(self):
        return int(np.prod(self.shape))


class Maker:
    """Makes one graph; all choices come from the seed."""

    def __init__(self, seed, prefix="v"):
        self.rng = np.random.default_rng(seed)
        self.prefix, self.count = prefix, 0
        self.values, self.nodes, self.inputs, self.constants, self.feeds = [], [], [], [], {}

    def draw(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def choose(self, options):
        return options[self.draw(0, len(options) - 1)]

    def name(self):
        self.count += 1
        return f"{self.prefix}{self.count}"

    def array(self, dtype, shape):
        if dtype == "str":
            return np.array([self.choose(["a", "bc", "", "\u00e9t\u00e9", "10"]) for _ in range(int(np.prod(shape)))],
                            dtype=object).reshape(shape)
        if dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        low = 0 if dtype.startswith("uint") else -12
        whole = self.rng.integers(low, 13, shape)
        return (whole / 4).astype(dtype) if dtype.startswith("float") else whole.astype(dtype)

    def input(self):
        shape = [self.draw(1, 4) for _ in range(self.draw(0, 4))]
        v = Value(self.name(), self.choose(NUMBERS * 3 + ALL), shape, open_dim=bool(shape) and self.draw(0, 2) == 0)
        dims = ["N" + v.name] + shape[1:] if v.open_dim else shape
        self.inputs.append(helper.make_tensor_value_info(v.name, onnx_type(v.dtype), dims))
        self.feeds[v.name] = self.array(v.dtype, shape)
        self.values.append(v)
        return v

    def constant(self, array):
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def of(self, dtypes, least_rank=0, exact=False):
        fit = [v for v in self.values if v.dtype in dtypes and len(v.shape) >= least_rank and (v.exact or not exact)]
        return self.choose(fit) if fit else None

    def add(self, op, inputs, dtype, shape, exact, n_outputs=1, **attributes):
        names = [self.name() for _ in range(n_outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        made = [Value(n, dtype, shape, exact) for n in names]
        self.values += made
        return made[0]

    # ---- one method a kind of operator: False if nothing fits -------------------------------------------------------

    def unary(self):
        x = self.of(REALS)
        op = self.choose(["Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Erf", "Softplus", "LeakyRelu", "Elu", "HardSigmoid",
                          "Reciprocal", "Sin", "Cos", "Log", "Selu", "Softsign", "HardSwish"])
        if not x:
            return False
        if x.dtype == "float64" and op in ("Erf", "Softplus", "Elu", "HardSigmoid", "Selu", "Softsign", "HardSwish", "LeakyRelu", "Cos"):
            op = "Abs"
        if op in ("Sqrt", "Log", "Reciprocal"):  # of at least 1
            a = self.add("Abs", [x.name], x.dtype, x.shape, x.exact)
            x = self.add("Add", [a.name, self.constant(np.array(1, x.dtype))], x.dtype, x.shape, False)
        if op == "Exp":
            x = self.add("Tanh", [x.name], x.dtype, x.shape, False)
        self.add(op, [x.name], x.dtype, x.shape, x.exact and op in ("Abs", "Neg", "Relu"))

    def rounding(self):
        x = self.of(["float32", "float64"], exact=True)
        if not x:
            return False
        self.add(self.choose(["Floor", "Ceil", "Round", "Sign"]), [x.name], x.dtype, x.shape, True)

    def binary(self):
        x = self.of(NUMBERS)
        y = self.broadcast_of(x)
        if not y:
            return False
        op = self.choose(["Add", "Sub", "Mul", "Max", "Min", "Div", "Mod", "Pow", "PRelu"])
        real = x.dtype in REALS
        if op == "Pow" or (op == "Mod" and real) or (op == "PRelu" and x.dtype != "float32"):
            op = "Mul"
        shape = np.broadcast_shapes(x.shape, y.shape)
        if op == "PRelu" and shape != x.shape:
            op = "Add"
        if op in ("Div", "Mod"):  # by at least 1
            a = self.add("Abs", [y.name], y.dtype, y.shape, y.exact)
            y = self.add("Max", [a.name, self.constant(np.array(1, y.dtype))], y.dtype, y.shape, y.exact)
        small = len(self.nodes) < 8 or not real
        self.add(op, [x.name, y.name], x.dtype, shape,
                 x.exact and y.exact and (op in ("Max", "Min") or (op in ("Add", "Sub", "Mul") and small) or not real))

    def broadcast_of(self, x):
        """One of x's type that broadcasts with it, made if there is none."""
        if not x:
            return None
        fit = []
        for v in self.values:
            if v.dtype == x.dtype and not (v.open_dim or x.open_dim) and len(v.shape) <= 4:
                try:
                    if np.prod(np.broadcast_shapes(v.shape, x.shape)) <= MOST:
                        fit.append(v)
                except ValueError:
                    pass
        if fit and self.draw(0, 3):
            return self.choose(fit)
        shape = [d if self.draw(0, 1) else 1 for d in x.shape[self.draw(0, len(x.shape)):]]
        if x.open_dim and len(shape) == len(x.shape) and shape:
            shape[0] = 1
        return Value(self.constant(self.array(x.dtype, shape)), x.dtype, shape)

    def compare(self):
        x = self.of(["float32", "int32", "int64"], exact=True)
        y = self.broadcast_of(x)
        if not y or not y.exact:
            return False
        self.add(self.choose(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]), [x.name, y.name], "bool",
                 np.broadcast_shapes(x.shape, y.shape), True)

    def logic(self):
        x = self.of(["bool"])
        y = self.broadcast_of(x)
        if not y:
            return False
        if self.draw(0, 2) == 0:
            self.add("Not", [x.name], "bool", x.shape, True)
        else:
            self.add(self.choose(["And", "Or", "Xor"]), [x.name, y.name], "bool", np.broadcast_shapes(x.shape, y.shape), True)

    def where(self):
        x = self.of(["float32", "int64", "int32", "uint8", "str", "float64"])
        y = self.broadcast_of(x)
        if not y:
            return False
        shape = np.broadcast_shapes(x.shape, y.shape)
        mask = self.constant(self.rng.integers(0, 2, shape if not x.open_dim else ()).astype(bool))
        self.add("Where", [mask, x.name, y.name], x.dtype, shape, x.exact and y.exact)

    def cast(self):
        x = self.of([d for d in ALL if d != "str"], exact=True)
        to = self.choose([d for d in ALL if d != "str"])
        if not x:
            return False
        if x.dtype.startswith("float") or x.dtype.startswith("int"):  # within every type
            if x.dtype not in ("float32", "int32", "int64", "float64"):
                return False
            a = self.add("Abs", [x.name], x.dtype, x.shape, True)
            x = self.add("Min", [a.name, self.constant(np.array(100, x.dtype))], x.dtype, x.shape, True)
        self.add("Cast", [x.name], to, x.shape, True, to=onnx_type(to))

    def transpose(self):
        x = self.of(ALL, 2)
        if not x:
            return False
        order = self.rng.permutation(len(x.shape)).tolist()
        self.add("Transpose", [x.name], x.dtype, [x.shape[i] for i in order], x.exact, perm=order)

    def reshape(self):
        x = self.of(ALL, 1)
        if not x:
            return False
        kind = self.draw(0, 3)
        if kind == 0:
            self.add("Reshape", [x.name, self.constant(np.array([-1], np.int64))], x.dtype, [x.n], x.exact)
        elif kind == 1:
            self.add("Reshape", [x.name, self.constant(np.array([0, -1], np.int64))], x.dtype, [x.shape[0], x.n // x.shape[0]], x.exact)
        elif kind == 2:
            axis = self.draw(0, len(x.shape))
            self.add("Flatten", [x.name], x.dtype, [int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))], x.exact, axis=axis)
        elif len(x.shape) < 5:
            axis = self.draw(0, len(x.shape))
            shape = list(x.shape)
            shape.insert(axis, 1)
            self.add("Unsqueeze", [x.name, self.constant(np.array([axis], np.int64))], x.dtype, shape, x.exact)

    def concat(self):
        x = self.of(ALL, 1)
        if not x or x.n > MOST // 3:
            return False
        axis = self.draw(0, len(x.shape) - 1)
        other = [v for v in self.values if v.dtype == x.dtype and len(v.shape) == len(x.shape) and not v.open_dim and not x.open_dim
                 and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis)]
        y = self.choose(other) if other else x
        shape = list(x.shape)
        shape[axis] += y.shape[axis]
        self.add("Concat", [x.name, y.name], x.dtype, shape, x.exact and y.exact, axis=axis - self.draw(0, 1) * len(x.shape))

    def slice(self):
        x = self.of(ALL, 1)
        if not x:
            return False
        axis = self.draw(0, len(x.shape) - 1)
        step = self.choose([1, 1, 2, -1, -2])
        begin, end = (self.draw(0, x.shape[axis] - 1), 1000) if step > 0 else (-1, -1000)
        taken = len(range(x.shape[axis])[begin:end:step] if step > 0 else range(x.shape[axis])[::step])
        shape = list(x.shape)
        shape[axis] = taken
        self.add("Slice", [x.name] + [self.constant(np.array([v], np.int64)) for v in (begin, end, axis, step)], x.dtype, shape, x.exact)

    def gather(self):  # no strings: of several in a row ONNX Runtime 1.31 gives the first, and "" for the others
        x = self.of([d for d in ALL if d != "str"], 1)
        if not x:
            return False
        axis = self.draw(0, len(x.shape) - 1)
        if x.open_dim and axis == 0:
            return False
        indices = self.rng.integers(-x.shape[axis], x.shape[axis], [self.draw(1, 3) for _ in range(self.draw(0, 2))])
        shape = list(x.shape[:axis]) + list(indices.shape) + list(x.shape[axis + 1:])
        if np.prod(shape) > MOST or len(shape) > 6:
            return False
        self.add("Gather", [x.name, self.constant(indices.astype(self.choose(["int64", "int32"])))], x.dtype, shape, x.exact, axis=axis)

    def expand(self):
        x = self.of(["float32", "int64", "int32", "bool", "float64", "uint8"])
        if not x or len(x.shape) > 3 or x.n > MOST // 4:
            return False
        times = self.draw(2, 3)
        if self.draw(0, 1) or not x.shape:
            self.add("Expand", [x.name, self.constant(np.array([times] + [1] * len(x.shape), np.int64))], x.dtype, [times] + list(x.shape),
                     x.exact)
        else:
            self.add("Tile", [x.name, self.constant(np.array([times] + [1] * (len(x.shape) - 1), np.int64))], x.dtype,
                     [times * x.shape[0]] + list(x.shape[1:]), x.exact)

    def pad(self):
        x = self.of(["float32", "int64", "float64", "int32"], 1)
        if not x or x.n > MOST // 8:
            return False
        begin, end = [self.draw(0, 2) for _ in x.shape], [self.draw(0, 2) for _ in x.shape]
        self.add("Pad", [x.name, self.constant(np.array(begin + end, np.int64)), self.constant(np.array(1, x.dtype))], x.dtype,
                 [a + b + c for a, b, c in zip(x.shape, begin, end)], x.exact)

    def reduce(self):
        x = self.of(["float32", "float64", "int64", "int32"], 1)
        op = self.choose(["ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare",
                          "ReduceLogSumExp"])
        if not x:
            return False
        if op == "ReduceLogSumExp" and x.dtype not in REALS or x.dtype == "int64" and op in ("ReduceL2", "ReduceMean"):
            op = "ReduceMax"
        if op == "ReduceProd" and x.dtype.startswith("int"):  # where it overflows, ONNX Runtime 1.31 saturates, numpy wraps
            op = "ReduceMin"
        axes = sorted({self.draw(0, len(x.shape) - 1) for _ in range(self.draw(1, 2))})
        keep = self.draw(0, 1)
        shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]
        exact = x.exact and (op in ("ReduceMax", "ReduceMin") or x.dtype.startswith("int") and op != "ReduceMean")
        if op == "ReduceSum":
            self.add(op, [x.name, self.constant(np.array(axes, np.int64))], x.dtype, shape, exact, keepdims=keep)
        else:
            self.add(op, [x.name], x.dtype, shape, exact, axes=axes, keepdims=keep)

    def arg(self):
        x = self.of(["float32", "int32", "float64"], 1, exact=True)
        if not x:
            return False
        axis, keep = self.draw(0, len(x.shape) - 1), self.draw(0, 1)
        shape = [1 if i == axis else d for i, d in enumerate(x.shape) if keep or i != axis]
        self.add(self.choose(["ArgMax", "ArgMin"]), [x.name], "int64", shape, True, axis=axis, keepdims=keep,
                 select_last_index=self.draw(0, 1))

    def softmax(self):
        x = self.of(REALS, 1)
        if not x:
            return False
        self.add(self.choose(["Softmax", "LogSoftmax"]), [x.name], x.dtype, x.shape, False, axis=self.draw(-len(x.shape), len(x.shape) - 1))

    def cumsum(self):
        x = self.of(["float32", "int64", "int32", "float64"], 1)
        if not x:
            return False
        self.add("CumSum", [x.name, self.constant(np.array(self.draw(0, len(x.shape) - 1), np.int64))], x.dtype, x.shape,
                 x.exact and x.dtype.startswith("int"), exclusive=self.draw(0, 1), reverse=self.draw(0, 1))

    def matmul(self):
        x = self.of(["float32", "float64", "int32", "int64"], 2)
        if not x:
            return False
        wide = self.draw(1, 5)
        w = self.constant(self.array(x.dtype, [x.shape[-1], wide]))
        if self.draw(0, 1) and len(x.shape) == 2 and x.dtype in REALS:
            bias = self.constant(self.array(x.dtype, [wide]))
            self.add("Gemm", [x.name, w, bias], x.dtype, [x.shape[0], wide], False, alpha=0.5, beta=2.0)
        else:
            self.add("MatMul", [x.name, w], x.dtype, list(x.shape[:-1]) + [wide], x.exact and x.dtype.startswith("int"))

    def conv(self):
        x = next((v for v in self.values if v.dtype == "float32" and len(v.shape) == 4), None)
        if not x:
            return False
        out, k = self.draw(1, 4), self.draw(1, min(3, x.shape[2], x.shape[3]))
        pad, stride = self.draw(0, 1) if k > 1 else 0, self.draw(1, 2)
        size = [(d + 2 * pad - k) // stride + 1 for d in x.shape[2:]]
        if self.draw(0, 2):
            w = self.constant(self.array("float32", [out, x.shape[1], k, k]))
            self.add("Conv", [x.name, w], "float32", [x.shape[0], out] + size, False, pads=[pad] * 4, strides=[stride] * 2)
        else:
            op = self.choose(["MaxPool", "AveragePool"])
            self.add(op, [x.name], "float32", list(x.shape[:2]) + size, False, kernel_shape=[k, k], pads=[pad] * 4, strides=[stride] * 2)

    def normalize(self):
        x = self.of(["float32"], 2)
        if not x:
            return False
        scale = self.constant(self.array("float32", [x.shape[-1]]))
        self.add("LayerNormalization", [x.name, scale], "float32", x.shape, False, axis=-1)

    def split(self):
        x = self.of(ALL, 1)
        if not x:
            return False
        axis = next((i for i, d in enumerate(x.shape) if d % 2 == 0 and not (x.open_dim and i == 0)), None)
        if axis is None:
            return False
        shape = list(x.shape)
        shape[axis] //= 2
        self.add("Split", [x.name], x.dtype, shape, x.exact, n_outputs=2, axis=axis)

    def topk(self):
        x = self.of(["float32", "int64"], 1)
        if not x:
            return False
        axis = self.draw(0, len(x.shape) - 1)
        k = self.draw(1, x.shape[axis])
        shape = list(x.shape)
        shape[axis] = k
        names = [self.name(), self.name()]  # which of equals comes is nobody's promise: the values only
        self.nodes.append(helper.make_node("TopK", [x.name, self.constant(np.array([k], np.int64))], names, axis=axis,
                                           largest=self.draw(0, 1)))
        self.values.append(Value(names[0], x.dtype, shape, x.exact))

    def scatter(self):
        x = self.of(["float32", "int64", "int32"], 1)
        if not x or x.open_dim:
            return False
        axis = self.draw(0, len(x.shape) - 1)
        indices = np.stack([self.rng.permutation(x.shape[axis]) for _ in range(max(1, x.n // x.shape[axis]))])
        shape = list(x.shape)
        shape.append(shape.pop(axis))
        indices = np.moveaxis(indices.reshape(shape), -1, axis)
        updates = self.constant(self.array(x.dtype, x.shape))
        self.add("ScatterElements", [x.name, self.constant(indices.astype(np.int64)), updates], x.dtype, x.shape, x.exact, axis=axis)

    def shape_of(self):
        x = self.of(ALL, 1)
        if not x:
            return False
        s = self.add("Shape", [x.name], "int64", [len(x.shape)], True)
        if self.draw(0, 1) and x.n <= MOST // 2 and x.dtype in NUMBERS:
            flat = self.add("Reshape", [x.name, self.constant(np.array([-1], np.int64))], x.dtype, [x.n], x.exact)
            self.add("Reshape", [flat.name, s.name], x.dtype, x.shape, x.exact)

    def nonzero(self):
        x = self.of(["float32", "int64", "bool", "int32"], 1, exact=True)
        if not x:
            return False
        n = self.name()
        self.nodes.append(helper.make_node("NonZero", [x.name], [n]))
        self.add("Shape", [n], "int64", [2], True)
        sums = self.name()
        self.nodes.append(helper.make_node("ReduceSum", [n, self.constant(np.array([1], np.int64))], [sums], keepdims=0))
        self.values.append(Value(sums, "int64", [len(x.shape)]))

    # ---- control flow ----------------------------------------------------------------------------------------------

    def body(self, x, out, op):
        c = numpy_helper.from_array(np.asarray(self.array(x.dtype, [])), out + "_c")
        return helper.make_node(op, [x.name if isinstance(x, Value) else x, c.name], [out]), c

    def condition(self):
        x = self.of(["int64", "int32", "float32"], exact=True)
        if not x:
            return None
        flat = self.add("Reshape", [x.name, self.constant(np.array([-1], np.int64))], x.dtype, [x.n], True)
        top = self.add("ReduceMax", [flat.name], x.dtype, [], True, axes=[0], keepdims=0)
        return self.add("Greater", [top.name, self.constant(self.array(x.dtype, []))], "bool", [], True)

    def if_(self):
        x = self.of(NUMBERS)
        c = self.condition() if x else None
        if not c:
            return False
        graphs = []
        for op in (self.choose(["Add", "Mul"]), self.choose(["Sub", "Max"])):
            out = self.name()
            node, constant = self.body(x, out, op)
            graphs.append(helper.make_graph([node], "b" + out, [], [helper.make_tensor_value_info(out, onnx_type(x.dtype), None)], [constant]))
        self.add("If", [c.name], x.dtype, x.shape, False, then_branch=graphs[0], else_branch=graphs[1])

    def loop(self):
        x = self.of(NUMBERS)
        if not x or x.n > MOST // 8:
            return False
        i, go, carried, went, out, each = [self.name() for _ in range(6)]
        trips = self.draw(0, 4)
        inner = Value(carried, x.dtype, x.shape)
        node, constant = self.body(inner, out, self.choose(["Add", "Sub", "Max", "Min"]))
        kind = onnx_type(x.dtype)
        nodes = [helper.make_node("Identity", [go], [went]), node, helper.make_node("Identity", [out], [each])]
        graph = helper.make_graph(nodes, "l" + out,
                                  [helper.make_tensor_value_info(i, T.INT64, []), helper.make_tensor_value_info(go, T.BOOL, []),
                                   helper.make_tensor_value_info(carried, kind, None)],
                                  [helper.make_tensor_value_info(went, T.BOOL, []), helper.make_tensor_value_info(out, kind, None),
                                   helper.make_tensor_value_info(each, kind, None)], [constant])
        last, all_of = self.name(), self.name()
        self.nodes.append(helper.make_node("Loop", [self.constant(np.array(trips, np.int64)), "", x.name], [last, all_of], body=graph))
        self.values += [Value(last, x.dtype, x.shape, False)]
        if trips:
            self.values += [Value(all_of, x.dtype, [trips] + list(x.shape), False)]

    KINDS = [unary, unary, rounding, binary, binary, binary, compare, logic, where, cast, transpose, reshape, concat, slice, gather, expand, pad,
             reduce, reduce, arg, softmax, cumsum, matmul, matmul, conv, normalize, split, topk, scatter, shape_of, nonzero, if_, loop]

    def make(self, n_nodes):
        for _ in range(self.draw(1, 4)):
            self.input()
        for _ in range(8 * n_nodes):
            if len(self.nodes) >= n_nodes:
                break
            self.choose(self.KINDS)(self)
        return self


class Case:
    """A graph as lists, so that parts can be taken out."""

    def __init__(self, nodes, inputs, constants, feeds, outputs):
        self.nodes, self.inputs, self.constants, self.feeds, self.outputs = nodes, inputs, constants, feeds, outputs

    def needed(self):
        """Without what its outputs do not need."""
        wanted, nodes = set(self.outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                nodes.insert(0, node)
                wanted |= set(node.input) | {name for a in node.attribute if a.type == onnx.AttributeProto.GRAPH
                                             for inner in a.g.node for name in inner.input}
        inputs = [i for i in self.inputs if i.name in wanted]
        return Case(nodes, inputs, [c for c in self.constants if c.name in wanted],
                    {i.name: self.feeds[i.name] for i in inputs}, self.outputs)

    def model(self):
        outputs = [onnx.ValueInfoProto(name=o) for o in self.outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(model)
        known = {v.name: v for v in list(inferred.graph.value_info) + list(inferred.graph.output)}
        del model.graph.output[:]
        for name in self.outputs:
            kept = onnx.ValueInfoProto(name=name)
            kept.type.tensor_type.elem_type = known[name].type.tensor_type.elem_type
            model.graph.output.append(kept)
        return model

    def reference(self):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(self.model().SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(self.outputs, self.feeds)

    def write(self, folder):
        """As ONNX's own test data. False: ONNX Runtime does not run it, or its answer has no number."""
        try:
            results = self.reference()
            model = self.model()
        except Exception:  # its many classes have no common one
            return False
        for r in results:
            if isinstance(r, np.ndarray) and r.dtype.kind == "f" and not (np.isfinite(r).all() and (np.abs(r.astype(np.float64)) < 1e6).all()):
                return False
        data = os.path.join(folder, "test_data_set_0")
        os.makedirs(data, exist_ok=True)
        onnx.save(model, os.path.join(folder, "model.onnx"))
        for i, value in enumerate(self.inputs):
            self.put(data, f"input_{i}.pb", value.name, self.feeds[value.name])
        for i, (name, result) in enumerate(zip(self.outputs, results)):
            self.put(data, f"output_{i}.pb", name, result)
        return True

    @staticmethod
    def put(folder, name, of, array):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(numpy_helper.from_array(np.asarray(array), of).SerializeToString())


def random_case(seed, n_nodes):
    m = Maker(seed).make(n_nodes)
    used = {name for node in m.nodes for name in node.input}
    ends = [v.name for v in m.values if v.name not in used and v.name not in m.feeds]
    made = {name for node in m.nodes for name in node.output}
    return Case(m.nodes, m.inputs, m.constants, m.feeds, [e for e in ends if e in made][:8]).needed()


def run_suite(folder):
    """What failed, by the name of its case, and the counts: passed, refused, failed."""
    done = subprocess.run([SUITE, folder], capture_output=True, text=True, errors="replace")
    counts = re.search(r"^onnx: (\d+) passed, (\d+) refused, (\d+) failed", done.stdout, re.M)
    if not counts:
        raise SystemExit(f"fuzz_diff: {SUITE} ended with {done.returncode}: {done.stderr[-400:]}")
    failed = dict(re.findall(r"^FAILED  simple/(\S+): (.*)$", done.stdout, re.M))
    reasons = done.stdout[done.stdout.find("refused:"):]
    return failed, [int(c) for c in counts.groups()], reasons


def fails(case, folder):
    shutil.rmtree(folder, ignore_errors=True)
    if not case.outputs or not case.write(os.path.join(folder, "simple", "one")):
        return None
    return run_suite(folder)[0].get("one")


def shrink(case, folder):
    """One output that still fails, with as few nodes as can be before it: values in the middle become inputs, with what they were."""
    for output in case.outputs:
        smaller = Case(case.nodes, case.inputs, case.constants, case.feeds, [output]).needed()
        if fails(smaller, folder):
            case = smaller
            break
    names = [name for node in case.nodes for name in node.output if name]
    try:
        everything = Case(case.nodes, case.inputs, case.constants, case.feeds, names)
        values = dict(zip(names, everything.reference()))
    except Exception:  # a value that is no tensor, or has no name outside
        return case
    for name in names:  # an earlier end
        smaller = Case(case.nodes, case.inputs, case.constants, case.feeds, [name]).needed()
        if len(smaller.nodes) < len(case.nodes) and fails(smaller, folder):
            case = smaller
    for name in reversed(names):  # a later beginning
        if name in case.outputs or name not in {n for node in case.nodes for n in node.output} or not isinstance(values[name], np.ndarray):
            continue
        kind = T.STRING if values[name].dtype == object else helper.np_dtype_to_tensor_dtype(values[name].dtype)
        info = helper.make_tensor_value_info(name, kind, values[name].shape)
        nodes = [node for node in case.nodes if name not in node.output]
        smaller = Case(nodes, case.inputs + [info], case.constants, {**case.feeds, name: values[name]}, case.outputs).needed()
        if fails(smaller, folder):
            case = smaller
    return case


def report(seed, why, case, kept):
    print(f"[  FAILED  ] seed {seed}: {why}")
    for node in case.nodes:
        print(f"    {node.op_type}({', '.join(node.input)}) -> {', '.join(node.output)}  "
              + ", ".join(f"{a.name}={helper.get_attribute_value(a)}" for a in node.attribute if a.type != onnx.AttributeProto.GRAPH))
    for name, array in case.feeds.items():
        print(f"    {name}: {array.dtype}{list(array.shape)} {np.array2string(array, threshold=24, precision=9)}".replace("\n", " "))
    print(f"    kept: {kept}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1, help="of the first graph; the others count on from it")
    p.add_argument("--graphs", type=int, default=200)
    p.add_argument("--seconds", type=float, default=1e9, help="no new batch of graphs after so long")
    p.add_argument("--nodes", type=int, default=12, help="of a graph, about")
    p.add_argument("--keep", default=os.path.join(ROOT, "build/fuzz-diff"), help="where graphs that fail are left")
    o = p.parse_args()
    begin, seed, total, n_failed, n_none, reasons = time.monotonic(), o.seed, [0, 0, 0], 0, 0, ""
    while seed < o.seed + o.graphs and time.monotonic() - begin < o.seconds:
        with tempfile.TemporaryDirectory(prefix="sy-fuzz-diff-") as folder:
            cases = {}
            for seed in range(seed, min(seed + BATCH, o.seed + o.graphs)):
                case = random_case(seed, o.nodes)
                if case.outputs and case.write(os.path.join(folder, "simple", str(seed))):
                    cases[str(seed)] = case
                else:
                    shutil.rmtree(os.path.join(folder, "simple", str(seed)), ignore_errors=True)
                    n_none += 1
            seed += 1
            failed, counts, reasons = run_suite(folder)
            total = [a + b for a, b in zip(total, counts)]
            for name, why in failed.items():
                n_failed += 1
                small = shrink(cases[name], os.path.join(folder, "shrink"))
                kept = os.path.join(o.keep, "simple", f"seed-{name}")
                shutil.rmtree(kept, ignore_errors=True)
                small.write(kept)
                report(name, why, small, kept)
    print(reasons if total[1] else "", end="")
    word = "  FAILED  " if n_failed or not total[0] else "       OK "
    print(f"[{word}] random graphs against ONNX Runtime: seeds {o.seed} to {seed - 1}: {total[0]} the same, {total[1]} refused in words, "
          f"{n_failed} not the same; {n_none} that ONNX Runtime refuses, or without a number")
    return 1 if n_failed or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
