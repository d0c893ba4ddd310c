"""A store on a real HTTP endpoint that speaks S3, and stores of fsspec that nobody is trusted to share."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec.core
import pytest

from maintainer.errors import CorruptFile, CorruptTable, MissingFile, StorageError, Unsupported, UsageError
from maintainer.storage import remote
from maintainer.storage.remote import PART, RemoteStorage
from maintainer.storage.storage import OutcomeUnknown, Storage
from tests.support.s3 import Bucket, hooked


@pytest.fixture
def storage(s3_bucket: Bucket) -> RemoteStorage:
    return s3_bucket.storage()


@pytest.fixture
def memory() -> Storage:
    return Storage.open(f"memory://{uuid.uuid4()}/t")


class TestS3:
    def test_writes_make_files_and_reads_see_every_byte(self, storage: RemoteStorage) -> None:
        assert storage.remote
        storage.write("a/b/c", b"hello")
        assert storage.read("a/b/c") == b"hello"
        assert storage.read_range("a/b/c", 1, 3) == b"ell"
        assert storage.read_start("a/b/c", 2) == b"he" and storage.read_start("a/b/c", 99) == b"hello"
        assert storage.size("a/b/c") == 5
        assert storage.exists("a/b/c") and not storage.exists("a/b") and not storage.exists("a/b/d")

    def test_an_empty_file_is_a_file(self, storage: RemoteStorage) -> None:
        storage.write("f", b"")
        assert storage.read("f") == b"" and storage.read_start("f", 5) == b"" and storage.exists("f") and storage.size("f") == 0
        assert storage.read_range("f", 0, 0) == b""

    def test_a_file_is_never_replaced_by_create(self, storage: RemoteStorage) -> None:
        for first in (b"first", b"x" * (PART + 1)):
            storage.write(f"f{len(first)}", first)
            with pytest.raises(StorageError, match="never replaced"):
                storage.write(f"f{len(first)}", b"second!")
            assert storage.read(f"f{len(first)}") == first

    def test_leaving_by_an_exception_leaves_no_file_and_no_upload(self, s3_bucket: Bucket) -> None:
        filesystem = hooked(s3_bucket)
        storage = s3_bucket.storage("t", filesystem)
        for size in (10, 3 * PART):
            with pytest.raises(KeyError), storage.create("d/f") as output:
                for _ in range(0, size, PART):
                    output.write(b"x" * min(size, PART))
                raise KeyError
        assert storage.list("d") == []
        uploads = filesystem.call_s3("list_multipart_uploads", Bucket=s3_bucket.uri.split("/")[2])
        assert not uploads.get("Uploads")

    def test_a_close_that_fails_leaves_no_file_and_no_upload(self, s3_bucket: Bucket) -> None:
        filesystem = hooked(s3_bucket)
        storage = s3_bucket.storage("t", filesystem)

        def fail(method: str, parameters: dict[str, Any]) -> None:
            if method in ("put_object", "complete_multipart_upload"):
                raise RuntimeError("out of order")

        for hook in ("before", "after"):
            for size in (10, PART + 1):
                setattr(filesystem, hook, fail)
                with pytest.raises(StorageError, match=r"f: cannot write: .*out of order"):
                    storage.write("f", b"x" * size)
                setattr(filesystem, hook, lambda method, parameters: None)
                assert storage.list("") == []
        assert not filesystem.call_s3("list_multipart_uploads", Bucket=s3_bucket.uri.split("/")[2]).get("Uploads")

    def test_a_large_file_is_sent_in_parts(self, s3_bucket: Bucket) -> None:
        filesystem = hooked(s3_bucket)
        storage = s3_bucket.storage("t", filesystem)
        with storage.create("f") as output:
            for number in range(40):
                output.write(bytes([number]) * 1_000_000)
                assert len(output._output.buffer.getbuffer()) <= PART + 1_000_000  # type: ignore[attr-defined]
        assert [method for method, _ in filesystem.requests].count("upload_part") == 5
        assert storage.size("f") == 40_000_000
        assert storage.read_range("f", 17_999_999, 2) == bytes([17, 18])

    @pytest.mark.parametrize("size", [10, PART + 1])
    def test_an_answer_that_was_lost_is_not_somebody_elses_file(self, s3_bucket: Bucket, size: int) -> None:
        """s3fs repeats the request, and the store says that there is such a file."""
        filesystem = hooked(s3_bucket)
        storage = s3_bucket.storage("t", filesystem)
        lost: list[str] = []

        def lose(method: str, parameters: dict[str, Any]) -> None:
            if method in ("put_object", "complete_multipart_upload") and not lost:
                lost.append(method)
                raise TimeoutError

        filesystem.after = lose
        storage.write("f", b"y" * size)
        assert lost and storage.read("f") == b"y" * size

    def test_create_if_absent_happens_once(self, storage: RemoteStorage) -> None:
        assert storage.create_if_absent("s/snapshot-1", b"one")
        assert not storage.create_if_absent("s/snapshot-1", b"two")
        assert not storage.create_if_absent("s/snapshot-1", b"two", exclusive=False)
        assert storage.read("s/snapshot-1") == b"one"
        assert storage.create_if_absent("s/snapshot-2", b"two", exclusive=False)

    def test_of_many_threads_exactly_one_creates(self, s3_bucket: Bucket) -> None:
        for round_ in range(4):
            barrier = threading.Barrier(5)
            won: list[int] = []

            def race(number: int, path: str = f"snapshot-{round_}", barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
                storage = s3_bucket.storage()
                barrier.wait()
                if storage.create_if_absent(path, str(number).encode() * 1000):
                    won.append(number)

            threads = [threading.Thread(target=race, args=(number,)) for number in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(won) == 1
            assert s3_bucket.storage().read(f"snapshot-{round_}") == str(won[0]).encode() * 1000

    def test_listing_has_pages_and_nothing_is_remembered(self, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
        filesystem = hooked(s3_bucket)
        storage, other = s3_bucket.storage("t", filesystem), s3_bucket.storage()
        asked = filesystem._call_s3

        def in_small_pages(method: str, *more: Any, **parameters: Any) -> Any:
            return asked(method, *more, **parameters, **({"MaxKeys": 2} if method.startswith("list") else {}))

        monkeypatch.setattr(filesystem, "call_s3", lambda *a, **k: fsspec.asyn.sync(filesystem.loop, in_small_pages, *a, **k))
        assert storage.list("x") == [] and storage.list("") == []
        for name in ("b", "a", "c/d", "c/e", "f"):
            other.write(f"x/{name}", b"12")
        entries = storage.list("x")
        assert [(entry.name, entry.is_directory) for entry in entries] == [("a", False), ("b", False), ("c", True), ("f", False)]
        assert entries[0].size == 2 and entries[0].modified_ms > 1_500_000_000_000
        other.delete("x/a")
        assert not storage.exists("x/a") and [entry.name for entry in storage.list("x")] == ["b", "c", "f"]
        with pytest.raises(MissingFile):
            storage.size("x/a")
        assert [entry.name for entry in storage.list("")] == ["x"]

    def test_each_question_is_one_request(self, s3_bucket: Bucket) -> None:
        filesystem = hooked(s3_bucket)
        storage = s3_bucket.storage("t", filesystem)
        storage.write("d/f", b"data")
        questions: list[tuple[Callable[[], object], list[str]]] = [
            (lambda: storage.exists("d/f"), ["get_object"]),
            (lambda: storage.exists("d/g"), ["get_object"]),
            (lambda: storage.read("d/f"), ["get_object"]),
            (lambda: storage.read_start("d/f", 2), ["get_object"]),
            (lambda: storage.read_range("d/f", 2, 2), ["get_object"]),
            (lambda: storage.read_end("d/f", 2, 4), ["get_object"]),
            (lambda: storage.size("d/f"), ["head_object"]),
            (lambda: storage.list("d"), ["list_objects_v2"]),
            (lambda: storage.list("nothing"), ["list_objects_v2"]),
            (lambda: storage.write("d/h", b"x"), ["put_object"]),
            (lambda: storage.create_if_absent("d/i", b"x"), ["put_object"]),
            (lambda: storage.create_if_absent("d/i", b"x"), ["put_object"]),
            (lambda: storage.replace("d/i", b"x"), ["put_object"]),
            (lambda: storage.delete("d/i"), ["delete_object"]),
            (lambda: storage.delete("d/i"), ["delete_object"]),
            (lambda: storage.open_input("d/f", 4).read(), ["get_object"]),
        ]
        for ask, expected in questions:
            filesystem.requests.clear()
            ask()
            assert [method for method, _ in filesystem.requests] == expected

    def test_missing_files_are_an_error_of_their_own(self, storage: RemoteStorage) -> None:
        for ask in (storage.read, storage.size, storage.open_input, lambda path: storage.read_start(path, 1)):
            with pytest.raises(MissingFile, match="x/y: there is no such file"):
                ask("x/y")
        with pytest.raises(FileNotFoundError):
            storage.read_range("x", 0, 1)

    @pytest.mark.parametrize(("offset", "length"), [(0, 4), (3, 1), (4, 0), (-1, 2), (0, -1), (2**62, 2**62)])
    def test_a_range_that_is_not_in_the_file_is_corrupt(self, storage: RemoteStorage, offset: int, length: int) -> None:
        storage.write("f", b"abc")
        if (offset, length) != (4, 0):
            with pytest.raises(CorruptFile, match="f: corrupt"):
                storage.read_range("f", offset, length)

    @pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "", "a//b", "a/./b", "a\0b", ".."])
    def test_no_path_leads_out_of_the_root(self, storage: RemoteStorage, path: str) -> None:
        for do in (storage.read, storage.exists, storage.delete, storage.open_input, storage.create):
            with pytest.raises(CorruptTable, match="refusing"):
                do(path)

    @pytest.mark.parametrize("name", ["dt=2024-01-01", "a b", "ä%3Aö", "x+y", "h#1"])
    def test_names_with_strange_characters(self, storage: RemoteStorage, name: str) -> None:
        storage.write(f"d/{name}/f", b"data")
        assert storage.read(f"d/{name}/f") == b"data" and [entry.name for entry in storage.list("d")] == [name]
        assert storage.open_input(f"d/{name}/f", 4).read() == b"data"
        storage.delete(f"d/{name}/f")
        assert storage.list("d") == []

    def test_hadoops_names_of_the_scheme(self, s3_bucket: Bucket) -> None:
        s3_bucket.storage().write("f", b"data")
        for scheme in ("s3a", "s3n", "S3"):
            storage = Storage.open(f"{scheme}{s3_bucket.uri[2:]}/t", s3_bucket.storage_options)
            assert storage.read("f") == b"data" and storage.root.startswith(scheme)
            assert not storage.create_if_absent("f", b"other")


class TestFaults:
    """Every error of the store or its library is ours, and says what to do."""

    def cases(self, storage: Storage) -> list[tuple[str, Callable[[], object]]]:
        return [
            ("cannot list", lambda: storage.list("d")),
            ("cannot read", lambda: storage.read("f")),
            ("cannot read", lambda: storage.read_start("f", 5)),
            ("cannot read", lambda: storage.exists("f")),
            ("cannot read", lambda: storage.open_input("f", 3)),
            ("cannot write", lambda: storage.write("f", b"abc")),
            ("cannot write", lambda: storage.replace("f", b"abc")),
            ("cannot publish", lambda: storage.create_if_absent("f", b"abc")),
            ("cannot delete", lambda: storage.delete("f")),
        ]

    def check(self, storage: Storage, words: str, unknown: bool = False) -> None:
        for doing, ask in self.cases(storage):
            with pytest.raises(StorageError) as caught:
                ask()
            assert doing in str(caught.value) and words in str(caught.value) and caught.value.exit_code == 5
            assert isinstance(caught.value, OutcomeUnknown) is (unknown and doing == "cannot publish")

    def test_a_bucket_that_is_not_there_is_no_missing_file(self, s3_bucket: Bucket) -> None:
        self.check(Storage.open("s3://there-is-no-such-bucket/t", s3_bucket.storage_options), "there is no such bucket")

    def test_no_credentials(self, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        options = {"endpoint_url": s3_bucket.storage_options["endpoint_url"], "default_cache_type": "none"}
        self.check(Storage.open(s3_bucket.place("t"), options), "give them as storage options")

    @pytest.mark.parametrize(
        ("code", "status", "words", "unknown"),
        [
            ("AccessDenied", 403, "these credentials may not do this", False),
            ("InvalidAccessKeyId", 403, "check the credentials", False),
            ("SignatureDoesNotMatch", 403, "check the credentials", False),
            ("InternalError", 500, "InternalError", True),
            ("ServiceUnavailable", 503, "fewer requests", True),
            ("ConditionalRequestConflict", 409, "ConditionalRequestConflict", True),
            ("NotImplemented", 501, "check the URI and the storage options", False),
        ],
    )
    def test_what_the_store_answers(self, s3_bucket: Bucket, code: str, status: int, words: str, unknown: bool) -> None:
        from botocore.exceptions import ClientError

        filesystem = hooked(s3_bucket)

        def answer(method: str, parameters: dict[str, Any]) -> None:
            response = {"Error": {"Code": code, "Message": "No."}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(response, method)

        filesystem.before = answer
        self.check(s3_bucket.storage("t", filesystem), words, unknown)

    def test_a_store_that_is_not_there(self, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
        import s3fs

        monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
        quick = {"config_kwargs": {"retries": {"max_attempts": 0}}}
        storage = Storage.open("s3://bucket/t", {**s3_bucket.storage_options, **quick, "endpoint_url": "http://127.0.0.1:9"})
        self.check(storage, "check the endpoint", unknown=True)

    @pytest.mark.parametrize(
        ("uri", "options", "message"),
        [
            ("s3://b/t", {"acces_key": "x"}, "storage option 'acces_key' is not known"),
            ("s3://b/t", {"anon": "perhaps"}, "must be true or false"),
            ("s3://b/t", {"key": "a", "username": "b"}, "either key or username"),
            ("s3://", {}, "expected a URI like s3://bucket/path"),
            ("s3:/b/t", {}, "expected a URI like s3://bucket/path"),
            ("nothing-like-it://x", {}, "nothing-like-it"),
        ],
    )
    def test_a_call_that_cannot_work_is_a_usage_error(self, s3_bucket: Bucket, uri: str, options: dict[str, str], message: str) -> None:
        with pytest.raises(UsageError) as caught:
            Storage.open(uri, options)
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("scheme", "library", "install"),
        [
            ("s3", "s3fs", "pip install 'paimon-maintainer[s3]'"),
            ("gs", "gcsfs", "pip install 'paimon-maintainer[gcs]'"),
            ("abfs", "adlfs", "pip install 'paimon-maintainer[azure]'"),
            ("oss", "ossfs", "pip install ossfs"),
        ],
    )
    def test_a_library_that_is_missing_is_named(self, scheme: str, library: str, install: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(name: str) -> None:
            raise ImportError(f"No module named {library!r}")

        monkeypatch.setattr(fsspec, "get_filesystem_class", fail)
        with pytest.raises(UsageError) as caught:
            Storage.open(f"{scheme}://bucket/t")
        assert install in str(caught.value)

    def test_a_library_that_cannot_start_is_a_short_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError("Unable to load libjvm" + " here and there" * 1000)

        monkeypatch.setattr(fsspec.core, "url_to_fs", fail)
        with pytest.raises(StorageError, match=r"^hdfs://x/t: cannot open: Unable to load libjvm") as caught:
            Storage.open("hdfs://x/t")
        assert len(str(caught.value)) < 300


class TestProof:
    @pytest.fixture(autouse=True)
    def nothing_is_proved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remote, "_proved", set())

    def test_it_is_done_once_and_leaves_nothing(self, s3_bucket: Bucket) -> None:
        filesystem = hooked(s3_bucket)
        storage = s3_bucket.storage("t", filesystem)
        storage.prove_exclusive_create()
        assert [method for method, _ in filesystem.requests] == ["put_object", "put_object", "get_object", "delete_object"]
        assert storage.list("") == []
        storage.prove_exclusive_create()
        s3_bucket.storage("another-table", filesystem).prove_exclusive_create()
        assert len(filesystem.requests) == 5

    def test_a_store_that_ignores_the_condition_is_refused(self, s3_bucket: Bucket) -> None:
        filesystem = hooked(s3_bucket)
        filesystem.before = lambda method, parameters: parameters.pop("IfNoneMatch", None)
        storage = s3_bucket.storage("t", filesystem)
        for _ in range(2):
            with pytest.raises(Unsupported, match=r"ignores the condition .* publish\.single-writer = true"):
                storage.prove_exclusive_create()
        assert storage.list("") == []

    def test_lost_answers_prove_nothing_wrong(self, s3_bucket: Bucket) -> None:
        filesystem = hooked(s3_bucket)
        lost: list[str] = []

        def lose(method: str, parameters: dict[str, Any]) -> None:
            if method == "put_object" and not lost:
                lost.append(method)
                raise TimeoutError

        filesystem.after = lose
        s3_bucket.storage("t", filesystem).prove_exclusive_create()
        assert lost

    def test_a_store_that_is_down_is_a_storage_error_and_asked_again(self, s3_bucket: Bucket) -> None:
        filesystem = hooked(s3_bucket)
        storage = s3_bucket.storage("t", filesystem)

        def down(method: str, parameters: dict[str, Any]) -> None:
            raise RuntimeError("down")

        filesystem.before = down
        with pytest.raises(StorageError, match="down"):
            storage.prove_exclusive_create()
        filesystem.before = lambda method, parameters: None
        storage.prove_exclusive_create()

    def test_a_store_that_looks_and_then_writes_is_refused_by_name(self, memory: Storage) -> None:
        with pytest.raises(Unsupported, match="'memory'"):
            memory.prove_exclusive_create()

    def test_the_condition_of_oss_is_a_header(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """OSS answers 409 FileAlreadyExists, which its library makes an OSError."""

        class Answer(Exception):
            code, status, message = "FileAlreadyExists", 409, "The object you specified already exists."

        class Oss:
            """As much of ossfs as publication needs."""

            def __init__(self, heeds: bool) -> None:
                self.heeds, self.files = heeds, dict[str, bytes]()

            def _strip_protocol(self, uri: str) -> str:
                return uri.removeprefix("oss://")

            def pipe_file(self, path: str, data: bytes, headers: dict[str, str]) -> None:
                assert headers == {"x-oss-forbid-overwrite": "true"}
                if self.heeds and path in self.files:
                    raise OSError(5, "exists") from Answer()
                self.files[path] = data

            def cat_file(self, path: str) -> bytes:
                return self.files[path]

            def rm_file(self, path: str) -> None:
                del self.files[path]

        RemoteStorage("oss://bucket/t", filesystem=Oss(heeds=True)).prove_exclusive_create()
        with pytest.raises(Unsupported, match="ignores the condition"):
            RemoteStorage("oss://versioned/t", filesystem=Oss(heeds=False)).prove_exclusive_create()


class TestOtherStores:
    def test_files_can_be_read(self, memory: Storage) -> None:
        memory.write("a/f", b"abcdef")
        assert memory.read("a/f") == b"abcdef"
        assert memory.read_range("a/f", 2, 3) == b"cde"
        assert memory.read_start("a/f", 2) == b"ab"
        assert memory.read_end("a/f", 4, 6) == b"ef"
        assert memory.size("a/f") == 6
        assert memory.exists("a/f") and not memory.exists("a") and not memory.exists("b")
        assert [(e.name, e.is_directory) for e in memory.list("a")] == [("f", False)]
        assert memory.list("z") == []
        with memory.open_input("a/f") as source:
            assert source.read() == b"abcdef"
        with pytest.raises(MissingFile):
            memory.read("a/g")
        with pytest.raises(CorruptFile):
            memory.read_range("a/f", 4, 5)
        for size in (3, 5, 7):
            with pytest.raises(CorruptFile, match=f"its metadata says {size}"):
                memory.read_end("a/f", 2, size)

    def test_a_half_written_file_never_stays(self, memory: Storage) -> None:
        with pytest.raises(KeyError), memory.create("f") as output:
            output.write(b"half")
            raise KeyError
        assert not memory.exists("f")

    def test_a_file_is_never_replaced_by_create(self, memory: Storage) -> None:
        memory.write("f", b"first")
        with pytest.raises(StorageError, match="never replaced"):
            memory.write("f", b"second")
        assert memory.read("f") == b"first"

    def test_publishing_is_refused_unless_there_is_one_writer(self, memory: Storage) -> None:
        with pytest.raises(Unsupported, match="'memory'"):
            memory.create_if_absent("snapshot-1", b"")
        assert memory.create_if_absent("snapshot-1", b"one", exclusive=False)
        assert not memory.create_if_absent("snapshot-1", b"two", exclusive=False)
        assert memory.read("snapshot-1") == b"one"
