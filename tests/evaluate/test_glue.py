"""GLUE from files in the official layout (which these tests write) and from a data set directory; submission files."""

import csv
import json

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from transformers import pipeline

from electra.config_finetune import FinetuneConfig
from electra.errors import UserError
from electra.evaluate.finetune import encode, finetune
from electra.evaluate.glue import find_task, glue_data, tasks_in
from electra.evaluate.labelled import Example
from electra.evaluate.tasks import GLUE, TASKS
from electra.evaluate.training import load_start

# What the official files look like: header (None where there is none), then rows with places for texts and label.
OFFICIAL = {
    "CoLA": (None, "gj04\t{label}\t\t{text}", "index\tsentence", "{index}\t{text}"),
    "SST-2": ("sentence\tlabel", "{text} \t{label}", "index\tsentence", "{index}\t{text} "),
    "MRPC": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{label}\t7\t8\t{text}\t{pair}",
        "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String", "{index}\t7\t8\t{text}\t{pair}",
    ),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "{index}\tmain-news\tMSRpar\t2012test\t0001\tnone\tnone\t{text}\t{pair}\t{label}",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2",
        "{index}\tmain-news\tMSRpar\t2012test\t0001\tnone\tnone\t{text}\t{pair}",
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "9{index}\t1\t2\t{text}\t{pair}\t{label}",
        "id\tquestion1\tquestion2", "{index}\t{text}\t{pair}",
    ),
    "MNLI": (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
        "{index}\t31\t31n\tfiction\t( a )\t( b )\t(S a)\t(S b)\t{text}\t{pair}\tneutral\t{label}",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2",
        "{index}\t31\t31n\tfiction\t( a )\t( b )\t(S a)\t(S b)\t{text}\t{pair}",
    ),
    "QNLI": (
        "index\tquestion\tsentence\tlabel", "{index}\t{text}\t{pair}\t{label}",
        "index\tquestion\tsentence", "{index}\t{text}\t{pair}",
    ),
}  # fmt: skip
OFFICIAL["RTE"] = OFFICIAL["WNLI"] = (
    "index\tsentence1\tsentence2\tlabel", "{index}\t{text}\t{pair}\t{label}",
    "index\tsentence1\tsentence2", "{index}\t{text}\t{pair}",
)  # fmt: skip
TEXTS = ["a good film", 'it was "great, well', "the story was lovely", "a bad film", "awful story", "it was weak"]


def labels_of(task):
    return ["0.000", "2.500", "5.000"] if task.kind == "regression" else list(task.labels)


def write_official(directory, task, count=12):
    """A folder as GLUE's own: train, dev and test files; label i is that of the texts i, i + number of labels, ..."""
    header, row, test_header, test_row = OFFICIAL[task.name]
    folder = directory / task.name
    folder.mkdir(parents=True)
    for split in (task.train, *task.dev, *task.test):
        if split.file.startswith(".."):
            continue
        test = split.file.startswith("test")
        labels = labels_of(task)
        lines = [
            (test_row if test else row).format(
                index=index, text=TEXTS[index % 6], pair=TEXTS[(index + 1) % 6], label=labels[index % len(labels)]
            )
            for index in range(count)
        ]
        first = [test_header] if test else [header] if header else []
        (folder / split.file).write_text("\n".join([*first, *lines, ""]), encoding="utf-8")
    return folder


@pytest.mark.parametrize("task", GLUE, ids=lambda task: task.name)
def test_the_official_files_of_each_task(task, tmp_path):
    write_official(tmp_path, task)
    for place in (tmp_path, tmp_path / task.name):  # the folder of all tasks, and the task's own
        data = glue_data(task, str(place), with_test=True)
        assert len(data.train) == len(data.dev[""]) == 12
        first, second = data.train[:2]
        assert second.text.rstrip() == 'it was "great, well'  # the lone quote is an ordinary character
        assert second.text_pair == (None if task.text_pair is None else "the story was lovely")
        labels = labels_of(task)
        assert [example.label for example in data.dev[""]] == [labels[index % len(labels)] for index in range(12)]
        targets = data.labels.targets([first, second], "train.tsv").tolist()
        assert targets == ([0.0, 2.5] if task.kind == "regression" else [0, 1])
        assert [test.name for test in data.test] == [split.name for split in task.test if split.name != "AX"]
        assert data.test[0].indices == [str(index) for index in range(12)]
        assert data.test[0].examples[1].text.rstrip() == 'it was "great, well'
        assert data.main in data.metrics
    assert [found.name for found in tasks_in(str(tmp_path))] == [task.name]


def test_mnli_has_two_dev_sets_and_perhaps_the_diagnostic_one(tmp_path):
    folder = write_official(tmp_path, TASKS["mnli"])
    data = glue_data(TASKS["mnli"], str(tmp_path))
    assert list(data.dev) == ["", "mismatched"]
    (folder / "dev_mismatched.tsv").unlink()
    (tmp_path / "diagnostic").mkdir()
    (tmp_path / "diagnostic" / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\ta film\ta story\n")
    data = glue_data(TASKS["mnli"], str(tmp_path), with_test=True)
    assert list(data.dev) == [""]
    assert [(test.name, len(test.examples)) for test in data.test] == [("MNLI-m", 12), ("MNLI-mm", 12), ("AX", 1)]


def test_damaged_rows_are_counted_or_refused(tmp_path):
    folder = write_official(tmp_path, TASKS["qqp"], count=3000)
    whole = (folder / "train.tsv").read_text()
    (folder / "train.tsv").write_text(f"{whole}17\t1\t2\tcut off\n18\n")
    data = glue_data(TASKS["qqp"], str(tmp_path))
    assert len(data.train) == 3000
    assert data.skipped_rows == {str(folder / "train.tsv"): 2}
    (folder / "train.tsv").write_text(whole + "19\t1\n" * 10)
    with pytest.raises(UserError, match=r"10 of 3010 rows have fewer columns than the 6 of QQP"):
        glue_data(TASKS["qqp"], str(tmp_path))


def test_what_is_not_there(tmp_path):
    folder = write_official(tmp_path, TASKS["rte"])
    with pytest.raises(UserError, match=r"has no column 'sentence'; is it the official file of SST-2\?"):
        glue_data(TASKS["sst-2"], str(folder))
    (folder / "train.tsv").unlink()
    with pytest.raises(UserError, match=r"has no train\.tsv; put the official files of RTE there"):
        glue_data(TASKS["rte"], str(tmp_path))
    assert list(tasks_in(str(tmp_path))) == []
    with pytest.raises(UserError, match="no such directory"):
        glue_data(TASKS["rte"], str(tmp_path / "none"))
    assert find_task("SST2") is find_task("sst-2") is TASKS["sst-2"]
    with pytest.raises(UserError, match=r"--task is 'QQQ': did you mean 'qqp'"):
        find_task("QQQ")
    with pytest.raises(UserError, match="choose one of CoLA, SST-2"):
        find_task("translation")


HUB_COLUMNS = {"QQP": ("question1", "question2"), "MNLI": ("premise", "hypothesis"), "QNLI": ("question", "sentence")}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A data set directory as the hub has glue: parquet files by configuration and split, named in README.md."""
    directory = tmp_path_factory.mktemp("hub")
    cards = []
    for task in (TASKS["cola"], TASKS["mnli"], TASKS["sts-b"]):
        columns = HUB_COLUMNS.get(task.name, ("sentence1", "sentence2") if task.text_pair else ("sentence",))
        regression = task.kind == "regression"
        label = Value("float32") if regression else ClassLabel(names=list(task.names))
        features = Features({**{name: Value("string") for name in columns}, "label": label, "idx": Value("int32")})
        files = []
        for split in (task.train, *task.dev, *task.test):
            if ":" in split.hub:
                continue
            labels = [(i % 3) * 2.5 if regression else i % len(task.labels) for i in range(12)]
            labels = [-1] * 12 if split in task.test else labels
            rows = {name: [TEXTS[(i + place) % 6] for i in range(12)] for place, name in enumerate(columns)}
            dataset = Dataset.from_dict({**rows, "label": labels, "idx": list(range(12))}, features=features)
            dataset.to_parquet(directory / task.hub / f"{split.hub}.parquet")
            files.append(f"  - split: {split.hub}\n    path: {task.hub}/{split.hub}.parquet\n")
        cards.append(f"- config_name: {task.hub}\n  data_files:\n{''.join(files)}")
    (directory / "README.md").write_text(f"---\nconfigs:\n{''.join(cards)}---\n")
    return directory


@pytest.mark.parametrize("name", ["cola", "mnli", "sts-b"])
def test_the_data_set_says_the_same_as_the_files(name, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    task = TASKS[name]
    write_official(tmp_path, task)
    files, dataset = glue_data(task, str(tmp_path)), glue_data(task, f"hf:{hub}")
    assert [(e.text, e.text_pair) for e in dataset.train] == [(e.text.rstrip(), e.text_pair) for e in files.train]
    for split in files.dev:
        np.testing.assert_array_equal(
            dataset.labels.targets(dataset.dev[split], ""), files.labels.targets(files.dev[split], "")
        )
    assert list(dataset.dev) == list(files.dev)
    assert f"hf:{hub}/{task.hub}/train" in dataset.files


def test_a_task_is_fine_tuned_and_its_test_sets_are_predicted(exported, tmp_path):
    write_official(tmp_path / "glue", TASKS["mnli"], count=30)
    config = FinetuneConfig(
        task="mnli", data=str(tmp_path / "glue"), out=tmp_path / "out", predict_test=True, num_epochs=1, max_length=32
    )
    result = finetune(exported / "discriminator", config, quiet=True)
    assert (result["task"], result["main_metric"]) == ("MNLI", "accuracy")
    assert set(result["runs"][0]) >= {"accuracy", "mismatched_accuracy"}
    assert result["accuracy"] == result["mismatched_accuracy"]  # here the two sets are the same
    assert result["labels"] == ["entailment", "neutral", "contradiction"]
    assert result["hyper_parameters"]["num_epochs"] == {"value": 1, "from": "given"}
    assert len(result["files"]) == 5
    with (tmp_path / "out" / "predictions-mismatched.csv").open() as file:
        rows = list(csv.DictReader(file))
    predicted = [row["predicted"] for row in rows]
    # transformers says the same of a pair: segments, order of the labels, pooling.
    classify = pipeline("text-classification", str(tmp_path / "out" / "model"), device=-1, top_k=None)
    for row in rows[:4]:
        found = {
            one["label"]: one["score"] for one in classify([{"text": row["text"], "text_pair": row["text_pair"]}])[0]
        }
        expected = {label: float(row[f"probability {label}"]) for label in result["labels"]}
        assert found == pytest.approx(expected, abs=1e-4)
    # The test files have the texts of the dev files: so they get the same answers.
    for name in ("MNLI-m", "MNLI-mm"):
        lines = (tmp_path / "out" / "submission" / f"{name}.tsv").read_text().splitlines()
        assert lines[0] == "index\tprediction"
        assert [line.split("\t") for line in lines[1:]] == [
            [str(index), label] for index, label in enumerate(predicted)
        ]
    settings = json.loads((tmp_path / "out" / "model" / "config.json").read_text())
    assert settings["id2label"] == {"0": "entailment", "1": "neutral", "2": "contradiction"}


def test_pairs_have_segments_and_what_is_cut_is_counted(exported):
    start = load_start(exported / "discriminator", FinetuneConfig(task="RTE", data="glue", max_length=12))
    pairs = [Example("a film", "the story", "0"), Example("the the the the the the the", "a a a a a film", "1")]
    encoded = encode(pairs, start, 12)
    assert encoded.num_cut == 1
    assert [len(ids) for ids in encoded.ids] == [7, 12]
    if start.loaded.config.blocks == "classic":
        assert encoded.types[0] == [0, 0, 0, 0, 1, 1, 1]  # [CLS] a film [SEP] the story [SEP]
        assert sum(encoded.types[1]) == 5  # of a pair the longer text is cut first: 4 + [SEP] are left of the second
    else:
        assert encoded.types is None
    assert encode([Example("a film", None, "0")], start, 12).types is None


def test_a_regression_gives_scores_in_the_labels_units(exported, tmp_path):
    write_official(tmp_path / "glue", TASKS["sts-b"], count=60)
    config = FinetuneConfig(
        task="STS-B", data=str(tmp_path / "glue" / "STS-B"), out=tmp_path / "out", predict_test=True, num_epochs=12,
        batch_size=8, max_length=32, peak_learning_rate=1e-2, layer_decay=1.0,
    )  # fmt: skip
    result = finetune(exported / "discriminator", config, quiet=True)
    assert result["spearman"]["median"] > 0.8
    assert result["degenerate_runs"] == 0
    lines = (tmp_path / "out" / "submission" / "STS-B.tsv").read_text().splitlines()[1:]
    scores = [float(line.split("\t")[1]) for line in lines]
    assert all(0.0 <= score <= 5.0 for score in scores)
    assert max(scores) > 2.5  # not from 0 to 1
    settings = json.loads((tmp_path / "out" / "model" / "config.json").read_text())
    assert (settings["problem_type"], settings["id2label"]) == ("regression", {"0": "score"})
