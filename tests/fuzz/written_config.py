"""Models' configurations for fuzz_config: such as fit its model, `input` and `t1` of [N, 4], and each that is refused for one reason. The first byte says
which form it is."""
import json


def said(name, dims, **more):
    return dict({"name": name, "data_type": "TYPE_FP32", "dims": dims}, **more)


FIT = {"max_batch_size": 8, "input": [said("input", [4])], "output": [said("t1", [4])]}
PAIR = {"input_name": "input", "output_name": "t1"}
CONFIGS = [
    FIT,
    dict(FIT, input=[said("input", [2, 2], reshape={"shape": [4]})], output=[said("t1", [1, 4], reshape={"shape": [4]}, label_filename="l.txt")]),
    dict(FIT, sequence_batching={"max_sequence_idle_microseconds": "5", "state": [PAIR]}),
    dict(FIT, sequence_batching={"state": [PAIR, PAIR]}),
    dict(FIT, sequence_batching={"state": [PAIR] * 300}),
    dict(FIT, sequence_batching={"max_sequence_idle_microseconds": str(2**62)}),
    dict(FIT, input=[said("input", [5])]),
    dict(FIT, input=[said("input", [4, 4])]),
    dict(FIT, input=[said("input", [-1])]),
    dict(FIT, input=[dict(said("input", [4]), data_type="TYPE_INT8")]),
    dict(FIT, input=[said("input", [4]), said("other", [4])]),
    dict(FIT, input=[said("input", [4]), said("input", [4])]),
    dict(FIT, input=[said("input", [1] * 9)]),
    dict(FIT, input=[said("input", [4], optional=True)]),
    dict(FIT, input=[dict(said("input", [4]), data_type="TYPE_BF16")]),
    dict(FIT, input=[said("input", [2**40, 2**40], reshape={"shape": [2**40, 2**40, 1]})]),
    dict(FIT, max_batch_size=0, input=[said("input", [-1, 4])], output=[said("t1", [-1, 4])]),
    dict(FIT, max_batch_size=0, dynamic_batching={}),
    dict(FIT, max_batch_size=2**40),
    dict(FIT, version_policy={"latest": {"num_versions": 3}}),
    dict(FIT, version_policy={"latest": {}, "all": {}}),
    dict(FIT, version_policy={"specific": {"versions": []}}),
    dict(FIT, platform="ensemble"),
    dict(FIT, model_transaction_policy={"decoupled": True}),
    dict(FIT, default_model_filename="../m.onnx"),
    dict(FIT, model_warmup=[{"name": "w"}] * 200),
    dict(FIT, dynamic_batching={"default_queue_policy": {"timeout_action": "DELAY", "default_timeout_microseconds": 5}}),
    dict(FIT, dynamic_batching={"default_queue_policy": {"default_timeout_microseconds": 5}, "max_queue_delay_microseconds": 1.5}),
] + [dict(FIT, parameters={key: {"string_value": text}}) for key, text in (("class", "99"), ("tenant", "t" * 300), ("slice", "s" * 300), ("precision", "f99"))
] + [dict(FIT, parameters={"class": {}})
] + [dict(FIT, model_warmup=[{"name": "w", "inputs": {"input": one}}])
     for one in ({"dims": [4]}, {"data_type": "TYPE_FP32", "dims": [-1]}, {"data_type": "TYPE_FP32", "input_data_file": "f"}, {"data_type": "TYPE_FP32", "random_data": True})]


def config():
    for one in CONFIGS:
        yield b"1" + json.dumps(one).encode()
    yield b"1[]"
    yield b"1" + json.dumps({"parameters": {"a": [[1]]}, "input": [None]}).encode()
    deep = {}
    for _ in range(40):
        deep = {"a": deep}
    yield b"1" + json.dumps(deep).encode()
    yield b"0" + b"a {" * 40
    yield b"0parameters { key: 'a' } parameters: 7 input: 0x"
    yield b"0name: \"m\" max_batch_size: 017 max_batch_size: 0x1F"
