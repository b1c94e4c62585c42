"""ONNX files for fuzz_onnx, and for fuzz_engine, which has no other seeds where ONNX's test data is not installed: functions, tensors of each kind, attributes, open sizes, bodies."""
import struct

from wire import field, many, varint

F32, U8, I64, STRING, F64, U32, U64 = 1, 2, 7, 8, 11, 12, 13
A_FLOAT, A_INT, A_STRING, A_TENSOR, A_GRAPH, A_FLOATS, A_INTS, A_STRINGS, A_TYPE = 1, 2, 3, 4, 5, 6, 7, 8, 13


def attribute(name, kind, body=b"", refers=""):
    return field(1, name) + field(20, kind) + body + (field(21, refers) if refers else b"")


def node(op, inputs, outputs, attributes=(), domain="", name=""):
    return many(1, inputs) + many(2, outputs) + field(3, name) + field(4, op) + many(5, attributes) + (field(7, domain) if domain else b"")


def tensor(name, dtype, dims, data):
    return many(1, dims) + field(2, dtype) + field(8, name) + data


def value(name, dtype, dims):
    """dims: a number, a name, or "" for an open one without."""
    shape = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d) if d else b"") for d in dims)
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, shape)))


def graph(nodes, inputs, outputs, initializers=(), sparse=()):
    return many(1, nodes) + field(2, "g") + many(5, initializers) + many(11, inputs) + many(12, outputs) + many(15, sparse)


def model(g, opset=18, functions=(), domains=(("own", 1),)):
    imports = field(8, field(2, opset)) + b"".join(field(8, field(1, d) + field(2, v)) for d, v in domains)
    return field(1, 9) + field(7, g) + imports + many(25, functions)


def function(name, inputs, outputs, nodes, attributes=(), defaults=(), opset=18, domain="own"):
    return (field(1, name) + many(4, inputs) + many(5, outputs) + many(6, attributes) + many(7, nodes) + field(9, field(2, opset)) + field(10, domain) +
            many(11, defaults))


X, Y = value("x", F32, ["N", 4]), value("y", F32, ["N", 4])


def calling(functions, nodes=None):
    call = [node("f", ["x"], ["y"], [attribute("alpha", A_FLOAT, field(2, 0.5))], "own", "call")]
    return model(graph(nodes or call, [X], [Y]), functions=functions)


def with_functions():
    leaky = node("LeakyRelu", ["a"], ["t"], [attribute("alpha", A_FLOAT, refers="alpha")], name="n")
    elu = node("Elu", ["t"], ["b"], [attribute("alpha", A_FLOAT, refers="beta")])
    beta = attribute("beta", A_FLOAT, field(2, 2.0))
    small = function("f", ["a", "left out"], ["b", "not taken"], [leaky, elu, node("Relu", ["a"], ["not taken"])], ["alpha"], [beta])
    yield calling([small])
    yield calling([function("f", ["a"], ["b"], [node("Elu", ["a"], ["b"], [attribute("alpha", A_FLOAT, refers="none")])])])
    twice = function("f", ["a"], ["b"], [node("g", ["a"], ["t"], domain="own"), node("g", ["t"], ["b"], domain="own")])
    yield calling([function("g", ["c"], ["d"], [node("Relu", ["c"], ["d"])]), twice])
    # A body in a function, whose names are the call's; a call in a body.
    branch = graph([node("g", ["a"], ["u"], domain="own")], [], [value("u", F32, ["N", 4])], [tensor("k", F32, [1], field(9, b"\0\0\0\0"))]) + field(13, value("u", F32, [4]))
    choose = [node("Constant", [], ["yes"], [attribute("value", A_TENSOR, field(5, tensor("", 9, [], field(9, b"\1"))))]),
              node("If", ["yes"], ["b"], [attribute("then_branch", A_GRAPH, field(6, branch)), attribute("else_branch", A_GRAPH, field(6, branch))])]
    yield calling([function("g", ["c"], ["d"], [node("Relu", ["c"], ["d"])]), function("f", ["a"], ["b"], choose)])
    loop = graph([node("Identity", ["go"], ["on"]), node("Relu", ["a"], ["s"])], [value("i", I64, []), value("go", 9, []), value("a0", F32, ["N", 4])],
                 [value("on", 9, []), value("s", F32, ["N", 4])])
    yield calling([function("f", ["a"], ["b"], [node("Loop", ["", "", "a"], ["b"], [attribute("body", A_GRAPH, field(6, loop))])])])
    # What is refused: of itself, another opset, an input that is an output, too many names, a name that is too long.
    yield calling([function("f", ["a"], ["b"], [node("f", ["a"], ["b"], domain="own")])])
    yield calling([function("f", ["a"], ["b"], [node("Relu", ["a"], ["b"])], opset=9)])
    yield calling([function("f", ["a"], ["a"], [node("Relu", ["a"], ["b"])])])
    yield calling([function("f", ["a"] * 1025, ["b"], [node("Relu", ["a"], ["b"])])])
    yield calling([function("f", ["a"], ["b"], [node("Relu", ["a"], ["t" * 600]), node("Relu", ["t" * 600], ["b"])])])
    yield model(graph([node("Relu", ["x"], ["y"])], [X], [Y]), functions=[b""] * 4097)


def with_tensors():
    def constants(*tensors):
        return model(graph([node("Relu", ["x"], ["y"])], [X], [Y], tensors))

    yield constants(tensor("a", F64, [2], field(10, struct.pack("<2d", 1, 2))), tensor("b", U64, [2], field(11, varint(1) + varint(2))),
                    tensor("c", U32, [2], field(11, varint(1) + varint(2))), tensor("d", STRING, [2], field(6, "one") + field(6, "")),
                    tensor("e", 21, [3], field(9, b"\x21\x03")), tensor("f", 22, [3], field(9, b"\xf1\x0f")), tensor("g", 22, [3], field(5, varint(1) + varint(2))))
    yield constants(tensor("c", U32, [3], field(11, varint(1))))
    yield constants(tensor("d", STRING, [3], field(6, "one")))
    yield constants(tensor("a", F32, [2], field(4, struct.pack("<f", 1))))
    yield constants(tensor("a", F32, [1] * 9, b""))
    yield constants(tensor("a", F32, [1], field(3, field(1, 0))))
    for places in ([("location", "a.bin"), ("offset", "0"), ("length", "8")], [("location", "../a"), ("length", "8")], [("location", "/a")], [("offset", "-1")],
                   [("location", "a/../b"), ("length", "8")], [("location", "a" * 5000)], [("location", "a"), ("length", "7")], [("location", "."), ("offset", "0")]):
        yield constants(tensor("a", F32, [2], b"".join(field(13, field(1, k) + field(2, v)) for k, v in places) + field(14, 1)))
    # Constant nodes, with a value of each kind.
    kinds = [("value_floats", A_FLOATS, many(7, [1.0, 2.0])), ("value_float", A_FLOAT, field(2, 1.0)), ("value_ints", A_INTS, many(8, [1, 2])),
             ("value_int", A_INT, field(3, 1)), ("value_strings", A_STRINGS, many(9, ["a", "b"])), ("value_string", A_STRING, field(4, "a")),
             ("value", A_TENSOR, b""), ("value", A_TYPE, b"")]
    for name, kind, body in kinds:
        yield model(graph([node("Constant", [], ["c"], [attribute(name, kind, body)]), node("Relu", ["x"], ["y"])], [X], [Y]))


def with_attributes():
    def one(op, *attributes, inputs=("x",), domain="", opset=18):
        return model(graph([node(op, inputs, ["y"], attributes, domain)], [X], [Y]), opset, domains=(("ai.onnx.ml", 3), ("com.microsoft", 1), ("ai.onnx.preview.training", 1)))

    yield one("Scaler", attribute("offset", A_FLOATS, many(7, [1.0] * 4)), attribute("scale", A_FLOATS, many(7, [2.0] * 4)), domain="ai.onnx.ml")
    yield one("LabelEncoder", attribute("keys_strings", A_STRINGS, many(9, ["a", "b"])), attribute("values_floats", A_FLOATS, many(7, [2.0] * 2)), domain="ai.onnx.ml")
    yield one("RNN", attribute("activations", A_STRINGS, many(9, ["Tanh", "", "Relu"])), attribute("hidden_size", A_INT, field(3, 4)), inputs=("x", "x", "x"))
    yield one("Optional", attribute("type", A_TYPE))
    yield one("Gradient", attribute("xs", A_STRINGS, many(9, ["x"])), attribute("y", A_STRING, field(4, "x")), domain="ai.onnx.preview.training")
    yield one("Gradient", attribute("xs", A_STRINGS, many(9, ["x"])), attribute("y", A_STRING, field(4, "none")), domain="ai.onnx.preview.training")
    yield one("SkipLayerNormalization", inputs=("x", "x", "x"), domain="com.microsoft")
    yield one("If", attribute("then_branch", A_GRAPH))
    yield one("LeakyRelu", attribute("alpha", A_FLOAT, field(2, 1.0)), attribute("alpha", A_FLOAT, field(2, 1.0)))
    yield one("LeakyRelu", attribute("alpha", 99))
    yield one("Cast", attribute("to", A_TENSOR))


def with_sizes():
    def takes(*inputs):
        return model(graph([node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(len(inputs))], [value(f"x{i}", F32, d) for i, d in enumerate(inputs)],
                           [value("y0", F32, inputs[0])]))

    for inputs in ([["L", "batch"], ["batch", "L"]], [["batch", "L"], ["L", 4]], [["N", 4], ["M", 4], ["batch_size", 3]], [["", 3], ["", 4]], [["unk__1", "unk__2"], ["unk__3", 1]],
                   [["N", "N"], ["L", "N"]], [["L", 2]], [["a b", "c+"], ["2", "L*2"]], [[f"d{i}", f"e{i}"] for i in range(40)], [["N"] + [f"s{i}" for i in range(7)]] * 6):
        yield takes(*inputs)
    names = [f"t{i}" for i in range(400)]
    yield model(graph([node("Relu", ["x"], [names[0]])] + [node("Relu", [a], [b]) for a, b in zip(names, names[1:])] + [node("Relu", [names[-1]], ["y"])], [X], [Y]))
    yield model(graph([node("Relu", ["x"], ["y"])], [X], [Y], sparse=[field(1, tensor("v", F32, [1], b"\0"))]))
    # Bodies: a small constant from outside, a large one inside, names from two levels up, deeper than is read.
    large = tensor("w", F32, [4, 64], field(9, b"\0" * 1024))
    inner = graph([node("Add", ["x", "one"], ["s"]), node("MatMul", ["s", "w"], ["m"])], [], [value("m", F32, ["N", 64])], [large])
    yes = tensor("yes", 9, [], field(9, b"\1"))

    def choose(branch, outputs, other=None):
        return node("If", ["yes"], outputs, [attribute("then_branch", A_GRAPH, field(6, branch)), attribute("else_branch", A_GRAPH, field(6, other or branch))])

    one = tensor("one", F32, [1], field(9, b"\0\0\x80\x3f"))
    yield model(graph([choose(inner, ["y"])], [X, value("yes", 9, [])], [value("y", F32, ["N", 64])], [one]))
    yield model(graph([choose(graph([choose(inner, ["q"])], [], [value("q", F32, ["N", 64])]), ["y"])], [X, value("yes", 9, [])], [value("y", F32, ["N", 64])], [one]))
    nested = graph([node("Relu", ["x"], ["u"])], [], [value("u", F32, ["N", 4])])
    leaf = nested
    for _ in range(9):
        nested = graph([choose(nested, ["u"], leaf)], [], [value("u", F32, ["N", 4])])
    yield model(graph([choose(nested, ["y"])], [X], [Y], [yes]))
    yield model(graph([choose(graph([], [], [value("nobody", F32, [4])]), ["y"])], [X], [Y], [yes]))


def onnx():
    for part in (with_functions, with_tensors, with_attributes, with_sizes):
        yield from part()
