"""Settings of the collector in this process, as `gctrace apply --gc` writes them, at steps that the program marks."""

import gc
from typing import List, NamedTuple, Optional, Tuple

_SET_UP = 2
"""After this step freeze, disable and plans are applied: caches are filled by then."""


class _Change(NamedTuple):
    name: str
    values: Tuple[int, ...]
    step: int


def _parse(text: str) -> List[_Change]:
    changes: List[_Change] = []
    full: Optional[int] = None
    for piece in (part.strip() for part in text.split(",")):
        head, _, point = piece.partition("@")
        step = None
        if point == "start":
            step = 0
        elif point.startswith("step:") and point[5:].isdigit():
            step = int(point[5:])
        elif point:
            raise ValueError("{!r}: a setting is applied @start or @step:N".format(piece))
        name, _, value = head.replace(":", "=", 1).partition("=")
        if head.isdigit() and changes and changes[-1].name == "threshold" and len(changes[-1].values) < 3:
            last = changes.pop()
            changes.append(_Change(last.name, (*last.values, int(head)), last.step if step is None else step))
        elif name == "threshold" and value.isdigit():
            changes.append(_Change(name, (int(value),), step or 0))
        elif name == "freeze" and not value and step != 0:
            changes.append(_Change(name, (), _SET_UP if step is None else step))
        elif name == "disable" and not value:
            changes.append(_Change(name, (), _SET_UP if step is None else step))
        elif name == "plan" and value.isdigit() and int(value) > 0:
            changes.append(_Change(name, (int(value),), _SET_UP if step is None else step))
        elif name == "gen2" and value.isdigit() and not point:
            full = int(value)
        elif name == "loading" and value.isdigit() and int(value) > 0 and not point:
            changes.append(_Change(name, (int(value),), 0))
        elif piece != "none":
            raise ValueError(
                "{!r} is none of threshold=T0,T1,T2, loading=T0, freeze@step:N, disable, plan:N, gen2:M".format(piece)
            )
    if full is not None:
        if not any(change.name == "plan" for change in changes):
            raise ValueError("gen2 belongs to a plan: plan:100,gen2:1000")
        changes = [c._replace(values=(c.values[0], full)) if c.name == "plan" else c for c in changes]
    names = [change.name for change in changes]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError("{!r} is given twice".format(twice[0]))
    return changes


class Applied:
    """Settings that are in place until `undo()`, or the end of a `with` block."""

    def __init__(self, setting: str) -> None:
        self._due = _parse(setting)
        self._thresholds = gc.get_threshold()
        self._was_enabled = gc.isenabled()
        self._loading = False
        self._frozen = False
        self._plan: Optional[_Change] = None
        self._steps = 0
        self.setting = setting
        self._apply()

    def _apply(self) -> None:
        due = [change for change in self._due if change.step <= self._steps]
        self._due = [change for change in self._due if change.step > self._steps]
        loading = None
        for change in due:
            if change.name == "threshold":
                gc.set_threshold(*change.values)
            elif change.name == "loading":
                loading = change.values[0]
            elif change.name == "freeze":
                gc.collect()
                gc.freeze()
                self._frozen = True
            else:
                gc.disable()
                self._plan = change if change.name == "plan" else self._plan
        if loading is not None:
            self._after_loading = gc.get_threshold()
            gc.set_threshold(loading, *self._after_loading[1:])
            self._loading = True

    def _step(self) -> None:
        self._steps += 1
        if self._loading:
            self._loading = False
            gc.set_threshold(*self._after_loading)
        self._apply()
        if self._plan is not None and self._steps > self._plan.step:
            every, *rest = self._plan.values
            full = rest[0] if rest else 10 * every
            if full and self._steps % full == 0:
                gc.collect()
            elif self._steps % every == 0:
                gc.collect(1)

    def undo(self) -> None:
        """Gives the collector the thresholds that it had, and unfreezes."""
        if self in _APPLIED:
            _APPLIED.remove(self)
            if self._frozen:
                gc.unfreeze()
            gc.set_threshold(*self._thresholds)
            if self._was_enabled:
                gc.enable()

    def __enter__(self) -> "Applied":
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


_APPLIED: List[Applied] = []


def apply(setting: str) -> Applied:
    """Applies settings of the collector, which `gctrace apply --gc` explains: `threshold=7000,10,10`,
    `freeze@step:2`, `disable`, `plan:100,gen2:1000`, `loading=100000`.

    What begins after a step needs calls of `step()`. Unlike `gctrace apply`, it does not hold a setting against
    a program that changes it.

    >>> with gctrace.apply("threshold=50000,10,10,freeze"):
    ...     for batch in loader:
    ...         train(batch)
    ...         gctrace.step()
    """
    applied = Applied(setting)
    _APPLIED.append(applied)
    return applied


def step() -> None:
    """The end of a training step. `gctrace record --step-function gctrace/_settings.py:step` marks steps by it."""
    for applied in _APPLIED[:]:
        applied._step()
