"""Architectures of the zoo that no package carries: NETS[name]() is a module with random weights, of the sizes that people serve."""
import torch
import torchvision
from torch import nn
from torch.nn import functional as f


def conv(i, o, k=3, stride=1, act=nn.ReLU, groups=1):
    return nn.Sequential(nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o), act())


class Unet(nn.Module):
    def __init__(self, widths=(16, 32, 64, 128)):
        super().__init__()
        self.down = nn.ModuleList(nn.Sequential(conv(i, o), conv(o, o)) for i, o in zip((3,) + widths, widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, 2) for i, o in zip(widths, widths[1:]))
        self.join = nn.ModuleList(nn.Sequential(conv(2 * i, i), conv(i, i)) for i in widths[:-1])
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for k, block in enumerate(self.down):
            x = block(x if k == 0 else f.max_pool2d(x, 2))
            kept.append(x)
        for k in reversed(range(len(self.up))):
            x = self.join[k](torch.cat([kept[k], self.up[k](x)], 1))
        return self.last(x)


class Espcn(nn.Module):
    def __init__(self, scale=3):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
                                 nn.Conv2d(32, scale * scale, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, x):
        return self.net(x)


class Edsr(nn.Module):
    def __init__(self, width=32, blocks=8):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
                                    for _ in range(blocks))
        self.grow = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        y = first = self.first(x)
        for block in self.blocks:
            y = y + 0.1 * block(y)
        return self.last(self.grow(y + first)) + f.interpolate(x, scale_factor=2, mode="bicubic")


class IResBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm2d(i), nn.Conv2d(i, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.PReLU(o),
                                  nn.Conv2d(o, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o))
        self.skip = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride > 1 else nn.Identity()

    def forward(self, x):
        return self.body(x) + self.skip(x)


def iresnet(widths=(64, 64, 128, 256, 512)):
    blocks = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)]
    for i, o in zip(widths, widths[1:]):
        blocks += [IResBlock(i, o, 2), IResBlock(o, o, 1)]
    return nn.Sequential(*blocks, nn.BatchNorm2d(512), nn.Flatten(), nn.Linear(512 * 49, 512), nn.BatchNorm1d(512))


def pose():
    body = nn.Sequential(*list(torchvision.models.resnet18(weights=None).children())[:-2])
    ups = []
    for i in (512, 128, 128):
        ups += [nn.ConvTranspose2d(i, 128, 4, 2, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU()]
    return nn.Sequential(body, *ups, nn.Conv2d(128, 17, 1))


class Crnn(nn.Module):
    def __init__(self):
        super().__init__()
        p = nn.MaxPool2d
        self.body = nn.Sequential(conv(1, 64), p(2), conv(64, 128), p(2), conv(128, 256), conv(256, 256), p((2, 1)), conv(256, 512), p((2, 1)),
                                  nn.Conv2d(512, 512, 2), nn.ReLU())
        self.rnn, self.last = nn.LSTM(512, 128, 2, bidirectional=True), nn.Linear(256, 97)

    def forward(self, x):
        return self.last(self.rnn(self.body(x).squeeze(2).permute(2, 0, 1))[0]).log_softmax(2)


class C3(nn.Module):
    def __init__(self, i, o, shortcut=True):
        super().__init__()
        half = o // 2
        self.a, self.b, self.out = conv(i, half, 1, act=nn.SiLU), conv(i, half, 1, act=nn.SiLU), conv(2 * half, o, 1, act=nn.SiLU)
        self.m, self.shortcut = nn.Sequential(conv(half, half, 1, act=nn.SiLU), conv(half, half, 3, act=nn.SiLU)), shortcut

    def forward(self, x):
        a = self.a(x)
        return self.out(torch.cat([a + self.m(a) if self.shortcut else self.m(a), self.b(x)], 1))


class Yolo(nn.Module):
    """YOLOv5's n size with the grids in the graph, and NMS behind it."""
    CLASSES, STRIDES = 20, (8, 16, 32)
    SETTLED_BY = (2, 3, 320, 320)  # an input that sets the statistics: else all scores are all but equal, and roundings choose among them

    def __init__(self):
        super().__init__()
        s = nn.SiLU
        self.p3 = nn.Sequential(conv(3, 16, 5, 2, s), conv(16, 32, 3, 2, s), C3(32, 32), conv(32, 64, 3, 2, s), C3(64, 64))
        self.p4 = nn.Sequential(conv(64, 128, 3, 2, s), C3(128, 128))
        self.p5 = nn.Sequential(conv(128, 256, 3, 2, s), C3(256, 256))
        self.spp, self.lat5, self.lat4 = conv(1024, 256, 1, act=s), conv(256, 128, 1, act=s), conv(128, 64, 1, act=s)
        self.up4, self.up3 = C3(256, 128, False), C3(128, 64, False)
        self.heads = nn.ModuleList(nn.Conv2d(c, 3 * (5 + self.CLASSES), 1) for c in (64, 128, 256))
        with torch.no_grad():
            for head in self.heads:
                head.weight.mul_(4)

    def decode(self, y, stride):
        n, _, h, w = y.shape
        y = y.view(n, 3, 5 + self.CLASSES, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        xy = (y[..., :2] * 2 - 0.5 + torch.stack((gx, gy), -1)) * stride
        wh = (y[..., 2:4] * 2) ** 2 * (4 * stride)
        return torch.cat((xy - wh / 2, xy + wh / 2, y[..., 4:]), -1).reshape(n, -1, 5 + self.CLASSES)

    def forward(self, x):
        p3 = self.p3(x)
        p4 = self.p4(p3)
        p5 = self.p5(p4)
        pools = [p5]
        for _ in range(3):
            pools.append(f.max_pool2d(pools[-1], 5, 1, 2))
        p5 = self.spp(torch.cat(pools, 1))
        u4 = self.up4(torch.cat([f.interpolate(self.lat5(p5), scale_factor=2.0), p4], 1))
        u3 = self.up3(torch.cat([f.interpolate(self.lat4(u4), scale_factor=2.0), p3], 1))
        found = torch.cat([self.decode(head(y), s) for head, y, s in zip(self.heads, (u3, u4, p5), self.STRIDES)], 1)[0]
        score = found[:, 4] * found[:, 5:].amax(1)
        top, at = score.topk(300)
        boxes = found[at, :4]
        keep = torchvision.ops.nms(boxes, top, 0.5)
        return boxes[keep], top[keep], found[at, 5:].argmax(1)[keep]


class LanguageId(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.last = nn.Embedding(5000, 64, padding_idx=0), nn.Linear(64, 176)

    def forward(self, ids):
        there = (ids != 0).unsqueeze(-1).float()
        return self.last((self.embed(ids) * there).sum(1) / there.sum(1).clamp(min=1)).softmax(-1)


class TextCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.last = nn.Embedding(5000, 128), nn.Linear(300, 5)
        self.convs = nn.ModuleList(nn.Conv1d(128, 100, k) for k in (3, 4, 5))

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        return self.last(torch.cat([f.relu(c(x)).amax(2) for c in self.convs], 1))


class Tagger(nn.Module):
    """Hashed features of four kinds, and layers of a window and the largest of three pieces, as spaCy's."""
    def __init__(self, width=96):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(2000, width) for _ in range(4))
        self.mix = nn.Linear(4 * width, 3 * width)
        self.layers = nn.ModuleList(nn.Linear(3 * width, 3 * width) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.width, self.last = width, nn.Linear(width, 50)

    def largest(self, x):
        return x.view(x.shape[0], x.shape[1], self.width, 3).amax(-1)

    def forward(self, ids):
        x = self.norms[0](self.largest(self.mix(torch.cat([t(ids[:, :, k]) for k, t in enumerate(self.tables)], 2))))
        for layer, norm in zip(self.layers, self.norms[1:]):
            padded = f.pad(x, (0, 0, 1, 1))
            x = x + norm(self.largest(layer(torch.cat([padded[:, :-2], x, padded[:, 2:]], 2))))
        return self.last(x).softmax(-1)


class TasBlock(nn.Module):
    def __init__(self, width, hidden, dilation):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(width, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden),
                                 nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation, groups=hidden), nn.PReLU(),
                                 nn.GroupNorm(1, hidden), nn.Conv1d(hidden, width, 1))

    def forward(self, x):
        return x + self.net(x)


class TasNet(nn.Module):
    def __init__(self, filters=256, width=128):
        super().__init__()
        self.encode, self.decode = nn.Conv1d(1, filters, 16, 8, bias=False), nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)
        self.net = nn.Sequential(nn.GroupNorm(1, filters), nn.Conv1d(filters, width, 1), *(TasBlock(width, 256, 2 ** k) for k in range(6)),
                                 nn.PReLU(), nn.Conv1d(width, 2 * filters, 1), nn.Sigmoid())

    def forward(self, x):
        w = self.encode(x)
        a, b = self.net(w).chunk(2, 1)
        return self.decode(w * a), self.decode(w * b)


class DeepSpeech(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(1, 32, (11, 41), (2, 2), (5, 20)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
                                   nn.Conv2d(32, 32, (11, 21), (1, 2), (5, 10)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20))
        self.rnn, self.last = nn.GRU(32 * 41, 256, 2, batch_first=True, bidirectional=True), nn.Linear(512, 29)

    def forward(self, x):
        y = self.convs(x.unsqueeze(1)).transpose(1, 2).flatten(2)
        return self.last(self.rnn(y)[0]).log_softmax(-1)


class WaveNet(nn.Module):
    def __init__(self, width=32, layers=8):
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2 ** k) for k in range(layers))
        self.outs = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(width, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1))

    def forward(self, x):
        x, total = self.first(x), 0
        for k, (gate, out) in enumerate(zip(self.gates, self.outs)):
            a, b = gate(f.pad(x, (2 ** k, 0))).chunk(2, 1)
            left, skip = out(a.tanh() * b.sigmoid()).chunk(2, 1)
            x, total = x + left, total + skip
        return self.last(total)


class SelfAttention(nn.Module):
    """A layer of an encoder whose length stays open (nn.MultiheadAttention's export fixes it)."""
    def __init__(self, width, heads=2):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mlp = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, width))

    def forward(self, x):
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        y = (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5).softmax(-1) @ v
        x = self.norms[0](x + self.out(y.transpose(1, 2).flatten(2)))
        return self.norms[1](x + self.mlp(x))


class Tts(nn.Module):
    """A text encoder, durations that choose the length, and a decoder to samples, as VITS without its flow."""
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(200, width)
        self.encode = nn.Sequential(*(SelfAttention(width) for _ in range(3)))
        self.durations = nn.Sequential(nn.Conv1d(width, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 1, 1))
        ups, i = [nn.Conv1d(width, 64, 7, padding=3)], 64
        for stride in (8, 8, 2):
            ups += [nn.LeakyReLU(0.1), nn.ConvTranspose1d(i, i // 2, 2 * stride, stride, stride // 2), nn.Conv1d(i // 2, i // 2, 3, padding=1)]
            i //= 2
        self.decode = nn.Sequential(*ups, nn.LeakyReLU(), nn.Conv1d(i, 1, 7, padding=3), nn.Tanh())

    def forward(self, ids):
        x = self.encode(self.embed(ids))
        length = (self.durations(x.transpose(1, 2)).squeeze(1).sigmoid() * 2 + 1).ceil()
        ends = length.cumsum(1)
        at = torch.arange(int(ends[:, -1].max()) if not torch.onnx.is_in_onnx_export() else ends[:, -1].max().long())
        path = (at[None, None] < ends[:, :, None]) & (at[None, None] >= (ends - length)[:, :, None])
        return self.decode((x.transpose(1, 2) @ path.float()))


class Dlrm(nn.Module):
    def __init__(self, tables=26, width=32):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(10000, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())
        self.register_buffer("pair", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, ids):
        x = self.bottom(dense)
        z = torch.stack([x] + [t(ids[:, k]) for k, t in enumerate(self.tables)], 1)
        products = torch.bmm(z, z.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pair[0], self.pair[1]]], 1))


class WideDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.embed = nn.Linear(200, 1), nn.Embedding(5000, 32)
        self.deep = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.BatchNorm1d(256), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, wide, ids):
        return torch.sigmoid(self.wide(wide) + self.deep(self.embed(ids).flatten(1)))


class Ncf(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.users, self.items = nn.Embedding(5000, 2 * width), nn.Embedding(3000, 2 * width)
        self.mlp = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.last, self.width = nn.Linear(width + 16, 1), width

    def forward(self, user, item):
        u, i, w = self.users(user), self.items(item), self.width
        deep = self.mlp(torch.cat([u[:, w:], i[:, w:]], 1))
        return torch.sigmoid(self.last(torch.cat([u[:, :w] * i[:, :w], deep], 1)))


class Gru4rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.last = nn.Embedding(5000, 64), nn.GRU(64, 128, batch_first=True), nn.Linear(128, 5000)

    def forward(self, ids):
        return self.last(self.rnn(self.embed(ids))[0][:, -1])


NETS = {"unet": Unet, "espcn": Espcn, "edsr": Edsr, "iresnet": iresnet, "pose": pose, "crnn": Crnn, "yolo": Yolo, "language_id": LanguageId,
        "text_cnn": TextCnn, "tagger": Tagger, "tasnet": TasNet, "deep_speech": DeepSpeech, "wavenet": WaveNet, "tts": Tts, "dlrm": Dlrm,
        "wide_deep": WideDeep, "ncf": Ncf, "gru4rec": Gru4rec}
