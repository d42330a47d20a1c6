"""Runs a function again after a conflict."""

from __future__ import annotations

import functools
import random
import time
from typing import Any, Callable, Optional, TypeVar, Union, overload

from ._errors import Conflict, UndoConflict

_Function = TypeVar("_Function", bound=Callable[..., Any])

PAUSE_SECONDS_MIN = 0.001
PAUSE_SECONDS_MAX = 0.064


@overload
def retry(function: _Function) -> _Function: ...


@overload
def retry(*, tries: int = 100) -> Callable[[_Function], _Function]: ...


def retry(
    function: Optional[_Function] = None, *, tries: int = 100
) -> Union[_Function, Callable[[_Function], _Function]]:
    """Runs a function again when it raises `Conflict`, at most `tries` times, after random pauses
    that grow with each try.

        @atomdir.retry
        def count_visit() -> None:
            with atomdir.transaction("/srv/data") as tx:
                visits = tx / "visits"
                visits.write_text(str(int(visits.read_text()) + 1))

    An `UndoConflict` is raised at once, since it would come again.

    The function must begin its transaction itself. Its effects outside the transaction happen
    again with each try.
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            longest = 0.0
            for left in reversed(range(max(tries, 1))):
                try:
                    return function(*arguments, **named)
                except Conflict as conflict:
                    # An `UndoConflict` would come again.
                    if left == 0 or isinstance(conflict, UndoConflict):
                        raise
                # The first pause is 0, since the other transaction has usually committed by now.
                time.sleep(random.uniform(0, longest))
                longest = min(max(2 * longest, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
            raise AssertionError("unreachable")

        return run  # type: ignore[return-value]

    return decorate if function is None else decorate(function)
