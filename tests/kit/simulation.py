"""Run several writers and readers of one store in simulated time, the same way for each seed.

Actors are ordinary functions, each on a thread of its own, of which one runs at a time. Whenever
one makes a request or sleeps, the simulation decides by its seed how long that takes, and who goes
on: the one whose request is answered next. So a seed is a schedule, and replays it.

What may happen to a request is said by :class:`Faults`. A process that is killed makes no more
requests: each raises :class:`Killed`, which no code of a library catches.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Final

from tests.kit.replaced import replaced_clock, replaced_entropy
from tests.kit.simulated_bucket import Bucket

from glaive.dataclass import dataclass
from glaive.errors import StoreError
from glaive.process import Clock

__all__ = ["Actor", "Faults", "Killed", "Simulation"]

_START: Final = 1_700_000_000.0
"""Seconds since 1970 when simulated time begins."""
_MOST_STEPS: Final = 50_000
"""Requests after which actors are said to wait for each other for ever."""


class Killed(BaseException):  # not an error of the process: its end
    """The process of an actor was killed; nothing that it does has an effect any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How likely each request meets a fault, and how long requests take.

    Parameters
    ----------
    fail
        Probability that a request is refused: an error, and no effect.
    lose
        Probability that a request has its effect, but the answer is lost: an error.
    late
        Probability that a request ends in an error now, and has its effect some time later.
    repeat
        Probability that a request which changes the store is carried out twice, the second time
        perhaps later; the second outcome is answered if it was not later.
    kill
        Probability that the process is killed at a request, before or after its effect.
    stale
        Probability that a listing is that of a moment ago.
    stale_seconds
        How old a listing may be.
    wait
        Probability that a request takes any time at all, so that others may run meanwhile.
    seconds
        The longest time that an ordinary request takes; one in fifty takes a hundred times as long.
    skew
        Clocks of actors are wrong by up to so many seconds.
    """

    fail: float = 0.0
    lose: float = 0.0
    late: float = 0.0
    repeat: float = 0.0
    kill: float = 0.0
    stale: float = 0.0
    stale_seconds: float = 0.0
    wait: float = 1.0
    seconds: float = 0.1
    skew: float = 0.0


class Actor:
    """A process: what it does, its clock, and whether it lives."""

    def __init__(self, simulation: Simulation, name: str, run: Callable[[Actor], None]) -> None:
        self.simulation, self.name, self._run = simulation, name, run
        self.turn = Lock()
        self.turn.acquire()
        self.skew = 0.0
        self.killed = False
        self.doing: object = None
        """What its requests are for; the bucket keeps it with the objects they write."""
        self.failure: BaseException | None = None

    def restart(self) -> None:
        """Begin as a new process after :class:`Killed`."""
        self.killed = False

    def run(self) -> None:
        """Wait for the first turn, act, and hand over."""
        self.turn.acquire()
        try:
            self._run(self)
        except BaseException as error:  # raised by Simulation.run
            self.failure = error
        self.simulation.leave()


class Simulation(Clock):
    """A store, actors and their clocks under one seed.

    Parameters
    ----------
    seed
        Determines everything that happens.
    bucket
        What the store holds in the beginning.
    faults
        What may happen to requests.
    """

    def __init__(self, seed: int, bucket: Bucket, faults: Faults) -> None:
        self.random = random.Random(seed)  # must be repeatable
        self.bucket, self.faults = bucket, faults
        self.time = _START
        self.steps = 0
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        """Whose turn it is."""
        self._events: list[tuple[float, int, Actor | Callable[[], None]]] = []
        self._numbers = 0
        self._done = Lock()

    # ------------------------------------------------------------------ actors

    def add(self, name: str, run: Callable[[Actor], None]) -> Actor:
        """Add an actor, which begins at a random moment within the first seconds."""
        actor = Actor(self, name, run)
        actor.skew = self.random.uniform(-self.faults.skew, self.faults.skew)
        self.actors.append(actor)
        self._at(self.random.random() * 2 * self.faults.seconds, actor)
        return actor

    def run(self) -> None:
        """Run all actors to their end, and what is still under way in the store.

        Raises whatever an actor raised; the clock and random names are those of the simulation
        meanwhile.
        """
        threads = [Thread(target=actor.run, daemon=True) for actor in self.actors]
        with self.supplied():
            for thread in threads:
                thread.start()
            self._done.acquire()
            self._go_on(None)
            self._done.acquire()
            self._done.release()
            for thread in threads:
                thread.join()
            self.current = None
        for actor in self.actors:
            if actor.failure is not None:
                raise actor.failure

    def observer(self) -> Actor:
        """An actor outside of the schedule, for looking at the store before or after."""
        calm = Simulation(0, self.bucket, Faults(wait=0.0))
        return Actor(calm, "observer", lambda _: None)

    @contextmanager
    def supplied(self) -> Iterator[None]:
        """Supply the clock and the random bytes of this process."""
        with replaced_clock(self), replaced_entropy(self.random.randbytes):
            yield

    def leave(self) -> None:
        """The current actor has ended."""
        self._go_on(None)

    def _at(self, seconds: float, event: Actor | Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (self.time + seconds, self._numbers, event))

    def _go_on(self, current: Actor | None) -> None:
        """Let time pass until it is an actor's turn; ``current`` waits for its own."""
        while self._events:
            moment, _, event = heapq.heappop(self._events)
            self.time = max(self.time, moment)
            if not isinstance(event, Actor):
                event()
                continue
            self.current = event
            if event is not current:
                event.turn.release()
                if current is not None:
                    current.turn.acquire()
            return
        self._done.release()

    # ---------------------------------------------------------------- requests

    def request(self, actor: Actor, what: str, effect: Callable[[], None] | None) -> None:
        """One request: waits, meets faults, and has its effect.

        Parameters
        ----------
        actor
            Who makes it.
        what
            For messages.
        effect
            Changes the store; ``None`` for requests that only read, whose effect the caller has.

        Raises
        ------
        StoreError
            It was refused, or its answer was lost.
        Killed
            The process was killed, now or before.
        """
        if actor.killed:
            raise Killed(actor.name)
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise RuntimeError(f"no end after {_MOST_STEPS} requests; the last: {what}")
        faults, draw = self.faults, self.random.random
        if draw() < faults.wait:
            self._pass(actor, draw() * faults.seconds * (100 if draw() < 0.02 else 1))
        fate = draw()
        for name in ("fail", "lose", "late", "repeat", "kill"):
            fate -= getattr(faults, name)
            if fate < 0:
                return self._fault(actor, name, what, effect)
        return effect() if effect is not None else None

    def _fault(self, actor: Actor, kind: str, what: str, effect: Callable[[], None] | None) -> None:
        draw = self.random.random
        late = draw() * self.faults.seconds * (1000 if draw() < 0.3 else 1)
        lost = StoreError(f"cannot {what}: no answer ({kind}). Try again.")
        lost.is_unanswered = effect is not None and kind in ("lose", "late")
        if kind == "kill":
            if effect is not None and draw() < 0.5:
                self._quietly(effect)
            actor.killed = True
            raise Killed(actor.name)
        if effect is None:
            if kind == "repeat":
                return None
            raise lost
        if kind == "repeat":
            if draw() < 0.5:
                self._quietly(effect)
            else:
                self._at(late, lambda: self._quietly(effect))
            return effect()
        if kind == "lose":
            self._quietly(effect)
        elif kind == "late":
            self._at(late, lambda: self._quietly(effect))
        raise lost

    @staticmethod
    def _quietly(effect: Callable[[], None]) -> None:
        """An effect whose answer nobody gets."""
        try:
            effect()
        except StoreError:
            return

    def listed_at(self) -> float | None:
        """The moment of which the next listing is; ``None``: now."""
        if self.random.random() >= self.faults.stale:
            return None
        return self.time - self.random.random() * self.faults.stale_seconds

    # ------------------------------------------------------------------- clock

    def _pass(self, actor: Actor, seconds: float) -> None:
        self._at(seconds, actor)
        self._go_on(actor)

    def now_ns(self) -> int:
        """The time by the clock of the current actor."""
        skew = 0.0 if self.current is None else self.current.skew
        return int((self.time + skew) * 1e9)

    def monotonic(self) -> float:
        """Simulated seconds."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        if self.current is not None and not self.current.killed:
            self._pass(self.current, seconds)
