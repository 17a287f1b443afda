"""The tables of a store (docs/campaigns.md)."""

from __future__ import annotations

VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, plan TEXT NOT NULL, torch TEXT NOT NULL, elapsed REAL NOT NULL,
    spent TEXT NOT NULL, merged INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS shards (
    task TEXT PRIMARY KEY, target TEXT NOT NULL, seed INTEGER NOT NULL, result TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS failures (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, number INTEGER NOT NULL, target TEXT NOT NULL,
    oracle TEXT NOT NULL, kind TEXT NOT NULL, failure TEXT NOT NULL,
    deaths TEXT NOT NULL DEFAULT '[]', reduction TEXT, UNIQUE (task, number));
CREATE TABLE IF NOT EXISTS findings (
    identifier TEXT PRIMARY KEY, state TEXT NOT NULL, finding TEXT NOT NULL, script TEXT NOT NULL,
    issue TEXT, confirmation TEXT, torch_compile TEXT);
CREATE TABLE IF NOT EXISTS occurrences (
    finding TEXT NOT NULL, task TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (finding, task, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throughput (
    run INTEGER NOT NULL, elapsed REAL NOT NULL, programs INTEGER NOT NULL,
    violating INTEGER NOT NULL, findings INTEGER NOT NULL, kib INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS triage (
    finding TEXT PRIMARY KEY, state TEXT NOT NULL, link TEXT NOT NULL, note TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS replays (
    finding TEXT NOT NULL, torch TEXT NOT NULL, shown INTEGER NOT NULL,
    PRIMARY KEY (finding, torch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS workers (
    elapsed REAL NOT NULL, processes INTEGER NOT NULL, kib INTEGER NOT NULL,
    largest_kib INTEGER NOT NULL);
"""
