"""PostgreSQL through psycopg, SQLAlchemy and sqlite3."""

import sqlite3

import psycopg
import sqlalchemy

SCHEMA = """
create table if not exists customer (id int primary key, mail text unique not null);
create table if not exists purchase (id serial primary key, customer int references customer, amount numeric);
"""


def execute(url, sql, args=None):
    with psycopg.connect(url, connect_timeout=2) as connection:
        return connection.execute(sql, args)


def add_customer(url, number, mail):
    with psycopg.connect(url, connect_timeout=2) as connection:
        connection.execute(SCHEMA)
        connection.execute("insert into customer values (1, 'first@example.com') on conflict do nothing")
        connection.execute("insert into customer (id, mail) values (%s, %s)", (number, mail))


def weekly_report(url):
    return execute(url, "select 2")


def slow_report(url, seconds):
    with psycopg.connect(url, options="-c statement_timeout=30") as connection:
        connection.execute(f"select pg_sleep({seconds})")


def through_alchemy(url, sql, **args):
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    with engine.begin() as connection:
        return connection.execute(sqlalchemy.text(sql), args).all()


def alchemy_import(url, sku):
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create table if not exists item (sku text primary key)"))
        for _ in range(2):
            connection.execute(sqlalchemy.text("insert into item values (:sku)"), {"sku": sku})


def lite(path, sql, *args):
    connection = sqlite3.connect(path, timeout=0)
    try:
        connection.execute("create table if not exists shelf (place text primary key)")
        return connection.execute(sql, args).fetchall()
    finally:
        connection.close()


def lite_twice(place):
    connection = sqlite3.connect(":memory:")
    connection.execute("create table shelf (place text primary key)")
    for _ in range(2):
        connection.execute("insert into shelf values (?)", (place,))
