"""Every setting of a run: frozen dataclasses, checked when made; config_files.py reads and writes them.

A check that needs only the setting itself lives in `__post_init__` and names field, value and fix. What can only be known
with the data at hand (does the vocabulary fit?) is checked by the code that opens the data, before any work.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from electra.errors import UserError


def _require(condition: bool, field: str, value: object, fix: str) -> None:
    if not condition:
        raise UserError(f"{field} is {value!r}: {fix}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Shape of one encoder. `classic` blocks are the paper's (Hugging Face ELECTRA), `modern` ones are ModernBERT's."""

    blocks: Literal["classic", "modern"] = "classic"
    vocab_size: int | None = None
    """Number of word pieces; empty means that of the token store."""
    embedding_size: int = 128
    """Width of the token embeddings; a projection leads to `hidden_size` where they differ (ALBERT-style factorisation)."""
    hidden_size: int = 256
    num_layers: int = 12
    num_heads: int = 4
    intermediate_size: int = 1024
    """Width of the feed-forward layer (for `modern`, of each half of the gated one)."""
    max_length: int = 512
    """Longest row in tokens: rows of the position table for `classic`, a declared limit for `modern` (rotary positions)."""
    type_vocab_size: int = 2
    """Segment types (classic only)."""
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02
    global_attention_every: int = 3
    """modern only: layers 0, n, 2n, ... attend to the whole row, the others to a window."""
    local_attention: int = 128
    """modern only: width of that window in tokens (half to each side)."""
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    neighbour_heads: int = 0
    """modern only: this many heads of each layer start out looking at a neighbour (1 back, 1 ahead, 2 back, 2 ahead, ...).
    An initialisation, nothing else; it spares a small run the long search for the use of positions."""

    def __post_init__(self) -> None:
        for name in (
            "embedding_size",
            "hidden_size",
            "num_layers",
            "num_heads",
            "intermediate_size",
            "max_length",
            "type_vocab_size",
            "global_attention_every",
            "local_attention",
        ):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "it must be at least 1")
        _require(
            self.vocab_size is None or self.vocab_size >= 6, "vocab_size", self.vocab_size, "it must be at least 6"
        )
        _require(
            self.hidden_size % self.num_heads == 0,
            "hidden_size",
            self.hidden_size,
            f"it must be a multiple of num_heads ({self.num_heads})",
        )
        if self.blocks == "modern":
            _require(
                (self.hidden_size // self.num_heads) % 2 == 0,
                "num_heads",
                self.num_heads,
                f"rotary positions need an even head size, hidden_size / num_heads is "
                f"{self.hidden_size // self.num_heads}",
            )
        _require(
            0 <= self.neighbour_heads <= self.num_heads,
            "neighbour_heads",
            self.neighbour_heads,
            f"it must be between 0 and num_heads ({self.num_heads})",
        )
        _require(
            self.neighbour_heads == 0 or self.blocks == "modern",
            "neighbour_heads",
            self.neighbour_heads,
            "it needs rotary positions; set it to 0 with classic blocks",
        )
        for name in ("hidden_dropout", "attention_dropout"):
            _require(0.0 <= getattr(self, name) < 1.0, name, getattr(self, name), "it must be in [0, 1)")
        for name in ("layer_norm_epsilon", "initializer_range", "global_rope_theta", "local_rope_theta"):
            _require(getattr(self, name) > 0.0, name, getattr(self, name), "it must be above 0")

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """The generator as a fraction of the discriminator (the paper's multiplier for hidden size, FFN size and heads)."""

    width: float = 0.25
    """Hidden size, feed-forward size and number of heads, each times this and rounded."""
    depth: float = 1.0
    """Number of layers, times this and rounded."""
    hidden_size: int | None = None
    """This and the next three: a size of its own instead of the fraction, as a pair that was trained elsewhere may have."""
    num_layers: int | None = None
    num_heads: int | None = None
    intermediate_size: int | None = None
    embedding_size: int | None = None
    """Only with tying `none`: where embeddings are shared, they are as wide as the discriminator's."""

    def __post_init__(self) -> None:
        for name in ("width", "depth"):
            _require(getattr(self, name) > 0.0, f"generator.{name}", getattr(self, name), "it must be above 0")
        for name in ("hidden_size", "num_layers", "num_heads", "intermediate_size", "embedding_size"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"generator.{name}", value, "it must be at least 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The pair of networks."""

    discriminator: EncoderConfig = EncoderConfig()
    generator: GeneratorConfig = GeneratorConfig()
    tying: Literal["none", "embeddings", "all"] = "embeddings"
    """What the two share: nothing, the embeddings (token, position and type), or every encoder weight (equal sizes only)."""
    unigram_bias: bool = False
    """Start the generator's output bias at the log frequency of each token in the store rather than at 0."""
    embedding_start: Literal["random", "cooccurrence"] = "random"
    """Start the token embeddings at random, or from which tokens occur together in the store (counted in seconds)."""

    def __post_init__(self) -> None:
        encoder = self.generator_encoder()
        if self.tying == "all":
            _require(
                encoder == self.discriminator,
                "model.tying",
                self.tying,
                "sharing every weight needs networks of equal size; set generator.width and generator.depth to 1",
            )
        _require(
            self.tying == "none" or encoder.embedding_size == self.discriminator.embedding_size,
            "generator.embedding_size",
            self.generator.embedding_size,
            "shared embeddings are as wide as the discriminator's; leave it out, or set model.tying to none",
        )

    def generator_encoder(self) -> EncoderConfig:
        """The generator's own encoder shape, worked out from the fractions."""
        main, fraction = self.discriminator, self.generator
        heads = fraction.num_heads or max(1, round(main.num_heads * fraction.width))
        hidden = fraction.hidden_size or max(1, round(main.hidden_size * fraction.width))
        _require(
            hidden % heads == 0,
            "generator.width",
            fraction.width,
            f"it gives {hidden} units in {heads} heads, which do not divide; choose another width",
        )
        return dataclasses.replace(
            main,
            hidden_size=hidden,
            num_heads=heads,
            intermediate_size=fraction.intermediate_size or max(1, round(main.intermediate_size * fraction.width)),
            num_layers=fraction.num_layers or max(1, round(main.num_layers * fraction.depth)),
            embedding_size=fraction.embedding_size or main.embedding_size,
            neighbour_heads=min(main.neighbour_heads, heads),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is masked, what is put in its place, and how the losses are weighed."""

    name: str = "electra"
    mask_fraction: float = 0.15
    """Share of each row's real tokens that is chosen, rounded to the nearest whole number (at least one)."""
    mask_share: float = 0.85
    """Of the chosen tokens, the share that the generator sees as [MASK] (released ELECTRA 0.85, BERT 0.8) ..."""
    random_share: float = 0.0
    """... as a random word piece (ELECTRA 0, BERT 0.1); the rest it sees unchanged."""
    generator_weight: float = 1.0
    discriminator_weight: float = 50.0
    """Lambda in the paper."""
    generator: Literal["network", "uniform", "unigram"] = "network"
    """Where replacements come from: a network, any word piece alike, or word pieces as often as the store has them."""
    temperature: float = 1.0
    """Softmax temperature when replacements are sampled."""
    disallow_correct: bool = False
    """Never sample the original token: every masked position is a replaced one."""
    discriminator_start: float = 0.0
    """Share of the budget in which the generator trains alone, at a part of the cost; 0 is joint from the start (paper)."""
    two_stage_switch: float = 0.5
    """two-stage: share of the budget after which the main network starts from the generator's weights ..."""
    two_stage_freeze: bool = True
    """... and the generator's stay as they are (paper); if not, both train on together."""

    def __post_init__(self) -> None:
        _require(
            0.0 < self.mask_fraction < 1.0, "objective.mask_fraction", self.mask_fraction, "it must be between 0 and 1"
        )
        for name in ("mask_share", "random_share"):
            _require(
                0.0 <= getattr(self, name) <= 1.0, f"objective.{name}", getattr(self, name), "it must be in [0, 1]"
            )
        _require(
            self.mask_share + self.random_share <= 1.0 + 1e-9,
            "objective.random_share",
            self.random_share,
            f"with mask_share {self.mask_share} it is more than all; lower one of them",
        )
        for name in ("generator_weight", "discriminator_weight"):
            _require(getattr(self, name) >= 0.0, f"objective.{name}", getattr(self, name), "it must not be negative")
        _require(
            0.0 <= self.discriminator_start < 1.0,
            "objective.discriminator_start",
            self.discriminator_start,
            "it must be in [0, 1)",
        )
        _require(self.temperature > 0.0, "objective.temperature", self.temperature, "it must be above 0")
        fix = "it must be above 0 and below 1, inside the run"
        _require(0.0 < self.two_stage_switch < 1.0, "objective.two_stage_switch", self.two_stage_switch, fix)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW as in the paper, or Muon for the matrices inside the blocks and AdamW for the rest."""

    name: Literal["adamw", "muon"] = "adamw"
    peak_learning_rate: float = 5e-4
    embedding_learning_rate: float | None = None
    """Peak rate of the embedding tables; empty means `peak_learning_rate`."""
    muon_learning_rate: float = 0.02
    """Peak rate of the matrices that Muon updates (muon only)."""
    muon_momentum: float = 0.95
    muon_weight_decay: float = 0.5
    """Decoupled decay of those matrices. It bounds their singular values at about 1 over this: without it they grow with every
    step, and what the blocks add to the residual stream drowns what the embeddings put there."""
    warmup_steps: int = 10_000
    warmup_fraction: float | None = None
    """Warm-up as a share of the budget, instead of `warmup_steps`; the one to use with a budget in minutes."""
    decay_fraction: float = 1.0
    """The rate starts to fall when this share of the budget is left (1: from the start, as in the paper)."""
    final_learning_rate_fraction: float = 0.0
    """The rate falls linearly from its peak to this share of it."""
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    """Decoupled; never on biases and norms."""
    bias_correction: bool = False
    """Adam's correction of its first steps. The reference code has none; PyTorch's AdamW has it."""
    clip_norm: float = 1.0
    """Largest norm of the whole gradient; 0 switches clipping off."""

    def __post_init__(self) -> None:
        for name in ("peak_learning_rate", "muon_learning_rate", "epsilon"):
            _require(getattr(self, name) > 0.0, f"optimizer.{name}", getattr(self, name), "it must be above 0")
        for name in ("beta1", "beta2", "muon_momentum"):
            _require(0.0 <= getattr(self, name) < 1.0, f"optimizer.{name}", getattr(self, name), "it must be in [0, 1)")
        for name in ("warmup_steps", "weight_decay", "muon_weight_decay", "clip_norm"):
            _require(getattr(self, name) >= 0, f"optimizer.{name}", getattr(self, name), "it must not be negative")
        _require(
            self.embedding_learning_rate is None or self.embedding_learning_rate > 0.0,
            "optimizer.embedding_learning_rate",
            self.embedding_learning_rate,
            "it must be above 0",
        )
        _require(
            self.warmup_fraction is None or 0.0 <= self.warmup_fraction < 1.0,
            "optimizer.warmup_fraction",
            self.warmup_fraction,
            "it must be in [0, 1)",
        )
        _require(
            0.0 < self.decay_fraction <= 1.0, "optimizer.decay_fraction", self.decay_fraction, "it must be in (0, 1]"
        )
        _require(
            0.0 <= self.final_learning_rate_fraction <= 1.0,
            "optimizer.final_learning_rate_fraction",
            self.final_learning_rate_fraction,
            "it must be in [0, 1]",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the text is and how it is cut into rows."""

    store: Path | None = None
    """A token store made by `electra prepare`."""
    heldout: Path | None = None
    """A second store, of the same tokenizer, for the held-out loss at intervals."""
    length: int = 128
    """Tokens in a row, [CLS] and [SEP] included."""
    layout: Literal["dense", "two-segment"] = "dense"
    """`dense`: one segment, no padding, documents end with [SEP]. `two-segment`: the reference's examples from lines."""

    def __post_init__(self) -> None:
        _require(self.length >= 8, "data.length", self.length, "a row needs at least 8 tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Budget, batch, precision, and what is written when."""

    num_steps: int | None = None
    """Budget in optimizer steps ..."""
    num_tokens: float | None = None
    """... in input tokens ..."""
    num_flops: float | None = None
    """... in floating-point operations of both networks ..."""
    num_minutes: float | None = None
    """... in minutes of training by the clock. Any of the four; the first to be used up ends the run."""
    batch_size: int = 128
    """Rows in a step, over all ranks and micro-batches."""
    micro_batch_size: int | None = None
    """Rows that go through the networks at once; empty means what suits the device. Does not change the gradient."""
    seed: int = 42
    save_every: int = 1_000
    """Steps between checkpoints; 0 means only at the end."""
    save_minutes: float = 10.0
    """Also save when this many minutes have passed since the last checkpoint; 0 means never by the clock."""
    keep_checkpoints: int = 2
    log_every: int = 50
    eval_every: int = 0
    """Steps between held-out evaluations; 0 means only at the end."""
    eval_batches: int = 50
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto`: bfloat16 autocast where the hardware has units for it, else float32."""
    device: str = "auto"
    compile: bool = False
    """On an accelerator, compile the blocks with torch.compile: minutes at the start for faster steps."""
    num_threads: int = 0
    """CPU threads of this process; 0 means all cores."""
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("num_steps", "num_tokens", "num_flops", "num_minutes"):
            value = getattr(self, name)
            _require(value is None or value > 0, f"train.{name}", value, "a budget must be above 0")
        for name in ("batch_size", "keep_checkpoints", "log_every", "eval_batches"):
            _require(getattr(self, name) >= 1, f"train.{name}", getattr(self, name), "it must be at least 1")
        for name in ("save_every", "save_minutes", "eval_every", "num_threads", "seed"):
            _require(getattr(self, name) >= 0, f"train.{name}", getattr(self, name), "it must not be negative")
        _require(
            self.micro_batch_size is None or self.micro_batch_size >= 1,
            "train.micro_batch_size",
            self.micro_batch_size,
            "it must be at least 1",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """A whole pre-training run. `<run>/config.yaml` holds it resolved; starting from that file repeats the run."""

    run_dir: Path = Path("runs/electra")
    init_from: str | None = None
    """Go on from this trained model: a run, an export, or a Hugging Face ELECTRA or ModernBERT directory or hub name. The
    networks' shapes are then its own, whatever `model` says."""
    init_generator_from: str | None = None
    """Its generator, where that lies in another directory; left out where there is none, the generator starts anew."""
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    train: TrainConfig = TrainConfig()

    def __post_init__(self) -> None:
        _require(
            self.init_generator_from is None or self.init_from is not None,
            "init_generator_from",
            self.init_generator_from,
            "it goes with a discriminator; name that with init_from",
        )
        encoder = self.model.discriminator
        if encoder.blocks == "classic":
            _require(
                self.data.length <= encoder.max_length,
                "data.length",
                self.data.length,
                f"the position table ends at {encoder.max_length}; shorten the rows or raise model.discriminator.max_length",
            )
