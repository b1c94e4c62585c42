"""The zoo's models of the package transformers: MODELS[name]() is a module with positional inputs, random weights, the sizes of the small public ones."""
import torch
import transformers as t
from torch import nn


class Plain(nn.Module):
    """Positional inputs, and of the outputs a tuple of tensors."""
    def __init__(self, model, names, keep):
        super().__init__()
        self.model, self.names, self.keep = model, names, keep

    def forward(self, *args):
        out = self.model(**dict(zip(self.names, args)), return_dict=True)
        return tuple(out[k] for k in self.keep)


class MeanPooled(nn.Module):
    """A sentence's embedding: the mean of its tokens', of length 1."""
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        x, m = self.model(input_ids=ids, attention_mask=mask).last_hidden_state, mask.unsqueeze(-1).float()
        return nn.functional.normalize((x * m).sum(1) / m.sum(1).clamp(min=1e-9), dim=1)


IDS = ("input_ids", "attention_mask")
SMALL = dict(vocab_size=8000, hidden_size=256, num_hidden_layers=6, num_attention_heads=4, intermediate_size=1024)


def encoder(model, config, **kw):
    return lambda: Plain(getattr(t, model + "Model")(getattr(t, config + "Config")(**kw)), IDS, ("last_hidden_state",))


def decoder(model, config):
    return Plain(model(config), IDS, ("logits",))


def gpt2():
    return decoder(t.GPT2LMHeadModel, t.GPT2Config(n_embd=384, n_layer=6, n_head=6, vocab_size=8000, use_cache=False))


def llama():
    return decoder(t.LlamaForCausalLM, t.LlamaConfig(**dict(SMALL, hidden_size=384, num_attention_heads=6), num_key_value_heads=2, use_cache=False))


def t5():
    config = t.T5Config(d_model=256, d_ff=1024, num_layers=4, num_heads=4, vocab_size=8000, use_cache=False)
    return Plain(t.T5Model(config), ("input_ids", "decoder_input_ids"), ("last_hidden_state",))


class WhisperEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = t.WhisperModel(t.WhisperConfig(d_model=384, encoder_layers=4, decoder_layers=1, encoder_attention_heads=6, max_source_positions=200,
                                                    encoder_ffn_dim=1536)).encoder

    def forward(self, mel):
        return self.model(mel).last_hidden_state


class ClipImage(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = t.CLIPVisionModelWithProjection(t.CLIPVisionConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6,
                                                                        intermediate_size=1536, patch_size=32))

    def forward(self, pixels):
        return self.model(pixels).image_embeds


def pixels(model, config, keep):
    return lambda: Plain(model(config()), ("pixel_values",), keep)


class HifiGan(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = t.SpeechT5HifiGan(t.SpeechT5HifiGanConfig(upsample_initial_channel=128))

    def forward(self, mel):
        return self.model(mel)


def wav2vec2():
    return Plain(t.Wav2Vec2ForCTC(t.Wav2Vec2Config(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
                                                   conv_dim=(128,) * 7)), ("input_values",), ("logits",))


MODELS = {
    "distilbert": encoder("DistilBert", "DistilBert", n_layers=6, dim=768, vocab_size=8000),
    "minilm": lambda: MeanPooled(t.BertModel(t.BertConfig(vocab_size=8000, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                                                          intermediate_size=1536))),
    "electra": encoder("Electra", "Electra", embedding_size=128, **SMALL),
    "albert": encoder("Albert", "Albert", embedding_size=128, **SMALL),
    "mobilebert": encoder("MobileBert", "MobileBert", vocab_size=8000, num_hidden_layers=6),
    "squeezebert": encoder("SqueezeBert", "SqueezeBert", embedding_size=256, **SMALL),
    "deberta": encoder("DebertaV2", "DebertaV2", relative_attention=True, position_buckets=64, pos_att_type=["p2c", "c2p"], **SMALL),
    "roberta": lambda: decoder(t.XLMRobertaForSequenceClassification, t.XLMRobertaConfig(num_labels=20, **SMALL)),
    "gpt2": gpt2, "llama": llama, "t5": t5, "whisper": WhisperEncoder, "wav2vec2": wav2vec2, "clip": ClipImage, "hifigan": HifiGan,
    "segformer": pixels(t.SegformerForSemanticSegmentation, t.SegformerConfig, ("logits",)),
    "yolos": pixels(t.YolosForObjectDetection, lambda: t.YolosConfig(hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768,
                                                                     image_size=[224, 224], num_detection_tokens=50), ("logits", "pred_boxes")),
    "ast": lambda: Plain(t.ASTForAudioClassification(t.ASTConfig(hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768,
                                                                 max_length=256)), ("input_values",), ("logits",)),
    "swin2sr": pixels(t.Swin2SRForImageSuperResolution, lambda: t.Swin2SRConfig(embed_dim=60, depths=[2, 2], num_heads=[6, 6]), ("reconstruction",)),
}
