"""The command `minimize`: a user's function, a program or a finding, reduced to what matters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from aliasproof.commands.options import (
    Atol,
    FunctionName,
    InputsName,
    Json,
    MovedTo,
    Rtol,
    Workers,
    above_zero,
    argument,
    option,
    require_writable,
    target_option,
    whole_number,
)
from aliasproof.minimization.minimize_request import SESSION, MinimizeOptions, MinimizeRequest
from aliasproof.processes.isolation import start_server
from aliasproof.user_code.given_path import GivenFile, file_to_read

MinimizedFile = Annotated[
    str,
    argument(
        "FILE",
        "FILE.py, FILE.py:FUNCTION, PROGRAM.json, a graph that torch printed into FILE.txt,"
        " a FILE.pt2 of torch.export.save, the folder or name of a finding, or the folder of a"
        " stored graph.",
    ),
]
MinimizedTarget = Annotated[
    str | None,
    target_option("Keep what it does wrong; by default inductor, or a finding's own."),
]
KeptOracle = Annotated[
    str | None,
    option("ORACLE", "Keep the difference that this oracle reports, documented or not."),
]
Interesting = Annotated[
    Path | None,
    option(
        "SCRIPT",
        "Keep what this executable exits with status 0 for. It runs in a new folder, with"
        " program.py and program.json as arguments.",
    ),
]
Output = Annotated[
    Path | None,
    option("FILE", "Write the smallest program so far: .py or .json.", "--output", "-o"),
]
FindingFolder = Annotated[
    Path | None,
    option(
        "DIR",
        "Write a new folder with the result as a campaign does: a script that needs torch"
        " alone, an issue text, and the program.",
    ),
]
ResumedFrom = Annotated[
    Path | None,
    option(
        "FILE",
        "Keep the answers about candidates in this file. After an interruption, the same"
        " command goes on from there.",
    ),
]
Repeat = Annotated[
    int,
    whole_number("Try each candidate N times: a flaky failure is reported, and reduced.", 1),
]
CandidateLimit = Annotated[float, above_zero("SECONDS", "Time limit per candidate.")]


def minimize(
    file: MinimizedFile,
    target: MinimizedTarget = None,
    oracle: KeptOracle = None,
    interesting: Interesting = None,
    output: Output = None,
    finding: FindingFolder = None,
    resume: ResumedFrom = None,
    repeat: Repeat = 1,
    function: FunctionName = None,
    inputs: InputsName = "inputs",
    workers: Workers = None,
    limit: CandidateLimit = 60.0,
    device: MovedTo = None,
    rtol: Rtol = None,
    atol: Atol = None,
    json: Json = False,
) -> int:
    """Reduce a function or a program as long as a target shows the same difference from eager.

    A function in FILE.py is recorded as ATen calls. The smallest program so far is always on
    disk. Ctrl-C ends the reduction with it; with --resume, the same command continues from there.

    Exit status: 0 reduced; 2 bad input, or nothing differs; 4 not judged; 130 interrupted.
    """
    given, within = GivenFile.of(file), (rtol, atol)
    names = given.names(function, inputs)
    request = MinimizeRequest(given.path, names, target, oracle, device, tolerance=within)
    options = MinimizeOptions(interesting, output, workers, limit, json, finding, resume, repeat)
    if request.path.suffix in (".py", ".json"):  # before torch is imported
        file_to_read(request.path)
        if request.path.suffix == ".py":
            options.require_judge(request)
    for path in filter(None, (output, finding)):
        require_writable(path)
    if device is None:
        start_server([SESSION])  # it imports torch while this process does
    from aliasproof.minimization.minimizing import reduce_file

    return reduce_file(str(given.path), request, options)
