"""Quality per minute: a preset of ours beside the plain `transformers` step on the same network, text and clock.

The rival is what one writes with the Hugging Face classes of our export (for `tiny`: ModernBertForMaskedLM and
ModernBertForTokenClassification, token table shared, their own initialisation): joint from the first step, 15% masked, lambda
50, Gumbel noise over the vocabulary, AdamW with linear warm-up (2%) and decay, 16 rows from the same store a step, float32. Its
peak rate is the best of `--rival-rates` in short runs of `--sweep-minutes` each, with their whole schedule, by the held-out
generator loss; one rate alone is taken without a sweep. Both sides are scored by the same code at the same minutes, and
neither scoring nor saving takes from the time. Our side is a speedrun (`electra speedrun`), the preset as it is.

    python benchmarks/quality.py --store store --heldout heldout --pairs blimp.tar.xz --minutes 30 --out quality

What is finished in OUT is not run again, so the sides may be run one after the other (`--side`) and seeds added.
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
from electra.evaluate.curve import Ruler, describe
from electra.model.hf import export_discriminator, export_generator, load_discriminator, load_generator
from electra.model.pair import Parts
from electra.presets import PRESETS
from electra.studies.speedrun import FIGURES, draw, machine, speedrun, with_spread
from electra.train.run import initial_pair

SHARE_OF_WARMUP = 0.02
ROWS_OF_A_STEP = 16
LAMBDA = 50.0


class Scored(nn.Module):
    """The rival's networks in the form that our scores take."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.parts = Parts()
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

    def step(self, ids: torch.Tensor, progress: float) -> torch.Tensor:
        """One update on rows [B, L]; its loss."""
        special = self.store.special
        rate = min(1.0, (progress + 1e-6) / SHARE_OF_WARMUP) * (1.0 - progress)
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak_rate * rate
        ordinary = (ids != special.cls) & (ids != special.sep) & (ids != special.pad)
        masked = (torch.rand(ids.shape) < 0.15) & ordinary
        out = self.generator(input_ids=ids.masked_fill(masked, special.mask), labels=ids.masked_fill(~masked, -100))
        with torch.no_grad():
            logits = out.logits[masked]
            replaced = ids.clone()
            replaced[masked] = (logits - torch.log(-torch.log(torch.rand_like(logits)))).argmax(-1)
        verdict = self.discriminator(input_ids=replaced).logits.squeeze(-1)
        detection = nn.functional.binary_cross_entropy_with_logits(
            verdict[ordinary], (replaced != ids)[ordinary].float()
        )
        loss = out.loss + LAMBDA * detection
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def save(self, directory: Path) -> None:
        for name in ("generator", "discriminator"):
            getattr(self, name).save_pretrained(directory / name)


def plain_start(config: PretrainConfig) -> Any:
    """The network of the preset without what is done to its first weights."""
    encoder = dataclasses.replace(
        config.model.discriminator, neighbour_heads=0, vocab_size=TokenStore.open(config.data.store).vocab_size
    )
    return dataclasses.replace(config.model, discriminator=encoder, unigram_bias=False, embedding_start="random")


def run_rival(
    config: PretrainConfig, ruler: Ruler, out: Path, *, seed: int, rate: float, minutes: float, points: int
) -> list[dict[str, Any]]:
    """The curve of the rival's `minutes`, measured at `points` times; of an earlier run where there is a like one."""
    assert config.data.store is not None
    store = TokenStore.open(config.data.store)
    made_with = {"seed": seed, "rate": rate, "minutes": minutes, "points": points, "store": store.fingerprint}
    made_with |= ruler.identity
    path = out / "curve.json"
    if path.is_file() and (earlier := json.loads(path.read_text()))["of"] == made_with:
        return earlier["points"]
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(seed)
    rival = Rival(config, store, rate, seed)
    loader = BatchLoader(make_rows(store, config.data.length, "dense", seed), batch_size=ROWS_OF_A_STEP, seed=seed)
    seconds, steps, budget = 0.0, 0, 60.0 * minutes
    saved: list[tuple[int, float, Path]] = []
    with loader:
        while seconds < budget:
            began = time.perf_counter()
            rival.step(next(loader).input_ids, seconds / budget)
            seconds += time.perf_counter() - began
            steps += 1
            if seconds >= budget * (len(saved) + 1) / points:
                saved.append((steps, seconds, out / f"step-{steps}"))
                rival.save(saved[-1][2])
                print(f"transformers: {seconds / 60:.1f} min, {steps} steps", flush=True)
    curve = []
    for step, spent, directory in saved:
        point = {"step": step, "tokens": step * ROWS_OF_A_STEP * config.data.length, "minutes": spent / 60.0}
        point |= ruler.measure(Scored(directory), config)  # type: ignore[arg-type]
        curve.append(point)
        print("transformers:", describe(point), flush=True)
        if directory != saved[-1][2]:
            shutil.rmtree(directory)
    path.write_text(json.dumps({"of": made_with, "points": curve}, indent=1))
    return curve


def sweep(
    config: PretrainConfig, heldout: Path, rates: list[float], minutes: float, out: Path
) -> list[dict[str, float | None]]:
    """For each peak rate the rival's held-out scores after a whole short run, the best first.

    By the generator's loss: the discriminator's would favour bad generators, whose replacements are easy to find.
    """
    ruler, tried = Ruler.open(heldout), []
    for rate in rates:
        [*_, last] = run_rival(config, ruler, out / f"rate-{rate:g}", seed=0, rate=rate, minutes=minutes, points=1)
        tried.append({"rate": rate} | {name: last[name] for name in FIGURES if name in last})
        print(f"transformers: rate {rate:g}, {describe(last)}", flush=True)
    return sorted(tried, key=lambda one: one["generator_loss"])


def run_ours(
    config: PretrainConfig, options: argparse.Namespace, ruler: Ruler, out: Path
) -> list[list[dict[str, Any]]]:
    """The curves of a speedrun, made before or now."""
    if (out / "record.json").is_file():
        record = json.loads((out / "record.json").read_text())
        wanted = {"minutes": options.minutes, "seeds": seeds_of(config, options)}
        found = {name: record[name] for name in wanted} | {name: record["data"][name] for name in ruler.identity}
        if found != wanted | ruler.identity:
            raise SystemExit(f"{out} holds a speedrun of other minutes, seeds or data: choose another --out")
    else:
        speedrun(
            config, out, options.log or options.out / "speedrun.md", heldout=options.heldout, pairs=options.pairs,
            limit=options.limit, minutes=options.minutes, seeds=options.seeds, points=options.points, preset=options.preset,
        )  # fmt: skip
    return json.loads((out / "curve.json").read_text())


def seeds_of(config: PretrainConfig, options: argparse.Namespace) -> list[int]:
    return list(range(config.train.seed, config.train.seed + options.seeds))


def final_table(sides: dict[str, list[list[dict[str, Any]]]]) -> str:
    """Each side's last figures, mean and deviation over seeds."""
    lines = [f"{'':<14}{'tokens':>8}" + "".join(f"{label:>30}" for label, _ in FIGURES.values())]
    for side, runs in sides.items():
        last = [run[-1] for run in runs]
        cells = [
            with_spread([point[name] for point in last]) if all(point.get(name) is not None for point in last) else "-"
            for name in FIGURES
        ]
        tokens = sum(point["tokens"] for point in last) / len(last)
        lines.append(f"{side:<14}{tokens / 1e6:>7.1f}M" + "".join(f"{cell:>30}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--heldout", type=Path, required=True)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--limit", type=int, default=200, help="minimal pairs of each paradigm")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--points", type=int, default=10)
    parser.add_argument("--preset", choices=list(PRESETS), default="tiny")
    parser.add_argument("--rival-rates", type=float, nargs="+", default=[5e-4, 1e-3, 2e-3], help="peak rates to try")
    parser.add_argument("--sweep-minutes", type=float, default=5.0)
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
    ruler = Ruler.open(options.heldout, options.pairs, options.limit)
    ruler.check(TokenStore.open(options.store))
    path = options.out / "quality.json"
    setting = {"machine": machine(), "threads": options.threads, "minutes": options.minutes, "preset": options.preset}
    setting |= {"data": ruler.identity}
    sides: dict[str, list[list[dict[str, Any]]]] = {}
    rival: dict[str, Any] = {}
    if options.side in ("both", "ours"):
        sides["ours"] = run_ours(config, options, ruler, options.out / "ours")
    if options.side in ("both", "transformers"):
        rate = options.rival_rates[0]
        if len(options.rival_rates) > 1:
            tried = sweep(config, options.heldout, options.rival_rates, options.sweep_minutes, options.out / "sweep")
            rate = tried[0]["rate"]
            rival["sweep"] = {"minutes": options.sweep_minutes, "best_first": tried}
        rival["rival_rate"] = rate
        sides["transformers"] = [
            run_rival(
                config, ruler, options.out / f"transformers-{rate:g}-{seed}", seed=seed, rate=rate,
                minutes=options.minutes, points=options.points,
            )
            for seed in seeds_of(config, options)
        ]  # fmt: skip
    # Read only now: the other side may have finished meanwhile.
    before = json.loads(path.read_text()) if path.is_file() else {}
    result = before if all(before.get(name) == value for name, value in setting.items()) else setting
    result |= rival | {"versions": {"torch": torch.__version__, "transformers": transformers.__version__}}
    sides = result["sides"] = dict(sorted((result.get("sides", {}) | sides).items()))
    path.write_text(json.dumps(result, indent=1) + "\n")
    draw(sides, options.out / "quality.png")
    print(final_table(sides))
    print(options.out / "quality.png")


if __name__ == "__main__":
    main()
