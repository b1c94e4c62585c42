"""The zoo's models: name -> (module, inputs, names of inputs), random weights, small where the architecture allows. Nothing is downloaded."""
import torch
from torch import nn

VISION = {  # torchvision name: (size, extra arguments)
    "alexnet": (224, {}), "vgg11_bn": (64, {}), "resnet18": (96, {}), "resnext50_32x4d": (64, {}), "wide_resnet50_2": (64, {}),
    "densenet121": (64, {}), "squeezenet1_1": (96, {}), "shufflenet_v2_x1_0": (64, {}), "googlenet": (96, {}),
    "inception_v3": (128, {}), "mobilenet_v2": (96, {}), "mobilenet_v3_small": (96, {}), "mobilenet_v3_large": (96, {}),
    "efficientnet_b0": (96, {}), "efficientnet_v2_s": (96, {}), "mnasnet0_5": (96, {}), "regnet_y_400mf": (96, {}),
    "regnet_x_400mf": (96, {}), "convnext_tiny": (96, {}), "swin_t": (224, {}), "swin_v2_t": (64, {}), "vit_b_16": (224, {}),
    "maxvit_t": (224, {}),
}
TIMM = {
    "test_vit": 160, "test_efficientnet": 160, "test_resnet": 160, "test_convnext": 160, "test_byobnet": 160, "mobileone_s0": 96,
    "ghostnet_100": 96, "mixer_s32_224": 224, "poolformer_s12": 96, "edgenext_xx_small": 96, "mobilevit_xxs": 128, "levit_128s": 224,
    "repvgg_a0": 96, "res2net50_26w_4s": 64, "hardcorenas_a": 96, "tinynet_e": 96, "lcnet_050": 96, "fastvit_t8": 128, "pvt_v2_b0": 96,
    "coat_lite_tiny": 224, "deit_tiny_patch16_224": 224, "beit_base_patch16_224": 224, "xcit_nano_12_p16_224": 224,
    "convmixer_768_32": 64, "nfnet_l0": 96, "volo_d1_224": 224, "gmlp_s16_224": 224, "cait_xxs24_224": 224, "efficientvit_b0": 96,
    "resnest14d": 64, "dla34": 96, "vovnet39a": 64, "selecsls42b": 96, "skresnet18": 96, "coatnet_nano_rw_224": 224,
}


class Unet(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.down = nn.ModuleList([self.block(3, 8), self.block(8, 16), self.block(16, 32)])
        self.ups = nn.ModuleList([self.block(48, 16), self.block(24, 8)])
        self.mode, self.last = mode, nn.Conv2d(8, 2, 1)
        self.trans = nn.ModuleList([nn.ConvTranspose2d(32, 32, 2, 2), nn.ConvTranspose2d(16, 16, 2, 2)])

    @staticmethod
    def block(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.LeakyReLU(0.1), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())

    def forward(self, x):
        a = self.down[0](x)
        b = self.down[1](nn.functional.max_pool2d(a, 2))
        c = self.down[2](nn.functional.max_pool2d(b, 2))
        for up, trans, skip in zip(self.ups, self.trans, (b, a)):
            c = trans(c) if self.mode == "transpose" else nn.functional.interpolate(
                c, scale_factor=2, mode=self.mode, align_corners=None if self.mode == "nearest" else self.mode == "bilinear")
            c = up(torch.cat([c, skip], 1))
        return self.last(c)


class Recurrent(nn.Module):
    def __init__(self, kind, layers, both, first=True):
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.rnn = getattr(nn, kind)(12, 16, layers, bidirectional=both, batch_first=first)
        self.last = nn.Linear(32 if both else 16, 5)

    def forward(self, ids):
        out, _ = self.rnn(self.embed(ids))
        return self.last(out)


class Seq2seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.net = nn.Transformer(16, 2, 2, 2, 32, batch_first=True, dropout=0.0)
        self.last = nn.Linear(16, 40)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.last(self.net(self.embed(source), self.embed(target), tgt_mask=mask))


class Decode(nn.Module):
    """A loop over time steps with scripted control flow."""
    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.GRUCell(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 8)
        out = []
        for _ in range(6):
            h = self.cell(x, h)
            x = self.last(h).softmax(-1)
            out.append(x)
        return torch.stack(out, 1)


class ScriptLoop(nn.Module):
    def forward(self, x, steps: int = 5):
        for i in range(steps):
            if i % 2 == 0:
                x = x * 1.5 + i
            else:
                x = torch.tanh(x)
        return x


class ScriptIf(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x - 1


class ScriptWhile(nn.Module):
    def forward(self, x):
        n = 0
        while bool(x.abs().max() > 1.0) and n < 10:
            x = x * 0.5
            n += 1
        return x


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(100, 8, mode="sum") for _ in range(3)])
        self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        rows = [x] + [t(sparse[:, 4 * i:4 * i + 4]) for i, t in enumerate(self.tables)]
        z = torch.stack(rows, 1)
        pairs = torch.bmm(z, z.transpose(1, 2))
        i, j = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([x, pairs[:, i, j]], 1))


class WideDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.embed = nn.Linear(20, 1), nn.Embedding(100, 8)
        self.deep = nn.Sequential(nn.Linear(24, 16), nn.PReLU(), nn.BatchNorm1d(16), nn.Linear(16, 1))

    def forward(self, wide, ids):
        return torch.sigmoid(self.wide(wide) + self.deep(self.embed(ids).flatten(1)))


class Ops(nn.Module):
    """Odds and ends that models use, one output each."""
    def forward(self, x):
        y = torch.flip(x, [2])[:, :, ::2]
        grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 5), torch.linspace(-1, 1, 6), indexing="ij"), -1)
        g = nn.functional.grid_sample(x, grid[None].expand(x.shape[0], -1, -1, -1), align_corners=False)
        top, at = torch.topk(x.flatten(1), 5)
        return (y, g, top, at, torch.roll(x, 1, 3), torch.cumsum(x, 1), torch.einsum("bchw,bdhw->bcd", x, x), x.var(1), x.norm(dim=1),
                torch.nn.functional.pixel_shuffle(x, 2), x.argmax(1), torch.logsumexp(x, 1), x.clamp(-0.5, 0.5), x.tril(),
                nn.functional.one_hot((x[:, 0, 0] > 0).long(), 3), torch.where(x > 0, x, x.exp()), x.std((2, 3)), x.amax((1, 2)),
                nn.functional.pad(x, (1, 2, 0, 1), mode="reflect"), nn.functional.unfold(x, 3), x.sort(1)[0], torch.outer(x[0, 0, 0], x[0, 0, 1]))


class Indexing(nn.Module):
    def forward(self, x, ids):
        z = x.clone()
        z[:, 1] = 0
        z[:, 2, ids[0]] = 7
        return z, torch.gather(x, 1, ids.unsqueeze(-1).expand(-1, -1, x.shape[2])), x.scatter(1, ids.unsqueeze(-1), 3.0), x.masked_fill(x > 1, 9), x[:, ids[0]], \
            torch.index_select(x, 2, ids[0])


class NonZero(nn.Module):
    def forward(self, x):
        return torch.nonzero(x > 0), x[x > 0]


class Resizes(nn.Module):
    def forward(self, x):
        f = nn.functional.interpolate
        return (f(x, size=(7, 9), mode="nearest"), f(x, scale_factor=1.5, mode="bilinear"), f(x, size=(11, 5), mode="bilinear", align_corners=True),
                f(x, scale_factor=2, mode="bicubic"), f(x, size=(3, 3), mode="area"), f(x, size=(4, 4), mode="bilinear", antialias=True))


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), nn.BatchNorm2d(8), nn.LocalResponseNorm(3)])
        self.layer, self.rms = nn.LayerNorm([8, 6, 6]), nn.RMSNorm(6)

    def forward(self, x):
        for norm in self.norms:
            x = norm(x)
        return self.layer(x), self.rms(x), nn.functional.normalize(x, dim=1)


class Activations(nn.Module):
    def forward(self, x):
        f = nn.functional
        return tuple(g(x) for g in (f.gelu, lambda t: f.gelu(t, approximate="tanh"), f.silu, f.hardswish, f.hardsigmoid, f.mish, f.elu, f.selu,
                                    f.celu, f.softplus, f.softsign, f.relu6, f.logsigmoid, lambda t: f.glu(t, 1), f.tanhshrink, f.hardshrink,
                                    lambda t: f.leaky_relu(t, 0.3), lambda t: f.softmin(t, 1), torch.erf, torch.round, torch.sign))


def image(n, c, *dims):
    return torch.randn(n, c, *dims)


def tokens(high, *dims):
    return torch.randint(0, high, dims)


def conv3d():
    return nn.Sequential(nn.Conv3d(2, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(8, 8, (1, 3, 3), stride=(1, 2, 2)),
                         nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 4))


def conv1d():
    return nn.Sequential(nn.Conv1d(4, 8, 5, dilation=2, groups=2), nn.GELU(), nn.ConvTranspose1d(8, 4, 4, 2, 1, groups=2), nn.AvgPool1d(3, ceil_mode=True),
                         nn.Conv1d(4, 4, 3, padding="same", padding_mode="reflect"))


def dcgan():
    layers, sizes = [], (20, 64, 32, 16)
    for i, o in zip(sizes, sizes[1:]):
        layers += [nn.ConvTranspose2d(i, o, 4, 1 if i == 20 else 2, 0 if i == 20 else 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(16, 3, 4, 2, 1, output_padding=1), nn.Tanh())


def small():
    return {
        "unet_transpose": lambda: (Unet("transpose"), (image(2, 3, 32, 32),)),
        "unet_nearest": lambda: (Unet("nearest"), (image(2, 3, 32, 32),)),
        "unet_bilinear": lambda: (Unet("bilinear"), (image(2, 3, 32, 32),)),
        "conv3d": lambda: (conv3d(), (image(2, 2, 8, 12, 12),)), "conv1d": lambda: (conv1d(), (image(2, 4, 40),)),
        "dcgan": lambda: (dcgan(), (image(2, 20, 1, 1),)),
        "lstm": lambda: (Recurrent("LSTM", 2, True), (tokens(50, 2, 9),)), "gru": lambda: (Recurrent("GRU", 1, True), (tokens(50, 2, 9),)),
        "rnn": lambda: (Recurrent("RNN", 2, False), (tokens(50, 2, 9),)), "lstm_time_first": lambda: (Recurrent("LSTM", 1, False, False), (tokens(50, 2, 9),)),
        "transformer": lambda: (Seq2seq(), (tokens(40, 2, 7), tokens(40, 2, 5))), "decode": lambda: (Decode(), (image(2, 8),)),
        "script_loop": lambda: (torch.jit.script(ScriptLoop()), (image(2, 4),)), "script_if": lambda: (torch.jit.script(ScriptIf()), (image(2, 4),)),
        "script_while": lambda: (torch.jit.script(ScriptWhile()), (5 * image(2, 4),)),
        "dlrm": lambda: (Dlrm(), (image(2, 13), tokens(100, 2, 12))), "wide_deep": lambda: (WideDeep(), (image(2, 20), tokens(100, 2, 3))),
        "ops": lambda: (Ops(), (image(2, 4, 6, 6),)), "indexing": lambda: (Indexing(), (image(2, 5, 6), tokens(5, 2, 3))),
        "nonzero": lambda: (NonZero(), (image(2, 5),)), "resizes": lambda: (Resizes(), (image(2, 3, 6, 6),)),
        "norms": lambda: (Norms(), (image(2, 8, 6, 6),)), "activations": lambda: (Activations(), (image(2, 8, 6),)),
        "half": lambda: (nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)).half(), (image(2, 8).half(),)),
        "attention": lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu"), 2,
                                                    enable_nested_tensor=False), (image(2, 6, 16),)),
    }


def vision():
    import torchvision.models as tv
    made = {n: (lambda n=n, s=s, e=e: (tv.get_model(n, weights=None, **e), (image(2, 3, s, s),))) for n, (s, e) in VISION.items()}
    for n in ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large"):
        made[n] = lambda n=n: (tv.get_model(n, weights=None, weights_backbone=None), (image(2, 3, 64, 64),))
    for n in ("ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn", "retinanet_resnet50_fpn"):
        made[n] = lambda n=n: (tv.get_model(n, weights=None, weights_backbone=None), (image(1, 3, 96, 96),))
    made["r3d_18"] = lambda: (tv.get_model("r3d_18", weights=None), (image(1, 3, 4, 32, 32),))
    made["mvit_v2_s"] = lambda: (tv.get_model("mvit_v2_s", weights=None), (image(1, 3, 16, 224, 224),))
    return made


def timm_models():
    import timm
    return {n: (lambda n=n, s=s: (timm.create_model(n, pretrained=False), (image(2, 3, s, s),))) for n, s in TIMM.items()}


class Plain(nn.Module):
    """A model of transformers with positional inputs and a tuple of tensors."""
    def __init__(self, model, names, keep):
        super().__init__()
        self.model, self.names, self.keep = model, names, keep

    def forward(self, *args):
        out = self.model(**dict(zip(self.names, args)), return_dict=True)
        return tuple(out[k] for k in self.keep)


def text():
    import transformers as t
    tiny = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=99, max_position_embeddings=64)
    ids, ones = ("input_ids", "attention_mask"), lambda: torch.tensor([[1] * 10, [1] * 7 + [0] * 3])

    def encoder(model, config, keep=("last_hidden_state",), **kw):
        return lambda: (Plain(model(config(**kw)), ids, keep), (tokens(99, 2, 10), ones()))

    def decoder(model, config, **kw):
        return lambda: (Plain(model(config(use_cache=False, **kw)), ids, ("logits",)), (tokens(99, 2, 10), ones()))
    made = {n: encoder(getattr(t, m + "Model"), getattr(t, m + "Config"), **tiny) for n, m in
            {"bert": "Bert", "roberta": "Roberta", "electra": "Electra", "mpnet": "MPNet", "deberta_v2": "DebertaV2", "camembert": "Camembert"}.items()}
    made["albert"] = encoder(t.AlbertModel, t.AlbertConfig, embedding_size=16, **tiny)
    made["mobilebert"] = encoder(t.MobileBertModel, t.MobileBertConfig, **dict(tiny, embedding_size=16, true_hidden_size=32, intra_bottleneck_size=32))
    made["distilbert"] = encoder(t.DistilBertModel, t.DistilBertConfig, dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=99)
    made["xlnet"] = encoder(t.XLNetModel, t.XLNetConfig, d_model=32, n_layer=2, n_head=4, d_inner=48, vocab_size=99)
    made["deberta"] = encoder(t.DebertaModel, t.DebertaConfig, **tiny, relative_attention=True, pos_att_type=["c2p", "p2c"])
    made["squeezebert"] = encoder(t.SqueezeBertModel, t.SqueezeBertConfig, **tiny, embedding_size=32)
    made["gpt2"] = decoder(t.GPT2LMHeadModel, t.GPT2Config, n_embd=32, n_layer=2, n_head=4, vocab_size=99, n_positions=64)
    made["llama"] = decoder(t.LlamaForCausalLM, t.LlamaConfig, num_key_value_heads=2, **tiny)
    made["mistral"] = decoder(t.MistralForCausalLM, t.MistralConfig, num_key_value_heads=2, **tiny)
    made["gpt_neox"] = decoder(t.GPTNeoXForCausalLM, t.GPTNeoXConfig, **tiny)
    made["opt"] = decoder(t.OPTForCausalLM, t.OPTConfig, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, vocab_size=99,
                          max_position_embeddings=64, word_embed_proj_dim=32)
    made["t5"] = lambda: (Plain(t.T5Model(t.T5Config(d_model=32, d_ff=48, num_layers=2, num_heads=4, d_kv=8, vocab_size=99, use_cache=False)),
                                ("input_ids", "decoder_input_ids"), ("last_hidden_state",)), (tokens(99, 2, 10), tokens(99, 2, 5)))
    made["bart"] = lambda: (Plain(t.BartModel(t.BartConfig(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, vocab_size=99, use_cache=False,
                                  decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64)),
                                  ("input_ids", "decoder_input_ids"), ("last_hidden_state",)), (tokens(99, 2, 10), tokens(99, 2, 5)))
    made["whisper"] = lambda: (Plain(t.WhisperModel(t.WhisperConfig(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, vocab_size=99,
                                     decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=20, max_target_positions=20,
                                     num_mel_bins=8, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)),
                                     ("input_features", "decoder_input_ids"), ("last_hidden_state",)), (image(2, 8, 40), tokens(99, 2, 5)))
    made["wav2vec2"] = lambda: (Plain(t.Wav2Vec2Model(t.Wav2Vec2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                                      conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=16,
                                      num_conv_pos_embedding_groups=4)), ("input_values",), ("last_hidden_state",)), (image(2, 1600),))
    clip = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    made["clip"] = lambda: (Plain(t.CLIPModel(t.CLIPConfig(text_config=dict(clip, vocab_size=99, max_position_embeddings=16, eos_token_id=98),
                                  vision_config=dict(clip, image_size=32, patch_size=8), projection_dim=16)), ("input_ids", "pixel_values", "attention_mask"),
                                  ("logits_per_image", "text_embeds")), (tokens(99, 2, 10), image(2, 3, 32, 32), ones()))
    made["segformer"] = lambda: (Plain(t.SegformerForSemanticSegmentation(t.SegformerConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                                       decoder_hidden_size=16)), ("pixel_values",), ("logits",)), (image(2, 3, 64, 64),))
    made["detr_like"] = lambda: (Plain(t.YolosForObjectDetection(t.YolosConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                                       image_size=[64, 64], num_detection_tokens=5)), ("pixel_values",), ("logits", "pred_boxes")), (image(2, 3, 64, 64),))
    return made


FAMILIES = {"small": small, "vision": vision, "timm": timm_models, "text": text}
