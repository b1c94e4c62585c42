"""Small networks, of some microseconds each, and kinds that people write for themselves; all are in the half that may be looked at (README.md, Z6). Random
weights."""
import torch
import torch.nn.functional as f
from torch import nn


def dense(*sizes):
    """Layers with ReLU between them."""
    parts = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


class SplineLayer(nn.Module):
    """A weighted sum of B-splines of each input (Kolmogorov-Arnold network), beside a linear layer of its SiLU."""
    def __init__(self, size, out, intervals=5, order=3):
        super().__init__()
        knots = (torch.arange(-order, intervals + order + 1) * 2 / intervals - 1).expand(size, -1).contiguous()
        self.register_buffer("knots", knots)
        self.order, self.base, self.spline = order, nn.Linear(size, out, bias=False), nn.Linear(size * (intervals + order), out, bias=False)

    def forward(self, x):
        t, at = self.knots, x.unsqueeze(2)
        b = ((at >= t[:, :-1]) & (at < t[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (at - t[:, :-(k + 1)]) / (t[:, k:-1] - t[:, :-(k + 1)]) * b[:, :, :-1]
            b = left + (t[:, k + 1:] - at) / (t[:, k + 1:] - t[:, 1:-k]) * b[:, :, 1:]
        return self.base(f.silu(x)) + self.spline(b.flatten(1))


class Splines(nn.Sequential):
    def __init__(self):
        super().__init__(SplineLayer(16, 32), SplineLayer(32, 16), SplineLayer(16, 3))


class EdgePoints(nn.Module):
    """Points with their nearest neighbours, found anew in each layer (DGCNN)."""
    def __init__(self, neighbours=10):
        super().__init__()
        self.neighbours = neighbours
        self.layers = nn.ModuleList(nn.Sequential(nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)) for a, b in ((6, 32), (64, 32), (64, 64)))
        self.mix, self.last = nn.Sequential(nn.Conv1d(128, 128, 1, bias=False), nn.BatchNorm1d(128), nn.LeakyReLU(0.2)), nn.Linear(256, 10)

    def edges(self, x):
        n, c, points = x.shape
        squares = (x ** 2).sum(1, keepdim=True)
        near = (2 * x.transpose(1, 2) @ x - squares - squares.transpose(1, 2)).topk(self.neighbours)[1]
        rows = (near + torch.arange(n).view(-1, 1, 1) * points).view(-1)
        x = x.transpose(1, 2).contiguous()
        others = x.view(n * points, -1)[rows].view(n, points, self.neighbours, c)
        own = x.view(n, points, 1, c).repeat(1, 1, self.neighbours, 1)
        return torch.cat((others - own, own), 3).permute(0, 3, 1, 2).contiguous()

    def forward(self, x):
        found = []
        for layer in self.layers:
            x = layer(self.edges(x)).max(3)[0]
            found.append(x)
        x = self.mix(torch.cat(found, 1))
        return self.last(torch.cat([x.max(2)[0], x.mean(2)], 1))


class LstmStep(nn.Module):
    """One step of two layers, states in and out."""
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(24, 64, 2, batch_first=True), nn.Linear(64, 5)

    def forward(self, x, h, c):
        y, (h, c) = self.lstm(x, (h, c))
        return self.last(y[:, -1]), h, c


class GruStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.last = nn.GRU(16, 48, batch_first=True), nn.Linear(48, 3)

    def forward(self, x, h):
        y, h = self.gru(x, h)
        return self.last(y[:, -1]).softmax(1), h


class BiTagger(nn.Module):
    """Letters through an LSTM of both directions, the best tag of each."""
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.last = nn.Embedding(200, 32), nn.LSTM(32, 32, bidirectional=True, batch_first=True), nn.Linear(64, 9)

    def forward(self, ids):
        return self.last(self.lstm(self.embed(ids))[0]).argmax(2)


class SmallDecoder(nn.Module):
    """Attention to what came before, over an open length; the embedding is also the last layer."""
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.embed = nn.Embedding(300, width)
        self.qkv, self.out = (nn.ModuleList(nn.Linear(width, n * width) for _ in range(layers)) for n in (3, 1))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers))

    def forward(self, ids):
        x = self.embed(ids)
        n, length, width = x.shape
        for k, mlp in enumerate(self.mlps):
            q, key, v = self.qkv[k](self.norms[2 * k](x)).view(n, length, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)
            y = f.scaled_dot_product_attention(q, key, v, is_causal=True)
            x = x + self.out[k](y.transpose(1, 2).reshape(n, length, width))
            x = x + mlp(self.norms[2 * k + 1](x))
        return x @ self.embed.weight.t()


class Reconstruction(nn.Module):
    """An autoencoder, and how far off it is."""
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(dense(30, 16, 4), dense(4, 16, 30))

    def forward(self, x):
        y = self.net(x)
        return y, ((x - y) ** 2).mean(1)


class ImageDecoder(nn.Module):
    """An image to 8 numbers and back, by convolutions and transposed ones."""
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 8), nn.Linear(8, 1568))
        self.up = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Sigmoid())

    def forward(self, x):
        return self.up(self.down(x).view(-1, 32, 7, 7))


class SignalCnn(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv1d(3, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(16, 32, 5, padding=2), nn.BatchNorm1d(32),
                         nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 6))


class Digits(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
                         dense(400, 120, 84, 10))


class CausalNet(nn.Module):
    """Dilated convolutions that look back, with residual sums."""
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv1d(4, 16, 1), nn.Linear(16, 1)
        self.layers = nn.ModuleList(nn.Conv1d(16, 16, 3, dilation=2 ** k) for k in range(4))

    def forward(self, x):
        x = self.first(x)
        for k, layer in enumerate(self.layers):
            x = x + layer(f.pad(x, (2 ** (k + 1), 0))).relu()
        return self.last(x[:, :, -1])


class Policy(nn.Module):
    """What a robot does: mean and spread of six numbers."""
    def __init__(self):
        super().__init__()
        self.net, self.mean, self.spread = dense(17, 256, 256), nn.Linear(256, 6), nn.Linear(256, 6)

    def forward(self, x):
        h = self.net(x).relu()
        return torch.tanh(self.mean(h)), self.spread(h).clamp(-20, 2).exp()


class Gates(nn.Module):
    """The best two of four small networks, weighted."""
    def __init__(self):
        super().__init__()
        self.gate, self.nets = nn.Linear(32, 4), nn.ModuleList(dense(32, 64, 16) for _ in range(4))

    def forward(self, x):
        weights, which = self.gate(x).softmax(1).topk(2, 1)
        all_of = torch.stack([net(x) for net in self.nets], 1)
        return (torch.gather(all_of, 1, which.unsqueeze(2).expand(-1, -1, 16)) * weights.unsqueeze(2)).sum(1)


class ColumnSteps(nn.Module):
    """Columns chosen anew in each step, by what the steps before have used (TabNet)."""
    def __init__(self):
        super().__init__()
        self.choose = nn.ModuleList(nn.Linear(16, 20) for _ in range(3))
        self.steps = nn.ModuleList(nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.GLU()) for _ in range(3))
        self.last = nn.Linear(16, 2)

    def forward(self, x):
        left, h, out = torch.ones_like(x), x[:, :16], 0
        for choose, step in zip(self.choose, self.steps):
            mask = (choose(h) * left).softmax(1)
            left = left * (1.3 - mask)
            h = step(x * mask)[:, :16]
            out = out + h.relu()
        return self.last(out)


SMALL = {"splines": Splines, "edge_points": EdgePoints, "lstm_step": LstmStep, "gru_step": GruStep, "bi_tagger": BiTagger, "small_decoder": SmallDecoder,
         "reconstruction": Reconstruction, "image_decoder": ImageDecoder, "signal_cnn": SignalCnn, "digits": Digits, "causal_net": CausalNet, "policy": Policy,
         "gates": Gates, "column_steps": ColumnSteps, "small_mlp": lambda: dense(10, 32, 16, 3), "wide_mlp": lambda: dense(128, 512, 512, 10)}
