"""The bench's models in PyTorch, as torchvision and people who write BERT and LSTM classifiers have them. Weights are random: the time does
not depend on them."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class BertLayer(nn.Module):
    def __init__(self, hidden, heads, intermediate):
        super().__init__()
        self.heads = heads
        self.qkv = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(3))
        self.out = nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, intermediate), nn.Linear(intermediate, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden, eps=1e-12) for _ in range(2))

    def forward(self, x, mask):
        batch, steps, hidden = x.shape
        q, k, v = (part(x).view(batch, steps, self.heads, -1).transpose(1, 2) for part in self.qkv)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norms[0](self.out(y.transpose(1, 2).reshape(batch, steps, hidden)) + x)
        return self.norms[1](self.down(F.gelu(self.up(x))) + x)


class Bert(nn.Module):
    def __init__(self, layers=12, hidden=768, heads=12, intermediate=3072, vocabulary=30522, positions=512):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.kinds, self.norm = nn.Embedding(2, hidden), nn.LayerNorm(hidden, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(hidden, heads, intermediate) for _ in range(layers))
        self.pooler = nn.Linear(hidden, hidden)

    def forward(self, ids, mask, kinds):
        x = self.words(ids) + self.kinds(kinds) + self.places(torch.arange(ids.shape[1]))
        x = self.norm(x)
        mask = ((1 - mask[:, None, None, :].to(x.dtype)) * -10000).to(self.pooler.weight.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class LstmText(nn.Module):
    def __init__(self, tokens=10000, width=512, classes=20):
        super().__init__()
        self.table = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, tokens):
        return self.head(self.lstm(self.table(tokens))[0].mean(1))


def make(name):
    import torchvision.models as vision

    if name == "bert_base":
        return Bert()
    if name == "lstm_text":
        return LstmText()
    if name == "inception_v3":
        return vision.inception_v3(weights=None, init_weights=False, aux_logits=True)
    return getattr(vision, name)(weights=None)


def runner(name, precision, feeds):
    """A function without arguments that computes one answer."""
    model = make(name).eval()
    inputs = [torch.from_numpy(a.copy()) for a in feeds.values()]
    model = model.to(memory_format=torch.channels_last)
    inputs = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
    if precision == "bf16":
        model = model.to(torch.bfloat16)
        inputs = [x.to(torch.bfloat16) if x.is_floating_point() else x for x in inputs]

    def run():
        with torch.inference_mode():
            model(*inputs)

    return run
