"""Codes of well-known servers: names of what went wrong, never anybody's data."""

from __future__ import annotations

from redrive.kernel.classify import CODES
from redrive.kernel.error_words import ERROR_WORDS

_GRPC = """
    OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
    RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS
    UNAUTHENTICATED
"""
_REDIS = """
    ERR WRONGTYPE WRONGPASS NOAUTH NOPERM NOSCRIPT NOGROUP NOREPLICAS BUSY BUSYGROUP BUSYKEY LOADING MASTERDOWN
    MISCONF MOVED ASK CLUSTERDOWN CROSSSLOT TRYAGAIN READONLY EXECABORT OOM UNBLOCKED UNKILLABLE NOTBUSY INVALIDOBJ
"""
_AWS = """
    AccessDenied AccessDeniedException NoSuchKey NoSuchBucket NoSuchUpload NoSuchEntity NotFound BucketAlreadyExists
    BucketNotEmpty InvalidAccessKeyId SignatureDoesNotMatch PreconditionFailed EntityTooLarge InvalidRange
    InternalError InternalFailure InternalServerError ServiceUnavailable ServiceUnavailableException
    ValidationException ValidationError ConditionalCheckFailedException ResourceNotFoundException
    ResourceInUseException InvalidParameterValue InvalidParameterException UnrecognizedClientException
    InvalidClientTokenId InvalidSignatureException MissingParameter OptInRequired UnauthorizedOperation
    ItemCollectionSizeLimitExceededException
"""
# OpenAI and those that speak like it, Stripe
_CLIENTS = """
    rate_limit_exceeded insufficient_quota invalid_api_key model_not_found context_length_exceeded
    content_policy_violation invalid_request_error server_error invalid_value missing_required_parameter
    string_above_max_length unsupported_parameter billing_hard_limit_reached account_deactivated card_declined
    expired_card incorrect_cvc incorrect_number insufficient_funds processing_error authentication_required
    resource_missing rate_limit lock_timeout idempotency_key_in_use amount_too_large amount_too_small
    parameter_missing parameter_invalid_empty
"""
_TLS = """
    ssl tls sslv tlsv alert handshake cipher ciphers certificate cert verify peer hello shake mac record ca eof
    version protocol renegotiation legacy extension dh key small weak md dhe
"""

KNOWN_CODES = frozenset([*CODES, *_GRPC.split(), *_REDIS.split(), *_AWS.split(), *_CLIENTS.split()])
# TLS libraries build their reasons of these.
TLS_WORDS = ERROR_WORDS | frozenset(_TLS.split())
