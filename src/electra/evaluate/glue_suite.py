"""All tasks of GLUE that are there, one after the other, into one table and one JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra.config_finetune import FinetuneConfig, TuningConfig
from electra.errors import UserError
from electra.evaluate.compare import as_markdown, as_text, compare
from electra.evaluate.finetune import finetune
from electra.evaluate.glue import tasks_in
from electra.evaluate.results import describe, provenance
from electra.evaluate.tasks import GLUE
from electra.files import write_file


def glue_suite(
    model: str | Path,
    data: str,
    tuning: TuningConfig,
    *,
    predict_test: bool = False,
    json_file: Path | None = None,
    quiet: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Fine-tune on each task of GLUE whose training and dev files `data` has; returns what OUT/glue.json (and `json_file`) holds.

    `data` is as `glue_data` takes it; each task goes to `tuning.out`/NAME. Results that are there already (of the same call) are
    taken, so a suite that was stopped goes on. With `predict_test` the files for the leaderboard are in NAME/submission. Raises
    UserError when there is no task, and as `finetune` does.
    """
    tasks = list(tasks_in(data))
    if not tasks:
        raise UserError(f"{data}: has no folder of a GLUE task with train.tsv and dev.tsv in it")
    results: dict[str, Any] = {}
    for task in tasks:
        settings = dataclasses.asdict(tuning) | {"out": tuning.out / task.name}
        config = FinetuneConfig(task=task.name, data=data, predict_test=predict_test, **settings)
        results[task.name] = finetune(model, config, quiet=quiet)
        say("\n".join(describe(results[task.name])))
    left_out = [task.name for task in GLUE if task not in tasks]
    result = {"suite": "glue", "model": str(model), "tasks": results, "left_out": left_out, **provenance()}
    for path in (tuning.out / "glue.json", *([json_file] if json_file is not None else [])):
        write_file(path, json.dumps(result, indent=2))
    table = compare([tuning.out / "glue.json"])
    write_file(tuning.out / "glue.md", as_markdown(table))
    say(f"\n{as_text(table)}")
    if left_out:
        say(f"not there with training and dev files: {', '.join(left_out)}")
    return result
