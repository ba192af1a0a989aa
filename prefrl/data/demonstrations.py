"""Episodes that somebody else played, as rollouts: from NPZ, JSONL or a minari data set. Nothing is ever unpickled.

.npz    obs, acts, indices, and rews where known: all episodes end to end, with one observation more than actions in
        each; `indices` are the places among the actions where a new episode begins. `terminated` says of every
        episode whether it ended by itself. Files with `terminal` in its place are read too.
.jsonl  an episode a line: {"observations": [...], "actions": [...], "rewards": [...], "terminated": true}
minari:NAME  a data set of minari, where that is installed
"""

from __future__ import annotations

import importlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from prefrl.errors import DataError, did_you_mean
from prefrl.types import Prompt, Rollout, StopReason

if TYPE_CHECKING:
    import numpy as np

FORMATS = (".npz", ".jsonl", "minari:NAME")


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode in numbers: observations (n + 1, ...), actions (n,) or (n, k), rewards (n,) where known."""

    observations: Any
    actions: Any
    rewards: Any
    terminated: bool


def load_demonstrations(path: str | Path, *, limit: int = 0) -> list[Rollout]:
    """Demonstrations, in the order of the file.

    Whole numbers as actions are those of a discrete space, and become `completion_ids`; all others become `actions`
    (n, k), in the environment's units. Log-probs are 0: nobody knows them. Observations are flattened in the order in
    which their numbers lie. Rewards stand in `info`, as `rewards` and `return`.

    Args:
        path: a file, or minari:NAME.
        limit: of files that have only `terminal`, which is true at time limits too: steps after which an episode was
            cut off; 0 takes the longest length, if at least two episodes have it.

    Raises:
        DataError: there are none, or they cannot be read as episodes.
    """
    name = str(path)
    suffix = Path(name).suffix.lower()
    if name.startswith("minari:"):
        episodes = list(_from_minari(name.removeprefix("minari:")))
    elif suffix not in (".npz", ".jsonl"):
        raise DataError(f"{name} is no file of demonstrations; expected one of {', '.join(FORMATS)}.")
    elif not Path(name).is_file():
        near = [str(p) for p in Path(name).parent.glob(f"*{suffix}")] if Path(name).parent.is_dir() else []
        raise DataError(f"There is no file {name}.{did_you_mean(name, near)}")
    else:
        episodes = _from_npz(Path(name), limit) if suffix == ".npz" else list(_from_jsonl(Path(name)))
    if not episodes:
        raise DataError(f"{name} holds no episodes; expected at least one.")
    return [_rollout(episode, f"{Path(name).stem}#{i}", f"{name}, episode {i}") for i, episode in enumerate(episodes)]


def save_demonstrations(path: str | Path, rollouts: Sequence[Rollout]) -> Path:
    """Write episodes as .npz or .jsonl, so that `load_demonstrations` gives their numbers back.

    Raises:
        DataError: another format, or rollouts without the observation after the last action.
    """
    from prefrl.errors import RunError

    target = Path(path)
    if target.suffix.lower() not in (".npz", ".jsonl"):
        raise DataError(f"{target} is no file of demonstrations; expected a name that ends in .npz or .jsonl.")
    episodes = [_episode(rollout) for rollout in rollouts]
    if not episodes:
        raise DataError("There are no episodes to write; expected at least one.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _to_npz(target, episodes) if target.suffix.lower() == ".npz" else _to_jsonl(target, episodes)
    except OSError as error:
        raise RunError(f"Could not write {target}: {error}.") from error
    return target


def _from_npz(path: Path, limit: int) -> list[Episode]:
    import numpy as np

    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:  # numpy leaves damaged files open
            names = ("obs", "acts", "rews", "terminal", "terminated", "indices")
            found = {name: file[name] for name in names if name in file.files}
            missing = [name for name in ("obs", "acts", "indices") if name not in found]
            if missing:
                raise DataError(
                    f"{path} has no {', '.join(missing)}, but {', '.join(file.files) or 'nothing'}; expected obs, "
                    "acts, indices, and rews and terminated where known."
                )
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as NPZ without unpickling: {error}") from error
    if found["indices"].ndim != 1 or (len(found["indices"]) and found["indices"].dtype.kind not in "iu"):
        raise DataError(
            f"{path} has indices of {found['indices'].dtype} with {found['indices'].ndim} dimensions; expected a list "
            "of whole numbers, the places among the actions where a new episode begins."
        )
    starts = [0, *found["indices"].astype(np.int64).tolist(), len(found["acts"])]
    counts = np.diff(starts)
    if (counts < 1).any() or len(found["obs"]) != len(found["acts"]) + len(counts):
        raise DataError(
            f"{path} has {len(found['obs'])} observations and {len(found['acts'])} actions in {len(counts)} episodes; "
            "expected one observation more than actions in every episode, and at least one action."
        )
    ended = _ended(found, counts.tolist(), limit)
    if len(ended) != len(counts):
        raise DataError(f"{path} says of {len(ended)} episodes whether they ended, but has {len(counts)}.")
    return [
        Episode(
            found["obs"][start + i : end + i + 1],
            found["acts"][start:end],
            found["rews"][start:end] if "rews" in found else None,
            bool(ended[i]),
        )
        for i, (start, end) in enumerate(pairwise(starts))
    ]


def _ended(found: Mapping[str, np.ndarray], counts: list[int], limit: int) -> list[bool]:
    """Which episodes ended by themselves; where only `terminal` says so, those at the time limit did not."""
    if "terminated" in found:
        return [bool(x) for x in found["terminated"].reshape(-1)]
    ended = [bool(x) for x in found["terminal"].reshape(-1)] if "terminal" in found else [True] * len(counts)
    longest, times = max(Counter(counts).items())
    limit = limit or (longest if times > 1 else 0)
    return [end and not (limit and n >= limit) for end, n in zip(ended, counts, strict=False)]


def _from_jsonl(path: Path) -> Iterator[Episode]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            read = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number} is no JSON: {error}") from error
        if not isinstance(read, dict) or not {"observations", "actions", "terminated"} <= read.keys():
            got = ", ".join(read) if isinstance(read, dict) else type(read).__name__
            raise DataError(
                f"{path}, line {number} has {got or 'nothing'}; expected an object with observations, actions and "
                "terminated, and rewards where known."
            )
        yield Episode(read["observations"], read["actions"], read.get("rewards"), bool(read["terminated"]))


def _from_minari(name: str) -> Iterator[Episode]:
    try:
        minari: Any = importlib.import_module("minari")
        flatten: Any = importlib.import_module("gymnasium.spaces.utils").flatten
    except ImportError as error:
        raise DataError(f"minari:{name} needs a package that is missing ({error}). Type: pip install minari") from error
    import numpy as np

    try:
        data = minari.load_dataset(name)
    except Exception as error:  # a missing data set and a damaged one have exceptions of several libraries
        raise DataError(f"minari cannot load {name!r}: {error} Type: minari list local") from error
    space = data.observation_space
    for episode in data.iterate_episodes():
        n = len(episode.actions)
        seen = np.stack([flatten(space, _at(episode.observations, t)) for t in range(n + 1)])
        yield Episode(seen, episode.actions, episode.rewards, bool(episode.terminations[-1]))


def _at(observations: Any, t: int) -> Any:
    """The observation at a time, from arrays, or dicts or tuples of them."""
    if isinstance(observations, Mapping):
        return {key: _at(value, t) for key, value in observations.items()}
    return tuple(_at(value, t) for value in observations) if isinstance(observations, tuple) else observations[t]


def _rollout(episode: Episode, name: str, where: str) -> Rollout:
    import torch

    observed, acted, paid = _numbers(episode, where)
    n, discrete = len(acted), acted.dtype.kind in "iu"
    info: dict[str, Any] = {}
    if paid is not None:
        info = {"return": float(paid.sum()), "rewards": paid.tolist()}
    return Rollout(
        prompt=Prompt(id=name, text=""),
        completion_ids=tuple(acted.tolist()) if discrete else (0,) * n,
        mask=(True,) * n,
        logps=(0.0,) * n,
        text=f"{n} actions",
        stop=StopReason.ENVIRONMENT if episode.terminated else StopReason.LENGTH,
        group=name,
        observations=torch.from_numpy(observed),
        actions=None if discrete else torch.from_numpy(acted),
        info=info,
    )


def _numbers(episode: Episode, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Observations (n + 1, d), actions (n,) of whole numbers or (n, k), and rewards (n,), all finite."""
    import numpy as np

    try:
        observed = np.asarray(episode.observations)
        observed = observed.reshape(len(observed), -1).astype(np.float32)
        acted = np.asarray(episode.actions)
        paid = None if episode.rewards is None else np.asarray(episode.rewards, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: its numbers are no array: {error}") from error
    n = len(acted) if acted.ndim else 0
    if not n or len(observed) != n + 1 or (paid is not None and len(paid) != n):
        raise DataError(
            f"{where} has {len(observed)} observations, {n} actions and "
            f"{'no' if paid is None else len(paid)} rewards; expected n + 1, n and n, with n at least 1."
        )
    if acted.dtype.kind not in "iuf":
        raise DataError(f"{where}: actions are {acted.dtype}; expected whole numbers, or numbers of a Box.")
    acted = acted.reshape(n, -1)
    whole = acted.dtype.kind in "iu" and acted.shape[1] == 1
    acted = acted[:, 0].astype(np.int64) if whole else acted.astype(np.float32)
    for what, numbers in (("observations", observed), ("actions", acted), ("rewards", paid)):
        if numbers is not None and not np.isfinite(numbers).all():
            raise DataError(f"{where}: {int((~np.isfinite(numbers)).sum())} of its {what} are not finite.")
    return observed, acted, paid


def _episode(rollout: Rollout) -> Episode:
    n, seen = len(rollout.completion_ids), rollout.observations
    if seen is None or len(seen) != n + 1:
        got = 0 if seen is None else len(seen)
        raise DataError(
            f"The rollout of {rollout.prompt.id!r} has {got} observations for {n} actions; expected {n + 1}, the last "
            "one seen after the last action."
        )
    acted = rollout.completion_ids if rollout.actions is None else rollout.actions.tolist()
    return Episode(seen.tolist(), acted, rollout.info.get("rewards"), rollout.terminated)


def _to_npz(path: Path, episodes: Sequence[Episode]) -> None:
    import numpy as np

    lengths = np.cumsum([len(e.actions) for e in episodes])
    discrete = not isinstance(episodes[0].actions[0], list)
    arrays = {
        "obs": np.concatenate([np.asarray(e.observations, dtype=np.float32) for e in episodes]),
        "acts": np.concatenate([np.asarray(e.actions, dtype=np.int64 if discrete else np.float32) for e in episodes]),
        "indices": lengths[:-1],
        "terminated": np.array([e.terminated for e in episodes]),
        "terminal": np.ones(len(episodes), dtype=bool),
    }
    if all(e.rewards is not None for e in episodes):
        arrays["rews"] = np.concatenate([np.asarray(e.rewards, dtype=np.float64) for e in episodes])
    with open(path, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _to_jsonl(path: Path, episodes: Sequence[Episode]) -> None:
    lines = [
        json.dumps(
            {
                "observations": e.observations,
                "actions": list(e.actions),
                **({} if e.rewards is None else {"rewards": list(e.rewards)}),
                "terminated": e.terminated,
            }
        )
        for e in episodes
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
