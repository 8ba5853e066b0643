"""The core of fine-tuning: rates by layer, batches in parts, unused rows left out, hyper-parameters by size."""

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import small_model
from electra.config import EncoderConfig
from electra.config_finetune import FinetuneConfig
from electra.evaluate import training
from electra.evaluate.batching import pad
from electra.evaluate.finetune import Classifier, Labelled, SequenceTask, predict
from electra.evaluate.labels import Classes
from electra.evaluate.recipe import filled_in
from electra.evaluate.training import Encoded, Start, layer_rates, num_steps, train
from electra.model.encoder import Encoder
from electra.model.heads import ClassificationHead

SETTINGS = FinetuneConfig(
    task_file=Path("train.csv"), batch_size=8, num_epochs=2, peak_learning_rate=1e-2, layer_decay=0.8
)


class Pad:
    """All of a tokenizer that training looks at."""

    pad_token_id = 0


START = Start(None, Pad(), torch.device("cpu"))  # no pre-trained weights here
LABELS = Classes(("odd", "even"), ("odd", "even"))


def task_of(data, settings=SETTINGS):
    return SequenceTask(
        start=START, config=settings, labels=LABELS, metrics=("accuracy",), main="accuracy", train=data, dev={}
    )


def test_rates_fall_towards_the_input_as_in_the_reference():
    encoder = Encoder(
        EncoderConfig(vocab_size=10, hidden_size=8, embedding_size=8, num_heads=1, num_layers=3, intermediate_size=8)
    )
    rates = [rate for _, rate in layer_rates(encoder, 1.0, 0.5)]
    # embeddings n + 2 = 5; layers 0, 1, 2: 4, 3, 2
    assert rates == [0.5**5, 0.5**4, 0.5**3, 0.5**2]
    grouped = {id(p) for parameters, _ in layer_rates(encoder, 1.0, 0.5) for p in parameters}
    assert grouped == {id(p) for p in encoder.parameters()}


def classifier_of(blocks):
    """A small classifier without dropout, and 21 texts of lengths from 3 to 9 whose first id says the class."""
    torch.manual_seed(0)
    config = dataclasses.replace(small_model(blocks, dropout=0.0).discriminator, vocab_size=30)
    pooling = "mean" if blocks == "modern" else "first"
    classifier = Classifier(Encoder(config), ClassificationHead(config, 2, pooling))
    draw = random.Random(0)
    rows = [[1, index % 2 + 5, *draw.choices(range(10, 30), k=index % 7 + 1)] for index in range(21)]
    return classifier, Labelled(Encoded(rows, None), np.arange(21) % 2)


def trained(blocks, settings=SETTINGS, change=lambda ids: ids):
    """The classifier after two epochs, its probabilities, and its token table before."""
    classifier, data = classifier_of(blocks)
    data = Labelled(Encoded(change(data.texts.ids), None), data.targets)
    table = classifier.encoder.embeddings.tokens.weight.detach().clone()
    task = task_of(data, settings)
    steps = []
    assert train(task, classifier, data.texts, np.arange(21), START, settings, 0, lambda: steps.append(1))
    assert len(steps) == num_steps(21, settings) == 6  # 21 texts are three batches, twice
    return classifier, predict(classifier.eval(), data.texts, START, LABELS), table


@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_parts_of_a_batch_train_as_the_whole_one(blocks, monkeypatch):
    _, whole, _ = trained(blocks)
    monkeypatch.setattr(training, "CPU_MICRO_BATCH_TOKENS", 20)
    _, parts, _ = trained(blocks)
    np.testing.assert_allclose(whole, parts, atol=1e-4)
    assert np.abs(whole - 0.5).max() > 0.01


@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_rows_of_the_table_that_no_text_uses_are_left_out(blocks, monkeypatch):
    def change(ids):
        return [[min(id_, 20) for id_ in row] for row in ids]

    left_out, _, start = trained(blocks, change=change)
    monkeypatch.setattr(training, "only_used_rows", WholeTable)
    whole, _, _ = trained(blocks, change=change)
    torch.testing.assert_close(left_out.state_dict(), whole.state_dict(), atol=1e-4, rtol=1e-3)
    moved = (left_out.encoder.embeddings.tokens.weight != start).any(dim=1)
    assert moved[[1, 5, 6]].all()
    assert not moved[[2, 3, 4, 21, 29]].any()


class WholeTable:
    """What `only_used_rows` would be if it left nothing out."""

    def __init__(self, encoder, texts, pad_id):
        self.given = texts, pad_id

    def __enter__(self):
        return self.given

    def __exit__(self, *error):
        pass


def test_labels_follow_their_texts_when_only_some_train():
    """A loss that took the labels of the first ten texts for those of these ten would learn others."""
    _, data = classifier_of("classic")
    flipped = Labelled(data.texts, 1 - data.targets)
    settings = dataclasses.replace(SETTINGS, num_epochs=30)
    rows = np.array([0, 3, 6, 9, 12, 13, 15, 16, 18, 19])
    for labelled in (data, flipped):
        network, _ = classifier_of("classic")
        assert train(task_of(labelled, settings), network, data.texts, rows, START, settings, 0)
        assert (predict(network.eval(), data.texts, START, LABELS).argmax(1) == labelled.targets)[rows].all()


def test_only_what_the_head_reads_is_computed():
    classifier, data = classifier_of("classic")
    ids, mask = pad(data.texts.ids, 0)
    whole = classifier.head(classifier.encoder(ids, mask), mask)
    torch.testing.assert_close(classifier(ids, mask, None), whole)
    parameters = list(classifier.parameters())
    expected = torch.autograd.grad(whole.square().sum(), parameters)
    found = torch.autograd.grad(classifier(ids, mask, None).square().sum(), parameters)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("hidden_size", "rate", "decay", "source"),
    [  # Clark et al. 2020, table 7; tiny is ours
        (128, 1e-3, 0.9, "ours, tiny"),
        (256, 3e-4, 0.8, "paper, table 7, small"),
        (768, 1e-4, 0.8, "paper, table 7, base"),
        (1024, 5e-5, 0.9, "paper, table 7, large"),
    ],
)
def test_what_is_left_open_is_the_papers_for_the_size(hidden_size, rate, decay, source):
    open_ended = FinetuneConfig(task_file=Path("train.csv"))
    config, used = filled_in(open_ended, EncoderConfig(hidden_size=hidden_size), epochs=10)
    assert (config.peak_learning_rate, config.layer_decay, config.num_epochs) == (rate, decay, 10)
    assert used["peak_learning_rate"] == {"value": rate, "from": source}
    assert used["num_epochs"] == {"value": 10, "from": "paper, table 7"}
    given, used = filled_in(dataclasses.replace(open_ended, layer_decay=1.0), EncoderConfig(hidden_size=hidden_size))
    assert (given.layer_decay, given.num_epochs, given.peak_learning_rate) == (1.0, 3, rate)
    assert used["layer_decay"] == {"value": 1.0, "from": "given"}
