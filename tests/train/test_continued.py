"""Going on from trained weights: exact where the vocabulary is the same, carried over where it is not, never silently random."""

import dataclasses

import numpy as np
import pytest
import torch
from transformers import (
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

from conftest import sentences, small_model
from electra import cli
from electra.config import EncoderConfig, GeneratorConfig, ModelConfig
from electra.data.prepare import prepare
from electra.data.shards import TokenStore
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.model.carry_over import move_embeddings, plan
from electra.model.encoder import Encoder
from electra.model.pair import Pair
from electra.presets import PRESETS, continued
from electra.train.checkpoint import load_run
from electra.train.continued import before_and_after, rate_warnings, trained_start
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics


def electra(vocab_size, **changes):
    sizes = dict(vocab_size=vocab_size, embedding_size=12, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                 intermediate_size=32, max_position_embeddings=64)  # fmt: skip
    return ElectraConfig(**sizes | changes)


@pytest.fixture
def opened(store):
    return TokenStore.open(store)


@pytest.fixture
def released(opened, tmp_path):
    """A discriminator and a generator as wide as it (as released Small's), written by transformers, sharing nothing."""
    torch.manual_seed(3)
    ElectraForPreTraining(electra(opened.vocab_size)).save_pretrained(tmp_path / "d")
    ElectraForMaskedLM(electra(opened.vocab_size, num_attention_heads=4, intermediate_size=20)).save_pretrained(
        tmp_path / "g"
    )
    for name in "dg":
        load_tokenizer(opened.tokenizer_dir).save_pretrained(tmp_path / name)
    return tmp_path


def logits(pair, ids):
    pair.eval()
    with torch.no_grad():
        return pair.discriminator_head(pair.discriminator(ids)), pair.generator_head.logits(pair.generator(ids))


IDS = torch.tensor([[2, 9, 12, 33, 40, 3], [2, 8, 8, 21, 5, 3]])


def test_released_networks_keep_their_own_shapes_and_numbers(released, opened, run_config):
    config = dataclasses.replace(run_config, init_from=str(released / "d"), init_generator_from=str(released / "g"))
    start = trained_start(config, opened)
    found, guessed = logits(start.pair, IDS)
    with torch.no_grad():
        theirs = ElectraForPreTraining.from_pretrained(released / "d").eval()(IDS).logits
        torch.testing.assert_close(found, theirs, atol=1e-5, rtol=1e-4)
        theirs = ElectraForMaskedLM.from_pretrained(released / "g").eval()(IDS).logits
        torch.testing.assert_close(guessed, theirs, atol=1e-5, rtol=1e-4)
    generator = start.pair.config.generator_encoder()
    assert (generator.hidden_size, generator.num_heads, generator.intermediate_size) == (16, 4, 20)
    assert start.pair.config.tying == "none"
    assert len(start.notes) == 1
    assert "generator 2 of 16; they share nothing" in start.notes[0]


@pytest.mark.parametrize("blocks", ["classic", "modern"])
@pytest.mark.parametrize("tying", ["none", "embeddings", "all"])
def test_an_export_and_a_run_give_the_same_pair(blocks, tying, run_config, opened, tmp_path):
    model = small_model(blocks)
    width = 16 if blocks == "modern" else 12  # a narrow table of modern blocks is exported as a wide one
    config = dataclasses.replace(
        run_config,
        model=dataclasses.replace(
            model,
            tying=tying,
            generator=GeneratorConfig(width=1.0 if tying == "all" or blocks == "modern" else 0.5),
            discriminator=dataclasses.replace(model.discriminator, embedding_size=width),
        ),
        train=dataclasses.replace(run_config.train, num_steps=2),
    )
    run = pretrain(config, quiet=True)
    trained, _ = load_run(run)
    checkpoint_gone = tmp_path / "export"
    for name in ("discriminator", "generator"):
        (checkpoint_gone / name).parent.mkdir(exist_ok=True)
        (run / name).rename(checkpoint_gone / name)
    for source in (run, checkpoint_gone):
        start = trained_start(dataclasses.replace(run_config, init_from=str(source)), opened)
        assert start.pair.config.tying == tying
        for one, other in zip(logits(trained, IDS), logits(start.pair, IDS), strict=True):
            assert torch.equal(one, other)
        tables = start.pair.generator.embeddings.tokens, start.pair.discriminator.embeddings.tokens
        assert (tables[0] is tables[1]) == (tying != "none")


def test_a_modern_run_with_a_narrow_table_is_taken_over_exactly(run_config, opened):
    config = dataclasses.replace(
        run_config, model=small_model("modern"), train=dataclasses.replace(run_config.train, num_steps=1)
    )
    run = pretrain(config, quiet=True)
    start = trained_start(dataclasses.replace(run_config, init_from=str(run)), opened)
    assert start.pair.config.discriminator.embedding_size == 12
    for one, other in zip(logits(load_run(run)[0], IDS), logits(start.pair, IDS), strict=True):
        assert torch.equal(one, other)


# ---------------------------------------------------------------------------------------- what is missing or of another kind


def test_one_network_is_never_taken_for_the_other(released, opened, run_config):
    def start(main, generator=None):
        return trained_start(
            dataclasses.replace(
                run_config,
                init_from=str(released / main),
                init_generator_from=None if generator is None else str(released / generator),
            ),
            opened,
        )

    with pytest.raises(UserError, match="is a ElectraForMaskedLM, a generator, and init_from wants the discriminator"):
        start("g")
    with pytest.raises(UserError, match="is a ElectraForPreTraining, not a generator"):
        start("d", "d")
    notes = start("d").notes
    assert any("no generator is named: it starts anew" in note for note in notes)
    classifier = ElectraForSequenceClassification(electra(opened.vocab_size))
    classifier.save_pretrained(released / "c")
    load_tokenizer(opened.tokenizer_dir).save_pretrained(released / "c")
    notes = start("c", "g").notes
    assert any(
        "ElectraForSequenceClassification, without a replaced-token head: that head starts anew" in n for n in notes
    )


def test_networks_that_cannot_be_a_pair_are_refused(released, opened, run_config):
    ElectraForMaskedLM(electra(opened.vocab_size, max_position_embeddings=32)).save_pretrained(released / "short")
    config = dataclasses.replace(run_config, init_from=str(released / "d"), init_generator_from=str(released / "short"))
    with pytest.raises(UserError, match=r"the generator's max_length is 32, the discriminator's asks for 64"):
        trained_start(config, opened)


def test_a_masked_language_model_of_modern_blocks_serves_as_both(opened, run_config, tmp_path):
    config = ModernBertConfig(vocab_size=opened.vocab_size + 7, hidden_size=16, num_hidden_layers=4, num_attention_heads=2,
                              intermediate_size=20, max_position_embeddings=64, local_attention=6, pad_token_id=0,
                              bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3)  # fmt: skip
    model = ModernBertForMaskedLM(config).eval()
    model.save_pretrained(tmp_path / "m")
    load_tokenizer(opened.tokenizer_dir).save_pretrained(tmp_path / "m")
    source = str(tmp_path / "m")
    start = trained_start(dataclasses.replace(run_config, init_from=source, init_generator_from=source), opened)
    assert (start.pair.config.tying, start.pair.config.discriminator.vocab_size) == ("all", opened.vocab_size + 7)
    assert any("without a replaced-token head" in note for note in start.notes)
    with torch.no_grad():
        torch.testing.assert_close(logits(start.pair, IDS)[1], model(IDS).logits, atol=1e-4, rtol=1e-4)


# --------------------------------------------------------------------------------------------------------------- vocabulary


def test_rows_follow_their_pieces():
    encoder = Encoder(EncoderConfig(vocab_size=8, embedding_size=4, hidden_size=8, num_layers=1, num_heads=1))
    table = encoder.embeddings.tokens.weight.detach().clone()
    old = {"[PAD]": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "sun": 5, "##day": 6, "rain": 7}
    new = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "rain": 5, "sunday": 6, "☂": 7, "sun": 8}
    moved = plan(old, new, lambda piece: [5, 6] if piece == "sunday" else [], {i: i for i in range(5)}, 9)
    move_embeddings(encoder, moved)
    found = encoder.embeddings.tokens.weight
    assert torch.equal(found[[0, 1, 2, 3, 4, 5, 8]], table[[0, 1, 2, 3, 4, 7, 5]])
    torch.testing.assert_close(found[6], (table[5] + table[6]) / 2)
    assert (len(moved.same), len(moved.parts), moved.drawn, moved.dropped) == (7, 1, 1, 1)
    assert str(moved) == (
        "7 of 9 word pieces carried over, 1 start as the mean of their parts, 1 at random; 1 old ones dropped"
    )
    assert encoder.config.vocab_size == found.shape[0] == 9


@pytest.mark.parametrize("tying", ["none", "embeddings"])
def test_a_store_of_another_vocabulary(tying, released, opened, run_config, tmp_path):
    """The new vocabulary has whole words that the old one cuts, and lacks some of the old pieces."""
    if tying == "embeddings":
        source = ElectraForPreTraining.from_pretrained(released / "d")
        target = ElectraForMaskedLM.from_pretrained(released / "g")
        target.electra.embeddings.load_state_dict(source.electra.embeddings.state_dict())
        target.save_pretrained(released / "g")
    tokenizer = load_tokenizer(opened.tokenizer_dir)
    old = tokenizer.get_vocab()
    pieces = [p for p, _ in sorted(old.items(), key=lambda item: item[1]) if p not in ("soup", "##p")]
    pieces += ["chefsoup", "##ooked", "☂"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (tmp_path / "text.txt").write_text("\n".join(sentences(40)) + "\n", encoding="utf-8")
    prepare([tmp_path / "text.txt"], tmp_path / "other", vocab=tmp_path / "vocab.txt", quiet=True)
    other = TokenStore.open(tmp_path / "other")
    config = dataclasses.replace(run_config, init_from=str(released / "d"), init_generator_from=str(released / "g"))
    start = trained_start(config, other)
    table = start.pair.discriminator.embeddings.tokens.weight
    theirs = ElectraForPreTraining.from_pretrained(released / "d").electra.embeddings.word_embeddings.weight
    for index, piece in enumerate(pieces[:-3]):
        assert torch.equal(table[index], theirs[old[piece]]), piece
    parts = tokenizer.tokenize("chefsoup")
    assert len(parts) > 1
    expected = theirs[tokenizer.convert_tokens_to_ids(parts)].mean(0)
    torch.testing.assert_close(table[len(pieces) - 3], expected)
    first, *rest = tokenizer.tokenize("ooked")
    expected = theirs[[old.get(f"##{first}", old[first]), *(old[piece] for piece in rest)]].mean(0)
    torch.testing.assert_close(table[len(pieces) - 2], expected)
    assert start.pair.config.tying == tying
    [note] = [note for note in start.notes if note.startswith("vocabulary")]
    assert (
        f"{len(pieces) - 3} of {len(pieces)} word pieces carried over, 2 start as the mean of their parts, 1 at random"
        in note
    )
    assert start.pair.generator_head.bias.shape == (len(pieces),)
    assert torch.equal(start.pair.generator.embeddings.tokens.weight, table) == (tying == "embeddings")
    logits(start.pair, IDS)


def test_a_model_without_a_tokenizer(released, opened, run_config):
    for name in "dg":
        for file in (released / name).glob("*token*"):
            file.unlink()
    config = dataclasses.replace(run_config, init_from=str(released / "d"), init_generator_from=str(released / "g"))
    assert any("no tokenizer beside its weights" in note for note in trained_start(config, opened).notes)
    ElectraForPreTraining(electra(77)).save_pretrained(released / "d")
    with pytest.raises(UserError, match="77 word pieces and no tokenizer"):
        trained_start(config, opened)


def test_the_same_pieces_cut_in_another_way_are_noticed(released, opened, run_config):
    pieces = sorted(load_tokenizer(opened.tokenizer_dir).get_vocab().items(), key=lambda item: item[1])
    (released / "vocab.txt").write_text("\n".join(piece for piece, _ in pieces) + "\n", encoding="utf-8")
    load_tokenizer(released / "vocab.txt", lowercase=False).save_pretrained(released / "d")
    config = dataclasses.replace(run_config, init_from=str(released / "d"), init_generator_from=str(released / "g"))
    assert any("cuts text in another way (case" in note for note in trained_start(config, opened).notes)


# ---------------------------------------------------------------------------------------------------------------- the run


def test_a_run_goes_on_with_scores_before_and_after(released, store, run_config, capsys):
    config = dataclasses.replace(
        run_config,
        init_from=str(released / "d"),
        init_generator_from=str(released / "g"),
        data=dataclasses.replace(run_config.data, heldout=store),
        optimizer=dataclasses.replace(run_config.optimizer, peak_learning_rate=3e-3),
        train=dataclasses.replace(run_config.train, num_steps=12, eval_every=0, eval_batches=2),
    )
    run = pretrain(config)
    said = capsys.readouterr().err
    assert "warning: optimizer.peak_learning_rate is 0.003" in said
    first, last = (line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "heldout")
    assert (first["step"], last["step"]) == (0, 12)
    assert last["generator_loss"] < first["generator_loss"]
    assert [line.partition(" steps")[0] for line in before_and_after(run)] == ["held-out after 0", "held-out after 12"]
    assert all(line in said for line in before_and_after(run))
    # The model's directory may go away; the run's own files are enough to repeat the command.
    for file in (released / "d").iterdir():
        file.unlink()
    assert pretrain(config, quiet=True) == run
    saved = load_run(run)[1]
    assert saved.model.generator.num_heads == 4
    assert saved.model.discriminator.vocab_size == TokenStore.open(store).vocab_size


def test_rates_are_a_tenth_unless_named():
    words = ["--preset", "small", "--data.store", "s", "--init-from", "d"]
    settings = cli.parse("pretrain", words).settings
    assert settings.optimizer.peak_learning_rate == pytest.approx(5e-5)
    assert settings.optimizer.warmup_fraction == 0.05
    assert settings.init_from == "d"
    assert cli.parse("pretrain", words[:4]).settings.optimizer.peak_learning_rate == 5e-4
    named = cli.parse("pretrain", [*words, "--optimizer.peak-learning-rate", "3e-4"]).settings
    assert named.optimizer.peak_learning_rate == 3e-4
    tiny = cli.parse("pretrain", ["--init-from=d"]).settings
    assert tiny.optimizer.muon_learning_rate == pytest.approx(2e-3)
    assert tiny.optimizer.embedding_learning_rate == pytest.approx(3e-5)
    assert tiny.objective.discriminator_start == 0.0
    with pytest.raises(UserError, match="init_generator_from is 'g': it goes with a discriminator"):
        cli.parse("pretrain", ["--init-generator-from", "g"])


@pytest.mark.parametrize("preset", PRESETS)
def test_the_rates_from_scratch_are_warned_about_and_the_rebased_ones_are_not(preset):
    assert rate_warnings(PRESETS[preset]())
    assert rate_warnings(continued(PRESETS[preset]())) == []


def test_a_pair_whose_generator_has_sizes_of_its_own():
    encoder = EncoderConfig(vocab_size=20, embedding_size=8, hidden_size=16, num_heads=2, num_layers=2)
    own = GeneratorConfig(hidden_size=12, num_heads=3, num_layers=1, intermediate_size=10, embedding_size=6)
    pair = Pair(ModelConfig(discriminator=encoder, generator=own, tying="none"))
    assert pair.generator.embeddings.tokens.weight.shape == (20, 6)
    assert pair.generator_head.logits(pair.generator(torch.from_numpy(np.zeros((1, 3), dtype=np.int64)))).shape == (
        1,
        3,
        20,
    )
    with pytest.raises(UserError, match=r"generator\.embedding_size is 6: shared embeddings"):
        ModelConfig(discriminator=encoder, generator=own)
    with pytest.raises(UserError, match="needs networks of equal size"):
        ModelConfig(discriminator=encoder, generator=GeneratorConfig(width=1.0, num_layers=1), tying="all")


# ------------------------------------------------------------------------------------------------- objectives of other parts


def with_objective(config, name, **changes):
    return dataclasses.replace(config, objective=dataclasses.replace(config.objective, name=name), **changes)


def test_bert_goes_on_from_a_masked_language_model_and_from_nothing_else(released, opened, run_config):
    start = trained_start(with_objective(run_config, "bert", init_from=str(released / "g")), opened)
    start.pair.eval()
    with torch.no_grad():
        found = start.pair.vocabulary_head.logits(start.pair.discriminator(IDS))
        theirs = ElectraForMaskedLM.from_pretrained(released / "g").eval()(IDS).logits
    torch.testing.assert_close(found, theirs, atol=1e-5, rtol=1e-4)
    assert "generator" not in "".join(start.notes)
    with pytest.raises(UserError, match="is a ElectraForPreTraining, and the main network of bert predicts tokens"):
        trained_start(with_objective(run_config, "bert", init_from=str(released / "d")), opened)
    both = {"init_from": str(released / "g"), "init_generator_from": str(released / "g")}
    with pytest.raises(UserError, match="the objective bert has no generator"):
        trained_start(with_objective(run_config, "bert", **both), opened)


def test_from_one_objective_to_another(run_config, opened, tmp_path):
    """bert -> electra starts the discriminator's head and the generator anew and says so; electra -> bert is refused."""
    brief = dataclasses.replace(run_config.train, num_steps=1)
    bert = pretrain(with_objective(run_config, "bert", train=brief, run_dir=tmp_path / "bert"), quiet=True)
    start = trained_start(dataclasses.replace(run_config, init_from=str(bert)), opened)
    assert any("of the objective bert: the replaced-token head starts anew" in note for note in start.notes)
    assert any("has no generator: it starts anew" in note for note in start.notes)
    trained = load_run(bert)[0].eval()
    start.pair.eval()
    with torch.no_grad():
        assert torch.equal(start.pair.discriminator(IDS), trained.discriminator(IDS))
    electra_run = pretrain(dataclasses.replace(run_config, train=brief, run_dir=tmp_path / "electra"), quiet=True)
    with pytest.raises(UserError, match="is a run of electra, and the main network of bert predicts tokens"):
        trained_start(with_objective(run_config, "bert", init_from=str(electra_run)), opened)


def test_heads_of_an_objectives_own_are_announced(released, opened, run_config):
    both = {"init_from": str(released / "d"), "init_generator_from": str(released / "g")}
    start = trained_start(with_objective(run_config, "adversarial", **both), opened)
    assert start.notes[-1] == "the baseline head of adversarial starts anew"
    start = trained_start(
        with_objective(run_config, "all-tokens-mlm", **both | {"init_from": str(released / "g")}), opened
    )
    assert start.notes[-1] == "the copy head of all-tokens-mlm starts anew"
