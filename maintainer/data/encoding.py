"""How our Parquet files are encoded (spec 02 §3.5; decision 12).

zstd level 1 unless the table says otherwise, format 2.6 with V1 data pages, page index, page checksums, decimals as integers where they fit,
no Arrow schema, and only PLAIN, dictionary and RLE encodings: Java 2.0 miscounts when it skips in DELTA encoded pages.

A page has about 1 MiB, less where there are many columns: who reads a file row by row holds a page of every column. Arrow looks at the size
of a page after so many rows only, which must be few when rows are large.

A dictionary pays where values repeat within a row group and costs time where they do not, so a column gets one if few of its first values are
distinct.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data import int96
from maintainer.format import data_formats

_PAGE = 1 << 20
_SMALLEST_PAGE = 32 << 10
_ALL_PAGES = 16 << 20
_PAGE_CHECK = 1024
_SAMPLE = 8192
_SAMPLE_BYTES = 8 << 20
_REPEATS = 8
"""How often, on average, the first values of a column must repeat for a dictionary."""


def writer_options(sample: pa.Table, compression: str, zstd_level: int) -> Mapping[str, Any]:
    """Settings of `pyarrow.parquet.ParquetWriter` for a file that begins with these rows."""
    codec = data_formats.CODECS["parquet"][compression]
    row_bytes = max(1, sample.nbytes // sample.num_rows)
    few = sample.slice(0, max(1, min(_SAMPLE, _SAMPLE_BYTES // row_bytes)))
    scalars = [leaf for name, column in zip(few.column_names, few.columns, strict=True) for leaf in leaves(column, name)]
    return {
        "compression": codec,
        "compression_level": zstd_level if codec == "ZSTD" else None,
        "use_dictionary": [path for path, values in scalars if _repeats(values)],
        "write_statistics": [path for path, values in scalars if values.type != int96.RAW],
        "version": "2.6",
        "data_page_version": "1.0",
        "use_compliant_nested_type": True,
        "store_decimal_as_integer": True,
        "store_schema": False,
        "data_page_size": max(_SMALLEST_PAGE, min(_PAGE, _ALL_PAGES // len(scalars))),
        "write_batch_size": max(1, min(_PAGE_CHECK, _PAGE // row_bytes)),
        "write_page_index": True,
        "write_page_checksum": True,
    }


def _repeats(values: pa.Array) -> bool:
    if pa.types.is_boolean(values.type):  # Parquet has no dictionaries of booleans
        return False
    present = len(values) - values.null_count
    return bool(present) and pc.count_distinct(values, mode="only_valid").as_py() * _REPEATS <= present


def leaves(array: pa.Array | pa.ChunkedArray, path: str) -> Iterator[tuple[str, pa.Array]]:
    """The scalar columns inside of a column, by their paths in the file."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    found = array.type
    if pa.types.is_struct(found):
        for field, child in zip(found, array.flatten(), strict=True):
            yield from leaves(child, f"{path}.{field.name}")
    elif pa.types.is_map(found):
        start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
        yield from leaves(array.keys.slice(start, stop - start), f"{path}.key_value.key")
        yield from leaves(array.items.slice(start, stop - start), f"{path}.key_value.value")
    elif pa.types.is_list(found):
        yield from leaves(array.flatten(), f"{path}.list.element")
    else:
        yield path, array
