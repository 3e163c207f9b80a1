"""Trains the examples in PyTorch from the weights in their ONNX files and records the curves that gtc should match.

    tests/torch/run.sh train_examples.py [mlp|cnn|gpt ...] [--seeds 3] [--threads 2]

Writes examples/*/expected.json: per model and seed, the mean training loss of every 100 updates (mnist: of every epoch)
and, over the whole held-out set, the loss (and accuracy) along the way. The batches differ from gtc's, so the curves are
to be met within the spread of the seeds, not to the bit.
"""

import argparse
import json
import time

import torch
from torch.nn import functional as F

from models import CONTEXT, EXAMPLES, digits, adamw, learning_rate, load, text, train_step, windows


@torch.no_grad()
def held_out(model, inputs, targets, batch=500):
    """Mean loss per prediction and share of right predictions over all of (inputs, targets)."""
    total = right = 0
    for x, y in zip(inputs.split(batch), targets.split(batch)):
        logits = model(x).flatten(0, -2)
        total += F.cross_entropy(logits, y.flatten(), reduction="sum").item()
        right += (logits.argmax(-1) == y.flatten()).sum().item()
    return total / targets.numel(), right / targets.numel()


def scored(step, model, held):
    """The row of a record that says how the model does after `step` updates; step 0 is exact for gtc too."""
    loss, accuracy = held_out(model, *held)
    return dict(step=step, loss=round(loss, 6), accuracy=round(accuracy, 4))


def batches(name, seed):
    """Endless (input, target) batches: epochs of shuffled digits, or text windows at random places as nanoGPT draws them."""
    draw = torch.Generator().manual_seed(seed)
    batch = EXAMPLES[name]["batch"]
    if name == "gpt":
        tokens = text("train")
        while True:
            at = torch.randint(len(tokens) - CONTEXT, (batch, 1), generator=draw) + torch.arange(CONTEXT)
            yield tokens[at], tokens[at + 1]
    image, label = digits("train")
    while True:
        for chosen in torch.randperm(len(label), generator=draw).split(batch):
            yield image[chosen], label[chosen]


def train(name, seed):
    """One whole training run; its record."""
    ex = EXAMPLES[name]
    model = load(name)
    optimizer = adamw(name, model)
    steps = ex["steps"]
    if name == "gpt":
        every, evaluate, held = 100, 250, windows(text("val"))
    else:
        every, evaluate, held = steps // 5, steps // 5, digits("test")
    record = dict(seed=seed, train_loss=[], held_out=[scored(0, model, held)])
    losses, seconds = [], 0.0
    for step, (x, y) in zip(range(steps), batches(name, seed)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(name, step)
        start = time.perf_counter()
        losses.append(train_step(name, model, optimizer, x, y).item())
        seconds += time.perf_counter() - start
        if (step + 1) % every == 0:
            record["train_loss"].append(dict(step=step + 1, loss=round(sum(losses) / len(losses), 4)))
            losses = []
        if (step + 1) % evaluate == 0:
            record["held_out"].append(scored(step + 1, model, held))
    print(f"{name} seed {seed}: {record['held_out'][-1]}, {1000 * seconds / steps:.2f} ms a step", flush=True)
    return record


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("names", nargs="*", help="which examples (default: all)")
    parse.add_argument("--seeds", type=int, default=3)
    parse.add_argument("--threads", type=int, default=2)
    args = parse.parse_args()
    torch.set_num_threads(args.threads)
    for name in args.names or EXAMPLES:
        ex = EXAMPLES[name]
        path = ex["file"].parent / "expected.json"
        expected = json.loads(path.read_text()) if path.exists() else {}
        setting = {k: v for k, v in ex.items() if k not in ("file", "build", "input")}
        expected[name] = dict(torch=torch.__version__.split("+")[0], setting=setting, runs=[train(name, s) for s in range(args.seeds)])
        path.write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
