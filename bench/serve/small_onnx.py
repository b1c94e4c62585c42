"""ONNX files of one node, written field by field: benches need models of given sizes, and nothing installed to make them."""
import array

from messages import field, varint

FLOAT = 1


def number(at, value):
    return varint(at << 3) + varint(value)


def value_info(name, shape):
    """A float32 tensor; text in the shape is an open dimension."""
    dims = b"".join(field(1, field(2, n.encode()) if isinstance(n, str) else number(1, n)) for n in shape)
    return field(1, name.encode()) + field(2, field(1, number(1, FLOAT) + field(2, dims)))


def constant(name, shape, values):
    """values: an array of floats, little-endian as the machines are that this runs on."""
    return b"".join(number(1, n) for n in shape) + number(2, FLOAT) + field(8, name.encode()) + field(9, values.tobytes())


def model(name, op, inputs, x, y, constants=()):
    """x, y: (name, shape) of the only input and output."""
    node = b"".join(field(1, one.encode()) for one in inputs) + field(2, y[0].encode()) + field(4, op.encode())
    graph = field(1, node) + field(2, name.encode()) + b"".join(field(5, one) for one in constants) + field(11, value_info(*x)) + field(12, value_info(*y))
    return number(1, 8) + field(7, graph) + field(8, field(1, b"") + number(2, 13))


def identity(name, width):
    return model(name, "Identity", ["input"], ("input", ["N", width]), ("output", ["N", width]))


def scale(name, width, factor):
    """Multiplies by factor times the unit matrix: `width` squared weights that are moved, and an answer that tells the factor."""
    weights = array.array("f", bytes(4 * width * width))
    for i in range(width):
        weights[i * width + i] = factor
    return model(name, "MatMul", ["x", "w"], ("x", ["N", width]), ("y", ["N", width]), [constant("w", [width, width], weights)])
