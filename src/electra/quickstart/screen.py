"""What `electra quickstart` prints: what is about to happen, the stages, the tables and the next commands."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

STARTS = {"pretrained": "pre-trained", "counted": "counted, not trained", "random": "random weights"}
"""From where a network is fine-tuned. `counted`: as pre-training begins, its embeddings made from co-occurrence counts and
nothing trained yet; so the table shows what the counts gave and what training added."""

# About, on two cores; for the announcement only.
PREPARE_MINUTES, FINETUNE_MINUTES = 1.0, 8.0


def announce(console: Console, minutes: float, vocab_size: int, out: Path) -> None:
    """What is about to happen, and about how long it takes."""
    stages = [
        ("25,000 film reviews into text files", "seconds"),
        (f"learn a vocabulary of {vocab_size:,}, cut the text into pieces", f"about {PREPARE_MINUTES:g} min"),
        ("pre-train generator and discriminator", f"{minutes:g} min"),
        ("scores on reviews that they have not seen", "seconds"),
        ("fine-tune, beside the same from random weights", f"about {FINETUNE_MINUTES:g} min"),
        ("report with curves", "seconds"),
    ]
    total = PREPARE_MINUTES + minutes + FINETUNE_MINUTES
    lines = [
        f"From raw text to a fine-tuned text encoder, in {out}/",
        f"On two CPU cores about [b]{total:.0f} minutes[/b]:",
    ]
    lines += [f"  {number}  {what:<52} {how_long}" for number, (what, how_long) in enumerate(stages, start=1)]
    lines += ["Ctrl-C stops and keeps what is done; the same command goes on."]
    console.print(Panel("\n".join(lines), title="electra quickstart", title_align="left", expand=False))


def stage(console: Console, number: int, title: str, done: bool) -> None:
    console.print(f"[b]{number}/6  {title}[/b]" + ("  [green]done before[/green]" if done else ""))


def conclude(console: Console, results: dict[str, Any], run_dir: Path, report: Path) -> None:
    """The tables, the corrupted sentence, and where to go from here."""
    from electra.studies.report import downstream_rows

    heldout, task = results["heldout"], results["downstream"]
    console.print("\n[b]On reviews that they have not seen[/b]")
    table = table_of(["", "pre-trained", "knows nothing"])
    table.add_row(
        "generator: hidden token guessed right",
        f"{heldout['generator_accuracy']:.1%}",
        f"{heldout['most_frequent_share']:.1%}",
    )
    table.add_row("discriminator: AUC for the generator's replacements", f"{heldout['discriminator_auc']:.3f}", "0.500")
    table.add_row(
        "discriminator: AUC for a word swapped for a like-frequent", f"{heldout['swapped_word_auc']:.3f}", "0.500"
    )
    table.add_row(
        "discriminator: names the swapped word at first go",
        f"{heldout['swapped_word_found']:.1%}",
        f"{heldout['swapped_word_chance']:.1%}",
    )
    console.print(table)

    console.print(f"\n[b]After fine-tuning: {task['task']}[/b]", soft_wrap=True)
    console.print(
        f"accuracy on {task['test_examples']:,} held-out sentences, mean ± standard deviation of {task['seeds']} seeds"
    )
    rows = downstream_rows(task)
    starts = [start for start in STARTS if any(start in row for row in rows)]
    table = table_of(["labelled examples", *(STARTS[start] for start in starts)])
    for row in rows:
        table.add_row(f"{row['train_examples']:,}", *(row.get(start, "not run") for start in starts))
    console.print(table)

    console.print(
        "\n[b]A passage with words replaced by the generator; the discriminator's verdict[/b] (redder: surer)"
    )
    console.print(coloured(results["sentence"]), soft_wrap=True)
    replaced = [f"{token['original']} -> {token['text']}" for token in results["sentence"] if token["replaced"]]
    console.print(f"really replaced: {', '.join(replaced)}", markup=False, soft_wrap=True)
    console.print(f"\n[b]Curves and all settings:[/b] {report}", soft_wrap=True)
    electra = command()
    console.print("\n[b]Next, on your own text[/b] (files or directories; in .txt a blank line ends a document):")
    for line in (
        f"{electra} prepare my-text.txt --out store --vocab-size 8192",
        f"{electra} pretrain --preset tiny --data.store store --run-dir run --train.num-minutes 30",
        f'{electra} detect run "a sentence with one wrong worm in it"',
    ):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def coloured(tokens: list[dict[str, Any]]) -> Text:
    """Word pieces joined to words; the redder, the surer the discriminator is; underlined what was really replaced."""
    text = Text()
    for token in tokens:
        shade = round(255 * (1.0 - token["probability"]))
        piece = token["text"]
        text.append("" if piece.startswith("##") or not text else " ")
        style = f"black on rgb(255,{shade},{shade})" + (" underline" if token["replaced"] else "")
        text.append(piece.removeprefix("##"), style=style)
    return text


def table_of(columns: list[str]) -> Table:
    table = Table()
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left")
    return table


def command() -> str:
    """How `electra` is called from this shell."""
    return "electra" if shutil.which("electra") else os.path.relpath(Path(sys.executable).with_name("electra"))
