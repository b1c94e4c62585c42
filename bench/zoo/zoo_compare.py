"""When an output counts as wrong.

Two right engines sum in different orders, and a deep network multiplies what that changes. A fixed tolerance is therefore either too
narrow for random weights or too wide for a classifier; the reference measures it: how far ONNX Runtime with its optimizations is from itself
without. Right is |x - ref| <= FLOAT (rms(ref) + |ref|) + 4 noise, the noise being that distance's largest in the tensor. 8 bits round to steps of
1/255 of the range, and a step taken elsewhere moves all that follows, in recurrent layers again and again: INT8 of the largest number instead. Integers, bools and words must be equal, but where ONNX
Runtime differs from itself, and save for choices (argmax, class) between two all but equal numbers: at most 1 in 100 of a large tensor.
"""
import numpy as np

FLOAT, INT8 = 1e-3, 5e-2


def floats_differ(ours, ref, exact, loose):
    if not np.array_equal(np.isfinite(ours), np.isfinite(ref)):
        return "numbers that are not finite stand elsewhere"
    there = np.isfinite(ref)
    ours, ref, exact = (np.asarray(a, np.float64)[there] for a in (ours, ref, exact))
    if ref.size == 0:
        return None
    distance = np.abs(ref - exact)
    noise = float(distance[np.isfinite(distance)].max(initial=0))
    scale = np.abs(ref).max() if loose == INT8 else np.sqrt(np.mean(ref ** 2)) + np.abs(ref)
    allowed = loose * scale + 4 * noise + 1e-7 + 0 * ref
    off = np.minimum(np.abs(ours - ref), np.abs(ours - exact))
    at = int(np.argmax(off / allowed))
    return f"element {at} is {ours[at]:.6g}, not {ref[at]:.6g} (off {off[at]:.3g}, allowed {allowed[at]:.3g})" if off[at] > allowed[at] else None


def output_differs(ours, ref, exact, int8):
    """None, or what is wrong with an output."""
    if ours is None:
        return "missing"
    if ref.shape != exact.shape:
        return None  # the reference itself is undecided about how many it found
    if ours.shape != ref.shape:
        return f"shape {list(ours.shape)}, not {list(ref.shape)}"
    if ref.dtype.kind == "f":
        return floats_differ(ours, ref, exact, INT8 if int8 else FLOAT)
    if ref.dtype == object:
        return None if ours.tolist() == ref.tolist() else "other words"
    wrong = int(np.sum((ours != ref) & (ours != exact)))
    return f"{wrong} of {ref.size} integers differ" if wrong > ref.size * (0.1 if int8 else 0.01) else None


def compare(names, ours, refs, exacts, int8):
    """None, or the first output that is wrong, and how."""
    for name, ref, exact in zip(names, refs, exacts):
        why = output_differs(ours.get(name), np.asarray(ref), np.asarray(exact), int8)
        if why:
            return f"'{name}': {why}"
    return None
