"""Scores of DualQuery: which single answers of a workload do the synthetic records get most wrong, and which way?

A candidate is a single answer q of the workload, a set of records, or its complement. After k synthetic records, h_q of
which are in q, and with n_q of the data's records in q and N the number of records (public, or noisy and released
before), the score of q is

    u_q = N·h_q − k·n_q,    and that of its complement is −u_q.

Divided by N it is Σ_τ (q(x^τ) − q(D)), the exponent of DualQuery's distribution over queries but for its learning rate
(Gaboardi et al. 2014): a selection with probability ∝ exp(η·u/N) is a draw from it. For the complement q̄ of
fractions q̄(D) = 1 − q(D), so that its sum is the negative; where N is noisy, −u_q is its score by definition.

Sensitivity. N, h and k are public. One record added or removed changes n_q by at most 1, and one record replaced takes
at most 1 from it or adds at most 1: under either relation no score moves by more than k. It is attained by every
candidate, because a row that is neither empty nor everything can gain a record. Scores do not move in the same
direction (q's and its complement's never do), so that the selection is not monotonic.

Everything is a whole number: rows are sets, and N is whole.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.domain.workloads import AnswerSets
from consilience.errors import DeclarationError
from consilience.privacy.pricing import LARGEST_RECORDS
from consilience.privacy.scores import Integers


@dataclass(frozen=True, eq=False)
class DualScore:
    """N·h − k·n for each single answer of a workload, and after them the negative of each for the complements."""

    sets: AnswerSets
    held: Integers
    """h: how many of the synthetic records are in each single answer."""
    found: int
    """k: how many synthetic records there are, at least one; before that all candidates are alike."""
    records: int
    """N: the number of records, public or noisy."""

    @property
    def candidates(self) -> range:
        """The places of the single answers, and after them those of their complements."""
        return range(2 * len(self.sets))

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        return self.sets.marginals

    def sensitivity(self, neighbours: Neighbours) -> float:
        return float(self.found)

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        exact = np.asarray(self.sets.answers(exact_counts), dtype=np.int64)
        scores = self.records * self.held - self.found * exact
        return np.concatenate([scores, -scores])

    def check(self, domain: Domain) -> None:
        if domain != self.sets.domain:
            raise DeclarationError(
                f"the candidates are over the domain {self.sets.domain.name!r}, the data over {domain.name!r}; "
                "bind the workload to the data's domain"
            )
        if self.held.shape != (len(self.sets),) or self.held.dtype != np.int64:
            raise DeclarationError(
                f"{len(self.sets)} single answers were given {self.held.shape} numbers of synthetic records of type "
                f"{self.held.dtype}; give one whole number for each"
            )
        least, most = self._ends
        if self.found < 1 or least < 0 or most > self.found:
            raise DeclarationError(
                f"{self.found} synthetic records are said to be between {least} and {most} times in an answer; there "
                "is at least one record, and each is in an answer once or not at all"
            )
        if not 1 <= self.records <= LARGEST_RECORDS or self.found * LARGEST_RECORDS >= 2**61:
            raise DeclarationError(
                f"{self.records} records and {self.found} synthetic ones are too many for exact scores, or none; give "
                f"between 1 and {LARGEST_RECORDS} records, and fewer rounds"
            )

    @cached_property
    def _ends(self) -> tuple[int, int]:
        return int(self.held.min()), int(self.held.max())

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256(json.dumps(self.sets.workload.to_json(), sort_keys=True).encode())
        digest.update(np.ascontiguousarray(self.held).tobytes())
        return digest.hexdigest()

    def fingerprint(self) -> Sequence[object]:
        return ["dual-query", self.records, self.found, self._digest]
