"""Scores for private selection: how much a candidate matters, with the sensitivity each score declares.

A score is computed exactly, in integers. What it compares the data with (an estimate) is public and is rounded to a
lattice 2^−b first, so that a score in lattice units is a sum of integers and its sensitivity is exact.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError

LATTICE_BITS = 10
Integers = NDArray[np.int64]
Candidate = TypeVar("Candidate", covariant=True)


class Score(Protocol[Candidate]):
    """What private selection needs to know of a score."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """What there is to choose from: marginals, queries, numbers."""
        ...

    @property
    def marginals(self) -> Sequence[tuple[str, ...]]:
        """The marginals whose exact counts the scores are computed from."""
        ...

    def sensitivity(self, neighbours: Neighbours) -> float:
        """The most that one record changes any score, in lattice units."""
        ...

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        """The score of each candidate, in lattice units, from the exact counts of `marginals`."""
        ...

    def check(self, domain: Domain) -> None:
        """Refuse candidates that do not fit the domain."""
        ...

    def fingerprint(self) -> Sequence[object]:
        """Plain data that identifies the score, for the ledger."""
        ...


@dataclass(frozen=True, eq=False)
class MarginalError:
    """w · ‖exact marginal − estimate‖₁, less a public penalty: which marginal does the estimate get most wrong?

    One record added or removed changes one cell by one, so the score by at most w; one record replaced, by 2w.
    """

    estimates: Mapping[tuple[str, ...], NDArray[np.float64]]
    weights: Mapping[tuple[str, ...], float] | None = None
    penalties: Mapping[tuple[str, ...], float] | None = None

    @property
    def candidates(self) -> tuple[tuple[str, ...], ...]:
        return tuple(self.estimates)

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        return self.candidates

    def _unit_weight(self, candidate: tuple[str, ...]) -> int:
        """The weight in lattice units, at least one."""
        weight = 1.0 if self.weights is None else self.weights[candidate]
        return max(1, round(weight * 2**LATTICE_BITS))

    def sensitivity(self, neighbours: Neighbours) -> float:
        largest = max(self._unit_weight(candidate) for candidate in self.candidates)
        return float(largest * 2**LATTICE_BITS * (1 if neighbours == "add-remove" else 2))

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        scores = []
        for candidate, exact in zip(self.candidates, exact_counts, strict=True):
            estimate = np.round(self.estimates[candidate] * 2**LATTICE_BITS).astype(np.int64)
            distance = np.abs(exact * 2**LATTICE_BITS - estimate.reshape(exact.shape)).sum()
            penalty = 0.0 if self.penalties is None else self.penalties[candidate]
            scores.append(self._unit_weight(candidate) * int(distance) - round(penalty * 4**LATTICE_BITS))
        return np.array(scores, dtype=np.int64)

    def check(self, domain: Domain) -> None:
        if not self.estimates:
            raise DeclarationError("there is no candidate to select from; name at least one marginal")
        for candidate, estimate in self.estimates.items():
            cells = int(np.prod(domain.sizes(candidate), dtype=np.int64))
            if estimate.size != cells or not np.isfinite(estimate).all():
                raise DeclarationError(
                    f"the estimate of {', '.join(candidate)} has {estimate.size} values for {cells} cells, "
                    "or one that is not finite; give one finite value for each"
                )

    def fingerprint(self) -> Sequence[object]:
        described: list[object] = ["marginal-error"]
        for candidate, estimate in self.estimates.items():
            rounded = np.round(estimate * 2**LATTICE_BITS).astype("<i8")
            digest = hashlib.sha256(rounded.tobytes()).hexdigest()
            penalty = 0.0 if self.penalties is None else self.penalties[candidate]
            described.append([list(candidate), self._unit_weight(candidate), penalty, digest])
        return described
