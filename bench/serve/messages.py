"""Requests as bytes: HTTP/1.1 with tensors as JSON, binary or by reference, and gRPC's message."""
import json
import struct


def http_request(path, body=b"", headers=None, method="POST"):
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def infer_path(model):
    return f"/v2/models/{model}/infer"


def json_body(name, dtype, shape, data):
    return json.dumps({"inputs": [{"name": name, "datatype": dtype, "shape": shape, "data": data}]}).encode()


def binary_body(name, dtype, shape, data):
    """(body, headers): the tensor behind the JSON, and the outputs asked for in the same way."""
    head = json.dumps({"inputs": [{"name": name, "datatype": dtype, "shape": shape, "parameters": {"binary_data_size": len(data)}}],
                       "parameters": {"binary_data_output": True}}).encode()
    return head + data, {"Inference-Header-Content-Length": len(head), "Content-Type": "application/octet-stream"}


def shared_body(name, dtype, shape, output, region, size):
    """Input at the start of the region, output `size` bytes behind it."""
    def place(offset):
        return {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": offset}
    return json.dumps({"inputs": [{"name": name, "datatype": dtype, "shape": shape, "parameters": place(0)}],
                       "outputs": [{"name": output, "parameters": place(size)}]}).encode()


# ---- gRPC ----

def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, data):
    """Of length-delimited kind: strings, bytes, messages, packed numbers."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def grpc_request(model, name, dtype, shape, data):
    """ModelInferRequest with raw contents, and gRPC's five bytes in front."""
    tensor = field(1, name.encode()) + field(2, dtype.encode()) + field(3, b"".join(map(varint, shape)))
    message = field(1, model.encode()) + field(5, tensor) + field(7, data)
    return struct.pack(">BI", 0, len(message)) + message
