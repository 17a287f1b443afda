"""The options of the command line that have a long description, or that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="Target to test, see 'aliasproof targets'; or your own pass or torch.compile backend"
        " as PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION. Repeat the option for more targets.",
    ),
]
FindingName = Annotated[
    str,
    typer.Argument(
        metavar="FINDING",
        help="Folder or name (under runs/) of a finding, a suspicion, an unconfirmed failure.",
    ),
]
OwnTarget = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="Your own target that the finding is of: code that a file names is not imported.",
    ),
]
KindOfOp = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="Only this kind: view, in-place, mutating, out=, functional."
    ),
]
StatusOfOp = Annotated[
    str | None,
    typer.Option(
        metavar="STATUS", help="Only this status: drawn, reachable, not applicable, undrawn."
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Draw programs for this time. Default: 90."),
]
Programs = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER", help="Draw this many programs per target, without a time limit."
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="HH:MM", help="Draw programs until this time of the day.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER", help="The same seed and --programs give the same findings. Default: 0."
    ),
]
RunFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="New folder for the findings, or the folder of a run to go on with. Default:"
        " runs/<date>-<time>.",
    ),
]
ProgramLimit = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="A program that takes longer hangs. Default: 120."),
]
WorkerMemory = Annotated[
    float | None,
    typer.Option(
        metavar="GIB",
        help="Memory that each worker may allocate. Default: its part of 80 % of what is free.",
    ),
]
ShareOfShards = Annotated[
    str | None,
    typer.Option(
        metavar="I/N",
        help="Run the I-th of N shares of the programs. 'aliasproof merge' joins the N runs.",
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        metavar="auto|HOST:PORT|ray://HOST:PORT",
        help="Run on the nodes of a Ray cluster; --workers is then per node.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="dev|ci|nightly",
        help="dev: 90 seconds. ci: 5 minutes past the known bugs, exit status 1 for a finding."
        " nightly: 8 hours.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "--jobs",
        "-j",
        metavar="NUMBER",
        help="Worker processes. Default: one per core.",
    ),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="FILE.py, PROGRAM.json or the folder of a finding.")
]
FunctionName = Annotated[
    str, typer.Option(metavar="NAME", help="The function in FILE.py. It is called with the inputs.")
]
InputsName = Annotated[
    str,
    typer.Option(metavar="NAME", help="The function in FILE.py that returns the input tensors."),
]
Workers = Annotated[
    int | None, typer.Option(metavar="NUMBER", help="Worker processes. Default: one per core.")
]
Limit = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Time limit of the file, of the run in eager, and of each target."
    ),
]
Memory = Annotated[
    float | None,
    typer.Option(
        metavar="GIB",
        help="Memory limit of the process that runs them. Default: 80 % of what is available.",
    ),
]
InProcess = Annotated[
    bool,
    typer.Option("--in-process", help="Run all in this process, without limits, for debuggers."),
]
AcceptDocumented = Annotated[
    bool,
    typer.Option(
        "--accept-documented",
        help="Differences that a target documents do not change the exit status.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Wrong metadata in a graph counts as a difference.")
]
PastKnown = Annotated[
    bool, typer.Option("--past-known", help="Mend torch's known bugs first: only new ones show.")
]
Group = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Compile this many programs as one. Default: the fastest number for each target.",
    ),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        help="The device that programs are on: cpu, cuda or cuda:NUMBER. Default: cpu.",
    ),
]
MovedTo = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="Move the inputs to this device first: cpu, cuda or cuda:NUMBER.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON object to standard output.")]
MinimizedFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="FILE.py, PROGRAM.json, or the folder or name of a finding."
    ),
]
MinimizedTarget = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="Keep what this target does wrong. A finding brings its own.",
    ),
]
KeptOracle = Annotated[
    str | None,
    typer.Option(
        metavar="ORACLE",
        help="Keep the difference that this oracle reports, documented or not.",
    ),
]
Interesting = Annotated[
    Path | None,
    typer.Option(
        metavar="SCRIPT",
        help="Keep what this executable exits with status 0 for. It runs in a new folder, with"
        " program.py and program.json as arguments.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the result: .py or .json."),
]
CandidateLimit = Annotated[float, typer.Option(metavar="SECONDS", help="Time limit per candidate.")]
