"""Fine-tuning beside `transformers` Trainer, and `detect` beside `transformers`: same directory, data and settings, in one run.

The directory is exported on the spot from random weights of a preset's shape with the given vocabulary: speed does not depend
on the weights. Trainer runs with and without grouping by length. Processes in turn, medians, ratios round by round. The score
on the dev file, and the sum of the probabilities, show that the work is the same.

    python benchmarks/downstream.py --vocab vocab.txt --train SST-2/train.tsv --dev SST-2/dev.tsv --text sentence --label label
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

TASK_BATCH, RATE, PIPELINE_BATCH = 32, 3e-4, 32


def make_model(preset: str, vocab: Path, out: Path) -> None:
    from electra.data.tokenizer import load_tokenizer
    from electra.model.hf import export_discriminator
    from electra.model.pair import Pair
    from electra.presets import PRESETS

    torch.manual_seed(0)
    tokenizer = load_tokenizer(vocab)
    tokenizer.save_pretrained(out / "tokenizer")
    model = PRESETS[preset]().model
    encoder = dataclasses.replace(model.discriminator, vocab_size=len(tokenizer))
    export_discriminator(Pair(dataclasses.replace(model, discriminator=encoder)), out / "model", out / "tokenizer")


def write_data(options: argparse.Namespace, out: Path) -> int:
    """train.csv and dev.csv of the columns text and label, and lines.txt. Returns the number of training texts."""
    from electra.evaluate.labelled import read_examples

    count = 0
    for name, path, limit in (("train", options.train, options.examples * options.join), ("dev", options.dev, None)):
        examples = read_examples(path, text_column=options.text, text_pair_column=None, label_column=options.label)
        rows = []
        for label in sorted({example.label for example in examples}):
            texts = [example.text.strip() for example in examples[:limit] if example.label == label]
            rows += [(" ".join(texts[at : at + options.join]), int(label)) for at in range(0, len(texts), options.join)]
        random.Random(0).shuffle(rows)
        with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        if name == "train":
            (out / "lines.txt").write_text("".join(f"{text}\n" for text, _ in rows), encoding="utf-8")
            count = len(rows)
    return count


# ----------------------------------------------------------------------------------------------------------- the sides


def our_finetuning(options: argparse.Namespace) -> dict[str, float]:
    from electra.config_finetune import FinetuneConfig
    from electra.evaluate.finetune import finetune

    began = time.perf_counter()
    settings = FinetuneConfig(
        task_file=options.data / "train.csv", dev_file=options.data / "dev.csv", out=options.out,
        num_epochs=options.epochs, batch_size=TASK_BATCH, peak_learning_rate=RATE, layer_decay=1.0,
        max_length=options.max_length, seed=options.round,
    )  # fmt: skip
    [run] = finetune(options.data / "model", settings, quiet=True)["runs"]
    whole = time.perf_counter() - began
    return {"seconds": whole, "training": run["train_seconds"], "accuracy": run["accuracy"]}


def trainer(options: argparse.Namespace, grouped: bool) -> dict[str, float]:
    import datasets
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    began = time.perf_counter()
    directory = options.data / "model"
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForSequenceClassification.from_pretrained(
        directory, num_labels=2, attn_implementation="sdpa", ignore_mismatched_sizes=True
    )
    parts = {}
    for name in ("train", "dev"):
        data = datasets.load_dataset(
            "csv", data_files=str(options.data / f"{name}.csv"), split="train", cache_dir=str(options.out)
        )
        parts[name] = data.map(
            lambda rows: tokenizer(rows["text"], truncation=True, max_length=options.max_length), batched=True
        )
    arguments = TrainingArguments(
        output_dir=options.out, num_train_epochs=options.epochs, per_device_train_batch_size=TASK_BATCH,
        per_device_eval_batch_size=4 * TASK_BATCH, learning_rate=RATE, warmup_steps=0.1, seed=options.round,
        train_sampling_strategy="group_by_length" if grouped else "random", adam_epsilon=1e-6,
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, logging_strategy="no",
    )  # fmt: skip
    run = Trainer(
        model, arguments, data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=parts["train"], eval_dataset=parts["dev"],
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
    )  # fmt: skip
    started = time.perf_counter()
    run.train()
    training = time.perf_counter() - started
    accuracy = run.evaluate()["eval_accuracy"]
    run.save_model(str(options.out / "model"))
    return {"seconds": time.perf_counter() - began, "training": training, "accuracy": accuracy}


def our_detection(options: argparse.Namespace) -> dict[str, float]:
    from electra.evaluate.detect import detect_lines, lines_of

    began, total = time.perf_counter(), 0.0
    for record in detect_lines(options.data / "model", lines_of(options.data / "lines.txt"), device="cpu"):
        total += sum(token["probability"] for token in record["tokens"])
    return {"seconds": time.perf_counter() - began, "sum": total}


def network_of(directory: Path) -> Any:
    import transformers

    [name] = json.loads((directory / "config.json").read_text())["architectures"]
    return getattr(transformers, name).from_pretrained(directory, attn_implementation="sdpa").eval()


def plain_detection(options: argparse.Namespace) -> dict[str, float]:
    """A loop over the class of the directory: texts in order, 32 at a time, padded to the longest, numbers only."""
    from transformers import AutoTokenizer

    began, total = time.perf_counter(), 0.0
    tokenizer, network = AutoTokenizer.from_pretrained(options.data / "model"), network_of(options.data / "model")
    texts = (options.data / "lines.txt").read_text(encoding="utf-8").splitlines()
    for start in range(0, len(texts), PIPELINE_BATCH):
        part = tokenizer(
            texts[start : start + PIPELINE_BATCH], padding=True, truncation=True, max_length=512, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = network(**part).logits
        inner = part["attention_mask"].bool()
        for special in (tokenizer.cls_token_id, tokenizer.sep_token_id):
            inner &= part["input_ids"] != special
        total += float((logits.view(inner.shape).double().sigmoid() * inner).sum())
    return {"seconds": time.perf_counter() - began, "sum": total}


def pipelined_detection(options: argparse.Namespace) -> dict[str, float]:
    """`pipeline("token-classification")` in batches. It does not take ElectraForPreTraining, so the head is another one, of
    random weights: the same work, other numbers."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

    began = time.perf_counter()
    directory = options.data / "model"
    network = AutoModelForTokenClassification.from_pretrained(directory, attn_implementation="sdpa")
    tokenizer = AutoTokenizer.from_pretrained(directory, model_max_length=512)
    judge = pipeline("token-classification", network, tokenizer=tokenizer, device=-1, ignore_labels=[])
    texts = (options.data / "lines.txt").read_text(encoding="utf-8").splitlines()
    count = sum(len(found) for found in judge(texts, batch_size=PIPELINE_BATCH))
    return {"seconds": time.perf_counter() - began, "tokens": count}


SIDES = {
    "fine-tuning, ours": our_finetuning,
    "fine-tuning, Trainer": lambda options: trainer(options, grouped=False),
    "fine-tuning, Trainer grouped by length": lambda options: trainer(options, grouped=True),
    "detection, ours": our_detection,
    "detection, transformers loop": plain_detection,
    "detection, transformers pipeline": pipelined_detection,
}

# ------------------------------------------------------------------------------------------------------------- the race


def report(result: dict[str, Any]) -> str:
    """A table: median seconds and rate of the whole work from reading to writing, and how many times as long as ours (range);
    then of training alone, and of processor time from the start of the process, which other programs hardly disturb."""
    lines = [
        f"{result['preset']}, {result['examples']:,} texts of at most {result['max_length']} tokens, "
        f"{result['threads']} threads, {result['machine']}",
        f"{'':<40}{'seconds':>9}{'texts/s':>9}{'times ours':>12}{'range':>14}{'training':>10}{'processor':>11}  checks",
    ]
    rounds = result["rounds"]
    for side in SIDES:
        ours = f"{side.split(',')[0]}, ours"
        ratios = [found[side]["seconds"] / found[ours]["seconds"] for found in rounds]
        seconds = statistics.median(found[side]["seconds"] for found in rounds)
        shown = result["examples"] * (result["epochs"] if "training" in rounds[0][side] else 1) / seconds
        training = ""
        if "training" in rounds[0][side]:
            alone = [found[side]["training"] / found[ours]["training"] for found in rounds]
            training = f"{statistics.median(alone):.2f}"
        processor = statistics.median(found[side]["processor"] / found[ours]["processor"] for found in rounds)
        checks = ", ".join(
            f"{name} " + " ".join(f"{found[side][name]:.4f}".rstrip("0").rstrip(".") for found in rounds)
            for name in ("accuracy", "sum", "tokens")
            if name in rounds[0][side]
        )
        lines.append(
            f"{side:<40}{seconds:>9.1f}{shown:>9.0f}{statistics.median(ratios):>12.2f}"
            f"{f'{min(ratios):.2f} to {max(ratios):.2f}':>14}{training:>10}{processor:>11.2f}  {checks}"
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    from electra.presets import PRESETS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small", choices=list(PRESETS))
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True, help=".csv or .tsv with a header")
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--text", default="text", help="column of the text")
    parser.add_argument("--label", default="label", help="column of the label, 0 or 1")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--join", type=int, default=1, help="so many texts of one label make one: longer texts")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--round", type=int, default=0, help=argparse.SUPPRESS)
    for name in ("data", "out"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    if options.child:
        print("RESULT", json.dumps({**SIDES[options.child](options), "processor": time.process_time()}))
        return

    from electra.studies.speedrun import machine

    with tempfile.TemporaryDirectory() as scratch:
        make_model(options.preset, options.vocab, Path(scratch))
        count = write_data(options, Path(scratch))
        rounds: list[dict[str, dict[str, float]]] = []
        for number in range(options.rounds):
            found = {}
            for index, side in enumerate(SIDES):
                words = [sys.executable, __file__, *sys.argv[1:], "--child", side, "--round", str(number)]
                words += ["--data", scratch, "--out", f"{scratch}/out-{number}-{index}"]
                done = subprocess.run(words, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(f"{side}: {done.stderr.strip().splitlines()[-1]}")
                found[side] = json.loads(done.stdout.rpartition("RESULT")[2])
                print(f"round {number + 1}, {side}: {found[side]['seconds']:.1f} s", file=sys.stderr, flush=True)
            rounds.append(found)
    result = {
        "machine": machine(), "threads": options.threads, "preset": options.preset, "examples": count,
        "max_length": options.max_length, "epochs": options.epochs, "rounds": rounds,
    }  # fmt: skip
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(report(result))


if __name__ == "__main__":
    main()
