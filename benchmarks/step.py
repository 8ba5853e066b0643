"""Tokens a second of the whole training step of ELECTRA-Small: ours beside one written with the `transformers` classes.

Both: the paper's Small (table 6), vocabulary 30,522, dropout 0.1, float32, random tokens, forward, backward, clipping and
AdamW. The rival has scaled-dot-product attention and scores the vocabulary at every position, as its class does. Each side
runs in a process of its own, in turn, so that its peak memory is its own and a drift of the machine meets both.

    python benchmarks/step.py --batch-size 16 --repeats 5
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

VOCABULARY, LENGTH, MASKED, MASK = 30_522, 128, 0.15, 103


def rival_step(batch_size: int) -> Callable[[], None]:
    import torch
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    shape = {"vocab_size": VOCABULARY, "attn_implementation": "sdpa"}
    generator = ElectraForMaskedLM(ElectraConfig(hidden_size=64, intermediate_size=256, num_attention_heads=1, **shape))
    discriminator = ElectraForPreTraining(ElectraConfig(**shape))
    for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        shared = getattr(discriminator.electra.embeddings, table).weight
        getattr(generator.electra.embeddings, table).weight = shared
    parameters = list({id(p): p for net in (generator, discriminator) for p in net.parameters()}.values())
    optimizer = torch.optim.AdamW(parameters, lr=5e-4, eps=1e-6, weight_decay=0.01)
    attention_mask = torch.ones(batch_size, LENGTH, dtype=torch.long)

    def step() -> None:
        ids = torch.randint(5, VOCABULARY, (batch_size, LENGTH))
        masked = torch.rand(batch_size, LENGTH) < MASKED
        labels = ids.masked_fill(~masked, -100)
        out = generator(input_ids=ids.masked_fill(masked, MASK), attention_mask=attention_mask, labels=labels)
        with torch.no_grad():
            logits = out.logits[masked]
            gumbel = -torch.log(-torch.log(torch.rand_like(logits)))
            replaced = ids.clone()
            replaced[masked] = (logits + gumbel).argmax(-1)
        verdict = discriminator(input_ids=replaced, attention_mask=attention_mask, labels=(replaced != ids).long())
        (out.loss + 50.0 * verdict.loss).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def our_step(batch_size: int) -> Callable[[], None]:
    import dataclasses

    import torch

    from electra.data.loader import Batch
    from electra.data.tokenizer import SpecialIds
    from electra.model.native import keep_memory
    from electra.model.pair import Pair
    from electra.objectives import make_objective
    from electra.objectives.base import Counts
    from electra.presets import small
    from electra.train.optimizer import PairOptimizer, clip_gradients
    from electra.train.run import CPU_MICRO_BATCH_TOKENS

    keep_memory()
    config = small()
    encoder = dataclasses.replace(config.model.discriminator, vocab_size=VOCABULARY)
    pair = Pair(dataclasses.replace(config.model, discriminator=encoder))
    optimizer = PairOptimizer(pair, config.optimizer)
    special = SpecialIds(pad=0, unk=100, cls=101, sep=102, mask=MASK)
    objective = make_objective(config.objective, vocab_size=VOCABULARY, special=special, seed=0)
    rows_at_once = CPU_MICRO_BATCH_TOKENS // LENGTH

    def step() -> None:
        ids = torch.randint(105, VOCABULARY, (batch_size, LENGTH))
        ids[:, 0], ids[:, -1] = special.cls, special.sep
        zeros = torch.zeros(batch_size, dtype=torch.long)
        batch = Batch(
            input_ids=ids, attention_mask=None, token_type_ids=None, row_ids=torch.arange(batch_size), epochs=zeros
        )
        parts = [objective.corrupt(part) for part in batch.split(rows_at_once)]
        masked, scored = (sum(getattr(p.counts, name) for p in parts) for name in ("num_masked", "num_scored"))
        for part in parts:
            objective.step(pair, part, Counts(masked, scored)).loss.backward()
        clip_gradients(optimizer.parameters, config.optimizer.clip_norm)
        optimizer.step(1.0)
        optimizer.zero_grad()

    return step


def measure(side: str, batch_size: int, steps: int, threads: int) -> None:
    """Runs in a child: prints tokens a second (median over steps) and peak memory in MiB as JSON."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    step = (our_step if side == "ours" else rival_step)(batch_size)
    step()
    step()
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"tokens_per_second": batch_size * LENGTH / statistics.median(seconds), "peak_mib": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3, help="processes of each side, in turn")
    parser.add_argument("--steps", type=int, default=5, help="timed steps in each process")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--side", choices=("ours", "transformers"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        measure(options.side, options.batch_size, options.steps, options.threads)
        return
    found: dict[str, list[dict[str, float]]] = {"ours": [], "transformers": []}
    for _ in range(options.repeats):
        for side, results in found.items():
            words = [sys.executable, __file__, "--side", side]
            for name in ("batch_size", "steps", "threads"):
                words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
            output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            results.append(json.loads(output.strip().splitlines()[-1]))
    import torch

    ratios = [
        a["tokens_per_second"] / b["tokens_per_second"]
        for a, b in zip(found["ours"], found["transformers"], strict=True)
    ]
    print(f"ELECTRA-Small, batch {options.batch_size} x {LENGTH}, float32, {options.threads} threads, {platform.machine()}, "
          f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}")  # fmt: skip
    for side, results in found.items():
        speed = statistics.median(r["tokens_per_second"] for r in results)
        print(
            f"{side:>13}: {speed:7.0f} tokens/s (median of {len(results)}), peak {max(r['peak_mib'] for r in results):,.0f} MiB"
        )
    print(f"ratio, pair by pair: {', '.join(f'{r:.2f}' for r in ratios)}; median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
