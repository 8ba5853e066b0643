"""A run that goes on from trained weights: their shapes, the store's vocabulary, and rates that do not undo them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from electra.config import EncoderConfig, GeneratorConfig, ModelConfig, PretrainConfig
from electra.data.shards import TokenStore
from electra.data.tokenizer import load_tokenizer, special_ids, tokenizer_hash
from electra.errors import UserError
from electra.model.carry_over import move_embeddings, move_output_bias, plan
from electra.model.encoder import Encoder
from electra.model.heads import GeneratorHead, ReplacedTokenHead
from electra.model.hf import load_discriminator, load_encoder, load_generator
from electra.model.hf_files import has_network, model_directory, tokenizer_directory
from electra.model.hf_names import NETWORK_OF
from electra.model.pair import Pair, Parts
from electra.objectives import make_pair, parts_of
from electra.presets import CONTINUED_SHARE, PRESETS
from electra.train.checkpoint import load_run, newest_checkpoint
from electra.train.metrics import describe, read_metrics

_WRECKING_SHARE = 0.5  # of the peak rate from scratch


@dataclasses.dataclass
class _Network:
    """An encoder with its head (None: not in the files) and where its tokenizer lies (None: nowhere)."""

    encoder: Encoder
    head: nn.Module | None
    tokenizer_dir: Path | None


@dataclasses.dataclass(frozen=True)
class TrainedStart:
    """A pair of networks on the store's vocabulary, and what the user should know of how it came about."""

    pair: Pair
    notes: list[str]


def trained_start(config: PretrainConfig, store: TokenStore) -> TrainedStart:
    """The pair that `init_from` (and `init_generator_from`) name. What the files lack starts anew, and a note says so.

    Draws from torch's generator, which the caller seeds. Raises UserError for files that are missing or of another kind, for
    a generator where a discriminator is meant and the other way round, and for two networks that cannot form a pair.
    """
    assert config.init_from is not None
    notes: list[str] = []
    main, small = _read(config, notes)
    _move_to_store(main, small, store, notes)
    model = _model_config(config, main, small)
    pair = make_pair(model, config.objective)
    main_head = pair.discriminator_head if pair.parts.main_head == "replaced-token" else pair.vocabulary_head
    kept: list[tuple[nn.Module, nn.Module | None]] = [(pair.discriminator, main.encoder), (main_head, main.head)]
    if small is not None:
        kept += [(pair.generator, small.encoder), (pair.generator_head, small.head)]
    for module, source in kept:
        if source is not None:
            module.load_state_dict(source.state_dict())
    shared = {"none": "nothing", "embeddings": "the embeddings", "all": "every weight"}[model.tying]
    encoder, generator = model.discriminator, model.generator_encoder()
    note = f"going on from {config.init_from}: {encoder.num_layers} {encoder.blocks} layers of {encoder.hidden_size}"
    if pair.parts.generator:
        note += f"; generator {generator.num_layers} of {generator.hidden_size}; they share {shared}"
    notes.append(note)
    named = {pair.discriminator, main_head, *([pair.generator, pair.generator_head] if pair.parts.generator else [])}
    for name, module in pair.named_children():
        if module not in named:  # an objective's own, which no directory has
            notes.append(f"the {name.replace('_', ' ')} of {config.objective.name} starts anew")
    return TrainedStart(pair, notes)


# ----------------------------------------------------------------------------------------------------------- reading


def _read(config: PretrainConfig, notes: list[str]) -> tuple[_Network, _Network | None]:
    source, generator_source = str(config.init_from), config.init_generator_from
    parts = parts_of(config.objective)
    if generator_source is not None and not parts.generator:
        raise UserError(
            f"init_generator_from is {generator_source}: the objective {config.objective.name} has no generator; leave it out"
        )
    if generator_source is None and (Path(source) / "config.yaml").is_file() and newest_checkpoint(Path(source)):
        return _read_run(config, Path(source), parts, notes)
    if parts.main_head != "replaced-token":
        main = _read_vocabulary_network(config, source)
    else:
        main = _read_discriminator(source, notes)
    if not parts.generator:
        return main, None
    if generator_source is None and has_network(Path(source), "generator"):
        generator_source = source
    if generator_source is None:
        hint = f" (for this one, {source.replace('discriminator', 'generator')})" if "discriminator" in source else ""
        notes.append(
            f"no generator is named: it starts anew, in the preset's proportions; --init-generator-from names one{hint}"
        )
        return main, None
    its_tokenizer = tokenizer_directory(model_directory(Path(generator_source), "generator"))
    return main, _Network(*load_generator(generator_source), its_tokenizer or main.tokenizer_dir)


def _read_run(config: PretrainConfig, run: Path, parts: Parts, notes: list[str]) -> tuple[_Network, _Network | None]:
    """Both networks of a run, exactly: an export writes a narrow table of modern blocks as a wide one."""
    pair, saved = load_run(run)
    head: nn.Module | None
    if parts.main_head == "replaced-token":
        head = pair.discriminator_head if pair.parts.main_head == "replaced-token" else None
        if head is None:
            notes.append(f"{run} is of the objective {saved.objective.name}: the replaced-token head starts anew")
    elif pair.parts.main_head == "replaced-token":
        raise _wants_tokens(config, f"is a run of {saved.objective.name}")
    else:
        head = pair.vocabulary_head
    main = _Network(pair.discriminator, head, run / "tokenizer")
    if not parts.generator:
        return main, None
    if not pair.parts.generator:
        notes.append(f"{run} has no generator: it starts anew, in the preset's proportions")
        return main, None
    return main, _Network(pair.generator, pair.generator_head, run / "tokenizer")


def _wants_tokens(config: PretrainConfig, found: str) -> UserError:
    return UserError(
        f"{config.init_from}: {found}, and the main network of {config.objective.name} predicts tokens; name a masked "
        "language model (ForMaskedLM) or a generator's own directory"
    )


def _read_vocabulary_network(config: PretrainConfig, source: str) -> _Network:
    if has_network(Path(source), "discriminator"):
        raise _wants_tokens(config, "holds a discriminator")
    directory = model_directory(Path(source), "main")
    if not (loaded := load_encoder(directory)).architecture.endswith("ForMaskedLM"):
        raise _wants_tokens(config, f"is a {loaded.architecture}")
    return _Network(*load_generator(directory), loaded.tokenizer_dir)


def _read_discriminator(source: str, notes: list[str]) -> _Network:
    loaded = load_encoder(source)
    kind = loaded.architecture.partition("For")[2]
    if kind == "MaskedLM" and loaded.config.blocks == "classic":
        raise UserError(
            f"{source}: is a {loaded.architecture}, a generator, and init_from wants the discriminator; name that one, "
            f"and this as --init-generator-from"
        )
    head: ReplacedTokenHead | None = None
    if NETWORK_OF.get(kind) == "discriminator":
        _, head = load_discriminator(source)
    else:
        notes.append(f"{source} is a {loaded.architecture}, without a replaced-token head: that head starts anew")
    return _Network(loaded.encoder, head, loaded.tokenizer_dir)


def _model_config(config: PretrainConfig, main: _Network, small: _Network | None) -> ModelConfig:
    """Shapes from the files. What the two share is found out by comparing their weights."""
    encoder = main.encoder.config
    if small is None:
        return dataclasses.replace(config.model, discriminator=encoder, embedding_start="random")
    other = small.encoder.config
    own = GeneratorConfig(
        width=1.0,
        hidden_size=other.hidden_size,
        num_layers=other.num_layers,
        num_heads=other.num_heads,
        intermediate_size=other.intermediate_size,
        embedding_size=other.embedding_size,
    )
    tying = "none"
    if other == encoder and _equal(main.encoder, small.encoder):
        tying = "all"
    elif other.embedding_size == encoder.embedding_size and _equal(main.encoder.embeddings, small.encoder.embeddings):
        tying = "embeddings"
    model = ModelConfig(discriminator=encoder, generator=own, tying=tying)  # type: ignore[arg-type]
    _check_alike(config, model.generator_encoder(), other)
    return model


def _equal(one: nn.Module, other: nn.Module) -> bool:
    theirs = dict(other.named_parameters())
    return theirs.keys() == dict(one.named_parameters()).keys() and all(
        torch.equal(parameter, theirs[name]) for name, parameter in one.named_parameters()
    )


def _check_alike(config: PretrainConfig, ours: EncoderConfig, theirs: EncoderConfig) -> None:
    """What a pair has only once (blocks, positions, ...) must be the same in both networks' files."""
    free = {"hidden_dropout", "attention_dropout", "initializer_range", "neighbour_heads"}
    if ours.blocks == "modern":
        free |= {"max_length", "type_vocab_size"}
    for field in dataclasses.fields(EncoderConfig):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name not in free and one != other:
            raise UserError(
                f"{config.init_generator_from or config.init_from}: the generator's {field.name} is {other}, the "
                f"discriminator's asks for {one}; these two cannot be a pair, name another generator or none"
            )


# ---------------------------------------------------------------------------------------------------------- vocabulary


def _move_to_store(main: _Network, small: _Network | None, store: TokenStore, notes: list[str]) -> None:
    """Put both networks on the store's vocabulary, in place."""
    tied = small is not None and small.encoder is main.encoder
    tied_tables = small is not None and not tied and _equal(main.encoder.embeddings, small.encoder.embeddings)
    for network in [main] if small is None or tied else [main, small]:
        moved = _plan(network, store, notes if network is main else [])
        if moved is None:
            continue
        if network is small and tied_tables:  # the same rows again: the ones drawn at random, too
            network.encoder.embeddings.tokens.weight = main.encoder.embeddings.tokens.weight
            network.encoder.config = dataclasses.replace(network.encoder.config, vocab_size=moved.vocab_size)
        else:
            move_embeddings(network.encoder, moved)
        if isinstance(network.head, GeneratorHead):
            move_output_bias(network.head, moved)
        if network is main:
            notes.append(f"vocabulary of {store.path}: {moved}")
            if tied and small is not None and isinstance(small.head, GeneratorHead):
                move_output_bias(small.head, moved)


def _plan(network: _Network, store: TokenStore, notes: list[str]) -> Any:
    """How a network's vocabulary becomes the store's; None when it is that already."""
    vocab_size = network.encoder.config.vocab_size
    if network.tokenizer_dir is None:
        if vocab_size != store.vocab_size:
            raise UserError(
                f"the model that init_from names has {vocab_size} word pieces and no tokenizer beside its weights, the store "
                f"{store.vocab_size}: put its tokenizer there, so that pieces can be matched"
            )
        notes.append(
            "the model has no tokenizer beside its weights: the store's, of the same size, is taken for its own"
        )
        return None
    old, new = load_tokenizer(network.tokenizer_dir), load_tokenizer(store.tokenizer_dir)
    if tokenizer_hash(old) == tokenizer_hash(new):
        return None
    if old.get_vocab() == new.get_vocab():
        notes.append(
            f"the store has the model's word pieces but cuts text in another way (case, accents?); "
            f"`electra prepare --vocab {network.tokenizer_dir}` cuts as the model does"
        )
        return None
    roles = dict(zip(dataclasses.astuple(special_ids(new)), dataclasses.astuple(special_ids(old)), strict=True))
    return plan(old.get_vocab(), new.get_vocab(), _splitter(old, new), roles, store.vocab_size)


def _splitter(old: Any, new: Any) -> Any:
    """New piece -> old ids of its parts, by cutting the text that it stands for with the old tokenizer."""
    old_ids, specials = old.get_vocab(), set(old.all_special_ids)

    def split(piece: str) -> Sequence[int]:
        continues = piece.startswith("##")
        pieces = old.tokenize(piece[2:] if continues else new.convert_tokens_to_string([piece]).strip())
        if continues and pieces and f"##{pieces[0]}" in old_ids:
            pieces[0] = f"##{pieces[0]}"
        return [index for index in old.convert_tokens_to_ids(pieces) if index not in specials]

    return split


# ---------------------------------------------------------------------------------------------------------------- rates


def rate_warnings(config: PretrainConfig) -> list[str]:
    """A line for each peak rate at which continued training tends to undo what the weights know.

    The rule is ours: more than half the peak rate of the preset that is nearest in kind and width, from scratch.
    """
    encoder = config.model.discriminator
    presets = [make() for make in PRESETS.values()]
    alike = [p for p in presets if p.model.discriminator.blocks == encoder.blocks]
    nearest = min(alike, key=lambda p: abs(p.model.discriminator.hidden_size - encoder.hidden_size))
    names = ["peak_learning_rate"]
    if config.optimizer.embedding_learning_rate is not None:
        names.append("embedding_learning_rate")
    if config.optimizer.name == "muon":
        names.append("muon_learning_rate")
    lines = []
    for name in names:
        rate = getattr(config.optimizer, name)
        scratch = getattr(nearest.optimizer, name) or nearest.optimizer.peak_learning_rate
        if rate > _WRECKING_SHARE * scratch:
            lines.append(
                f"warning: optimizer.{name} is {rate:g}; networks of this size learn from scratch at {scratch:g}, and going "
                f"on at more than half of that tends to undo what they know: try {scratch * CONTINUED_SHARE:g}"
            )
    return lines


def before_and_after(run_dir: Path) -> list[str]:
    """Held-out scores before the first step and at the last, a line each; none where they were not measured."""
    lines = [line for line in read_metrics(run_dir / "metrics.jsonl") if line["kind"] == "heldout"]
    if len(lines) < 2 or lines[0]["step"] != 0:
        return []
    return [f"held-out after {line['step']:,} steps: {describe(line)}" for line in (lines[0], lines[-1])]
