"""Compute in Python: a sieve, dictionaries, strings, objects, generators and exceptions.

The argument says how often.
"""
import sys


class Node:
    __slots__ = ("left", "right")

    def __init__(self, depth):
        self.left = Node(depth - 1) if depth else None
        self.right = Node(depth - 1) if depth else None

    def count(self):
        return 1 + sum(child.count() for child in (self.left, self.right) if child)


def sieve(limit):
    composite = bytearray(limit)
    primes = 0
    for i in range(2, limit):
        if not composite[i]:
            primes += 1
            for j in range(i * i, limit, i):
                composite[j] = 1
    return primes


def words(count):
    seen = {}
    for i in range(count):
        word = format(i * 2654435 % 4096, "x")
        seen[word] = seen.get(word, 0) + 1
    return sum(len(word) * times for word, times in sorted(seen.items()))


def failures(count):
    caught = 0
    for i in range(count):
        try:
            [1, 2, 3][i % 5]
        except IndexError:
            caught += 1
    return caught


rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
print(sum(sieve(20000) + words(5000) + failures(3000) + Node(9).count() for _ in range(rounds)))
