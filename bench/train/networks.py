"""The networks that training is compared with PyTorch on, what they are fed, and how weights go from one side to the other."""
import json

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 256), nn.Linear(256, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(64 * 49, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = F.max_pool2d(F.relu(self.conv3(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BiLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, 32)
        self.lstm = nn.LSTM(32, 64, bidirectional=True, batch_first=True)
        self.classifier = nn.Linear(128, 8)

    def forward(self, x):
        return self.classifier(self.lstm(self.embedding(x))[0].mean(1))

    def take(self, weights):
        """ONNX has the gates as input, output, forget, cell; PyTorch as input, forget, cell, output."""
        def order(a):
            i, o, f, c = np.split(a, 4)
            return torch.from_numpy(np.concatenate([i, f, c, o]))
        state = self.state_dict()
        for d, suffix in enumerate(("", "_reverse")):
            bias_w, bias_r = np.split(weights["lstm.bias"][d], 2)
            state["lstm.weight_ih_l0" + suffix] = order(weights["lstm.weight_ih"][d])
            state["lstm.weight_hh_l0" + suffix] = order(weights["lstm.weight_hh"][d])
            state["lstm.bias_ih_l0" + suffix], state["lstm.bias_hh_l0" + suffix] = order(bias_w), order(bias_r)
        for name in ("embedding.weight", "classifier.weight", "classifier.bias"):
            state[name] = torch.from_numpy(weights[name].copy())
        self.load_state_dict(state)


class ConvBn(nn.Module):
    def __init__(self, n_in, n_out, kernel, stride):
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(n_out)

    def forward(self, x):
        return self.bn(self.conv(x))


class Bottleneck(nn.Module):
    def __init__(self, n_in, width, stride):
        super().__init__()
        self.c1, self.c2 = ConvBn(n_in, width, 1, 1), ConvBn(width, width, 3, stride)
        self.c3 = ConvBn(width, 4 * width, 1, 1)
        self.downsample = ConvBn(n_in, 4 * width, 1, stride) if n_in != 4 * width or stride != 1 else None

    def forward(self, x):
        y = self.c3(F.relu(self.c2(F.relu(self.c1(x), inplace=True)), inplace=True))
        return F.relu(y + (self.downsample(x) if self.downsample else x), inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBn(3, 64, 7, 2)
        n_in, self.blocks = 64, nn.ModuleDict()
        for stage, n in enumerate((3, 4, 6, 3)):
            for i in range(n):
                self.blocks[f"layer{stage + 1}-{i}"] = Bottleneck(n_in, 64 << stage, 2 if stage and not i else 1)
                n_in = 256 << stage
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        for block in self.blocks.values():
            x = block(x)
        return self.fc(x.mean((2, 3)))

    def take(self, weights):
        def put(module, scope):
            found = {k: torch.from_numpy(v.copy()) for k, v in weights.items() if k.startswith(scope + ".")}
            with torch.no_grad():
                module.conv.weight.copy_(found[f"{scope}.conv.weight"])
                module.bn.weight.copy_(found[f"{scope}.bn.weight"])
                module.bn.bias.copy_(found[f"{scope}.bn.bias"])
        put(self.stem, "stem")
        for name, block in self.blocks.items():
            scope = name.replace("-", ".")
            for i, part in enumerate((block.c1, block.c2, block.c3)):
                put(part, f"{scope}.{i + 1}")
            if block.downsample:
                put(block.downsample, f"{scope}.downsample")
        with torch.no_grad():
            self.fc.weight.copy_(torch.from_numpy(weights["fc.weight"].copy()))
            self.fc.bias.copy_(torch.from_numpy(weights["fc.bias"].copy()))


class Putter:
    """Copies arrays of the model's names into parameters. MatMul's weights are transposed there."""

    def __init__(self, weights):
        self.weights = weights

    def __call__(self, to, name, transposed=False):
        value = torch.from_numpy(self.weights[name].copy())
        with torch.no_grad():
            to.copy_(value.T if transposed else value)

    def linear(self, module, name):
        self(module.weight, name + ".weight", True)
        self(module.bias, name + ".bias")

    def plain(self, module, name):
        self(module.weight, name + ".weight")
        self(module.bias, name + ".bias")


class EncoderLayer(nn.Module):
    def __init__(self, width, heads, inner, eps=1e-5):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, mask=None):
        def split(y):
            return y.unflatten(2, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.query(x)), split(self.key(x)), split(self.value(x)), mask)
        x = self.norm1(x + self.output(y.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.outer(F.gelu(self.inner(x))))


class Encoder(nn.Module):
    """examples/models/model_training.c: tokens, positions, layers, the mean, a classifier."""

    def __init__(self, layers=12, width=768, heads=12, inner=3072, vocabulary=30522, length=128, classes=16):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(1, length, width))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads, inner) for _ in range(layers))
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        x = self.norm(self.embedding(x) + self.position)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x.mean(1))

    def take(self, weights):
        put = Putter(weights)
        put(self.embedding.weight, "embedding.weight")
        put(self.position, "position.weight")
        put.plain(self.norm, "embedding.norm")
        for i, layer in enumerate(self.layers):
            scope = f"layer.{i}"
            for part in ("query", "key", "value", "output"):
                put.linear(getattr(layer, part), f"{scope}.attention.{part}")
            put.linear(layer.inner, scope + ".inner")
            put.linear(layer.outer, scope + ".outer")
            put.plain(layer.norm1, scope + ".norm1")
            put.plain(layer.norm2, scope + ".norm2")
        put.plain(self.classifier, "classifier")


class Bert(nn.Module):
    """examples/models/model_bert.c with a classifier: three inputs, a mask, the pooler."""

    def __init__(self, layers=12, width=768, heads=12, inner=3072, vocabulary=30522, positions=512, classes=16):
        super().__init__()
        self.words, self.types = nn.Embedding(vocabulary, width), nn.Embedding(2, width)
        self.positions = nn.Embedding(positions, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(EncoderLayer(width, heads, inner, eps=1e-12) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, ids, mask, types):
        places = self.positions(torch.arange(ids.shape[1]))
        x = self.norm(self.words(ids) + self.types(types) + places)
        mask = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))

    def take(self, weights):
        put = Putter(weights)
        for module, name in ((self.words, "word"), (self.types, "token_type"), (self.positions, "position")):
            put(module.weight, f"embeddings.{name}_embeddings.weight")
        put.plain(self.norm, "embeddings.LayerNorm")
        for i, layer in enumerate(self.layers):
            scope = f"encoder.layer.{i}"
            for part in ("query", "key", "value"):
                put.linear(getattr(layer, part), f"{scope}.attention.self.{part}")
            put.linear(layer.output, scope + ".attention.output.dense")
            put.linear(layer.inner, scope + ".intermediate.dense")
            put.linear(layer.outer, scope + ".output.dense")
            put.plain(layer.norm1, scope + ".attention.output.LayerNorm")
            put.plain(layer.norm2, scope + ".output.LayerNorm")
        put.plain(self.pooler, "pooler.dense")
        put.plain(self.classifier, "classifier")


SGD = {"kind": "sgd", "learning_rate": 0.01, "momentum": 0.9}


class Net:
    """A network on both sides: its model here, PyTorch's, the batch, for each input its sample's shape and the numbers that it is drawn
    from (0 for floats, else whole ones below it), the optimizer, and the batch that losses are compared with (100 steps of the full one would take
    an hour)."""

    def __init__(self, model, make, batch, classes, inputs, precisions=("f32",), optimizer=SGD, loss_batch=None):
        self.model, self.make, self.batch, self.classes = model, make, batch, classes
        self.inputs, self.precisions, self.optimizer, self.loss_batch = inputs, precisions, optimizer, loss_batch or batch


def bert_inputs(length, vocabulary):
    return {"input_ids": ((length,), vocabulary), "attention_mask": ((length,), 2), "token_type_ids": ((length,), 2)}


# ResNet-50: 0.1 for a batch of 256, as is usual, so this for the 4 that losses are compared with. BERT: what it is fine-tuned with.
RESNET_SGD = {"kind": "sgd", "learning_rate": 0.0016, "momentum": 0.9}
BERT_ADAMW = {"kind": "adamw", "learning_rate": 5e-5, "weight_decay": 0.01}
BOTH = ("f32", "bf16")
NETS = {
    "mlp": Net("fashion_mlp", Mlp, 64, 10, {"input": ((1, 28, 28), 0)}),
    "cnn": Net("mnist_cnn", Cnn, 64, 10, {"input": ((1, 28, 28), 0)}),
    "bilstm": Net("text_bilstm", BiLstm, 64, 8, {"bytes": ((96,), 256)}),
    "transformer": Net("text_transformer", lambda: Encoder(2, 64, 4, 256, 256, 96, 8), 64, 8, {"tokens": ((96,), 256)}),
    "bert_tiny": Net("bert_tiny_sequence", lambda: Bert(2, 128, 2, 512, 1000, 64, 8), 8, 8, bert_inputs(32, 1000)),
    "resnet50": Net("resnet50", ResNet50, 16, 1000, {"input": ((3, 224, 224), 0)}, BOTH, RESNET_SGD, 4),
    "encoder": Net("bert_classifier", Encoder, 8, 16, {"tokens": ((128,), 30522)}, BOTH, BERT_ADAMW, 2),
    "bert_base": Net("bert_sequence", Bert, 8, 16, bert_inputs(128, 30522), optimizer=BERT_ADAMW, loss_batch=2),
}


# ---- both sides' data -----------------------------------------------------------------------------------------

def weights_of(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def load(net, weights):
    """The weights, or gradients of them, as PyTorch's network has them."""
    if hasattr(net, "take"):
        net.take(weights)
    else:
        net.load_state_dict({k: torch.from_numpy(weights[k].copy()) for k in net.state_dict()})
    return net


def draw(random, net, name, shape, below, kinds):
    """An input's samples. What is in them depends on the kind, under noise: images have the kind's blotches; half of a text's tokens are of
    the kind's own sixteenth of the vocabulary."""
    n = len(kinds)
    if not below:
        channels, height, width = shape
        blotches = random.standard_normal((kinds.max() + 1, channels, 4, 4), np.float32)
        values = np.empty((n, *shape), np.float32)
        for value, kind in zip(values, kinds):
            value[:] = np.kron(blotches[kind], np.ones((-(-height // 4), -(-width // 4)), np.float32))[:, :height, :width]
            value += random.standard_normal(shape, np.float32)
        return values / np.float32(2 ** 0.5)
    values = random.integers(below > 2, below, (n, *shape), dtype=np.int64)
    if below > 2:
        own = 1 + (kinds[:, None] + 16 * random.integers(0, (below - 17) // 16, (n, *shape))) % (below - 1)
        values = np.where(random.random((n, *shape)) < 0.5, own, values)
    if name == "attention_mask":
        values[:, 0] = 1  # a row of nothing has no attention
    return values


def make_data(folder, net, n_batches, batch=None):
    """Into .npy files, and as arrays: a list with each input's, and labels. It can be learnt, but for the tenth of the labels that are another
    kind's: a loss that falls to nothing, or that of noise learnt by heart, would compare roundings."""
    random, n = np.random.default_rng(7), (batch or net.batch) * n_batches
    kinds = random.integers(0, min(net.classes, 8), n, dtype=np.int64)
    inputs = [draw(random, net, name, shape, below, kinds) for name, (shape, below) in net.inputs.items()]
    for name, values in zip(net.inputs, inputs):
        np.save(folder / f"{name}.npy", values)
    labels = np.where(random.random(n) < 0.1, random.integers(0, min(net.classes, 8), n), kinds)
    np.save(folder / "labels.npy", labels)
    return inputs, labels


def write_job(folder, path, net, optimizer, batch=None, **more):
    job = {"name": "job", "model": str(path.resolve()), "batch": batch or net.batch, "epochs": 1000000000, "optimizer": optimizer,
           "data": {"kind": "npy", "inputs": {name: f"{name}.npy" for name in net.inputs}, "labels": "labels.npy",
                    "shuffle": False}, **more}
    to = folder / f"job-{len(list(folder.iterdir()))}.json"
    to.write_text(json.dumps(job))
    return str(to)
