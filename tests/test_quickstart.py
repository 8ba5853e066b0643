"""The quick start from end to end on a made-up set of reviews, in seconds."""

import csv
import dataclasses
import json

import pytest

from conftest import sentences, small_model
from electra.errors import UserError
from electra.presets import PRESETS
from electra.quickstart import stages as quick


@pytest.fixture
def reviews(tmp_path):
    """60 "IMDb" reviews (one of them twice) and 48 labelled "Rotten Tomatoes" sentences."""
    lines = sentences(600)
    path = tmp_path / "reviews.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "source"])
        for start in [*range(0, 600, 10), 0]:
            writer.writerow(["<br /><br />".join(lines[start : start + 10]), 0, "imdb"])
        for index in [*range(48), 0]:
            writer.writerow([f"{'fine' if index % 2 else 'burned'} dish {index} .", index % 2, "rotten_tomatoes"])
    return path


@pytest.fixture
def plan():
    tiny = PRESETS["tiny"]()
    train = dataclasses.replace(tiny.train, num_minutes=None, num_steps=3, batch_size=8, num_threads=1)
    data = dataclasses.replace(tiny.data, length=32)
    settings = dataclasses.replace(tiny, model=small_model("modern", dropout=0.0), data=data, train=train)
    return quick.Plan(
        settings=settings, minutes=0.01, vocab_size=100, heldout_share=0.3, num_test=16, few_labels=8, num_seeds=2,
        num_epochs=1.0, few_labels_epochs=1.0,
    )  # fmt: skip


def test_all_stages_then_again_at_once(tmp_path, reviews, plan, capsys, monkeypatch):
    out = tmp_path / "quickstart"
    results = quick.quickstart(out, reviews=reviews, plan=plan)
    printed = capsys.readouterr().out
    for expected in ("From raw text", "6/6", "pre-trained", "random weights", "report.html", "electra prepare my-text"):
        assert expected in printed
    wanted = {"generator_accuracy", "discriminator_auc", "swapped_word_auc", "most_frequent_share"}
    assert wanted <= set(results["heldout"])
    runs = results["downstream"]["runs"]
    assert [(run["start"], run["train_examples"]) for run in runs] == [
        ("pretrained", 32), ("random", 32), ("pretrained", 8), ("random", 8),
    ]  # fmt: skip
    assert all(len(run["accuracies"]) == 2 for run in runs)
    assert json.loads((out / "run" / "results.json").read_text()) == results
    page = (out / "run" / "report.html").read_text(encoding="utf-8")
    assert "After fine-tuning" in page
    assert "A corrupted sentence" in page

    def again(*arguments, **keywords):
        raise AssertionError("a finished stage was done again")

    for name in ("data.prepare.prepare", "train.loop.pretrain", "evaluate.finetune.finetune"):
        monkeypatch.setattr(f"electra.{name}", again)
    assert quick.quickstart(out, reviews=reviews, plan=plan) == results
    with pytest.raises(UserError, match=r"vocab_size 100, not 90: give another --out"):
        quick.quickstart(out, reviews=reviews, plan=dataclasses.replace(plan, vocab_size=90))


def test_no_text_is_on_both_sides(tmp_path, reviews, plan):
    quick.write_texts(reviews, tmp_path, plan)
    texts = [(tmp_path / "text" / name).read_text().strip() for name in ("train.txt", "heldout.txt")]
    train, heldout = (text.split("\n\n") for text in texts)
    assert len(train) + len(heldout) == 60
    assert not set(train) & set(heldout)
    assert "<br" not in "".join(train)
    assert all(document.count("\n") == 9 for document in train + heldout)
    train, test = (list(csv.DictReader((tmp_path / "task" / name).open())) for name in ("train.csv", "test.csv"))
    assert (len(train), len(test)) == (32, 16)
    assert {row["label"] for row in train} == {"positive", "negative"}
    assert not {row["text"] for row in train} & {row["text"] for row in test}


def test_someone_elses_directory_is_left_alone(tmp_path, reviews, plan):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="holds no quick start"):
        quick.quickstart(tmp_path, reviews=reviews, plan=plan)


def test_the_same_command_goes_on_with_its_minutes(tmp_path):
    plan = quick.default_plan(7.0, 1)
    assert plan.settings.train.num_minutes == plan.minutes == 7.0
    assert quick.default_plan(None, 1).minutes > 0


def test_reviews_that_are_not_installed_get_one_line(monkeypatch):
    monkeypatch.setattr(quick, "DISTRIBUTION", "no-such-film-reviews")
    with pytest.raises(UserError, match=r"pip install no-such-film-reviews==0\.0\.2"):
        quick.find_reviews()


def test_a_file_of_other_columns_gets_one_line(tmp_path, plan):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="no columns text, label and source"):
        quick.write_texts(path, tmp_path, plan)
