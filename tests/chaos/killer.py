"""A random killer: hurts nodes and server, by a seed, until the work is done. Owns what it does and how often; asserts only
that a node never ends by itself."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos import ledger
from tests.chaos.kit import Node, Site, hit, until

UNREACHABLE_EXIT = 5
LONGEST_PAUSE_S = 4.0
DRAINED = (0, 130, -signal.SIGTERM)
"""In order, at once by a second signal, or by one that came when all was over."""
SERVER_REST_S = 13.0
"""The keeper takes more than five deaths of its server in a minute for a crash loop."""


@dataclass
class Killer:
    """Acts on the nodes of one site. Whatever it stops or kills it lets go on or starts again a moment later."""

    site: Site
    lease_s: float
    seed: int
    server: bool = True
    did: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._nodes: list[Node] = []
        self._drained: list[Node] = []
        self._spared_until = 0.0

    def start(self, nodes: int) -> None:
        """Start the first nodes."""
        self._nodes = [self.site.start() for _ in range(nodes)]
        until(lambda: all(node.claims for node in self._nodes), "every node claims")

    def act(self) -> None:
        """Do one thing at random, and whatever is due from before."""
        self._do_what_is_due()
        self._replace_the_dead()
        chances: list[tuple[int, Callable[[], None]]] = [
            (6, self._kill_node),
            (4, self._freeze_node),
            (3, self._drain_node),
            (3, self._end_a_session),
            (2, self._end_the_listeners),
        ]
        if self.server and time.monotonic() > self._spared_until:
            chances += [(3, self._kill_server), (3, self._kill_backend), (2, self._kill_keeper)]
        weights = [weight for weight, _ in chances]
        self._chance.choices([act for _, act in chances], weights)[0]()

    def rest(self) -> None:
        """Hurt nothing more, and let everybody work."""
        for _, act in self._later:
            act()
        self._later.clear()
        for node in self._nodes:
            node.thaw()
        self._replace_the_dead()

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        due = [act for at, act in self._later if at <= now]
        self._later = [(at, act) for at, act in self._later if at > now]
        for act in due:
            act()

    def _replace_the_dead(self) -> None:
        """Start a node for each that is dead. One that ended by itself was either drained, or could not begin."""
        for number, node in enumerate(self._nodes):
            code = node.process.poll()
            if code is None:
                continue
            wanted = DRAINED if node in self._drained else (-signal.SIGKILL,)
            early = code == UNREACHABLE_EXIT and not node.claims
            assert early or code in (*wanted, -signal.SIGKILL), f"a node ended with {code}:\n{node.log}"
            self.did["not begun"] += early
            self._nodes[number] = self.site.start()

    def _victim(self) -> Node | None:
        """A node that claims: others are left to begin."""
        able = [node for node in self._nodes if node.alive and node.claims]
        return self._chance.choice(able) if able else None

    def _kill_node(self) -> None:
        if node := self._victim():
            self.did["node killed"] += 1
            node.end(signal.SIGKILL)

    def _freeze_node(self) -> None:
        if node := self._victim():
            self.did["node frozen"] += 1
            node.freeze()
            self._later.append((time.monotonic() + self.lease_s * self._chance.uniform(0.5, 2.5), node.thaw))

    def _drain_node(self) -> None:
        if node := self._victim():
            self.did["node drained"] += 1
            self._drained.append(node)
            node.send(signal.SIGTERM)

    def _end_a_session(self) -> None:
        self.did["session ended"] += bool(self._terminate("ORDER BY random() LIMIT 1"))

    def _end_the_listeners(self) -> None:
        self.did["listeners ended"] += bool(self._terminate("AND query LIKE 'LISTEN%%'"))

    def _terminate(self, which: str) -> int:
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND datname = current_database() "
        )
        return len(self.site.rows(query + which.replace("%%", "%")))

    def _kill_server(self) -> None:
        self._spare()
        self.did["server killed"] += hit(self.site.server_pid(), signal.SIGKILL)

    def _kill_backend(self) -> None:
        self._spare()
        pids = self.site.rows(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            " ORDER BY random() LIMIT 1"
        )
        self.did["backend killed"] += any(hit(pid, signal.SIGKILL) for (pid,) in pids)

    def _kill_keeper(self) -> None:
        self._spare()
        self.did["keeper killed"] += hit(self.site.keeper_pid(), signal.SIGKILL)

    def _spare(self) -> None:
        self._spared_until = time.monotonic() + SERVER_REST_S


def run_round(site: Site, *, tasks: int, nodes: int, lease_s: float, seed: int, server: bool = True) -> str:
    """Have `tasks` done by `nodes` under a killer; check the account and return what happened in a line."""
    killer = Killer(site, lease_s, seed, server)
    ids = ledger.give(site, tasks)
    started = time.monotonic()
    killer.start(nodes)
    pause = random.Random(seed)
    limit = time.monotonic() + 60 + tasks * lease_s
    while ledger.done(site, ids) < tasks:
        assert time.monotonic() < limit, f"the work is not done in time: {ledger.done(site, ids)} of {tasks} ({killer.did})"
        killer.act()
        time.sleep(pause.uniform(0.5, 1.2) * min(lease_s, LONGEST_PAUSE_S))
        ledger.retry_lost(site)
    took_s = time.monotonic() - started
    killer.rest()
    account = ledger.balance(site, ids)
    assert account.failed == 0, site.rows("SELECT id, error FROM runs WHERE status = 'failed'")
    return f"seed {seed}: {account} in {took_s:.1f} s; {', '.join(f'{what} {n}' for what, n in sorted(killer.did.items()) if n)}"
