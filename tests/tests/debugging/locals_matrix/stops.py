# Runs inside GDB. Stops the program at seeded random instructions of its own source, and writes a
# core at each stop. `LOCALS_STOPS` has the settings as JSON.
import gdb
import json
import os
import random
import subprocess

settings = json.loads(os.environ["LOCALS_STOPS"])
source, entry, wanted = settings["source"], settings["entry"], settings["count"]
randoms = random.Random(settings["seed"])

# A program that does not give enough stops in this number of runs ends the script.
RUNS = 20
# The number of breakpoints of a run.
BREAKPOINTS = 150
# A breakpoint stops after one of these numbers of hits.
IGNORED = [0, 0, 1, 2, 3, 5, 8, 13, 21]
# After a breakpoint, the program runs fewer instructions than this.
STEPS = 6
# Mappings of this size and more are left out of cores if they are nearly empty.
LARGE = 16 << 20
# The number of the system call, and the advice.
MADVISE, MADV_DONTDUMP = 28, 16


def is_alive():
    return gdb.selected_inferior().pid != 0


def tables():
    """The line tables that belong to the source, one for each unit."""
    first_rows = set()
    for line in range(1, settings["lines"], 5):
        try:
            places = gdb.decode_line("%s:%d" % (source, line))[1] or []
        except gdb.error:
            continue
        for place in places:
            if not place.symtab or os.path.basename(place.symtab.filename) != source:
                continue
            table = [row for row in place.symtab.linetable() if row.line > 0]
            if table and table[0].pc not in first_rows:
                first_rows.add(table[0].pc)
                yield table


def rows():
    """The addresses of the source's rows, in functions."""
    addresses = {row.pc for table in tables() for row in table}
    return sorted(address for address in addresses if gdb.block_for_pc(address))


def is_own(pc):
    place = gdb.find_pc_line(pc)
    return place.symtab is not None and os.path.basename(place.symtab.filename) == source


def planted(addresses):
    chosen = randoms.sample(addresses, min(BREAKPOINTS, len(addresses)))
    breakpoints = {}
    for address in chosen:
        point = gdb.Breakpoint("*%#x" % address, internal=True)
        point.silent = True
        point.ignore_count = randoms.choice(IGNORED)
        breakpoints[address] = point
    return breakpoints


def pc_of():
    return gdb.newest_frame().pc()


def sparse_mappings():
    """Large mappings that are nearly empty: those of Go's runtime take hundreds of megabytes."""
    with open("/proc/%d/smaps" % gdb.selected_inferior().pid) as text:
        fields = [line.split() for line in text]
    found, start, end = [], 0, 0
    for words in fields:
        if "-" in words[0] and not words[0].endswith(":"):
            start, end = (int(part, 16) for part in words[0].split("-"))
        if words[0] == "Rss:" and end - start >= LARGE and int(words[1]) * 1024 * 16 < end - start:
            found.append((start, end - start))
    return found


def system_call(number, *arguments):
    """Makes a system call in the program, by an instruction of its vdso."""
    registers = ["rip", "rax", "rcx", "r11", "rdi", "rsi", "rdx"]
    saved = [(name, int(gdb.parse_and_eval("$" + name))) for name in registers]
    with open("/proc/%d/maps" % gdb.selected_inferior().pid) as maps:
        vdso = next(line for line in maps if line.rstrip().endswith("[vdso]"))
    start, end = (int(part, 16) for part in vdso.split()[0].split("-"))
    at = gdb.selected_inferior().search_memory(start, end - start, b"\x0f\x05")
    values = dict(zip(["rip", "rax", "rdi", "rsi", "rdx"], [at, number, *arguments]))
    for name, value in values.items():
        gdb.execute("set $%s = %d" % (name, value))
    gdb.execute("stepi", to_string=True)
    for name, value in saved:
        gdb.execute("set $%s = %d" % (name, value))


def one_run(written):
    gdb.Breakpoint(entry, temporary=True, internal=True)
    gdb.execute("run > /dev/null", to_string=True)
    if not is_alive():
        return written
    for start, size in sparse_mappings():
        system_call(MADVISE, start, size, MADV_DONTDUMP)
    breakpoints = planted(rows())
    while written < wanted and breakpoints:
        gdb.execute("continue", to_string=True)
        if not is_alive():
            return written
        point = breakpoints.pop(pc_of(), None)
        if point:
            point.delete()
        steps = randoms.randrange(STEPS)
        if steps:
            gdb.execute("stepi %d" % steps, to_string=True)
        if is_alive() and is_own(pc_of()):
            core = "%s/core.%d" % (settings["folder"], written)
            gdb.execute("generate-core-file %s" % core, to_string=True)
            # The shadow memory of sanitizers is mostly zero, and there are hundreds of cores.
            subprocess.run(["fallocate", "--dig-holes", core], check=True)
            written += 1
    for point in breakpoints.values():
        point.delete()
    if is_alive():
        gdb.execute("kill", to_string=True)
    return written


for setting in [
    "pagination off",
    "confirm off",
    "width 0",
    "disable-randomization on",
    "breakpoint always-inserted on",
    "print inferior-events off",
    "env ASAN_OPTIONS detect_leaks=0",
    "env GODEBUG asyncpreemptoff=1",
    "env GOMAXPROCS 1",
    "env GOGC off",
]:
    gdb.execute("set " + setting)
gdb.execute("handle all nostop noprint pass", to_string=True)

total = 0
for _ in range(RUNS):
    if total < wanted:
        total = one_run(total)
