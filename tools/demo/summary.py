"""The end of the demo in words: how it went, its turns, the starts, and which promises held."""

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tools.demo.report import Report
from tools.demo.words import shortened


def show(report: Report, console: Console) -> None:
    console.print()
    _numbers(report, console)
    _turns(report, console)
    _starts(report, console)
    _promises(report, console)


def _numbers(report: Report, console: Console) -> None:
    waits, ends, usage = report["waits"], report["completions"], report["utilisation"]
    finished = sum(job["finished"] is not None for job in report["jobs"])
    console.print(
        f"[bold]{finished} of {len(report['jobs'])} jobs finished in {report['seconds']:.0f} s[/] "
        f"on {report['nodes']} nodes with {report['gpus']} GPUs, seed {report['seed']}"
    )
    console.print(
        f"  waited      {waits['mean']:.1f} s on average, median {waits['median']:.1f} s, "
        f"longest {waits['longest']:.1f} s"
    )
    console.print(
        f"  completed   {ends['mean']:.1f} s after submission on average, "
        f"longest {ends['longest']:.1f} s"
    )
    console.print(
        f"  GPUs in use {usage['mean']:.0%} on average, {usage['whileQueued']:.0%} until the last "
        f"job had started, {usage['peak']:.0%} at most"
    )


def _turns(report: Report, console: Console) -> None:
    console.print("\n[bold]Turns[/], in the words of the objects; of reservations the first")
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for turn in report["turns"]:
        words = [turn["job"], turn["kind"], shortened(turn["text"])]
        table.add_row(f"{turn['seconds']:.1f} s", *map(Text, words))
    console.print(table)


def _starts(report: Report, console: Console) -> None:
    console.print("\n[bold]Order of starts[/]: a job starts when its priority comes up and it fits")
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
    for title in ("SUBMITTED", "STARTED", "WAITED"):
        table.add_column(title, justify="right")
    table.add_column("JOB")
    table.add_column("QUEUE")
    for title in ("PRIO", "GPUS"):
        table.add_column(title, justify="right")
    jobs = {job["name"]: job for job in report["jobs"]}
    for start in report["startOrder"]:
        job = jobs[start["name"]]
        waited = job["started"] - job["submitted"]
        row = [f"{job['submitted']:.1f} s", f"{job['started']:.1f} s", f"{waited:.1f} s"]
        table.add_row(*row, job["name"], job["queue"], f"{job['priority']:.2f}", str(job["gpus"]))
    console.print(table)


def _promises(report: Report, console: Console) -> None:
    console.print("\n[bold]Promises[/], checked against every revision the API server gave out")
    for promise in report["promises"]:
        line = Text("  ✓ " if promise["kept"] else "  ✗ ", style="green")
        line.stylize("" if promise["kept"] else "bold red")
        line.append(promise["text"], style="" if promise["kept"] else "bold red")
        console.print(line)
        if promise["detail"]:
            console.print(Padding(Text(promise["detail"], style="dim"), (0, 0, 0, 6)))
