"""What is kept of payloads stays within its limit, and what was used longest ago goes first."""

from __future__ import annotations

import random
import threading

from maintainer.format.kept import ENTRY, Cache


def test_what_is_kept_is_found() -> None:
    cache = Cache(10_000)
    one, other = cache.of("one"), cache.of("other")
    one.put("a", [1], 10)
    other.put("a", [2], 10)
    assert (one.get("a"), other.get("a"), one.get("b")) == ([1], [2], None)
    assert cache.of("one").made("b", lambda: ([3], 5)) == [3]
    assert one.made("b", lambda: ([4], 5)) == [3]
    assert cache.used == 25 + 3 * ENTRY
    cache.forget("one")
    cache.forget("nobody")
    assert (one.get("a"), other.get("a")) == (None, [2])
    assert cache.used == 10 + ENTRY


def test_what_was_used_longest_ago_makes_way() -> None:
    cache = Cache(3 * (100 + ENTRY))
    kept = cache.of("p")
    for number in range(3):
        kept.put(number, str(number), 100)
    assert kept.get(0) == "0"
    kept.put(3, "3", 100)
    assert [kept.get(number) for number in range(4)] == ["0", None, "2", "3"]
    kept.put(2, "two", 100 + 2 * (100 + ENTRY))
    assert [kept.get(number) for number in range(4)] == [None, None, "two", None]
    assert cache.used == cache.limit


def test_what_is_larger_than_the_limit_is_not_kept() -> None:
    cache = Cache(1000)
    cache.of("p").put(1, "one", 10)
    cache.of("p").put(2, "two", 1000)
    assert (cache.of("p").get(1), cache.of("p").get(2)) == ("one", None)
    assert Cache(0).of("p").made(1, lambda: ("made", 0)) == "made"


def test_a_payload_with_a_budget_of_its_own_makes_way_for_itself() -> None:
    cache = Cache(100_000)
    cache.of("other").put(1, "other", 100)
    limited = cache.of("p").limited(250)
    for number in range(3):
        limited.put(number, number + 1, 100)
    assert [limited.get(number) for number in range(3)] == [None, 2, 3]
    assert cache.of("other").get(1) == "other"
    limited.put(9, "large", 251)
    assert limited.get(9) is None
    limited.put(9, "just", 250)
    assert [limited.get(number) for number in (1, 2, 9)] == [None, None, "just"]


def test_many_threads_keep_the_books() -> None:
    cache = Cache(20 * (100 + ENTRY))

    def work(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(2000):
            kept = cache.of(source.randrange(3))
            number = source.randrange(20)
            if source.random() < 0.02:
                cache.forget(source.randrange(3))
            found = kept.get(number)
            assert found in (None, number + 1)
            kept.put(number, number + 1, source.randrange(200))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < cache.used <= cache.limit
    for payload in range(3):
        cache.forget(payload)
    assert cache.used == 0
