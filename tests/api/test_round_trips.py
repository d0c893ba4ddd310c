"""How many times in a row a query waits for an object store that is far away."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.distant_endpoint import DistantEndpoint
from tests.support.s3 import Bucket, endpoint

LATENCY = 0.2


@pytest.fixture
def distant(s3_bucket: Bucket) -> Iterator[DistantEndpoint]:
    with DistantEndpoint(endpoint(), LATENCY) as distant:
        yield distant


def test_what_is_asked_at_the_same_time_is_one_round_trip(s3_bucket: Bucket, distant: DistantEndpoint) -> None:
    far = Bucket(s3_bucket.uri, {**s3_bucket.storage_options, "endpoint_url": distant.url}).storage()
    far.write("file", b"content")
    distant.clear()
    assert [far.read("file") for _ in range(3)] == [b"content"] * 3
    assert (distant.round_trips, len(distant.asked)) == (3, 3)
    distant.clear()
    several = 12  # more than the library's own limit
    with ThreadPoolExecutor(several) as threads:
        list(threads.map(far.read, ["file"] * several))
    assert (distant.round_trips, len(distant.asked)) == (1, several)
