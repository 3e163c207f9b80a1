"""PyTorch's side of bench/step: one process that stays warm and does training steps of one example on request.

    tests/torch/run.sh bench/step/rival.py gpt|cnn|mlp --threads 2 [--optimizer default|foreach|fused] [--profile]

First prints {"ready": ...}. Then, for each line "run N" on standard input, does N steps (eager, fp32) and prints one line
{"step": i, "loss": x, "seconds": s} for each. A step is forward, loss, backward, clipping and update; its batch is cut
before the clock starts. --profile prints the most expensive operators of 20 steps instead.
"""

import argparse
import json
import sys
import time

import torch

from models import EXAMPLES, adamw, load, train_step
from train_examples import batches


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("name", choices=list(EXAMPLES))
    parse.add_argument("--threads", type=int, default=2)
    parse.add_argument("--optimizer", choices=["default", "foreach", "fused"], default="default")
    parse.add_argument("--profile", action="store_true")
    args = parse.parse_args()
    torch.set_num_threads(args.threads)
    model = load(args.name)
    kind = {} if args.optimizer == "default" else {args.optimizer: True}
    optimizer = adamw(args.name, model, **kind)
    source = batches(args.name, seed=0)

    def timed_step():
        x, y = next(source)
        while len(y) < EXAMPLES[args.name]["batch"]:  # an epoch's short last batch would flatter PyTorch
            x, y = next(source)
        start = time.perf_counter()
        loss = train_step(args.name, model, optimizer, x, y).item()
        return loss, time.perf_counter() - start

    if args.profile:
        for _ in range(10):
            timed_step()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(20):
                timed_step()
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=40))
        return
    print(json.dumps(dict(ready=f"torch {torch.__version__.split('+')[0]} eager", batch=EXAMPLES[args.name]["batch"])), flush=True)
    done = 0
    for line in sys.stdin:
        word, count = line.split()
        if word != "run":
            raise SystemExit(f"rival: unknown request {line!r}")
        rows = [timed_step() for _ in range(int(count))]
        for loss, seconds in rows:
            done += 1
            print(json.dumps(dict(step=done, loss=loss, seconds=seconds)), flush=True)


if __name__ == "__main__":
    main()
