"""Settings: what is wrong is said in one sentence."""

from __future__ import annotations

import pytest

from tsnn.config import LATER, PRESETS, Config
from tsnn.errors import ConfigError

REFUSED = {
    "train.foo": (1, "there is no setting train.foo; "),
    "train.visibility": ("later", "'later' is none of strict, arrival, batch:N; for example batch:200.$"),
    "train.engine": ("cuda", "configuration train: engine = cuda needs device = cuda.$"),
    "model.stalk_dim": (0, "configuration model.stalk_dim: .* greater than 0.$"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_setting_gets_one_sentence(name):
    value, sentence = REFUSED[name]
    with pytest.raises(ConfigError, match=sentence) as refused:
        Config.build(overrides={name: value})
    assert "Value error" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_is_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match="is a folder; name a TOML file"):
        Config.build(tmp_path)


PAPER = {  # setting: its value in the text, or the switch that takes away what the text does not have
    "model.scalars": "raw",  # eq:score_features
    "model.gaps": "raw",
    "model.stalks": "zero",  # app:inductive
    "model.role": False,  # eq:message
    "model.frame_length": "free",  # eq:frame_update
    "model.frame_drift": 1.0,
    "model.gate": 0.0,  # eq:edgebank_mixture
    "model.kappa": 1.0,  # eq:sgeo
    "model.kappa_scale": "softplus",
    "model.partners": False,
    "model.quiet_geometry": False,
    "model.standardize_msg": False,
    "model.diffusion_steps": 1,
    "model.attention": False,
    "features.never": False,
    "features.pairs": False,
    "features.common_neighbors": True,  # app:optional_score_features
    "features.two_hop": True,
    "features.successor": False,
    "features.edgebank_recency": True,  # alg:train
    "features.activity": False,
    "features.strength": False,
    "features.walks": False,
    "features.encoded_gaps": False,
    "features.transported_difference": False,
    "train.visibility": "arrival",  # alg:train
    "train.warmup": 0,
    "train.negatives": 1,  # app:neg_sampling
    "train.sampler": "random",
    "train.collisions": True,
    "train.loss.ce": 1.0,
    "train.loss.binary": 0.0,
    "train.loss.geo_products": "raw",  # eq:loss_geo
    "train.loss.geo_temperature": 1.0,
}
SIZES = ("stalk_dim", "num_reflectors", "diffusion_steps", "num_neighbors")
TRACK_A = {  # d, k, K, K_nbr; K_neg; common neighbors
    "paper-wiki": ((256, 4, 3, 60), 200, True),
    "paper-review": ((256, 4, 2, 30), 500, False),
    "paper-software": ((256, 4, 2, 30), 400, True),
}


def settings_of(config: Config) -> dict[str, object]:
    """Every setting by its dotted name."""
    tree = config.model_dump()
    loss = tree["train"].pop("loss")
    sections = {**tree, "train.loss": loss}
    return {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}


def test_the_preset_paper_has_the_forms_of_the_text():
    settings = settings_of(Config.build(preset="paper"))
    assert {name: settings[name] for name in PAPER} == PAPER
    changed = {name for name, value in settings_of(Config()).items() if settings[name] != value}
    assert changed - set(PAPER) == {"train.lr", "train.epochs"}, "the text leaves these open"


def test_no_switch_that_came_later_is_left_out_of_the_preset():
    # Of the question, and beside the model: no score is another.
    others = {"train.candidates", "train.history", "train.intensity"}
    assert set(LATER) - set(PAPER) == others


def test_other_presets_say_what_differs():
    assert set(PRESETS) == {"paper", "paper-inductive", *TRACK_A}
    paper = settings_of(Config.build(preset="paper"))
    assert settings_of(Config.build(preset="paper-inductive")) == paper | {"train.negatives": 3}
    for name, (sizes, negatives, common) in TRACK_A.items():
        changes = {f"model.{part}": size for part, size in zip(SIZES, sizes, strict=True)}
        changes |= {"train.sampler": "mixed", "train.negatives": negatives}
        changes |= dict.fromkeys(("features.common_neighbors", "features.two_hop"), common)
        assert settings_of(Config.build(preset=name)) == paper | changes, name


def test_a_preset_is_meant_by_its_name_in_a_file_and_among_settings(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('preset = "paper-inductive"\n[train]\nlr = 0.5\n')
    changed = Config.build(overrides={"train.lr": 0.5}, preset="paper-inductive")
    assert Config.of("paper-inductive") == Config.build(preset="paper-inductive")
    assert Config.of({"preset": "paper-inductive", "train": {"lr": 0.5}}) == Config.of(file) == changed
    assert Config.build(file, {"train.epochs": 2}, "paper").train.epochs == 2
    with pytest.raises(ConfigError, match="there is no preset 'papr'; did you mean 'paper'"):
        Config.of({"preset": "papr"})
