"""Start the cluster of compose.yaml as plain processes on loopback: `make up`, or `python compose/up.py --help`.

Exit codes: 0 all is up (also when it was before), 1 it could not be brought up and what this call started is stopped
again, 2 wrong arguments, 130 interrupted, and stopped again too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # run as a script, from any folder; last, because of the folder callboard/ there

from callboard.runtime.nats_port import is_free  # noqa: E402
from callboard.runtime.nats_server import require_binary  # noqa: E402
from callboard.topics.errors import CallboardError  # noqa: E402
from compose.ledger import ClusterError, Entry, Ledger  # noqa: E402
from compose.readiness import missing_listeners, servers_ready, unready  # noqa: E402
from compose.topology import TIERS, Ports, Process, Topology, plan  # noqa: E402

DEFAULT_STATE = ROOT / ".callboard" / "cluster"
POLL_SECONDS = 0.1
GRACE_SECONDS = 15.0
TAIL_LINES = 15


class Launch:
    """One call of `up`: starts what does not run, and knows what to stop again when something fails."""

    def __init__(self, topology: Topology, ledger: Ledger, within_seconds: float) -> None:
        self.topology = topology
        self.ledger = ledger
        self.within_seconds = within_seconds
        self.deadline = time.monotonic() + within_seconds
        self.namespace = os.environ.get("CALLBOARD_NAMESPACE", "cb")
        self.started: dict[str, Entry] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> None:
        """Start tier after tier, each when the one below is ready."""
        running = self.ledger.alive()
        missing = [process for process in self.topology.processes if process.name not in running]
        self._check_ports(missing)
        try:
            for kinds in TIERS:
                for process in (each for each in missing if each.kind in kinds):
                    self.started[process.name], self._children[process.name] = self.ledger.start(process)
                self._await(self.topology.tier(kinds))
        except BaseException:
            self.ledger.stop(list(self.started.values()), GRACE_SECONDS)
            raise

    def _check_ports(self, processes: list[Process]) -> None:
        taken = [f"{port} ({process.name})" for process in processes for port in process.ports if not is_free(port)]
        if taken:
            raise ClusterError(
                f"ports in use: {', '.join(taken)}. Stop what listens there, or choose a free block of thirteen ports"
                ' with --base-port (make up ARGS="--base-port 24000")'
            )

    def _await(self, processes: list[Process]) -> None:
        while lacking := self._lacking(processes):
            self._check_alive()
            if time.monotonic() > self.deadline:
                raise ClusterError(
                    f"not ready within {self.within_seconds:g} s: {', '.join(lacking)}; logs: {self.ledger.folder}/logs"
                )
            time.sleep(POLL_SECONDS)

    def _lacking(self, processes: list[Process]) -> list[str]:
        kinds = {process.kind for process in processes}
        if kinds == {"nats"}:
            return [] if servers_ready(self.topology) else ["the nats-servers"]
        lacking = [process.name for process in processes if unready(process)]
        if "worker" in kinds:
            missing = missing_listeners(self.topology, self.namespace)
            lacking += [f"{count} of the {kind}s" for kind, count in missing.items()]
        return lacking

    def _check_alive(self) -> None:
        for name, child in self._children.items():
            code = child.poll()
            if code is not None:
                log = Path(self.started[name].log)
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
                raise ClusterError(
                    f"{name} ended with exit code {code} while starting. Its last log lines ({log}):\n{tail}"
                )


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="compose/up.py", description="Start the cluster as plain processes on loopback."
    )
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE, help="folder of data, logs and pids (%(default)s)")
    parser.add_argument("--base-port", type=int, help="first of thirteen ports to use instead of the standard ones")
    parser.add_argument("--module", default="agents", help="what the workers serve (%(default)s: compose/agents.py)")
    parser.add_argument("--concurrency", type=int, default=4, help="runs at a time in each worker (%(default)s)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds until all must be ready (%(default)g)")
    parser.add_argument("--plan", action="store_true", help="print what would be started as JSON, and start nothing")
    options = parser.parse_args(words)
    if options.base_port is not None and not 1024 <= options.base_port <= 65535 - 12:
        parser.error("--base-port must be from 1024 to 65523")
    return options


def table(entries: Sequence[Entry]) -> str:
    """Return what runs, one line a process."""
    rows = [("process", "pid", "url"), *((entry.name, str(entry.mark.pid), entry.url or "-") for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def up(options: argparse.Namespace) -> None:
    """Bring the cluster up and print where it is.

    Raises:
        ClusterError, CallboardError: it could not; what this call started is stopped.
    """
    ports = Ports() if options.base_port is None else Ports.block(options.base_port)
    ledger = Ledger(options.state.absolute())
    binary, _ = require_binary()
    topology = plan(ledger.folder, ports, options.module, options.concurrency, str(binary))
    if options.plan:
        print(json.dumps([asdict(process) for process in topology.processes], indent=1))
        return
    with ledger.locked():
        if ledger.alive() and ledger.base_port != options.base_port:
            raise ClusterError(
                f"the cluster in {ledger.folder} runs on other ports: `make down` first, or leave out --base-port"
            )
        ledger.base_port = options.base_port
        launch = Launch(topology, ledger, options.timeout)
        launch.run()
        alive = ledger.alive()
    print(table([alive[process.name] for process in topology.processes if process.name in alive]))
    if not topology.tier(("otel-collector",)):
        print("\nno `otelcol` on PATH: no telemetry collector was started")
    print(f"\nexport NATS_URL={topology.nats_url}\nlogs: {ledger.folder}/logs; stop with: make down")


def main(words: Sequence[str]) -> int:
    """Run `up` and turn its outcome into an exit code."""
    options = arguments(words)
    try:
        up(options)
    except (ClusterError, CallboardError) as error:
        print(f"up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("up: interrupted; what was started is stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
