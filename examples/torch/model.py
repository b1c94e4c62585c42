"""A PyTorch model to serve.

    switchyard import examples/torch/model.py:make_model --python build/venv-torch/bin/python
    switchyard models load examples/torch/make_model.sypkg
"""

import torch
from torch import nn


def make_model():
    """The model, inputs that it takes, and what torch.onnx.export is told besides: the first dimension is open."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
    return model, (torch.zeros(2, 64),), {"dynamic_shapes": ({0: torch.export.Dim("batch")},), "input_names": ["x"], "output_names": ["y"]}
