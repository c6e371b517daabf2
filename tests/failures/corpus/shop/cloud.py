"""Object storage and a table in the cloud."""

import functools

import boto3
from botocore.config import Config


@functools.cache
def session(keys):
    """The service's description takes ten megabytes: clients of one session share it."""
    given = {"aws_access_key_id": "a", "aws_secret_access_key": "b"} if keys else {}
    return boto3.session.Session(**given, region_name="eu-west-1")


@functools.cache
def client(service, endpoint, keys=True):
    config = Config(
        retries={"total_max_attempts": 1}, connect_timeout=0.2, read_timeout=0.2, s3={"addressing_style": "path"}
    )
    return session(keys).client(service, endpoint_url=endpoint, config=config)


def read_object(endpoint, bucket, key):
    return client("s3", endpoint).get_object(Bucket=bucket, Key=key)["Body"].read()


def reserve(endpoint, key):
    return client("dynamodb", endpoint).put_item(TableName="stock", Item={"id": {"S": key}})
