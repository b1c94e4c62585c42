"""Pipelines of scikit-learn as people keep them: columns scaled and projected, neighbours, processes, votes, calibration, words as columns. Learned from random
numbers; ONNX models by skl2onnx."""
import numpy as np

COLORS = np.array(["red", "green", "blue", "black", "ab cd fa"], object)
OPSETS = {"": 17, "ai.onnx.ml": 3}


def numbers(rng, rows=400, columns=12):
    """Rows, classes 0 to 2, and a number to estimate."""
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int) + (x[:, 3] > 0.8), x[:, 0] * x[:, 1] + np.sin(x[:, 2])


def classifiers():
    from sklearn import (calibration, discriminant_analysis, ensemble, impute, linear_model, multiclass, naive_bayes, neighbors, neural_network, pipeline, preprocessing,
                         svm, tree)
    from sklearn.decomposition import PCA
    line = pipeline.make_pipeline
    votes = lambda: [("lines", linear_model.LogisticRegression()), ("normal", naive_bayes.GaussianNB()), ("tree", tree.DecisionTreeClassifier(max_depth=5))]  # noqa: E731
    return {
        "projected": lambda: line(preprocessing.StandardScaler(), PCA(6), linear_model.LogisticRegression()),
        "boosted": lambda: ensemble.GradientBoostingClassifier(n_estimators=20, random_state=1),
        "neighbours": lambda: neighbors.KNeighborsClassifier(5),
        "calibrated": lambda: calibration.CalibratedClassifierCV(svm.LinearSVC(), method="sigmoid", cv=3),
        "isotonic": lambda: calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), method="isotonic", cv=3),
        "voting": lambda: ensemble.VotingClassifier(votes(), voting="soft", flatten_transform=False),
        "majority": lambda: ensemble.VotingClassifier(votes(), voting="hard", flatten_transform=False),
        "stacking": lambda: ensemble.StackingClassifier(votes(), linear_model.LogisticRegression()),
        "adaboost": lambda: ensemble.AdaBoostClassifier(n_estimators=20, random_state=1),
        "bagging": lambda: ensemble.BaggingClassifier(tree.DecisionTreeClassifier(max_depth=4), 10, random_state=1),
        "bins": lambda: line(impute.SimpleImputer(), preprocessing.KBinsDiscretizer(5, encode="onehot-dense"), linear_model.LogisticRegression()),
        "one_vs_rest": lambda: multiclass.OneVsRestClassifier(svm.LinearSVC()),
        "discriminant": lambda: line(preprocessing.MinMaxScaler(), discriminant_analysis.LinearDiscriminantAnalysis()),
        "small_mlp": lambda: line(preprocessing.StandardScaler(), neural_network.MLPClassifier((16,), max_iter=30, random_state=1)),
    }


def others():
    """Estimators of a number, of clusters."""
    from sklearn import cluster, ensemble, gaussian_process, linear_model, mixture, neighbors, pipeline, preprocessing, svm
    line, kernels = pipeline.make_pipeline, gaussian_process.kernels
    return {
        "process": lambda: gaussian_process.GaussianProcessRegressor(kernels.ConstantKernel() * kernels.RBF(2.0), alpha=0.1, optimizer=None),
        "near_mean": lambda: neighbors.KNeighborsRegressor(4, weights="distance"),
        "polynomial": lambda: line(preprocessing.StandardScaler(), preprocessing.PolynomialFeatures(2), linear_model.Ridge()),
        "robust": lambda: line(preprocessing.RobustScaler(), preprocessing.PowerTransformer(), linear_model.ElasticNet(0.01)),
        "support": lambda: line(preprocessing.StandardScaler(), svm.SVR()),
        "extra_trees": lambda: ensemble.ExtraTreesRegressor(50, max_depth=8, random_state=1),
        "clusters": lambda: line(preprocessing.StandardScaler(), cluster.KMeans(5, n_init=1, random_state=1)),
        "mixture": lambda: mixture.GaussianMixture(3, random_state=1),
    }


def of_columns(rng):
    """Numbers scaled, words as columns of 0 and 1, side by side: two inputs."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn import compose, linear_model, pipeline, preprocessing
    x, y, _ = numbers(rng, columns=6)
    rows = np.concatenate([x.astype(object), rng.choice(COLORS, (len(x), 2))], 1)
    sides = [("numbers", preprocessing.StandardScaler(), list(range(6))), ("words", preprocessing.OneHotEncoder(handle_unknown="ignore"), [6, 7])]
    model = pipeline.make_pipeline(compose.ColumnTransformer(sides), linear_model.LogisticRegression()).fit(rows, y)
    types = [("numbers", FloatTensorType([None, 6])), ("words", StringTensorType([None, 2]))]
    return convert_sklearn(model, initial_types=types, options={"zipmap": False}, target_opset=OPSETS)


def of_ordinals(rng):
    """Words numbered, and trees over the numbers; classes are words themselves."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn import ensemble, pipeline, preprocessing
    x = rng.choice(COLORS, (300, 3))
    y = np.where(x[:, 0] == "red", "warm", np.where(x[:, 1] == "blue", "cold", "neither"))
    numbered = preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    model = pipeline.make_pipeline(numbered, ensemble.RandomForestClassifier(10, random_state=1))
    return convert_sklearn(model.fit(x, y), initial_types=[("words", StringTensorType([None, 3]))], options={"zipmap": False}, target_opset=OPSETS)


def of_counts(rng):
    """Words counted, and Bayes' rule."""
    import zoo_tables
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn import naive_bayes, pipeline
    from sklearn.feature_extraction.text import CountVectorizer
    texts = zoo_tables.words(300, rng)
    model = pipeline.make_pipeline(CountVectorizer(token_pattern="[a-z]+", lowercase=False), naive_bayes.MultinomialNB()).fit(texts, [t.count("c") % 3 for t in texts])
    return convert_sklearn(model, initial_types=[("text", StringTensorType([None, 1]))], options={"zipmap": False}, target_opset=OPSETS)


def of_distances(rng):
    """Neighbours, with ONNX Runtime's own operator for distances."""
    from skl2onnx import to_onnx
    from sklearn import neighbors
    x, _, number = numbers(rng)
    model = neighbors.KNeighborsRegressor(weights="distance").fit(x, number)
    return to_onnx(model, x[:1], options={"optim": "cdist"}, target_opset=dict(OPSETS, **{"com.microsoft": 1}))


def of_hashes(rng):
    """Words by their hashes."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction import FeatureHasher
    model = FeatureHasher(n_features=256, input_type="string").fit([["a"]])
    return convert_sklearn(model, initial_types=[("words", StringTensorType([None, 3]))], target_opset=dict(OPSETS, **{"com.microsoft": 1}))


OTHERS = {"columns": of_columns, "ordinals": of_ordinals, "counts": of_counts, "distances": of_distances, "hashes": of_hashes}


def pipeline_model(kind):
    from skl2onnx import to_onnx
    rng = np.random.default_rng(1)
    if kind in OTHERS:
        return OTHERS[kind](rng)
    x, classes, number = numbers(rng)
    if kind in classifiers():
        return to_onnx(classifiers()[kind]().fit(x, classes), x[:1], options={"zipmap": False}, target_opset=OPSETS)
    return to_onnx(others()[kind]().fit(x, number), x[:1], target_opset=OPSETS)
