# Runs inside of GDB: records the program with `record full` from main to its end, then does the plan that the
# environment names. A line of the plan is the number of instructions to stand behind first (modulo all), without
# breakpoints, or nothing, and commands, separated by tabs. Each line is answered by a line of JSON, which tells where the last command came to; before them
# stands one that describes every instruction of the record.
import gdb
import json
import os
import re

KINDS = {
    gdb.NORMAL_FRAME: "normal",
    gdb.INLINE_FRAME: "inlined",
    gdb.TAILCALL_FRAME: "tail_caller",
    gdb.SIGTRAMP_FRAME: "signal",
}
FORWARD = re.compile(r"(s|n|c|si|ni|fin|until|advance|step|next|stepi|nexti|finish|continue)\b")

answers = open(os.environ["JUDGE_ANSWERS"], "w")
statements = {}
last = 0


def say(what):
    answers.write(json.dumps(what) + "\n")


def run(command):
    try:
        gdb.execute(command, to_string=True)
        return None
    except gdb.error as error:
        return str(error)


def number():
    """How many instructions of the record were executed; at its end GDB names no number."""
    text = gdb.execute("info record", to_string=True)
    found = re.search(r"Current instruction number is (\d+)", text)
    return min(int(found.group(1)), last) if found else last


def frames():
    frame, found = gdb.newest_frame(), []
    while frame and len(found) < 300:
        place = frame.find_sal()
        found.append(
            {
                "pc": frame.pc(),
                "function": frame.name(),
                "kind": KINDS.get(frame.type(), "other"),
                "line": place.line if place.symtab else None,
            }
        )
        try:
            frame = frame.older()
        except gdb.error:
            break
    return found


def statement(row):
    """Whether the row of the line table begins a statement."""
    if not row.symtab:
        return False
    name = row.symtab.filename
    if name not in statements:
        table = gdb.execute("maint info line-table " + re.escape(os.path.basename(name)) + "$", to_string=True)
        rows = re.findall(r"^\d+ +(\d+) +(0x[0-9a-f]+) .*\bY\b", table, re.MULTILINE)
        statements[name] = {(int(address, 16), int(line)) for line, address in rows}
    return (row.pc, row.line) in statements[name]


def here():
    """The next instruction, and what GDB knows of its address."""
    frame = gdb.newest_frame()
    pc = frame.pc()
    row = gdb.find_pc_line(pc)
    depth = 0
    while frame:
        depth += frame.type() in (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME)
        try:
            frame = frame.older()
        except gdb.error:
            break
    block = gdb.block_for_pc(pc)
    function, copies, copy = None, [], False
    while block and not function:
        if block.function and block.superblock and block.superblock.is_static:
            function = block.function.name
        elif block.function:
            copies.append(block.start)
            copy = copy or block.start == pc
        block = block.superblock
    symbol = re.match(r"(.+?)( \+ \d+)? in section", gdb.execute("info symbol %d" % pc, to_string=True))
    function = function or symbol and symbol.group(1)
    entry = symbol is not None and not symbol.group(2)
    return {
        "pc": pc,
        "row": row.pc,
        "line": row.line if row.symtab else 0,
        "statement": statement(row),
        "depth": depth,
        "function": function,
        "entry": entry,
        "copies": copies,
        "copy": copy,
    }


def come_to(target):
    """As a step comes there, so that GDB knows of which inlined functions it stands before the first instruction."""
    before = max(target - 1, 0)
    if number() != before:
        gdb.execute("record goto %d" % before, to_string=True)
    if target > 0:
        gdb.execute("stepi", to_string=True)


def answer(line):
    target, *commands = line.rstrip("\n").split("\t")
    if number() == last:
        run("record goto %d" % last)
    if target:
        run("delete")
        come_to(int(target) % (last + 1))
    start, error = number(), None
    for command in commands:
        # Beyond the end of the record the program would go on.
        if FORWARD.match(command) and number() == last:
            break
        error = run(command) or error
    return {"start": start, "number": number(), "frames": frames(), "error": error}


for setting in [
    "pagination off",
    "confirm off",
    "width 0",
    "backtrace past-main on",
    "backtrace past-entry on",
    "record full insn-number-max unlimited",
]:
    run("set " + setting)
# Internal ones take no numbers.
at_main = gdb.Breakpoint("main", internal=True)
run("run")
at_main.delete()
if os.environ.get("JUDGE_EXITS"):
    gdb.Breakpoint("*%d" % gdb.newest_frame().older().pc(), internal=True, temporary=True)
run("record full")
run("continue")
log = gdb.execute("info record", to_string=True)
recorded = re.search(r"Highest recorded instruction number is (\d+)", log)
last = int(recorded.group(1)) if recorded else 0
gdb.execute("record goto begin", to_string=True)
path = [here()]
while (before := number()) < last:
    gdb.execute("stepi", to_string=True)
    if number() == before:
        raise gdb.error("GDB stays at instruction %d of %d" % (before, last))
    path.append(here())
# The instruction that failed is in the record, as if it had been executed.
if len(path) > 1 and path[-1]["pc"] == path[-2]["pc"]:
    path.pop()
    last -= 1
say(path)
for line in open(os.environ["JUDGE_PLAN"]):
    say(answer(line))
answers.close()
run("kill")
