"""Fine-tuning on questions: the choice of answers, what is written, both heads."""

import dataclasses
import json
import random

import numpy as np
import pytest
import torch
import transformers

from conftest import OBJECTS, SUBJECTS, VERBS
from electra import cli
from electra.config_finetune import QuestionAnsweringConfig
from electra.errors import UserError
from electra.evaluate.question_answering import (
    QuestionAnswerer,
    answer,
    finetune_question_answering,
)
from electra.evaluate.question_windows import encode_questions
from electra.evaluate.squad import Question, best_over_answers, read_squad
from electra.evaluate.training import load_start
from electra.model.hf_tasks import load_question_answerer
from electra.model.task_heads import PlainSpanHead


def write_task(path, count, seed, impossible):
    """Who did it? The subject of the verb that is asked for, where there is one."""
    draw, paragraphs = random.Random(seed), []
    for index in range(count):
        context = f"the {draw.choice(SUBJECTS)} {draw.choice(VERBS)} the {draw.choice(OBJECTS)} ."
        subject, none = context.split()[1], impossible and index % 3 == 0
        entry = {"id": f"q{index}", "question": "burned ?" if none else "who ?", "is_impossible": none}
        entry["answers"] = [] if none else [{"text": subject, "answer_start": 4}]
        paragraphs.append({"context": context, "qas": [entry]})
    path.write_text(json.dumps({"version": "v", "data": [{"title": "t", "paragraphs": paragraphs}]}))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder for each version."""
    path = tmp_path_factory.mktemp("questions")
    for version in ("1.1", "2.0"):
        (path / version).mkdir()
        write_task(path / version / "train.json", 90, 0, version == "2.0")
        write_task(path / version / "dev.json", 30, 1, version == "2.0")
    return path


@pytest.fixture
def task(tasks):
    return tasks / "1.1"


def settings(task, out, **changes):
    base = QuestionAnsweringConfig(
        data=task, out=out, num_epochs=3, batch_size=8, max_length=32, max_question_length=8, stride=8,
        peak_learning_rate=1e-2, layer_decay=1.0,
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


@pytest.mark.parametrize(("version", "head"), [("1.1", "plain"), ("2.0", "joint")])
def test_learns_and_writes_what_the_official_script_reads(exported, tasks, tmp_path, version, head):
    out, task = tmp_path / "out", tasks / version
    config = settings(task, out, head=head, no_answer_threshold=0.0)
    result = finetune_question_answering(exported / "discriminator", config, quiet=True)
    questions = read_squad(task / "dev.json").questions
    second = version == "2.0"
    assert result["task"] == f"SQuAD {version}"
    assert result["f1"]["median"] > 0.6
    assert json.loads((out / "result.json").read_text()) == result
    given = json.loads((out / "predictions.json").read_text())
    best = json.loads((out / "nbest.json").read_text())
    assert list(given) == [question.id for question in questions]
    exact = np.mean([best_over_answers(question, given[question.id])[0] for question in questions])
    assert exact == pytest.approx(result["exact_match"]["median"])
    for question in questions:
        found = best[question.id]
        assert all(one["text"] in question.context for one in found)
        assert sum(one["probability"] for one in found) == pytest.approx(1.0)
        assert [one["probability"] for one in found] == sorted((one["probability"] for one in found), reverse=True)
        assert given[question.id] in ("", found[0]["text"])
    assert (out / "no_answer.json").is_file() == second
    assert ("best_f1" in result) == second
    # Read again, the model gives the same answers.
    loaded, span_head = load_question_answerer(out / "model")
    start = load_start(out / "model", config)
    windows = encode_questions(
        questions, start.tokenizer, max_length=32, max_question_length=8, stride=8, with_types=start.has_types
    )
    again = answer(QuestionAnswerer(loaded.encoder, span_head).eval(), questions, windows, start, config)
    assert again.texts == {name: found[0]["text"] for name, found in best.items()}
    kind = "ForQuestionAnswering" if head == "plain" else "Model"
    assert json.loads((out / "model" / "config.json").read_text())["architectures"][0].endswith(kind)
    assert finetune_question_answering(exported / "discriminator", config, quiet=True) == result


def test_the_choice_of_answers_is_that_of_all_spans(exported):
    """Beside a search over all spans of all windows, written down plainly, with a beam that leaves nothing out."""
    start = load_start(exported / "discriminator", settings("x", "y"))
    context = "the chef cooked the soup and the king ate the bread and the guest hid the cake ."
    question = Question("q", "who ate ?", context, ("king",), None)
    config = settings("x", "y", max_answer_length=3, beam=64, num_best=500, max_length=24)
    windows = encode_questions(
        [question], start.tokenizer, max_length=20, max_question_length=4, stride=5, with_types=start.has_types
    )
    assert len(windows.texts) > 1
    torch.manual_seed(0)
    head = PlainSpanHead(start.loaded.config)
    network = QuestionAnswerer(start.loaded.encoder, head).eval()
    found = answer(network, [question], windows, start, config)
    scores, none = {}, []
    for row in range(len(windows.texts)):
        inputs = windows.texts.inputs(np.array([row]), start.tokenizer.pad_token_id, start.device)
        start_L, end_L = head(network.hidden(inputs))[0].detach().unbind(-1)
        none.append(float(start_L[0] + end_L[0]))
        shift = windows.text_at[row]
        for a, (first, _) in enumerate(windows.offsets[row]):
            for b, (_, last) in enumerate(windows.offsets[row]):
                if windows.mine[row][a] and 0 <= b - a < 3:
                    score = float(start_L[a + shift] + end_L[b + shift])
                    text = context[first:last]
                    scores[text] = max(score, scores.get(text, score))
    assert {one.text: pytest.approx(one.score, abs=1e-4) for one in found.best["q"]} == scores
    assert found.no_answer["q"] == pytest.approx(min(none) - max(scores.values()), abs=1e-4)


def test_the_command_and_its_refusals(exported, task, tmp_path, capsys):
    words = ["finetune", str(exported / "discriminator"), "--task", "squad", "--out", str(tmp_path / "out")]
    words += ["--max-length", "32", "--max-question-length", "8", "--num-epochs", "0.1"]
    assert cli.main([*words, "--data", str(task)]) == 0
    out = capsys.readouterr().out
    assert "exact match" in out
    assert "SQuAD 1.1" in out
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out" / "model")
    assert type(model).__name__ in ("ElectraForQuestionAnswering", "ModernBertForQuestionAnswering")
    assert cli.main(words) == 2
    assert "give --data DIR or --train-file FILE" in capsys.readouterr().err
    with pytest.raises(UserError, match="max_length is 32: with questions of up to 64"):
        settings(task, tmp_path, max_question_length=64)
    with pytest.raises(UserError, match="stride is 0"):
        settings(task, tmp_path, stride=0)
