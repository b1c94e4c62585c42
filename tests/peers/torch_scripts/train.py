"""Small networks of the usual kinds, trained from fixed seeds; prints "hash HEX" of the weights at the end.

    train.py KIND STEPS [--threads N] [--checkpoint FILE] [--die-at STEP]
"""
import argparse
import hashlib
import os
import signal
import sys

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, wide, step=1, narrow=None):
        super().__init__()
        narrow = narrow or wide
        self.a, self.b = nn.Conv2d(narrow, wide, 3, step, 1, bias=False), nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(wide), nn.BatchNorm2d(wide)
        self.skip = nn.Identity() if step == 1 and narrow == wide else nn.Conv2d(narrow, wide, 1, step, bias=False)

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.skip(x))


class Resnet(nn.Module):
    """ResNet-18's layout, by width."""

    def __init__(self, wide=8):
        super().__init__()
        w = [wide, 2 * wide, 4 * wide, 8 * wide]
        self.body = nn.Sequential(nn.Conv2d(3, w[0], 3, 1, 1, bias=False), nn.BatchNorm2d(w[0]), nn.ReLU(), Block(w[0]), Block(w[0]),
                                  Block(w[1], 2, w[0]), Block(w[1]), Block(w[2], 2, w[1]), Block(w[2]), Block(w[3], 2, w[2]), Block(w[3]))
        self.head = nn.Linear(w[3], 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Bert(nn.Module):
    def __init__(self, wide=64, layers=2, heads=4):
        super().__init__()
        self.words, self.places = nn.Embedding(1000, wide), nn.Embedding(128, wide)
        layer = nn.TransformerEncoderLayer(wide, heads, 4 * wide, dropout=0.1, activation="gelu", batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, layers), nn.Linear(wide, 2)

    def forward(self, ids):
        return self.head(self.body(self.words(ids) + self.places(torch.arange(ids.shape[1])))[:, 0])


class Language(nn.Module):
    def __init__(self, wide=64):
        super().__init__()
        self.words, self.body, self.head = nn.Embedding(200, wide), nn.LSTM(wide, wide, 2, batch_first=True), nn.Linear(wide, 200)

    def forward(self, ids):
        return self.head(self.body(self.words(ids))[0])


class Unet(nn.Module):
    def __init__(self, wide=16):
        super().__init__()
        self.down, self.middle = nn.Conv2d(3, wide, 3, 2, 1), nn.Conv2d(wide, wide, 3, 1, 1)
        self.norm, self.up, self.out = nn.GroupNorm(4, wide), nn.ConvTranspose2d(wide, wide, 2, 2), nn.Conv2d(wide + 3, 3, 3, 1, 1)

    def forward(self, x):
        y = F.silu(self.norm(self.middle(F.silu(self.down(x)))))
        return self.out(torch.cat([self.up(y), x], 1))


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(3, 16, 16, generator=g), i % 10


def batch(kind, step):
    g = torch.Generator().manual_seed(1000 + step)
    if kind == "bert":
        return torch.randint(0, 1000, (4, 32), generator=g), torch.randint(0, 2, (4,), generator=g)
    if kind == "lstm":
        return torch.randint(0, 200, (8, 24), generator=g), torch.randint(0, 200, (8, 24), generator=g)
    x = torch.randn(8, 3, 16, 16, generator=g)
    return x, (torch.randn(8, 3, 16, 16, generator=g) if kind == "unet" else torch.randint(0, 10, (8,), generator=g))


def loss_of(kind, model, x, y):
    if kind == "unet":
        return F.mse_loss(model(x), y)
    if kind == "lstm":
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    if kind == "bf16":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(x), y)
    return F.cross_entropy(model(x), y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["resnet", "bert", "lstm", "unet", "loader", "accumulate", "bf16"])
    parser.add_argument("steps", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checkpoint")
    parser.add_argument("--die-at", type=int, default=-1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(7)
    model = {"bert": Bert, "lstm": Language, "unet": Unet}.get(args.kind, Resnet)()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    first = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        kept = torch.load(args.checkpoint)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
        torch.set_rng_state(kept["rng"])
    loader = iter(torch.utils.data.DataLoader(Pictures(), batch_size=8, num_workers=2)) if args.kind == "loader" else None
    for step in range(first, args.steps):
        if step == args.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        for part in range(4 if args.kind == "accumulate" else 1):
            x, y = next(loader) if loader else batch(args.kind, 4 * step + part)
            loss_of(args.kind, model, x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if args.checkpoint and step % 5 == 4:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1, "rng": torch.get_rng_state()},
                       args.checkpoint + ".new")
            os.rename(args.checkpoint + ".new", args.checkpoint)
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.contiguous().numpy().tobytes())
    print("hash", digest.hexdigest())


if __name__ == "__main__":
    sys.exit(main())
