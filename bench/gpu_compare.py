"""What PyTorch needs for the same on a GPU: python3 gpu_compare.py DEVICE OUT.json [--precision f32|tf32|bf16|f16] [--models resnet152]
[--only eager,graphs] [--runs 20]. Random weights of the same architectures. Each number in milliseconds, the median (and p99) of the runs after a
warm-up, with the device synchronised; OUT.json is written anew after each. What cannot be measured (a package is missing, memory is short)
is left out, with the reason; if the GPU's context is lost, all that follows, with exit status 3. DEVICE cpu tries the script where there is no GPU: its numbers mean nothing, and graphs are left out."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

RUNS, WARM = 20, 5
TYPE = "float32"  # of weights and activations; bfloat16 and float16 for the ways that are compared in it
MODELS = {"resnet152": (3, 224, 224), "inception_v3": (3, 299, 299), "bert_base": (128,)}
# Of make-models: layers of attention alone, heads of so many numbers. Positions, and whether each sees only those before it.
ATTENTIONS = {"attention_128": (128, False), "attention_1024": (1024, False), "attention_causal_1024": (1024, True)}
LAYERS, HEADS, SIZE = 32, 12, 64


def make(name):
    import torch
    return make_wide(name).to(getattr(torch, TYPE))


def make_wide(name):
    if name == "bert_base":
        from transformers import BertConfig, BertModel
        return unmasked(BertModel(BertConfig()))
    if name == "bert_classifier":  # what we train has no dropout either
        from transformers import BertConfig, BertForSequenceClassification
        return unmasked(BertForSequenceClassification(BertConfig(num_labels=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)))
    if name in ATTENTIONS:
        return make_attention(ATTENTIONS[name][1])
    import torchvision.models as vision
    if name == "inception_v3":
        return vision.inception_v3(weights=None, init_weights=False, aux_logits=False)
    return getattr(vision, name)(weights=None)


def unmasked(model):
    """A BERT that makes no mask, since nothing is masked. By itself it makes one of ones and, by version, asks the device whether it is all
    ones, which a capture does not allow, or drops it but while it captures, so that graphs would do more than eager does."""
    import transformers.models.bert.modeling_bert as bert
    for helper in ("_prepare_4d_attention_mask_for_sdpa", "create_bidirectional_mask"):
        if hasattr(bert, helper):
            setattr(bert, helper, lambda *_, **__: None)
    model.config.pad_token_id = None  # or the inputs are searched for it, on the device too
    return model


def make_attention(causal):
    import torch

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = torch.nn.Parameter(torch.randn(SIZE) * 0.05)

        def forward(self, x):
            x = x + self.shift
            for _ in range(LAYERS):
                heads = x.transpose(1, 2)
                x = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=causal).transpose(1, 2)
            return x
    return Attention()


def make_input(torch, name, batch, device):
    if name in ATTENTIONS:
        return torch.randn(batch, ATTENTIONS[name][0], HEADS, SIZE, device=device, dtype=getattr(torch, TYPE))
    if name.startswith("bert"):
        return torch.randint(0, 30000, (batch, 128), device=device)
    shape = MODELS.get(name, (3, 224, 224))
    return torch.randn(batch, *shape, device=device, dtype=getattr(torch, TYPE)).contiguous(memory_format=torch.channels_last)


def settle(torch, name, model):
    return model if name.startswith(("bert", "attention")) else model.to(memory_format=torch.channels_last)


def synchronize(torch):
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def pinned(torch, x):
    return x.pin_memory() if torch.cuda.is_available() else x


class Times(float):
    """The median, with the 99th percentile beside it."""
    def __new__(cls, times):
        made = super().__new__(cls, statistics.median(times))
        made.p99 = sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]
        return made


def median_ms(torch, call, most=1000):
    times, runs, warm = [], min(RUNS, most), min(WARM, most)
    for i in range(warm + runs):
        synchronize(torch)
        start = time.perf_counter()
        call()
        synchronize(torch)
        if i >= warm:
            times.append((time.perf_counter() - start) * 1e3)
    return Times(times)


def eager(torch, name, batch, device):
    """From inputs in pinned memory to outputs in host memory, as a request is."""
    model = settle(torch, name, make(name).eval()).to(device)
    x = pinned(torch, make_input(torch, name, batch, "cpu"))

    def call():
        y = model(x.to(device, non_blocking=True))
        (y.pooler_output if hasattr(y, "pooler_output") else y).cpu()
    return median_ms(torch, call)


def graphs(torch, name, batch, device):
    model = settle(torch, name, make(name).eval()).to(device)
    x, held = make_input(torch, name, batch, "cpu").pin_memory(), make_input(torch, name, batch, device)
    if device == "cpu":
        raise RuntimeError("no graphs on the CPU")
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))  # which writes the weights and the inputs
    with torch.cuda.stream(side):
        for _ in range(3):
            model(held)
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(held)
    y = y.pooler_output if hasattr(y, "pooler_output") else y

    def call():
        held.copy_(x, non_blocking=True)
        graph.replay()
        y.cpu()
    return median_ms(torch, call)


def model_to(torch, name, batch, device):
    """A swap as PyTorch has it: the model in pinned host memory, then `to`, then run."""
    model = settle(torch, name, make(name).eval())
    for p in list(model.parameters()) + list(model.buffers()):
        p.data = pinned(torch, p.data)
    hosts = {k: v.data for k, v in list(model.named_parameters()) + list(model.named_buffers())}
    x = pinned(torch, make_input(torch, name, batch, "cpu"))

    def call():
        for k, v in list(model.named_parameters()) + list(model.named_buffers()):
            v.data = hosts[k].to(device, non_blocking=True)
        y = model(x.to(device, non_blocking=True))
        (y.pooler_output if hasattr(y, "pooler_output") else y).cpu()
    model.to(device)
    return median_ms(torch, call, 10)


def cpu_offload(torch, name, batch, device):
    from accelerate import cpu_offload as offload
    model = settle(torch, name, make(name).eval())
    offload(model, execution_device=device)
    x = make_input(torch, name, batch, device)
    return median_ms(torch, lambda: model(x), 5)


def fresh_process(torch, name, batch, device):
    code = ("import sys; sys.path.insert(0, %r); import torch, gpu_compare as c; torch.set_grad_enabled(False); "
            "m = c.settle(torch, %r, c.make(%r).eval()).to(%r); m(c.make_input(torch, %r, %d, %r)); c.synchronize(torch)"
            % (sys.path[0], name, name, device, name, batch, device))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def train_step(torch, name, batch, device):
    torch.set_grad_enabled(True)
    try:
        model = settle(torch, name, make_wide(name).train()).to(device)
        x = make_input(torch, name, batch, device)
        narrow = TYPE == "bfloat16"  # products in it, weights in float32: as our jobs have it
        labels = torch.randint(0, 16, (batch,), device=device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def call():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=narrow):
                y = model(x)
            y = y.logits if hasattr(y, "logits") else y
            torch.nn.functional.cross_entropy(y.float(), labels).backward()
            optimizer.step()
        return median_ms(torch, call)
    finally:
        torch.set_grad_enabled(False)


WAYS = (eager, graphs, model_to, cpu_offload, fresh_process, train_step)


def cases(precision, models, only):
    for model in models:
        for batch in (8, 1):
            for way in WAYS[:5]:
                both = way in (eager, graphs, model_to)
                if model in ATTENTIONS and way not in (eager, graphs):
                    continue
                if way.__name__ in only and (both or (batch == 8 and precision in ("f32", "tf32"))):
                    yield way, model, batch
    if "train_step" in only and precision != "f16" and set(models) == set(MODELS):
        for model in ("resnet50", "bert_classifier"):
            yield train_step, model, 32


def context_is_lost(torch):
    """Why, or None."""
    try:
        torch.cuda.empty_cache()
        synchronize(torch)
    except Exception as error:
        return repr(error)[:300]
    return None


def write(path, result):
    with open(path + ".new", "w") as out:
        json.dump(result, out, indent=1)
    os.rename(path + ".new", path)


def main():
    global TYPE, RUNS, WARM
    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("out")
    parser.add_argument("--precision", choices=("f32", "tf32", "bf16", "f16"), default="f32")
    parser.add_argument("--models", default=",".join(MODELS), help="with commas between, also of %s; training steps come with all of the former" % ", ".join(ATTENTIONS))
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default=",".join(f.__name__ for f in WAYS), help="these ways, with commas between")
    args = parser.parse_args()
    import torch
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit("gpu_compare: PyTorch sees no GPU")
    RUNS, WARM = args.runs, min(WARM, args.runs)
    TYPE = {"bf16": "bfloat16", "f16": "float16"}.get(args.precision, TYPE)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.set_grad_enabled(False)
    result = {"torch": torch.__version__, "precision": args.precision, "rows": [], "missing": []}
    lost = None
    for function, model, batch in cases(args.precision, args.models.split(","), args.only.split(",")):
        row = {"what": function.__name__, "model": model, "batch": batch}
        try:
            if lost:
                raise RuntimeError("the context is lost: " + lost)
            row["ms"] = function(torch, model, batch, args.device)
            if isinstance(row["ms"], Times):
                row["p99_ms"] = row["ms"].p99
            result["rows"].append(row)
            print("%-14s %-13s batch %2d: %9.2f ms" % (function.__name__, model, batch, row["ms"]), flush=True)
        except Exception as error:  # one case that fails must not take the others along
            row["why"] = repr(error)[:300]
            result["missing"].append(row)
            print("%-14s %-13s batch %2d: %s" % (function.__name__, model, batch, row["why"]), flush=True)
        write(args.out, result)
        lost = lost or context_is_lost(torch)
    write(args.out, result)
    if lost:
        print("gpu_compare: the context was lost, %d of %d are not measured: %s" % (
            len(result["missing"]), len(result["missing"]) + len(result["rows"]), lost), file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
