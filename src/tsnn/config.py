"""The configuration: every switch of the model, its training and its evaluation, in one tree.

A run stores the resolved tree as `config.toml`. Unknown keys are errors.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tsnn.errors import ConfigError
from tsnn.types import Visibility
from tsnn.words import did_you_mean, kind_of, listed

Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]

CONFIGS = Path(__file__).with_name("configs")  # presets, and what `tsnn tune` chose for a data set
PRESETS = {name: CONFIGS / f"{name}.toml" for name in sorted(path.stem for path in CONFIGS.glob("paper*.toml"))}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """What differs from the default, which is what one wants to see."""
        usual = type(self)()
        return [(name, value) for name, value in super().__repr_args__() if value != getattr(usual, str(name))]

    __str__ = BaseModel.__repr__


class ModelConfig(_Section):
    """The recurrence and the score. The ablations of `tab:core-ablation` are the booleans here."""

    stalk_dim: Positive = 64  # d
    num_reflectors: Positive = 2  # k
    hidden_dim: Positive = 100  # width of MLP_frame and MLP_msg
    time_dim: Positive = 16  # d_t
    relation_dim: Positive = 8
    type_dim: Positive = 4
    num_neighbors: Positive = 10  # K_nbr
    diffusion_steps: Natural = 1  # K; 0 is the ablation without diffusion
    step_size: NonNegative = 0.01  # eta, capped by 1 / max(D_theta) (D-11)
    reflector_eps: NonNegative = 1e-6  # H_eps
    transport: bool = True  # False: Q = I everywhere
    frame_update: bool = True  # False: Delta F = 0
    carry_over: bool = True  # False: the stalk keeps its coordinates when the frame moves
    residual: bool = True  # False: s_res = 0
    edgebank: bool = True  # False: TSNN-core, the score without its memory prior
    edgebank_window: NonNegative = 0.0  # rho; the window is rho mean gaps, 0 is unlimited
    relation_bias: bool = True  # eq:rel_frame_bias, where the stream has relations
    stalks: Literal["zero", "keyed"] = "zero"  # of a node never seen: nothing, or a code of its own (D-22)
    role: bool = False  # an endpoint is told which end of the event it is, where events have a direction (D-23)
    frame_length: Literal["free", "kept"] = "free"  # kept: an update turns reflectors, none grows (D-24)
    partners: bool = True  # vectors learned of nodes, sources read through their partners', where they help (D-27)
    attention: bool = False  # alg:nbrattn
    attention_heads: Positive = 4
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    score_dim: Positive = 64  # width of MLP_score, two hidden layers
    kappa: Annotated[float, Field(gt=0, le=1e9)] = 50.0  # kappa_0, initial temperature of s_geo
    kappa_scale: Literal["softplus", "log"] = "softplus"  # a step of the optimizer moves kappa, or its log (D-25)
    frame_drift: NonNegative = 0.1  # first weights of MLP_frame's output, as a share of what is drawn (D-19)
    gate: float = 2.0  # alpha is its sigmoid at first: 0.88, the neural score leads (D-19)
    quiet_geometry: bool = True  # at first the score network gives the geometric scalars no weight (D-19)
    standardize_msg: bool = True  # D-17
    scalars: Literal["bounded", "raw"] = "bounded"  # geometric scalars before MLP_score
    gaps: Literal["log", "raw"] = "log"  # D-07

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelConfig:
        if self.attention and self.stalk_dim % self.attention_heads:
            raise ValueError(f"attention_heads={self.attention_heads} must divide stalk_dim={self.stalk_dim}")
        return self


class FeatureConfig(_Section):
    """Which data-only features the score reads (app:optional_score_features and DESIGN's floor)."""

    never: bool = True  # beside each gap, whether there was such an event at all (D-06)
    pairs: bool = True  # counts of the pair and of its reverse, recency of the pair
    common_neighbors: bool = True
    two_hop: bool = True  # the capped 2-hop expansion
    successor: bool = True
    edgebank_recency: bool = True
    activity: bool = True  # how often and how lately either side was seen, and in which role
    activity_decay: Annotated[float, Field(gt=0)] = 1e4  # in mean gaps
    strength: bool = True  # lengths of messages: of a weight, its size
    walks: bool = True  # decayed walks of up to two steps from both sides, where they meet
    walk_dim: Positive = 64
    walk_decay: Annotated[float, Field(gt=0)] = 1e5  # in mean gaps
    encoded_gaps: bool = False  # phi(gap) beside the gap
    transported_difference: bool = False  # h_u - Q_uv h_v, coordinate-aware
    cn_neighbors: Positive = 20
    cn_decay: Annotated[float, Field(gt=0)] = 1000.0  # tau_cn, in mean gaps


class LossConfig(_Section):
    """Weights of the losses (eq:loss_ce, eq:loss_geo, eq:loss_aux) and of a binary one beside them (D-16)."""

    ce: NonNegative = 1.0  # ranks the candidates of one query
    binary: NonNegative = 1.0  # makes scores of different queries comparable
    geo: NonNegative = 0.01
    geo_products: Literal["raw", "bounded"] = "raw"  # inner products as they are, or bounded (D-26)
    geo_temperature: Annotated[float, Field(gt=0)] = 1.0  # tau_geo
    bias: NonNegative = 1e-4
    smooth: NonNegative = 1e-3
    energy: NonNegative = 1e-3


class TrainConfig(_Section):
    """Truncated BPTT (alg:train)."""

    visibility: str = "strict"
    candidates: Literal["destinations", "all"] = "destinations"  # who may be the answer
    history: Literal["train", "full"] = "train"  # full: held-out nodes' rows do not train, but are seen when asked
    epochs: Natural = 10  # 0: the warm head alone, without states
    patience: Positive = 5
    # Epochs of the score head on data features alone, before states join in; "search": as long as validation rows
    # gain by it, on the columns that do best there.
    warmup: Natural | Literal["search"] = "search"
    chunk: Positive = 200  # L_c
    negatives: Positive = 1  # K_neg
    sampler: Literal["random", "mixed"] = "random"  # Track B | Track A
    collisions: bool = False  # True: a negative may be the positive itself (D-18)
    lr: Annotated[float, Field(gt=0)] = 3e-3
    geometry_lr: Annotated[float, Field(gt=0)] = 1.0  # mu_geo
    head_lr: Annotated[float, Field(gt=0)] = 0.3  # of the score head, once it is warm
    weight_decay: NonNegative = 1e-4
    clip: Annotated[float, Field(gt=0)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    dtype: Literal["float32", "float64"] = "float32"
    engine: Literal["auto", "reference", "fused", "cuda"] = "auto"
    device: Literal["cpu", "cuda"] = "cpu"
    intensity: bool = True  # who acts next: a rate of every source, for negatives of other sources and forecasts
    tensorboard: bool = False  # beside the journal
    loss: LossConfig = LossConfig()

    @field_validator("visibility")
    @classmethod
    def _known(cls, text: str) -> str:
        return str(Visibility.parse(text))

    @model_validator(mode="after")
    def _engine_has_its_device(self) -> TrainConfig:
        if self.engine == "cuda" and self.device != "cuda":
            raise ValueError("engine = cuda needs device = cuda")
        return self

    @model_validator(mode="after")
    def _trains_something(self) -> TrainConfig:
        if not self.epochs and not self.warmup:
            raise ValueError("epochs = 0 and warmup = 0 leave nothing to train")
        return self


# Settings that came after the first stored results, each with the value at which a run is what it was before.
LATER: dict[str, Any] = {
    "train.candidates": "destinations",
    "train.intensity": True,
    "train.collisions": False,
    "train.history": "train",
    "train.loss.geo_products": "raw",
    "model.stalks": "zero",
    "model.partners": False,
    "model.role": False,
    "model.frame_length": "free",
    "model.frame_drift": 0.1,
    "model.gate": 2.0,
    "model.quiet_geometry": True,
    "model.kappa_scale": "softplus",
    "model.standardize_msg": True,
    "features.never": True,
}


class Config(_Section):
    """The whole tree."""

    model: ModelConfig = ModelConfig()
    features: FeatureConfig = FeatureConfig()
    train: TrainConfig = TrainConfig()

    def __init__(self, **sections: Any) -> None:
        try:
            super().__init__(**sections)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                raise ConfigError(f"there is no setting {where}; {_meant(where)}") from None
            reason = first["msg"].removeprefix("Value error, ").rstrip(".")
            raise ConfigError(f"configuration {where}: {reason}.") from None

    @classmethod
    def build(
        cls, path: Path | None = None, overrides: dict[str, Any] | None = None, preset: str | None = None
    ) -> Config:
        """The defaults, changed by a preset, then by a TOML file, then by `section.key` overrides."""
        tree = {} if preset is None else _preset(preset)
        if path is not None:
            _merge(tree, _read_settings(path))
        for dotted, value in (overrides or {}).items():
            _set(tree, dotted, value)
        return cls(**tree)

    @classmethod
    def of(cls, given: Config | Mapping[str, Any] | str | Path | None) -> Config:
        """What somebody means: a configuration, settings like `{"train.lr": 0.002}`, a preset, a TOML file, or nothing.

        Settings may name the preset that they change: `{"preset": "paper", "train.lr": 0.002}`.
        """
        if isinstance(given, Config):
            return given
        if given is None or isinstance(given, Mapping):
            told = dict(given or {})
            return cls.build(preset=told.pop("preset", None), overrides=told)
        if isinstance(given, str) and given in PRESETS:
            return cls.build(preset=given)
        if isinstance(given, str | Path):
            return cls.build(Path(given))
        ways = 'a Config, settings like {"train.lr": 0.002}, a preset, or a file'
        raise ConfigError(f"config is {kind_of(given)}; give {ways}.")

    @classmethod
    def parse(cls, text: str) -> Config:
        """Read what `to_toml` wrote; what it does not name came later and had no part in that run."""
        tree = tomllib.loads(text)
        for dotted, before in LATER.items():
            *parents, leaf = dotted.split(".")
            reduce(lambda section, name: section.setdefault(name, {}), parents, tree).setdefault(leaf, before)
        return cls.model_validate(tree)

    def to_toml(self) -> str:
        """The resolved tree as TOML."""
        return tomli_w.dumps(self.model_dump())

    def identity(self) -> str:
        """What tells two configurations apart: the resolved tree without what was added to it and is not in use."""
        tree = self.model_dump()
        for dotted, before in LATER.items():
            *parents, leaf = dotted.split(".")
            section = reduce(getitem, parents, tree)
            if section[leaf] == before:
                del section[leaf]
        return tomli_w.dumps(tree)


def parse_override(text: str) -> tuple[str, Any]:
    """`section.key=value`, the value read as TOML where it is TOML and as a string otherwise."""
    dotted, equals, raw = text.partition("=")
    if not equals or "." not in dotted:
        example = (dotted and _close(dotted)) or "for example train.lr=0.001."
        raise ConfigError(f"--set {text!r} is not of the form section.key=value; {example}")
    try:
        return dotted, tomllib.loads(f"v = {raw}")["v"]
    except tomllib.TOMLDecodeError:
        return dotted, raw


def _preset(name: object) -> dict[str, Any]:
    """The settings of a preset, as a tree."""
    if str(name) not in PRESETS:
        meant = did_you_mean(name, PRESETS) or f"there are {listed(tuple(PRESETS))}."
        raise ConfigError(f"there is no preset {name!r}; {meant}")
    return _read_settings(PRESETS[str(name)])


def _read_settings(path: Path) -> dict[str, Any]:
    """The settings in a file, which may say `preset = "..."` and then only what differs from that."""
    told = _read_toml(path)
    tree = _preset(told.pop("preset")) if "preset" in told else {}
    _merge(tree, told)
    return tree


def _merge(tree: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        if isinstance(value, Mapping) and isinstance(tree.get(name), dict):
            _merge(tree[name], value)
        else:
            tree[name] = value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        meant = did_you_mean(path, PRESETS)
        raise ConfigError(f"there is no configuration file {path}{'; ' + meant if meant else '.'}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name a TOML file.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None


def _set(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, leaf = str(dotted).split(".")
    if not parents and not isinstance(value, Mapping):
        raise ConfigError(f"{dotted!r} is not of the form section.key; {_meant(dotted)}")
    for name in parents:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"there is no setting {dotted}; {_meant(dotted)}")
    _merge(tree, {leaf: value})


def _meant(setting: object) -> str:
    """The setting that is most like this one; else how to see all of them."""
    return _close(setting) or "print(tsnn.Config().to_toml()) in Python lists them all."


def _close(setting: object) -> str:
    """The setting that is most like this one, in whatever section; nothing if none is."""
    known = list(_settings(Config(), ""))
    same = [name for name in known if name.rpartition(".")[2] == str(setting).rpartition(".")[2]]
    return f"did you mean {same[0]!r}?" if same else did_you_mean(setting, known)


def _settings(section: BaseModel, prefix: str) -> Iterator[str]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
