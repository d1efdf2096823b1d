"""The worker's requests to the coordinators: claims and outcomes, in batches, repeated until somebody answers."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from ...store.errors import error_of, info_of
from ...topics import codec
from ...topics.bus import Bus
from ...topics.errors import CallboardError, PayloadTooLarge, StorageFull
from ...topics.messages import (
    Claim,
    ClaimReply,
    ClaimRequest,
    Command,
    Grant,
    Outcome,
    OutcomeReply,
    OutcomeRequest,
    OutcomeVerdict,
    encode,
)
from ...topics.rpc import ask
from .batch import Batcher

log = logging.getLogger(__name__)

_ANSWER_S = 5.0
_PAUSE_S = 0.05
_PAUSE_MAX_S = 1.0
_PATIENCE_S = 3.0
"""An outcome that no coordinator takes for this long is handed over as a durable command."""
_MANY = 64
_CLAIM_BYTES = 120

_decode_grants = msgspec.json.Decoder(ClaimReply).decode
_decode_verdicts = msgspec.json.Decoder(OutcomeReply).decode


class Desk:
    """Where a worker claims its runs and hands their outcomes in."""

    def __init__(self, bus: Bus, worker: str) -> None:
        self._bus, self._worker = bus, worker
        self._claims: Batcher[Claim, Grant] = Batcher(
            self._send_claims, limit=_MANY, limit_bytes=bus.max_payload // 2, size=lambda _: _CLAIM_BYTES
        )
        self._outcomes: Batcher[Outcome, OutcomeVerdict] = Batcher(
            self._send_outcomes,
            limit=_MANY,
            limit_bytes=bus.max_payload // 2,
            size=lambda outcome: len(encode(outcome)),
        )

    async def claim(self, claim: Claim) -> Grant:
        """Claims a run; `later` when no coordinator answers now."""
        try:
            return await self._claims.ask(claim)
        except CallboardError as error:
            log.debug("claim of %s: %s", claim.run, error)
            return Grant(run=claim.run, verdict="later")

    async def hand_in(self, outcome: Outcome) -> OutcomeVerdict:
        """Hands an outcome in; returns once it is durable or known to be stale.

        Without a coordinator it goes to the INBOX as a command, where one will find it; while there is no room for
        that either, it is offered again and again. One that cannot be told, whatever keeps it from that, is a failure:
        no attempt could ever hand it in."""
        outcome = self._tellable(outcome)
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + _PATIENCE_S, _PAUSE_S
        while True:
            try:
                if loop.time() >= deadline:
                    return await self._leave(outcome)
                verdict = await self._outcomes.ask(outcome)
                if verdict.verdict != "retry":
                    return verdict
            except StorageFull as error:
                log.warning("outcome of %s waits for room: %s", outcome.run, error)
                deadline = loop.time() + _PATIENCE_S
            except CallboardError as error:
                log.debug("outcome of %s: %s", outcome.run, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)

    def _tellable(self, outcome: Outcome) -> Outcome:
        try:
            size, limit = len(encode(outcome)), self._bus.max_payload // 2
            if size <= limit:
                return outcome
            why = f"how the attempt has ended takes {size} bytes to tell, at most {limit} are possible"
            error: Exception = PayloadTooLarge(why)
        except Exception as cannot:  # noqa: BLE001  # it has values of the author's in it
            error = codec.EncodeError(
                f"how the attempt has ended cannot be told: {info_of(cannot).message}", path="$", type_name="Outcome"
            )
        log.error("outcome %s of run %s: %s", outcome.kind, outcome.run, error)
        return Outcome(
            run=outcome.run, attempt=outcome.attempt, epoch=outcome.epoch, worker=outcome.worker, kind="failed",
            error=info_of(error),
        )  # fmt: skip

    async def _leave(self, outcome: Outcome) -> OutcomeVerdict:
        command = Command(run=outcome.run, verb="outcome", outcome=outcome)
        subject = self._bus.subjects.command(outcome.run, "outcome")
        await self._bus.store(subject, encode(command), patience_s=float("inf"))
        log.info("outcome of %s is left for a coordinator to find", outcome.run)
        return OutcomeVerdict(run=outcome.run, verdict="accepted")

    async def _send_claims(self, claims: list[Claim]) -> list[Grant]:
        body = encode(ClaimRequest(worker=self._worker, claims=claims))
        message = await ask(self._bus, "claim", body, _ANSWER_S)
        reply = _decode_grants(message.data)
        if reply.error is not None:
            raise error_of(reply.error)
        return reply.grants

    async def _send_outcomes(self, outcomes: list[Outcome]) -> list[OutcomeVerdict]:
        body = encode(OutcomeRequest(outcomes=outcomes))
        message = await ask(self._bus, "outcome", body, _ANSWER_S)
        reply = _decode_verdicts(message.data)
        if reply.error is not None:
            raise error_of(reply.error)
        return reply.verdicts

    async def close(self) -> None:
        """Ends what is under way."""
        await self._claims.close()
        await self._outcomes.close()
