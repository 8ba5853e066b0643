"""The commands that train many networks to answer a question."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from electra.cli.arguments import PresetName, positional
from electra.config import PretrainConfig
from electra.config_files import load_config
from electra.errors import UserError
from electra.presets import PRESETS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """One chart of the paper on your own text: every candidate pre-trained at equal compute over several seeds, and compared.

    NAME is efficiency, weight-sharing, generator-size or compute. Give the budget of a run, and at least one of --pairs, --tasks
    and --heldout to score with. Stopped with Ctrl-C, the same command goes on where it was; with more --seeds it adds runs.
    """

    name: Annotated[tyro.conf.Positional[str], positional("NAME", "The study.")]
    data: Path
    """Token store to train on."""
    out: Path
    """Directory for the runs, results.csv, plots and report.html."""
    heldout: Path | None = None
    """Token store of the same tokenizer, for the losses on held-out text."""
    pairs: Path | None = None
    """Minimal pairs to score on: BLiMP's .jsonl, a directory or a .tar of them."""
    limit: int = 200
    """Pairs of each paradigm."""
    tasks: tuple[str, ...] = ()
    """Tasks to fine-tune on: names of GLUE (with --task-data), or TRAIN:DEV, two files of labelled texts, or of a
    label for each word (CoNLL columns: .txt, .conll)."""
    task_data: str | None = None
    """Folder of GLUE's official files, or hf:NAME."""
    finetune_seeds: int = 3
    """Fine-tuning runs of each task; their median counts."""
    max_train_examples: int | None = None
    """Fine-tune on only so many examples."""
    budget_flops: float | None = None
    """Floating-point operations of each run ..."""
    minutes: float | None = None
    """... or so many as the first candidate does in these minutes on this machine."""
    seeds: int = 3
    """Pre-training runs of each candidate."""
    points: int = 8
    """Checkpoints along a run that are scored (compute)."""
    parallel: int = 1
    """Runs side by side; the cores are shared out."""
    preset: PresetName = "tiny"
    """Where the settings of every candidate start."""
    config: Path | None = None
    """YAML or JSON file of settings that are laid over the preset."""
    plan: bool = False
    """Only say what would be run and how long that takes."""

    def run(self) -> None:
        from electra.studies.scoring import Measures
        from electra.studies.study import study

        base = PRESETS[self.preset]()
        if self.config is not None:
            base = load_config(PretrainConfig, self.config, base)
        data = dataclasses.replace(base.data, store=self.data, heldout=self.heldout)
        names = ("pairs", "limit", "tasks", "task_data", "finetune_seeds", "max_train_examples")
        measures = Measures(**{name: getattr(self, name) for name in names})
        options = {name: getattr(self, name) for name in ("budget_flops", "minutes", "seeds", "points", "parallel")}
        base = dataclasses.replace(base, data=data)
        if report := study(self.name, base, self.out, measures=measures, plan_only=self.plan, **options):
            print(f"report: {report}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speedrun:
    """What half an hour buys: pre-train by the clock, score checkpoints on the way, put a line into a log of records.

    A later change, of code or of settings (--config), claims a record with the same command; over several seeds with a
    p-value. Stopped with Ctrl-C, the same command goes on where it was.
    """

    store: Path | None = None
    """Token store to train on."""
    heldout: Path | None = None
    """Token store of the same tokenizer to score on."""
    data: tuple[str, ...] = ()
    """Text instead of the two: files or directories as `electra prepare` takes them; a twentieth of it is held out."""
    pairs: Path | None = None
    """Minimal pairs to score on, too: BLiMP's .jsonl, a directory or a .tar of them."""
    limit: int = 200
    """Pairs of each paradigm."""
    minutes: float = 30.0
    preset: PresetName = "tiny"
    config: Path | None = None
    """YAML or JSON file of settings that are laid over the preset."""
    seeds: int = 1
    out: Path = Path("speedrun")
    """Directory for the runs, curve.json and curve.png."""
    log: Path | None = None
    """Log of records; left out, benchmarks/speedrun.md where that is there, else OUT/speedrun.md."""
    note: str = ""
    """What is new, for the log."""

    def run(self) -> None:
        from electra.studies.speedrun import speedrun, stores_of_text

        if (self.store is None) != (self.heldout is None) or (self.store is None) == (not self.data):
            raise UserError("give either --store STORE with --heldout STORE, or --data with text files")
        log = self.log or next(filter(Path.is_file, [Path("benchmarks/speedrun.md")]), self.out / "speedrun.md")
        config = PRESETS[self.preset]()
        if self.config is not None:
            config = load_config(PretrainConfig, self.config, config)
        store, heldout = stores_of_text(self.data, self.out) if self.data else (self.store, self.heldout)
        assert heldout is not None
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, store=store))
        names = ("pairs", "limit", "minutes", "seeds", "note", "preset")
        speedrun(config, self.out, log, heldout=heldout, **{name: getattr(self, name) for name in names})
        print(f"curve: {self.out / 'curve.png'}\nlog:   {log}")
