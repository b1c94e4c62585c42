"""Kinds of models that the first list has not; all are in the half that may be looked at (README.md, Z6). Random weights."""
import math

import torch
import torch.nn.functional as f
from torch import nn


class VoiceActivity(nn.Module):
    """A frame of samples, the state of an LSTM cell: convolutions, one step, a probability."""
    def __init__(self, width=64):
        super().__init__()
        self.basis = nn.Conv1d(1, 130, 256, 128, padding=64, bias=False)
        self.convs = nn.Sequential(nn.Conv1d(65, 96, 3, padding=1), nn.ReLU(), nn.Conv1d(96, 64, 3, 2, 1), nn.ReLU(), nn.Conv1d(64, width, 3, 2, 1), nn.ReLU())
        self.cell, self.last = nn.LSTMCell(width, width), nn.Conv1d(width, 1, 1)

    def forward(self, x, h, c):
        y = self.basis(x.unsqueeze(1))
        y = self.convs((y[:, :65] ** 2 + y[:, 65:] ** 2).sqrt())
        h, c = self.cell(y.mean(2), (h, c))
        return self.last(h.unsqueeze(2).relu()).sigmoid().mean(2), h, c


class EntityWindow(nn.Module):
    """Hashed features of tokens summed, windows of three tokens, the larger of two pieces, a score for each pair of tag and next tag."""
    def __init__(self, width=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1500, width) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(3 * width, 2 * width) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.width, self.last = width, nn.Linear(width, 20)

    def forward(self, ids):
        x = sum(t(ids[..., k]) for k, t in enumerate(self.tables))
        for layer, norm in zip(self.layers, self.norms):
            wide = f.pad(x, (0, 0, 1, 1))
            y = layer(torch.cat([wide[:, :-2], x, wide[:, 2:]], 2))
            x = x + norm(y.unflatten(2, (self.width, 2)).amax(3))
        return self.last(x)


class DeepAndCross(nn.Module):
    """Embeddings and numbers side by side, three cross layers, three dense ones."""
    def __init__(self, fields=12, width=16):
        super().__init__()
        size = 13 + fields * width
        self.table = nn.Embedding(20000, width)
        self.cross = nn.ModuleList(nn.Linear(size, 1, bias=False) for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.last = nn.Linear(size + 32, 1)

    def forward(self, numbers, ids):
        first = x = torch.cat([numbers, self.table(ids).flatten(1)], 1)
        for layer in self.cross:
            x = first * layer(x) + x
        return torch.sigmoid(self.last(torch.cat([x, self.deep(first)], 1)))


class FactorMachine(nn.Module):
    """Sums of embeddings, squared, minus the sum of their squares, and a linear part."""
    def __init__(self):
        super().__init__()
        self.once, self.twice, self.bias = nn.Embedding(10000, 1), nn.Embedding(10000, 24), nn.Parameter(torch.zeros(1))

    def forward(self, ids):
        v = self.twice(ids)
        return torch.sigmoid(self.bias + self.once(ids).sum(1).squeeze(1) + 0.5 * (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1))


class Temporal(nn.Module):
    """Dilated causal convolutions with residuals (TCN)."""
    def __init__(self, width=48, layers=6):
        super().__init__()
        self.first = nn.Conv1d(8, width, 1)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2 ** (k // 2)) for k in range(2 * layers))
        self.last = nn.Linear(width, 4)

    def forward(self, x):
        x = self.first(x)
        for k in range(0, len(self.convs), 2):
            y = x
            for conv in self.convs[k:k + 2]:
                y = f.relu(conv(f.pad(y, (2 * conv.dilation[0], 0))))
            x = f.relu(x + y)
        return self.last(x.transpose(1, 2))


class GatedAudio(nn.Module):
    """Dilated convolutions of three taps, gates of tanh and sigmoid, sums of skips (non-causal)."""
    def __init__(self, width=40, layers=7):
        super().__init__()
        self.first = nn.Conv1d(20, width, 3, padding=1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, padding=2 ** k, dilation=2 ** k) for k in range(layers))
        self.outs = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))
        self.last = nn.Conv1d(width, 1, 1)

    def forward(self, x):
        x, total = self.first(x), 0
        for gate, out in zip(self.gates, self.outs):
            a, b = gate(x).chunk(2, 1)
            left, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = (x + left) * math.sqrt(0.5), total + skip
        return self.last(total)


class LightSegmenter(nn.Module):
    """Depthwise 5x5 and 3x3 blocks with HardSwish and squeeze-excite, a head of two scales resized to the image."""
    def __init__(self):
        super().__init__()
        def block(i, o, k, stride, dilation=1):
            return nn.Sequential(nn.Conv2d(i, 4 * i, 1, bias=False), nn.BatchNorm2d(4 * i), nn.Hardswish(),
                                 nn.Conv2d(4 * i, 4 * i, k, stride, k // 2 * dilation, dilation, 4 * i, bias=False), nn.BatchNorm2d(4 * i), nn.Hardswish(),
                                 Squeeze(4 * i), nn.Conv2d(4 * i, o, 1, bias=False), nn.BatchNorm2d(o))
        self.low = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Hardswish(), block(16, 24, 3, 2), block(24, 40, 5, 2))
        self.high = nn.Sequential(block(40, 64, 5, 2), block(64, 64, 5, 1, 2))
        self.a, self.gate, self.b, self.c = nn.Conv2d(64, 64, 1), nn.Conv2d(64, 64, 1), nn.Conv2d(40, 12, 1), nn.Conv2d(64, 12, 1)

    def forward(self, x):
        low = self.low(x)
        high = self.high(low)
        y = f.relu(self.a(high)) * torch.sigmoid(self.gate(f.adaptive_avg_pool2d(high, 1)))
        y = self.c(f.interpolate(y, size=low.shape[-2:], mode="bilinear", align_corners=False)) + self.b(low)
        return f.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class Squeeze(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x):
        return x * f.hardsigmoid(self.b(f.relu(self.a(f.adaptive_avg_pool2d(x, 1)))))


class PicoHead(nn.Module):
    """A pyramid by nearest Resize and depthwise 5x5, a head whose distances are means over softmax, points made from the image's size."""
    def __init__(self, width=48, classes=20, bins=8):
        super().__init__()
        def dw(i, o, stride=1):
            return nn.Sequential(nn.Conv2d(i, i, 5, stride, 2, groups=i, bias=False), nn.BatchNorm2d(i), nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o), nn.Hardswish())
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Hardswish(), dw(16, 32, 2), dw(32, width, 2))
        self.down, self.join, self.mix = nn.ModuleList([dw(width, width, 2), dw(width, width, 2)]), nn.ModuleList([dw(2 * width, width) for _ in range(2)]), dw(width, width)
        self.head, self.bins, self.classes = nn.ModuleList(nn.Conv2d(width, classes + 4 * bins, 1) for _ in range(3)), bins, classes
        self.register_buffer("project", torch.arange(bins, dtype=torch.float32))

    def level(self, x, head, stride):
        y = head(self.mix(x))
        h, w = y.shape[2], y.shape[3]
        scores, bins = y[:, :self.classes].sigmoid().flatten(2), y[:, self.classes:].flatten(2).transpose(1, 2)
        far = (bins.reshape(-1, h * w, 4, self.bins).softmax(3) @ self.project) * stride
        gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        points = (torch.stack([gx, gy], 2).reshape(-1, 2).float() + 0.5) * stride
        return scores, torch.cat([points - far[..., :2], points + far[..., 2:]], 2)

    def forward(self, x):
        a = self.stem(x)
        b = self.down[0](a)
        c = self.down[1](b)
        b = self.join[0](torch.cat([b, f.interpolate(c, size=b.shape[2:], mode="nearest")], 1))
        a = self.join[1](torch.cat([a, f.interpolate(b, size=a.shape[2:], mode="nearest")], 1))
        found = [self.level(v, head, s) for v, head, s in zip((a, b, c), self.head, (8, 16, 32))]
        return torch.cat([s for s, _ in found], 2), torch.cat([p for _, p in found], 1)


class Demucs(nn.Module):
    """Strided convolutions with GLU, an LSTM, transposed convolutions that add what the encoder had."""
    def __init__(self, widths=(24, 48, 96)):
        super().__init__()
        self.encode, self.decode, i = nn.ModuleList(), nn.ModuleList(), 1
        for w in widths:
            self.encode.append(nn.Sequential(nn.Conv1d(i, w, 8, 4, 2), nn.ReLU(), nn.Conv1d(w, 2 * w, 1), nn.GLU(1)))
            self.decode.insert(0, nn.Sequential(nn.Conv1d(w, 2 * w, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(w, i, 8, 4, 2)))
            i = w
        self.rnn, self.line = nn.LSTM(i, i, 1, bidirectional=True, batch_first=True), nn.Linear(2 * i, i)

    def forward(self, x):
        kept = []
        for part in self.encode:
            x = part(x)
            kept.append(x)
        x = self.line(self.rnn(x.transpose(1, 2))[0]).transpose(1, 2)
        for k, part in enumerate(self.decode):
            x = part(x + kept.pop())
            x = f.relu(x) if k + 1 < len(self.decode) else x
        return x


@torch.jit.script
def greedy(memory: torch.Tensor, keys: torch.Tensor, h: torch.Tensor, table: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    """A loop of decoder steps, each on the word that the one before chose: scores over what the encoder gave, a cell, the next word."""
    word = torch.zeros([memory.shape[0]], dtype=torch.long)
    out = torch.jit.annotate(list[torch.Tensor], [])
    for _ in range(memory.shape[1]):
        score = torch.matmul(torch.tanh(keys + torch.matmul(h, weights[0]).unsqueeze(1)), weights[1]).squeeze(2)
        context = torch.matmul(torch.softmax(score, 1).unsqueeze(1), memory).squeeze(1)
        h = torch.tanh(torch.matmul(torch.cat([table[word], context], 1), weights[2]) + torch.matmul(h, weights[3]))
        scores = torch.matmul(h, weights[4])
        word = scores.argmax(1)
        out.append(scores)
    return torch.stack(out, 1)


class Translator(nn.Module):
    """GRU encoder, additive attention, a loop that decodes as many words as there are in the input."""
    def __init__(self, width=96, words=500):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(words, width), nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        shapes = (width, width), (width, 1), (2 * width, width), (width, width), (width, words)
        self.weights, self.keys = nn.ParameterList(torch.randn(s) / s[0] ** 0.5 for s in shapes), nn.Linear(width, width)

    def forward(self, ids):
        memory, _ = self.rnn(self.embed(ids))
        return greedy(memory, self.keys(memory), memory.mean(1), self.embed.weight, list(self.weights))


class Graph(nn.Module):
    """Messages along edges, added at their ends (ScatterElements), three rounds with a GRU cell, a mean over the graph."""
    def __init__(self, width=64):
        super().__init__()
        self.first, self.message, self.cell, self.last = nn.Linear(16, width), nn.Linear(2 * width + 4, width), nn.GRUCell(width, width), nn.Linear(width, 3)

    def forward(self, nodes, start, end, edges):
        x = f.relu(self.first(nodes))
        for _ in range(3):
            m = f.relu(self.message(torch.cat([x[start], x[end], edges], 1)))
            total = torch.zeros_like(x).scatter_add(0, end.unsqueeze(1).expand_as(m), m)
            x = self.cell(total, x)
        return self.last(x), self.last(x.mean(0))


class GraphAttention(nn.Module):
    """Softmax over each node's edges: scatter of the largest, of the sums."""
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.first, self.a, self.b, self.last, self.heads = nn.Linear(16, width * heads), nn.Linear(width, 1), nn.Linear(width, 1), nn.Linear(width * heads, 7), heads

    def forward(self, nodes, start, end):
        x = self.first(nodes).unflatten(1, (self.heads, -1))
        s = f.leaky_relu(self.a(x)[start] + self.b(x)[end], 0.2).squeeze(2)
        at = end.unsqueeze(1).expand_as(s)
        top = torch.full((nodes.shape[0], self.heads), -1e4).scatter_reduce(0, at, s, "amax")
        e = (s - top[end]).exp()
        total = torch.zeros_like(top).scatter_add(0, at, e)
        w = (e / (total[end] + 1e-6)).unsqueeze(2) * x[start]
        y = torch.zeros_like(x).index_put((end,), w, accumulate=True)
        return self.last(f.elu(y.flatten(1)))


class Experts(nn.Module):
    """A transformer's layers with four experts, of which a router chooses two for each token."""
    def __init__(self, width=96, experts=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.qkv, self.out = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers)), nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.route = nn.ModuleList(nn.Linear(width, experts) for _ in range(layers))
        self.experts = nn.ModuleList(nn.ModuleList(nn.Sequential(nn.Linear(width, 192), nn.SiLU(), nn.Linear(192, width)) for _ in range(experts)) for _ in range(layers))
        self.last = nn.Linear(width, 1000)

    def forward(self, ids):
        x = self.embed(ids)
        for k, (qkv, out) in enumerate(zip(self.qkv, self.out)):
            q, key, v = (p.unflatten(-1, (4, -1)).transpose(1, 2) for p in qkv(self.norms[2 * k](x)).chunk(3, -1))
            x = x + out(f.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).flatten(2))
            y = self.norms[2 * k + 1](x)
            top, at = self.route[k](y).softmax(-1).topk(2, -1)
            top, total = top / top.sum(-1, keepdim=True), torch.zeros_like(x)
            for e, expert in enumerate(self.experts[k]):
                weight = torch.where(at == e, top, torch.zeros_like(top)).sum(-1, keepdim=True)
                total = total + weight * expert(y)
            x = x + total
        return self.last(x)


class Keywords(nn.Module):
    """STFT, mel bands, log, a small depthwise network: a keyword spotter from samples."""
    def __init__(self, n=400, hop=160, bands=40, width=64):
        super().__init__()
        self.n, self.hop = n, hop
        self.register_buffer("window", torch.hann_window(n))
        self.register_buffer("mel", torch.rand(n // 2 + 1, bands) / 20)
        self.first = nn.Conv2d(1, width, (10, 4), (2, 2), (5, 1))
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Conv2d(width, width, 3, 1, 1, groups=width), nn.BatchNorm2d(width), nn.ReLU(),
                                                    nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(4)))
        self.last = nn.Linear(width, 12)

    def forward(self, x):
        s = torch.stft(x, self.n, self.hop, self.n, self.window, center=False, return_complex=False)
        y = torch.log((s ** 2).sum(3).transpose(1, 2) @ self.mel + 1e-6)
        return self.last(self.blocks(f.relu(self.first(y.unsqueeze(1)))).mean((2, 3)))


class Denoiser(nn.Module):
    """The U-Net of a diffusion model in small: group norms, SiLU, an embedding of the step, attention in the middle."""
    def __init__(self, width=32):
        super().__init__()
        def res(i, o):
            return nn.ModuleDict(dict(a=nn.GroupNorm(8, i), b=nn.Conv2d(i, o, 3, padding=1), t=nn.Linear(128, o), c=nn.GroupNorm(8, o), d=nn.Conv2d(o, o, 3, padding=1),
                                      s=nn.Conv2d(i, o, 1)))
        self.time = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128))
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))
        self.down, self.mid, self.up = res(width, width), res(width, 2 * width), res(3 * width, width)
        self.shrink, self.grow, self.norm = nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.GroupNorm(8, 2 * width)
        self.qkv, self.out = nn.Conv2d(2 * width, 6 * width, 1), nn.Conv2d(2 * width, 2 * width, 1)

    def res(self, p, x, t):
        y = p["b"](f.silu(p["a"](x))) + p["t"](f.silu(t))[:, :, None, None]
        return p["s"](x) + p["d"](f.silu(p["c"](y)))

    def attend(self, x):
        q, k, v = (p.flatten(2).unflatten(1, (4, -1)).transpose(2, 3) for p in self.qkv(self.norm(x)).chunk(3, 1))
        y = f.scaled_dot_product_attention(q, k, v).transpose(2, 3).flatten(1, 2)
        return x + self.out(y.unflatten(2, (x.shape[2], x.shape[3])))

    def forward(self, x, step):
        angle = step[:, None].float() * torch.exp(torch.arange(32) * (-math.log(1e4) / 32))
        t = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        a = self.res(self.down, self.first(x), t)
        y = self.attend(self.res(self.mid, self.shrink(a), t))
        y = self.grow(f.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.last(self.res(self.up, torch.cat([y, a], 1), t))


class Linear1(nn.Module):
    """Attention that is linear in the length, by einsum (Performer's form), and a gated layer."""
    def __init__(self, width=96, heads=4):
        super().__init__()
        self.embed, self.heads = nn.Embedding(1000, width), heads
        self.qkv, self.out = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2)), nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.gate, self.norm, self.last = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2)), nn.ModuleList(nn.LayerNorm(width) for _ in range(4)), nn.Linear(2 * width, 10)
        self.back = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))

    def forward(self, ids):
        x = self.embed(ids)
        for k in range(2):
            q, key, v = (p.unflatten(2, (self.heads, -1)) for p in self.qkv[k](self.norm[2 * k](x)).chunk(3, 2))
            q, key = f.elu(q) + 1, f.elu(key) + 1
            y = torch.einsum("blhd,bhde->blhe", q, torch.einsum("blhd,blhe->bhde", key, v))
            y = y / torch.einsum("blhd,bhd->blh", q, key.sum(1)).unsqueeze(3)
            x = x + self.out[k](y.flatten(2))
            a, b = self.gate[k](self.norm[2 * k + 1](x)).chunk(2, 2)
            x = x + self.back[k](f.gelu(a) * b)
        return self.last(torch.cat([x.mean(1), x.amax(1)], 1))


@torch.jit.script
def viterbi(scores: torch.Tensor, trans: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The best path through a linear-chain CRF: forward along the length, then back."""
    alpha = scores[:, 0]
    back = torch.jit.annotate(list[torch.Tensor], [])
    for t in range(1, scores.shape[1]):
        best, at = (alpha.unsqueeze(2) + trans.unsqueeze(0)).max(1)
        alpha = best + scores[:, t]
        back.append(at)
    tag = alpha.argmax(1)
    path = [tag]
    for t in range(len(back)):
        tag = back[len(back) - 1 - t].gather(1, tag.unsqueeze(1)).squeeze(1)
        path.append(tag)
    return torch.stack(path, 1).flip(1), alpha.amax(1)


class CrfTagger(nn.Module):
    def __init__(self, tags=9):
        super().__init__()
        self.embed, self.rnn, self.last = nn.Embedding(3000, 64), nn.LSTM(64, 64, batch_first=True, bidirectional=True), nn.Linear(128, tags)
        self.trans = nn.Parameter(torch.randn(tags, tags))

    def forward(self, ids):
        return viterbi(self.last(self.rnn(self.embed(ids))[0]), self.trans)


class Points(nn.Module):
    """PointNet with its first transform: 1x1 convolutions over points, the largest of each channel, a 3x3 matrix from them."""
    def __init__(self):
        super().__init__()
        def mlp(*w):
            return nn.Sequential(*(m for i, o in zip(w, w[1:]) for m in (nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU())))
        self.look, self.turn = mlp(3, 64, 128, 256), nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 9))
        self.a, self.b, self.last = mlp(3, 64, 64), mlp(64, 128, 512), nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 40))

    def forward(self, x):
        turn = self.turn(self.look(x).amax(2)).unflatten(1, (3, 3)) + torch.eye(3)
        x = self.a((x.transpose(1, 2) @ turn).transpose(1, 2))
        return self.last(self.b(x).amax(2)).log_softmax(1)


class Forecast(nn.Module):
    """A series normalised by its own mean and deviation, cut into patches by unfold, a transformer over them, the forecast scaled back (PatchTST)."""
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.first, self.place, self.heads = nn.Linear(16, width), nn.Parameter(torch.randn(23, width) / 50), heads
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, 128, batch_first=True, activation="gelu") for _ in range(2))
        self.last = nn.Linear(23 * width, 24)

    def forward(self, x):
        mean, deviation = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False).add(1e-5).sqrt()
        y = ((x - mean) / deviation).transpose(1, 2).unfold(2, 16, 8)
        b, c = y.shape[0], y.shape[1]
        y = self.first(y).flatten(0, 1) + self.place
        for layer in self.layers:
            y = layer(y)
        return self.last(y.flatten(1)).reshape(b, c, 24).transpose(1, 2) * deviation + mean


class Codes(nn.Module):
    """An autoencoder whose middle is the nearest of 256 vectors (VQ-VAE)."""
    def __init__(self, width=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1))
        self.book = nn.Embedding(256, width)
        self.decode = nn.Sequential(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid())

    def forward(self, x):
        z = self.encode(x).permute(0, 2, 3, 1)
        far = (z ** 2).sum(3, keepdim=True) - 2 * z @ self.book.weight.t() + (self.book.weight ** 2).sum(1)
        at = far.argmin(3)
        return self.decode(self.book(at).permute(0, 3, 1, 2)), at


class Flow(nn.Module):
    """Features of two images, their correlation in a window, a flow that warps one of them (GridSample)."""
    def __init__(self, width=32):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(width, width, 3, 2, 1), nn.LeakyReLU(0.1))
        self.guess = nn.Sequential(nn.Conv2d(25 + width, 48, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(48, 2, 3, padding=1))

    def forward(self, a, b):
        x, y = self.look(a), self.look(b)
        wide = f.pad(y, (2, 2, 2, 2))
        h, w = x.shape[2], x.shape[3]
        near = torch.cat([(x * wide[:, :, i:i + h, j:j + w]).mean(1, keepdim=True) for i in range(5) for j in range(5)], 1)
        flow = self.guess(torch.cat([f.leaky_relu(near, 0.1), x], 1)).permute(0, 2, 3, 1)
        gy, gx = torch.meshgrid(torch.linspace(-1, 1, 24), torch.linspace(-1, 1, 24), indexing="ij")
        return flow, f.grid_sample(y, torch.stack([gx, gy], 2) + flow * 0.1, align_corners=True)


class SelectiveScan(nn.Module):
    """Mamba's layer as its plain export has it: a depthwise causal convolution, a recurrence unrolled over 16 steps."""
    def __init__(self, width=64, state=8):
        super().__init__()
        self.embed, self.into, self.conv = nn.Embedding(500, width), nn.Linear(width, 2 * width), nn.Conv1d(width, width, 4, groups=width)
        self.bcd, self.d, self.a, self.out = nn.Linear(width, 2 * state + 4), nn.Linear(4, width), nn.Parameter(torch.rand(width, state).log()), nn.Linear(width, 500)
        self.state, self.skip = state, nn.Parameter(torch.ones(width))

    def forward(self, ids):
        u, z = self.into(self.embed(ids)).chunk(2, 2)
        u = f.silu(self.conv(f.pad(u.transpose(1, 2), (3, 0))).transpose(1, 2))
        b, c, d = self.bcd(u).split([self.state, self.state, 4], 2)
        d = f.softplus(self.d(d))
        decay, add = torch.exp(d.unsqueeze(3) * -self.a.exp()), d.unsqueeze(3) * b.unsqueeze(2) * u.unsqueeze(3)
        h, out = torch.zeros_like(add[:, 0]), []
        for t in range(16):
            h = decay[:, t] * h + add[:, t]
            out.append((h * c[:, t].unsqueeze(1)).sum(2))
        return self.out((torch.stack(out, 1) + u * self.skip) * f.silu(z))


class Sessions(nn.Module):
    """Self-attention over what somebody bought (SASRec) with a padding mask, scored against all articles."""
    def __init__(self, width=48):
        super().__init__()
        self.embed, self.place = nn.Embedding(2000, width), nn.Embedding(50, width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.norms, self.mlp = nn.ModuleList(nn.LayerNorm(width, eps=1e-8) for _ in range(3)), nn.Sequential(nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, width, 1))

    def forward(self, ids):
        n = ids.shape[1]
        x = self.embed(ids) * math.sqrt(48) + self.place(torch.arange(n))
        keep = (ids != 0).unsqueeze(2).float()
        x = x * keep
        s = self.q(self.norms[0](x)) @ self.k(x).transpose(1, 2) / math.sqrt(48)
        s = s.masked_fill(torch.triu(torch.ones(n, n, dtype=torch.bool), 1), -1e9)
        x = self.norms[1](x + s.softmax(2) @ self.v(x))
        x = self.norms[2](x + self.mlp(x.transpose(1, 2)).transpose(1, 2)) * keep
        return x[:, -1] @ self.embed.weight.t()


KINDS = {"voice_activity": VoiceActivity, "entity_window": EntityWindow, "deep_cross": DeepAndCross, "factor_machine": FactorMachine, "temporal": Temporal,
         "gated_audio": GatedAudio, "light_segmenter": LightSegmenter, "pico": PicoHead, "demucs": Demucs, "translator": Translator, "graph": Graph,
         "graph_attention": GraphAttention, "experts": Experts, "keywords": Keywords, "denoiser": Denoiser, "linear_attention": Linear1, "crf": CrfTagger,
         "points": Points, "forecast": Forecast, "codes": Codes, "flow": Flow, "selective_scan": SelectiveScan, "sessions": Sessions}
