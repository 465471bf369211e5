"""A run: the folder that training leaves and everything else starts from. No pickle anywhere.

config.toml          the resolved configuration
weights.safetensors  parameters; its metadata hold the shape of the stream
state.safetensors    stalks, frames and counters before the last timestamp of the stream, and the events of that one:
                     who asks at that very time must not see them (strict), who asks later replays them first
intensity.json       how active sources are as of what happened to them; not where `train.intensity` is off
joint.json           how scores and activity were put together, for each data, visibility and kind of negatives that
                     set the run's pairs against those of other sources
data.json            how the table was read: its columns by role, the names of relations, whether times are dates
ids.parquet          external node ids, in index order
metrics.json         every figure, each with its protocol card
manifest.json        a digest of each of these files
journal.jsonl        what happened, epoch by epoch
"""

from __future__ import annotations

import html
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tsnn.config import Config
from tsnn.data.description import Description
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.queries import Share
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.errors import InputError, RunError
from tsnn.evaluation.card import Card
from tsnn.evaluation.catalog import Data, default_split, load, suite_of
from tsnn.evaluation.model import ModelScorer, remark_of
from tsnn.evaluation.replay import Listener, Replayed, replay
from tsnn.files import write_text
from tsnn.intensity.intensity import Intensity
from tsnn.model.tsnn import TSNN, StreamShape
from tsnn.tabular import Brief, Columns, html_table
from tsnn.training.checkpoint import metadata_of, write_tensors
from tsnn.training.manifest import check_whole, file_digest, text_digest, write_manifest
from tsnn.words import Helpful, kind_of

CONFIG = "config.toml"
WEIGHTS = "weights.safetensors"
STATE = "state.safetensors"
INTENSITY = "intensity.json"
JOINT = "joint.json"
DATA = "data.json"
IDS = "ids.parquet"
METRICS = "metrics.json"
FORMAT = "1"
STATE_FILES = (CONFIG, WEIGHTS, STATE, IDS)  # the model and its state
SERVED = "online"  # the folder in which a service keeps what has happened since


_ASK = "ask a predictor: tsnn.Predictor.load(run) has score, score_pairs, recommend, explain, embed and observe."


@dataclass(frozen=True, repr=False)
class Run(Brief, Helpful):
    """A trained model with its ids and figures."""

    _instead: ClassVar = {
        "fit": "it is trained already; tsnn.train(data) makes a new one.",
        "evaluate": "call tsnn.evaluate(run, data).",
        "save": "it is saved already, in run.folder.",
        **dict.fromkeys(("predict", "score", "score_pairs", "recommend", "explain", "embed", "observe"), _ASK),
    }

    folder: Path
    model: TSNN
    ids: NodeIds
    metrics: dict[str, Any]
    description: Description
    intensity: Intensity | None = None

    @property
    def config(self) -> Config:
        """The resolved configuration it was trained with."""
        return self.model.config

    @property
    def question(self) -> Question:
        """What it was trained for and its figures answer, from the card."""
        return Question.from_card(self.metrics.get("card", {}))

    @property
    def remark(self) -> str:
        """What has to be known wherever a figure or an answer of this run is shown; mostly nothing."""
        return remark_of(self.model)

    def brief(self) -> dict[str, object]:
        """Where it is, of what, how good, and its settings as far as they are not the usual ones."""
        test = self.metrics.get("metrics", {}).get("test", {})
        figures = {f"test {name}": f"{test[name]:.4g}" for name in ("ap", "mrr") if name in test}
        about = {"folder": self.folder, "data": self.metrics.get("data", ""), "visibility": self.question.visibility}
        remark = {"remark": self.remark} if self.remark else {}
        return {**about, **figures, **remark, "config": self.config}

    def _repr_html_(self) -> str:
        return super()._repr_html_() + html_table(_figures(self.metrics)) + f"<p>{html.escape(self.remark)}</p>"

    @classmethod
    def of(cls, given: Run | str | Path) -> Run:
        """The run that somebody means: one, or the one in a folder."""
        return given if isinstance(given, Run) else cls.load(given)

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Read a run folder."""
        folder = folder_of(folder)
        check_finished(folder, METRICS)
        check_whole(folder, (CONFIG, WEIGHTS, IDS, INTENSITY, DATA, METRICS))
        model = _load_model(folder)
        try:
            metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{folder / METRICS} cannot be read ({error}); restore it from a copy.") from None
        ids = NodeIds.load(folder / IDS)
        return cls(folder, model.eval(), ids, metrics, read_description(folder), read_intensity(folder))


def _load_model(folder: Path) -> TSNN:
    """The model of a run; RunError where its weights are not those of its configuration, or no numbers."""
    try:
        config = Config.parse((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / CONFIG} cannot be read ({str(error).splitlines()[0]}); restore the run.") from None
    tensors, metadata = read_tensors(folder / WEIGHTS)
    try:
        model = TSNN(config, StreamShape(**json.loads(metadata["shape"]))).to(getattr(torch, config.train.dtype))
        model.load_state_dict(tensors)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0].rstrip(".:")
        raise RunError(f"{folder / WEIGHTS} does not fit its {CONFIG} ({reason}); restore the run.") from None
    bad = [name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.isnan().any()]
    bad += [name for name, _ in model.named_parameters() if not tensors[name].isfinite().all()]  # a scale may be inf
    if bad:
        raise RunError(f"{folder / WEIGHTS} is damaged: {bad[0]} holds what is no number; restore the run.")
    return model


def folder_of(run: Run | str | Path) -> Path:
    """The folder of a run, or that is named."""
    if isinstance(run, Run):
        return run.folder
    if not isinstance(run, str | Path):
        raise InputError(f"{kind_of(run)} is no run; give a run, or the folder that tsnn.train left.")
    return Path(run)


def _figures(metrics: dict[str, Any]) -> Columns:
    """The test figures of the run and of what it was compared with."""
    results = [metrics, *metrics.get("baselines", [])]
    tests = [result.get("metrics", {}).get("test", {}) for result in results]
    names = dict.fromkeys(name for test in tests for name in test)
    return {"test": [one.get("scorer") for one in results], **{n: [test.get(n) for test in tests] for n in names}}


def check_finished(folder: Path, *others: str) -> None:
    """Refuse a folder that lacks a file of the model and its state, or one of the others named."""
    for name in (*STATE_FILES, *others):
        if not (folder / name).is_file():
            what = f"{name} is missing" if folder.is_dir() else "there is no such folder"
            raise RunError(f"{folder} is not a finished run: {what}; train it with tsnn train.")


def read_intensity(folder: Path) -> Intensity | None:
    """How active sources are, if the run says so."""
    path = folder / INTENSITY
    if not path.is_file():
        return None
    try:
        return Intensity.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error!r}); train the run again.") from None


def keep_joint(folder: Path, card: Card) -> None:
    """Store with the run how it was made to compare pairs of different sources, where it was."""
    if "joint" not in card.negatives:
        return
    path = folder / JOINT
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:
        raise RunError(f"{path} is not JSON; remove it, evaluation writes it anew.") from None
    about = f"{card.data['name']} {card.data['fingerprint']}, {card.visibility}, {card.negatives['strategy']}"
    write_text(path, json.dumps({**known, about: card.negatives["joint"]}, indent=2) + "\n")


def read_description(folder: Path) -> Description:
    """How the data of a run were read; the usual way for a run from before it was written down."""
    path = folder / DATA
    if not path.is_file():
        return Description()
    try:
        return Description.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error!r}); train the run again.") from None


def run_split(run: Run, *data: str) -> Split:
    """The split the run was trained on, read again where it was read, or from whichever of these addresses has it."""
    addresses = data or (_address(run),)
    for address in addresses:
        split = default_split(load(address, run.description))  # a suite's split may leave rows of its stream out
        if split.stream.fingerprint() == run.metrics["card"]["data"]["fingerprint"]:
            return split
    raise InputError(f"{' or '.join(addresses)} is not the data {run.folder} was trained on; name that with --data.")


def split_like(data: Data | Split, run: Run | None, **columns: Any) -> Split:
    """The split of any data, read as the run's own were unless `columns` say otherwise."""
    if isinstance(data, Split):
        return default_split(data)
    about = None if run is None else run.description
    stream = load(data, about, **columns)
    told, meant = stream.description.relations, about.relations if about else ()
    if told and meant and told != meant:
        raise InputError("the stream numbers its relations otherwise than the run; read it with like=run.description.")
    return default_split(stream)


def _address(run: Run) -> str:
    name: str = run.metrics["card"]["data"]["name"]
    if suite_of(name).name:
        return name
    path = run.description.path
    if path is None:
        raise InputError(f"{run.folder} was trained on {name}, which has no address; name its file with --data.")
    if not Path(path).is_file():
        raise InputError(f"{run.folder} was trained on {path}, which is gone; name where it is now with --data.")
    return path


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file of this format."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = metadata_of(file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} cannot be read ({error}); train the run again.") from None
    found = metadata.get("format")
    if found != FORMAT:
        raise RunError(f"{path} is of format {found}, this version reads {FORMAT}; train the run again.")
    return tensors, metadata


def save_run(
    folder: Path,
    model: TSNN,
    stream: EventStream,
    metrics: dict[str, Any],
    state: dict[str, Tensor] | None = None,
    intensity: Intensity | None = None,
) -> Run:
    """Write a finished run; without a `state` of `FinalState` the stream is replayed for it."""
    write_text(folder / CONFIG, model.config.to_toml())
    shape = {"format": FORMAT, "shape": json.dumps(asdict(model.shape))}
    write_tensors(folder / WEIGHTS, dict(model.state_dict()), shape)
    write_tensors(folder / STATE, state or final_state(model, stream, intensity), {"format": FORMAT})
    stream.ids.save(folder / IDS)
    if intensity is not None:
        write_text(folder / INTENSITY, json.dumps(intensity.to_dict(), indent=2) + "\n")
    write_text(folder / DATA, stream.description.to_json())
    figures = json.dumps(metrics, indent=2) + "\n"
    kept = [name for name in (*STATE_FILES, INTENSITY, DATA) if (folder / name).is_file()]
    write_manifest(folder, {name: [file_digest(folder / name)] for name in kept} | {METRICS: [text_digest(figures)]})
    write_text(folder / METRICS, figures)  # last: it marks the run as finished
    return Run(folder, model, stream.ids, metrics, stream.description, intensity)


class FinalState(Listener):
    """What `state.safetensors` holds, once a replay has come to the last timestamp of the stream."""

    def __init__(self, scorer: ModelScorer, stream: EventStream) -> None:
        self._scorer = scorer
        self._stream = stream
        self._tie = int(np.searchsorted(stream.t, stream.t[-1]))  # the row where the last timestamp begins
        self.stops = (self._tie,)
        self.tensors: dict[str, Tensor] = {}

    def hear(self, seen: Replayed, own: Share) -> None:
        """Keep the state when it stands before the last timestamp."""
        if seen.block.update.stop == self._tie and not self.tensors:
            states = self._scorer.store.snapshot()
            tie = self._stream.take(slice(self._tie, None))
            self.tensors = state_tensors(states, seen.counters.snapshot(), self._stream.t[0], tie)


def final_state(model: TSNN, stream: EventStream, intensity: Intensity | None = None) -> dict[str, Tensor]:
    """What `FinalState` hears in a replay of its own."""
    scorer = ModelScorer(model, stream)
    scorer.paces = None if intensity is None else intensity.grid
    final = FinalState(scorer, stream)
    replay(scorer, stream, [final])
    return final.tensors


def state_tensors(
    states: dict[str, Tensor], counters: dict[str, NDArray[np.generic]], origin: Any, tie: EventStream
) -> dict[str, Tensor]:
    """What `state.safetensors` holds: stalks, frames and counters before `tie`, the events of the last timestamp."""
    tensors = {**states, "origin": torch.tensor(origin), "clock": torch.tensor(tie.t[-1])}
    tensors |= {f"counters/{name}": torch.from_numpy(column) for name, column in counters.items()}
    columns = {name: getattr(tie, name) for name in ("src", "dst", "t", "msg", "edge_type")}
    tensors |= {f"tie/{name}": torch.tensor(column) for name, column in columns.items() if column is not None}
    if tie.node_type is not None:
        tensors["node_type"] = torch.tensor(tie.node_type)
    return tensors
