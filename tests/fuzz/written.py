"""Inputs of the fuzz targets that are written out, since mutations hardly find them: what a reader takes only as a whole. corpora.py puts them beside
those that were found; none of them lies in the tree as bytes.
"""
import written_config
import written_grpc
import written_http
import written_onnx
import written_rpc
import written_worker

# Of a target, a function that yields its inputs.
TARGETS = {"fuzz_config": written_config.config, "fuzz_engine": written_onnx.onnx, "fuzz_grpc": written_grpc.grpc, "fuzz_grpc_message": written_grpc.grpc_message, "fuzz_http": written_http.http, "fuzz_onnx": written_onnx.onnx,
           "fuzz_rpc": written_rpc.rpc, "fuzz_worker": written_worker.worker}
