"""When an output counts as wrong.

Two right engines sum in different orders, and a deep network multiplies what that changes. A fixed tolerance is therefore either too
narrow for random weights or too wide for a classifier; the reference measures it: how far ONNX Runtime with its optimizations is from itself
without them and with inputs that differ by some roundings, in several variants. Right is |x - ref| <= FLOAT (rms(ref) + |ref|) + 2 noise,
the noise being that distance's largest in the tensor and the variants. 8 bits round to steps of 1/255 of the range, and a step taken
elsewhere moves all that follows, in recurrent layers again and again: INT8 of the largest number instead,
and the noise of ONNX Runtime's exact products beside its fast ones, which saturate on a CPU without VNNI. Integers, bools and words must be equal, but where ONNX
Runtime differs from itself, and save for choices (argmax, class) between two all but equal numbers: at most 1 in 100 of a large tensor.

An output of the reference's shape is compared with the variants of that shape; one of another shape is right where a variant has that shape, its
values unseen: the reference then gives different numbers of results itself (detections, say).

A detector with random weights gives its boxes scores that differ by a rounding or not at all: which of two overlapping boxes NonMaxSuppression keeps is then
chance, and so are boxes and classes in the outputs (a Faster R-CNN: 2 to 5 of 100 boxes). Compare its tensors in front of that operator, or give it trained weights.
"""
import numpy as np

FLOAT, INT8, TIE = 1e-3, 5e-2, 1e-5


def floats_differ(ours, ref, exacts, loose):
    if not np.array_equal(np.isfinite(ours), np.isfinite(ref)):
        return "numbers that are not finite stand elsewhere"
    there = np.isfinite(ref)
    ours, ref, *exacts = (np.asarray(a, np.float64)[there] for a in (ours, ref, *exacts))
    if ref.size == 0:
        return None
    noise = max((float(d[np.isfinite(d)].max(initial=0)) for d in (np.abs(ref - exact) for exact in exacts)), default=0.0)
    scale = np.abs(ref).max() if loose == INT8 else np.sqrt(np.mean(ref ** 2)) + np.abs(ref)
    allowed = loose * scale + 2 * noise + 1e-7 + 0 * ref
    off = np.fmin.reduce([np.abs(ours - told) for told in (ref, *exacts)])  # a variant's NaN says nothing
    far = np.where(off <= allowed, 0, np.nan_to_num(off / allowed, nan=np.inf))  # what cannot be compared is wrong, too
    at = int(np.argmax(far))
    return f"element {at} is {ours[at]:.6g}, not {ref[at]:.6g} (off {off[at]:.3g}, allowed {allowed[at]:.3g})" if far[at] > 0 else None


def output_differs(ours, ref, exacts, int8):
    """None, or what is wrong with an output."""
    if ours is None:
        return "missing"
    if ours.shape != ref.shape:
        known = any(ours.shape == exact.shape for exact in exacts)
        return None if known else f"shape {list(ours.shape)}, not {list(ref.shape)}"
    exacts = [exact for exact in exacts if exact.shape == ref.shape]
    if ref.dtype.kind == "f":
        return floats_differ(ours, ref, exacts, INT8 if int8 else FLOAT)
    if ref.dtype == object:
        return None if ours.tolist() == ref.tolist() else "other words"
    wrong = int(np.sum(np.all([ours != told for told in (ref, *exacts)], 0)))
    return f"{wrong} of {ref.size} integers differ" if wrong > ref.size * (0.1 if int8 else 0.01) else None


def match_ties(ours, refs):
    """Ours, with detections whose scores are all but equal in the reference's order.

    The reference's own variants are ordered so, too: else what changed places there would count as noise of the numbers.
    A detector sorts by score. Which of two scores within some roundings of each other is the larger one the model does not say, and ONNX Runtime
    itself answers differently with and without its optimizations; what stands elsewhere in the list for that reason alone is not wrong. Detections are the rows of
    all outputs with as many rows as the one list of scores; only rows whose scores differ by at most TIE of the largest change
    places.
    """
    scores = [k for k, r in enumerate(refs) if r.ndim == 1 and r.dtype.kind == "f" and r.size > 1]
    if len(scores) != 1 or any(o is None for o in ours) or ours[scores[0]].shape != refs[scores[0]].shape:
        return ours
    theirs = refs[scores[0]]
    rows = [k for k, r in enumerate(refs) if r.ndim and r.shape[0] == theirs.size and ours[k].shape == r.shape]
    allowed, free, order = TIE * np.abs(theirs).max(), np.ones(theirs.size, bool), []
    for i in range(theirs.size):
        near = np.flatnonzero(free & (np.abs(theirs - theirs[i]) <= allowed))
        far = [sum(float(np.abs(np.asarray(ours[k][j], np.float64) - refs[k][i]).sum()) for k in rows) for j in near]
        order.append(int(near[int(np.argmin(far))]) if len(near) else -1)
        if order[-1] >= 0:
            free[order[-1]] = False
    left = iter(np.flatnonzero(free))
    order = [j if j >= 0 else int(next(left)) for j in order]
    return [o[order] if k in rows else o for k, o in enumerate(ours)]


def compare(names, ours, refs, exacts, int8, detects=False):
    """None, or the first output that is wrong, and how. exacts: outputs of each variant (zoo_reference.py)."""
    if detects:
        told = [np.asarray(r) for r in refs]
        ours = dict(zip(names, match_ties([ours.get(n) for n in names], told)))
        exacts = [match_ties([np.asarray(e) for e in exact], told) for exact in exacts]
    for k, (name, ref) in enumerate(zip(names, refs)):
        why = output_differs(ours.get(name), np.asarray(ref), [np.asarray(exact[k]) for exact in exacts], int8)
        if why:
            return f"'{name}': {why}"
    return None
