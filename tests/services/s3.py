"""Nothing in, one S3 server on 127.0.0.1 out (moto, in memory, inside this process)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import boto3
import pytest
from moto.server import ThreadedMotoServer

ACCESS_KEY, SECRET_KEY, REGION = "testing", "testing-secret", "us-east-1"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A running S3 server.

    Attributes:
        endpoint: Its address.
    """

    endpoint: str

    def create_bucket(self, name: str) -> None:
        """Create an empty bucket."""
        self.client().create_bucket(Bucket=name)

    def keys(self, bucket: str) -> list[str]:
        """Names of at most 1000 objects of a bucket."""
        found = self.client().list_objects_v2(Bucket=bucket).get("Contents", [])
        return [item["Key"] for item in found]

    def client(self) -> boto3.client:
        """A client of it."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
        )

    @property
    def variables(self) -> dict[str, str]:
        """Variables of the environment by which clients of AWS find it."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    @property
    def catalog_properties(self) -> dict[str, str]:
        """Properties that make an Iceberg catalog keep its files here."""
        return {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "client.region": REGION,
        }


@contextmanager
def s3_server() -> Iterator[ObjectStore]:
    """A running, empty server that is stopped at the end."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield ObjectStore(f"http://{host}:{port}")
    finally:
        server.stop()


@pytest.fixture(scope="session")
def s3() -> Iterator[ObjectStore]:
    """One server for the whole run, started by the first test that asks for it; use buckets of your own."""
    with s3_server() as running:
        yield running
