"""Reports for the tests of pages and files: findings with hostile texts, and many of them."""

from dataclasses import replace

from aliasproof.campaigns.store.run_view import Moment
from aliasproof.oracles.verdict import Violation
from aliasproof.reports.graph_change import graph_change
from aliasproof.reports.run_report import (
    BugLink,
    OracleVerdict,
    ReportedFinding,
    RunReport,
    SecondRun,
    Status,
)
from aliasproof.reports.storage_strips import SharedByte, Strip, StripSet, ViewRow

HOSTILE = '</script><script>window.hostile = 1</script><img src=x onerror="window.hostile=1">\'&\0'
BUG = BugLink("expand-inverse", "a write through expand", "https://github.com/x/y/issues/1")

ROWS = (
    ViewRow("x0", "input", "float32[4]", ((0, 16),)),
    ViewRow("v0", "aten.slice.Tensor(x0, 0, 1)", "float32[3] offset 1", ((4, 16),)),
    ViewRow("add_", "aten.add_.Scalar(v0, 1)", "float32[3] offset 1", ((4, 16),), writes=True),
)
SHARED = SharedByte("v0", "x0", (0,), (1,), 4)
STRIPS = StripSet("the program in eager", (Strip("A", 16, ROWS, (SHARED,)),))
CHANGE = graph_change(
    ("the program", "functional"),
    "def forward(self, x):\n    add = torch.ops.aten.add_.Tensor(x, 1)\n    return (add,)",
    "def forward(self, x):\n    add = torch.ops.aten.add.Tensor(x, 2)\n    return (add,)",
    ["add"],
    "marked: a call",
)
SECOND = SecondRun(
    "2.13.0",
    Status("still there", "Still there in torch 2.13.0."),
    (
        OracleVerdict("values", "violated", "", ("wrong value (output 0)",)),
        OracleVerdict("errors", "holds", "", ()),
    ),
    (("output 0", "tensor([1., 2.])", "tensor([1., 3.])"), ("input 0", "1", "1")),
    (STRIPS,),
    (CHANGE,),
)
FINDING = ReportedFinding(
    identifier="aot-values-1",
    state="reproduced",
    link="",
    note="",
    times=3,
    folder="runs/x/findings/aot-values-1",
    target="aot",
    violation=Violation("values", "wrong value", "output 0", {"eager": "1.0", "elements": 4}),
    known=None,
    latent=False,
    wrong_part="AOTAutograd: functionalization",
    cause="writes by a store",
    user_level={"inductor": "shows"},
    torch="2.13.0",
    device="cpu",
    seed=3,
    size=2,
    drawn_size=20,
    unit="instruction",
    source="def program(x0):\n    return (x0,)\n",
    script="print('the script')\n",
    issue="the issue\n",
    second=SECOND,
)
RAISING = replace(
    FINDING,
    identifier="inductor-errors-2",
    target="inductor",
    violation=Violation("errors", f"raises RuntimeError: {HOSTILE}", HOSTILE, {"message": HOSTILE}),
    size=10,
    note=HOSTILE,
    link="javascript:window.hostile=1",
    wrong_part=HOSTILE,
    source=f"# {HOSTILE}\n",
    script=HOSTILE,
    issue=HOSTILE,
    folder=f"runs/{HOSTILE}",
    second=None,
    not_run="Not run again: 'aliasproof show FOLDER' runs it.",
)
KNOWN = replace(
    FINDING, identifier="known-expand-inverse", state="known", known=BUG, size=3, second=None
)
MOMENTS = (Moment(1.0, 100, 1, 0, 10), Moment(60.0, 5000, 20, 3, 10))
REPORT = RunReport(
    "night",
    (FINDING, RAISING, KNOWN),
    "fuzz",
    ("2.13.0",),
    (3,),
    60.0,
    programs={"aot": 3000, "inductor": 2000},
    violating={"aot": 12, "inductor": 8},
    known=((BUG, 2),),
    moments=MOMENTS,
)


def many(count: int) -> RunReport:
    """A report with `count` findings, some of which ran again."""
    findings = (
        replace(KNOWN if n % 100 else FINDING, identifier=f"finding-{n}", size=n % 40)
        for n in range(count)
    )
    return replace(REPORT, findings=tuple(findings))
