"""What people write first: one model of ONNX Runtime behind FastAPI. Bodies are raw float32, the cheapest that HTTP has; results likewise.

Started by row_throughput.py with MODEL and THREADS in the environment.
"""
import os

import numpy
import onnxruntime
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ["THREADS"])
session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
app = FastAPI()


def run(body):
    images = numpy.frombuffer(body, dtype=numpy.float32).reshape(-1, 3, 224, 224)
    return session.run(None, {name: images})[0].tobytes()


@app.post("/infer")
async def infer(request: Request):
    body = await request.body()
    return Response(await run_in_threadpool(run, body), media_type="application/octet-stream")
