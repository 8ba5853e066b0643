"""What a run of a study is worth: minimal pairs without labels, held-out losses, and fine-tuned tasks."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.config_finetune import FinetuneConfig, TaggingConfig
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.evaluate.conll import read_sentences
from electra.evaluate.finetune import finetune
from electra.evaluate.glue import find_task, glue_data
from electra.evaluate.minimal_pairs import MinimalPair, read_pairs, score_pairs
from electra.evaluate.sentence_scores import SCORERS, Discriminator, MaskedLM, naturalness
from electra.evaluate.tagging import finetune_tagging
from electra.evaluate.task_data import own_data
from electra.files import write_file
from electra.model.pair import Pair
from electra.objectives.token_prediction import copy_losses
from electra.train.checkpoint import load_run, whole_checkpoints
from electra.train.metrics import read_metrics


@dataclasses.dataclass(frozen=True)
class Metric:
    """One score, for tables and charts."""

    label: str
    sign: int = 1
    """1 where more is better, -1 where less is."""
    comparable: bool = True
    """Whether it means the same for every objective, so that candidates may be compared by it."""
    chance: float | None = None
    """What guessing gives."""


COLUMN_FILES = (".conll", ".conllu", ".bio", ".iob", ".txt")
"""Ends of names of CoNLL column files."""
PAIRS = "minimal_pairs"
AVERAGE = "task_average"
METRICS = {
    PAIRS: Metric("minimal pairs, share told apart", chance=0.5),
    AVERAGE: Metric("average of the tasks"),
    "generator_loss": Metric("generator loss, held out (nats)", -1),
    "discriminator_loss": Metric("discriminator loss, held out (nats)", -1, comparable=False),
    "discriminator_auc": Metric("discriminator AUC, held out", comparable=False, chance=0.5),
    "mlm_loss": Metric("loss of the main network, held out (nats)", -1, comparable=False),
}
"""Those of the run's own held-out evaluation depend on the objective and its generator: of a weaker generator, replacements are
easier to find."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measures:
    """What every run is scored on."""

    pairs: Path | None = None
    limit: int | None = 200
    """Minimal pairs of each paradigm."""
    tasks: tuple[str, ...] = ()
    """Tasks of the table by name, or TRAIN:DEV, two files: of labelled texts, or (`COLUMN_FILES`) of a label for each word."""
    task_data: str | None = None
    """Where the tasks of the table are."""
    finetune_seeds: int = 3
    max_train_examples: int | None = None

    def check(self) -> None:
        """Raises UserError, before any work, for pairs or tasks that are not there."""
        if self.pairs is not None:
            read_pairs(self.pairs, self.limit)
        for task in self.tasks:
            config = self.tuning(task, Path("."))
            if isinstance(config, TaggingConfig):
                for path in (config.train_file, config.dev_file):
                    assert path is not None, "tuning() names both"
                    read_sentences(path)
            elif config.task is not None and config.data is not None:
                glue_data(find_task(config.task), config.data)
            else:
                own_data(config)

    def tuning(self, task: str, out: Path) -> FinetuneConfig | TaggingConfig:
        """How a task is fine-tuned: the paper's settings by size, `finetune_seeds` times."""
        options: dict[str, Any] = {"seeds": self.finetune_seeds, "max_train_examples": self.max_train_examples}
        train, colon, dev = task.partition(":")
        if train.endswith(COLUMN_FILES):
            return TaggingConfig(train_file=Path(train), dev_file=Path(dev), out=out, **options)
        if colon:
            return FinetuneConfig(task_file=Path(train), dev_file=Path(dev), out=out, **options)
        if self.task_data is None:
            raise UserError(f"--tasks is {task!r}: say where its files are with --task-data DIR, or give TRAIN:DEV")
        return FinetuneConfig(task=find_task(task).name, data=self.task_data, out=out, **options)


def metric(name: str) -> Metric:
    """What is known of a score; a name that is not in the table is a task's."""
    return METRICS.get(name) or Metric(name)


def score_run(run_dir: Path, measures: Measures, *, from_flops: float | None = None) -> list[dict[str, Any]]:
    """One line for each score of a finished run: `step`, `tokens`, `flops`, `minutes`, `metric`, `value`.

    With `from_flops`, minimal pairs are scored at every checkpoint from there on, else at the last one. What was scored before
    is read from `<run_dir>/scores.json`.
    """
    pairs, digest = read_pairs(measures.pairs, measures.limit) if measures.pairs is not None else ([], "")
    path, checkpoints = run_dir / "scores.json", whole_checkpoints(run_dir)
    made_with: dict[str, Any] = {
        "measures": digest_of(dataclasses.asdict(measures)),
        "pairs": digest,
        "from_flops": from_flops,
    }
    made_with |= {"checkpoints": [state.step for _, state in checkpoints]}
    if path.is_file() and (earlier := json.loads(path.read_text(encoding="utf-8")))["of"] == made_with:
        return earlier["lines"]
    lines: list[dict[str, Any]] = []
    for checkpoint, state in checkpoints:
        is_last = checkpoint == checkpoints[-1][0]
        if not is_last and (from_flops is None or state.flops < from_flops):
            continue
        found: dict[str, float] = {}
        if pairs:
            found[PAIRS] = zero_shot(load_run(run_dir, checkpoint)[0], run_dir / "tokenizer", pairs)
        if is_last:
            found |= _heldout(run_dir) | _tuned(run_dir, measures)
        place = {"step": state.step, "tokens": state.tokens, "flops": state.flops, "minutes": state.seconds / 60.0}
        lines += [place | {"metric": name, "value": value} for name, value in found.items()]
    write_file(path, json.dumps({"of": made_with, "lines": lines}, indent=1))
    return lines


# ------------------------------------------------------------------------------------------------------ minimal pairs


def zero_shot(pair: Pair, tokenizer_dir: Path, pairs: list[MinimalPair]) -> float:
    """Accuracy on minimal pairs by what the main network was trained to do.

    A discriminator: sum of log(1 - p_replaced). BERT: pseudo-log-likelihood, a mask at a time. A network that predicts tokens
    from texts without masks, which would be strange to it: sum of log P of the tokens that it reads, in one pass.
    """
    tokenizer = load_tokenizer(tokenizer_dir)
    if pair.parts.main_head == "replaced-token":
        return score_pairs(Discriminator(pair.discriminator, pair.discriminator_head), tokenizer, pairs).overall
    if pair.parts.generator:
        return score_pairs(OwnTokens(pair), tokenizer, pairs, scorer=naturalness).overall
    network = MaskedLM(pair.discriminator, pair.vocabulary_head)
    return score_pairs(network, tokenizer, pairs, scorer=SCORERS["pll"]).overall


class OwnTokens(nn.Module):
    """How surprising a network that predicts tokens finds those in front of it: ids [B, L] -> logits [B, L] of "another token
    belongs here", so that what `naturalness` sums is log P(token | the text with it). Shapes: B batch, L length, D hidden."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, ids_BL: Tensor) -> Tensor:
        hidden_BLD = self.pair.discriminator(ids_BL)
        logits_BLV = self.pair.vocabulary_head.logits(hidden_BLD).float()
        losses_BL = F.cross_entropy(logits_BLV.flatten(0, 1), ids_BL.flatten(), reduction="none").view(ids_BL.shape)
        if self.pair.parts.main_head == "copy":
            losses_BL = copy_losses(
                self.pair.copy_head(hidden_BLD).view(ids_BL.shape), losses_BL, torch.ones_like(ids_BL, dtype=torch.bool)
            )
        losses_BL = losses_BL.double().clamp_min(1e-12)
        return torch.log(-torch.expm1(-losses_BL)) + losses_BL  # log((1 - p) / p), p = exp(-loss)


# ---------------------------------------------------------------------------------------------------- the other scores


def _heldout(run_dir: Path) -> dict[str, float]:
    """The run's own last evaluation on held-out text, if it had one."""
    lines = [line for line in read_metrics(run_dir / "metrics.jsonl") if line.get("kind") == "heldout"]
    return {name: lines[-1][name] for name in METRICS if lines and lines[-1].get(name) is not None}


def _tuned(run_dir: Path, measures: Measures) -> dict[str, float]:
    """Each task's main score, the median over fine-tuning seeds as in the paper; of several tasks also the average."""
    found: dict[str, float] = {}
    for name in measures.tasks:
        settings = digest_of([measures.task_data, measures.finetune_seeds, measures.max_train_examples])
        out = run_dir / "finetuned" / f"{Path(name.partition(':')[0]).stem}-{settings}"
        config = measures.tuning(name, out)
        if isinstance(config, TaggingConfig):
            result = finetune_tagging(run_dir, config, quiet=True)
        else:
            result = finetune(run_dir, config, quiet=True)
        found[f"{result['task']} {result['main_metric']}"] = result[result["main_metric"]]["median"]
        shutil.rmtree(out / "model", ignore_errors=True)  # only its scores are wanted
    return found | ({AVERAGE: statistics.fmean(found.values())} if len(found) > 1 else {})


def digest_of(values: Any) -> str:
    """Eight letters for settings, to tell apart what may not be mixed."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:8]
