"""The zoo's models of scikit-learn, LightGBM and Keras, learned from random numbers: ONNX models."""
import numpy as np


def learned(kind):
    from sklearn import ensemble, linear_model, neural_network, pipeline, preprocessing, svm
    return {
        "logistic": lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
        "forest": lambda: ensemble.RandomForestClassifier(100, max_depth=10, random_state=1),
        "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=100, random_state=1),
        "svm": lambda: svm.SVC(probability=True, random_state=1),
        "mlp": lambda: neural_network.MLPClassifier((128, 64), max_iter=30, random_state=1),
    }[kind]()


def words(n, rng):
    letters = np.array(list("abcdefghij"))
    return [" ".join("".join(rng.choice(letters, rng.integers(2, 5))) for _ in range(rng.integers(3, 20))) for _ in range(n)]


def of_ngrams(rng):
    """Words and pairs of them counted, weighed by how few texts have them."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline
    texts = words(300, rng)
    model = make_pipeline(TfidfVectorizer(token_pattern="[a-z]+", lowercase=False, ngram_range=(1, 2), max_features=2000), SGDClassifier(loss="log_loss"))
    model.fit(texts, [t.count("b") % 4 for t in texts])
    return convert_sklearn(model, initial_types=[("text", StringTensorType([None, 1]))], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})


def of_text(rng):
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    texts = words(400, rng)
    model = make_pipeline(TfidfVectorizer(token_pattern="[a-z]+", lowercase=False), LogisticRegression()).fit(texts, [t.count("a") % 3 for t in texts])
    return convert_sklearn(model, initial_types=[("text", StringTensorType([None, 1]))], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})


def of_categories(rng):
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder
    x = rng.choice(np.array(["red", "green", "blue", "black"], object), (300, 2))
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(x, (x[:, 0] == "red").astype(int))
    return convert_sklearn(model, initial_types=[("words", StringTensorType([None, 2]))], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})


def of_lightgbm(x, y):
    import lightgbm
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType
    model = lightgbm.LGBMClassifier(n_estimators=100, verbose=-1, n_jobs=1).fit(x, y)
    return convert_lightgbm(model, initial_types=[("x", FloatTensorType([None, 20]))], zipmap=False, target_opset=15)


def sklearn_model(kind):
    rng = np.random.default_rng(1)
    if kind in ("tfidf", "categories", "ngrams"):
        return {"tfidf": of_text, "categories": of_categories, "ngrams": of_ngrams}[kind](rng)
    x = rng.standard_normal((1000, 20)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int) + (x[:, 3] > 1)
    if kind == "lightgbm":
        return of_lightgbm(x, y)
    from skl2onnx import to_onnx
    model = learned(kind).fit(x, y)
    return to_onnx(model, x[:1], options={"zipmap": False} if kind != "boosting" else None, target_opset={"": 17, "ai.onnx.ml": 3})


def byte_classifier(tf):
    """As exported from JAX: bytes to one-hot embeddings, blocks of dense layers, the largest along the file."""
    layers = tf.keras.layers
    x = inputs = layers.Input((1024,), dtype="int32")
    x = layers.Embedding(257, 32)(x)
    x = layers.Reshape((256, 128))(x)
    for _ in range(2):
        x = layers.LayerNormalization()(layers.Dense(128, lambda y: tf.nn.gelu(y, approximate=True))(x))
    x = layers.Dense(256, "relu")(layers.Concatenate()([layers.GlobalMaxPooling1D()(x), layers.GlobalAveragePooling1D()(x)]))
    return tf.keras.Model(inputs, layers.Dense(113, "softmax")(x))


def attention(tf):
    """Keras' own attention, whose export has Einsum, behind a causal convolution and in front of pooled scores."""
    layers = tf.keras.layers
    x = inputs = layers.Input((40, 24))
    x = layers.Conv1D(48, 3, padding="causal", activation="relu")(x)
    for _ in range(2):
        x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, layers.MultiHeadAttention(4, 12)(x, x)]))
        x = layers.Add()([x, layers.Dense(48)(layers.Dense(96, "swish")(x))])
    return tf.keras.Model(inputs, layers.Dense(6, "softmax")(layers.GlobalAveragePooling1D()(x)))


def unet(tf):
    """Channels last: convolutions, max pools, transposed convolutions, batch norms."""
    layers, kept = tf.keras.layers, []
    x = inputs = layers.Input((96, 96, 3))
    for width in (16, 32, 64):
        x = layers.ReLU()(layers.BatchNormalization()(layers.SeparableConv2D(width, 3, padding="same", use_bias=False)(x)))
        kept.append(layers.Conv2D(width, 3, padding="same", activation="relu")(x))
        x = layers.MaxPooling2D()(kept[-1])
    for width in (64, 32, 16):
        x = layers.Concatenate()([layers.Conv2DTranspose(width, 3, 2, padding="same", activation="relu")(x), kept.pop()])
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
    return tf.keras.Model(inputs, layers.Conv2D(5, 1, activation="softmax")(x))


def keras_net(kind, tf):
    apps, layers = tf.keras.applications, tf.keras.layers
    sized = dict(weights=None, input_shape=(160, 160, 3))
    return {
        "bytes": lambda: byte_classifier(tf), "attention": lambda: attention(tf), "unet": lambda: unet(tf),
        "mobilenet_v2": lambda: apps.MobileNetV2(**sized), "efficientnet_b0": lambda: apps.EfficientNetB0(**sized),
        "xception": lambda: apps.Xception(**sized), "resnet50_v2": lambda: apps.ResNet50V2(**sized),
        "bilstm": lambda: tf.keras.Sequential([layers.Bidirectional(layers.LSTM(64, return_sequences=True)), layers.LSTM(64), layers.Dense(5, "softmax")]),
    }[kind]()


def far_ends(made):
    """Slices to the end as jax2tf and tf2onnx write them: a batch dimension sliced to 10^9."""
    from onnx import helper, numpy_helper
    x, graph = made.graph.input[0].name, made.graph
    for node in graph.node:
        node.input[:] = [x + "_all" if i == x else i for i in node.input]
    names = {n: np.array([v], np.int64) for n, v in (("far_start", 0), ("far_end", 10 ** 9), ("far_axis", 0))}
    graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in names.items())
    graph.node.insert(0, helper.make_node("Slice", [x, *names], [x + "_all"]))
    return made


def keras_model(kind, dims, dtype, opset):
    import tensorflow as tf
    import tf2onnx
    tf.keras.utils.set_random_seed(1)
    net = keras_net(kind, tf)
    for layer in net.layers:
        if isinstance(layer, tf.keras.layers.Normalization):  # a tensor that a function captures becomes an input of the file, a variable a weight
            layer.mean, layer.variance = tf.Variable(layer.mean), tf.Variable(layer.variance)
    call = tf.function(lambda x: net(x, training=False), input_signature=[tf.TensorSpec(dims, dtype, name="x")])
    made, _ = tf2onnx.convert.from_function(call, input_signature=call.input_signature, opset=opset)
    return far_ends(made) if kind == "bytes" else made
