from __future__ import annotations

import random

import pytest

from maintainer.data import avro_file, avro_schema
from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import avro
from tests.support.campaign import share
from tests.support.java_cases import java_case

ROUNDS = share("mutated Avro records", short=300, long=20_000)


@pytest.mark.parametrize("name", ["types_avro", "nested_avro"])
def test_damaged_records_are_corrupt_or_other_values(name: str) -> None:
    case = java_case(name)
    entry = next(entry for entry in case.data_files.values() if entry.file.file_name.endswith(".avro"))
    container = avro.read_header(data := case.storage.read(case.path(entry)), "file")
    nodes = avro_schema.parse(container.schema)
    blocks = [(count, block) for _, count, block in avro._blocks(data, container, "file")]
    assert avro_file.decode(nodes, blocks, list(nodes)).num_rows == entry.file.row_count
    chance, refused = random.Random(7), 0
    for _ in range(ROUNDS):
        count, block = blocks[0]
        damaged = bytearray(block)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            assert avro_file.decode(nodes, [(count, bytes(damaged))], list(nodes)).num_rows == count
        except (CorruptFile, ValueError, OverflowError):  # the last two become CorruptFile where a file is read
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", CorruptFile),
        ('{"type":"record"}', CorruptFile),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}', Unsupported),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}', CorruptFile),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":["int","long"]}]}', Unsupported),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"enum","name":"e","symbols":["x"]}}]}', Unsupported),
    ],
)
def test_schemas_that_are_not_read(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        avro_schema.parse(text)
