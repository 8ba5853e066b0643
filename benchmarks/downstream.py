"""Fine-tuning beside `transformers` Trainer, and `detect` beside its pipeline: the same directory, data and settings, in one run.

The directory is an ELECTRA-Small of random weights with the given vocabulary, so nothing has to be fetched: speed does not
depend on the weights. Trainer runs with and without grouping by length. Processes in turn, medians, ratios round by round. The
score on the dev file, and the sum of the probabilities, show that the work is the same.

    python benchmarks/downstream.py --vocab vocab.txt --train SST-2/train.tsv --dev SST-2/dev.tsv --text sentence --label label
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch


def make_model(vocab: Path, out: Path) -> None:
    from electra.data.tokenizer import load_tokenizer
    from electra.model.hf import export_discriminator
    from electra.model.pair import Pair
    from electra.presets import small

    torch.manual_seed(0)
    tokenizer = load_tokenizer(vocab)
    tokenizer.save_pretrained(out / "tokenizer")
    model = small().model
    encoder = dataclasses.replace(model.discriminator, vocab_size=len(tokenizer))
    export_discriminator(Pair(dataclasses.replace(model, discriminator=encoder)), out / "model", out / "tokenizer")


def read(options: argparse.Namespace) -> tuple[list[str], list[int], list[str], list[int]]:
    import pandas

    found: list[Any] = []
    for path, limit in ((options.train, options.examples), (options.dev, None)):
        frame = pandas.read_csv(
            path, sep="\t" if path.suffix == ".tsv" else ",", quoting=3 if path.suffix == ".tsv" else 0
        )
        frame = frame[:limit]
        found += [frame[options.text].astype(str).tolist(), frame[options.label].astype(int).tolist()]
    return tuple(found)  # type: ignore[return-value]


def our_finetuning(options: argparse.Namespace) -> dict[str, float]:
    from electra.config import FinetuneConfig
    from electra.evaluate.finetune import finetune

    began = time.perf_counter()
    result = finetune(
        options.model,
        FinetuneConfig(
            task_file=options.train_file, dev_file=options.dev_file, out=options.out, text_column="text", label_column="label",
            num_epochs=1, batch_size=32, peak_learning_rate=3e-4, layer_decay=1.0,
        ),
        quiet=True,
    )  # fmt: skip
    return {"seconds": time.perf_counter() - began, "accuracy": result["accuracy"]["mean"]}


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
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=2, attn_implementation="sdpa")
    parts = {}
    for name in ("train", "dev"):
        frame = datasets.load_dataset("csv", data_files=str(getattr(options, f"{name}_file")), split="train")
        parts[name] = frame.map(lambda rows: tokenizer(rows["text"], truncation=True, max_length=128), batched=True)
    arguments = TrainingArguments(
        output_dir=options.out, num_train_epochs=1, per_device_train_batch_size=32, per_device_eval_batch_size=128,
        learning_rate=3e-4, warmup_steps=0.1, train_sampling_strategy="group_by_length" if grouped else "random",
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, logging_strategy="no",
    )  # fmt: skip
    run = Trainer(
        model, arguments, data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=parts["train"], eval_dataset=parts["dev"],
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
    )  # fmt: skip
    run.train()
    return {"seconds": time.perf_counter() - began, "accuracy": run.evaluate()["eval_accuracy"]}


def our_detection(options: argparse.Namespace) -> dict[str, float]:
    from electra.evaluate.detect import detect_lines

    began = time.perf_counter()
    total = sum(
        token["probability"] for record in detect_lines(options.model, read(options)[0]) for token in record["tokens"]
    )
    return {"seconds": time.perf_counter() - began, "sum": total}


def pipelined_detection(options: argparse.Namespace) -> dict[str, float]:
    """The token-classification pipeline does not know ElectraForPreTraining, so this is what its batches do: texts in order,
    32 at a time, padded to the longest."""
    from transformers import AutoTokenizer, ElectraForPreTraining

    began, total = time.perf_counter(), 0.0
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = ElectraForPreTraining.from_pretrained(options.model, attn_implementation="sdpa").eval()
    texts = read(options)[0]
    with torch.inference_mode():
        for start in range(0, len(texts), 32):
            part = tokenizer(
                texts[start : start + 32], padding=True, truncation=True, max_length=512, return_tensors="pt"
            )
            probabilities = model(**part).logits.double().sigmoid()
            inner = part["attention_mask"].bool() & ~torch.isin(
                part["input_ids"], torch.tensor(tokenizer.all_special_ids)
            )
            total += float((probabilities * inner).sum())
    return {"seconds": time.perf_counter() - began, "sum": total}


SIDES = {
    "fine-tuning, ours": our_finetuning,
    "fine-tuning, Trainer": lambda options: trainer(options, grouped=False),
    "fine-tuning, Trainer grouped by length": lambda options: trainer(options, grouped=True),
    "detection, ours": our_detection,
    "detection, transformers": pipelined_detection,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True, help=".csv or .tsv with a header")
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--text", default="text", help="column of the text")
    parser.add_argument("--label", default="label", help="column of the label, 0 or 1")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=list(SIDES), help=argparse.SUPPRESS)
    for name in ("model", "out", "train-file", "dev-file"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.child:
        print("RESULT", json.dumps(SIDES[options.child](options)))
        return

    from electra.studies.speedrun import machine

    with tempfile.TemporaryDirectory() as scratch:
        import pandas

        make_model(options.vocab, Path(scratch))
        texts, labels, dev_texts, dev_labels = read(options)
        for name, columns in {"train": (texts, labels), "dev": (dev_texts, dev_labels)}.items():
            pandas.DataFrame({"text": columns[0], "label": columns[1]}).to_csv(
                Path(scratch) / f"{name}.csv", index=False
            )
        rounds: list[dict[str, dict[str, float]]] = []
        for number in range(options.rounds):
            found = {}
            for index, side in enumerate(SIDES):
                words = [sys.executable, __file__, *sys.argv[1:], "--child", side, "--model", f"{scratch}/model"]
                words += ["--out", f"{scratch}/out-{number}-{index}", "--train-file", f"{scratch}/train.csv"]
                done = subprocess.run([*words, "--dev-file", f"{scratch}/dev.csv"], capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(f"{side}: {done.stderr.strip().splitlines()[-1]}")
                found[side] = json.loads(done.stdout.rpartition("RESULT")[2])
            rounds.append(found)
    result = {"machine": machine(), "threads": options.threads, "examples": len(texts), "rounds": rounds}
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(texts):,} texts, {machine()}, {options.threads} threads")
    for side in SIDES:
        ours = next(name for name in SIDES if name.split(",")[0] == side.split(",")[0])
        ratios = [r[side]["seconds"] / r[ours]["seconds"] for r in rounds]
        seconds = statistics.median(r[side]["seconds"] for r in rounds)
        check = ", ".join(f"{name} {value:.4f}" for name, value in rounds[0][side].items() if name != "seconds")
        print(
            f"{side:<40}{seconds:>8.1f} s  {len(texts) / seconds:>7.0f} texts/s  "
            f"{statistics.median(ratios):.2f} times ours ({min(ratios):.2f} to {max(ratios):.2f})  {check}"
        )


if __name__ == "__main__":
    main()
