"""Quality per minute: a preset of ours beside the plain `transformers` step on the same network, text and clock.

The rival is what one writes with the Hugging Face classes of our export (for `tiny`: ModernBertForMaskedLM and
ModernBertForTokenClassification, token table shared, their own initialisation): joint from the first step, 15% masked, lambda
50, Gumbel noise over the vocabulary, AdamW with linear warm-up (2%) and decay, rows from the same store. Both sides are scored
by the same code at the same minutes, and scoring takes nothing from the time. Our side is a speedrun (`electra speedrun`).

    python benchmarks/quality.py --store store --heldout heldout --pairs blimp.tar.xz --minutes 30 --out quality
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from electra.config import PretrainConfig
from electra.data.loader import BatchLoader
from electra.data.packing import make_rows
from electra.data.shards import TokenStore
from electra.data.tokenizer import load_tokenizer
from electra.evaluate.curve import describe
from electra.evaluate.heldout import pair_scores
from electra.evaluate.minimal_pairs import read_pairs, score_pairs
from electra.model.hf import export_discriminator, export_generator, load_discriminator, load_generator
from electra.objectives import make_objective
from electra.presets import PRESETS
from electra.studies.speedrun import draw, machine, speedrun
from electra.train.run import initial_pair

SHARE_OF_WARMUP = 0.02


class Scored(nn.Module):
    """The rival's networks in the form that our scores take."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.discriminator, self.discriminator_head = load_discriminator(directory / "discriminator")
        self.generator, self.generator_head = load_generator(directory / "generator")
        self.eval()


class Rival:
    """Both networks of `transformers` and their optimizer."""

    def __init__(self, config: PretrainConfig, store: TokenStore, peak_rate: float, seed: int) -> None:
        self.store, self.peak_rate = store, peak_rate
        with tempfile.TemporaryDirectory() as scratch:  # the classes and sizes of our export, but not its weights
            pair = initial_pair(dataclasses.replace(config, model=plain_start(config)), None)
            networks = []
            for name, write in (("generator", export_generator), ("discriminator", export_discriminator)):
                write(pair, Path(scratch) / name)
                settings = transformers.AutoConfig.from_pretrained(Path(scratch) / name, attn_implementation="sdpa")
                torch.manual_seed(seed)
                networks.append(getattr(transformers, settings.architectures[0])(settings))
        self.generator, self.discriminator = networks
        self.discriminator.set_input_embeddings(self.generator.get_input_embeddings())
        self.parameters = list({id(p): p for net in networks for p in net.parameters()}.values())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=peak_rate, betas=(0.9, 0.999), weight_decay=0.01)

    def step(self, ids: torch.Tensor, progress: float) -> None:
        """One update on rows [B, L]."""
        special = self.store.special
        rate = min(1.0, (progress + 1e-6) / SHARE_OF_WARMUP) * (1.0 - progress)
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak_rate * rate
        ordinary = (ids != special.cls) & (ids != special.sep)
        masked = (torch.rand(ids.shape) < 0.15) & ordinary
        out = self.generator(input_ids=ids.masked_fill(masked, special.mask), labels=ids.masked_fill(~masked, -100))
        with torch.no_grad():
            logits = out.logits[masked]
            replaced = ids.clone()
            replaced[masked] = (logits - torch.log(-torch.log(torch.rand_like(logits)))).argmax(-1)
        verdict = self.discriminator(input_ids=replaced).logits.squeeze(-1)
        loss = nn.functional.binary_cross_entropy_with_logits(verdict[ordinary], (replaced != ids)[ordinary].float())
        (out.loss + 50.0 * loss).backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, directory: Path) -> None:
        for name in ("generator", "discriminator"):
            getattr(self, name).save_pretrained(directory / name)


def plain_start(config: PretrainConfig) -> Any:
    """The network of the preset without what is done to its first weights."""
    encoder = dataclasses.replace(
        config.model.discriminator, neighbour_heads=0, vocab_size=TokenStore.open(config.data.store).vocab_size
    )
    return dataclasses.replace(config.model, discriminator=encoder, unigram_bias=False, embedding_start="random")


def run_rival(config: PretrainConfig, seed: int, options: argparse.Namespace, out: Path) -> list[dict[str, Any]]:
    if (out / "curve.json").is_file():
        return json.loads((out / "curve.json").read_text())["points"]
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(seed)
    store, heldout = TokenStore.open(options.store), TokenStore.open(options.heldout)
    rival = Rival(config, store, options.rival_rate, seed)
    loader = BatchLoader(make_rows(store, config.data.length, "dense", seed), batch_size=16, seed=seed)
    seconds, steps, saved, budget = 0.0, 0, [], 60.0 * options.minutes
    with loader:
        while seconds < budget:
            began = time.perf_counter()
            rival.step(next(loader).input_ids, seconds / budget)
            seconds += time.perf_counter() - began
            steps += 1
            if seconds >= budget * (len(saved) + 1) / options.points:
                saved.append((steps, seconds, out / f"step-{steps}"))
                rival.save(saved[-1][2])
                print(f"transformers: {seconds / 60:.1f} min, {steps} steps", flush=True)
    tokens = 16 * config.data.length
    pairs = read_pairs(options.pairs, options.limit)[0] if options.pairs else []
    tokenizer = load_tokenizer(store.tokenizer_dir)
    objective = make_objective(
        config.objective, vocab_size=store.vocab_size, special=store.special, seed=config.train.seed
    )
    points = []
    for step, spent, directory in saved:
        scored = Scored(directory)
        point = {"step": step, "tokens": step * tokens, "minutes": spent / 60.0}
        point |= pair_scores(scored, config, heldout, objective)  # type: ignore[arg-type]
        if pairs:
            found = score_pairs(scored.discriminator, scored.discriminator_head, tokenizer, pairs)
            point |= {"minimal_pairs": found.overall, "phenomena": found.phenomena}
        points.append(point)
        print("transformers:", describe(point), flush=True)
        if directory != saved[-1][2]:
            shutil.rmtree(directory)
    (out / "curve.json").write_text(json.dumps({"points": points}, indent=1))
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--heldout", type=Path, required=True)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--limit", type=int, default=200, help="minimal pairs of each paradigm")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--points", type=int, default=10)
    parser.add_argument("--preset", choices=list(PRESETS), default="tiny")
    parser.add_argument("--rival-rate", type=float, default=1e-3, help="peak learning rate of the transformers side")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--side", choices=("both", "ours", "transformers"), default="both")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--log", type=Path, help="log of speedruns that our side is put into; default OUT/speedrun.md")
    parser.add_argument("--out", type=Path, required=True, help="directory for runs, quality.json and quality.png")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    preset = PRESETS[options.preset]()
    config = dataclasses.replace(
        preset,
        data=dataclasses.replace(preset.data, store=options.store),
        train=dataclasses.replace(preset.train, num_threads=options.threads),
    )
    sides: dict[str, list[list[dict[str, Any]]]] = {}
    if options.side in ("both", "ours"):
        ours = options.out / "ours"
        if not (ours / "record.json").is_file():
            speedrun(
                config, ours, options.log or options.out / "speedrun.md", heldout=options.heldout, pairs=options.pairs,
                limit=options.limit, minutes=options.minutes, seeds=options.seeds, points=options.points, preset=options.preset,
            )  # fmt: skip
        sides["ours"] = json.loads((ours / "curve.json").read_text())
    if options.side in ("both", "transformers"):
        seeds = range(config.train.seed, config.train.seed + options.seeds)
        sides["transformers"] = [run_rival(config, seed, options, options.out / f"rival-{seed}") for seed in seeds]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    result = {"machine": machine(), "threads": options.threads, "minutes": options.minutes, "preset": options.preset}
    result |= {"versions": versions, "rival_rate": options.rival_rate, "sides": sides}
    (options.out / "quality.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(sides, options.out / "quality.png")
    print(options.out / "quality.png")


if __name__ == "__main__":
    main()
