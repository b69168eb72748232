"""Well-formed nonsense: plain data of the right shape with a few things changed, and texts from a grammar."""

import copy
import math
from typing import Any

import numpy as np

TEXTS = (
    "", " ", "age", "sex", "Age", "agé", "place", "0", "-1", "1e999", "nan", "NaN", "=1+1", "@x", "-", "..", "0..17",
    "18..64", "identity", "prefix", "matrix", "tree", "total", "categorical", "numeric", "hierarchy", "continuous",
    "linear", "laplace", "discrete-gaussian", "exact", "add-remove", "replace-one", "drop", "clip", "Female", "Male",
    "Unknown", "true", "null", "a\x00b", "a\nb", "\x1b[31m", "\u202e", "\ud83d\ude00" * 3, "𝒳" * 90, "é" * 300,
    "'; DROP TABLE x", "../../x", "x" * 5000,
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 255, 256, 65536, 2**31, 2**53, 2**63 - 1, -(2**63), 10**12, 0.0, -0.0, 0.5, 1e-300, 1e300,
    -1e300, math.inf, -math.inf, math.nan, 5e-324,
)  # fmt: skip


class Nonsense:
    """A seeded source of small changes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one_of(self, things: Any) -> Any:
        return things[int(self.rng.integers(len(things)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def value(self) -> Any:
        kind = int(self.rng.integers(7))
        if kind <= 1:
            return self.one_of(TEXTS)
        if kind <= 3:
            return self.one_of(NUMBERS)
        if kind == 4:
            return self.chance(0.5)
        if kind == 5:
            return [self.one_of((*TEXTS, *NUMBERS)) for _ in range(int(self.rng.integers(4)))]
        return {self.one_of(TEXTS): self.one_of((*TEXTS, *NUMBERS)) for _ in range(int(self.rng.integers(3)))}

    def changed(self, tree: Any, *, most: int = 3) -> Any:
        """The tree with one to `most` changes somewhere in it; now and then none."""
        tree = copy.deepcopy(tree)
        for _ in range(int(self.rng.integers(most + 1))):
            tree = self._change(tree, top=True)
        return tree

    def _change(self, tree: Any, *, top: bool = False) -> Any:
        descend = isinstance(tree, dict | list) and len(tree) and (self.chance(0.9) or (top and self.chance(0.95)))
        if not descend:
            return self._other(tree)
        if isinstance(tree, dict):
            key = self.one_of(list(tree))
            action = self.rng.random()
            if action < 0.1:
                del tree[key]
            elif action < 0.2:
                tree[self.one_of(TEXTS)] = tree.pop(key)
            elif action < 0.3:
                tree[self.one_of(TEXTS)] = self.value()
            else:
                tree[key] = self._change(tree[key])
            return tree
        place = int(self.rng.integers(len(tree)))
        action = self.rng.random()
        if action < 0.1:
            del tree[place]
        elif action < 0.2:
            tree.insert(place, copy.deepcopy(tree[place]))
        elif action < 0.25:
            tree.extend(copy.deepcopy(tree) * int(self.rng.integers(1, 30)))
        elif action < 0.35:
            self.rng.shuffle(tree)
        else:
            tree[place] = self._change(tree[place])
        return tree

    def _other(self, leaf: Any) -> Any:
        """Another value, most often of the same kind."""
        if self.chance(0.3):
            return self.value()
        if isinstance(leaf, bool):
            return not leaf
        if isinstance(leaf, int | float):
            return self.one_of((leaf + 1, leaf - 1, -leaf, leaf * 2, leaf / 3, self.one_of(NUMBERS)))
        if isinstance(leaf, str):
            return self.one_of((leaf.upper(), leaf + " ", leaf[:-1], leaf + leaf, self.one_of(TEXTS)))
        return self.value()

    def damaged(self, content: bytes) -> bytes:
        """The bytes with a few of them changed, cut or repeated."""
        data = bytearray(content)
        for _ in range(int(self.rng.integers(1, 6))):
            if not data:
                break
            place = int(self.rng.integers(len(data)))
            action = self.rng.random()
            if action < 0.5:
                data[place] = int(self.rng.integers(256))
            elif action < 0.7:
                data[place:place] = self.one_of((b'"', b'""', b"\r\n", b"\n", b",", b";", b"\x00", b"\xff\xfe", b" "))
            elif action < 0.85:
                del data[place : place + int(self.rng.integers(1, 40))]
            else:
                data[place:place] = data[place : place + int(self.rng.integers(1, 200))] * int(self.rng.integers(1, 20))
        return bytes(data)

    def question(self, names: tuple[str, ...], values: tuple[str, ...]) -> str:
        """A text from the grammar of queries, with a token changed now and then."""
        left = list(self.rng.permutation(names))
        tokens: list[str] = []
        if self.chance(0.4):
            tokens += self._terms(left)
        if left and self.chance(0.6):
            tokens += [self.one_of(("where", "where", ""))] * bool(tokens)
            for place in range(int(self.rng.integers(1, len(left) + 1))):
                tokens += [self.one_of(("and", ",", "AND"))] * (place > 0) + self._condition(left.pop(), values)
        if left and (not tokens or self.chance(0.6)):
            tokens += ["by", *self._terms(left)]
        while tokens and self.chance(0.2):
            place = int(self.rng.integers(len(tokens)))
            tokens[place] = str(self.one_of((*TEXTS, "(", ")", "|", "=", "by", '"', "level", "((" * 200, "9" * 400)))
        return ("" if self.chance(0.05) else " ").join(tokens)

    def _terms(self, left: list[str]) -> list[str]:
        found = []
        for place in range(int(self.rng.integers(1, len(left) + 1))):
            name = left.pop()
            function = self.one_of(("prefix", "ranges", "haar", "tree", "mean", "moments", "total", "sum"))
            call = [
                function,
                "(",
                name,
                *self.one_of(([], [], [",", "2"], [",", "level", "1"], [",", "10000000"])),
                ")",
            ]
            found += [self.one_of((",", "and"))] * (place > 0) + (call if self.chance(0.3) else [name])
        return found

    def _condition(self, name: str, values: tuple[str, ...]) -> list[str]:
        known = {"sex": ("Female", "Male"), "age": ("18", "64"), "district": ("North", "South")}.get(name)
        one, two = known if known and self.chance(0.7) else (self.one_of(values), self.one_of(values))
        return self.one_of(
            (
                [name, "=", one],
                [name, "=", one, "|", two],
                [name, "in", "(", one, ",", two, ")"],
                [name, "=", one, "..", two],
                [name, "=", "..", two],
                [name, ">=", one],
                [name, "<=", two],
            )
        )
