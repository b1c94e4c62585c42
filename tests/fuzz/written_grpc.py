"""JSON for fuzz_grpc_message, of each kind of field, fitting and not. The first byte says of which message."""
import json

PARAMETER, CONFIG, REGION, SETTINGS = 208, 200, 205, 202


def grpc_message():
    for value in ({"double_param": 1.5}, {"double_param": "a"}, {"double_param": 7}, {"bool_param": 1}, {"int64_param": "x"}, {"int64_param": "-5"}, {"uint64_param": "99999999999999999999"},
                  {"string_param": 5}, {"int64_param": ""}, {"none": 1}, [], 7):
        yield bytes([PARAMETER]) + json.dumps(value).encode()
    for value in ({"input": 7}, {"input": [7]}, {"input": [{"dims": [1, "2", 2.5]}]}, {"input": [{"data_type": "TYPE_NONE"}]}, {"input": [{"data_type": 3, "dims": ["-1"]}]}, {"parameters": []},
                  {"parameters": {"a": 7}}, {"version_policy": {"specific": {"versions": [1, 2]}}}, {"dynamic_batching": {"priority_queue_policy": {"1": {}, "x": {}}}},
                  {"max_batch_size": True}, {"name": None}):
        yield bytes([CONFIG]) + json.dumps(value).encode()
    yield bytes([REGION]) + json.dumps({"name": "r", "byte_size": "18446744073709551615", "offset": -1}).encode()
    yield bytes([SETTINGS]) + json.dumps({"settings": {"a": {"value": ["1", 2]}}}).encode()
    # As bytes: numbers cut short, and a double of an attribute that has one.
    yield bytes([4]) + b"\x21\0\0"
